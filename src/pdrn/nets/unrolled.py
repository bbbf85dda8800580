"""An unrolling with its weights: a network that is called with problems."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pdrn.convex import Problem
from pdrn.convex.arrays import Array, convert, map_arrays, set_field
from pdrn.nets.architecture import Weights
from pdrn.nets.maps import set_size
from pdrn.nets.network import Arrays, checked_weights
from pdrn.nets.threads import limited
from pdrn.nets.unrolling import Unrolling


@dataclass(frozen=True, eq=False)
class Unrolled:
    """An unrolling and its weights, on NumPy arrays: calling it with a problem gives a solution of sorts.

    The weights are all float32 or all float64, and that is what is computed in. The result has the type of
    the problem, and lies where G is finite.
    """

    architecture: Unrolling
    weights: Arrays
    threads: int | None = 1
    """How many threads matrix products take; None leaves that to NumPy."""

    def __post_init__(self) -> None:
        set_field(self, "weights", checked_weights(self.architecture, self.weights))
        if self.threads is not None:
            set_size(self, "threads")

    def __call__(self, problem: Problem) -> Array:
        """Return the x of the last layer, shape ``(..., n)``."""
        with limited(self.threads):
            return run(self.architecture, self.weights, problem)

    def by_layer(self, problem: Problem) -> list[Array]:
        """Return the x of all layers; the last is the result."""
        with limited(self.threads):
            return run_by_layer(self.architecture, self.weights, problem)


def run(plan: Unrolling, weights: Weights, problem: Problem) -> Array:
    """Return the x of the last layer, in the problem's type and where its G is finite."""
    inner = _converted(problem, weights)
    last = reduce(lambda _, activation: activation, plan.activations(weights, inner))
    return _settled(last.x, problem)


def run_by_layer(plan: Unrolling, weights: Weights, problem: Problem) -> list[Array]:
    """Return the x of all layers; the last is what ``run`` returns."""
    activations = plan.activations(weights, _converted(problem, weights))
    return [_settled(each.x, problem) for each in activations]


def _converted(problem: Problem, weights: Weights) -> Problem:
    """Return the problem in the type that is computed in."""
    if not isinstance(problem, Problem):
        raise ValueError(f"this network takes a Problem, as the solver does, got a {type(problem).__name__}")
    like = next(iter(weights.values()))
    if like.dtype == problem.start.dtype:
        return problem
    return map_arrays(problem, lambda array: convert(array, like))


def _settled(x: Array, problem: Problem) -> Array:
    """Return x in the type of the problem; what that moved goes back to where G is finite."""
    return x if x.dtype == problem.start.dtype else problem.G.project(convert(x, problem.start))
