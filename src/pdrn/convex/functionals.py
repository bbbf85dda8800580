"""Convex functionals F and G: value, prox, and both for the conjugate.

The proximal operator is ``prox_{tF}(v) = argmin_x F(x) + |x - v|^2 / (2 t)``, the conjugate is
``F*(y) = sup_x <x, y> - F(x)``. Moreau's identity ties them together,

    v = prox_{tF}(v) + t prox_{F*/t}(v / t),

and its second term, the *residual* ``v - prox_{tF}(v)``, is what a primal-dual algorithm needs of F. For a
norm it is the projection onto the ball of radius t of the dual norm.

Vectors lie along the last axis, values come one per vector. A step t is a number, one number per vector
(shape ``(..., 1)``), or, where the functional is a sum over coordinates, one per coordinate.

``overwrite=True`` gives leave to destroy the argument, which saves memory traffic; without it the result of a
prox never shares memory with the argument.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdrn.convex.backend import (
    Array,
    Step,
    all_true,
    convert,
    copy,
    detached,
    epsilon,
    is_array,
    is_real,
    is_tensor,
    namespace,
    norm,
    numbers,
    per_vector,
    positive,
    require_finite,
    require_per_vector,
    set_field,
)
from pdrn.errors import InputError


def clip(x: Array, lower: Array, upper: Array, *, overwrite: bool = False) -> Array:
    """Project x onto the box [lower, upper].

    ``overwrite`` allows a NumPy array's memory to be reused for the result; tensors are never overwritten.
    On a bound itself, the gradient of a tensor is 0 where bounds are numbers and 1 where they are tensors.
    """
    if is_tensor(x):
        if is_array(lower) or is_array(upper):
            return namespace(x).clamp(x, convert(lower, x), convert(upper, x))
        # The same as clamp with a gradient in one pass instead of four, zero on the bounds themselves.
        return namespace(x).nn.functional.hardtanh(x, lower, upper)
    out: Any = x if overwrite else None
    if is_array(lower) or is_array(upper):
        # Two passes that NumPy vectorises: its clip is up to four times slower with array bounds.
        raised = np.maximum(x, lower, out=out)
        return np.minimum(raised, upper, out=raised)
    return x.clip(lower, upper, out=out)


def project_l2_ball(x: Array, radius: Step) -> Array:
    """Project each vector onto the Euclidean ball of that radius."""
    length = norm(x)
    if is_tensor(x):
        return x * (radius / namespace(x).maximum(length, convert(radius, x)))
    return x * (radius / np.maximum(length, radius))


def project_l1_ball(x: Array, radius: Step) -> Array:
    """Project each vector onto the l1 ball of that radius: soft thresholding at the right level.

    The level is the largest of ``(|x|_(1) + ... + |x|_(k) - radius) / k`` over k, with the magnitudes in
    descending order, and zero where the vector is inside already.
    """
    xp = namespace(x)
    magnitudes = abs(x)
    descending = xp.flip(xp.sort(magnitudes, axis=-1)[0] if is_tensor(x) else np.sort(magnitudes), (-1,))
    counts = convert(np.arange(1, x.shape[-1] + 1), x)
    levels = (xp.cumsum(descending, -1) - radius) / counts
    level = xp.clip(xp.amax(levels, -1)[..., None], 0, None)
    projected = x - clip(x, -level, level)
    # By rounding it may be outside still, the more the longer it is.
    size, most = detached(abs(projected).sum(-1)[..., None]), detached(convert(radius, x))
    return projected * xp.where(size > most, most / xp.where(size > most, size, xp.ones_like(size)), 1)


INSIDE_ULPS = 64
"""How many units of rounding a point may lie outside a set and still count as inside it."""


def indicator(measure: Array, bound: Array, like: Array) -> Array:
    """Return 0 where ``measure <= bound`` up to rounding in the type of ``like``, infinity elsewhere."""
    xp = namespace(measure)
    inside = measure <= bound * (1 + INSIDE_ULPS * epsilon(like))
    return xp.where(inside, xp.zeros_like(measure), xp.full_like(measure, float("inf")))


def _checked(step: Step) -> Step:
    # A tensor is a learned step: looking into it would break the graph that torch compiles.
    return step if is_tensor(step) else positive(step, "step")


@dataclass(frozen=True, eq=False)
class Functional(ABC):
    """A proper, convex, lower semicontinuous function of vectors along the last axis.

    A subclass gives ``value``, ``conjugate``, one of ``_prox`` and ``_residual``, and the projections onto
    the domains of F and F* where these are not the whole space.
    """

    __array_ufunc__ = None  # so that array * F is Scaled(F, array), not an array of functionals

    @abstractmethod
    def value(self, x: Array) -> Array:
        """F(x), one number per vector; infinite outside the domain."""

    @abstractmethod
    def conjugate(self, y: Array) -> Array:
        """F*(y), one number per vector; infinite outside the domain."""

    def prox(self, v: Array, step: Step, *, overwrite: bool = False) -> Array:
        """``prox_{step F}(v)``."""
        return self._prox(v, _checked(step), overwrite)

    def residual(self, v: Array, step: Step, *, overwrite: bool = False) -> Array:
        """``v - prox_{step F}(v)``."""
        return self._residual(v, _checked(step), overwrite)

    def prox_conjugate(self, y: Array, step: Step, *, overwrite: bool = False) -> Array:
        """``prox_{step F*}(y)``."""
        return self._prox_conjugate(y, _checked(step), overwrite)

    def _prox(self, v: Array, step: Step, overwrite: bool) -> Array:
        return v - self._residual(v, step, False)

    def _residual(self, v: Array, step: Step, overwrite: bool) -> Array:
        return v - self._prox(v, step, False)

    def _prox_conjugate(self, y: Array, step: Step, overwrite: bool) -> Array:
        return step * self._residual(y / step, 1 / step, True)

    def project(self, x: Array) -> Array:
        """Return the nearest point at which F is finite."""
        return x

    def project_dual(self, y: Array) -> Array:
        """Return the nearest point at which F* is finite."""
        return y

    def __rmul__(self, scale: Step) -> Scaled:
        return Scaled(self, scale)

    def shifted(self, offset: Array) -> Shifted:
        """Return ``x -> F(x + offset)``."""
        return Shifted(self, offset)


@dataclass(frozen=True, eq=False)
class Scaled(Functional):
    """``a F(x)`` with a > 0, a number or one per vector (shape ``(..., 1)``)."""

    functional: Functional
    scale: Step

    def __post_init__(self) -> None:
        set_field(self, "scale", positive(self.scale, "scale"))
        require_per_vector(self.scale, "scale")

    def value(self, x: Array) -> Array:
        return per_vector(self.scale) * self.functional.value(x)

    def conjugate(self, y: Array) -> Array:
        return per_vector(self.scale) * self.functional.conjugate(y / self.scale)

    def _prox(self, v: Array, step: Step, overwrite: bool) -> Array:
        return self.functional._prox(v, self.scale * step, overwrite)

    def _residual(self, v: Array, step: Step, overwrite: bool) -> Array:
        return self.functional._residual(v, self.scale * step, overwrite)

    def project(self, x: Array) -> Array:
        return self.functional.project(x)

    def project_dual(self, y: Array) -> Array:
        return self.scale * self.functional.project_dual(y / self.scale)


@dataclass(frozen=True, eq=False)
class Shifted(Functional):
    """``F(x + b)``."""

    functional: Functional
    offset: Array

    def __post_init__(self) -> None:
        if not is_real(self.offset):
            raise InputError("the offset must be an array of float32 or float64")
        require_finite(self.offset, "offset")

    def value(self, x: Array) -> Array:
        return self.functional.value(x + self.offset)

    def conjugate(self, y: Array) -> Array:
        return self.functional.conjugate(y) - (self.offset * y).sum(-1)

    def _prox(self, v: Array, step: Step, overwrite: bool) -> Array:
        return self.functional._prox(v + self.offset, step, True) - self.offset

    def _residual(self, v: Array, step: Step, overwrite: bool) -> Array:
        return self.functional._residual(v + self.offset, step, True)

    def project(self, x: Array) -> Array:
        return self.functional.project(x + self.offset) - self.offset

    def project_dual(self, y: Array) -> Array:
        return self.functional.project_dual(y)


@dataclass(frozen=True, eq=False)
class Zero(Functional):
    """``F(x) = 0``; its conjugate is the indicator of the origin."""

    def value(self, x: Array) -> Array:
        return namespace(x).zeros_like(x[..., 0])

    def conjugate(self, y: Array) -> Array:
        return indicator(abs(y).sum(-1), 0.0, y)

    def _prox(self, v: Array, step: Step, overwrite: bool) -> Array:
        return v if overwrite else copy(v)

    def project_dual(self, y: Array) -> Array:
        return namespace(y).zeros_like(y)


@dataclass(frozen=True, eq=False)
class SquaredL2(Functional):
    """``|x|_2^2 / 2``, its own conjugate."""

    def value(self, x: Array) -> Array:
        return 0.5 * (x * x).sum(-1)

    def conjugate(self, y: Array) -> Array:
        return self.value(y)

    def _prox(self, v: Array, step: Step, overwrite: bool) -> Array:
        return v / (1 + step)


@dataclass(frozen=True, eq=False)
class L1(Functional):
    """``sum_i w_i |x_i|`` with weights w >= 0, a number or one per coordinate.

    Its residual is a clip: the hard tanh of a primal-dual network.
    """

    weight: Array = 1.0

    def __post_init__(self) -> None:
        set_field(self, "weight", numbers(self.weight, "weight"))
        if not (all_true(self.weight >= 0) and all_true(self.weight < float("inf"))):
            raise InputError("the weights of the l1 norm must be finite and not negative")

    def value(self, x: Array) -> Array:
        return (self.weight * abs(x)).sum(-1)

    def conjugate(self, y: Array) -> Array:
        excess = namespace(y).clip(abs(y) - self.weight * (1 + INSIDE_ULPS * epsilon(y)), 0, None)
        return indicator(excess.sum(-1), 0.0, y)

    def _residual(self, v: Array, step: Step, overwrite: bool) -> Array:
        bound = self.weight * step
        return clip(v, -bound, bound, overwrite=overwrite)

    def _prox_conjugate(self, y: Array, step: Step, overwrite: bool) -> Array:
        return clip(y, -self.weight, self.weight, overwrite=overwrite)

    def project_dual(self, y: Array) -> Array:
        return clip(y, -self.weight, self.weight)


@dataclass(frozen=True, eq=False)
class L2(Functional):
    """``|x|_2``, not squared."""

    def value(self, x: Array) -> Array:
        return norm(x)[..., 0]

    def conjugate(self, y: Array) -> Array:
        return indicator(norm(y)[..., 0], 1.0, y)

    def _residual(self, v: Array, step: Step, overwrite: bool) -> Array:
        require_per_vector(step, "step")
        return project_l2_ball(v, step)

    def project_dual(self, y: Array) -> Array:
        return project_l2_ball(y, 1.0)


@dataclass(frozen=True, eq=False)
class LInf(Functional):
    """``max_i |x_i|``."""

    def value(self, x: Array) -> Array:
        return namespace(x).amax(abs(x), -1)

    def conjugate(self, y: Array) -> Array:
        return indicator(abs(y).sum(-1), 1.0, y)

    def _residual(self, v: Array, step: Step, overwrite: bool) -> Array:
        require_per_vector(step, "step")
        return project_l1_ball(v, step)

    def project_dual(self, y: Array) -> Array:
        return project_l1_ball(y, 1.0)


@dataclass(frozen=True, eq=False)
class GroupL21(Functional):
    """``sum_g |x_g|_2`` over groups of ``size`` consecutive coordinates.

    With the cosine and the sine of one frequency as a group it measures magnitudes and is blind to phase.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a group needs at least one coordinate, got size {self.size}")

    def _groups(self, x: Array) -> Array:
        count, rest = divmod(x.shape[-1], self.size)
        if rest:
            raise InputError(f"{x.shape[-1]} coordinates do not divide into groups of {self.size}")
        return x.reshape(*x.shape[:-1], count, self.size)

    def value(self, x: Array) -> Array:
        return norm(self._groups(x))[..., 0].sum(-1)

    def conjugate(self, y: Array) -> Array:
        return indicator(namespace(y).amax(norm(self._groups(y))[..., 0], -1), 1.0, y)

    def _residual(self, v: Array, step: Step, overwrite: bool) -> Array:
        require_per_vector(step, "step")
        radius = step[..., None] if is_array(step) and step.ndim else step
        return project_l2_ball(self._groups(v), radius).reshape(v.shape)

    def project_dual(self, y: Array) -> Array:
        return self._residual(y, 1.0, False)


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
            raise InputError(f"there are balls for p = 1, 2 and infinity, not for p = {self.p}")
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
            raise InputError("a box needs lower <= upper everywhere, and no NaN among its bounds")
        if not (all_true(self.lower < math.inf) and all_true(self.upper > -math.inf)):
            raise InputError("a box needs lower bounds below +inf and upper bounds above -inf")

    @property
    def centre(self) -> Array:
        """The middle of bounded intervals, the finite bound of half-open ones, 0 for unbounded ones."""
        xp = namespace(self.lower)
        has_lower, has_upper = xp.isfinite(self.lower), xp.isfinite(self.upper)
        a = xp.where(has_lower, self.lower, xp.where(has_upper, self.upper, 0.0))
        b = xp.where(has_upper, self.upper, a)
        return xp.clip(a / 2 + b / 2, a, b)

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
