"""NumPy arrays and torch tensors behind one set of functions.

Everything in this package is written once for both. Vectors lie along the last axis; the axes before it are a
batch. torch is never imported here: a tensor can only arrive where torch is loaded already.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from pdrn.errors import InputError

NumpyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeIs

    Array: TypeAlias = NumpyArray | torch.Tensor
    """A NumPy array or a torch tensor; a function that takes one kind returns the same kind."""

    Step: TypeAlias = float | Array
    """A number, or an array of them that broadcasts against the vectors."""
else:
    Array = Step = Any

AnyArray: TypeAlias = Any
"""An array of the same kind as the argument: the caller knows which, the type checker does not."""

Value = TypeVar("Value")

_REAL = (np.dtype(np.float32), np.dtype(np.float64))

_NO_TENSORS = (np.ndarray, float)
"""The most frequent types, known without looking torch up."""


# The two kinds of arrays.


def is_tensor(x: object) -> TypeIs[torch.Tensor]:
    """Whether x is a torch tensor, without importing torch."""
    if isinstance(x, _NO_TENSORS):
        return False
    loaded = sys.modules.get("torch")
    return loaded is not None and isinstance(x, loaded.Tensor)


def is_array(x: object) -> TypeIs[Array]:
    """Whether x is a NumPy array or a torch tensor."""
    return isinstance(x, np.ndarray) or is_tensor(x)


def is_real(x: object) -> bool:
    """Whether x is an array of float32 or float64, in native byte order."""
    if is_tensor(x):
        return x.dtype in (namespace(x).float32, namespace(x).float64)
    return isinstance(x, np.ndarray) and x.dtype in _REAL and x.dtype.isnative


class Namespace(Protocol):
    """The functions that NumPy and torch share, with the types they have here; others are untyped."""

    def where(self, condition: Any, x: Any, y: Any, /) -> Array: ...
    def clip(self, x: Any, lo: Any, hi: Any, /, *, out: Array | None = None) -> Array: ...
    def abs(self, x: Any, /) -> Array: ...
    def sqrt(self, x: Any, /) -> Array: ...
    def log2(self, x: Any, /) -> Array: ...
    def round(self, x: Any, /) -> Array: ...
    def hypot(self, x: Array, y: Array, /) -> Array: ...
    def minimum(self, x: Any, y: Any, /, *, out: Array | None = None) -> Array: ...
    def maximum(self, x: Any, y: Any, /, *, out: Array | None = None) -> Array: ...
    def isfinite(self, x: Any, /) -> Array: ...
    def isnan(self, x: Any, /) -> Array: ...
    def isinf(self, x: Any, /) -> Array: ...
    def zeros_like(self, x: Array, /) -> Array: ...
    def ones_like(self, x: Array, /) -> Array: ...
    def empty_like(self, x: Array, /) -> Array: ...
    def full_like(self, x: Array, value: float, /) -> Array: ...
    def amax(self, x: Array, axis: int, /) -> Array: ...
    def cumsum(self, x: Array, axis: int, /) -> Array: ...
    def flip(self, x: Array, axes: tuple[int, ...], /) -> Array: ...
    def concatenate(self, arrays: Sequence[Array], axis: int = 0, /) -> Array: ...
    def broadcast_to(self, x: Array, shape: tuple[int, ...], /) -> Array: ...
    def __getattr__(self, name: str) -> Any: ...


def namespace(x: object) -> Namespace:
    """Return the module, ``numpy`` or ``torch``, whose functions apply to x."""
    module: Any = sys.modules["torch"] if is_tensor(x) else np
    return module  # type: ignore[no-any-return]  # a module, whose functions the protocol lists


def epsilon(x: Step) -> float:
    """Return the spacing of floating-point numbers at 1 in the type of x."""
    return float(namespace(x).finfo(x.dtype).eps) if is_array(x) else sys.float_info.epsilon


# From one kind or type to another.


@overload
def convert(x: Step, like: NumpyArray) -> NumpyArray: ...
@overload
def convert(x: Step, like: torch.Tensor) -> torch.Tensor: ...
def convert(x: Step, like: Array) -> Array:
    """Return x as an array of the kind, type and device of ``like``."""
    if is_tensor(like):
        converted: Array = namespace(like).as_tensor(x, dtype=like.dtype, device=like.device)
        return converted
    return to_numpy(x).astype(like.dtype, copy=False)


def to_numpy(x: Step) -> NumpyArray:
    """Return x as a NumPy array, without its gradient history."""
    return x.detach().cpu().numpy() if is_tensor(x) else np.asarray(x)


def to_float64(x: Array) -> Array:
    """Return x in double precision, itself where it already is."""
    return x.double() if is_tensor(x) else x.astype(np.float64, copy=False)


def copy(x: Array) -> Array:
    """Return a copy of x."""
    return x.clone() if is_tensor(x) else x.copy()


def detach(x: Array) -> Array:
    """Return x without its gradient history."""
    return x.detach() if is_tensor(x) else x


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return zeros of the kind, type and device of ``like``."""
    return like.new_zeros(shape) if is_tensor(like) else np.zeros(shape, like.dtype)


def norm(x: Array) -> Array:
    """Return the Euclidean norm along the last axis, which is kept with length 1."""
    if is_tensor(x):
        lengths: Array = namespace(x).linalg.vector_norm(x, dim=-1, keepdim=True)
        return lengths
    squares: NumpyArray = np.einsum("...i,...i->...", x, x)
    return np.sqrt(squares[..., None])


# Arithmetic that overwrites its first argument if that is a NumPy array; tensors are never overwritten.


def times(x: Array, factor: Step) -> Array:
    """``x * factor``, in place; no work where the factor is 1."""
    if not is_array(factor) and factor == 1:
        return x
    return factor * x if is_tensor(x) else np.multiply(x, factor, out=x)


def plus(x: Array, other: Step) -> Array:
    """``x + other``, in place."""
    return x + other if is_tensor(x) else np.add(x, other, out=x)


def subtracted_from(x: Array, other: Array) -> Array:
    """``other - x``, in place."""
    return other - x if is_tensor(x) else np.subtract(other, x, out=x)


# Objects that hold arrays.


class ArrayHolder:
    """The base of objects whose attributes hold arrays that ``map_arrays`` finds."""


def map_arrays(value: Value, function: Callable[[Array], Array]) -> Value:
    """Return a copy of an object with ``function`` applied to every array in it, at any depth.

    Arrays are found in the attributes of dataclasses, functionals and operators, and in lists, tuples and
    dictionaries. Dataclass fields whose metadata say ``shared`` stay as they are. Cached properties are
    dropped: the copy computes them again. The copy is not validated.
    """
    kind, fields = type(value), dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    shared = {field.name for field in fields if field.metadata.get("shared")}
    names = dict.fromkeys([field.name for field in fields] + list(getattr(value, "__dict__", ())))
    mapped = object.__new__(kind)
    for name in names:
        if not isinstance(getattr(kind, name, None), cached_property):
            part = getattr(value, name)
            set_field(mapped, name, part if name in shared else _map_part(part, function))
    return mapped


def _map_part(part: Any, function: Callable[[Array], Array]) -> Any:
    if is_array(part):
        return function(part)
    if type(part) in (list, tuple):
        return type(part)(_map_part(each, function) for each in part)
    if type(part) is dict:
        return {key: _map_part(each, function) for key, each in part.items()}
    if isinstance(part, ArrayHolder) or (dataclasses.is_dataclass(part) and not isinstance(part, type)):
        return map_arrays(part, function)
    return part


def set_field(value: object, name: str, part: object) -> None:
    """Set a field of a frozen dataclass while it is being made."""
    object.__setattr__(value, name, part)


# Checks of a user's arguments and of the results of a user's methods.


def all_true(condition: Any) -> bool:
    """Whether a condition, a plain bool or an array of them, holds everywhere.

    While torch traces a graph, and on the meta device, values are unknown and every condition counts as met.
    """
    if is_tensor(condition) and (condition.is_meta or namespace(condition).compiler.is_compiling()):
        return True
    return bool(condition.all()) if hasattr(condition, "all") else bool(condition)


def numbers(value: Any, name: str) -> Step:
    """Return a number as a plain float and an array of float32 or float64 as it is; refuse anything else.

    Plain floats take the type of the arrays that they meet; NumPy's scalars would impose their own.
    """
    if isinstance(value, float | int | np.floating | np.integer):
        return float(value)
    if not is_real(value):
        kind = f"an array of {value.dtype}" if is_array(value) else type(value).__name__
        raise InputError(f"{name} must be a number or an array of float32 or float64, got {kind}")
    array: Array = value
    return array


def positive(value: Any, name: str) -> Step:
    """Return ``numbers(value, name)``, refusing what is not positive and finite everywhere."""
    checked = numbers(value, name)
    if not (all_true(checked > 0) and all_true(checked < float("inf"))):
        raise InputError(f"{name} must be positive and finite, got {value}")
    return checked


def require_finite(x: Array, name: str) -> None:
    """Raise InputError where an array holds NaN or infinities."""
    if not all_true(namespace(x).isfinite(x)):
        raise InputError(f"{name} holds NaN or infinite entries; remove them first")


def require_vectors(x: object, name: str, length: int | None = None) -> None:
    """Raise InputError unless x is an array of floats with vectors, of this length, along the last axis."""
    if not is_array(x) or not is_real(x) or x.ndim == 0 or length not in (None, x.shape[-1]):
        vectors = "vectors" if length is None else f"vectors of length {length}"
        got = f"{x.dtype} of shape {tuple(x.shape)}" if is_array(x) else type(x).__name__
        raise InputError(f"{name} must hold {vectors} of float32 or float64 along its last axis, got {got}")


def require_fits(array: Array, shape: tuple[int, ...], like: Array, name: str) -> Array:
    """Return an array, refusing one that does not broadcast to a shape or has another type than ``like``."""
    padded = (1,) * (len(shape) - array.ndim) + tuple(array.shape)
    fits = len(padded) == len(shape) and all(a in (1, b) for a, b in zip(padded, shape, strict=True))
    if not fits:
        raise InputError(f"{name} holds an array of shape {tuple(array.shape)} that does not fit {shape}")
    if array.dtype != like.dtype or is_tensor(array) != is_tensor(like):
        raise InputError(
            f"{name} holds an array of {array.dtype} beside one of {like.dtype}; convert one to the type of "
            "the other"
        )
    return array


def require_per_vector(step: Step, name: str) -> None:
    """Raise InputError unless a step is a number or has shape ``(..., 1)``, one number per vector."""
    if is_array(step) and step.ndim and step.shape[-1] != 1:
        raise InputError(f"{name} must be a number or have shape (..., 1), got shape {tuple(step.shape)}")


def refuse_overrides(kind: type, names: Iterable[str], base: str) -> None:
    """Raise TypeError where a class overrides public methods of a built-in one: solvers would bypass them."""
    for name in names:
        if name in vars(kind):
            raise TypeError(f"{kind.__name__} overrides {name} of a built-in class; derive it from {base}")


def owned(x: Array, shape: tuple[int, ...], like: Array, name: str) -> Array:
    """Return the result of a user's method in the type of ``like``, as an array that may be overwritten.

    Tensors are never overwritten and are not copied.
    """
    if not is_array(x) or is_tensor(x) != is_tensor(like):
        raise InputError(f"{name} must return an array of the kind it takes, got a {type(x).__name__}")
    try:
        x = namespace(x).broadcast_to(x, shape)
    except (ValueError, RuntimeError):
        raise InputError(f"{name} must return shape {tuple(shape)}, got {tuple(x.shape)}") from None
    converted = convert(x, like)
    return converted if is_tensor(converted) else converted.copy()
