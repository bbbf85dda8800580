"""Convex functionals F and G: value, prox, and both for the conjugate.

The proximal operator is ``prox_{tF}(v) = argmin_x F(x) + |x - v|^2 / (2 t)``, the conjugate is
``F*(y) = sup_x <x, y> - F(x)``. Moreau's identity ties them together,

    v = prox_{tF}(v) + t prox_{F*/t}(v / t),

and its second term, the *residual* ``v - prox_{tF}(v)``, is what a primal-dual algorithm needs of F. For a
norm it is the projection onto the ball of radius t of the dual norm.

Vectors lie along the last axis, values come one per vector. A step t is a number, one number per vector
(shape ``(..., 1)``), or, where the functional is a sum over coordinates, one per coordinate.

To write a functional, derive from ``Functional`` and override its public methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdrn.convex.backend import (
    Array,
    ArrayHolder,
    Step,
    all_true,
    convert,
    copy,
    detached,
    epsilon,
    is_array,
    is_real,
    is_tensor,
    map_arrays,
    namespace,
    norm,
    numbers,
    owned,
    per_vector,
    positive,
    refuse_overrides,
    require_finite,
    require_fits,
    require_per_vector,
    require_vectors,
    set_field,
    subtracted_from,
)
from pdrn.errors import InputError


def clip(x: Array, lo: Array, hi: Array, out: Array | None = None) -> Array:
    """Project x onto the box [lo, hi] (3.5).

    ``out`` takes the result as in NumPy; tensors ignore it. On a bound itself the gradient of a tensor is 0
    where both bounds are numbers, and 1 where one is a tensor.
    """
    if is_tensor(x):
        if is_array(lo) or is_array(hi):
            return namespace(x).clamp(x, convert(lo, x), convert(hi, x))
        # The same as clamp with a gradient in one pass instead of four, zero on the bounds themselves.
        return namespace(x).nn.functional.hardtanh(x, lo, hi)
    if is_array(lo) or is_array(hi):
        # Two passes that NumPy vectorises: its clip is up to four times slower with array bounds.
        raised = np.maximum(x, lo, out=out)
        return np.minimum(raised, hi, out=raised)
    return x.clip(lo, hi, out=out)


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


class Functional(ArrayHolder, ABC):
    """A proper, convex, lower semicontinuous function of vectors along the last axis.

    A subclass overrides ``value`` and one of ``prox`` and ``residual``. It overrides ``conjugate`` as well if
    solutions are to be certified, and ``project`` or ``project_dual`` if F or F* is infinite somewhere. Its
    arrays are attributes whose leading axes are the batch: the solver takes the rows it works on.

    Examples
    --------
    >>> class WeightedSquares(Functional):
    ...     def __init__(self, weight):
    ...         self.weight = weight
    ...
    ...     def value(self, x):
    ...         return (self.weight * x**2).sum(-1) / 2
    ...
    ...     def prox(self, v, step):
    ...         return v / (1 + step * self.weight)
    >>> WeightedSquares(np.array([1.0, 3.0])).prox_conjugate(np.array([2.0, 2.0]), 1.0)
    array([1. , 1.5])
    """

    __array_ufunc__ = None  # so that array * F is Scaled(F, array), not an array of functionals

    @abstractmethod
    def value(self, x: Array) -> Array:
        """F(x), one number per vector; infinite outside the domain."""

    def conjugate(self, y: Array) -> Array:
        """F*(y), one number per vector; infinite outside the domain."""
        raise InputError(
            f"{type(self).__name__} has no conjugate, which certificates and tolerances need; override "
            "conjugate(y), or solve for a number of iterations"
        )

    def prox(self, v: Array, step: Step) -> Array:
        """``prox_{step F}(v)``."""
        if type(self).residual is Functional.residual:  # which would call this method again
            raise InputError(
                f"{type(self).__name__} has no prox; override prox(v, step) or residual(v, step)"
            )
        return v - self.residual(v, step)

    def residual(self, v: Array, step: Step) -> Array:
        """``v - prox_{step F}(v)``."""
        return v - self.prox(v, step)

    def prox_conjugate(self, y: Array, step: Step) -> Array:
        """``prox_{step F*}(y)``, by Moreau's identity."""
        return step * self.residual(y / step, 1 / step)

    def project(self, x: Array) -> Array:
        """Return the nearest point at which F is finite."""
        return x

    def project_dual(self, y: Array) -> Array:
        """Return the nearest point at which F* is finite."""
        return y

    # Solvers and networks call the following three: arguments are valid and may be overwritten, results are
    # arrays of their own that may be overwritten too.

    def _prox(self, v: Array, step: Step) -> Array:
        return owned(self.prox(v, step), v.shape, v, f"{type(self).__name__}.prox")

    def _residual(self, v: Array, step: Step) -> Array:
        return owned(self.residual(v, step), v.shape, v, f"{type(self).__name__}.residual")

    def _prox_conjugate(self, y: Array, step: Step) -> Array:
        return owned(self.prox_conjugate(y, step), y.shape, y, f"{type(self).__name__}.prox_conjugate")

    def __rmul__(self, scale: Step) -> Scaled:
        return Scaled(self, scale)

    def shifted(self, offset: Array) -> Shifted:
        """Return ``x -> F(x + offset)``."""
        return Shifted(self, offset)


class _BuiltIn(Functional):
    """A functional that computes in place; a public call checks its arguments and copies the vectors."""

    def __init_subclass__(cls) -> None:
        refuse_overrides(cls, ("prox", "residual", "prox_conjugate"), "Functional")

    def prox(self, v: Array, step: Step) -> Array:
        return self._prox(*self._checked(v, step))

    def residual(self, v: Array, step: Step) -> Array:
        return self._residual(*self._checked(v, step))

    def prox_conjugate(self, y: Array, step: Step) -> Array:
        return self._prox_conjugate(*self._checked(y, step))

    def _checked(self, v: Array, step: Step) -> tuple[Array, Step]:
        require_vectors(v)
        map_arrays(self, lambda array: require_fits(array, tuple(v.shape), v, type(self).__name__))
        # A tensor is a learned step: looking into it would break the graph that torch compiles.
        step = step if is_tensor(step) else positive(step, "step")
        return copy(v), step

    def _prox(self, v: Array, step: Step) -> Array:
        return subtracted_from(self._residual(copy(v), step), v)

    def _residual(self, v: Array, step: Step) -> Array:
        return subtracted_from(self._prox(copy(v), step), v)

    def _prox_conjugate(self, y: Array, step: Step) -> Array:
        return step * self._residual(y / step, 1 / step)


@dataclass(frozen=True, eq=False)
class Scaled(_BuiltIn):
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

    def _prox(self, v: Array, step: Step) -> Array:
        return self.functional._prox(v, self.scale * step)

    def _residual(self, v: Array, step: Step) -> Array:
        return self.functional._residual(v, self.scale * step)

    def project(self, x: Array) -> Array:
        return self.functional.project(x)

    def project_dual(self, y: Array) -> Array:
        return self.scale * self.functional.project_dual(y / self.scale)


@dataclass(frozen=True, eq=False)
class Shifted(_BuiltIn):
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

    def _prox(self, v: Array, step: Step) -> Array:
        return self.functional._prox(v + self.offset, step) - self.offset

    def _residual(self, v: Array, step: Step) -> Array:
        return self.functional._residual(v + self.offset, step)

    def project(self, x: Array) -> Array:
        return self.functional.project(x + self.offset) - self.offset

    def project_dual(self, y: Array) -> Array:
        return self.functional.project_dual(y)


@dataclass(frozen=True, eq=False)
class Zero(_BuiltIn):
    """``F(x) = 0``; its conjugate is the indicator of the origin."""

    def value(self, x: Array) -> Array:
        return namespace(x).zeros_like(x[..., 0])

    def conjugate(self, y: Array) -> Array:
        return indicator(abs(y).sum(-1), 0.0, y)

    def _prox(self, v: Array, step: Step) -> Array:
        return v

    def project_dual(self, y: Array) -> Array:
        return namespace(y).zeros_like(y)


@dataclass(frozen=True, eq=False)
class SquaredL2(_BuiltIn):
    """``|x|_2^2 / 2``, its own conjugate."""

    def value(self, x: Array) -> Array:
        return 0.5 * (x * x).sum(-1)

    def conjugate(self, y: Array) -> Array:
        return self.value(y)

    def _prox(self, v: Array, step: Step) -> Array:
        return v / (1 + step)


@dataclass(frozen=True, eq=False)
class L1(_BuiltIn):
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

    def _residual(self, v: Array, step: Step) -> Array:
        bound = self.weight * step
        return clip(v, -bound, bound, out=v)

    def _prox_conjugate(self, y: Array, step: Step) -> Array:
        return clip(y, -self.weight, self.weight, out=y)

    def project_dual(self, y: Array) -> Array:
        return clip(y, -self.weight, self.weight)


@dataclass(frozen=True, eq=False)
class L2(_BuiltIn):
    """``|x|_2``, not squared."""

    def value(self, x: Array) -> Array:
        return norm(x)[..., 0]

    def conjugate(self, y: Array) -> Array:
        return indicator(norm(y)[..., 0], 1.0, y)

    def _residual(self, v: Array, step: Step) -> Array:
        require_per_vector(step, "step")
        return project_l2_ball(v, step)

    def project_dual(self, y: Array) -> Array:
        return project_l2_ball(y, 1.0)


@dataclass(frozen=True, eq=False)
class LInf(_BuiltIn):
    """``max_i |x_i|``."""

    def value(self, x: Array) -> Array:
        return namespace(x).amax(abs(x), -1)

    def conjugate(self, y: Array) -> Array:
        return indicator(abs(y).sum(-1), 1.0, y)

    def _residual(self, v: Array, step: Step) -> Array:
        require_per_vector(step, "step")
        return project_l1_ball(v, step)

    def project_dual(self, y: Array) -> Array:
        return project_l1_ball(y, 1.0)


@dataclass(frozen=True, eq=False)
class GroupL21(_BuiltIn):
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

    def _residual(self, v: Array, step: Step) -> Array:
        require_per_vector(step, "step")
        radius = step[..., None] if is_array(step) and step.ndim else step
        return project_l2_ball(self._groups(v), radius).reshape(v.shape)

    def project_dual(self, y: Array) -> Array:
        return self._residual(copy(y), 1.0)


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
class Ball(_BuiltIn):
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

    def _prox(self, v: Array, step: Step) -> Array:
        return self.project(v)

    def project(self, x: Array) -> Array:
        _, _, projection = _BALLS[self.p]
        return projection(x, self.radius)


@dataclass(frozen=True, eq=False)
class Box(_BuiltIn):
    """Indicator of ``lo <= x <= hi``, bound by bound; either may be infinite.

    A quantized sample gives a bounded interval, a clipped one a half-open interval, a missing one the line.
    """

    lo: Array
    hi: Array

    def __post_init__(self) -> None:
        set_field(self, "lo", numbers(self.lo, "lo"))
        set_field(self, "hi", numbers(self.hi, "hi"))
        if not all_true(self.lo <= self.hi):
            raise InputError("a box needs lo <= hi everywhere, and no NaN among its bounds")
        if not (all_true(self.lo < math.inf) and all_true(self.hi > -math.inf)):
            raise InputError("a box needs lo < inf and hi > -inf everywhere")

    @property
    def centre(self) -> Array:
        """The middle of bounded intervals, the finite bound of half-open ones, 0 for unbounded ones."""
        xp = namespace(self.lo)
        has_lower, has_upper = xp.isfinite(self.lo), xp.isfinite(self.hi)
        a = xp.where(has_lower, self.lo, xp.where(has_upper, self.hi, 0.0))
        b = xp.where(has_upper, self.hi, a)
        return xp.clip(a / 2 + b / 2, a, b)

    @property
    def radius(self) -> Array:
        """Half the width, infinite where a bound is."""
        return (self.hi - self.lo) / 2

    def value(self, x: Array) -> Array:
        xp = namespace(x)
        outside = xp.clip(self.lo - x, 0, None) + xp.clip(x - self.hi, 0, None)
        excess = xp.clip(outside - INSIDE_ULPS * epsilon(x) * abs(x), 0, None)
        return indicator(excess.sum(-1), 0.0, x)

    def conjugate(self, y: Array) -> Array:
        """Return the support function ``sum_i max(lower_i y_i, upper_i y_i)``, with ``0 * inf = 0``."""
        xp = namespace(y)
        lo, hi = convert(self.lo, y), convert(self.hi, y)
        return (y * xp.where(y > 0, hi, xp.where(y < 0, lo, xp.zeros_like(y)))).sum(-1)

    def _prox(self, v: Array, step: Step) -> Array:
        return clip(v, self.lo, self.hi, out=v)

    def project(self, x: Array) -> Array:
        return clip(x, self.lo, self.hi)

    def project_dual(self, y: Array) -> Array:
        xp = namespace(y)
        floor = xp.where(convert(self.lo, y) == -math.inf, 0.0, -math.inf)
        ceiling = xp.where(convert(self.hi, y) == math.inf, 0.0, math.inf)
        return clip(y, floor, ceiling)

    def within(self, radius: Array) -> Box:
        """Return this box with its infinite bounds moved to ``|x_i| <= radius``, shape ``(..., 1)``."""
        xp = namespace(radius)
        lo, hi = convert(self.lo, radius), convert(self.hi, radius)
        return Box(
            xp.where(lo == -math.inf, xp.minimum(-radius, hi), lo),
            xp.where(hi == math.inf, xp.maximum(radius, lo), hi),
        )
