"""Indicator functionals: 0 on a convex set, infinite outside; their prox is the projection onto it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pdrn.convex.arrays import (
    Array,
    Step,
    all_true,
    convert,
    epsilon,
    namespace,
    norm,
    numbers,
    per_vector,
    positive,
    require_per_vector,
    set_field,
)
from pdrn.convex.functionals import INSIDE_ULPS, Functional, indicator
from pdrn.convex.projections import clip, project_l1_ball, project_l2_ball


def _l1(x: Array) -> Array:
    return abs(x).sum(-1)


def _l2(x: Array) -> Array:
    return norm(x)[..., 0]


def _linf(x: Array) -> Array:
    return namespace(x).amax(abs(x), -1)


def _project_linf_ball(x: Array, radius: Step) -> Array:
    return clip(x, -radius, radius)


_Measure = Callable[[Array], Array]
_BALLS: dict[float, tuple[_Measure, _Measure, Callable[[Array, Step], Array]]] = {
    1: (_l1, _linf, project_l1_ball),
    2: (_l2, _l2, project_l2_ball),
    math.inf: (_linf, _l1, _project_linf_ball),
}
"""Order of the norm -> the norm, its dual norm, the projection onto its ball."""


@dataclass(frozen=True, eq=False)
class Ball(Functional):
    """Indicator of ``|x|_p <= radius`` for p = 1, 2 or infinity; one radius, or one per vector ``(..., 1)``.

    ``Ball(inf, Delta / 2)`` is the constraint of (3.2).
    """

    p: float
    radius: Step = 1.0

    def __post_init__(self) -> None:
        if self.p not in _BALLS:
            raise ValueError(f"there are balls for p = 1, 2 and infinity, not for p = {self.p}")
        set_field(self, "radius", positive(self.radius, "radius"))
        require_per_vector(self.radius, "radius")

    def value(self, x: Array) -> Array:
        measure, _, _ = _BALLS[self.p]
        return indicator(measure(x), per_vector(self.radius), x)

    def conjugate(self, y: Array) -> Array:
        _, dual_measure, _ = _BALLS[self.p]
        return per_vector(self.radius) * dual_measure(y)

    def _prox(self, v: Array, step: Step, overwrite: bool) -> Array:
        return self.project(v)

    def project(self, x: Array) -> Array:
        _, _, projection = _BALLS[self.p]
        return projection(x, self.radius)


@dataclass(frozen=True, eq=False)
class Box(Functional):
    """Indicator of ``lower <= x <= upper``, bound by bound; either may be infinite.

    A quantized sample gives a bounded interval, a clipped one a half-open interval, a missing one the line.
    """

    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        set_field(self, "lower", numbers(self.lower, "lower"))
        set_field(self, "upper", numbers(self.upper, "upper"))
        if not all_true(self.lower <= self.upper):
            raise ValueError("a box needs lower <= upper everywhere, and no NaN among its bounds")
        if not (all_true(self.lower < math.inf) and all_true(self.upper > -math.inf)):
            raise ValueError("a box needs lower bounds below +inf and upper bounds above -inf")

    @property
    def centre(self) -> Array:
        """The middle of bounded intervals, the finite bound of half-open ones, 0 for unbounded ones."""
        xp = namespace(self.lower)
        has_lower, has_upper = xp.isfinite(self.lower), xp.isfinite(self.upper)
        a = xp.where(has_lower, self.lower, xp.where(has_upper, self.upper, 0.0))
        b = xp.where(has_upper, self.upper, a)
        return xp.clip(a + (b - a) / 2, a, b)

    @property
    def radius(self) -> Array:
        """Half the width, infinite where a bound is."""
        return (self.upper - self.lower) / 2

    def value(self, x: Array) -> Array:
        xp = namespace(x)
        outside = xp.clip(self.lower - x, 0, None) + xp.clip(x - self.upper, 0, None)
        excess = xp.clip(outside - INSIDE_ULPS * epsilon(x) * abs(x), 0, None)
        return indicator(excess.sum(-1), 0.0, x)

    def conjugate(self, y: Array) -> Array:
        """Return the support function ``sum_i max(lower_i y_i, upper_i y_i)``, with ``0 * inf = 0``."""
        xp = namespace(y)
        lower, upper = convert(self.lower, y), convert(self.upper, y)
        return (y * xp.where(y > 0, upper, xp.where(y < 0, lower, xp.zeros_like(y)))).sum(-1)

    def _prox(self, v: Array, step: Step, overwrite: bool) -> Array:
        return clip(v, self.lower, self.upper, overwrite=overwrite)

    def project(self, x: Array) -> Array:
        return clip(x, self.lower, self.upper)

    def project_dual(self, y: Array) -> Array:
        xp = namespace(y)
        floor = xp.where(convert(self.lower, y) == -math.inf, 0.0, -math.inf)
        ceiling = xp.where(convert(self.upper, y) == math.inf, 0.0, math.inf)
        return clip(y, floor, ceiling)

    def within(self, radius: Array) -> Box:
        """Return this box with its infinite bounds moved to ``|x_i| <= radius``, shape ``(..., 1)``."""
        xp = namespace(radius)
        lower, upper = convert(self.lower, radius), convert(self.upper, radius)
        return Box(
            xp.where(lower == -math.inf, xp.minimum(-radius, upper), lower),
            xp.where(upper == math.inf, xp.maximum(radius, lower), upper),
        )
