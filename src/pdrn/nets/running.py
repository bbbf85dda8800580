"""A network on a signal that arrives hop by hop: nothing is computed twice.

A view is complete with its last hop, and a hop of a layer's result when all views that hold it are: so every
layer is ``window - hop`` samples behind the one before. What it needs of that one waits in queues meanwhile;
the equations are those of `pdrn.nets.blocks`, one view at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from pdrn.convex import L1, Box
from pdrn.convex.arrays import Array
from pdrn.nets.architecture import as_computed, keep_inside
from pdrn.nets.blocks import Activations
from pdrn.nets.maps import ConvolutionalMap
from pdrn.nets.network import Arrays, Network
from pdrn.nets.primal_dual import PrimalDual
from pdrn.nets.threads import limited
from pdrn.nets.weighting import VIEWS

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
            raise ValueError("a signal without end takes a convolutional primal-dual network; choose another")
        if plan.context and not plan.causal:
            raise ValueError("the context of this network is the future too; choose a causal one")
        self.latency = plan.depth * plan.map.edge
        self._network, self._hop = network, plan.map.hop
        quiet = np.zeros(self._hop, _type_of(network.weights))
        self._given = _Queue([Box(quiet, quiet)] * (self.latency // self._hop))
        self._stages = [_Stage(plan, plan.map, network.weights, stage) for stage in range(plan.stages)]

    def push(self, lower: Array, upper: Array) -> Array:
        """Take the cells of the next hop, and return the restored hop that they complete."""
        if np.shape(lower) != (self._hop,):
            raise ValueError(f"this network takes hops of {self._hop} samples, got shape {np.shape(lower)}")
        given, cells = as_computed(self._network.weights, lower, upper)
        activations = Activations.at(cells.centre)
        with limited(self._network.threads):
            for stage in self._stages:
                cells, activations = stage.step(cells, activations)
        return keep_inside(activations.x, self._given.push(given)).astype(given.lower.dtype, copy=False)


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
