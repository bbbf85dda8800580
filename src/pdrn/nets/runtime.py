"""Networks with weights, on NumPy arrays: whole signals, or hop by hop."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from pdrn.convex import L1, Box
from pdrn.convex.backend import Array, require_finite, set_field
from pdrn.errors import InputError
from pdrn.nets.maps import ConvolutionalMap, set_size
from pdrn.nets.primal_dual import (
    VIEWS,
    Activations,
    Architecture,
    PrimalDual,
    as_computed,
    keep_inside,
    restore,
    restore_by_layer,
)

_lock = Lock()
_limits: list[int] = []
"""The limits that hold now, of all Python threads: NumPy's library has one setting for the whole process."""

_before: list[int] = []
"""How many threads each library took before the first of them."""


@contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """Limit NumPy's matrix products to so many threads while the context lasts; None leaves them alone.

    Where several limits hold at once, in several Python threads, the lowest counts.
    """
    if threads is None:
        yield
        return
    with _lock:
        if not _limits:
            _before[:] = [library.get_num_threads() for library in _libraries()]
        _limits.append(threads)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _limits.remove(threads)
            _apply()


@cache
def _libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _apply() -> None:
    for library, before in zip(_libraries(), _before, strict=True):
        wanted = min(_limits) if _limits else before
        if library.get_num_threads() != wanted:
            # One Python thread holds the right to set this; here the lock stands for it.
            release = getattr(library, "clear_controlling_thread", lambda force: None)
            release(force=True)
            library.set_num_threads(wanted)
            release(force=True)


Arrays = dict[str, np.ndarray[Any, Any]]


class Plan(Protocol):
    """What names the tensors of a network: an architecture or an unrolling."""

    @property
    def fixed(self) -> tuple[str, ...]:
        """The names of tensors that are not learned."""

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor."""


@dataclass(frozen=True, eq=False)
class Network:
    """An architecture and its weights; calling it restores signals inside their cells.

    The weights are all float32 or all float64, and that is what is computed in. Cells may be of either type;
    the result has theirs, and lies in them exactly.

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
    """How many threads matrix products take; None leaves that to NumPy."""

    def __post_init__(self) -> None:
        set_field(self, "weights", checked_weights(self.architecture, self.weights))
        if self.threads is not None:
            set_size(self, "threads")

    @classmethod
    def started(
        cls, architecture: Architecture, generator: np.random.Generator | None = None, dtype: Any = np.float32
    ) -> Network:
        """Return a network at the architecture's own start."""
        weights = architecture.start(generator or np.random.default_rng(0))
        return cls(architecture, {name: part.astype(dtype) for name, part in weights.items()})

    def astype(self, dtype: Any) -> Network:
        """Return the network with weights of another type."""
        weights = {name: part.astype(dtype) for name, part in self.weights.items()}
        return Network(self.architecture, weights, self.threads)

    def __call__(self, lower: Array, upper: Array) -> Array:
        """Restore signals inside their cells, ``(..., n) -> (..., n)``."""
        with limited(self.threads):
            return restore(self.architecture, self.weights, lower, upper)

    def by_layer(self, lower: Array, upper: Array) -> list[Array]:
        """Return the estimates of all layers; the last is the result."""
        with limited(self.threads):
            return restore_by_layer(self.architecture, self.weights, lower, upper)


def checked_weights(plan: Plan, weights: Arrays) -> Arrays:
    """Return the weights of a plan in its order, refusing others, mixed types and what is not finite."""
    check_weights(plan, {name: part.shape for name, part in weights.items()})
    arrays = {name: np.ascontiguousarray(weights[name]) for name in plan.shapes()}
    types = {part.dtype for part in arrays.values()}
    if types not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise InputError(f"the weights must be all float32 or all float64, got {sorted(map(str, types))}")
    for name, part in arrays.items():
        require_finite(part, name)
    return arrays


def check_weights(plan: Plan, found: dict[str, tuple[int, ...]]) -> None:
    """Raise InputError unless the tensors found, by name and shape, are those of a plan."""
    wanted = plan.shapes()
    if missing := sorted(wanted.keys() - found.keys()):
        raise InputError(f"the network needs tensors that are missing: {_listed(missing)}")
    if extra := sorted(found.keys() - wanted.keys()):
        raise InputError(f"there are tensors that the network has no place for: {_listed(extra)}")
    for name, shape in wanted.items():
        if tuple(found[name]) != shape:
            raise InputError(f"tensor {name} must have shape {shape}, got {tuple(found[name])}")


def _listed(names: list[str], most: int = 5) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def repeated(network: Network, depth: int) -> Network:
    """Return a primal-dual network of ``depth`` layers that repeats the last block of another.

    What no layer used when it was learned, the extrapolation after the last one, is that of the layer before.

    >>> from pdrn.nets import DenseMap, Network, PrimalDual
    >>> shallow = Network.started(PrimalDual(DenseMap(8), depth=2))
    >>> sorted(repeated(shallow, 3).weights)
    ['V.0', 'V.1', 'V.2', 'W.0', 'W.1', 'W.2']
    """
    plan = network.architecture
    if not isinstance(plan, PrimalDual):
        raise InputError(f"only primal-dual networks have blocks to repeat, not a {type(plan).__name__}")
    if plan.stages > 1:
        raise InputError("stages see the signal anew; a network with several has no block to repeat")
    if depth < plan.depth:
        raise InputError(f"a network of {plan.depth} layers cannot go on to {depth}")
    if plan.depth == 1 and (plan.memory in ("gain", "mix") or plan.learn_theta == "per layer"):
        raise InputError("a single layer has not learned what to remember; train two or more")
    longer = dataclasses.replace(plan, depth=depth)
    weights = {}
    for name, shape in longer.shapes().items():
        kind, _, layer = name.partition(".")
        if name == "theta" and plan.learn_theta == "per layer":
            learned = network.weights[name][:-1]
            weights[name] = np.pad(learned, (0, depth - len(learned)), "edge")
        elif name in network.weights:
            part = network.weights[name]
            weights[name] = part if part.shape == shape else np.pad(part, (0, depth - len(part)), "edge")
        else:
            last = plan.depth - (2 if kind == "M" else 1)
            weights[name] = network.weights[f"{kind}.{min(int(layer), last)}"]
    return Network(longer, weights, network.threads)


Value = TypeVar("Value")


class RunningNetwork:
    """A convolutional primal-dual network whose context, if it has one, is the past.

    `push` takes the cells of a hop and returns the restored hop that is ``latency`` samples earlier. Before
    the first hop there is silence, cells that hold zero alone; what comes out first belongs there. A network
    with a context hears that silence: push as much of it as ``reach`` has before a signal.

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
        plan = network.architecture
        if not (isinstance(plan, PrimalDual) and isinstance(plan.map, ConvolutionalMap)):
            raise InputError("a signal without end takes a convolutional primal-dual network; choose another")
        if plan.context and not plan.causal:
            raise InputError("the context of this network is the future too; choose a causal one")
        self.latency = plan.depth * plan.map.edge
        self._network, self._hop = network, plan.map.hop
        quiet = np.zeros(self._hop, _type_of(network.weights))
        self._given = _Queue([Box(quiet, quiet)] * (self.latency // self._hop))
        self._stages = [_Stage(plan, plan.map, network.weights, stage) for stage in range(plan.stages)]

    def push(self, lower: Array, upper: Array) -> Array:
        """Take the cells of the next hop, and return the restored hop that they complete."""
        if np.shape(lower) != (self._hop,):
            raise InputError(f"this network takes hops of {self._hop} samples, got shape {np.shape(lower)}")
        given, cells = as_computed(self._network.weights, lower, upper)
        activations = Activations.at(cells.centre)
        with limited(self._network.threads):
            for stage in self._stages:
                cells, activations = stage.step(cells, activations)
        return keep_inside(activations.x, self._given.push(given)).astype(given.lo.dtype, copy=False)


class _Stage:
    """Layers that have weights of one prior, and what comes to these weights."""

    def __init__(self, plan: PrimalDual, map: ConvolutionalMap, weights: Arrays, stage: int) -> None:
        self._plan, self._weights, self._stage = plan, weights, stage
        self._map = _RunningMap(map, weights)
        nothing = np.zeros(map.channels, _type_of(weights))
        self._earlier = [_Queue([nothing] * (VIEWS - 1)) for _ in range(plan.context)]
        first = stage * plan.layers_per_stage
        self._layers = [_Layer(plan, map, weights, first + i) for i in range(plan.layers_per_stage)]
        # A view comes to each layer so much later than to the one before.
        self._priors = [_Queue([L1()] * (i * self._map.behind)) for i in range(plan.layers_per_stage)]

    def step(self, cells: Box, activations: Activations) -> tuple[Box, Activations]:
        priors = self._plan.priors(self._stage, self._weights, activations.x, self._map, self._beside)
        for layer, queue, prior in zip(self._layers, self._priors, priors, strict=True):
            cells, activations = layer.step(queue.push(prior), cells, activations)
        return cells, activations

    def _beside(self, hidden: int, seen: Array) -> Array:
        earlier = self._earlier[hidden]
        together = np.concatenate([*earlier.waiting, seen])
        earlier.push(seen)
        return together


class _Layer:
    """One block, and what waits for the views that complete it."""

    def __init__(self, plan: PrimalDual, map: ConvolutionalMap, weights: Arrays, layer: int) -> None:
        running, dtype = _RunningMap(map, weights), _type_of(weights)
        self._block = plan.block(layer, weights, running)
        quiet = np.zeros(map.hop, dtype)
        self._cells = _Queue([Box(quiet, quiet)] * running.behind)
        self._x = _Queue([quiet] * running.behind)
        # What the first layer is given as a dual activation is the number 0.
        self._y = _Queue([np.zeros(map.channels, dtype) if layer else 0.0] * running.behind)

    def step(self, prior: L1, cells: Box, before: Activations) -> tuple[Box, Activations]:
        cells = self._cells.push(cells)
        known = Activations(self._x.push(before.x), self._y.push(before.y), before.x_bar)
        return cells, self._block(prior, cells, known)


class _RunningMap:
    """A convolutional map that is given a hop, or a view, at a time; see `pdrn.nets.maps.KernelMap`."""

    def __init__(self, map: ConvolutionalMap, weights: Arrays) -> None:
        self.behind = map.edge // map.hop
        """By how many hops what is complete is behind."""
        self._hop = map.hop
        self._seen, self._sum = np.zeros((2, map.window), _type_of(weights))

    def analyse(self, x: Array, kernel: Array) -> Array:
        self._move_on(self._seen, x)
        return kernel @ self._seen

    def synthesise(self, y: Array, kernel: Array) -> Array:
        self._move_on(self._sum, 0.0)
        self._sum += y @ kernel
        return self._sum[: self._hop].copy()

    def _move_on(self, window: Array, newest: Any) -> None:
        window[: -self._hop] = window[self._hop :]
        window[-self._hop :] = newest


class _Queue(Generic[Value]):
    """What was pushed comes out when as many more were as waited at the beginning."""

    def __init__(self, waiting: Iterable[Value]) -> None:
        self.waiting = deque(waiting)

    def push(self, value: Value) -> Value:
        self.waiting.append(value)
        return self.waiting.popleft()


def _type_of(weights: Arrays) -> Any:
    return next(iter(weights.values())).dtype
