"""Norms as functionals: l1, l2, l-infinity and groups; the residual projects onto the dual norm's ball."""

from __future__ import annotations

from dataclasses import dataclass

from pdrn.convex.arrays import (
    Array,
    Step,
    all_true,
    epsilon,
    is_array,
    namespace,
    norm,
    numbers,
    require_per_vector,
    set_field,
)
from pdrn.convex.functionals import INSIDE_ULPS, Functional, indicator
from pdrn.convex.projections import clip, project_l1_ball, project_l2_ball


@dataclass(frozen=True, eq=False)
class L1(Functional):
    """``sum_i w_i |x_i|`` with weights w >= 0, a number or one per coordinate.

    Its residual is a clip: the hard tanh of a primal-dual network.
    """

    weight: Array = 1.0

    def __post_init__(self) -> None:
        set_field(self, "weight", numbers(self.weight, "weight"))
        if not (all_true(self.weight >= 0) and all_true(self.weight < float("inf"))):
            raise ValueError("the weights of the l1 norm must be finite and not negative")

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
            raise ValueError(f"a group needs at least one coordinate, got size {self.size}")

    def _groups(self, x: Array) -> Array:
        count, rest = divmod(x.shape[-1], self.size)
        if rest:
            raise ValueError(f"{x.shape[-1]} coordinates do not divide into groups of {self.size}")
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
