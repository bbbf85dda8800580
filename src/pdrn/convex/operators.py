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
from typing import Any, ClassVar

import numpy as np

from pdrn.convex.arrays import (
    Array,
    convert,
    copy,
    is_array,
    is_real,
    is_tensor,
    numbers,
    require_finite,
    set_field,
    times,
    to_float64,
    to_numpy,
)

NORM_TOLERANCE = 1e-6
"""To which precision norms that are not known exactly are computed, and by how much they are raised."""

SMALL = 32
"""Up to this many columns an operator's norm is computed from its matrix."""


@dataclass(frozen=True, eq=False)
class Operator(ABC):
    """A linear map from vectors of length n to vectors of length m."""

    __array_ufunc__ = None  # so that number * K is Scaled(K, number) for NumPy's numbers too

    isometric: ClassVar[bool] = False
    """Whether K'K is the identity."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """``(m, n)``."""

    @property
    def channels(self) -> int:
        """How many kinds of coefficients there are: those of one view where several follow, else all m."""
        return self.shape[0]

    def apply(self, x: Array, *, overwrite: bool = False) -> Array:
        """K x, ``(..., n) -> (..., m)``."""
        _require_vectors(x, self.shape[1])
        return _own(self._apply(x, overwrite), x, overwrite)

    def adjoint(self, y: Array, *, overwrite: bool = False) -> Array:
        """K' y, ``(..., m) -> (..., n)``."""
        _require_vectors(y, self.shape[0])
        return _own(self._adjoint(y, overwrite), y, overwrite)

    @abstractmethod
    def _apply(self, x: Array, overwrite: bool) -> Array: ...

    @abstractmethod
    def _adjoint(self, y: Array, overwrite: bool) -> Array: ...

    @cached_property
    def norm(self) -> float:
        """The largest singular value, or a bound that is not much larger; computed where no class knows it.

        That takes long for long vectors: an operator of one's own that knows better says so.
        """
        return 1.0 if self.isometric else estimate_norm(self)

    @cached_property
    def injectivity(self) -> float:
        """A number c with ``|K x| >= c |x|`` for every x, 0 where none is known."""
        return 1.0 if self.isometric else 0.0

    def __rmul__(self, factor: float) -> Operator:
        return Scaled(self, factor)

    def __matmul__(self, other: Operator) -> Operator:
        return Composed(self, other)


def _require_vectors(x: Array, length: int) -> None:
    if not is_real(x) or x.ndim == 0 or x.shape[-1] != length:
        got = f"{x.dtype} of shape {tuple(x.shape)}" if is_array(x) else type(x).__name__
        raise ValueError(f"need an array of float32 or float64 whose vectors have length {length}, got {got}")


def _own(result: Array, argument: Array, overwrite: bool) -> Array:
    """Return a result that may be written to: one that is a view of the argument would destroy that."""
    if is_tensor(result) or (result.flags.writeable and (overwrite or not _share(result, argument))):
        return result
    return copy(result)


def _share(result: Array, argument: Array) -> bool:
    return isinstance(argument, np.ndarray) and np.may_share_memory(result, argument)


def estimate_norm(K: Operator) -> float:
    """Compute the largest singular value of K by Lanczos iteration on K'K, rounded up."""
    from scipy.sparse.linalg import LinearOperator, eigsh  # slow to import, and mostly not needed

    n = K.shape[1]
    if n <= SMALL:
        return float(np.linalg.norm(K.apply(np.eye(n)), 2)) * (1 + NORM_TOLERANCE)
    normal = LinearOperator((n, n), matvec=lambda x: K.adjoint(K.apply(x.ravel())), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    if not (normal @ start).any():
        return 0.0
    largest = eigsh(normal, k=1, v0=start, tol=NORM_TOLERANCE, return_eigenvectors=False)[0]
    return math.sqrt(max(float(largest), 0.0)) * (1 + NORM_TOLERANCE)


@dataclass(frozen=True, eq=False)
class Identity(Operator):
    """``K x = x`` on vectors of length ``size``."""

    isometric = True

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"an identity needs at least one coordinate, got size {self.size}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return x if overwrite else copy(x)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        return y if overwrite else copy(y)


@dataclass(frozen=True, eq=False)
class Scaled(Operator):
    """``a K``."""

    operator: Operator
    factor: float

    def __post_init__(self) -> None:
        factor = numbers(self.factor, "the factor of an operator")
        if is_array(factor) or not math.isfinite(factor):
            raise ValueError(f"the factor of an operator must be one finite number, got {factor}")
        set_field(self, "factor", factor)

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    @property
    def channels(self) -> int:
        return self.operator.channels

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return times(self.operator.apply(x, overwrite=overwrite), self.factor)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        return times(self.operator.adjoint(y, overwrite=overwrite), self.factor)

    @cached_property
    def norm(self) -> float:
        return abs(self.factor) * self.operator.norm

    @cached_property
    def injectivity(self) -> float:
        return abs(self.factor) * self.operator.injectivity


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

    @property
    def channels(self) -> int:
        return self.outer.channels

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return self.outer.apply(self.inner.apply(x, overwrite=overwrite), overwrite=True)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        return self.inner.adjoint(self.outer.adjoint(y, overwrite=overwrite), overwrite=True)

    @cached_property
    def norm(self) -> float:
        product = self.outer.norm * self.inner.norm
        outer_keeps_lengths = self.outer.norm == self.outer.injectivity
        return product if outer_keeps_lengths else min(estimate_norm(self), product)

    @cached_property
    def injectivity(self) -> float:
        return self.outer.injectivity * self.inner.injectivity


@dataclass(frozen=True, eq=False)
class Dense(Operator):
    """A matrix of shape ``(m, n)``; its norm is that of its entries when it is first asked for."""

    matrix: Array

    def __post_init__(self) -> None:
        if not is_real(self.matrix) or self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise ValueError("need a matrix of float32 or float64 with rows and columns")
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
        return float(self._singular_values[0])

    @cached_property
    def injectivity(self) -> float:
        m, n = self.shape
        return float(self._singular_values[-1]) if m >= n else 0.0

    @cached_property
    def _singular_values(self) -> np.ndarray[Any, Any]:
        return np.linalg.svd(to_float64(to_numpy(self.matrix)), compute_uv=False)
