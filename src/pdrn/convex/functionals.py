"""Convex functionals F and G: value, prox, and both of the conjugate.

The proximal operator is ``prox_{tF}(v) = argmin_x F(x) + |x - v|^2 / (2 t)``, the conjugate is
``F*(y) = sup_x <x, y> - F(x)``. Moreau's identity (1965) ties them together,

    v = prox_{tF}(v) + t prox_{F*/t}(v / t),

and its second term, the *residual* ``v - prox_{tF}(v)``, is what a primal-dual algorithm needs of F. For a
norm it is the projection onto the ball of radius t of the dual norm.

Vectors lie along the last axis, values come one per vector. A step t is a number, one number per vector
(shape ``(..., 1)``), or, where the functional is a sum over coordinates, one per coordinate. To write a
functional, derive from ``Functional`` and override its public methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pdrn.convex.backend import (
    AnyArray,
    Array,
    ArrayHolder,
    Step,
    all_true,
    convert,
    copy,
    detach,
    epsilon,
    is_array,
    is_real,
    is_tensor,
    map_arrays,
    namespace,
    norm,
    numbers,
    owned,
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

INSIDE_ULPS = 64
"""A point this many units of rounding outside a set counts as inside it."""


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
            raise InputError(f"{type(self).__name__} has no prox; override prox or residual")
        return v - self.residual(v, step)

    def residual(self, v: Array, step: Step) -> Array:
        """``v - prox_{step F}(v)``."""
        return v - self.prox(v, step)

    def prox_conjugate(self, y: Array, step: Step) -> Array:
        """``prox_{step F*}(y)``, by Moreau's identity."""
        return step * self.residual(y / step, 1 / step)

    def project(self, x: Array) -> AnyArray:
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

    def require_fits(self, shape: tuple[int, ...], like: Array, name: str) -> None:
        """Raise InputError unless the arrays of this functional fit vectors of this shape and type."""
        map_arrays(self, lambda array: require_fits(array, shape, like, name))

    # The hooks that solvers and networks call. Arguments are valid and may be overwritten; so may results.

    def _prox(self, v: Array, step: Step) -> Array:
        return owned(self.prox(v, step), v.shape, v, f"{type(self).__name__}.prox")

    def _residual(self, v: Array, step: Step) -> Array:
        return owned(self.residual(v, step), v.shape, v, f"{type(self).__name__}.residual")

    def _prox_conjugate(self, y: Array, step: Step) -> Array:
        return owned(self.prox_conjugate(y, step), y.shape, y, f"{type(self).__name__}.prox_conjugate")


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
        require_vectors(v, "the argument")
        self.require_fits(tuple(v.shape), v, type(self).__name__)
        # A tensor is a learned step: looking into it would break the graph that torch compiles.
        return copy(v), step if is_tensor(step) else positive(step, "step")

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

    def require_fits(self, shape: tuple[int, ...], like: Array, name: str) -> None:
        self.functional.require_fits(shape, like, name)
        if is_array(self.scale):
            require_fits(self.scale, shape, like, name)

    def value(self, x: Array) -> Array:
        return _per_value(self.scale) * self.functional.value(x)

    def conjugate(self, y: Array) -> Array:
        return _per_value(self.scale) * self.functional.conjugate(y / self.scale)

    def project(self, x: Array) -> AnyArray:
        return self.functional.project(x)

    def project_dual(self, y: Array) -> Array:
        return self.scale * self.functional.project_dual(y / self.scale)

    def _prox(self, v: Array, step: Step) -> Array:
        return self.functional._prox(v, self.scale * step)

    def _residual(self, v: Array, step: Step) -> Array:
        return self.functional._residual(v, self.scale * step)


@dataclass(frozen=True, eq=False)
class Shifted(_BuiltIn):
    """``F(x + b)``."""

    functional: Functional
    offset: Array

    def __post_init__(self) -> None:
        if not is_real(self.offset):
            raise InputError("the offset must be an array of float32 or float64")
        require_finite(self.offset, "offset")

    def require_fits(self, shape: tuple[int, ...], like: Array, name: str) -> None:
        self.functional.require_fits(shape, like, name)
        require_fits(self.offset, shape, like, name)

    def value(self, x: Array) -> Array:
        return self.functional.value(x + self.offset)

    def conjugate(self, y: Array) -> Array:
        return self.functional.conjugate(y) - (self.offset * y).sum(-1)

    def project(self, x: Array) -> AnyArray:
        return self.functional.project(x + self.offset) - self.offset

    def project_dual(self, y: Array) -> Array:
        return self.functional.project_dual(y)

    def _prox(self, v: Array, step: Step) -> Array:
        return self.functional._prox(v + self.offset, step) - self.offset

    def _residual(self, v: Array, step: Step) -> Array:
        return self.functional._residual(v + self.offset, step)


@dataclass(frozen=True, eq=False)
class Zero(_BuiltIn):
    """``F(x) = 0``; its conjugate is the indicator of the origin."""

    def value(self, x: Array) -> Array:
        return namespace(x).zeros_like(x[..., 0])

    def conjugate(self, y: Array) -> Array:
        return indicator(p_norm(y, 1), 0.0, y)

    def project_dual(self, y: Array) -> Array:
        return namespace(y).zeros_like(y)

    def _prox(self, v: Array, step: Step) -> Array:
        return v


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

    Its prox is soft thresholding. Its residual is a clip: the hard tanh of a primal-dual network.
    """

    weight: Step = 1.0

    def __post_init__(self) -> None:
        weight = numbers(self.weight, "weight")
        if not (all_true(weight >= 0) and all_true(weight < math.inf)):
            raise InputError("the weights of the l1 norm must be finite and not negative")
        set_field(self, "weight", weight)

    def value(self, x: Array) -> Array:
        return (self.weight * namespace(x).abs(x)).sum(-1)

    def conjugate(self, y: Array) -> Array:
        xp = namespace(y)
        excess = xp.clip(xp.abs(y) - self.weight * (1 + INSIDE_ULPS * epsilon(y)), 0, None)
        return indicator(excess.sum(-1), 0.0, y)

    def project_dual(self, y: Array) -> Array:
        return clip(y, -self.weight, self.weight)

    def _residual(self, v: Array, step: Step) -> Array:
        bound = self.weight * step
        return clip(v, -bound, bound, out=v)

    def _prox_conjugate(self, y: Array, step: Step) -> Array:
        return clip(y, -self.weight, self.weight, out=y)


class _Norm(_BuiltIn):
    """``|x|_p``, whose conjugate is the indicator of the unit ball of the dual norm."""

    p: ClassVar[float]

    def value(self, x: Array) -> Array:
        return p_norm(x, self.p)

    def conjugate(self, y: Array) -> Array:
        return indicator(p_norm(y, DUAL_ORDER[self.p]), 1.0, y)

    def project_dual(self, y: Array) -> Array:
        return project_ball(y, DUAL_ORDER[self.p], 1.0)

    def _residual(self, v: Array, step: Step) -> Array:
        require_per_vector(step, "step")
        return project_ball(v, DUAL_ORDER[self.p], step)


@dataclass(frozen=True, eq=False)
class L2(_Norm):
    """``|x|_2``, not squared."""

    p = 2


@dataclass(frozen=True, eq=False)
class LInf(_Norm):
    """``max_i |x_i|``."""

    p = math.inf


@dataclass(frozen=True, eq=False)
class GroupL21(_BuiltIn):
    """``sum_g w_g |x_g|_2`` over groups of ``size`` consecutive coordinates, w > 0 a number or one per group.

    With the cosine and the sine of one frequency as a group it measures magnitudes, whatever the phases.
    """

    size: int
    weight: Step = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a group needs at least one coordinate, got size {self.size}")
        set_field(self, "weight", positive(self.weight, "weight"))

    def value(self, x: Array) -> Array:
        return (self.weight * p_norm(self._groups(x), 2)).sum(-1)

    def conjugate(self, y: Array) -> Array:
        largest = namespace(y).amax(p_norm(self._groups(y), 2) / self.weight, -1)
        return indicator(largest, 1.0, y)

    def project_dual(self, y: Array) -> Array:
        return self._residual(y, 1.0)

    def _residual(self, v: Array, step: Step) -> Array:
        require_per_vector(step, "step")
        radius = self.weight * step
        if is_array(radius) and radius.ndim:
            radius = radius[..., None]
        return project_ball(self._groups(v), 2, radius).reshape(v.shape)

    def _prox_conjugate(self, y: Array, step: Step) -> Array:
        return self._residual(y, 1.0)

    def require_fits(self, shape: tuple[int, ...], like: Array, name: str) -> None:
        if is_array(self.weight):
            require_fits(self.weight, (*shape[:-1], shape[-1] // self.size), like, name)

    def _groups(self, x: Array) -> Array:
        if x.shape[-1] % self.size:
            raise InputError(f"{x.shape[-1]} coordinates do not divide into groups of {self.size}")
        return x.reshape(*x.shape[:-1], x.shape[-1] // self.size, self.size)


@dataclass(frozen=True, eq=False)
class Ball(_BuiltIn):
    """Indicator of ``|x|_p <= radius`` for p = 1, 2 or infinity; one radius, or one per vector ``(..., 1)``.

    ``Ball(inf, Delta / 2)`` is the constraint of (3.2).
    """

    p: float
    radius: Step = 1.0

    def __post_init__(self) -> None:
        if self.p not in DUAL_ORDER:
            raise InputError(f"the order of a ball must be 1, 2 or infinity, got p = {self.p}")
        set_field(self, "radius", positive(self.radius, "radius"))
        require_per_vector(self.radius, "radius")

    def value(self, x: Array) -> Array:
        return indicator(p_norm(x, self.p), _per_value(self.radius), x)

    def conjugate(self, y: Array) -> Array:
        return _per_value(self.radius) * p_norm(y, DUAL_ORDER[self.p])

    def project(self, x: Array) -> AnyArray:
        return project_ball(x, self.p, self.radius)

    def _prox(self, v: Array, step: Step) -> Array:
        return project_ball(v, self.p, self.radius)


@dataclass(frozen=True, eq=False)
class Box(_BuiltIn):
    """Indicator of ``lo <= x <= hi``, coordinate by coordinate; either bound may be infinite.

    A quantized sample gives a bounded cell, a clipped one a half-open cell, a missing one an unbounded cell.
    The prox is the clip (3.5) to the cells.
    """

    lo: AnyArray
    hi: AnyArray

    def __post_init__(self) -> None:
        lo, hi = numbers(self.lo, "lo"), numbers(self.hi, "hi")
        if not all_true(lo <= hi):
            raise InputError("a box needs lo <= hi everywhere, and no NaN among its bounds")
        if not (all_true(lo < math.inf) and all_true(hi > -math.inf)):
            raise InputError("a box needs lo < inf and hi > -inf everywhere")
        set_field(self, "lo", lo)
        set_field(self, "hi", hi)

    @property
    def centre(self) -> AnyArray:
        """The middle of bounded cells, the finite bound of half-open ones, 0 for unbounded ones."""
        xp = namespace(self.lo)
        a = xp.where(xp.isfinite(self.lo), self.lo, xp.where(xp.isfinite(self.hi), self.hi, 0.0))
        b = xp.where(xp.isfinite(self.hi), self.hi, a)
        return xp.clip(a / 2 + b / 2, a, b)

    @property
    def radius(self) -> AnyArray:
        """Half the width, infinite where a bound is."""
        return (self.hi - self.lo) / 2

    def value(self, x: Array) -> Array:
        xp = namespace(x)
        outside = xp.clip(self.lo - x, 0, None) + xp.clip(x - self.hi, 0, None)
        excess = xp.clip(outside - INSIDE_ULPS * epsilon(x) * xp.abs(x), 0, None)
        return indicator(excess.sum(-1), 0.0, x)

    def conjugate(self, y: Array) -> Array:
        """Return the support function ``sum_i max(lo_i y_i, hi_i y_i)``, with ``0 * inf = 0``."""
        xp = namespace(y)
        lo, hi = convert(self.lo, y), convert(self.hi, y)
        return (y * xp.where(y > 0, hi, xp.where(y < 0, lo, xp.zeros_like(y)))).sum(-1)

    def project(self, x: Array) -> AnyArray:
        return clip(x, self.lo, self.hi)

    def project_dual(self, y: Array) -> Array:
        xp = namespace(y)
        floor = xp.where(convert(self.lo, y) == -math.inf, 0.0, -math.inf)
        ceiling = xp.where(convert(self.hi, y) == math.inf, 0.0, math.inf)
        return clip(y, floor, ceiling)

    def _prox(self, v: Array, step: Step) -> Array:
        return clip(v, self.lo, self.hi, out=v)

    def within(self, radius: Array) -> Box:
        """Return this box with its infinite bounds moved to ``|x_i| <= radius``, shape ``(..., 1)``."""
        xp = namespace(radius)
        lo, hi = convert(self.lo, radius), convert(self.hi, radius)
        return Box(
            xp.where(lo == -math.inf, xp.minimum(-radius, hi), lo),
            xp.where(hi == math.inf, xp.maximum(radius, lo), hi),
        )


DUAL_ORDER: dict[float, float] = {1: math.inf, 2: 2, math.inf: 1}
"""The order of the dual norm, for each order that norms and balls may have."""


def p_norm(x: Array, p: float) -> Array:
    """Return ``|x|_p`` of each vector, for p = 1, 2 or infinity."""
    if p == 2:
        return norm(x)[..., 0]
    magnitudes = namespace(x).abs(x)
    return magnitudes.sum(-1) if p == 1 else namespace(x).amax(magnitudes, -1)


def project_ball(x: Array, p: float, radius: Step) -> Array:
    """Project each vector onto the ``|x|_p`` ball of that radius, for p = 1, 2 or infinity.

    For p = 1 that is soft thresholding (Duchi et al. 2008). The threshold is the largest of
    ``(|x|_(1) + ... + |x|_(k) - radius) / k`` over k, with the magnitudes in descending order, and zero where
    the vector is inside already.
    """
    xp = namespace(x)
    if p == math.inf:
        return clip(x, -radius, radius)
    if p == 2:
        return x * (radius / xp.maximum(norm(x), convert(radius, x) if is_tensor(x) else radius))
    magnitudes: Array = xp.sort(xp.abs(x), -1)[0] if is_tensor(x) else np.sort(xp.abs(x))
    counts = convert(np.arange(1, x.shape[-1] + 1), x)
    thresholds = (xp.cumsum(xp.flip(magnitudes, (-1,)), -1) - radius) / counts
    threshold = xp.clip(xp.amax(thresholds, -1)[..., None], 0, None)
    projected = x - clip(x, -threshold, threshold)
    # Rounding may leave it slightly outside, long vectors more than short ones.
    size, most = detach(p_norm(projected, 1)[..., None]), detach(convert(radius, x))
    return projected * xp.where(size > most, most / xp.where(size > most, size, xp.ones_like(size)), 1)


def clip(x: Array, lo: AnyArray, hi: AnyArray, out: AnyArray = None) -> Array:
    """Project x onto the box [lo, hi] (3.5).

    ``out`` takes the result as in NumPy; tensors ignore it. On a bound itself the gradient of a tensor is 0
    where both bounds are numbers, and 1 where one is a tensor.
    """
    clipped: Array
    if is_array(lo) or is_array(hi):
        if is_tensor(x):
            return x.clamp(convert(lo, x), convert(hi, x))
        # Two passes that NumPy vectorises: its clip is up to four times slower with array bounds.
        raised = np.maximum(x, lo, out=out)
        clipped = np.minimum(raised, hi, out=raised)
    elif is_tensor(x):
        # The same as clamp with a gradient in one pass instead of four, zero on the bounds themselves.
        clipped = namespace(x).nn.functional.hardtanh(x, lo, hi)
    else:
        clipped = x.clip(lo, hi, out=out)
    return clipped


def indicator(measure: Array, bound: Step, like: Array) -> Array:
    """Return 0 where ``measure <= bound`` up to rounding in the type of ``like``, infinity elsewhere."""
    xp = namespace(measure)
    inside = measure <= bound * (1 + INSIDE_ULPS * epsilon(like))
    return xp.where(inside, xp.zeros_like(measure), xp.full_like(measure, math.inf))


def _per_value(step: Step) -> Step:
    """Turn a step of shape ``(..., 1)`` into one of the shape that values have."""
    return step[..., 0] if is_array(step) and step.ndim else step
