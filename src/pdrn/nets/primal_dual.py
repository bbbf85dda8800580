"""Primal-dual networks: the blocks (2.1) and (2.5), their family, and where training starts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

import numpy as np

from pdrn.convex import L1, Box, Functional
from pdrn.convex.backend import (
    Array,
    Step,
    convert,
    is_array,
    is_real,
    map_arrays,
    namespace,
    plus,
    set_field,
    times,
    zeros,
)
from pdrn.convex.operators import views
from pdrn.convex.problem import cells
from pdrn.errors import InputError
from pdrn.nets.maps import ConvolutionalMap, DenseMap, KernelMap, Map, set_size

Weights: TypeAlias = Mapping[str, Array]
"""Tensors by name: ``kind``, or ``kind.index`` where a network has several of a kind, counted from 0."""

MOST_LAYERS = 1000

Start: TypeAlias = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Architecture(ABC):
    """The plan of a network that restores signals inside their cells, in ``depth`` layers over one map."""

    map: Map
    depth: int

    fixed: ClassVar[tuple[str, ...]] = ()
    """The names of tensors that are kept with the weights but not learned."""

    def __post_init__(self) -> None:
        set_size(self, "depth", most=MOST_LAYERS)
        if not isinstance(self.map, DenseMap | ConvolutionalMap):
            raise InputError(f"a network needs a DenseMap or a ConvolutionalMap, got {self.map!r}")

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor."""

    @abstractmethod
    def start(self, generator: np.random.Generator) -> Start:
        """Return the weights from which training starts, float64; the generator fills what is random."""

    @abstractmethod
    def activations(self, weights: Weights, cells: Box) -> Iterator[Any]:
        """Yield what every layer hands to the next."""

    @abstractmethod
    def estimate(self, weights: Weights, cells: Box, activation: Any) -> Array:
        """Return the signal that an activation stands for, in the shape of the cells."""

    @abstractmethod
    def products(self, shape: tuple[int, ...]) -> int:
        """Count the multiply-adds of a forward pass for cells of this shape, two FLOPs each."""

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned."""
        return sum(math.prod(shape) for name, shape in self.shapes().items() if name not in self.fixed)


def restore(architecture: Architecture, weights: Weights, lower: Array, upper: Array) -> Array:
    """Restore signals inside their cells, ``(..., n) -> (..., n)``.

    Computes in the type of the weights; the result has that of the cells, and is in them exactly.
    """
    outer, inner = as_computed(weights, lower, upper)
    return keep_inside(last_estimate(architecture, weights, inner), outer)


def last_estimate(architecture: Architecture, weights: Weights, cells: Box) -> Array:
    """Return the estimate of the last layer, before it is projected; no other activation is kept."""
    last = reduce(lambda _, activation: activation, architecture.activations(weights, cells))
    return architecture.estimate(weights, cells, last)


def restore_by_layer(architecture: Architecture, weights: Weights, lower: Array, upper: Array) -> list[Array]:
    """Return the estimates of all layers; the last is what ``restore`` returns."""
    outer, inner = as_computed(weights, lower, upper)
    activations = architecture.activations(weights, inner)
    return [keep_inside(architecture.estimate(weights, inner, each), outer) for each in activations]


def keep_inside(x: Array, cells: Box) -> Array:
    """Project onto the cells; a sample that overflow has spoilt becomes the centre of its cell."""
    xp = namespace(cells.lo)
    x = convert(x, cells.lo)
    return xp.where(xp.isfinite(x), cells.project(x), cells.centre)


def as_computed(weights: Weights, lower: Array, upper: Array) -> tuple[Box, Box]:
    """Return the cells as they came, and in the type that is computed in."""
    outer = cells(lower, upper)
    like = next(iter(weights.values()))
    if not is_real(like):
        raise InputError(f"networks compute in float32 or float64, not in {like.dtype}; convert the weights")
    if lower.dtype == like.dtype:
        return outer, outer
    return outer, map_arrays(outer, lambda bound: _converted(bound, like))


def _converted(bound: Array, like: Array) -> Array:
    """Return bounds in another type; those that it cannot hold become the largest that it can."""
    xp = namespace(bound)
    most = min(float(namespace(each).finfo(each.dtype).max) for each in (bound, like))
    return convert(xp.where(xp.isinf(bound), bound, xp.clip(bound, -most, most)), like)


LinearMap = Callable[[Array], Array]
"""A linear map whose result is memory of its own."""


@dataclass(frozen=True, eq=False)
class Activations:
    """What one block hands to the next."""

    x: Array
    """The primal activation, the signal."""
    y: Any
    """The dual activation, one number per coefficient; the number 0 before the first block."""
    x_bar: Array
    """The extrapolated primal activation; x itself where theta is 0."""

    @classmethod
    def at(cls, x: Array) -> Activations:
        """Start at x with a dual activation of zero."""
        return cls(x, 0.0, x)


class Block(Protocol):
    """One layer of an unrolled network."""

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        """Return the activations after this layer."""


def unrolled(blocks: Iterable[Block], F: Functional, G: Functional, x: Array) -> Iterator[Activations]:
    """Yield the activations after every block, from x on."""
    activations = Activations.at(x)
    for block in blocks:
        activations = block(F, G, activations)
        yield activations


@dataclass(frozen=True, eq=False)
class PrimalDualBlock:
    """The block of a primal-dual network, (2.1) and (3.3): the dual activation is its memory.

        y'     = prox_{sigma F*}(W x_bar + y)
        x'     = prox_{tau G}(V y' + x)
        x_bar' = x' + theta (x' - x)

    Steps and theta are numbers or tensors that learn. Where F* and G are indicators, as for dequantization,
    the steps live in W and V alone.
    """

    W: LinearMap
    V: LinearMap
    theta: Step = 0.0
    sigma: Step = 1.0
    tau: Step = 1.0

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        y = F._prox_conjugate(plus(self.W(before.x_bar), before.y), self.sigma)
        return _primal_step(self, G, before.x, y)


@dataclass(frozen=True, eq=False)
class PrimalDualResidualBlock:
    """The block of a primal-dual residual network, (2.5) and (3.4): a learned bias replaces the memory.

        y' = prox_{sigma F*}(W x_bar + b)
        x' = prox_{tau G}(V y' + x)

    The paper has theta = 0, hence x_bar = x.
    """

    W: LinearMap
    V: LinearMap
    b: Array
    theta: Step = 0.0
    sigma: Step = 1.0
    tau: Step = 1.0

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        y = F._prox_conjugate(plus(self.W(before.x_bar), self.b), self.sigma)
        return _primal_step(self, G, before.x, y)


@dataclass(frozen=True, eq=False)
class MixingBlock:
    """Between the two: a learned map ``M`` of the last dual activation, and a bias.

        y' = prox_{sigma F*}(W x_bar + M y + b)
        x' = prox_{tau G}(V y' + x)

    ``M = 1, b = 0`` is the primal-dual block, ``M = 0`` the primal-dual residual block.
    """

    W: LinearMap
    V: LinearMap
    M: LinearMap
    b: Array
    theta: Step = 0.0
    sigma: Step = 1.0
    tau: Step = 1.0

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        v = plus(self.W(before.x_bar), self.b)
        if is_array(before.y):
            v = plus(v, self.M(before.y))
        return _primal_step(self, G, before.x, F._prox_conjugate(v, self.sigma))


def _primal_step(
    block: PrimalDualBlock | PrimalDualResidualBlock | MixingBlock, G: Functional, x: Array, y: Array
) -> Activations:
    """Do the second half of every block: ``x' = prox_{tau G}(V y' + x)``, and extrapolate."""
    after = G._prox(plus(block.V(y), x), block.tau)
    if not is_array(block.theta) and block.theta == 0:
        return Activations(after, y, after)
    return Activations(after, y, plus(times(after - x, block.theta), after))


FAINT = 1e-6
"""Added to a power before its root is taken, which has no gradient at zero."""

SMOOTHING = (1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8)
"""Over neighbouring channels: a cosine, a sine, and the frequencies beside."""

VIEWS = 3
"""How many neighbouring views a hidden layer looks at."""

Hidden = tuple[Array, Array]
"""The matrix ``(channels, VIEWS * channels)`` and the bias of a hidden layer."""

Beside = Callable[[int, Array], Array]
"""Puts what a hidden layer is given beside its neighbours, ``(..., channels) -> (..., VIEWS * channels)``."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What a stage of a network sees of the signal that it starts from."""

    power: Array
    """Of the analysis, smoothed, shape ``(..., channels)``."""

    @staticmethod
    def of(x: Array, map: KernelMap, kernel: Array) -> Spectrum:
        """Analyse a signal, laid out."""
        return Spectrum(_smoothed(map.analyse(x, kernel) ** 2))

    def prior(self, sparing: Array, correction: Array | float = 0.0) -> L1:
        """Return F with the weights above."""
        xp = namespace(self.power)
        weight = 1 / (1 + xp.exp(sparing - correction) * xp.sqrt(self.power + FAINT))
        return L1(xp.where(xp.isfinite(weight), weight, 0.0))

    def context(self, layers: Iterator[Hidden], beside: Beside) -> Array:
        """Return what hidden layers make of neighbouring views, ``(..., channels)``."""
        xp = namespace(self.power)
        seen = xp.log1p(self.power) / 2
        for depth, (kernel, bias) in enumerate(layers):
            new = xp.clip(beside(depth, seen) @ kernel.T + bias, -1, 1)
            seen = seen + new if depth else new
        return seen


def with_neighbours(seen: Array, before: int) -> Array:
    """Put ``VIEWS`` neighbouring views side by side, so many of them earlier ones; zeros beyond the ends."""
    channels = seen.shape[-1]
    earlier, later = zeros((before, channels), seen), zeros((VIEWS - 1 - before, channels), seen)
    padded = namespace(seen).concatenate([earlier, seen, later], 0)
    return views(padded.reshape(-1), VIEWS * channels, channels)


def _smoothed(power: Array) -> Array:
    """Average over neighbouring channels, the outermost of which repeat."""
    reach = len(SMOOTHING) // 2
    count = power.shape[-1]
    first, last = power[..., :1], power[..., -1:]
    padded = namespace(power).concatenate([first] * reach + [power] + [last] * reach, -1)
    return sum(share * padded[..., i : i + count] for i, share in enumerate(SMOOTHING))


SPARING = 1.5
"""Where the weights of a prior start to follow the signal, a natural logarithm; tried on training speech."""

Fill = Callable[[tuple[int, ...]], np.ndarray[Any, Any]]


def chambolle_pock(
    architecture: PrimalDual,
    *,
    sigma: float = 10.0,
    tau: float | None = None,
    dictionary: np.ndarray[Any, Any] | None = None,
    memory_gain: float = 1.0,
    generator: np.random.Generator | None = None,
) -> Start:
    """Start at the algorithm: ``W = sigma K``, ``V = -tau K'``, no bias.

    A PDN then computes what as many iterations of Chambolle-Pock compute, a PDRN what they compute when the
    dual variable is forgotten in between.

    Parameters
    ----------
    architecture
        The network.
    sigma, tau
        The steps. Without tau it is the longest step that converges, ``1 / (sigma |K|^2)``.
    dictionary
        The kernel K, shape ``(m, n)`` or ``(channels, window)``; without it the map's own: the cosine
        transform, or windowed cosines and sines.
    memory_gain
        Where the network has a map of the dual memory, it starts at so many times the identity.
    generator
        Fills the hidden layers of a context, which has no say at the start.
    """
    K, norm = _dictionary(architecture, dictionary)
    tau = 1 / (sigma * norm**2) if tau is None else tau
    tied = architecture.tying == "tied"
    return _filled(
        architecture,
        generator,
        W=lambda shape: sigma * K,
        V=lambda shape: -tau * K,
        K=lambda shape: K.copy() if tied else sigma * K,
        sigma=lambda shape: np.full(shape, sigma),
        tau=lambda shape: np.full(shape, tau if tied else tau / sigma),
        M=lambda shape: memory_gain * _identity(shape),
    )


def glorot(architecture: PrimalDual, generator: np.random.Generator) -> Start:
    """Start at random: every kernel uniform in ``+-sqrt(6 / (rows + columns))``, no bias, unit steps.

    This is the default of TensorFlow 1.5, and so the likely start of the paper.
    """
    limit = math.sqrt(6 / sum(architecture.map.kernel_shape))

    def uniform(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return generator.uniform(-limit, limit, shape)

    return _filled(
        architecture, generator, W=uniform, V=uniform, K=uniform, sigma=np.ones, tau=np.ones, M=_identity
    )


def identity(architecture: PrimalDual, generator: np.random.Generator) -> Start:
    """Start with a network that changes nothing: ``V = 0``, or tau where that is tied, the rest at random.

    W is not zero too, since no gradient would reach either.
    """
    weights = glorot(architecture, generator)
    silent = ("V", "tau")
    return {name: 0 * part if name.partition(".")[0] in silent else part for name, part in weights.items()}


def _dictionary(
    architecture: PrimalDual, dictionary: np.ndarray[Any, Any] | None
) -> tuple[np.ndarray[Any, Any], float]:
    if dictionary is None:
        return architecture.map.dictionary()
    K = np.asarray(dictionary, np.float64)
    if K.shape != architecture.map.kernel_shape:
        raise InputError(f"the dictionary must have shape {architecture.map.kernel_shape}, got {K.shape}")
    return K, architecture.map.norm(K)


def _filled(architecture: PrimalDual, generator: np.random.Generator | None, **fills: Fill) -> Start:
    """Make every tensor of an architecture, each by the rule for its kind."""
    generator = np.random.default_rng(0) if generator is None else generator
    fills |= {
        "b": np.zeros,
        "theta": lambda shape: np.full(shape, float(architecture.theta)),
        "A": lambda shape: architecture.map.dictionary()[0],
        "a": lambda shape: np.full(shape, SPARING),
        "C": lambda shape: generator.normal(0.0, math.sqrt(2 / shape[1]), shape),
        "c": np.zeros,
        "H": np.zeros,
        "h": np.zeros,
    }
    return {name: fills[name.partition(".")[0]](shape) for name, shape in architecture.shapes().items()}


def _identity(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.ones(shape) if len(shape) == 1 else np.eye(shape[0])


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
        every layer, by a small network that sees neighbouring views. See `pdrn.nets.primal_dual`.
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
                raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if isinstance(self.theta, bool) or is_array(self.theta) or not np.isfinite(self.theta):
            raise InputError(f"theta must be one finite number, got {self.theta!r}")
        set_field(self, "theta", float(self.theta))
        self._check_weighting()

    def _check_weighting(self) -> None:
        set_size(self, "stages")
        set_size(self, "context", least=0, most=MOST_LAYERS)
        if self.depth % self.stages:
            raise InputError(f"{self.depth} layers cannot be shared out evenly among {self.stages} stages")
        if self.weighting == "one" and self.stages > 1:
            raise InputError('stages are for weights that follow the signal; choose weighting "spectrum"')
        if (self.weighting == "context") != (self.context > 0):
            raise InputError(
                'hidden layers and weighting "context" go together, '
                f"got context = {self.context} and weighting {self.weighting!r}"
            )
        if self.context and not isinstance(self.map, ConvolutionalMap):
            raise InputError("frames have no neighbours; the context takes a convolutional map")
        if self.causal and not self.context:
            raise InputError("causal is said of a context, and this network has none")

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
        return self.map.gather(activation.x, cells.lo.shape, self._gap)

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
            raise InputError("a network on frames sees its frame, and nothing else")
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
