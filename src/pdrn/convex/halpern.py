"""Chambolle-Pock with reflection, anchoring and restarts: far fewer iterations to a tight gap.

One step T of Chambolle-Pock, reflected, is averaged with an anchor (Halpern's iteration),

    z <- (k + 1) / (k + 2) (2 T(z) - z) + 1 / (k + 2) anchor,

and from time to time the iteration restarts at T(z) with a new anchor there and the steps balanced anew
between the primal and the dual variable. On problems that are sharp at the solution, linear programs and
with them l1 norms over boxes, restarts turn the rate from 1/k into a linear one. The scheme is that of the
solver PDLP (Applegate et al. 2021) and of its Halpern variant (Lu and Yang 2024), one problem of the batch
independently of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdrn.convex.arrays import Array, copy, namespace, norm, plus, subtracted_from, times, zeros
from pdrn.convex.chambolle_pock import steps_of_weight
from pdrn.convex.problem import Problem

SUFFICIENT_DECAY = 0.2
"""Restart when the residual has fallen to this share of the first one since the last restart."""

NECESSARY_DECAY = 0.8
"""Restart when it has fallen to this share and begins to rise."""

LONGEST_RUN = 0.36
"""Restart when a run has taken this share of all iterations so far."""

WEIGHT_MEMORY = 0.5
"""How much of log(weight) survives a restart."""

LARGEST_CHANGE = 100.0
"""How far a new ratio may be from the weight, as a factor, to be believed."""


@dataclass(frozen=True, eq=False)
class HalpernState:
    """The iterates of a flat batch; columns of shape ``(batch, 1)`` belong to each problem alone.

    ``x`` and ``y`` are the result of the latest step T; ``z_x`` and ``z_y`` are where the next one starts.
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
    """Reflected Halpern iteration with restarts, tested every ``period`` iterations.

    The first ratio of the steps is the problem's weight; later ones are found on the way.
    """

    period: int = 10

    def __post_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"restarts are tested every period >= 1 iterations, got {self.period}")

    def init(self, problem: Problem, x: Array, y: Array) -> HalpernState:
        """Start at x and y, arrays of a flat batch."""
        column = zeros((x.shape[0], 1), x)
        weight = column + problem.weight
        unknown = column + float("nan")
        return HalpernState(x, y, copy(x), copy(y), x, y, weight, column, unknown, unknown, 0)

    def step(self, problem: Problem, state: HalpernState, *, overwrite: bool = False) -> HalpernState:
        """Do one iteration; ``overwrite`` gives leave to destroy the old state."""
        F, G, K = problem.F, problem.G, problem.K
        sigma, tau = steps_of_weight(K, state.weight)
        iteration = state.iteration + 1
        testing = iteration % self.period == 0
        # The test for restarts compares z with T(z), so there z must survive the step.
        z_x, z_y = (state.z_x, state.z_y) if overwrite and not testing else (copy(state.z_x), copy(state.z_y))
        x = G.prox(subtracted_from(times(K.adjoint(z_y), tau), z_x), tau, overwrite=True)
        ahead_x = plus(subtracted_from(z_x, x), x)
        y = F.prox_conjugate(plus(times(K.apply(ahead_x), sigma), z_y), sigma, overwrite=True)
        ahead_y = plus(subtracted_from(z_y, y), y)
        pull = 1 / (state.age + 2)
        moved = replace(
            state,
            x=x,
            y=y,
            z_x=plus(times(ahead_x, 1 - pull), pull * state.anchor_x),
            z_y=plus(times(ahead_y, 1 - pull), pull * state.anchor_y),
            age=state.age + 1,
            iteration=iteration,
        )
        return _restart_where_due(state, moved) if testing else moved


def _restart_where_due(before: HalpernState, after: HalpernState) -> HalpernState:
    """Restart the problems whose residual |z - T(z)| calls for it."""
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
    """Return the Euclidean norm, of vectors too whose squares are too small or too large for their type."""
    xp = namespace(x)
    largest = xp.amax(abs(x), -1)[..., None]
    unit = xp.where(largest > 0, largest, xp.ones_like(largest))
    return unit * norm(x / unit)


def _balanced(state: HalpernState) -> Array:
    """Move the weight towards the ratio of the dual to the primal distance covered since the restart.

    Where one of them stood still the ratio is zero or infinite: a restart changes the weight by a bounded
    factor.
    """
    xp = namespace(state.x)
    primal, dual = _length(state.x - state.anchor_x), _length(state.y - state.anchor_y)
    one = xp.ones_like(primal)
    factor = dual / (state.weight * xp.where(primal > 0, primal, one))
    factor = xp.where(primal > 0, factor, xp.where(dual > 0, LARGEST_CHANGE * one, one))
    return state.weight * xp.clip(factor, 1 / LARGEST_CHANGE, LARGEST_CHANGE) ** (1 - WEIGHT_MEMORY)
