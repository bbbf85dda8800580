"""Primal-dual networks: the block (2.1) and (2.5), the family that it spans, and where training starts.

An *architecture* is the structure of a network without weights: a frozen value that names its tensors and
says what its layers compute. ``run`` is the one forward pass, for NumPy arrays, torch tensors and ONNX;
``pdrn.nets.runtime`` streams the same blocks hop by hop.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from pdrn.convex import L1, Box, Functional
from pdrn.convex.backend import AnyArray as Array
from pdrn.convex.backend import (
    Step,
    convert,
    is_array,
    is_real,
    is_tensor,
    map_arrays,
    namespace,
    plus,
    set_field,
    times,
    zeros,
)
from pdrn.convex.operators import views
from pdrn.convex.problem import cells, check_bounds
from pdrn.errors import InputError
from pdrn.nets.maps import ConvolutionalMap, DenseMap, KernelMap, Map, set_size

Weights: TypeAlias = Mapping[str, Array]
"""Tensors by name: ``kind``, or ``kind.index`` where a network has several of a kind, counted from 0."""

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
"""Weights as NumPy arrays."""

Memory = Literal["dual", "bias", "gain", "mix"]
Tying = Literal["untied", "half", "tied"]
Learned = Literal["no", "once", "per layer"]
Weighting = Literal["one", "spectrum", "context"]

MAX_LAYERS = 1000

Value = TypeVar("Value")


class Architecture(ABC):
    """The structure of a network: the tensors that it has, and what its layers compute of its inputs."""

    depth: int

    fixed: ClassVar[tuple[str, ...]] = ()
    """Names of tensors that are stored with the weights but not learned."""

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor."""

    @abstractmethod
    def inputs(self, lo: Any, hi: Any = None, *, check_values: bool) -> Any:
        """Return the arguments of a call, two bounds or one problem, as one value, after checks of them."""

    @abstractmethod
    def convert(self, inputs: Any, like: Array) -> Any:
        """Return the inputs in the type of the weights."""

    @abstractmethod
    def states(self, weights: Weights, inputs: Any) -> Iterator[Any]:
        """Yield the state after every layer, for inputs in the type of the weights."""

    @abstractmethod
    def estimate(self, weights: Weights, inputs: Any, state: Any) -> Array:
        """Return the signal that a state stands for."""

    @abstractmethod
    def finish(self, x: Array, inputs: Any) -> Array:
        """Return an estimate in the type of the inputs as given, and inside their constraints."""

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned."""
        return sum(math.prod(shape) for name, shape in self.shapes().items() if name not in self.fixed)


def run(
    architecture: Architecture,
    weights: Weights,
    inputs: Any,
    skip: Callable[[Iterator[Any]], None] = lambda states: None,
) -> Array:
    """Return what the last layer makes of the inputs: the forward pass of every network.

    ``skip`` may consume the states of the first layers, for example without gradients.
    """
    computed = architecture.convert(inputs, _any_of(weights))
    states = architecture.states(weights, computed)
    skip(states)
    for state in states:  # noqa: B007 (only the last one is kept)
        pass
    return architecture.finish(architecture.estimate(weights, computed, state), inputs)


def run_by_layer(architecture: Architecture, weights: Weights, inputs: Any) -> list[Array]:
    """Return what every layer makes of the inputs; the last is what ``run`` returns."""
    computed = architecture.convert(inputs, _any_of(weights))
    states = architecture.states(weights, computed)
    return [architecture.finish(architecture.estimate(weights, computed, state), inputs) for state in states]


def _any_of(weights: Weights) -> Array:
    like = next(iter(weights.values()))
    if not is_real(like):
        raise InputError(f"networks compute in float32 or float64, not in {like.dtype}; convert the weights")
    return like


LinearMap = Callable[[Array], Array]
"""A linear map whose result is an array of its own, which may be overwritten."""


@dataclass(frozen=True, eq=False)
class State:
    """What one block hands to the next: its variables, and the F and G of the problem."""

    x: Array
    """The primal variable, the signal."""
    y: Any
    """The dual variable, one number per coefficient; the number 0 before the first block."""
    x_bar: Array
    """The extrapolated primal variable; x itself where theta is 0."""
    F: Functional
    G: Functional

    @classmethod
    def at(cls, x: Array, F: Functional, G: Functional) -> State:
        """Start at x with a dual variable of zero."""
        return cls(x, 0.0, x, F, G)


@dataclass(frozen=True, eq=False)
class Block:
    """One primal-dual step, the layer of every network of the family.

        y'     = prox_{sigma F*}(W x_bar + M y + b)
        x'     = prox_{tau G}(V y' + x)
        x_bar' = x' + theta (x' - x)

    ``M = 1, b = 0`` is the block of a PDN, (2.1) and (3.3), whose memory is the dual variable. ``M = 0`` is
    the block of a PDRN, (2.5) and (3.4), where a learned bias replaces the memory. Steps and theta are
    numbers, or tensors that learn. Where F* and G are indicators, as for dequantization, the steps live in W
    and V alone.
    """

    W: LinearMap
    V: LinearMap
    M: LinearMap | float = 1.0
    """A linear map of the dual variable, or the number 1 or 0."""
    b: Array | float = 0.0
    theta: Step = 0.0
    sigma: Step = 1.0
    tau: Step = 1.0

    def __call__(self, state: State) -> State:
        """Return the state after this layer."""
        F, G = state.F, state.G
        v = self.W(state.x_bar)
        if is_array(self.b):
            v = plus(v, self.b)
        if is_array(state.y) and self.M != 0:
            v = plus(v, self.M(state.y) if callable(self.M) else state.y)
        y = F._prox_conjugate(v, self.sigma)
        x = G._prox(plus(self.V(y), state.x), self.tau)
        if not is_array(self.theta) and self.theta == 0:
            return State(x, y, x, F, G)
        return State(x, y, plus(times(x - state.x, self.theta), x), F, G)


class PrimalDualFamily(Architecture):
    """L primal-dual steps: how their kernels, memory, steps and extrapolation are shared and learned.

    ``PrimalDual`` makes them a network for sound, ``pdrn.nets.unrolling.Unrolling`` one for any problem.

    Attributes
    ----------
    memory
        What the dual step adds to ``W x_bar``: the last dual variable (``dual``, the PDN), a bias (``bias``,
        the PDRN), a bias and the last dual variable times one number per channel (``gain``) or mixed across
        channels by a matrix (``mix``).
    tying
        ``untied``: kernels W and V for every layer. ``half``: one kernel K for every layer that is both.
        ``tied``: one K for all layers.
    theta
        The extrapolation, or where it starts if it is learned.
    learn_theta
        Whether theta is learned: ``no``, ``once`` for all layers, or ``per layer``.
    """

    memory: Memory
    tying: Tying
    theta: float
    learn_theta: Learned

    @property
    @abstractmethod
    def learned_numbers(self) -> dict[str, Learned]:
        """The steps and theta: which of them are learned, and how often."""

    def _family_shapes(self, kernels: Sequence[tuple[int, ...]], channels: int) -> dict[str, tuple[int, ...]]:
        """Name the arrays of the kernels, the biases, the memory and the learned numbers."""
        shapes: dict[str, tuple[int, ...]] = {}
        for part, shape in enumerate(kernels):
            for kernel in "WV" if self.tying == "untied" else "K":
                name = kernel if part == 0 else f"{kernel}_{part}"
                indices = [""] if self.tying == "tied" else [f".{layer}" for layer in range(self.depth)]
                shapes |= {name + index: shape for index in indices}
        if self.memory != "dual":
            shapes |= {f"b.{layer}": (channels,) for layer in range(self.depth)}
        if self.memory in ("gain", "mix"):
            memory = (channels,) if self.memory == "gain" else (channels, channels)
            shapes |= {f"M.{layer}": memory for layer in range(self.depth - 1)}
        for name, learned in self.learned_numbers.items():
            if learned != "no":
                shapes[name] = (1,) if learned == "once" else (self.depth,)
        return shapes

    def _kernels(self, layer: int, weights: Weights, parts: int = 1) -> list[list[Array]]:
        """Return the arrays of the kernels of a layer: those that analyse, those that synthesise."""
        index = "" if self.tying == "tied" else f".{layer}"
        return [
            [weights[(kernel if part == 0 else f"{kernel}_{part}") + index] for part in range(parts)]
            for kernel in ("WV" if self.tying == "untied" else "KK")
        ]

    def _number(self, name: str, layer: int, weights: Weights, fixed: Any) -> Any:
        """Return a learned number of a layer, or the fixed one where it is not learned."""
        learned = self.learned_numbers.get(name, "no")
        return fixed if learned == "no" else weights[name][0 if learned == "once" else layer]

    def _block(
        self,
        layer: int,
        weights: Weights,
        W: LinearMap,
        V: LinearMap,
        coefficients: int,
        sigma: Step = 1.0,
        tau: Step = 1.0,
    ) -> Block:
        """Build a layer around its linear maps; the last axis of y has this many coefficients."""
        theta = self._number("theta", layer, weights, self.theta)
        if self.memory == "dual":
            return Block(W, V, theta=theta, sigma=sigma, tau=tau)
        M: LinearMap | float = 0.0
        if self.memory != "bias" and layer > 0:  # before the first layer there is nothing to remember
            M = partial(_remember, weights[f"M.{layer - 1}"])
        b = per_channel(weights[f"b.{layer}"], coefficients)
        return Block(W, V, M, b, theta, sigma, tau)


def _remember(M: Array, y: Array) -> Array:
    """Apply a gain per channel, or a matrix across channels, to every view of a dual variable."""
    if y.shape[-1] != M.shape[-1]:
        return _remember(M, y.reshape(*y.shape[:-1], -1, M.shape[-1])).reshape(y.shape)
    return y * M if M.ndim == 1 else y @ M.T


def per_channel(part: Array, coefficients: int) -> Array:
    """Repeat numbers, one per channel, for every view."""
    count = coefficients // part.shape[0]
    if count == 1:
        return part
    return part.repeat(count) if is_tensor(part) else np.tile(part, count)


def check_choices(value: Any) -> None:
    """Raise InputError where a field of a dataclass is none of the choices that its type names."""
    for name, kind in get_type_hints(type(value)).items():
        if get_origin(kind) is Literal and getattr(value, name) not in get_args(kind):
            choices = ", ".join(get_args(kind))
            raise InputError(f"{name} must be one of {choices}, got {getattr(value, name)!r}")


@dataclass(frozen=True)
class CellArchitecture(Architecture):
    """A network that restores signals inside their cells, ``(..., n) -> (..., n)``, by layers over one map.

    It computes in the type of its weights. The result has the type of the cells and lies in them exactly,
    whatever the weights are.
    """

    map: Map
    depth: int

    def __post_init__(self) -> None:
        set_size(self, "depth", most=MAX_LAYERS)
        if not isinstance(self.map, DenseMap | ConvolutionalMap):
            raise InputError(f"a network needs a DenseMap or a ConvolutionalMap, got {self.map!r}")

    @abstractmethod
    def start(self, generator: np.random.Generator) -> Arrays:
        """Return the weights from which training starts, float64; the generator fills what is random."""

    @abstractmethod
    def products(self, shape: tuple[int, ...]) -> int:
        """Count the multiply-adds of a forward pass for cells of this shape, two FLOPs each."""

    def inputs(self, lo: Any, hi: Any = None, *, check_values: bool) -> Box:
        if check_values:
            return cells(lo, hi)
        check_bounds(lo, hi)
        return _unchecked(Box, lo=lo, hi=hi)

    def convert(self, inputs: Box, like: Array) -> Box:
        if inputs.lo.dtype == like.dtype:
            return inputs
        return map_arrays(inputs, lambda bound: _convert_bound(bound, like))

    def finish(self, x: Array, inputs: Box) -> Array:
        """Project onto the cells; a sample spoilt by overflow becomes the centre of its cell."""
        xp = namespace(inputs.lo)
        x = convert(x, inputs.lo)
        return xp.where(xp.isfinite(x), inputs.project(x), inputs.centre)


def _convert_bound(bound: Array, like: Array) -> Array:
    """Return bounds in another type; those that it cannot hold become the largest that it can."""
    xp = namespace(bound)
    most = min(float(namespace(each).finfo(each.dtype).max) for each in (bound, like))
    return convert(xp.where(xp.isinf(bound), bound, xp.clip(bound, -most, most)), like)


def _unchecked(kind: type[Value], **fields: Any) -> Value:
    """Make a frozen dataclass without its checks, which read every value."""
    value = object.__new__(kind)
    for name, part in fields.items():
        set_field(value, name, part)
    return value


@dataclass(frozen=True)
class PrimalDual(PrimalDualFamily, CellArchitecture):
    """L primal-dual steps on the cells: ``s = x[L]``, started at the centres and a dual variable of zero.

    The paper's variable is the distance to the centre q; here x is the signal itself, so that ``W`` sees
    ``x`` where the paper writes ``x + q``, and the box is the cells.

    Attributes
    ----------
    map
        Dense or convolutional.
    depth
        Number of blocks, L.
    memory, tying, theta, learn_theta
        See ``PrimalDualFamily``. A ``half`` tied network has W = K and V = -tau K' with a tau per layer, a
        ``tied`` one W = sigma K and V = -tau K'; these steps are learned.
    weighting
        The weights w of the prior ``F(y) = sum_i w_i |y_i|``, to which the dual step clips. ``one``: all 1,
        as in the paper. ``spectrum``: smaller where the quantized signal has more power. ``context``:
        corrected for every layer by a small network that sees neighbouring views. See ``Spectrum``.
    stages
        How often these weights are computed, each time from the signal as restored so far; every stage has
        the same number of layers.
    context
        Hidden layers of the network for the context.
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
        check_choices(self)
        if isinstance(self.theta, bool) or is_array(self.theta) or not np.isfinite(self.theta):
            raise InputError(f"theta must be one finite number, got {self.theta!r}")
        set_field(self, "theta", float(self.theta))
        set_size(self, "stages")
        set_size(self, "context", least=0, most=MAX_LAYERS)
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

    @property
    def learned_numbers(self) -> dict[str, Learned]:
        steps: dict[Tying, dict[str, Learned]] = {
            "untied": {},
            "half": {"tau": "per layer"},
            "tied": {"sigma": "once", "tau": "once"},
        }
        return steps[self.tying] | {"theta": self.learn_theta}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        kernel, channels = self.map.kernel_shape, self.map.channels
        shapes = self._family_shapes([kernel], channels)
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

    def start(self, generator: np.random.Generator) -> Arrays:
        """Start at Chambolle-Pock with the map's own dictionary; only a context starts at random."""
        return chambolle_pock(self, generator=generator)

    def states(self, weights: Weights, inputs: Box) -> Iterator[State]:
        box = map_arrays(inputs, lambda bound: self.map.lay_out(bound, self._gap))
        state = State.at(box.centre, L1(), box)
        priors: Iterator[L1] = iter(())
        for layer in range(self.depth):
            if layer % self.layers_per_stage == 0:
                stage = layer // self.layers_per_stage
                priors = self.priors(stage, weights, state.x, self.map, self._neighbours)
            # The block is built here, where gradients of the last layers alone may just have been enabled.
            state = self.block(layer, weights, self.map)(
                State(state.x, state.y, state.x_bar, next(priors), box)
            )
            yield state

    def block(self, layer: int, weights: Weights, map: KernelMap) -> Block:
        """Return a layer that acts by a map: the network's own for whole signals, or one for a stream."""
        (W,), (V,) = self._kernels(layer, weights)
        sigma = self._number("sigma", layer, weights, 1.0)
        minus_tau = -self._number("tau", layer, weights, -1.0)  # untied, V has the sign and the step in it
        return self._block(
            layer,
            weights,
            lambda x: times(map.analyse(x, W), sigma),
            lambda y: times(map.synthesise(y, V), minus_tau),
            self.map.channels,
        )

    def priors(
        self, stage: int, weights: Weights, x: Array, map: KernelMap, neighbours: Neighbours
    ) -> Iterator[L1]:
        """Yield F for every layer of a stage that starts from a signal, laid out for the map."""
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
            ((weights[f"C.{index}"], weights[f"c.{index}"]) for index in hidden), neighbours
        )
        for layer in layers:
            yield spectrum.prior(sparing, context @ weights[f"H.{layer}"].T + weights[f"h.{layer}"])

    def estimate(self, weights: Weights, inputs: Box, state: State) -> Array:
        return self.map.gather(state.x, inputs.lo.shape, self._gap)

    def products(self, shape: tuple[int, ...]) -> int:
        channels, coefficients = self.map.channels, self.map.sizes(shape, self._gap)[1]
        matrices = self.depth - 1 if self.memory == "mix" else 0
        if self.context:
            matrices += self.stages * self.context * VIEWS + self.depth
        maps = 2 * self.depth + (self.stages if self.weighting != "one" else 0)
        return maps * self.map.products(shape, self._gap) + matrices * coefficients * channels

    @property
    def reach(self) -> tuple[int, int]:
        """How many samples before and after a hop a convolutional network sees to restore it."""
        if not isinstance(self.map, ConvolutionalMap):
            raise InputError("a network on frames sees its frame, and nothing else")
        before, after = (views * self.stages * self.map.hop for views in self._context_views)
        return self.depth * self.map.edge + before, self.depth * self.map.edge + after

    @property
    def layers_per_stage(self) -> int:
        """Layers that share the weights of one prior."""
        return self.depth // self.stages

    @property
    def _context_views(self) -> tuple[int, int]:
        """How many views before and after its own the context of one stage sees."""
        beside = (VIEWS - 1) * self.context
        return (beside, 0) if self.causal else (beside // 2, beside // 2)

    @property
    def _gap(self) -> int:
        """How many more zeros around signals the context needs, so that it sees nothing else there."""
        return max(self._context_views) * self.map.hop if isinstance(self.map, ConvolutionalMap) else 0

    def _neighbours(self, _: int, seen: Array) -> Array:
        return with_neighbours(seen, before=VIEWS - 1 if self.causal else VIEWS // 2)


FAINT = 1e-6
"""Added to a power before its root is taken, which has no gradient at zero."""

SMOOTHING = (1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8)
"""Smoothing over neighbouring channels: a cosine, a sine, and the frequencies beside."""

VIEWS = 3
"""Neighbouring views that a hidden layer sees."""

Hidden = tuple[Array, Array]
"""The matrix ``(channels, VIEWS * channels)`` and the bias of a hidden layer."""

Neighbours = Callable[[int, Array], Array]
"""Concatenates views with their neighbours for a hidden layer, to ``(..., VIEWS * channels)``."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The smoothed power m^2 of a signal's analysis, from which the weights of the prior follow.

        w = 1 / (1 + exp(a - r) m)

    The number a is learned per channel. A context computes the correction r from neighbouring views.
    """

    power: Array
    """Shape ``(..., channels)``."""

    @staticmethod
    def of(x: Array, map: KernelMap, kernel: Array) -> Spectrum:
        """Analyse a signal, laid out for the map."""
        return Spectrum(_smooth(map.analyse(x, kernel) ** 2))

    def prior(self, sparing: Array, correction: Array | float = 0.0) -> L1:
        """Return F with these weights."""
        xp = namespace(self.power)
        weight = 1 / (1 + xp.exp(sparing - correction) * xp.sqrt(self.power + FAINT))
        return _unchecked(L1, weight=xp.where(xp.isfinite(weight), weight, 0.0))

    def context(self, layers: Iterator[Hidden], neighbours: Neighbours) -> Array:
        """Return the output of the hidden layers, ``(..., channels)``."""
        xp = namespace(self.power)
        seen = xp.log1p(self.power) / 2
        for depth, (kernel, bias) in enumerate(layers):
            new = xp.clip(neighbours(depth, seen) @ kernel.T + bias, -1, 1)
            seen = seen + new if depth else new
        return seen


def with_neighbours(seen: Array, before: int) -> Array:
    """Concatenate each view with its neighbours, this many of them earlier ones; zeros beyond the ends."""
    channels = seen.shape[-1]
    earlier, later = zeros((before, channels), seen), zeros((VIEWS - 1 - before, channels), seen)
    padded = namespace(seen).concatenate([earlier, seen, later], 0)
    return views(padded.reshape(-1), VIEWS * channels, channels)


def _smooth(power: Array) -> Array:
    """Average over neighbouring channels, the outermost of which repeat."""
    reach = len(SMOOTHING) // 2
    count = power.shape[-1]
    first, last = power[..., :1], power[..., -1:]
    padded = namespace(power).concatenate([first] * reach + [power] + [last] * reach, -1)
    return sum(share * padded[..., i : i + count] for i, share in enumerate(SMOOTHING))


SPARING = 1.5
"""Where ``a`` above starts, a natural logarithm; tried on training speech."""

Fill = Callable[[tuple[int, ...]], np.ndarray[Any, Any]]


def chambolle_pock(
    architecture: PrimalDual,
    *,
    sigma: float = 10.0,
    tau: float | None = None,
    dictionary: np.ndarray[Any, Any] | None = None,
    memory_gain: float = 1.0,
    generator: np.random.Generator | None = None,
) -> Arrays:
    """Start at the algorithm: ``W = sigma K``, ``V = -tau K'``, no bias.

    A PDN then computes the iterates of Chambolle-Pock, a PDRN those of the algorithm that forgets its dual
    variable after every step.

    Parameters
    ----------
    architecture
        The network.
    sigma, tau
        The steps. Default of tau: the longest step that converges, ``1 / (sigma |K|^2)``.
    dictionary
        The kernel K, shape ``(m, n)`` or ``(channels, window)``. Default: the map's own, the cosine transform
        or windowed cosines and sines.
    memory_gain
        A map of the dual memory starts at this multiple of the identity.
    generator
        Fills the hidden layers of a context, which has no influence at the start.
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
        M=lambda shape: memory_gain * identity_of(shape),
    )


def glorot(architecture: PrimalDual, generator: np.random.Generator) -> Arrays:
    """Start at random: every kernel uniform in ``+-sqrt(6 / (rows + columns))``, no bias, unit steps.

    This is the default of TensorFlow 1.5, and so the likely start of the paper.
    """
    limit = math.sqrt(6 / sum(architecture.map.kernel_shape))

    def uniform(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return generator.uniform(-limit, limit, shape)

    return _filled(
        architecture, generator, W=uniform, V=uniform, K=uniform, sigma=np.ones, tau=np.ones, M=identity_of
    )


def identity(architecture: PrimalDual, generator: np.random.Generator) -> Arrays:
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


def _filled(architecture: PrimalDual, generator: np.random.Generator | None, **fills: Fill) -> Arrays:
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


def identity_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the map of a dual memory that changes nothing: ones, or the identity matrix."""
    return np.ones(shape) if len(shape) == 1 else np.eye(shape[0])
