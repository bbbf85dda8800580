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

from abc import ABC, abstractmethod
from dataclasses import dataclass

from pdrn.convex.arrays import (
    Array,
    Step,
    copy,
    epsilon,
    is_real,
    is_tensor,
    namespace,
    per_vector,
    positive,
    require_finite,
    require_per_vector,
    set_field,
)

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
            raise ValueError("the offset must be an array of float32 or float64")
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
