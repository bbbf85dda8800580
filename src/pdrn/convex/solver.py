"""Solving a batch of problems: run an algorithm, certify, stop each problem on its own."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from pdrn.convex.arrays import (
    Array,
    copy,
    is_array,
    is_tensor,
    map_arrays,
    namespace,
    require_finite,
    to_numpy,
    zeros,
)
from pdrn.convex.chambolle_pock import ChambollePock
from pdrn.convex.problem import Certificate, Problem

BLOCK_BYTES = 2**20
"""Batches are solved in blocks whose variables take this much memory each, so that they stay in cache."""

MOST_ITERATIONS = 100_000
"""Where solving stops if a tolerance is asked for and no number of iterations."""


class Algorithm(Protocol):
    """Init and step on a flat batch, with an explicit state that shows iterates ``x`` and ``y``."""

    def init(self, problem: Problem, x: Array, y: Array) -> Any:
        """Return the state before the first iteration."""

    def step(self, problem: Problem, state: Any, *, overwrite: bool = False) -> Any:
        """Return the state after one more iteration."""


@dataclass(frozen=True, eq=False)
class Check:
    """What a callback sees: some problems of the flat batch, after some iterations."""

    iteration: int
    rows: np.ndarray[Any, Any]
    x: Array
    y: Array
    certificate: Certificate


@dataclass(frozen=True, eq=False)
class History:
    """Certificates at the checks; a problem that has stopped keeps its last one."""

    iterations: np.ndarray[Any, Any]
    """Shape ``(checks,)``."""
    primal: np.ndarray[Any, Any]
    """Shape ``(checks, *batch)``."""
    dual: np.ndarray[Any, Any]
    """Shape ``(checks, *batch)``."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Primal and dual solutions of a batch of problems, and how far each went."""

    problem: Problem
    x: Array
    """Shape ``(*batch, n)``."""
    y: Array
    """Shape ``(*batch, m)``."""
    iterations: np.ndarray[Any, Any]
    """Iterations done, per problem."""
    converged: np.ndarray[Any, Any]
    """Whether the tolerance was met, per problem; false where none was asked for."""
    history: History | None = None

    @cached_property
    def certificate(self) -> Certificate:
        """Primal and dual value in double precision; their gap bounds the distance to the optimum."""
        return self.problem.certificate(self.x, self.y)


def solve(
    problem: Problem,
    algorithm: Algorithm | None = None,
    *,
    iterations: int | None = None,
    tolerance: float | None = None,
    check_every: int = 20,
    x0: Array | None = None,
    y0: Array | None = None,
    callback: Callable[[Check], None] | None = None,
    keep_history: bool = False,
) -> Solution:
    """Solve every problem of a batch.

    Parameters
    ----------
    problem
        The problems.
    algorithm
        ``ChambollePock()`` unless given; ``RestartedHalpern()`` reaches tight gaps much sooner.
    iterations
        How many iterations to do, or to do at most if there is a tolerance.
    tolerance
        A problem stops once its relative duality gap is at most this. What it returns then, and at the last
        iteration, is the best primal and the best dual iterate of all checks.
    check_every
        How many iterations apart gaps are computed, for the tolerance, the callback and the history.
    x0, y0
        Where to start instead of ``problem.start`` and zero, for example at an earlier solution.
    callback
        Called at every check of a block of the batch.
    keep_history
        Whether to record the certificates of all checks.

    Examples
    --------
    >>> import numpy as np
    >>> from pdrn.convex import DCT, ChambollePock, dequantization
    >>> lower = np.floor(8 * np.random.default_rng(0).standard_normal((3, 32))) / 8
    >>> problem = dequantization(lower, lower + 1 / 8, DCT(32))
    >>> solve(problem, ChambollePock(sigma=10, tau=0.1), iterations=25).x.shape
    (3, 32)
    """
    if iterations is None and tolerance is None:
        raise ValueError("say when to stop: pass iterations, a tolerance, or both")
    if iterations is not None:
        iterations = _whole(iterations, "iterations")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise ValueError(f"the tolerance must be positive and finite, got {tolerance}")
    check_every = _whole(check_every, "check_every")
    m, n = problem.K.shape
    flat = problem.flat()
    x0 = flat.start if x0 is None else _flat_start(x0, "x0", problem, n)
    y0 = None if y0 is None else _flat_start(y0, "y0", problem, m)
    plan = _Plan(
        algorithm or ChambollePock(),
        iterations or MOST_ITERATIONS,
        tolerance,
        check_every,
        callback,
        keep_history,
    )
    result = _Result.before(x0, m, plan)
    for rows in _blocks(x0, max(m, n)):
        x = x0[rows]
        y = zeros((x.shape[0], m), x) if y0 is None else y0[rows]
        _solve_block(flat.rows(rows), x, y, result, np.arange(rows.start, rows.stop), plan)
    return result.solution(problem)


def _whole(number: Any, name: str) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__") or number < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {number!r}")
    return operator.index(number)


@dataclass(frozen=True)
class _Plan:
    algorithm: Algorithm
    iterations: int
    tolerance: float | None
    check_every: int
    callback: Callable[[Check], None] | None
    keep_history: bool

    @property
    def has_checks(self) -> bool:
        return self.tolerance is not None or self.callback is not None or self.keep_history


@dataclass(eq=False)
class _Result:
    """What is known of the whole flat batch; each block fills in its rows."""

    x: Array
    y: Array
    iterations: np.ndarray[Any, Any]
    converged: np.ndarray[Any, Any]
    primal: np.ndarray[Any, Any]
    dual: np.ndarray[Any, Any]
    checks: list[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]]
    """Iteration, rows, primal and dual values of every check, if a history is kept."""

    @staticmethod
    def before(x: Array, m: int, plan: _Plan) -> _Result:
        count, xp = x.shape[0], namespace(x)
        return _Result(
            x=xp.empty_like(x),
            y=zeros((count, m), x),
            iterations=np.full(count, plan.iterations),
            converged=np.zeros(count, bool),
            primal=np.full(count, np.inf),
            dual=np.full(count, -np.inf),
            checks=[],
        )

    def solution(self, problem: Problem) -> Solution:
        batch = problem.batch_shape
        return Solution(
            problem,
            self.x.reshape(*batch, -1),
            self.y.reshape(*batch, -1),
            self.iterations.reshape(batch),
            self.converged.reshape(batch),
            self._history(batch) if self.checks else None,
        )

    def _history(self, batch: tuple[int, ...]) -> History:
        iterations = sorted({iteration for iteration, *_ in self.checks})
        primal, dual = (np.full((len(iterations), len(self.primal)), np.nan) for _ in range(2))
        position = {iteration: index for index, iteration in enumerate(iterations)}
        for iteration, rows, primal_values, dual_values in self.checks:
            primal[position[iteration], rows] = primal_values
            dual[position[iteration], rows] = dual_values
        for values in (primal, dual):
            for earlier, later in itertools.pairwise(values):
                np.copyto(later, earlier, where=np.isnan(later))
        return History(np.array(iterations), primal.reshape(-1, *batch), dual.reshape(-1, *batch))


def _solve_block(
    problem: Problem, x: Array, y: Array, result: _Result, rows: np.ndarray[Any, Any], plan: _Plan
) -> None:
    """Solve some rows of the batch and write their results."""
    state = plan.algorithm.init(problem, x, y)
    if not plan.has_checks:
        for _ in range(plan.iterations):
            state = plan.algorithm.step(problem, state, overwrite=True)
        block = slice(rows[0], rows[-1] + 1)
        result.x[block], result.y[block] = state.x, state.y
        return
    for iteration in range(1, plan.iterations + 1):
        state = plan.algorithm.step(problem, state, overwrite=True)
        if iteration % plan.check_every and iteration < plan.iterations:
            continue
        going_on = _check(problem, state, iteration, result, rows, plan)
        rows = rows[going_on]
        if not rows.size:
            return
        if not going_on.all():
            problem = problem.rows(going_on)
            state = map_arrays(state, itemgetter(going_on))


def _check(
    problem: Problem, state: Any, iteration: int, result: _Result, rows: np.ndarray[Any, Any], plan: _Plan
) -> np.ndarray[Any, Any]:
    """Certify some problems, keep their results, and tell which of them go on."""
    certificate = problem.certificate(state.x, state.y)
    primal, dual = to_numpy(certificate.primal), to_numpy(certificate.dual)
    if plan.callback is not None:
        plan.callback(Check(iteration, rows, copy(state.x), copy(state.y), certificate))
    # Without a tolerance the latest iterate is the result, with one the best, as soon as any is finite.
    latest, best_primal, best_dual = plan.tolerance is None, result.primal[rows], result.dual[rows]
    better = latest | (primal < best_primal) | ~np.isfinite(best_primal)
    tighter = latest | (dual > best_dual) | ~np.isfinite(best_dual)
    result.x[rows[better]], result.primal[rows[better]] = state.x[better], primal[better]
    result.y[rows[tighter]], result.dual[rows[tighter]] = state.y[tighter], dual[tighter]
    result.iterations[rows] = iteration
    if plan.keep_history:
        result.checks.append((iteration, rows, result.primal[rows], result.dual[rows]))
    if plan.tolerance is None:
        return np.ones(len(rows), bool)
    best = Certificate(result.primal[rows], result.dual[rows], to_numpy(certificate.rounding))
    met: np.ndarray[Any, Any] = best.meets(plan.tolerance)
    result.converged[rows] = met
    return ~met


def _blocks(x: Array, longest: int) -> list[slice]:
    """Cut a flat batch into blocks that fit the cache; torch takes the batch whole."""
    count = x.shape[0]
    size = count if is_tensor(x) else max(1, BLOCK_BYTES // (longest * x.itemsize))
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def _flat_start(value: Array, name: str, problem: Problem, length: int) -> Array:
    """Check a given start and flatten its batch."""
    shape = (*problem.batch_shape, length)
    if not is_array(value) or tuple(value.shape) != shape:
        raise ValueError(f"{name} must be an array of shape {shape}, got {getattr(value, 'shape', value)}")
    if value.dtype != problem.start.dtype:
        raise ValueError(f"{name} is of {value.dtype} and the problem of {problem.start.dtype}; convert it")
    require_finite(value, name)
    return value.reshape(-1, length)
