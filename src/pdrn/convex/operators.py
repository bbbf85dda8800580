"""Linear operators K: apply, adjoint and norm.

An operator of shape ``(m, n)`` maps vectors of length n along the last axis to vectors of length m; the axes
before are a batch and pass through. NumPy arrays give NumPy arrays in their own precision, torch tensors give
tensors with gradients. Operators multiply by numbers (``2 * K``) and compose (``A @ B``). To write an
operator, derive from ``Operator`` and override its public methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.fft

from pdrn.convex.backend import (
    AnyArray,
    Array,
    ArrayHolder,
    NumpyArray,
    convert,
    copy,
    is_array,
    is_real,
    is_tensor,
    namespace,
    numbers,
    owned,
    refuse_overrides,
    require_finite,
    require_vectors,
    set_field,
    times,
    to_float64,
    to_numpy,
    zeros,
)
from pdrn.errors import InputError

if TYPE_CHECKING:
    import torch

NORM_TOLERANCE = 1e-6
"""The precision of norms that are computed numerically, and the margin by which they are raised."""

SMALL = 32
"""Up to this many columns an operator's norm is computed from its matrix."""

LONG = 512
"""With this many views, the norm of a convolution is the bound for signals of any length, which is cheap."""


class Operator(ArrayHolder, ABC):
    """A linear map from vectors of length n to vectors of length m.

    A subclass overrides ``shape``, ``apply`` and ``adjoint``, and ``norm`` and ``injectivity`` where they are
    known. Its arrays of floats are attributes: ``pdrn.nets.unroll`` learns them.

    Examples
    --------
    >>> class Differences(Operator):
    ...     norm = 2.0
    ...
    ...     def __init__(self, size):
    ...         self.size = size
    ...
    ...     @property
    ...     def shape(self):
    ...         return self.size - 1, self.size
    ...
    ...     def apply(self, x):
    ...         return x[..., 1:] - x[..., :-1]
    ...
    ...     def adjoint(self, y):
    ...         return -np.diff(y, prepend=0.0, append=0.0)
    >>> (2 * Differences(4)).apply(np.array([0.0, 1.0, 1.0, 3.0]))
    array([2., 0., 4.])
    """

    __array_ufunc__ = None  # so that number * K is Scaled(K, number) for NumPy's numbers too

    isometric: ClassVar[bool] = False
    """Whether K'K is the identity."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """``(m, n)``."""

    @property
    def channels(self) -> int:
        """Coefficients per view, for operators that move a window over the signal; else m."""
        return self.shape[0]

    @abstractmethod
    def apply(self, x: Array) -> AnyArray:
        """K x, ``(..., n) -> (..., m)``."""

    @abstractmethod
    def adjoint(self, y: Array) -> AnyArray:
        """K' y, ``(..., m) -> (..., n)``."""

    @cached_property
    def norm(self) -> float:
        """The largest singular value, or a slightly larger bound.

        Default: computed by Lanczos iteration, which is slow for long vectors; override it where it is known.
        """
        return 1.0 if self.isometric else estimate_norm(self)

    @cached_property
    def injectivity(self) -> float:
        """A number c with ``|K x| >= c |x|`` for every x; 0 if none is known."""
        return 1.0 if self.isometric else 0.0

    def __rmul__(self, factor: float) -> Operator:
        return Scaled(self, factor)

    def __matmul__(self, other: Operator) -> Operator:
        return Composed(self, other)

    # The hooks that solvers and networks call. Arguments are valid and unchanged; results may be overwritten.

    def _apply(self, x: Array) -> Array:
        shape = (*x.shape[:-1], self.shape[0])
        return owned(self.apply(x), shape, x, f"{type(self).__name__}.apply")

    def _adjoint(self, y: Array) -> Array:
        shape = (*y.shape[:-1], self.shape[1])
        return owned(self.adjoint(y), shape, y, f"{type(self).__name__}.adjoint")


class _BuiltIn(Operator):
    """An operator that returns new arrays; a public call checks its argument."""

    def __init_subclass__(cls) -> None:
        refuse_overrides(cls, ("apply", "adjoint"), "Operator")

    def apply(self, x: Array) -> AnyArray:
        require_vectors(x, "x", self.shape[1])
        return self._apply(x)

    def adjoint(self, y: Array) -> AnyArray:
        require_vectors(y, "y", self.shape[0])
        return self._adjoint(y)


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
class Identity(_BuiltIn):
    """``K x = x`` on vectors of length ``size``."""

    isometric = True

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"an identity needs at least one coordinate, got size {self.size}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def _apply(self, x: Array) -> Array:
        return copy(x)

    def _adjoint(self, y: Array) -> Array:
        return copy(y)


@dataclass(frozen=True, eq=False)
class Scaled(_BuiltIn):
    """``a K``."""

    operator: Operator
    factor: float

    def __post_init__(self) -> None:
        factor = numbers(self.factor, "the factor of an operator")
        if is_array(factor) or not math.isfinite(factor):
            raise InputError(f"the factor of an operator must be one finite number, got {factor}")
        set_field(self, "factor", factor)

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    @property
    def channels(self) -> int:
        return self.operator.channels

    def _apply(self, x: Array) -> Array:
        return times(self.operator._apply(x), self.factor)

    def _adjoint(self, y: Array) -> Array:
        return times(self.operator._adjoint(y), self.factor)

    @cached_property
    def norm(self) -> float:
        return abs(self.factor) * self.operator.norm

    @cached_property
    def injectivity(self) -> float:
        return abs(self.factor) * self.operator.injectivity


@dataclass(frozen=True, eq=False)
class Composed(_BuiltIn):
    """``A B``: first B, then A."""

    outer: Operator
    inner: Operator

    def __post_init__(self) -> None:
        if self.outer.shape[1] != self.inner.shape[0]:
            raise InputError(
                f"cannot compose shapes {self.outer.shape} and {self.inner.shape}: the inner lengths differ"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.outer.shape[0], self.inner.shape[1]

    @property
    def channels(self) -> int:
        return self.outer.channels

    def _apply(self, x: Array) -> Array:
        return self.outer._apply(self.inner._apply(x))

    def _adjoint(self, y: Array) -> Array:
        return self.inner._adjoint(self.outer._adjoint(y))

    @cached_property
    def norm(self) -> float:
        product = self.outer.norm * self.inner.norm
        outer_keeps_lengths = self.outer.norm == self.outer.injectivity
        return product if outer_keeps_lengths else min(estimate_norm(self), product)

    @cached_property
    def injectivity(self) -> float:
        return self.outer.injectivity * self.inner.injectivity


@dataclass(frozen=True, eq=False)
class Dense(_BuiltIn):
    """A matrix of shape ``(m, n)``; its singular values are computed when they are first needed."""

    matrix: Array

    def __post_init__(self) -> None:
        if not is_real(self.matrix) or self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise InputError("need a matrix of float32 or float64 with rows and columns")
        require_finite(self.matrix, "the matrix")

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.matrix.shape
        return m, n

    def _apply(self, x: Array) -> Array:
        return x @ convert(self.matrix, x).T

    def _adjoint(self, y: Array) -> Array:
        return y @ convert(self.matrix, y)

    @cached_property
    def norm(self) -> float:
        return float(self._singular_values[0])

    @cached_property
    def injectivity(self) -> float:
        m, n = self.shape
        return float(self._singular_values[-1]) if m >= n else 0.0

    @cached_property
    def _singular_values(self) -> NumpyArray:
        return np.linalg.svd(to_float64(to_numpy(self.matrix)), compute_uv=False)


def views(x: Array, window: int, hop: int) -> Array:
    """Cut signals into overlapping views, ``(..., (count - 1) * hop + window) -> (..., count, window)``.

    >>> import numpy as np
    >>> views(np.arange(6.0), window=4, hop=2)
    array([[0., 1., 2., 3.],
           [2., 3., 4., 5.]])
    """
    overlap = window // hop
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // hop, hop)
    count = blocks.shape[-2] - overlap + 1
    return namespace(x).concatenate([blocks[..., r : r + count, :] for r in range(overlap)], -1)


def overlap_add(seen: Array, hop: int) -> Array:
    """Add overlapping views, ``(..., count, window) -> (..., (count - 1) * hop + window)``.

    This is the adjoint of ``views``.

    >>> import numpy as np
    >>> overlap_add(np.ones((2, 4)), hop=2)
    array([1., 1., 2., 2., 1., 1.])
    """
    *batch, count, window = seen.shape
    overlap = window // hop
    parts = [seen[..., r * hop : (r + 1) * hop] for r in range(overlap)]
    if is_tensor(seen):
        pad = namespace(seen).nn.functional.pad
        blocks: Array = sum(pad(part, (0, 0, r, overlap - 1 - r)) for r, part in enumerate(parts))
    else:
        blocks = np.zeros((*batch, count + overlap - 1, hop), seen.dtype)
        for r, part in enumerate(parts):
            blocks[..., r : r + count, :] += part
    return blocks.reshape(*batch, (count + overlap - 1) * hop)


def analyse(x: Array, filters: Array, hop: int) -> Array:
    """Correlate each view with each filter, ``(..., samples) -> (..., views, filters)``."""
    return views(x, filters.shape[-1], hop) @ filters.T


def synthesise(y: Array, filters: Array, hop: int) -> Array:
    """Sum the weighted filters, the adjoint of ``analyse``, ``(..., views, filters) -> (..., samples)``."""
    return overlap_add(y @ filters, hop)


def norm_on_long_signals(filters: NumpyArray, hop: int) -> float:
    """Bound the norm of a convolution over signals of any length, to within 0.1 %.

    With the filters cut into blocks of one hop, ``K_0, ..., K_d``, the norm over endless signals is the
    largest norm of ``sum_r K_r exp(i r w)`` over all w. Its square is a maximum of trigonometric polynomials
    of degree d, which exceed their values at N equally spaced points by ``1 / cos(pi d / N)`` times at most.
    """
    channels, window = filters.shape
    degree = window // hop - 1
    points = max(1, 64 * degree)
    symbols = np.fft.rfft(filters.reshape(channels, degree + 1, hop), points, axis=1).swapaxes(0, 1)
    largest = np.linalg.svd(symbols, compute_uv=False).max()
    return float(largest) / math.sqrt(math.cos(math.pi * degree / points)) * (1 + NORM_TOLERANCE)


@dataclass(frozen=True, eq=False)
class Convolution(_BuiltIn):
    """A bank of filters, shape ``(channels, window)``, correlated with ``count`` views, ``hop`` apart.

    Signals have ``(count - 1) * hop + window`` samples. Fewer views reach the samples near the ends; pad the
    signal with ``window - hop`` zeros on either side to treat all alike. Coefficients are ordered by view,
    then channel.
    """

    filters: Array
    hop: int
    count: int

    def __post_init__(self) -> None:
        if not is_real(self.filters) or self.filters.ndim != 2 or 0 in self.filters.shape:
            raise InputError("need filters of float32 or float64, of shape (channels, window)")
        require_finite(self.filters, "the filters")
        window = self.filters.shape[-1]
        if not 1 <= self.hop <= window or window % self.hop:
            raise InputError(
                f"the window must be a whole number of hops, got windows of {window} and hops of {self.hop}; "
                "add zeros to the filters"
            )
        if self.count < 1:
            raise InputError(f"a convolution needs at least one view, got {self.count}")

    @property
    def shape(self) -> tuple[int, int]:
        channels, window = self.filters.shape
        return self.count * channels, (self.count - 1) * self.hop + window

    @property
    def channels(self) -> int:
        return int(self.filters.shape[0])

    @cached_property
    def norm(self) -> float:
        if self.count < LONG:
            return estimate_norm(self)
        return norm_on_long_signals(to_numpy(self.filters).astype(np.float64), self.hop)

    def _apply(self, x: Array) -> Array:
        return analyse(x, convert(self.filters, x), self.hop).reshape(*x.shape[:-1], -1)

    def _adjoint(self, y: Array) -> Array:
        coefficients = y.reshape(*y.shape[:-1], self.count, self.filters.shape[0])
        return synthesise(coefficients, convert(self.filters, y), self.hop)


class _CosineTransform(_BuiltIn):
    """The orthonormal DCT-II along every side of an array, which is flattened row by row."""

    isometric = True

    @property
    @abstractmethod
    def _sides(self) -> tuple[int, ...]: ...

    def __post_init__(self) -> None:
        if min(self._sides) < 1:
            sizes = " by ".join(map(str, self._sides))
            raise InputError(f"a cosine transform needs a size of at least 1, got {sizes}")

    @property
    def shape(self) -> tuple[int, int]:
        n = math.prod(self._sides)
        return n, n

    def _apply(self, x: Array) -> Array:
        return self._transform(x, inverse=False)

    def _adjoint(self, y: Array) -> Array:
        return self._transform(y, inverse=True)

    def _transform(self, x: Array, inverse: bool) -> Array:
        array, axes = x.reshape(*x.shape[:-1], *self._sides), range(-len(self._sides), 0)
        if is_tensor(array):
            for axis in reversed(axes):
                array = _tensor_dct(array.movedim(axis, -1), inverse).movedim(-1, axis)
        else:
            array = (scipy.fft.idctn if inverse else scipy.fft.dctn)(array, axes=axes, norm="ortho")
        return array.reshape(x.shape)


@dataclass(frozen=True, eq=False)
class DCT(_CosineTransform):
    """The orthonormal DCT-II of vectors of length ``size``, the paper's dictionary.

    ``(K x)_k = c_k sum_t x_t cos(pi k (2 t + 1) / (2 n))`` with ``c_0 = sqrt(1 / n)``, ``c_k = sqrt(2 / n)``.
    """

    size: int

    @property
    def _sides(self) -> tuple[int, ...]:
        return (self.size,)


@dataclass(frozen=True, eq=False)
class DCT2D(_CosineTransform):
    """The orthonormal two-dimensional DCT-II of images of ``height`` rows, flattened row by row."""

    height: int
    width: int

    @property
    def _sides(self) -> tuple[int, ...]:
        return self.height, self.width


@lru_cache(maxsize=32)
def _dct_tables(size: int) -> tuple[NumpyArray, NumpyArray]:
    """``c_k`` and ``exp(-i pi k / (2 n))``."""
    k = np.arange(size)
    return np.where(k == 0, math.sqrt(1 / size), math.sqrt(2 / size)), np.exp(-0.5j * np.pi * k / size)


def _tensor_dct(x: torch.Tensor, inverse: bool) -> torch.Tensor:
    """Transform tensors by one FFT of the same length (Makhoul 1980)."""
    size, xp = x.shape[-1], namespace(x)
    c, turn = _dct_tables(size)
    turn = xp.as_tensor(turn.conj() if inverse else turn, device=x.device).to(x.dtype.to_complex())
    if not inverse:
        folded = xp.concatenate([x[..., ::2], x[..., 1::2].flip(-1)], -1)  # even samples, odd ones backwards
        spectrum = xp.fft.fft(folded) * turn
        return convert(spectrum.real * convert(c, x), x)
    cosine = x / convert(c, x)
    mirrored = xp.concatenate([xp.zeros_like(cosine[..., :1]), cosine[..., 1:].flip(-1)], -1)
    folded = xp.fft.irfft((xp.complex(cosine, -mirrored) * turn)[..., : size // 2 + 1], n=size)
    half = (size + 1) // 2
    unfolded = x.new_empty(x.shape)
    unfolded[..., ::2] = folded[..., :half]
    unfolded[..., 1::2] = folded[..., half:].flip(-1)
    return unfolded


@dataclass(frozen=True, eq=False)
class GaborFrame(_BuiltIn):
    """A tight Gabor frame: the windowed Fourier transform of a whole signal of ``size`` samples.

    A window moves by ``hop`` over the signal, which is padded with zeros. Each view gives a real Fourier
    transform of ``fft_length >= window_length`` points. The window is normalised so that K'K is the identity
    for any hop up to the window length, at the edges too. The redundancy is about ``fft_length / hop``.

    Coefficients are ordered by view, then frequency, then (cosine, sine): ``GroupL21(2)`` groups the two.
    """

    isometric = True

    size: int
    window_length: int
    hop: int
    fft_length: int = 0
    """0: the window length."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a frame needs a signal of at least one sample, got size {self.size}")
        if not 1 <= self.hop <= self.window_length:
            raise InputError(
                f"need 1 <= hop <= window length, got hop {self.hop} and window length {self.window_length}"
            )
        set_field(self, "fft_length", self.fft_length or self.window_length)
        if self.fft_length < self.window_length:
            raise InputError(f"need fft_length >= window length {self.window_length}, got {self.fft_length}")

    @property
    def shape(self) -> tuple[int, int]:
        return self._views * self.channels, self.size

    @property
    def channels(self) -> int:
        return 2 * (self.fft_length // 2 + 1)

    @property
    def _overlap(self) -> int:
        """The window length in hops, rounded up."""
        return -(-self.window_length // self.hop)

    @property
    def _blocks(self) -> int:
        """The length of the signal in hops, rounded up."""
        return (self.size + self.hop - 1) // self.hop  # ONNX rounds quotients towards zero

    @property
    def _views(self) -> int:
        return self._blocks + self._overlap - 1

    @cached_property
    def window(self) -> NumpyArray:
        """The tight window, padded with zeros to a whole number of hops: its squared hops sum to 1."""
        t = np.arange(self.window_length) + 0.5
        padded = np.zeros(self._overlap * self.hop)
        padded[: self.window_length] = np.sin(np.pi * t / self.window_length) ** 2
        hops = padded.reshape(self._overlap, self.hop)
        hops /= np.sqrt((hops**2).sum(0))
        return padded

    @cached_property
    def _bin_scale(self) -> NumpyArray:
        """sqrt(2) for frequencies whose mirror image is left out, for cosine and sine alike."""
        scale = np.full(self.channels // 2, math.sqrt(2))
        scale[0] = 1
        if self.fft_length % 2 == 0:
            scale[-1] = 1
        return np.repeat(scale, 2)

    def _apply(self, x: Array) -> Array:
        xp = namespace(x)
        batch, edge = x.shape[:-1], (self._overlap - 1) * self.hop
        before = zeros((*batch, edge), x)
        after = zeros((*batch, edge + self._blocks * self.hop - self.size), x)
        padded = xp.concatenate([before, x, after], -1)
        seen = views(padded, self._overlap * self.hop, self.hop)
        return self.analyse_view(seen).reshape(*batch, self.shape[0])

    def analyse_view(self, seen: Array) -> Array:
        """Return the coefficients of views, ``(..., whole hops) -> (..., channels)``."""
        windowed = (seen * convert(self.window, seen))[..., : self.window_length]
        if is_tensor(windowed):
            xp = namespace(windowed)
            spectrum = xp.fft.rfft(windowed, n=self.fft_length, norm="ortho")
            pairs: Array = xp.view_as_real(spectrum).flatten(-2)
        else:
            spectrum = scipy.fft.rfft(windowed, n=self.fft_length, norm="ortho")
            pairs = spectrum.view(spectrum.real.dtype)
        return pairs * convert(self._bin_scale, seen)

    def _adjoint(self, y: Array) -> Array:
        seen = self.synthesise_view(y.reshape(*y.shape[:-1], self._views, self.channels))
        edge = (self._overlap - 1) * self.hop
        return overlap_add(seen, self.hop)[..., edge : edge + self.size]

    def synthesise_view(self, y: Array) -> Array:
        """Return the views of coefficients, the adjoint of ``analyse_view``."""
        xp = namespace(y)
        pairs = y / convert(self._bin_scale, y)
        if is_tensor(pairs):
            spectrum = xp.view_as_complex(pairs.reshape(*pairs.shape[:-1], -1, 2))
            seen: Array = xp.fft.irfft(spectrum, n=self.fft_length, norm="ortho")
        else:
            spectrum = pairs.view(np.result_type(pairs.dtype, np.complex64))
            seen = scipy.fft.irfft(spectrum, n=self.fft_length, norm="ortho")
        missing = self._overlap * self.hop - self.window_length
        padded = xp.concatenate([seen[..., : self.window_length], zeros((*seen.shape[:-1], missing), y)], -1)
        return padded * convert(self.window, y)
