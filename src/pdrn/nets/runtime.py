"""Networks with weights, on NumPy arrays: whole signals, or hop by hop."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from pdrn.convex import L1, Box, Functional, GaborFrame, GroupL21
from pdrn.convex.backend import NumpyArray, require_finite, set_field
from pdrn.errors import InputError
from pdrn.nets.maps import ConvolutionalMap, set_size
from pdrn.nets.primal_dual import (
    NEIGHBOURS,
    Architecture,
    Arrays,
    Block,
    CellArchitecture,
    PrimalDual,
    State,
    run,
    run_by_layer,
    unchecked,
)
from pdrn.nets.spectral import (
    LEAST_SQUARE_RADIUS,
    OVERLAP,
    SpectralPrimalDual,
    at_rate,
    square_radii,
    window_weight,
)

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Network:
    """An architecture and its weights. Call it with the bounds of cells or, if unrolled, with a problem.

    The weights are all float32 or all float64; the network computes in their dtype. The result has the dtype
    of the inputs. It lies in the cells exactly, or in the domain of the problem's G.

    Examples
    --------
    >>> import numpy as np
    >>> from pdrn.nets import DenseMap, Network, PrimalDual
    >>> network = Network.started(PrimalDual(DenseMap(64), depth=3))
    >>> lower = np.floor(16 * np.sin(np.arange(64) / 5)) / 16
    >>> restored = network(lower, lower + 1 / 16)
    >>> bool(np.all((lower <= restored) & (restored <= lower + 1 / 16)))
    True
    """

    architecture: Architecture
    weights: Arrays
    threads: int | None = 1
    """Threads of the matrix products; None: as many as NumPy is set to use."""

    def __post_init__(self) -> None:
        set_field(self, "weights", _checked_weights(self.architecture, self.weights))
        if self.threads is not None:
            set_size(self, "threads")

    @classmethod
    def started(
        cls,
        architecture: CellArchitecture,
        generator: np.random.Generator | None = None,
        dtype: Any = np.float32,
    ) -> Network:
        """Return a network with the architecture's initial weights."""
        return cls(architecture, architecture.start(generator or np.random.default_rng(0))).astype(dtype)

    def astype(self, dtype: Any) -> Network:
        """Return the network with weights of another dtype."""
        weights = {name: part.astype(dtype) for name, part in self.weights.items()}
        return Network(self.architecture, weights, self.threads)

    def at(self, sample_rate_hz: int) -> Network:
        """Return the network for another sample rate; only a `SpectralPrimalDual` has one."""
        return dataclasses.replace(self, architecture=at_rate(self.architecture, sample_rate_hz))

    def __call__(self, lo: Any, hi: Any = None) -> NumpyArray:
        """Restore signals from their bounds, or solve a problem, ``(..., n) -> (..., n)``."""
        inputs = self.architecture.inputs(lo, hi, check_values=True)
        with limited(self.threads):
            restored: NumpyArray = run(self.architecture, self.weights, inputs)
        return restored

    def by_layer(self, lo: Any, hi: Any = None) -> list[NumpyArray]:
        """Return the estimates of all layers; the last is the result."""
        inputs = self.architecture.inputs(lo, hi, check_values=True)
        with limited(self.threads):
            return run_by_layer(self.architecture, self.weights, inputs)


def _checked_weights(architecture: Architecture, weights: Arrays) -> Arrays:
    """Return the weights in the architecture's order; names, shapes, dtypes and values must be right."""
    check_shapes(architecture, {name: part.shape for name, part in weights.items()})
    arrays = {name: np.ascontiguousarray(weights[name]) for name in architecture.shapes()}
    types = {part.dtype for part in arrays.values()}
    if types not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise InputError(f"the weights must be all float32 or all float64, got {sorted(map(str, types))}")
    for name, part in arrays.items():
        require_finite(part, name)
    return arrays


def check_shapes(architecture: Architecture, found: dict[str, tuple[int, ...]]) -> None:
    """Raise InputError unless these tensors, by name and shape, are the architecture's."""
    wanted = architecture.shapes()
    if missing := sorted(wanted.keys() - found.keys()):
        raise InputError(f"the network lacks the tensors {_listed(missing)}")
    if extra := sorted(found.keys() - wanted.keys()):
        raise InputError(f"the network has no tensors {_listed(extra)}")
    for name, shape in wanted.items():
        if tuple(found[name]) != shape:
            raise InputError(f"tensor {name} must have shape {shape}, got {tuple(found[name])}")


def _listed(names: list[str], most: int = 5) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


_lock = Lock()
_holders: list[Any] = []
"""The limit in force, once per open context: BLAS has one setting for the whole process."""


@contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """Limit NumPy's matrix products to this many threads while the context lasts; None: no limit.

    If contexts overlap, in several Python threads, the first sets the limit and the last restores it.
    """
    if threads is None:
        yield
        return
    with _lock:
        _release_openblas()
        _holders.append(_holders[0] if _holders else _blas().limit(limits=threads))
    try:
        yield
    finally:
        with _lock:
            limit = _holders.pop()
            if not _holders:
                _release_openblas()
                limit.restore_original_limits()
                _release_openblas()


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _release_openblas() -> None:
    """Let any Python thread set a limit; threadpoolctl reserves OpenBLAS for the first that does."""
    for library in _blas().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


def repeated(network: Network, depth: int) -> Network:
    """Return a primal-dual network with ``depth`` layers: those of another, then its last block again.

    The theta of the last layer was without effect in training; the theta before it replaces it.

    >>> from pdrn.nets import DenseMap, Network, PrimalDual
    >>> shallow = Network.started(PrimalDual(DenseMap(8), depth=2))
    >>> sorted(repeated(shallow, 3).weights)
    ['V.0', 'V.1', 'V.2', 'W.0', 'W.1', 'W.2']
    """
    architecture = network.architecture
    if not isinstance(architecture, PrimalDual):
        raise InputError(
            f"a {type(architecture).__name__} has no blocks to repeat; choose a primal-dual network"
        )
    if architecture.stages > 1:
        raise InputError("a network with several stages has no block to repeat; choose one with one stage")
    if depth < architecture.depth:
        raise InputError(f"depth must be at least that of the network, {architecture.depth}, got {depth}")
    per_layer = architecture.learn_theta == "per layer"
    if architecture.depth == 1 and (architecture.memory in ("gain", "mix") or per_layer):
        raise InputError("a single layer has no learned memory or theta to repeat; train two or more")
    longer = dataclasses.replace(architecture, depth=depth)
    weights = {}
    for name, shape in longer.shapes().items():
        kind, _, layer = name.partition(".")
        if name == "theta" and per_layer:
            learned = network.weights[name][:-1]
            weights[name] = np.pad(learned, (0, depth - len(learned)), "edge")
        elif name in network.weights:
            part = network.weights[name]
            weights[name] = part if part.shape == shape else np.pad(part, (0, depth - len(part)), "edge")
        else:
            last = architecture.depth - (2 if kind == "M" else 1)
            weights[name] = network.weights[f"{kind}.{min(int(layer), last)}"]
    return Network(longer, weights, network.threads)


class RunningNetwork:
    """A convolutional primal-dual network that restores a stream hop by hop; a context must be causal.

    ``push`` takes the cells of a hop and returns the restored hop of ``latency`` samples earlier. The delay
    lines start with silence, cells [0, 0]: the first results are silence, too. If the network has a context,
    push ``reach[0]`` samples of silence before a signal, since the context sees them.

    Examples
    --------
    >>> from pdrn.nets import ConvolutionalMap, Network, PrimalDual
    >>> network = Network.started(PrimalDual(ConvolutionalMap(8, window=8, hop=4), depth=3))
    >>> running = RunningNetwork(network)
    >>> running.latency
    12
    >>> lower = np.float32([0, 1, 2, 2, 1, 0, -1, -2, -2, -1, 0, 1])
    >>> hops = [running.push(part, part + 1) for part in lower.reshape(3, 4)]
    >>> silence = np.zeros(4, np.float32)
    >>> hops += [running.push(silence, silence) for _ in range(3)]
    >>> bool(np.allclose(np.concatenate(hops)[12:], network(lower, lower + 1)))
    True
    """

    def __init__(self, network: Network) -> None:
        architecture = network.architecture
        if not (isinstance(architecture, PrimalDual) and isinstance(architecture.map, ConvolutionalMap)):
            raise InputError("a stream needs a convolutional primal-dual network; choose another")
        if architecture.context and not architecture.causal:
            raise InputError("the context of this network includes the future; choose a causal one")
        self.latency = architecture.depth * architecture.map.edge
        self._network, self._architecture, self._hop = network, architecture, architecture.map.hop
        silence = np.zeros(self._hop, _type_of(network.weights))
        self._given = _DelayLine([Box(silence, silence)] * (self.latency // self._hop))
        self._stages = [
            _Stage(architecture, architecture.map, network.weights, stage)
            for stage in range(architecture.stages)
        ]

    def push(self, lo: NumpyArray, hi: NumpyArray) -> NumpyArray:
        """Take the cells of the next hop; return the restored hop of ``latency`` samples earlier."""
        if np.shape(lo) != (self._hop,):
            raise InputError(f"this network takes hops of {self._hop} samples, got shape {np.shape(lo)}")
        given = self._architecture.inputs(lo, hi, check_values=True)
        cells = self._architecture.convert(given, next(iter(self._network.weights.values())))
        state = State.at(cells.centre, L1(), cells)
        with limited(self._network.threads):
            for stage in self._stages:
                state = stage.step(state)
        restored: NumpyArray = self._architecture.finish(state.x, self._given.push(given))
        return restored.astype(given.lo.dtype, copy=False)


class _Stage:
    """The layers of one stage, and the earlier views that its context sees."""

    def __init__(self, architecture: PrimalDual, map: ConvolutionalMap, weights: Arrays, stage: int) -> None:
        self._architecture, self._weights, self._stage = architecture, weights, stage
        self._map = _RunningMap(map, weights)
        nothing = np.zeros(map.channels, _type_of(weights))
        self._earlier = [_DelayLine([nothing] * (NEIGHBOURS - 1)) for _ in range(architecture.context)]
        count = architecture.layers_per_stage
        self._layers = [self._layer(map, stage * count + i) for i in range(count)]
        # Each layer works on a later view than the one before it, by the delay of the map.
        self._priors = [_DelayLine([L1()] * (i * self._map.delay)) for i in range(count)]

    def step(self, state: State) -> State:
        priors = self._architecture.priors(self._stage, self._weights, state.x, self._map, self._with_earlier)
        for layer, line, prior in zip(self._layers, self._priors, priors, strict=True):
            state = layer.step(state, line.push(prior))
        return state

    def _layer(self, map: ConvolutionalMap, layer: int) -> _Layer:
        running, dtype = _RunningMap(map, self._weights), _type_of(self._weights)
        # The dual variable before the first layer is the number 0.
        y = np.zeros(map.channels, dtype) if layer else 0.0
        block = self._architecture.block(layer, self._weights, running)
        return _Layer(block, np.zeros(map.hop, dtype), y, running.delay)

    def _with_earlier(self, hidden: int, seen: NumpyArray) -> NumpyArray:
        earlier = self._earlier[hidden]
        together = np.concatenate([*earlier.waiting, seen])
        earlier.push(seen)
        return together


class _Layer:
    """One block, and delay lines for its inputs, which wait until the map has seen their whole view."""

    def __init__(self, block: Block, silence: NumpyArray, y: Any, delay: int) -> None:
        self._block = block
        self._cells = _DelayLine[Functional]([Box(silence, silence)] * delay)
        self._x = _DelayLine[Any]([silence] * delay)
        self._y = _DelayLine[Any]([y] * delay)

    def step(self, state: State, prior: Functional) -> State:
        x, y, cells = self._x.push(state.x), self._y.push(state.y), self._cells.push(state.G)
        return self._block(State(x, y, state.x_bar, prior, cells))


class _RunningMap:
    """A convolutional map on one hop, or one view, per call; see `pdrn.nets.maps.KernelMap`."""

    def __init__(self, map: ConvolutionalMap, weights: Arrays) -> None:
        self.delay = map.edge // map.hop
        """Hops from an input to its complete output."""
        self._hop = map.hop
        self._seen, self._sum = np.zeros((2, map.window), _type_of(weights))

    def analyse(self, x: NumpyArray, kernel: NumpyArray) -> NumpyArray:
        _advance(self._seen, self._hop, x)
        coefficients: NumpyArray = kernel @ self._seen
        return coefficients

    def synthesise(self, y: NumpyArray, kernel: NumpyArray) -> NumpyArray:
        _advance(self._sum, self._hop, 0.0)
        self._sum += y @ kernel
        complete: NumpyArray = self._sum[: self._hop].copy()
        return complete


class RunningSpectralNetwork:
    """A causal spectral network that restores a stream, ``grid`` samples at a time.

    ``push`` takes the cells of a block of ``grid`` samples, and returns the restored block of ``latency``
    samples earlier. Its memory starts with silence: push ``reach[0]`` samples of silence before a signal.

    Examples
    --------
    >>> from pdrn.nets import Network, SpectralPrimalDual
    >>> network = Network.started(SpectralPrimalDual((0.004,), steps=2, channels=4, blocks=1, causal=True))
    >>> running = RunningSpectralNetwork(network)
    >>> running.grid, running.latency
    (16, 96)
    """

    def __init__(self, network: Network) -> None:
        plan = network.architecture
        if not (isinstance(plan, SpectralPrimalDual) and plan.causal):
            raise InputError("a stream needs a causal spectral network; choose another")
        self.grid, self.latency = plan.grid, plan.reach[1]
        self._network, self._plan = network, plan
        silence = np.zeros(self.grid)
        self._given = _DelayLine([Box(silence, silence)] * (self.latency // self.grid))
        self._stages = [_SpectralStage(plan, network.weights, stage) for stage in range(len(plan.windows))]

    def push(self, lo: NumpyArray, hi: NumpyArray) -> NumpyArray:
        """Take the cells of the next block; return the restored block of ``latency`` samples earlier."""
        if np.shape(lo) != (self.grid,):
            raise InputError(f"this network takes blocks of {self.grid} samples, got shape {np.shape(lo)}")
        given = self._plan.inputs(lo, hi, check_values=True)
        box = self._plan.convert(given, next(iter(self._network.weights.values())))
        signals = np.stack([box.centre, box.centre, box.lo, box.hi])  # x, and what it was restored from
        with limited(self._network.threads):
            for stage in self._stages:
                signals = stage.push(signals)
        restored: NumpyArray = self._plan.finish(signals[0], self._given.push(given))
        return restored.astype(given.lo.dtype, copy=False)


class _SpectralStage:
    """One stage of a spectral network, hop by hop, and the earlier frames that its context sees."""

    def __init__(self, plan: SpectralPrimalDual, weights: Arrays, stage: int) -> None:
        self._plan, self._weights, self._stage = plan, weights, stage
        window = plan.window_lengths()[stage]
        self._hop, dtype = window // OVERLAP, _type_of(weights)
        self._frame = GaborFrame(window, window, self._hop)
        self._signal, self._centre = (_RunningSTFT(self._frame, dtype) for _ in range(2))
        self._radii = np.zeros((2, window), dtype)
        self._radii_weight = window_weight(self._frame).astype(dtype)
        self._earlier: dict[str, NumpyArray] = {}
        self._layers = [self._layer(step) for step in range(plan.steps)]
        # Each step works on a later frame than the one before it.
        delay = OVERLAP - 1
        self._priors = [_DelayLine([GroupL21(2)] * (step * delay)) for step in range(plan.steps)]
        latency = plan.steps * delay * self._hop
        self._late = np.zeros((4, -latency % plan.grid), dtype)  # so that the next stage has whole blocks
        self._given = _DelayLine[Any]([np.zeros((3, self._hop), dtype)] * (plan.steps * delay))

    def push(self, signals: NumpyArray) -> NumpyArray:
        """Take a block of the signal, centres and bounds, shape (4, grid); return the block, later."""
        hops = [self._step(hop) for hop in np.split(signals, signals.shape[-1] // self._hop, axis=-1)]
        everything = np.concatenate([self._late, *hops], -1)
        self._late = everything[:, signals.shape[-1] :]
        return everything[:, : signals.shape[-1]]

    def _step(self, signals: NumpyArray) -> NumpyArray:
        x, centre, lo, hi = signals
        box = unchecked(Box, lo=lo[None], hi=hi[None])
        _advance(self._radii, self._hop, np.concatenate(square_radii(box)))
        bounded, squares = (self._radii @ self._radii_weight + LEAST_SQUARE_RADIUS).reshape(2, 1, 1, 1)
        priors = self._plan.priors(
            self._stage,
            self._weights,
            self._signal.analyse(x[None]).reshape(1, 1, -1, 2),
            self._centre.analyse(centre[None]).reshape(1, 1, -1, 2),
            bounded,
            squares,
            self._remember,
        )
        state = State.at(x[None], GroupL21(2), box)
        for layer, line, prior in zip(self._layers, self._priors, priors, strict=True):
            state = layer.step(state, line.push(prior))
        return np.concatenate([state.x, self._given.push(signals[1:])])

    def _layer(self, step: int) -> _Layer:
        frame, dtype = self._frame, _type_of(self._weights)
        running = _RunningSTFT(frame, dtype)
        layer = self._stage * self._plan.steps + step
        block = self._plan.block(layer, self._weights, running.analyse, running.synthesise)
        # The dual variable before the first step of a stage is the number 0.
        y = np.zeros((1, frame.channels), dtype) if step else 0.0
        return _Layer(block, np.zeros((1, frame.hop), dtype), y, OVERLAP - 1)

    def _remember(self, name: str, h: NumpyArray, before: int) -> tuple[NumpyArray, int]:
        """Put the earlier frames before a new one, and keep as many for the next."""
        earlier = self._earlier.get(name, np.zeros((1, before, *h.shape[2:]), h.dtype))
        together = np.concatenate([earlier, h], 1)
        self._earlier[name] = together[:, -before:]
        return together, before


class _RunningSTFT:
    """The transform of a tight frame, one hop or one frame per call."""

    def __init__(self, frame: GaborFrame, dtype: Any) -> None:
        self._frame = frame
        self._seen, self._sum = np.zeros((2, 1, frame.window_length), dtype)

    def analyse(self, x: NumpyArray) -> NumpyArray:
        """Take a hop; return the coefficients of the frame that it completes."""
        _advance(self._seen, self._frame.hop, x)
        coefficients: Any = self._frame.analyse_view(self._seen)
        return coefficients  # type: ignore[no-any-return]

    def synthesise(self, y: NumpyArray) -> NumpyArray:
        """Take the coefficients of a frame; return the hop that it completes."""
        _advance(self._sum, self._frame.hop, 0.0)
        self._sum += self._frame.synthesise_view(y)
        complete: NumpyArray = self._sum[:, : self._frame.hop].copy()
        return complete


def _advance(window: NumpyArray, hop: int, newest: Any) -> None:
    """Shift the samples of a window by a hop, and put the newest at its end."""
    window[..., :-hop] = window[..., hop:]
    window[..., -hop:] = newest


class _DelayLine(Generic[Value]):
    """A fixed-length delay line."""

    def __init__(self, waiting: Iterable[Value]) -> None:
        self.waiting = deque(waiting)

    def push(self, value: Value) -> Value:
        self.waiting.append(value)
        return self.waiting.popleft()


def _type_of(weights: Arrays) -> Any:
    return next(iter(weights.values())).dtype
