"""Fast operators: the orthonormal cosine transform, of images too, and a tight Gabor frame."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy.fft

from pdrn.convex.arrays import Array, convert, is_tensor, namespace, zeros
from pdrn.convex.convolution import overlap_add, views
from pdrn.convex.operators import Operator


@dataclass(frozen=True, eq=False)
class DCT(Operator):
    """The orthonormal DCT-II of vectors of length ``size``, the paper's dictionary.

    ``(K x)_k = c_k sum_t x_t cos(pi k (2 t + 1) / (2 n))`` with ``c_0 = sqrt(1 / n)``, ``c_k = sqrt(2 / n)``.
    """

    isometric = True

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a cosine transform needs at least one sample, got size {self.size}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def _apply(self, x: Array, overwrite: bool) -> Array:
        if is_tensor(x):
            return _tensor_dct(x)
        return scipy.fft.dct(x, norm="ortho", overwrite_x=overwrite)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        if is_tensor(y):
            return _tensor_idct(y)
        return scipy.fft.idct(y, norm="ortho", overwrite_x=overwrite)


@dataclass(frozen=True, eq=False)
class DCT2D(Operator):
    """The orthonormal cosine transform of images, rows and columns, that are given as vectors row by row."""

    isometric = True

    height: int
    width: int

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise ValueError(f"an image needs at least one pixel, got {self.height} by {self.width}")

    @property
    def shape(self) -> tuple[int, int]:
        return self.height * self.width, self.height * self.width

    def _image(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], self.height, self.width)

    def _apply(self, x: Array, overwrite: bool) -> Array:
        if is_tensor(x):
            return _tensor_dct(_tensor_dct(self._image(x)).mT).mT.reshape(x.shape)
        return scipy.fft.dctn(self._image(x), axes=(-2, -1), norm="ortho").reshape(x.shape)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
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
class GaborFrame(Operator):
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
            raise ValueError(f"a frame needs a signal of at least one sample, got size {self.size}")
        if not 1 <= self.hop <= self.window_length:
            raise ValueError(
                f"need 1 <= hop <= window length, got hop {self.hop} and window length {self.window_length}"
            )
        if self.fft_length and self.fft_length < self.window_length:
            raise ValueError(
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

    def _apply(self, x: Array, overwrite: bool) -> Array:
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

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
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
