"""Solvers for min F(Kx) + G(x) (1.1): Chambolle-Pock, restarted Halpern, and ``solve``, which runs them.

An algorithm is ``init`` and ``step`` on a flat batch of problems; its state is an explicit value. ``solve``
runs it block by block, certifies the result, and stops each problem on its own. ``reweighted`` solves a
sequence of problems, each weighted by the solution of the one before.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from pdrn.convex.backend import (
    AnyArray,
    Array,
    NumpyArray,
    Step,
    all_true,
    copy,
    epsilon,
    is_array,
    is_tensor,
    map_arrays,
    namespace,
    norm,
    plus,
    positive,
    require_finite,
    require_fits,
    require_vectors,
    set_field,
    subtracted_from,
    times,
    to_numpy,
    zeros,
)
from pdrn.convex.operators import Operator
from pdrn.convex.problem import Certificate, Problem, dequantization
from pdrn.errors import InputError

ROUNDING = 1e-9
"""By how much sigma tau |K|^2 may exceed 1 without a warning."""

MOST_NUDGES = 8
"""How often tau is reduced by a unit of rounding so that sigma tau |K|^2 <= 1; it takes a few at most."""


def step_sizes(K: Operator, ratio: Step = 1.0) -> tuple[Step, Step]:
    """Return the longest steps (sigma, tau) with sigma / tau = ratio and ``sigma tau |K|^2 <= 1``.

    The ratio is a number or one per problem, shape ``(..., 1)``, and so are the steps.

    >>> from pdrn.convex import DCT
    >>> step_sizes(DCT(1024), ratio=100.0)
    (10.0, 0.1)
    """
    return steps_of_weight(K, positive(ratio, "ratio") ** 0.5)


def steps_of_weight(K: Operator, weight: Step) -> tuple[Step, Step]:
    """Return the longest steps (sigma, tau) with sigma / tau = weight^2 and ``sigma tau |K|^2 <= 1``."""
    norm = K.norm or 1.0
    sigma, tau = weight / norm, 1 / (weight * norm)
    for _ in range(MOST_NUDGES):
        if all_true(sigma * tau * norm**2 <= 1):
            break
        tau = tau * (1 - epsilon(tau))
    return sigma, tau


@dataclass(frozen=True, eq=False)
class ChambollePockState:
    """The iterates of a flat batch, with ``u = y / sigma`` in place of y."""

    x: Array
    x_bar: Array
    u: Array
    sigma: Step
    tau: Step

    @property
    def y(self) -> Array:
        """The dual iterate."""
        return self.sigma * self.u


@dataclass(frozen=True)
class ChambollePock:
    """The algorithm of Chambolle and Pock (2011), (1.2), with fixed steps sigma and tau.

        y'    = prox_{sigma F*}(y + sigma K x_bar)
        x'    = prox_{tau G}(x - tau K'y')
        x_bar = x' + theta (x' - x)

    It converges for theta = 1 and ``sigma tau |K|^2 <= 1``. With ``u = y / sigma`` one multiplication
    vanishes, and with sigma tau = 1, the longest steps for an isometry, the other one too:

        u'    = v - prox_{F / sigma}(v)   with   v = u + K x_bar
        x'    = prox_{tau G}(x - sigma tau K'u')

    Parameters
    ----------
    sigma, tau
        The steps. Default: the longest that the norm of K allows; if both are missing, in the ratio
        ``problem.weight**2``. Steps with ``sigma tau |K|^2 > 1`` are used as they are, with a warning.
    theta
        The extrapolation, in [0, 1].
    """

    sigma: float | None = None
    tau: float | None = None
    theta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("sigma", "tau"):
            step = getattr(self, name)
            if is_array(step):
                raise InputError(f"{name} must be one number; a problem's weight gives steps per problem")
            if step is not None:
                set_field(self, name, positive(step, name))
        if not 0 <= self.theta <= 1:
            raise InputError(f"theta must lie in [0, 1], got {self.theta}")

    def steps(self, problem: Problem) -> tuple[Step, Step]:
        """Return sigma and tau for a problem."""
        squared_norm = (problem.K.norm or 1.0) ** 2
        if self.sigma is not None and self.tau is not None:
            product = self.sigma * self.tau * squared_norm
            if product > 1 + ROUNDING:
                warnings.warn(
                    f"sigma tau |K|^2 = {product:.3g} > 1: the iteration may diverge; "
                    "leave one of the steps out to have it derived",
                    stacklevel=5,  # the caller of solve
                )
            return self.sigma, self.tau
        if self.sigma is not None:
            return self.sigma, 1 / (self.sigma * squared_norm)
        if self.tau is not None:
            return 1 / (self.tau * squared_norm), self.tau
        return steps_of_weight(problem.K, problem.weight)

    def init(self, problem: Problem, x: Array, y: Array) -> ChambollePockState:
        """Start at x and y, arrays of a flat batch."""
        sigma, tau = self.steps(problem)
        return ChambollePockState(x, x, y / sigma, sigma, tau)

    def step(self, problem: Problem, state: ChambollePockState) -> ChambollePockState:
        """Do one iteration (1.2)."""
        F, G, K, theta = problem.F, problem.G, problem.K, self.theta
        sigma, tau = state.sigma, state.tau
        u = F._residual(plus(K._apply(state.x_bar), state.u), 1 / sigma)
        x = G._prox(subtracted_from(times(K._adjoint(u), sigma * tau), state.x), tau)
        if theta == 0:
            return ChambollePockState(x, x, u, sigma, tau)
        return ChambollePockState(x, plus(times(x - state.x, theta), x), u, sigma, tau)


# When to restart, after PDLP (Applegate et al. 2021).

SUFFICIENT_DECAY = 0.2
"""Restart when the residual has fallen to this share of the first one since the last restart."""

NECESSARY_DECAY = 0.8
"""Restart when it has fallen to this share and begins to rise."""

LONGEST_RUN = 0.36
"""Restart when a run has taken this share of all iterations so far."""

WEIGHT_MEMORY = 0.5
"""The share of log(weight) that survives a restart."""

LARGEST_CHANGE = 100.0
"""The largest factor between the weight and the ratio that it moves towards."""


@dataclass(frozen=True, eq=False)
class HalpernState:
    """The iterates of a flat batch; ``weight``, ``age`` and residuals are columns, one number per problem.

    ``x`` and ``y`` are T(z) of the latest iteration; ``z_x`` and ``z_y`` are the z of the next.
    """

    x: Array
    y: Array
    z_x: Array
    z_y: Array
    anchor_x: Array
    anchor_y: Array
    weight: Array
    age: Array
    """Iterations since the restart."""
    first_residual: Array
    """The residual at the first test after the restart, NaN before it."""
    last_residual: Array
    iteration: int


@dataclass(frozen=True)
class RestartedHalpern:
    """The reflected Halpern iteration of Chambolle-Pock with restarts (Lu and Yang 2024).

        z'  = (k + 1) / (k + 2) (2 T(z) - z) + 1 / (k + 2) z_0

    with k iterations since the restart at the anchor z_0, and T(z) one step of Chambolle-Pock, primal first:

        x'  = prox_{tau G}(x - tau K'y)
        y'  = prox_{sigma F*}(y + sigma K(2 x' - x))

    Each problem restarts on its own, from T(z); every ``period`` iterations ``|z - T(z)|`` decides whether it
    does. The first ratio of the steps is that of the problem's weight. At each restart it moves towards the
    ratio of the distances that y and x have covered. This reaches tight gaps much sooner than fixed steps.
    """

    period: int = 10

    def __post_init__(self) -> None:
        if self.period < 1:
            raise InputError(f"restarts are tested every period >= 1 iterations, got {self.period}")

    def init(self, problem: Problem, x: Array, y: Array) -> HalpernState:
        """Start at x and y, arrays of a flat batch."""
        column = zeros((x.shape[0], 1), x)
        weight = column + problem.weight
        unknown = column + float("nan")
        return HalpernState(x, y, x, y, x, y, weight, column, unknown, unknown, 0)

    def step(self, problem: Problem, state: HalpernState) -> HalpernState:
        """Do one iteration; ``ahead`` is the reflection 2 T(z) - z."""
        F, G, K = problem.F, problem.G, problem.K
        sigma, tau = steps_of_weight(K, state.weight)
        z_x, z_y = state.z_x, state.z_y
        x = G._prox(subtracted_from(times(K._adjoint(z_y), tau), z_x), tau)
        ahead_x = plus(x - z_x, x)
        y = F._prox_conjugate(plus(times(K._apply(ahead_x), sigma), z_y), sigma)
        ahead_y = plus(y - z_y, y)
        pull = 1 / (state.age + 2)
        moved = replace(
            state,
            x=x,
            y=y,
            z_x=plus(times(ahead_x, 1 - pull), pull * state.anchor_x),
            z_y=plus(times(ahead_y, 1 - pull), pull * state.anchor_y),
            age=state.age + 1,
            iteration=state.iteration + 1,
        )
        return moved if moved.iteration % self.period else _restart_where_due(state, moved)


def _restart_where_due(before: HalpernState, after: HalpernState) -> HalpernState:
    """Restart the problems whose residual ``|z - T(z)|`` has decayed enough, or that ran long enough."""
    xp = namespace(after.x)
    weight = after.weight
    root = xp.sqrt(weight)
    residual = xp.hypot(root * _length(before.z_x - after.x), _length(before.z_y - after.y) / root)
    first = xp.where(xp.isnan(after.first_residual), residual, after.first_residual)
    due = (
        (residual <= SUFFICIENT_DECAY * first)
        | ((residual <= NECESSARY_DECAY * first) & (residual > after.last_residual))
        | (after.age >= LONGEST_RUN * after.iteration)
    )
    unknown = xp.full_like(residual, float("nan"))
    return replace(
        after,
        z_x=xp.where(due, after.x, after.z_x),
        z_y=xp.where(due, after.y, after.z_y),
        anchor_x=xp.where(due, after.x, after.anchor_x),
        anchor_y=xp.where(due, after.y, after.anchor_y),
        weight=xp.where(due, _balanced(after), weight),
        age=xp.where(due, xp.zeros_like(after.age), after.age),
        first_residual=xp.where(due, unknown, first),
        last_residual=xp.where(due, unknown, residual),
    )


def _length(x: Array) -> Array:
    """Return the Euclidean norm, also of vectors whose squares underflow or overflow."""
    xp = namespace(x)
    largest = xp.amax(xp.abs(x), -1)[..., None]
    unit = xp.where(largest > 0, largest, xp.ones_like(largest))
    return unit * norm(x / unit)


def _balanced(state: HalpernState) -> Array:
    """Move the weight, by a bounded factor, towards the ratio of dual to primal distance covered."""
    xp = namespace(state.x)
    primal, dual = _length(state.x - state.anchor_x), _length(state.y - state.anchor_y)
    one = xp.ones_like(primal)
    factor = dual / (state.weight * xp.where(primal > 0, primal, one))
    factor = xp.where(primal > 0, factor, xp.where(dual > 0, LARGEST_CHANGE * one, one))
    return state.weight * xp.clip(factor, 1 / LARGEST_CHANGE, LARGEST_CHANGE) ** (1 - WEIGHT_MEMORY)


BLOCK_BYTES = 2**20
"""The memory per variable of a block."""

MOST_ITERATIONS = 100_000
"""The limit if there is a tolerance alone."""


class Algorithm(Protocol):
    """What ``solve`` runs: init and step on a flat batch.

    A state is a dataclass with the iterates ``x`` and ``y``; the first axis of its arrays is the batch.
    """

    def init(self, problem: Problem, x: Array, y: Array) -> Any:
        """Return the state before the first iteration."""

    def step(self, problem: Problem, state: Any) -> Any:
        """Return the state after one more iteration, and leave the old one as it is."""


@dataclass(frozen=True, eq=False)
class Check:
    """The argument of a callback: some rows of the flat batch, after some iterations."""

    iteration: int
    rows: NumpyArray
    x: AnyArray
    y: AnyArray
    certificate: Certificate


@dataclass(frozen=True, eq=False)
class Solution:
    """Primal and dual solutions of a batch of problems."""

    problem: Problem
    x: AnyArray
    """Shape ``(*batch, n)``."""
    y: AnyArray
    """Shape ``(*batch, m)``."""
    iterations: NumpyArray
    """Iterations done, per problem."""
    converged: NumpyArray
    """Whether the tolerance was met, per problem; false without a tolerance."""

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
) -> Solution:
    """Solve every problem of a batch.

    Parameters
    ----------
    problem
        The problems.
    algorithm
        Default: ``ChambollePock()``. ``RestartedHalpern()`` reaches tight gaps much sooner.
    iterations
        The number of iterations; with a tolerance, the limit.
    tolerance
        A problem stops once its relative duality gap is at most this. Its solution is the best primal and the
        best dual iterate of all checks.
    check_every
        The number of iterations between checks, if there is a tolerance or a callback.
    x0, y0
        The start, for example an earlier solution, of shape ``(*batch, n)`` and ``(*batch, m)``. Default:
        ``problem.start`` and zero.
    callback
        Called at every check of every block of the batch, with iterates and certificates.

    Examples
    --------
    >>> import numpy as np
    >>> from pdrn.convex import DCT, ChambollePock, dequantization
    >>> lo = np.floor(8 * np.random.default_rng(0).standard_normal((3, 32))) / 8
    >>> problem = dequantization(lo, lo + 1 / 8, DCT(32))
    >>> solve(problem, ChambollePock(sigma=10, tau=0.1), iterations=25).x.shape
    (3, 32)
    """
    if iterations is None and tolerance is None:
        raise InputError("say when to stop: pass iterations, a tolerance, or both")
    if iterations is not None:
        iterations = _whole(iterations, "iterations")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise InputError(f"the tolerance must be positive and finite, got {tolerance}")
    check_every = _whole(check_every, "check_every")
    m, n = problem.K.shape
    flat = problem.flat()
    x0 = flat.start if x0 is None else _flat_start(x0, "x0", problem, n)
    y0 = None if y0 is None else _flat_start(y0, "y0", problem, m)
    count = x0.shape[0]
    job = _Job(
        algorithm or ChambollePock(),
        iterations or MOST_ITERATIONS,
        tolerance,
        check_every,
        callback,
        x=namespace(x0).empty_like(x0),
        y=zeros((count, m), x0),
        stopped_after=np.full(count, iterations or MOST_ITERATIONS),
        converged=np.zeros(count, bool),
        primal=np.full(count, np.inf),
        dual=np.full(count, -np.inf),
    )
    # Blocks of the batch stay in the cache; torch takes the whole batch.
    size = count if is_tensor(x0) else max(1, BLOCK_BYTES // (max(m, n) * x0.itemsize))
    for first in range(0, count, size):
        rows = slice(first, min(first + size, count))
        x = x0[rows]
        y = zeros((x.shape[0], m), x) if y0 is None else y0[rows]
        job.solve_block(flat.rows(rows), x, y, np.arange(rows.start, rows.stop))
    batch = problem.batch_shape
    return Solution(
        problem,
        job.x.reshape(*batch, -1),
        job.y.reshape(*batch, -1),
        job.stopped_after.reshape(batch),
        job.converged.reshape(batch),
    )


def _whole(number: Any, name: str) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__") or number < 1:
        raise InputError(f"{name} must be a whole number, at least 1, got {number!r}")
    return operator.index(number)


@dataclass(eq=False)
class _Job:
    """The options of ``solve``, and the results of the flat batch, which its blocks fill in."""

    algorithm: Algorithm
    iterations: int
    tolerance: float | None
    check_every: int
    callback: Callable[[Check], None] | None
    x: Array
    y: Array
    stopped_after: NumpyArray
    converged: NumpyArray
    primal: NumpyArray
    dual: NumpyArray

    def solve_block(self, problem: Problem, x: Array, y: Array, rows: NumpyArray) -> None:
        """Solve some rows of the batch and store their results."""
        has_checks = self.tolerance is not None or self.callback is not None
        state, block = self.algorithm.init(problem, x, y), slice(rows[0], rows[-1] + 1)
        for iteration in range(1, self.iterations + 1):
            state = self.algorithm.step(problem, state)
            if has_checks and (iteration % self.check_every == 0 or iteration == self.iterations):
                unsolved = self._check(problem, state, iteration, rows)
                rows = rows[unsolved]
                if not rows.size:
                    return
                if not unsolved.all():
                    problem, state = problem.rows(unsolved), map_arrays(state, itemgetter(unsolved))
        if not has_checks:
            self.x[block], self.y[block] = state.x, state.y

    def _check(self, problem: Problem, state: Any, iteration: int, rows: NumpyArray) -> NumpyArray:
        """Certify some problems, store their results, and return which of them are not solved yet."""
        certificate = problem.certificate(state.x, state.y)
        primal, dual = to_numpy(certificate.primal), to_numpy(certificate.dual)
        if self.callback is not None:
            self.callback(Check(iteration, rows, copy(state.x), copy(state.y), certificate))
        # Without a tolerance the latest iterate is the result, with one the best, as soon as any is finite.
        latest, best_primal, best_dual = self.tolerance is None, self.primal[rows], self.dual[rows]
        better = latest | (primal < best_primal) | ~np.isfinite(best_primal)
        tighter = latest | (dual > best_dual) | ~np.isfinite(best_dual)
        self.x[rows[better]], self.primal[rows[better]] = state.x[better], primal[better]
        self.y[rows[tighter]], self.dual[rows[tighter]] = state.y[tighter], dual[tighter]
        self.stopped_after[rows] = iteration
        if self.tolerance is None:
            return np.ones(len(rows), bool)
        best = Certificate(self.primal[rows], self.dual[rows], to_numpy(certificate.rounding))
        self.converged[rows] = best.meets(self.tolerance)
        return ~self.converged[rows]


def _flat_start(value: Array, name: str, problem: Problem, length: int) -> Array:
    """Check a user's start and flatten its batch."""
    shape = (*problem.batch_shape, length)
    require_vectors(value, name, length)
    require_fits(value, shape, problem.start, name)
    require_finite(value, name)
    return namespace(value).broadcast_to(value, shape).reshape(-1, length)


def reweighted(
    lo: Array,
    hi: Array,
    K: Operator,
    faint: float,
    *,
    group: int = 1,
    move: float | None = None,
    rounds: int = 4,
    iterations: int = 60,
) -> Solution:
    """Find a signal in its cells with few large coefficients: reweighted l1 (Candes, Wakin and Boyd 2008).

    A sequence of dequantization problems. The first has weights 1, every other ``faint / (faint + |Kx|)``
    with the solution x of the one before: large coefficients cost little, faint ones are pressed to zero.
    Where cells are half-open or unbounded, as for clipping and gaps, this recovers far more than one problem.

    Parameters
    ----------
    lo, hi, K
        As in ``dequantization``.
    faint
        The magnitude of a coefficient that gets weight 1/2: a few times the noise in the signal.
    group
        The number of consecutive coefficients that share a magnitude: 2 for the cosines and sines of a
        ``GaborFrame``.
    move
        The typical distance of the unknown samples from the centres of their cells, which sets the steps.
        Default: the mean radius of the cells, which is too short where most of them are points.
    rounds
        The number of problems.
    iterations
        The iterations of Chambolle-Pock for each problem.

    Returns
    -------
    Solution
        Of the last problem.
    """
    if rounds < 1:
        raise InputError(f"reweighting takes at least one round, got {rounds}")
    if group < 1 or K.shape[0] % group:
        raise InputError(f"{K.shape[0]} coefficients do not divide into groups of {group}")
    positive(faint, "faint")
    x0 = None
    for _ in range(rounds):
        weight = 1.0 if x0 is None else faint / (faint + _magnitude(K.apply(x0), group))
        problem = dequantization(lo, hi, K, weight)
        if move is not None:
            problem = replace(problem, weight=1 / positive(move, "move"))
        solution = solve(problem, iterations=iterations, x0=x0)
        x0 = solution.x
    return solution


def _magnitude(y: Array, group: int) -> Array:
    """Return for every coefficient the magnitude of its group."""
    groups = y.reshape(*y.shape[:-1], -1, group)
    return namespace(y).broadcast_to(norm(groups), groups.shape).reshape(y.shape)
