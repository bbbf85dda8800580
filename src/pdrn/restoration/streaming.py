"""Streaming: restore block by block, from cells, chunks of samples or raw bytes.

`BlockRestorer` runs a method on the cells of a signal, one block at a time; arrays, files and streams pass
through it. `Stream` takes a live signal in chunks of samples, `restore_bytes` the raw bytes of a pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray, concatenate, frozen
from pdrn.audio.files import RawFormat
from pdrn.audio.quantizers import PCM_BITS, Observer, Quantizer, pcm_subtype
from pdrn.errors import AudioError, InputError, system_reason
from pdrn.restoration.methods import Method, RestoreBlock

Progress = Callable[[int, int | None], None]
"""Callback: frames done, and frames in all (None if unknown)."""


@dataclass(frozen=True, eq=False)
class Restored:
    """Restored samples and their cells, both of shape (channels, frames)."""

    samples: FloatArray
    cells: Cells


class BlockRestorer:
    """Restores channels block by block, on a grid that starts with the signal.

    Every block is computed from a window of one fixed shape: the block, `method.before` cells before it and
    `method.after` cells after it. The result is the same, to the last bit, for any division of the signal
    into pieces.

    Parameters
    ----------
    method : Method
    block : int
        Length of a block: the method's `stream_block` or `offline_block`.
    mix : float
        From 0, the centres of the cells, to 1, the full restoration.
    threads : int
        Number of blocks computed in parallel.
    stateful : bool
        Whether a method with `open_stream` keeps its state from block to block; needs its `stream_block`.
    """

    def __init__(
        self, method: Method, block: int, mix: float = 1.0, threads: int = 1, *, stateful: bool = False
    ) -> None:
        self.method = method
        self._block, self._mix, self._threads, self._stateful = block, mix, threads, stateful
        self.reset()

    @property
    def latency(self) -> int:
        """Largest delay of the output behind the input, in samples."""
        return self._block + self.method.after - 1

    def reset(self) -> None:
        """Forget the signal."""
        self._waiting: list[Cells] = []  # `method.before` cells of context, then the pending ones
        self._pending = 0  # samples fed and not yet restored
        self._states: list[RestoreBlock] = []  # one per channel, after the first block

    def feed(self, cells: Cells, at_least: int = 1) -> Restored:
        """Take the cells of the next samples, shape (channels, frames); return the blocks they complete.

        Fewer blocks than `at_least` wait for the next call.
        """
        if not self._waiting:
            self._waiting = [_silence(len(cells), self.method.before)]
        self._waiting.append(cells)
        self._pending += cells.shape[-1]
        complete = max(self._pending - self.method.after, 0) // self._block
        return self._drain(complete if complete >= at_least else 0)

    def flush(self) -> Restored:
        """Return the rest, as if silence followed, and reset."""
        if not self._waiting:
            return _nothing(1)
        pending, count = self._pending, -(-self._pending // self._block)
        padding = count * self._block + self.method.after - pending
        self._waiting.append(_silence(len(self._waiting[0]), padding))
        rest = self._drain(count)
        self.reset()
        return Restored(rest.samples[:, :pending], rest.cells[:, :pending])

    def run(
        self, pieces: Iterable[Cells], frames: int | None = None, progress: Progress | None = None
    ) -> Iterator[Restored]:
        """Restore a whole signal given in pieces of shape (channels, frames), piece by piece."""
        done = 0
        for piece in pieces:
            restored = self.feed(piece, at_least=self._threads)
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

    def _drain(self, count: int) -> Restored:
        """Compute the next `count` blocks of every channel and drop the cells that no later block needs."""
        channels = len(self._waiting[0])
        if count == 0:
            return _nothing(channels)
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

        # An interruption leaves states between two blocks: they are dropped until the blocks are done.
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

    def _open_streams(self, channels: int) -> list[RestoreBlock]:
        opened = [self.method.open_stream() for _ in range(channels)] if self._stateful else []
        return [state for state in opened if state is not None]


def _nothing(channels: int) -> Restored:
    return Restored(np.empty((channels, 0)), _silence(channels, 0))


def _silence(channels: int, length: int) -> Cells:
    return Cells(*frozen(np.zeros((channels, length)), np.zeros((channels, length))))


def _mix(cells: Cells, samples: FloatArray, mix: float) -> FloatArray:
    """Project the samples into the cells, and return the point at `mix` between the centres and them."""
    inside = cells.project_inside(samples.astype(np.float64))
    return inside if mix == 1 else cells.project_inside((1 - mix) * cells.centre + mix * inside)


class Stream:
    """Restores a signal that arrives in chunks, in constant memory.

    The output does not depend on the chunks, and equals `Restorer.restore` of the whole signal up to
    rounding. A refused chunk leaves the stream unchanged. Open a stream with `Restorer.stream`.

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
        """Largest delay of the output behind the input, in samples."""
        return self._blocks.latency

    @property
    def latency_seconds(self) -> float:
        """Largest delay of the output behind the input, in seconds."""
        return self.latency_samples / self.sample_rate_hz

    def feed(self, chunk: ArrayLike) -> FloatArray:
        """Take the next samples, (frames,) or (channels, frames), and return the ones now restored."""
        samples = self.feed_cells(chunk).samples
        return samples[0] if self._shape == () else samples

    def flush(self) -> FloatArray:
        """Return the rest of the signal, and start a new one."""
        has_channels = self._shape not in (None, ())
        samples = self.flush_cells().samples
        return samples if has_channels else samples[0]

    def reset(self) -> None:
        """Forget the signal, and start a new one."""
        self._blocks.reset()
        self._shape: tuple[int, ...] | None = None
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
        cells = self._observer.observe(samples)
        self._shape = shape
        return self._blocks.feed(cells)

    def flush_cells(self) -> Restored:
        """Do as `flush`, and return the cells too."""
        restored = self._blocks.flush()
        self.reset()
        return restored


def as_channels(samples: ArrayLike, most_channels: int = 64) -> NDArray[np.float64]:
    """Return samples of shape (frames,) or (channels, frames) as float64 of shape (channels, frames).

    Integers are PCM, and scaled to a full scale of 1. An array with more channels than frames and than
    `most_channels` is refused: it is probably transposed.
    """
    array = np.asarray(samples)
    if (subtype := pcm_subtype(array)) is not None:
        middle = 128.0 if subtype == "PCM_U8" else 0.0
        array = (array - middle) / 2.0 ** (PCM_BITS[subtype] - 1)
    if array.dtype.kind != "f":
        raise InputError(
            f"samples are floats or integers of 8, 16 or 32 bits, got {array.dtype}; convert them"
        )
    if array.ndim not in (1, 2):
        raise InputError(f"need (frames,) or (channels, frames), got shape {array.shape}; reshape it")
    if array.ndim == 2 and len(array) > max(array.shape[1], most_channels):
        raise InputError(f"need (channels, frames), got shape {array.shape}; transpose it")
    rows = np.atleast_2d(array).astype(np.float64)
    if np.isinf(rows).any():
        raise InputError("a sample is infinite; repair it, or mark it as missing with NaN")
    return rows


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
        restored = stream.feed_cells(read_as.decode(content[:whole]))
        yield write_as.encode(restored.samples, restored.cells)
    last = stream.flush_cells()
    yield write_as.encode(last.samples, last.cells)
    if rest:
        raise AudioError(
            f"the raw samples end {len(rest)} bytes into a frame of {read_as.frame_bytes}; "
            "check the encoding and the number of channels"
        )


def _read_some(source: BinaryIO) -> bytes:
    read = getattr(source, "read1", source.read)
    try:
        content: bytes = read(1 << 16)
        return content
    except OSError as error:
        raise AudioError(f"the raw samples cannot be read: {system_reason(error)}; get them again") from error
