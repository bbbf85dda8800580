"""Any method over signals of any length: the same blocks, however the signal arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pdrn.audio.cells import Cells, FloatArray, concatenate, frozen
from pdrn.restoring.method import Method, RestoreBlock

Progress = Callable[[int, int | None], None]
"""Told how many frames are done, and of how many, None where that is not known."""


@dataclass(frozen=True, eq=False)
class Restored:
    """Restored samples and the cells that they lie in, both of shape (channels, frames)."""

    samples: FloatArray
    cells: Cells


class Blockwise:
    """Restores channels block by block, on a grid that starts with the signal.

    Every block is computed from a window of one fixed shape, so that the result does not depend on how the
    signal was cut into pieces, to the last bit.

    Parameters
    ----------
    method : Method
    block : int
        Length of a block: the method's for streams, or for what is there already.
    mix : float
        From 0, the centres of the cells, to 1, the full restoration.
    threads : int
        How many blocks are computed at once.
    follow : bool
        Whether each block is computed from the one before, where the method can: for its blocks of streams.
    """

    def __init__(
        self, method: Method, block: int, mix: float = 1.0, threads: int = 1, *, follow: bool = False
    ) -> None:
        if not 0 <= mix <= 1:
            raise ValueError(
                f"the mix is a number from 0 (the cells' centres) to 1 (all of the restoration), got {mix}"
            )
        if not isinstance(threads, int) or threads < 1:
            raise ValueError(f"threads are a whole number, one or more, got {threads}")
        self.method = method
        self._block, self._mix, self._threads, self._follow = block, mix, threads, follow
        self.reset()

    @property
    def latency(self) -> int:
        """By how many samples the output is behind the input, at most."""
        return self._block + self.method.after - 1

    def reset(self) -> None:
        """Forget the signal so far."""
        self._waiting: list[Cells] = []
        self._before = self.method.before  # how much of the silence before the signal is still to be added
        self._pending = 0  # samples that came in and not out
        self._followers: list[RestoreBlock] = []  # one for each channel, if there was a block

    def is_due(self, coming: int) -> bool:
        """Tell whether so many more samples complete a block."""
        return self._complete(self._pending + coming) > 0

    def feed(self, cells: Cells) -> Restored:
        """Take the cells of the next samples, shape (channels, frames); return what can be told by now."""
        self.take(cells)
        return self._drain(self._complete(self._pending))

    def take(self, cells: Cells) -> None:
        """Take the cells of the next samples, and leave it to the next feed or flush to restore them."""
        if self._before:
            cells = concatenate([_silence(len(cells), self._before), cells])
            self._pending -= self._before
            self._before = 0
        self._waiting.append(cells)
        self._pending += cells.shape[-1]

    def flush(self) -> Restored:
        """Return the rest: the signal is over, and silence follows. The next one may begin."""
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
        """Yield restored pieces of a whole signal that is given in pieces, shape (channels, frames) each."""
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
        """Count the blocks that can be computed when so many samples came in and not out."""
        return max(pending - self.method.after, 0) // self._block

    def _new_followers(self, channels: int) -> list[RestoreBlock]:
        found = [self.method.follow() for _ in range(channels)] if self._follow else []
        return [each for each in found if each is not None]

    def _drain(self, count: int) -> Restored:
        """Compute the next so many blocks of every channel and let go of what no other needs."""
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
                restored[channel, start : start + self._block] = _mixed(inside, restore(around), self._mix)

        # Taken away meanwhile: one that breaks off is somewhere between two blocks, and new ones do as well.
        followers, self._followers = self._followers or self._new_followers(channels), []
        if followers:
            jobs = [(follower, channel, [*starts]) for channel, follower in enumerate(followers)]
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
        self._followers = followers
        self._waiting = [cells[:, length:]]
        self._pending -= length
        return Restored(restored, cells[:, before : before + length])


def nothing(channels: int) -> Restored:
    """Return no samples."""
    empty = np.empty((channels, 0))
    return Restored(empty, Cells(empty, empty))


def _silence(channels: int, length: int) -> Cells:
    return Cells(*frozen(np.zeros((channels, length)), np.zeros((channels, length))))


def _mixed(cells: Cells, samples: FloatArray, mix: float) -> FloatArray:
    """Return a point of each cell on the way from its centre to the sample."""
    inside = cells.settle(samples.astype(np.float64))
    return inside if mix == 1 else cells.settle((1 - mix) * cells.centre + mix * inside)
