"""The stream: samples in, chunk by chunk, restored samples out, a fixed time later."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.restoring.blockwise import Blockwise, Restored, nothing
from pdrn.restoring.levels import LevelReader, Levels
from pdrn.restoring.method import Method


class Stream:
    """Restores a signal that arrives in chunks, in constant memory.

    What comes out does not depend on how the signal was cut into chunks, and is what `Restorer.restore`
    makes of the whole. Chunks are looked at when a block is complete; one that has other levels is refused
    then, and counts as never fed. Get a stream from `Restorer.stream`.

    Examples
    --------
    >>> from pdrn import Restorer
    >>> stream = Restorer(method="cp").stream(16000, bits=5)
    >>> stream.latency_samples
    1471
    >>> pieces = [stream.feed(np.full(1000, 1 / 32)) for _ in range(3)] + [stream.flush()]
    >>> [len(piece) for piece in pieces]
    [0, 1024, 1024, 952]
    """

    def __init__(
        self,
        method: Method,
        levels: Levels,
        sample_rate_hz: int,
        mix: float = 1.0,
        threads: int = 1,
        *,
        gaps: bool = False,
    ) -> None:
        self._blocks = Blockwise(method, method.stream_block, mix, threads, follow=True)
        self._levels, self._gaps = levels, gaps
        self.sample_rate_hz = sample_rate_hz
        self.reset()

    @property
    def method(self) -> str:
        """What restores it: network, cp, or both."""
        return self._blocks.method.name

    @property
    def model(self) -> str | None:
        """The name of the network that restores it; None for Chambolle-Pock."""
        return self._blocks.method.model

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
        samples = self.feed_cells(chunk).samples
        return samples[0] if self._shape == () else samples

    def flush(self) -> FloatArray:
        """Return the rest; the signal is over, and another may follow."""
        has_channels = self._shape not in (None, ())
        samples = self.flush_cells().samples
        return samples if has_channels else samples[0]

    def reset(self) -> None:
        """Forget the signal so far; another may follow."""
        self._blocks.reset()
        self._shape: tuple[int, ...] | None = None
        self._chunks: list[NDArray[np.float64]] = []  # not looked at yet
        self._length = 0  # of all of them
        self._read = LevelReader(self._levels)

    def feed_cells(self, chunk: ArrayLike) -> Restored:
        """Do as `feed`, and return the cells too, both of shape (channels, frames)."""
        samples = as_channels(chunk)
        if not self._gaps and np.isnan(samples).any():
            raise ValueError("a sample is NaN; where gaps shall be filled in, ask for it (gaps=True, --gaps)")
        shape = np.shape(chunk)[:-1]
        if self._shape is not None and shape != self._shape:
            raise ValueError(
                f"the stream has chunks of shape {(*self._shape, 'frames')}, got {np.shape(chunk)}; "
                "flush or reset it before another signal"
            )
        self._shape = shape
        self._chunks.append(samples)
        self._length += samples.shape[-1]
        if not self._blocks.is_due(self._length):
            return nothing(len(samples))
        return self._blocks.feed(self._looked_at())

    def flush_cells(self) -> Restored:
        """Do as `flush`, and return the cells too."""
        if self._chunks:
            self._blocks.take(self._looked_at())
        restored = self._blocks.flush()
        self.reset()
        return restored

    def _looked_at(self) -> Cells:
        """Return the cells of the chunks that wait, which do not from now on; drop one that is refused."""
        try:
            cells = self._read.cells(np.concatenate(self._chunks, axis=-1))
        except ValueError:
            refused = bisect_left(range(len(self._chunks)), True, key=lambda last: self._refuses(last + 1))
            self._length -= self._chunks.pop(refused).shape[-1]
            raise
        self._chunks, self._length = [], 0
        return cells

    def _refuses(self, count: int) -> bool:
        try:
            self._read.look(np.concatenate(self._chunks[:count], axis=-1))
        except ValueError:
            return True
        return False


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
