"""The linear maps W and V of a network: the shapes of their kernels, and their application.

A kernel analyses signals (``W``); its transpose synthesises them (``V``). W and V are stored alike, whether
they share a kernel or not: the Chambolle-Pock block has ``W = sigma K``, ``V = -tau K``.

Dense kernels act on frames of a fixed length, as in the paper. Convolutional ones act on signals of any
length: the same filters everywhere, and no frame edges.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pdrn.convex.backend import AnyArray, Array, namespace, set_field, zeros
from pdrn.convex.operators import analyse, norm_on_long_signals, synthesise
from pdrn.errors import InputError

MOST = 2**20
"""Largest size of a map: a hostile file cannot claim all memory."""


def require_size(name: str, value: Any, least: int = 1, most: int = MOST) -> int:
    """Return a size as an int; raise InputError unless it is a whole number in range."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise InputError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    return operator.index(value)


def set_size(owner: object, name: str, least: int = 1, most: int = MOST) -> None:
    """Check a size of a frozen dataclass in its ``__post_init__``, and make it an int."""
    set_field(owner, name, require_size(name, getattr(owner, name), least, most))


class KernelMap(Protocol):
    """The application of a kernel, to whole signals or hop by hop."""

    def analyse(self, x: AnyArray, kernel: AnyArray) -> AnyArray:
        """Return the coefficients of a signal."""

    def synthesise(self, y: AnyArray, kernel: AnyArray) -> AnyArray:
        """Return the signal of coefficients, by the kernel's transpose."""


@dataclass(frozen=True)
class DenseMap:
    """Matrices between frames of ``samples`` and ``coefficients``; default: as many as samples."""

    samples: int
    coefficients: int = 0

    def __post_init__(self) -> None:
        set_size(self, "samples")
        set_size(self, "coefficients", least=0)
        set_field(self, "coefficients", self.coefficients or self.samples)

    @property
    def channels(self) -> int:
        """Length of the last axis of the dual variable."""
        return self.coefficients

    @property
    def kernel_shape(self) -> tuple[int, int]:
        """``(coefficients, samples)``."""
        return self.coefficients, self.samples

    @property
    def frame_length(self) -> int | None:
        """Length that signals must have."""
        return self.samples

    def lay_out(self, x: Array, gap: int = 0) -> Array:
        """Check the length of frames, and return them as they are."""
        if x.ndim == 0 or x.shape[-1] != self.samples:
            raise InputError(
                f"this network takes frames of {self.samples} samples, got shape {tuple(x.shape)}; "
                "cut the signal first"
            )
        return x

    def gather(self, x: Array, shape: tuple[int, ...], gap: int = 0) -> Array:
        """Undo ``lay_out``."""
        return x

    def analyse(self, x: Array, kernel: Array) -> Array:
        """Multiply by the matrix, ``(..., samples) -> (..., coefficients)``."""
        return x @ kernel.T

    def synthesise(self, y: Array, kernel: Array) -> Array:
        """Multiply by its transpose, ``(..., coefficients) -> (..., samples)``."""
        return y @ kernel

    def dictionary(self) -> tuple[np.ndarray[Any, Any], float]:
        """Return the paper's dictionary, the orthonormal cosine transform, and its norm.

        More coefficients than samples are the cosine transform of signals padded with zeros, a tight frame.
        Fewer are the lower frequencies.
        """
        n = max(self.samples, self.coefficients)
        k, t = np.arange(self.coefficients)[:, None], np.arange(self.samples) + 0.5
        matrix = math.sqrt(2 / n) * np.cos(np.pi / n * k * t)
        matrix[0] /= math.sqrt(2)
        return matrix, 1.0

    def sizes(self, shape: tuple[int, ...], gap: int = 0) -> tuple[int, int]:
        """Return the numbers of samples and coefficients for cells of this shape, laid out."""
        frames = math.prod(shape[:-1])
        return frames * self.samples, frames * self.coefficients

    def products(self, shape: tuple[int, ...], gap: int = 0) -> int:
        """Count the multiply-adds of one map for cells of this shape."""
        return self.sizes(shape)[1] * self.samples


@dataclass(frozen=True)
class ConvolutionalMap:
    """``channels`` filters of ``window`` samples that move by ``hop``, over signals of any length."""

    channels: int
    window: int
    hop: int

    def __post_init__(self) -> None:
        for name in ("channels", "window", "hop"):
            set_size(self, name)
        if self.window % self.hop:
            raise InputError(
                f"the window must be a whole number of hops, got a window of {self.window} "
                f"and a hop of {self.hop}"
            )

    @property
    def kernel_shape(self) -> tuple[int, int]:
        """``(channels, window)``."""
        return self.channels, self.window

    @property
    def frame_length(self) -> int | None:
        """None: signals may have any length."""
        return None

    @property
    def edge(self) -> int:
        """Number of zeros before a signal, after it, and between two."""
        return self.window - self.hop

    def lay_out(self, x: Array, gap: int = 0) -> Array:
        """Put signals ``(..., length)`` one after another with zeros between, so that no view sees two.

        ``gap`` adds zeros, in whole hops, for layers that see several views.

        A batch is then one long signal, and every map one large matrix product. The zeros between are cells
        [0, 0]: the projection removes everything that the maps write there. Only where numbers overflow can
        a signal disturb another of its batch; all still stay in their cells.
        """
        if x.ndim == 0 or 0 in x.shape:
            raise InputError(f"this network takes signals of at least one sample, got shape {tuple(x.shape)}")
        xp, length = namespace(x), x.shape[-1]
        x = x.reshape(-1, length)
        before, after = (zeros((x.shape[0], size), x) for size in (self.edge + gap, self.hop))
        # A hop of zeros, cut to size: zeros of the missing length would fix the length of a traced graph.
        rows = xp.concatenate([before, x, after], -1)[:, : self._span(length, gap)]
        return xp.concatenate([rows.reshape(-1), zeros((self.edge + gap,), x)])

    def gather(self, x: Array, shape: tuple[int, ...], gap: int = 0) -> Array:
        """Undo ``lay_out`` for signals that had this shape."""
        length, before = shape[-1], self.edge + gap
        rows = x[: x.shape[-1] - before].reshape(-1, self._span(length, gap))
        return rows[:, before : before + length].reshape(shape)

    def _span(self, length: int, gap: int) -> int:
        """Return the length of a signal laid out: zeros before it, then whole hops."""
        return self.edge + gap + (length + self.hop - 1) // self.hop * self.hop

    def analyse(self, x: Array, kernel: Array) -> Array:
        """Correlate a signal with the filters, ``(samples,) -> (views, channels)``."""
        return analyse(x, kernel, self.hop)

    def synthesise(self, y: Array, kernel: Array) -> Array:
        """Sum the filters, weighted by coefficients, ``(views, channels) -> (samples,)``."""
        return synthesise(y, kernel, self.hop)

    def dictionary(self) -> tuple[np.ndarray[Any, Any], float]:
        """Return windowed cosines and sines at equally spaced frequencies, as unit vectors.

        If the number of channels is odd, the highest frequency has no sine. Returned with a bound on the norm
        of the map that holds for signals of any length.
        """
        t = np.arange(self.window) + 0.5
        count = -(-self.channels // 2)
        frequencies = np.linspace(0.5, max(0.5, self.window / 2 - 1), count)[:, None]
        phase = 2 * np.pi / self.window * frequencies * t
        waves = np.stack([np.cos(phase), np.sin(phase)], 1).reshape(-1, self.window)[: self.channels]
        waves = waves * np.sin(np.pi * t / self.window) ** 2
        waves /= np.linalg.norm(waves, axis=1, keepdims=True)
        return waves, norm_on_long_signals(waves, self.hop)

    def sizes(self, shape: tuple[int, ...], gap: int = 0) -> tuple[int, int]:
        """Return the numbers of samples and coefficients for cells of this shape, laid out."""
        samples = math.prod(shape[:-1]) * self._span(shape[-1], gap)
        return samples + self.edge + gap, (samples + gap) // self.hop * self.channels

    def products(self, shape: tuple[int, ...], gap: int = 0) -> int:
        """Count the multiply-adds of one map for cells of this shape."""
        return self.sizes(shape, gap)[1] * self.window


Map = DenseMap | ConvolutionalMap
