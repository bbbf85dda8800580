"""The algorithm of Chambolle and Pock (2011) for min F(Kx) + G(x): equation (1.2) of the paper.

    y   <- prox_{sigma F*}(y + sigma K x_bar)
    x'  <- prox_{tau G}(x - tau K'y)
    x_bar <- x' + theta (x' - x)

It converges for theta = 1 and sigma tau |K|^2 <= 1.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from pdrn.convex.arrays import (
    Array,
    Step,
    all_true,
    copy,
    is_array,
    plus,
    require_positive,
    subtracted_from,
    times,
)
from pdrn.convex.operators import Operator
from pdrn.convex.problem import Problem

ROUNDING = 1e-12
"""How far a product of steps may be from 1 and still count as 1."""


def step_sizes(K: Operator, ratio: Any = 1.0) -> tuple[Any, Any]:
    """Return the longest steps (sigma, tau) with sigma / tau = ratio and sigma tau |K|^2 <= 1.

    The ratio is a number or one per problem, shape ``(..., 1)``, and so are the steps.

    >>> from pdrn.convex import DCT
    >>> step_sizes(DCT(1024), ratio=100.0)
    (10.0, 0.1)
    """
    require_positive(ratio, "ratio")
    squared_norm = (K.norm or 1.0) ** 2
    sigma = (ratio / squared_norm) ** 0.5
    tau = 1 / (sigma * squared_norm)
    while not all_true(sigma * tau * squared_norm <= 1):
        tau = tau * (1 - (2**-24 if is_array(tau) else 2**-53))
    return sigma, tau


@dataclass(frozen=True, eq=False)
class ChambollePockState:
    """The iterates of a flat batch.

    The dual variable is kept as ``u = y / sigma``. That makes one multiplication of (1.2) vanish,

        u <- v - prox_{F / sigma}(v)   with   v = u + K x_bar,
        x <- prox_{tau G}(x - sigma tau K'u),

    and with sigma tau = 1, the longest steps for an isometry, the other one too. If moreover K is
    orthonormal and theta = 1, then v = K (x_bar + K'u) = K (2 x - w), where w is the argument of the latest
    prox of G: the memory of u cancels, and with it an addition. ``x_bar`` stands for 2 x - w then.
    """

    x: Array
    x_bar: Array
    u: Array
    sigma: Step
    tau: Step
    memory_cancels: bool

    @property
    def y(self) -> Array:
        """The dual iterate."""
        return self.sigma * self.u


@dataclass(frozen=True)
class ChambollePock:
    """Algorithm (1.2) with fixed steps sigma and tau and extrapolation theta.

    A step that is not given is derived from the operator's norm, and, with neither given, their ratio from
    the problem's weight. Steps with sigma tau |K|^2 > 1 are used as they are, with a warning.
    """

    sigma: float | None = None
    tau: float | None = None
    theta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("sigma", "tau"):
            if (step := getattr(self, name)) is not None:
                require_positive(step, name)
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
                    stacklevel=2,
                )
            return self.sigma, self.tau
        if self.sigma is not None:
            return self.sigma, 1 / (self.sigma * squared_norm)
        if self.tau is not None:
            return 1 / (self.tau * squared_norm), self.tau
        return step_sizes(problem.K, problem.weight**2)

    def init(self, problem: Problem, x: Array, y: Array) -> ChambollePockState:
        """Start at x and y, arrays of a flat batch."""
        sigma, tau = self.steps(problem)
        K, u = problem.K, y / sigma
        memory_cancels = self.theta == 1 and K.isometry and K.shape[0] == K.shape[1] and _is_one(sigma * tau)
        x_bar = x + K.adjoint(u) if memory_cancels else copy(x)
        return ChambollePockState(copy(x), x_bar, u, sigma, tau, memory_cancels)

    def step(
        self, problem: Problem, state: ChambollePockState, *, overwrite: bool = False
    ) -> ChambollePockState:
        """Do one iteration (1.2); ``overwrite`` gives leave to destroy the old state."""
        F, G, K, theta = problem.F, problem.G, problem.K, self.theta
        sigma, tau, cancels = state.sigma, state.tau, state.memory_cancels
        v = K.apply(state.x_bar, overwrite=overwrite and theta != 0)
        if not cancels:
            v = plus(v, state.u)
        u = F.residual(v, 1 / sigma, overwrite=True)
        w = subtracted_from(times(K.adjoint(u), sigma * tau), state.x)
        x = G.prox(w, tau, overwrite=not cancels)
        if theta == 0:
            return ChambollePockState(x, x, u, sigma, tau, cancels)
        past = w if cancels else state.x if overwrite else copy(state.x)
        x_bar = plus(times(subtracted_from(past, x), theta), x)
        return ChambollePockState(x, x_bar, u, sigma, tau, cancels)


def _is_one(product: Step) -> bool:
    return all_true(abs(product - 1) <= ROUNDING)
