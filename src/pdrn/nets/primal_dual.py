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
from pdrn.convex.arrays import Array, is_array, map_arrays, namespace, set_field
from pdrn.nets.architecture import Architecture, Start, Weights
from pdrn.nets.blocks import (
    Activations,
    Block,
    LinearMap,
    MixingBlock,
    PrimalDualBlock,
    PrimalDualResidualBlock,
    unrolled,
)
from pdrn.nets.maps import ConvolutionalMap
from pdrn.nets.starts import chambolle_pock

Memory = Literal["dual", "bias", "gain", "mix"]
Tying = Literal["untied", "half", "tied"]
Learned = Literal["no", "once", "per layer"]
Weighting = Literal["one", "spectrum"]


FAINT = 1e-6
"""Added to a power before its root is taken, which has no gradient at zero."""

SMOOTHING = (1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8)
"""Over neighbouring channels: a cosine, a sine, and the frequencies beside."""


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
        as in the paper. ``spectrum``: less where the quantized signal has more,
        ``w = 1 / (1 + exp(a) |A q|)`` with the magnitude smoothed over neighbouring channels, a and A
        learned. What stands out of the quantization error is spared, as in reweighted l1 (Candes, Wakin
        and Boyd 2008).

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
        if self.weighting == "spectrum":
            shapes |= {"A": kernel, "a": (channels,)}
        return shapes

    def start(self, generator: np.random.Generator) -> Start:
        """Start at Chambolle-Pock with the map's own dictionary; nothing is random."""
        return chambolle_pock(self)

    def blocks(self, weights: Weights) -> list[Block]:
        """Return the layers that these weights make."""
        return [self._block(layer, weights) for layer in range(self.depth)]

    def activations(self, weights: Weights, cells: Box) -> Iterator[Activations]:
        box = map_arrays(cells, self.map.lay_out)
        q = box.centre
        return unrolled(self.blocks(weights), self.prior(weights, q), box, q)

    def prior(self, weights: Weights, q: Array) -> L1:
        """Return F for a quantized signal, laid out."""
        if self.weighting == "one":
            return L1()
        xp = namespace(q)
        magnitude = xp.sqrt(_smoothed(self.map.analyse(q, weights["A"]) ** 2) + FAINT)
        weight = 1 / (1 + xp.exp(weights["a"]) * magnitude)
        return L1(xp.where(xp.isfinite(weight), weight, 0.0))

    def estimate(self, weights: Weights, cells: Box, activation: Activations) -> Array:
        return self.map.gather(activation.x, cells.lower.shape)

    def products(self, shape: tuple[int, ...]) -> int:
        mixing = self.map.sizes(shape)[1] * self.map.channels if self.memory == "mix" else 0
        maps = 2 * self.depth + (self.weighting == "spectrum")
        return maps * self.map.products(shape) + (self.depth - 1) * mixing

    @property
    def reach(self) -> int:
        """How many samples before and after the one that it restores a convolutional network sees."""
        if not isinstance(self.map, ConvolutionalMap):
            raise ValueError("a network on frames sees its frame, and nothing else")
        return (self.depth + (self.weighting == "spectrum")) * self.map.edge

    def _block(self, layer: int, weights: Weights) -> Block:
        W, V = self._maps(layer, weights)
        theta = self._theta(layer, weights)
        if self.memory == "dual":
            return PrimalDualBlock(W, V, theta)
        b = weights[f"b.{layer}"]
        if self.memory == "bias" or layer == 0:  # there is nothing to remember in the first layer
            return PrimalDualResidualBlock(W, V, b, theta)
        M = weights[f"M.{layer - 1}"]
        remember = (lambda y: y * M) if self.memory == "gain" else (lambda y: y @ M.T)
        return MixingBlock(W, V, remember, b, theta)

    def _maps(self, layer: int, weights: Weights) -> tuple[LinearMap, LinearMap]:
        analyse, synthesise = self.map.analyse, self.map.synthesise
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


def _smoothed(power: Array) -> Array:
    """Average over neighbouring channels, the outermost of which repeat."""
    reach = len(SMOOTHING) // 2
    count = power.shape[-1]
    first, last = power[..., :1], power[..., -1:]
    padded = namespace(power).concatenate([first] * reach + [power] + [last] * reach, -1)
    return sum(share * padded[..., i : i + count] for i, share in enumerate(SMOOTHING))
