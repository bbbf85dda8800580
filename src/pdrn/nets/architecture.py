"""What a network is without its weights: a plan that says which tensors it has and how they act.

An architecture is a frozen value. It names its weights and their shapes, says where training starts, and runs
forward, on NumPy arrays and torch tensors alike. Whoever holds the weights, the NumPy runtime or a torch
module, calls the two functions below. They keep the promise that no architecture has to make: whatever the
weights are, the result lies in the cells.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, TypeAlias

import numpy as np

from pdrn.convex import Box
from pdrn.convex.arrays import Array, convert, is_real, map_arrays, namespace
from pdrn.convex.problem import cells
from pdrn.nets.maps import ConvolutionalMap, DenseMap, Map, set_size

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
            raise ValueError(f"a network needs a DenseMap or a ConvolutionalMap, got {self.map!r}")

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
    xp = namespace(cells.lower)
    x = convert(x, cells.lower)
    return xp.where(xp.isfinite(x), cells.project(x), cells.centre)


def as_computed(weights: Weights, lower: Array, upper: Array) -> tuple[Box, Box]:
    """Return the cells as they came, and in the type that is computed in."""
    outer = cells(lower, upper)
    like = next(iter(weights.values()))
    if not is_real(like):
        raise ValueError(f"networks compute in float32 or float64, not in {like.dtype}; convert the weights")
    if lower.dtype == like.dtype:
        return outer, outer
    return outer, map_arrays(outer, lambda bound: _converted(bound, like))


def _converted(bound: Array, like: Array) -> Array:
    """Return bounds in another type; those that it cannot hold become the largest that it can."""
    xp = namespace(bound)
    most = min(float(namespace(each).finfo(each.dtype).max) for each in (bound, like))
    return convert(xp.where(xp.isinf(bound), bound, xp.clip(bound, -most, most)), like)
