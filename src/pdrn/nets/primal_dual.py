"""Primal-dual networks: L blocks from the quantized signal to the restored one.

``PrimalDual`` is the whole family. Its corners have names: memory ``dual`` is the PDN (3.3), memory ``bias``
the PDRN (3.4); tying ``tied`` is one K for all layers with learned steps, the authors' later variant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pdrn.convex import L1, Box
from pdrn.convex.arrays import Array, is_array, map_arrays, set_field
from pdrn.nets.architecture import MOST_LAYERS, Architecture, Start, Weights
from pdrn.nets.blocks import (
    Activations,
    Block,
    LinearMap,
    MixingBlock,
    PrimalDualBlock,
    PrimalDualResidualBlock,
)
from pdrn.nets.maps import ConvolutionalMap, KernelMap, set_size
from pdrn.nets.starts import chambolle_pock
from pdrn.nets.weighting import VIEWS, Beside, Spectrum, with_neighbours

Memory = Literal["dual", "bias", "gain", "mix"]
Tying = Literal["untied", "half", "tied"]
Learned = Literal["no", "once", "per layer"]
Weighting = Literal["one", "spectrum", "context"]


@dataclass(frozen=True)
class PrimalDual(Architecture):
    """L primal-dual steps on the cells: ``s = x[L]``, started at the centres and a dual activation of zero.

    The paper's variable is the distance to the centre q; here x is the signal itself, so that ``W`` sees
    ``x`` where the paper writes ``x + q``, and the box is the cells.

    Attributes
    ----------
    map
        Dense or convolutional.
    depth
        How many blocks, L.
    memory
        What the dual step adds to ``W x``: the last dual activation (``dual``, the PDN), a bias (``bias``,
        the PDRN), a bias and the last dual activation times one number per channel (``gain``) or mixed
        across channels by a matrix (``mix``).
    tying
        ``untied``: kernels W and V for every layer. ``half``: one kernel K for every layer, W = K and
        V = -tau K' with a learned tau. ``tied``: one K for all, W = sigma K and V = -tau K', both learned.
    theta
        The extrapolation, or where it starts if it is learned.
    learn_theta
        Whether theta is learned: ``no``, ``once`` for all layers, or ``per layer``.
    weighting
        The weights w of the prior ``F(y) = sum_i w_i |y_i|``, to which the dual step clips. ``one``: all 1,
        as in the paper. ``spectrum``: less where the quantized signal has more. ``context``: corrected, for
        every layer, by a small network that sees neighbouring views. See `pdrn.nets.weighting`.
    stages
        How often the weights are computed, each time from the signal as restored so far; the layers are
        shared out evenly.
    context
        How many hidden layers the network for the context has.
    causal
        Whether the context is earlier views alone, so that it needs no samples from the future.

    Examples
    --------
    >>> from pdrn.nets import DenseMap, PrimalDual
    >>> PrimalDual(DenseMap(1024), depth=10).parameter_count == 10 * 2 * 1024**2
    True
    >>> PrimalDual(DenseMap(1024), depth=10, memory="bias").parameter_count == 10 * (2 * 1024**2 + 1024)
    True
    """

    memory: Memory = "dual"
    tying: Tying = "untied"
    theta: float = 0.0
    learn_theta: Learned = "no"
    weighting: Weighting = "one"
    stages: int = 1
    context: int = 0
    causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (
            ("memory", Memory),
            ("tying", Tying),
            ("learn_theta", Learned),
            ("weighting", Weighting),
        ):
            choices, value = get_args(kind), getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if isinstance(self.theta, bool) or is_array(self.theta) or not np.isfinite(self.theta):
            raise ValueError(f"theta must be one finite number, got {self.theta!r}")
        set_field(self, "theta", float(self.theta))
        self._check_weighting()

    def _check_weighting(self) -> None:
        set_size(self, "stages")
        set_size(self, "context", least=0, most=MOST_LAYERS)
        if self.depth % self.stages:
            raise ValueError(f"{self.depth} layers cannot be shared out evenly among {self.stages} stages")
        if self.weighting == "one" and self.stages > 1:
            raise ValueError('stages are for weights that follow the signal; choose weighting "spectrum"')
        if (self.weighting == "context") != (self.context > 0):
            raise ValueError(
                'hidden layers and weighting "context" go together, '
                f"got context = {self.context} and weighting {self.weighting!r}"
            )
        if self.context and not isinstance(self.map, ConvolutionalMap):
            raise ValueError("frames have no neighbours; the context takes a convolutional map")
        if self.causal and not self.context:
            raise ValueError("causal is said of a context, and this network has none")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        kernel, channels = self.map.kernel_shape, self.map.channels
        shapes: dict[str, tuple[int, ...]] = {}
        if self.tying == "tied":
            shapes |= {"K": kernel, "sigma": (1,), "tau": (1,)}
        elif self.tying == "half":
            shapes |= {f"K.{layer}": kernel for layer in range(self.depth)} | {"tau": (self.depth,)}
        else:
            shapes |= {f"{name}.{layer}": kernel for name in "WV" for layer in range(self.depth)}
        if self.memory != "dual":
            shapes |= {f"b.{layer}": (channels,) for layer in range(self.depth)}
        if self.memory in ("gain", "mix"):
            mix = (channels,) if self.memory == "gain" else (channels, channels)
            shapes |= {f"M.{layer}": mix for layer in range(self.depth - 1)}
        if self.learn_theta != "no":
            shapes["theta"] = (1,) if self.learn_theta == "once" else (self.depth,)
        if self.weighting != "one":
            shapes |= {f"A.{stage}": kernel for stage in range(self.stages)}
            shapes |= {f"a.{stage}": (channels,) for stage in range(self.stages)}
        if self.context:
            hidden = range(self.stages * self.context)
            shapes |= {f"C.{index}": (channels, VIEWS * channels) for index in hidden}
            shapes |= {f"c.{index}": (channels,) for index in hidden}
            shapes |= {f"H.{layer}": (channels, channels) for layer in range(self.depth)}
            shapes |= {f"h.{layer}": (channels,) for layer in range(self.depth)}
        return shapes

    def start(self, generator: np.random.Generator) -> Start:
        """Start at Chambolle-Pock with the map's own dictionary; only a context starts at random."""
        return chambolle_pock(self, generator=generator)

    def activations(self, weights: Weights, cells: Box) -> Iterator[Activations]:
        box = map_arrays(cells, lambda bound: self.map.lay_out(bound, self._gap))
        activations = Activations.at(box.centre)
        priors: Iterator[L1] = iter(())
        for layer in range(self.depth):
            if layer % self.layers_per_stage == 0:
                stage = layer // self.layers_per_stage
                priors = self.priors(stage, weights, activations.x, self.map, self._beside)
            # Made now and not before: whoever learns the last layers alone has gradients switched on by now.
            activations = self.block(layer, weights, self.map)(next(priors), box, activations)
            yield activations

    def block(self, layer: int, weights: Weights, map: KernelMap) -> Block:
        """Return a layer that these weights make, acting by a map: the plan's own for whole signals."""
        W, V = self._maps(layer, weights, map)
        theta = self._theta(layer, weights)
        if self.memory == "dual":
            return PrimalDualBlock(W, V, theta)
        b = weights[f"b.{layer}"]
        if self.memory == "bias" or layer == 0:  # there is nothing to remember in the first layer
            return PrimalDualResidualBlock(W, V, b, theta)
        M = weights[f"M.{layer - 1}"]
        remember = (lambda y: y * M) if self.memory == "gain" else (lambda y: y @ M.T)
        return MixingBlock(W, V, remember, b, theta)

    def priors(self, stage: int, weights: Weights, x: Array, map: KernelMap, beside: Beside) -> Iterator[L1]:
        """Yield F for every layer of a stage that starts from a signal, as the map takes it."""
        layers = range(stage * self.layers_per_stage, (stage + 1) * self.layers_per_stage)
        if self.weighting == "one":
            yield from (L1() for _ in layers)
            return
        spectrum, sparing = Spectrum.of(x, map, weights[f"A.{stage}"]), weights[f"a.{stage}"]
        if not self.context:
            prior = spectrum.prior(sparing)
            yield from (prior for _ in layers)
            return
        hidden = range(stage * self.context, (stage + 1) * self.context)
        context = spectrum.context(
            ((weights[f"C.{index}"], weights[f"c.{index}"]) for index in hidden), beside
        )
        for layer in layers:
            yield spectrum.prior(sparing, context @ weights[f"H.{layer}"].T + weights[f"h.{layer}"])

    def estimate(self, weights: Weights, cells: Box, activation: Activations) -> Array:
        return self.map.gather(activation.x, cells.lower.shape, self._gap)

    def products(self, shape: tuple[int, ...]) -> int:
        channels, coefficients = self.map.channels, self.map.sizes(shape, self._gap)[1]
        matrices = self.depth - 1 if self.memory == "mix" else 0
        if self.context:
            matrices += self.stages * self.context * VIEWS + self.depth
        maps = 2 * self.depth + (self.stages if self.weighting != "one" else 0)
        return maps * self.map.products(shape, self._gap) + matrices * coefficients * channels

    @property
    def reach(self) -> tuple[int, int]:
        """How many samples before and after a hop that it restores a convolutional network sees."""
        if not isinstance(self.map, ConvolutionalMap):
            raise ValueError("a network on frames sees its frame, and nothing else")
        before, after = (views * self.stages * self.map.hop for views in self._context_views)
        return self.depth * self.map.edge + before, self.depth * self.map.edge + after

    @property
    def layers_per_stage(self) -> int:
        """How many layers have weights of one prior."""
        return self.depth // self.stages

    @property
    def _context_views(self) -> tuple[int, int]:
        """How many views before and after its own the context of one stage sees."""
        beside = (VIEWS - 1) * self.context
        return (beside, 0) if self.causal else (beside // 2, beside // 2)

    @property
    def _gap(self) -> int:
        """How much more silence around signals the context needs, so that it sees that and nothing else."""
        return max(self._context_views) * self.map.hop if isinstance(self.map, ConvolutionalMap) else 0

    def _beside(self, _: int, seen: Array) -> Array:
        return with_neighbours(seen, before=VIEWS - 1 if self.causal else VIEWS // 2)

    def _maps(self, layer: int, weights: Weights, map: KernelMap) -> tuple[LinearMap, LinearMap]:
        analyse, synthesise = map.analyse, map.synthesise
        if self.tying == "untied":
            W, V = weights[f"W.{layer}"], weights[f"V.{layer}"]
            return lambda x: analyse(x, W), lambda y: synthesise(y, V)
        if self.tying == "half":
            K, tau = weights[f"K.{layer}"], weights["tau"][layer]
            return lambda x: analyse(x, K), lambda y: -tau * synthesise(y, K)
        K, sigma, tau = weights["K"], weights["sigma"][0], weights["tau"][0]
        return lambda x: sigma * analyse(x, K), lambda y: -tau * synthesise(y, K)

    def _theta(self, layer: int, weights: Weights) -> Array:
        if self.learn_theta == "no":
            return self.theta
        return weights["theta"][0 if self.learn_theta == "once" else layer]
