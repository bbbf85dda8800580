"""Solving a batch of problems: run an algorithm, certify, stop each problem on its own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pdrn.convex.arrays import Array, copy, is_array, is_tensor, namespace, require_finite, to_numpy, zeros
from pdrn.convex.chambolle_pock import ChambollePock
from pdrn.convex.problem import Certificate, Problem

BLOCK_BYTES = 2**19
"""Batches are solved in blocks whose primal variable takes this much memory, so that they stay in cache."""

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
    if iterations is not None and iterations < 1:
        raise ValueError(f"need at least one iteration, got {iterations}")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise ValueError(f"the tolerance must be positive and finite, got {tolerance}")
    if check_every < 1:
        raise ValueError(f"need check_every >= 1, got {check_every}")
    m, n = problem.K.shape
    flat = problem.flat()
    x = flat.start if x0 is None else _flat_start(x0, "x0", problem, n)
    y = zeros((x.shape[0], m), x) if y0 is None else _flat_start(y0, "y0", problem, m)
    plan = _Plan(
        algorithm or ChambollePock(),
        iterations or MOST_ITERATIONS,
        tolerance,
        check_every,
        callback,
        keep_history,
    )
    blocks = [_solve_block(flat.rows(rows), rows, x[rows], y[rows], plan) for rows in _blocks(x)]
    return _joined(blocks, problem)


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
class _Block:
    """The results of one block of the batch, as far as they are known."""

    x: Array
    y: Array
    iterations: np.ndarray[Any, Any]
    converged: np.ndarray[Any, Any]
    primal: np.ndarray[Any, Any]
    dual: np.ndarray[Any, Any]
    checks: list[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = field(default_factory=list)


def _solve_block(problem: Problem, rows: slice, x: Array, y: Array, plan: _Plan) -> _Block:
    state = plan.algorithm.init(problem, x, y)
    count = x.shape[0]
    if not plan.has_checks:
        for _ in range(plan.iterations):
            state = plan.algorithm.step(problem, state, overwrite=True)
        x, y = state.x, state.y
    block = _Block(
        x,
        y,
        iterations=np.full(count, plan.iterations),
        converged=np.zeros(count, bool),
        primal=np.full(count, np.inf),
        dual=np.full(count, -np.inf),
    )
    if not plan.has_checks:
        return block
    block.x, block.y = copy(x), copy(y)
    active = np.arange(count)
    for iteration in range(1, plan.iterations + 1):
        state = plan.algorithm.step(problem, state, overwrite=True)
        if iteration % plan.check_every and iteration < plan.iterations:
            continue
        going_on = _check(block, problem, state, iteration, active, rows.start, plan)
        active = active[going_on]
        if not active.size:
            break
        if not going_on.all():
            problem, state = problem.rows(going_on), _rows(state, going_on)
    return block


def _check(
    block: _Block, problem: Problem, state: Any, iteration: int, active: Any, first_row: int, plan: _Plan
) -> np.ndarray[Any, Any]:
    """Certify the active problems of a block, keep their results, and tell which of them go on."""
    certificate = problem.certificate(state.x, state.y)
    primal, dual = to_numpy(certificate.primal), to_numpy(certificate.dual)
    if plan.callback is not None:
        plan.callback(Check(iteration, first_row + active, copy(state.x), copy(state.y), certificate))
    # Without a tolerance the latest iterate is the result, with one the best.
    latest = plan.tolerance is None
    better, tighter = latest | (primal < block.primal[active]), latest | (dual > block.dual[active])
    block.x[active[better]], block.primal[active[better]] = state.x[better], primal[better]
    block.y[active[tighter]], block.dual[active[tighter]] = state.y[tighter], dual[tighter]
    block.iterations[active] = iteration
    if plan.keep_history:
        block.checks.append((iteration, block.primal.copy(), block.dual.copy()))
    if plan.tolerance is None:
        return np.ones(len(active), bool)
    gap = Certificate(block.primal[active], block.dual[active]).relative_gap
    met = np.asarray(gap <= plan.tolerance)
    block.converged[active] = met
    return ~met


def _rows(state: Any, index: np.ndarray[Any, Any]) -> Any:
    """Return some rows of an algorithm's state."""
    parts = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    return dataclasses.replace(state, **{k: v[index] for k, v in parts.items() if is_array(v)})


def _blocks(x: Array) -> list[slice]:
    """Cut a flat batch into blocks that fit the cache; torch takes the batch whole."""
    count, n = x.shape
    size = count if is_tensor(x) else max(1, BLOCK_BYTES // (n * x.itemsize))
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


def _joined(blocks: list[_Block], problem: Problem) -> Solution:
    batch, xp = problem.batch_shape, namespace(problem.start)
    history = None
    if blocks[0].checks:
        longest = max(blocks, key=lambda block: len(block.checks)).checks
        padded = [block.checks + block.checks[-1:] * (len(longest) - len(block.checks)) for block in blocks]
        primal, dual = (
            np.concatenate([[check[part] for check in checks] for checks in padded], -1) for part in (1, 2)
        )
        history = History(
            np.array([check[0] for check in longest]),
            primal.reshape(-1, *batch),
            dual.reshape(-1, *batch),
        )
    return Solution(
        problem,
        xp.concatenate([block.x for block in blocks]).reshape(*batch, -1),
        xp.concatenate([block.y for block in blocks]).reshape(*batch, -1),
        np.concatenate([block.iterations for block in blocks]).reshape(batch),
        np.concatenate([block.converged for block in blocks]).reshape(batch),
        history,
    )
