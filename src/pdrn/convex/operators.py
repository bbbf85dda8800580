"""Linear operators K: apply, adjoint and norm.

An operator of shape ``(m, n)`` maps vectors of length n along the last axis to vectors of length m; the axes
before are a batch and pass through. NumPy arrays give NumPy arrays in their own precision, torch tensors give
tensors with gradients. Operators multiply by numbers (``2 * K``) and compose (``A @ B``).

``overwrite=True`` gives leave to destroy the argument, which saves memory traffic; without it the result
never shares memory with the argument.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdrn.convex.arrays import (
    Array,
    convert,
    copy,
    is_array,
    is_floating,
    require_finite,
    times,
    to_float64,
    to_numpy,
)

POWER_ITERATIONS = 200
POWER_TOLERANCE = 1e-6
POWER_MARGIN = 1.01
"""Power iteration approaches the norm from below: its estimate is raised by one per cent to bound it."""


@dataclass(frozen=True, eq=False)
class Operator(ABC):
    """A linear map from vectors of length n to vectors of length m."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """``(m, n)``."""

    def apply(self, x: Array, *, overwrite: bool = False) -> Array:
        """K x, ``(..., n) -> (..., m)``."""
        _require_vectors(x, self.shape[1])
        return self._apply(x, overwrite)

    def adjoint(self, y: Array, *, overwrite: bool = False) -> Array:
        """K' y, ``(..., m) -> (..., n)``."""
        _require_vectors(y, self.shape[0])
        return self._adjoint(y, overwrite)

    @abstractmethod
    def _apply(self, x: Array, overwrite: bool) -> Array: ...

    @abstractmethod
    def _adjoint(self, y: Array, overwrite: bool) -> Array: ...

    @cached_property
    def norm(self) -> float:
        """An upper bound of the largest singular value, exact where the class knows it."""
        return estimate_norm(self)

    @property
    def isometry(self) -> bool:
        """Whether K'K is known to be the identity, so that |K x| = |x|."""
        return False

    def __rmul__(self, factor: float) -> Operator:
        return Scaled(self, float(factor))

    def __matmul__(self, other: Operator) -> Operator:
        return Composed(self, other)


def _require_vectors(x: Array, length: int) -> None:
    if not is_array(x) or not is_floating(x) or x.ndim == 0 or x.shape[-1] != length:
        got = f"{x.dtype} of shape {tuple(x.shape)}" if is_array(x) else type(x).__name__
        raise ValueError(f"need an array of floats whose vectors have length {length}, got {got}")


def estimate_norm(K: Operator, generator: np.random.Generator | None = None) -> float:
    """Bound the largest singular value of K by power iteration on K'K and a margin of one per cent."""
    generator = generator or np.random.default_rng(0)
    v = generator.standard_normal(K.shape[1])
    estimate = 0.0
    for _ in range(POWER_ITERATIONS):
        v = v / np.linalg.norm(v)
        w = K.adjoint(K.apply(v))
        previous, estimate = estimate, math.sqrt(float(v @ w))
        if estimate == 0.0 or abs(estimate - previous) <= POWER_TOLERANCE * estimate:
            break
        v = w
    return POWER_MARGIN * estimate


@dataclass(frozen=True, eq=False)
class Identity(Operator):
    """``K x = x`` on vectors of length ``size``."""

    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return x if overwrite else copy(x)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        return y if overwrite else copy(y)

    @cached_property
    def norm(self) -> float:
        return 1.0

    @property
    def isometry(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Scaled(Operator):
    """``a K``."""

    operator: Operator
    factor: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.factor):
            raise ValueError(f"the factor of an operator must be finite, got {self.factor}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return times(self.operator.apply(x, overwrite=overwrite), self.factor)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        return times(self.operator.adjoint(y, overwrite=overwrite), self.factor)

    @cached_property
    def norm(self) -> float:
        return abs(self.factor) * self.operator.norm


@dataclass(frozen=True, eq=False)
class Composed(Operator):
    """``A B``: first B, then A."""

    outer: Operator
    inner: Operator

    def __post_init__(self) -> None:
        if self.outer.shape[1] != self.inner.shape[0]:
            raise ValueError(
                f"cannot compose shapes {self.outer.shape} and {self.inner.shape}: the inner lengths differ"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.outer.shape[0], self.inner.shape[1]

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return self.outer.apply(self.inner.apply(x, overwrite=overwrite), overwrite=True)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        return self.inner.adjoint(self.outer.adjoint(y, overwrite=overwrite), overwrite=True)

    @cached_property
    def norm(self) -> float:
        return min(estimate_norm(self), self.outer.norm * self.inner.norm)

    @property
    def isometry(self) -> bool:
        return self.outer.isometry and self.inner.isometry


@dataclass(frozen=True, eq=False)
class Dense(Operator):
    """A matrix of shape ``(m, n)``."""

    matrix: Array

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise ValueError(f"need a matrix with rows and columns, got shape {tuple(self.matrix.shape)}")
        require_finite(self.matrix, "the matrix")

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.matrix.shape
        return m, n

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return x @ convert(self.matrix, x).T

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        return y @ convert(self.matrix, y)

    @cached_property
    def norm(self) -> float:
        return float(np.linalg.norm(to_float64(to_numpy(self.matrix)), 2))
