"""What NumPy arrays and torch tensors do alike, and the few places where they differ.

Everything in this package is written once for both. Vectors lie along the last axis; the axes before it
are a batch. torch is never imported here: a tensor can only arrive where torch is already loaded.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value", bound="DataclassInstance")

Array: TypeAlias = Any
"""A NumPy array or a torch tensor; a function that takes one kind returns the same kind."""

Step: TypeAlias = Any
"""A positive number, or an array of them that broadcasts against the vectors."""

_PLAIN = (np.ndarray, float)
"""What is asked about most, and answered without looking torch up."""


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor, found out without importing torch."""
    if isinstance(x, _PLAIN):
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_array(x: object) -> bool:
    """Whether x is a NumPy array or a torch tensor."""
    return isinstance(x, np.ndarray) or is_tensor(x)


def map_arrays(value: Value, function: Callable[[Array], Array]) -> Value:
    """Return a copy of a dataclass with ``function`` applied to every array in it, at any depth.

    Fields whose metadata say ``shared`` stay as they are. The copy is not checked again as a new one would
    be: rows of what is valid are valid, and so are other types and shapes of it.
    """
    mapped = object.__new__(type(value))
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if field.metadata.get("shared"):
            pass
        elif is_array(part):
            part = function(part)
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):
            part = map_arrays(part, function)
        object.__setattr__(mapped, field.name, part)
    return mapped


def namespace(x: Array) -> Any:
    """Return the module, ``numpy`` or ``torch``, whose functions apply to x."""
    return sys.modules["torch"] if is_tensor(x) else np


def is_floating(x: Array) -> bool:
    """Whether x is an array of real floating-point numbers."""
    return bool(x.is_floating_point()) if is_tensor(x) else x.dtype.kind == "f"


def epsilon(x: Array) -> float:
    """Return the spacing of floating-point numbers at 1 in the type of x."""
    return float(namespace(x).finfo(x.dtype).eps)


def convert(x: Array, like: Array) -> Array:
    """Return x as an array of the kind, type and device of ``like``."""
    if is_tensor(like):
        return namespace(like).as_tensor(x, dtype=like.dtype, device=like.device)
    return np.asarray(x, dtype=like.dtype)


def copy(x: Array) -> Array:
    """Return x in memory of its own."""
    return x.clone() if is_tensor(x) else x.copy()


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return zeros of the kind, type and device of ``like``."""
    return like.new_zeros(shape) if is_tensor(like) else np.zeros(shape, like.dtype)


def to_float64(x: Array) -> Array:
    """Return x in double precision, itself where it already is."""
    return x.double() if is_tensor(x) else x.astype(np.float64, copy=False)


def to_numpy(x: Array) -> np.ndarray[Any, Any]:
    """Return x as a NumPy array, without its gradient history."""
    return x.detach().cpu().numpy() if is_tensor(x) else np.asarray(x)


def norm(x: Array) -> Array:
    """Return the Euclidean norm along the last axis, which is kept with length 1."""
    if is_tensor(x):
        return namespace(x).linalg.vector_norm(x, dim=-1, keepdim=True)
    return np.sqrt(np.einsum("...i,...i->...", x, x)[..., None])


def all_true(condition: Any) -> bool:
    """Whether a condition, a plain bool or an array of them, holds everywhere."""
    return bool(condition.all()) if hasattr(condition, "all") else bool(condition)


def require_positive(step: Step, name: str) -> None:
    """Raise ValueError unless a step is positive and finite everywhere."""
    if not (all_true(step > 0) and all_true(step < float("inf"))):
        raise ValueError(f"{name} must be positive and finite, got {step}")


def require_per_vector(step: Step, name: str) -> None:
    """Raise ValueError unless a step is a number or has shape ``(..., 1)``, one number per vector."""
    if is_array(step) and step.ndim and step.shape[-1] != 1:
        raise ValueError(f"{name} must be a number or have shape (..., 1), got shape {tuple(step.shape)}")


def per_vector(step: Step) -> Step:
    """Turn a step of shape ``(..., 1)`` into one of the shape that values have."""
    return step[..., 0] if is_array(step) and step.ndim else step


def times(x: Array, factor: Step) -> Array:
    """``factor * x``, in the memory of x where that is a NumPy array; no work where the factor is 1."""
    if not is_array(factor) and factor == 1:
        return x
    return factor * x if is_tensor(x) else np.multiply(x, factor, out=x)


def plus(x: Array, other: Array) -> Array:
    """``x + other``, in the memory of x where that is a NumPy array."""
    return x + other if is_tensor(x) else np.add(x, other, out=x)


def subtracted_from(x: Array, other: Array) -> Array:
    """``other - x``, in the memory of x where that is a NumPy array."""
    return other - x if is_tensor(x) else np.subtract(other, x, out=x)


def require_finite(x: Array, name: str) -> None:
    """Raise ValueError where an array holds NaN or infinities."""
    xp = namespace(x)
    if not all_true(xp.isfinite(x)):
        raise ValueError(f"{name} holds NaN or infinite entries; remove them first")
