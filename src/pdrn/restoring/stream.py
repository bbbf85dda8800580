"""The stream: samples in, chunk by chunk, restored samples out, a fixed time later."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import FloatArray
from pdrn.restoring.blockwise import STREAM_FRAMES, Blockwise, Restored
from pdrn.restoring.levels import Levels, cells_of
from pdrn.restoring.method import Method


class Stream:
    """Restores a signal that arrives in chunks, in constant memory.

    What comes out does not depend on how the signal was cut into chunks, and is what `Restorer.restore`
    makes of the whole. Get one from `Restorer.stream`.

    Examples
    --------
    >>> from pdrn import Restorer
    >>> stream = Restorer().stream(16000, bits=5)
    >>> stream.latency_samples
    1471
    >>> pieces = [stream.feed(np.full(1000, 1 / 32)) for _ in range(3)] + [stream.flush()]
    >>> [len(piece) for piece in pieces]
    [0, 1024, 1024, 952]
    """

    def __init__(
        self, method: Method, levels: Levels, sample_rate_hz: int, mix: float = 1.0, threads: int = 1
    ) -> None:
        self._blocks = Blockwise(method, STREAM_FRAMES, mix, threads)
        self._levels = levels
        self._shape: tuple[int, ...] | None = None
        self.sample_rate_hz = sample_rate_hz

    @property
    def latency_samples(self) -> int:
        """By how many samples, at most, the output is behind the input."""
        return self._blocks.latency

    @property
    def latency_seconds(self) -> float:
        """The same in seconds."""
        return self.latency_samples / self.sample_rate_hz

    def feed(self, chunk: ArrayLike) -> FloatArray:
        """Take the next samples, (frames,) or (channels, frames), and return those that are ready."""
        return self._as_fed(self.feed_cells(chunk))

    def flush(self) -> FloatArray:
        """Return the rest; the signal is over, and another may follow."""
        rest = self._as_fed(self.flush_cells())
        self._shape = None
        return rest

    def reset(self) -> None:
        """Forget the signal so far; another may follow."""
        self._blocks.reset()
        self._shape = None

    def feed_cells(self, chunk: ArrayLike) -> Restored:
        """Do as `feed`, and return the cells too, both of shape (channels, frames)."""
        samples = as_channels(chunk)
        shape = np.shape(chunk)[:-1]
        if self._shape is not None and shape != self._shape:
            raise ValueError(
                f"the stream has chunks of shape {(*self._shape, 'frames')}, got {np.shape(chunk)}; "
                "flush or reset it before another signal"
            )
        cells = cells_of(samples, self._levels)
        self._shape = shape
        return self._blocks.feed(cells)

    def flush_cells(self) -> Restored:
        """Do as `flush`, and return the cells too."""
        return self._blocks.flush()

    def _as_fed(self, restored: Restored) -> FloatArray:
        return restored.samples[0] if self._shape in (None, ()) else restored.samples


def as_channels(samples: ArrayLike, most_channels: int = 64) -> NDArray[np.float64]:
    """Return samples of shape (frames,) or (channels, frames) in float64 as (channels, frames).

    More channels than frames, and than `most_channels`, are taken for a transposed array and refused.
    """
    array = np.asarray(samples)
    if array.dtype.kind != "f":
        raise ValueError(f"samples are floats with full scale 1, got {array.dtype}; convert and scale them")
    if array.ndim not in (1, 2):
        raise ValueError(f"need (frames,) or (channels, frames), got shape {array.shape}; reshape it")
    if array.ndim == 2 and len(array) > max(array.shape[1], most_channels):
        raise ValueError(f"need (channels, frames), got shape {array.shape}; transpose it")
    rows = np.atleast_2d(array).astype(np.float64)
    if np.isinf(rows).any():
        raise ValueError("a sample is infinite; repair it, or mark it as missing with NaN")
    return rows
