"""Linear operators K: apply, adjoint and norm.

An operator of shape ``(m, n)`` maps vectors of length n along the last axis to vectors of length m; the axes
before are a batch and pass through. NumPy arrays give NumPy arrays in their own precision, torch tensors give
tensors with gradients. Operators multiply by numbers (``2 * K``) and compose (``A @ B``).

To write an operator, derive from ``Operator`` and override its public methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.fft

from pdrn.convex.backend import (
    Array,
    ArrayHolder,
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

NORM_TOLERANCE = 1e-6
"""To which precision norms that are not known exactly are computed, and by how much they are raised."""

SMALL = 32
"""Up to this many columns an operator's norm is computed from its matrix."""


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
        """How many kinds of coefficients there are: those of one view where several follow, else all m."""
        return self.shape[0]

    @abstractmethod
    def apply(self, x: Array) -> Array:
        """K x, ``(..., n) -> (..., m)``."""

    @abstractmethod
    def adjoint(self, y: Array) -> Array:
        """K' y, ``(..., m) -> (..., n)``."""

    # Solvers and networks call the following two: arguments are valid and stay as they are, results are
    # arrays of their own that may be overwritten.

    def _apply(self, x: Array) -> Array:
        shape = (*x.shape[:-1], self.shape[0])
        return owned(self.apply(x), shape, x, f"{type(self).__name__}.apply")

    def _adjoint(self, y: Array) -> Array:
        shape = (*y.shape[:-1], self.shape[1])
        return owned(self.adjoint(y), shape, y, f"{type(self).__name__}.adjoint")

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


class _BuiltIn(Operator):
    """An operator whose results are arrays of their own; a public call checks its argument."""

    def __init_subclass__(cls) -> None:
        refuse_overrides(cls, ("apply", "adjoint"), "Operator")

    def apply(self, x: Array) -> Array:
        require_vectors(x, self.shape[1])
        return self._apply(x)

    def adjoint(self, y: Array) -> Array:
        require_vectors(y, self.shape[0])
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
    """A matrix of shape ``(m, n)``; its norm is that of its entries when it is first asked for."""

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
    def _singular_values(self) -> np.ndarray[Any, Any]:
        return np.linalg.svd(to_float64(to_numpy(self.matrix)), compute_uv=False)


LONG = 512
"""From so many views on a norm is the bound for signals of any length, which takes no time."""


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
    """Add views up where they overlap, ``(..., count, window) -> (..., (count - 1) * hop + window)``.

    >>> import numpy as np
    >>> overlap_add(np.ones((2, 4)), hop=2)
    array([1., 1., 2., 2., 1., 1.])
    """
    *batch, count, window = seen.shape
    overlap = window // hop
    parts = [seen[..., r * hop : (r + 1) * hop] for r in range(overlap)]
    if is_tensor(seen):
        pad = namespace(seen).nn.functional.pad
        blocks = sum(pad(part, (0, 0, r, overlap - 1 - r)) for r, part in enumerate(parts))
    else:
        blocks = zeros((*batch, count + overlap - 1, hop), seen)
        for r, part in enumerate(parts):
            blocks[..., r : r + count, :] += part
    return blocks.reshape(*batch, (count + overlap - 1) * hop)


def analyse(x: Array, filters: Array, hop: int) -> Array:
    """Correlate every view with every filter, ``(..., samples) -> (..., views, filters)``."""
    return views(x, filters.shape[-1], hop) @ filters.T


def synthesise(y: Array, filters: Array, hop: int) -> Array:
    """Add up the filters, weighted, ``(..., views, filters) -> (..., samples)``: the adjoint of analysis."""
    return overlap_add(y @ filters, hop)


def norm_on_long_signals(filters: np.ndarray[Any, Any], hop: int) -> float:
    """Return a bound on the norm of a convolution over signals of any length, tight to a part in a thousand.

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
    """A bank of filters, shape ``(channels, window)``, seen by ``count`` views that are ``hop`` apart.

    Signals have ``(count - 1) * hop + window`` samples. Those near the ends are seen by fewer views; pad the
    signal with ``window - hop`` zeros on either side where they shall be seen as often as the others.
    Coefficients are ordered by view, then channel.
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


@dataclass(frozen=True, eq=False)
class DCT(_BuiltIn):
    """The orthonormal DCT-II of vectors of length ``size``, the paper's dictionary.

    ``(K x)_k = c_k sum_t x_t cos(pi k (2 t + 1) / (2 n))`` with ``c_0 = sqrt(1 / n)``, ``c_k = sqrt(2 / n)``.
    """

    isometric = True

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a cosine transform needs at least one sample, got size {self.size}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def _apply(self, x: Array) -> Array:
        if is_tensor(x):
            return _tensor_dct(x)
        return scipy.fft.dct(x, norm="ortho")

    def _adjoint(self, y: Array) -> Array:
        if is_tensor(y):
            return _tensor_idct(y)
        return scipy.fft.idct(y, norm="ortho")


@dataclass(frozen=True, eq=False)
class DCT2D(_BuiltIn):
    """The orthonormal cosine transform of images, rows and columns, that are given as vectors row by row."""

    isometric = True

    height: int
    width: int

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise InputError(f"an image needs at least one pixel, got {self.height} by {self.width}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.height * self.width, self.height * self.width

    def _image(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], self.height, self.width)

    def _apply(self, x: Array) -> Array:
        if is_tensor(x):
            return _tensor_dct(_tensor_dct(self._image(x)).mT).mT.reshape(x.shape)
        return scipy.fft.dctn(self._image(x), axes=(-2, -1), norm="ortho").reshape(x.shape)

    def _adjoint(self, y: Array) -> Array:
        if is_tensor(y):
            return _tensor_idct(_tensor_idct(self._image(y)).mT).mT.reshape(y.shape)
        return scipy.fft.idctn(self._image(y), axes=(-2, -1), norm="ortho").reshape(y.shape)


@lru_cache(maxsize=32)
def _dct_tables(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """``c_k`` and ``exp(-i pi k / (2 n))``."""
    k = np.arange(size)
    return np.where(k == 0, math.sqrt(1 / size), math.sqrt(2 / size)), np.exp(-0.5j * np.pi * k / size)


def _tensor_dct(x: Array) -> Array:
    """DCT-II of a tensor by one FFT of the same length: the even samples, then the odd ones backwards."""
    torch = namespace(x)
    c, turn = _dct_tables(x.shape[-1])
    folded = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], -1)
    spectrum = torch.fft.fft(folded) * torch.as_tensor(turn, device=x.device).to(x.dtype.to_complex())
    return spectrum.real * convert(c, x)


def _tensor_idct(y: Array) -> Array:
    """Undo ``_tensor_dct``: a real vector's FFT is rebuilt from its cosine transform and inverted."""
    torch = namespace(y)
    size = y.shape[-1]
    c, turn = _dct_tables(size)
    cosine = y / convert(c, y)
    mirrored = torch.cat([torch.zeros_like(cosine[..., :1]), cosine[..., 1:].flip(-1)], -1)
    turn_back = torch.as_tensor(turn.conj(), device=y.device).to(y.dtype.to_complex())
    spectrum = torch.complex(cosine, -mirrored) * turn_back
    folded = torch.fft.irfft(spectrum[..., : size // 2 + 1], n=size)
    half = (size + 1) // 2
    x = torch.empty_like(y)
    x[..., ::2] = folded[..., :half]
    x[..., 1::2] = folded[..., half:].flip(-1)
    return x


@dataclass(frozen=True, eq=False)
class GaborFrame(_BuiltIn):
    """A tight frame of windowed cosines and sines over a whole signal of ``size`` samples.

    The signal, with silence before and after it, is seen through a window that moves by ``hop``; every view
    gives a real Fourier transform of ``fft_length >= window_length`` points. The window is normalised so
    that K'K is the identity for any hop up to the window length, at the edges too. The redundancy is about
    ``fft_length / hop``.

    Coefficients are ordered by view, then frequency, then (cosine, sine): ``GroupL21(2)`` groups the two.
    """

    isometric = True

    size: int
    window_length: int
    hop: int
    fft_length: int = 0
    """Zero stands for the window length."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a frame needs a signal of at least one sample, got size {self.size}")
        if not 1 <= self.hop <= self.window_length:
            raise InputError(
                f"need 1 <= hop <= window length, got hop {self.hop} and window length {self.window_length}"
            )
        if self.fft_length and self.fft_length < self.window_length:
            raise InputError(
                f"the transform must hold the window: need fft_length >= {self.window_length}, "
                f"got {self.fft_length}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self._views * 2 * self._bins, self.size

    @property
    def channels(self) -> int:
        return 2 * self._bins

    @property
    def _points(self) -> int:
        return self.fft_length or self.window_length

    @property
    def _bins(self) -> int:
        return self._points // 2 + 1

    @property
    def _overlap(self) -> int:
        """How many hops a window spans."""
        return -(-self.window_length // self.hop)

    @property
    def _blocks(self) -> int:
        """How many hops the signal spans."""
        return -(-self.size // self.hop)

    @property
    def _views(self) -> int:
        return self._blocks + self._overlap - 1

    @cached_property
    def window(self) -> np.ndarray[Any, Any]:
        """The tight window, padded with zeros to a whole number of hops: its squared hops sum to 1."""
        t = np.arange(self.window_length) + 0.5
        padded = np.zeros(self._overlap * self.hop)
        padded[: self.window_length] = np.sin(np.pi * t / self.window_length) ** 2
        hops = padded.reshape(self._overlap, self.hop)
        hops /= np.sqrt((hops**2).sum(0))
        return padded

    @cached_property
    def _bin_scale(self) -> np.ndarray[Any, Any]:
        """sqrt(2) where a frequency stands for its mirror image too, for cosine and sine alike."""
        scale = np.full(self._bins, math.sqrt(2))
        scale[0] = 1
        if self._points % 2 == 0:
            scale[-1] = 1
        return np.repeat(scale, 2)

    def _apply(self, x: Array) -> Array:
        xp = namespace(x)
        batch, edge = x.shape[:-1], (self._overlap - 1) * self.hop
        before = zeros((*batch, edge), x)
        after = zeros((*batch, edge + self._blocks * self.hop - self.size), x)
        padded = xp.concatenate([before, x, after], -1)
        seen = views(padded, self._overlap * self.hop, self.hop) * convert(self.window, x)
        seen = seen[..., : self.window_length]
        fft = xp.fft if is_tensor(x) else scipy.fft
        spectrum = fft.rfft(seen, n=self._points, norm="ortho")
        pairs = xp.view_as_real(spectrum).flatten(-2) if is_tensor(x) else spectrum.view(spectrum.real.dtype)
        return (pairs * convert(self._bin_scale, x)).reshape(*batch, self.shape[0])

    def _adjoint(self, y: Array) -> Array:
        xp = namespace(y)
        batch = y.shape[:-1]
        pairs = y.reshape(*batch, self._views, 2 * self._bins) / convert(self._bin_scale, y)
        if is_tensor(y):
            spectrum = xp.view_as_complex(pairs.reshape(*pairs.shape[:-1], -1, 2))
            seen = xp.fft.irfft(spectrum, n=self._points, norm="ortho")
        else:
            spectrum = pairs.view(np.result_type(y.dtype, np.complex64))
            seen = scipy.fft.irfft(spectrum, n=self._points, norm="ortho")
        span = self._overlap * self.hop
        missing = zeros((*seen.shape[:-1], span - self.window_length), y)
        seen = xp.concatenate([seen[..., : self.window_length], missing], -1) * convert(self.window, y)
        edge = (self._overlap - 1) * self.hop
        return overlap_add(seen, self.hop)[..., edge : edge + self.size]
