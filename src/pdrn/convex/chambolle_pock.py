"""The algorithm of Chambolle and Pock (2011) for min F(Kx) + G(x): equation (1.2) of the paper.

    y   <- prox_{sigma F*}(y + sigma K x_bar)
    x'  <- prox_{tau G}(x - tau K'y)
    x_bar <- x' + theta (x' - x)

It converges for theta = 1 and sigma tau |K|^2 <= 1.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from pdrn.convex.arrays import (
    Array,
    Step,
    all_true,
    copy,
    epsilon,
    is_array,
    plus,
    positive,
    set_field,
    subtracted_from,
    times,
)
from pdrn.convex.operators import Operator
from pdrn.convex.problem import Problem

ROUNDING = 1e-9
"""By how much sigma tau |K|^2 may exceed 1 without a warning."""

MOST_NUDGES = 8
"""Rounding leaves sigma tau |K|^2 a few units above 1 at most; a weight that overflowed is beyond help."""


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
    """The iterates of a flat batch.

    The dual variable is kept as ``u = y / sigma``. That makes one multiplication of (1.2) vanish,

        u <- v - prox_{F / sigma}(v)   with   v = u + K x_bar,
        x <- prox_{tau G}(x - sigma tau K'u),

    and with sigma tau = 1, the longest steps for an isometry, the other one too.
    """

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
    """Algorithm (1.2) with fixed steps sigma and tau and extrapolation theta.

    A step that is not given is derived from the operator's norm, and, with neither given, their ratio from
    the problem's weight. Steps with ``sigma tau |K|^2 > 1`` are used as they are, with a warning.
    """

    sigma: float | None = None
    tau: float | None = None
    theta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("sigma", "tau"):
            step = getattr(self, name)
            if is_array(step):
                raise ValueError(f"{name} must be one number; a problem's weight gives steps per problem")
            if step is not None:
                set_field(self, name, positive(step, name))
        if not 0 <= self.theta <= 1:
            raise ValueError(f"theta must lie in [0, 1], got {self.theta}")

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
        return ChambollePockState(copy(x), copy(x), y / sigma, sigma, tau)

    def step(
        self, problem: Problem, state: ChambollePockState, *, overwrite: bool = False
    ) -> ChambollePockState:
        """Do one iteration (1.2); ``overwrite`` gives leave to destroy the old state."""
        F, G, K, theta = problem.F, problem.G, problem.K, self.theta
        sigma, tau = state.sigma, state.tau
        forward = K.apply(state.x_bar, overwrite=overwrite and theta != 0)
        u = F.residual(plus(forward, state.u), 1 / sigma, overwrite=True)
        backward = times(K.adjoint(u), sigma * tau)
        x = G.prox(subtracted_from(backward, state.x), tau, overwrite=True)
        if theta == 0:
            return ChambollePockState(x, x, u, sigma, tau)
        move = subtracted_from(state.x if overwrite else copy(state.x), x)
        return ChambollePockState(x, plus(times(move, theta), x), u, sigma, tau)
