"""Streaming: any method block by block, streams of chunks, streams of raw bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray, concatenate, frozen
from pdrn.audio.files import RawFormat
from pdrn.audio.quantizers import Observer, Quantizer
from pdrn.errors import AudioError, InputError, system_reason
from pdrn.restoration.methods import Method, RestoreBlock

Progress = Callable[[int, int | None], None]
"""Callback: frames done, and frames in all (None where that is not known)."""


@dataclass(frozen=True, eq=False)
class Restored:
    """Restored samples and the cells that they lie in, both of shape (channels, frames)."""

    samples: FloatArray
    cells: Cells


def check_mix(mix: float) -> None:
    """Refuse a mix outside [0, 1]."""
    if not 0 <= mix <= 1:
        raise InputError(
            f"the mix is a number from 0 (the cells' centres) to 1 (all of the restoration), got {mix}"
        )


def check_threads(threads: int) -> None:
    """Refuse a number of threads that is not a whole number, one or more."""
    if not isinstance(threads, int) or threads < 1:
        raise InputError(f"threads are a whole number, one or more, got {threads}")


class BlockRestorer:
    """Restores channels block by block, on a grid that starts with the signal.

    Every block is computed from a window of one fixed shape, so the result does not depend on how the signal
    was cut into pieces, to the last bit.

    Parameters
    ----------
    method : Method
    block : int
        Length of a block: the method's `stream_block` or `offline_block`.
    mix : float
        From 0, the centres of the cells, to 1, the full restoration.
    threads : int
        Number of blocks computed at once.
    stateful : bool
        Whether the method keeps its state from block to block, if it has one; takes its `stream_block`.
    """

    def __init__(
        self, method: Method, block: int, mix: float = 1.0, threads: int = 1, *, stateful: bool = False
    ) -> None:
        check_mix(mix)
        check_threads(threads)
        self.method = method
        self._block, self._mix, self._threads, self._stateful = block, mix, threads, stateful
        self.reset()

    @property
    def latency(self) -> int:
        """Most samples that the output is behind the input."""
        return self._block + self.method.after - 1

    def reset(self) -> None:
        """Forget the signal so far."""
        self._waiting: list[Cells] = []
        self._before = self.method.before  # silence before the signal that is still to be added
        self._pending = 0  # samples fed and not yet restored
        self._states: list[RestoreBlock] = []  # one per channel, after the first block

    def is_due(self, coming: int) -> bool:
        """Tell whether this many more samples complete a block."""
        return self._complete(self._pending + coming) > 0

    def feed(self, cells: Cells) -> Restored:
        """Take the cells of the next samples, shape (channels, frames); return the blocks they complete."""
        self.take(cells)
        return self._drain(self._complete(self._pending))

    def take(self, cells: Cells) -> None:
        """Queue the cells of the next samples for the next feed or flush."""
        if self._before:
            cells = concatenate([_silence(len(cells), self._before), cells])
            self._pending -= self._before
            self._before = 0
        self._waiting.append(cells)
        self._pending += cells.shape[-1]

    def flush(self) -> Restored:
        """Return the rest, as if silence followed, and reset."""
        if not self._waiting:
            return nothing(1)
        pending, count = self._pending, -(-self._pending // self._block)
        channels = len(self._waiting[0])
        held = sum(piece.shape[-1] for piece in self._waiting)
        missing = self.method.before + count * self._block + self.method.after - held
        self._waiting.append(_silence(channels, missing))
        rest = self._drain(count)
        self.reset()
        return Restored(rest.samples[:, :pending], rest.cells[:, :pending])

    def run(
        self, pieces: Iterable[Cells], frames: int | None = None, progress: Progress | None = None
    ) -> Iterator[Restored]:
        """Restore a whole signal given in pieces of shape (channels, frames), piece by piece."""
        done = 0
        for piece in pieces:
            restored = self.feed(piece)
            if restored.samples.size:
                yield restored
            done += restored.samples.shape[-1]
            if progress is not None:
                progress(done, frames)
        rest = self.flush()
        if rest.samples.size:
            yield rest
        if progress is not None:
            progress(done + rest.samples.shape[-1], frames)

    def _complete(self, pending: int) -> int:
        """Return the number of blocks that this many pending samples complete."""
        return max(pending - self.method.after, 0) // self._block

    def _open_streams(self, channels: int) -> list[RestoreBlock]:
        opened = [self.method.open_stream() for _ in range(channels)] if self._stateful else []
        return [each for each in opened if each is not None]

    def _drain(self, count: int) -> Restored:
        """Compute the next `count` blocks of every channel and drop the cells that no later block needs."""
        channels = len(self._waiting[0])
        if count == 0:
            return nothing(channels)
        cells = concatenate(self._waiting)
        length, before = count * self._block, self.method.before
        window = before + self._block + self.method.after
        restored = np.empty((channels, length))
        starts = range(0, length, self._block)

        def compute(job: tuple[RestoreBlock, int, list[int]]) -> None:
            restore, channel, places = job
            for start in places:
                around = cells[channel, start : start + window]
                inside = around[before : before + self._block]
                restored[channel, start : start + self._block] = _mix(inside, restore(around), self._mix)

        # Dropped meanwhile: after an interruption a state is between two blocks, and new ones do as well.
        states, self._states = self._states or self._open_streams(channels), []
        if states:
            jobs = [(state, channel, [*starts]) for channel, state in enumerate(states)]
        else:
            jobs = [
                (self.method.restore, channel, [start]) for channel in range(channels) for start in starts
            ]
        if self._threads == 1 or len(jobs) == 1:
            for job in jobs:
                compute(job)
        else:
            with ThreadPoolExecutor(self._threads) as executor:
                list(executor.map(compute, jobs))
        self._states = states
        self._waiting = [cells[:, length:]]
        self._pending -= length
        return Restored(restored, cells[:, before : before + length])


def nothing(channels: int) -> Restored:
    """Return zero samples of this many channels."""
    empty = np.empty((channels, 0))
    return Restored(empty, Cells(empty, empty))


def _silence(channels: int, length: int) -> Cells:
    return Cells(*frozen(np.zeros((channels, length)), np.zeros((channels, length))))


def _mix(cells: Cells, samples: FloatArray, mix: float) -> FloatArray:
    """Project the samples into the cells, and go from the centres this part of the way."""
    inside = cells.project_inside(samples.astype(np.float64))
    return inside if mix == 1 else cells.project_inside((1 - mix) * cells.centre + mix * inside)


class Stream:
    """Restores a signal that arrives in chunks, in constant memory.

    The output does not depend on the chunks, and equals `Restorer.restore` of the whole up to rounding.
    Chunks are observed when a block is complete. A chunk off the levels is refused then, and counts as never
    fed. Get a stream from `Restorer.stream`.

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
        quantizer: Quantizer,
        sample_rate_hz: int,
        mix: float = 1.0,
        threads: int = 1,
    ) -> None:
        self._blocks = BlockRestorer(method, method.stream_block, mix, threads, stateful=True)
        self._quantizer = quantizer
        self.sample_rate_hz = sample_rate_hz
        self.reset()

    @property
    def method(self) -> str:
        """The name of the method: network, cp, or both."""
        return self._blocks.method.name

    @property
    def model(self) -> str | None:
        """The name of the model; None for Chambolle-Pock alone."""
        return self._blocks.method.model

    @property
    def latency_samples(self) -> int:
        """Most samples that the output is behind the input."""
        return self._blocks.latency

    @property
    def latency_seconds(self) -> float:
        """The same in seconds."""
        return self.latency_samples / self.sample_rate_hz

    def feed(self, chunk: ArrayLike) -> FloatArray:
        """Take the next samples, (frames,) or (channels, frames), and return the restored ones so far."""
        samples = self.feed_cells(chunk).samples
        return samples[0] if self._shape == () else samples

    def flush(self) -> FloatArray:
        """Return the rest of the signal; another may follow."""
        has_channels = self._shape not in (None, ())
        samples = self.flush_cells().samples
        return samples if has_channels else samples[0]

    def reset(self) -> None:
        """Forget the signal so far; another may follow."""
        self._blocks.reset()
        self._shape: tuple[int, ...] | None = None
        self._chunks: list[NDArray[np.float64]] = []  # not observed yet
        self._length = 0  # of all of them
        self._observer = Observer(self._quantizer)

    def feed_cells(self, chunk: ArrayLike) -> Restored:
        """Do as `feed`, and return the cells too, both of shape (channels, frames)."""
        samples = as_channels(chunk)
        shape = np.shape(chunk)[:-1]
        if self._shape is not None and shape != self._shape:
            raise InputError(
                f"the stream has chunks of shape {(*self._shape, 'frames')}, got {np.shape(chunk)}; "
                "flush or reset it before another signal"
            )
        self._shape = shape
        self._chunks.append(samples)
        self._length += samples.shape[-1]
        if not self._blocks.is_due(self._length):
            return nothing(len(samples))
        return self._blocks.feed(self._observe())

    def flush_cells(self) -> Restored:
        """Do as `flush`, and return the cells too."""
        if self._chunks:
            self._blocks.take(self._observe())
        restored = self._blocks.flush()
        self.reset()
        return restored

    def _observe(self) -> Cells:
        """Return the cells of the waiting chunks; drop the first chunk that is refused."""
        try:
            cells = self._observer.observe(np.concatenate(self._chunks, axis=-1))
        except InputError:
            refused = bisect_left(range(len(self._chunks)), True, key=lambda last: self._refuses(last + 1))
            self._length -= self._chunks.pop(refused).shape[-1]
            raise
        self._chunks, self._length = [], 0
        return cells

    def _refuses(self, count: int) -> bool:
        try:
            self._observer.preview(np.concatenate(self._chunks[:count], axis=-1))
        except InputError:
            return True
        return False


def as_channels(samples: ArrayLike, most_channels: int = 64) -> NDArray[np.float64]:
    """Return samples of shape (frames,) or (channels, frames) as float64 of shape (channels, frames).

    An array with more channels than frames and than `most_channels` is refused: it is probably transposed.
    """
    array = np.asarray(samples)
    if array.dtype.kind != "f":
        raise InputError(f"samples are floats with full scale 1, got {array.dtype}; convert and scale them")
    if array.ndim not in (1, 2):
        raise InputError(f"need (frames,) or (channels, frames), got shape {array.shape}; reshape it")
    if array.ndim == 2 and len(array) > max(array.shape[1], most_channels):
        raise InputError(f"need (channels, frames), got shape {array.shape}; transpose it")
    rows = np.atleast_2d(array).astype(np.float64)
    if np.isinf(rows).any():
        raise InputError("a sample is infinite; repair it, or mark it as missing with NaN")
    return rows


_READ_BYTES = 1 << 16


def restore_bytes(
    stream: Stream, source: BinaryIO, read_as: RawFormat, write_as: RawFormat
) -> Iterator[bytes]:
    """Restore raw samples, each as soon as it is ready.

    Parameters
    ----------
    stream : Stream
    source : binary file
        Read with `read1` if it has it, so that no read waits for a full buffer.
    read_as, write_as : RawFormat
        With the same number of channels.
    """
    rest = b""
    while content := _read_some(source):
        content = rest + content
        whole = len(content) - len(content) % read_as.frame_bytes
        rest = content[whole:]
        if whole:
            restored = stream.feed_cells(read_as.decode(content[:whole]))
            if restored.samples.size:
                yield write_as.encode(restored.samples, restored.cells)
    last = stream.flush_cells()
    if last.samples.size:
        yield write_as.encode(last.samples, last.cells)
    if rest:
        raise AudioError(
            f"the raw samples end {len(rest)} bytes into a frame of {read_as.frame_bytes}; "
            "check the encoding and the number of channels"
        )


def _read_some(source: BinaryIO) -> bytes:
    read = getattr(source, "read1", source.read)
    try:
        content: bytes = read(_READ_BYTES)
        return content
    except OSError as error:
        raise AudioError(f"the raw samples cannot be read: {system_reason(error)}; get them again") from error
