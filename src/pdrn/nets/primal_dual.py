"""Primal-dual networks: the block of (2.1) and (2.5), the networks (3.3) and (3.4), their initial weights.

An *architecture* is the structure of a network without weights: a frozen dataclass that names the tensors and
computes the layers. ``run`` is the one forward pass, for NumPy arrays, torch tensors and ONNX;
``pdrn.nets.runtime`` streams the same blocks hop by hop.

Read ``Block`` first: it is the equations. ``PrimalDual`` stacks blocks to a network for sound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from pdrn.convex import L1, Box, Functional
from pdrn.convex.backend import (
    AnyArray,
    Array,
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
    """The structure of a network: the shapes of its tensors, and the computation of its layers.

    A call goes through ``inputs``, ``convert``, ``states``, ``estimate`` and ``finish``, in this order.
    """

    depth: int

    fixed: ClassVar[tuple[str, ...]] = ()
    """Names of tensors that are stored with the weights but not learned."""

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor."""

    @abstractmethod
    def inputs(self, lo: Any, hi: Any = None, *, check_values: bool) -> Any:
        """Check the arguments of a call, two bounds or one problem, and return them as one value."""

    @abstractmethod
    def convert(self, inputs: Any, like: Array) -> Any:
        """Return the inputs in the dtype of the weights."""

    @abstractmethod
    def states(self, weights: Weights, inputs: Any) -> Iterator[Any]:
        """Yield the state after every layer, for inputs in the dtype of the weights."""

    @abstractmethod
    def estimate(self, weights: Weights, inputs: Any, state: Any) -> Array:
        """Return the signal of a state: features are synthesised, padding is removed."""

    @abstractmethod
    def finish(self, x: Array, inputs: Any) -> AnyArray:
        """Return an estimate in the dtype of the caller's inputs, projected onto their constraints."""

    @property
    def parameter_count(self) -> int:
        """Number of learned weights."""
        return sum(math.prod(shape) for name, shape in self.shapes().items() if name not in self.fixed)


def run(
    architecture: Architecture,
    weights: Weights,
    inputs: Any,
    run_first_layers: Callable[[Iterator[Any]], None] = lambda states: None,
) -> AnyArray:
    """Return the estimate of the last layer: the forward pass of every network.

    ``run_first_layers`` may advance the iterator of states, for example without gradients.
    """
    computed = architecture.convert(inputs, _like(weights))
    states = architecture.states(weights, computed)
    run_first_layers(states)
    for state in states:  # noqa: B007 (only the last one is kept)
        pass
    return architecture.finish(architecture.estimate(weights, computed, state), inputs)


def run_by_layer(architecture: Architecture, weights: Weights, inputs: Any) -> list[AnyArray]:
    """Return the estimate of every layer; the last is what ``run`` returns."""
    computed = architecture.convert(inputs, _like(weights))
    states = architecture.states(weights, computed)
    return [architecture.finish(architecture.estimate(weights, computed, state), inputs) for state in states]


def _like(weights: Weights) -> Array:
    like = next(iter(weights.values()))
    if not is_real(like):
        raise InputError(f"networks compute in float32 or float64, not in {like.dtype}; convert the weights")
    return like


LinearMap = Callable[[AnyArray], AnyArray]
"""A linear map that returns a new array, which the block may overwrite."""


@dataclass(frozen=True, eq=False)
class State:
    """The input and output of a block: the variables, and the F and G of the problem."""

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
    numbers or learned tensors. Where F* and G are indicators, as for dequantization, their prox ignores the
    steps, which then act through W and V alone.
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
    """L primal-dual blocks: which kernels, memory, steps and extrapolation are shared, and which learned.

    ``PrimalDual`` is the network for sound, ``pdrn.nets.unrolling.Unrolling`` the one for any problem.

    Attributes
    ----------
    memory
        The term that the dual step adds to ``W x_bar``. ``dual``: the last dual variable (the PDN).
        ``bias``: a bias (the PDRN). ``gain``, ``mix``: a bias, and the last dual variable times one number
        per channel, or times a matrix across channels.
    tying
        ``untied``: every layer has kernels W and V. ``half``: every layer has one kernel K for both.
        ``tied``: all layers share one K.
    theta
        The extrapolation, or its initial value if it is learned.
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
        """Whether each step, and theta, is learned: not at all, once for all layers, or per layer."""

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
        """Return the arrays of the analysis kernel of a layer, and of its synthesis kernel."""
        index = "" if self.tying == "tied" else f".{layer}"
        return [
            [weights[(kernel if part == 0 else f"{kernel}_{part}") + index] for part in range(parts)]
            for kernel in ("WV" if self.tying == "untied" else "KK")
        ]

    def _number(self, name: str, layer: int, weights: Weights, fixed: Any) -> Any:
        """Return the number that a layer learned, or the fixed one if it is not learned."""
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
    """Raise InputError if a field of a dataclass is typed Literal and has none of its values."""
    for name, kind in get_type_hints(type(value)).items():
        if get_origin(kind) is Literal and getattr(value, name) not in get_args(kind):
            choices = ", ".join(get_args(kind))
            raise InputError(f"{name} must be one of {choices}, got {getattr(value, name)!r}")


class CellArchitecture(Architecture):
    """A network that restores signals inside their cells, ``(..., n) -> (..., n)``.

    It computes in the dtype of its weights. The result has the dtype of the cells and lies in them exactly,
    for any weights.
    """

    @property
    @abstractmethod
    def frame_length(self) -> int | None:
        """Length that signals must have; None: any."""

    @abstractmethod
    def start(self, generator: np.random.Generator) -> Arrays:
        """Return initial weights, float64; the generator draws the random ones."""

    @abstractmethod
    def products(self, shape: tuple[int, ...]) -> int:
        """Count the multiply-adds of a forward pass for cells of this shape, two FLOPs each."""

    def inputs(self, lo: Any, hi: Any = None, *, check_values: bool) -> Box:
        if check_values:
            return cells(lo, hi)
        check_bounds(lo, hi)
        return unchecked(Box, lo=lo, hi=hi)

    def convert(self, inputs: Box, like: Array) -> Box:
        if inputs.lo.dtype == like.dtype:
            return inputs
        return map_arrays(inputs, lambda bound: _convert_bound(bound, like))

    def finish(self, x: Array, inputs: Box) -> AnyArray:
        """Project onto the cells; a sample that overflowed becomes the centre of its cell."""
        xp = namespace(inputs.lo)
        x = convert(x, inputs.lo)
        return xp.where(xp.isfinite(x), inputs.project(x), inputs.centre)


@dataclass(frozen=True)
class MapArchitecture(CellArchitecture):
    """A network on cells with ``depth`` layers over one map."""

    map: Map
    depth: int

    def __post_init__(self) -> None:
        set_size(self, "depth", most=MAX_LAYERS)
        if not isinstance(self.map, DenseMap | ConvolutionalMap):
            raise InputError(f"a network needs a DenseMap or a ConvolutionalMap, got {self.map!r}")

    @property
    def frame_length(self) -> int | None:
        return self.map.frame_length


def _convert_bound(bound: Array, like: Array) -> Array:
    """Return bounds in another dtype; finite ones beyond its range become its largest number."""
    xp = namespace(bound)
    most = min(float(namespace(each).finfo(each.dtype).max) for each in (bound, like))
    return convert(xp.where(xp.isinf(bound), bound, xp.clip(bound, -most, most)), like)


def unchecked(kind: type[Value], **fields: Any) -> Value:
    """Make a frozen dataclass without its checks, which would read every number of the arrays."""
    value = object.__new__(kind)
    for name, part in fields.items():
        set_field(value, name, part)
    return value


@dataclass(frozen=True)
class PrimalDual(PrimalDualFamily, MapArchitecture):
    """L primal-dual blocks on the cells, (3.3) and (3.4); x starts at the centres, y at zero, ``s = x[L]``.

    The paper's variable is the distance to the centre q. Here x is the signal itself: ``W`` acts on ``x``
    where the paper writes ``x + q``, and the box is the cells.

    Attributes
    ----------
    map
        Dense or convolutional.
    depth
        Number of blocks, L.
    memory, tying, theta, learn_theta
        See ``PrimalDualFamily``. A ``half`` tied network has W = K and V = -tau K' with a learned tau per
        layer; a ``tied`` one has W = sigma K and V = -tau K' with learned steps.
    weighting
        The weights w of the prior ``F(y) = sum_i w_i |y_i|``; the dual step clips y to them. ``one``: all 1,
        as in the paper. ``spectrum``: smaller where the quantized signal has more power. ``context``:
        corrected for every layer by a small network that sees neighbouring views. See ``prior``.
    stages
        Number of times that these weights are computed, each time from the signal restored so far; every
        stage has the same number of layers.
    context
        Number of hidden layers of the small network.
    causal
        Whether the small network sees earlier views only, and so needs no future samples.

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
            raise InputError(f"depth {self.depth} is no multiple of the number of stages, {self.stages}")
        if self.weighting == "one" and self.stages > 1:
            raise InputError('stages need weights that depend on the signal; choose weighting "spectrum"')
        if (self.weighting == "context") != (self.context > 0):
            raise InputError(
                'weighting "context" needs context > 0, and only it does, '
                f"got context = {self.context} and weighting {self.weighting!r}"
            )
        if self.context and not isinstance(self.map, ConvolutionalMap):
            raise InputError("frames have no neighbours; a context needs a ConvolutionalMap")
        if self.causal and not self.context:
            raise InputError('only a context can be causal; set weighting "context"')

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
            shapes |= {f"C.{index}": (channels, NEIGHBOURS * channels) for index in hidden}
            shapes |= {f"c.{index}": (channels,) for index in hidden}
            shapes |= {f"H.{layer}": (channels, channels) for layer in range(self.depth)}
            shapes |= {f"h.{layer}": (channels,) for layer in range(self.depth)}
        return shapes

    def start(self, generator: np.random.Generator) -> Arrays:
        """Start at Chambolle-Pock with the map's dictionary; only a context starts at random."""
        return chambolle_pock(self, generator=generator)

    def states(self, weights: Weights, inputs: Box) -> Iterator[State]:
        box = map_arrays(inputs, lambda bound: self.map.lay_out(bound, self._gap))
        state = State.at(box.centre, L1(), box)
        priors: Iterator[L1] = iter(())
        for layer in range(self.depth):
            if layer % self.layers_per_stage == 0:
                stage = layer // self.layers_per_stage
                priors = self.priors(stage, weights, state.x, self.map, self._neighbours)
            # Built here, layer by layer: the caller may enable gradients between two layers.
            state = self.block(layer, weights, self.map)(
                State(state.x, state.y, state.x_bar, next(priors), box)
            )
            yield state

    def block(self, layer: int, weights: Weights, map: KernelMap) -> Block:
        """Return a layer on a map: the network's own for whole signals, or that of a stream."""
        (W,), (V,) = self._kernels(layer, weights)
        sigma = self._number("sigma", layer, weights, 1.0)
        minus_tau = -self._number("tau", layer, weights, -1.0)  # an untied V holds the factor -tau itself
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
        """Yield F for every layer of a stage, given the signal at its start, laid out for the map."""
        layers = range(stage * self.layers_per_stage, (stage + 1) * self.layers_per_stage)
        if self.weighting == "one":
            yield from repeat(L1(), len(layers))
            return
        power = _smooth(map.analyse(x, weights[f"A.{stage}"]) ** 2)
        a = weights[f"a.{stage}"]
        if not self.context:
            yield from repeat(prior(power, a), len(layers))
            return
        xp = namespace(power)
        seen = xp.log1p(power) / 2
        for hidden in range(self.context):
            index = stage * self.context + hidden
            output = neighbours(hidden, seen) @ weights[f"C.{index}"].T + weights[f"c.{index}"]
            output = xp.clip(output, -1, 1)
            seen = seen + output if hidden else output
        for layer in layers:
            yield prior(power, a - (seen @ weights[f"H.{layer}"].T + weights[f"h.{layer}"]))

    def estimate(self, weights: Weights, inputs: Box, state: State) -> Array:
        return self.map.gather(state.x, inputs.lo.shape, self._gap)

    def products(self, shape: tuple[int, ...]) -> int:
        channels, coefficients = self.map.channels, self.map.sizes(shape, self._gap)[1]
        matrices = self.depth - 1 if self.memory == "mix" else 0
        if self.context:
            matrices += self.stages * self.context * NEIGHBOURS + self.depth
        maps = 2 * self.depth + (self.stages if self.weighting != "one" else 0)
        return maps * self.map.products(shape, self._gap) + matrices * coefficients * channels

    @property
    def reach(self) -> tuple[int, int]:
        """Numbers of samples before and after a hop that its restoration depends on."""
        if not isinstance(self.map, ConvolutionalMap):
            raise InputError("a network on frames has no reach; it sees one frame")
        before, after = (views * self.stages * self.map.hop for views in self._context_views)
        return self.depth * self.map.edge + before, self.depth * self.map.edge + after

    @property
    def layers_per_stage(self) -> int:
        """Number of layers of a stage."""
        return self.depth // self.stages

    @property
    def _context_views(self) -> tuple[int, int]:
        """Numbers of views before and after its own that the context of one stage sees."""
        beside = (NEIGHBOURS - 1) * self.context
        return (beside, 0) if self.causal else (beside // 2, beside // 2)

    @property
    def _gap(self) -> int:
        """Zeros between signals, beyond the map's own, that keep the context of one from seeing the next."""
        return max(self._context_views) * self.map.hop if isinstance(self.map, ConvolutionalMap) else 0

    def _neighbours(self, _: int, seen: Array) -> Array:
        """Concatenate each view with its neighbours; zeros beyond the ends."""
        before, channels = NEIGHBOURS - 1 if self.causal else NEIGHBOURS // 2, seen.shape[-1]
        earlier, later = zeros((before, channels), seen), zeros((NEIGHBOURS - 1 - before, channels), seen)
        padded = namespace(seen).concatenate([earlier, seen, later], 0)
        return views(padded.reshape(-1), NEIGHBOURS * channels, channels)


POWER_FLOOR = 1e-6
"""Added to a power before its root is taken: at zero the root has no finite gradient."""

SMOOTHING = (1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8)
"""Weights of five neighbouring channels: the cosine and sine of a frequency, and parts of the next ones."""

NEIGHBOURS = 3
"""Number of neighbouring views that a hidden layer sees."""

Neighbours = Callable[[int, AnyArray], AnyArray]
"""Concatenates views with their neighbours, ``(hidden layer, views) -> (..., NEIGHBOURS * channels)``."""


def prior(power: Array, a: Array) -> L1:
    """Return ``F(y) = sum_i w_i |y_i|`` with the weights that follow from a signal's spectrum.

        w = 1 / (1 + exp(a) m)

    Parameters
    ----------
    power
        The smoothed power ``m^2`` of the signal's analysis, shape ``(..., channels)``.
    a
        Learned per channel; a context subtracts its correction for every view.
    """
    xp = namespace(power)
    weight = 1 / (1 + xp.exp(a) * xp.sqrt(power + POWER_FLOOR))
    return unchecked(L1, weight=xp.where(xp.isfinite(weight), weight, 0.0))


def _smooth(power: Array) -> AnyArray:
    """Average over neighbouring channels, repeating the outermost ones."""
    reach = len(SMOOTHING) // 2
    count = power.shape[-1]
    first, last = power[..., :1], power[..., -1:]
    padded = namespace(power).concatenate([first] * reach + [power] + [last] * reach, -1)
    return sum(share * padded[..., i : i + count] for i, share in enumerate(SMOOTHING))


INITIAL_A = 1.5
"""Initial value of ``a`` in ``prior``, found on training speech."""

Fill = Callable[[tuple[int, ...]], np.ndarray[Any, Any]]


def chambolle_pock(
    architecture: PrimalDual,
    *,
    sigma: float = 10.0,
    tau: float | None = None,
    memory_gain: float = 1.0,
    generator: np.random.Generator | None = None,
) -> Arrays:
    """Return the weights of the algorithm, with K the map's dictionary: ``W = sigma K``, ``V = -tau K'``.

    A PDN then computes the iterates of Chambolle-Pock. A PDRN does too, but forgets the dual variable after
    every step.

    Parameters
    ----------
    architecture
        The network.
    sigma, tau
        The steps. Default of tau: the longest step that converges, ``1 / (sigma |K|^2)``.
    memory_gain
        A map of the dual memory starts at this multiple of the identity.
    generator
        Draws the hidden layers of a context, which has no influence at first.
    """
    K, norm = architecture.map.dictionary()
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
    """Return random weights: kernels uniform in ``+-sqrt(6 / (rows + columns))``, no bias, unit steps.

    This is the default of TensorFlow 1.5, and so the likely choice of the paper.
    """
    limit = math.sqrt(6 / sum(architecture.map.kernel_shape))

    def uniform(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return generator.uniform(-limit, limit, shape)

    return _filled(
        architecture, generator, W=uniform, V=uniform, K=uniform, sigma=np.ones, tau=np.ones, M=identity_of
    )


def identity(architecture: PrimalDual, generator: np.random.Generator) -> Arrays:
    """Return the weights of a network that changes nothing: ``V = 0`` or, if tied, ``tau = 0``; W is random.

    With both at zero, neither would get a gradient.
    """
    weights = glorot(architecture, generator)
    silent = ("V", "tau")
    return {name: 0 * part if name.partition(".")[0] in silent else part for name, part in weights.items()}


def _filled(architecture: PrimalDual, generator: np.random.Generator | None, **fills: Fill) -> Arrays:
    """Make every tensor of an architecture, by the rule for its kind: the name up to the dot."""
    generator = np.random.default_rng(0) if generator is None else generator
    fills |= {
        "b": np.zeros,
        "theta": lambda shape: np.full(shape, float(architecture.theta)),
        "A": lambda shape: architecture.map.dictionary()[0],
        "a": lambda shape: np.full(shape, INITIAL_A),
        "C": lambda shape: generator.normal(0.0, math.sqrt(2 / shape[1]), shape),
        "c": np.zeros,
        "H": np.zeros,
        "h": np.zeros,
    }
    return {name: fills[name.partition(".")[0]](shape) for name, shape in architecture.shapes().items()}


def identity_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the identity as a map of the dual memory: gains of one, or a matrix."""
    return np.ones(shape) if len(shape) == 1 else np.eye(shape[0])
