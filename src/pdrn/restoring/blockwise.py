"""Any method over signals of any length: the same blocks, however the signal arrives."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pdrn.audio.cells import Cells, FloatArray, concatenate, frozen
from pdrn.restoring.method import Method

STREAM_FRAMES = 2
"""Blocks of a stream, in frames of the method: short, so that samples come out soon."""

OFFLINE_FRAMES = 32
"""Blocks of what is there already: long, so that little is computed twice where they meet."""

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
    frames : int
        Length of a block, in frames of the method.
    mix : float
        From 0, the centres of the cells, to 1, the full restoration.
    threads : int
        How many blocks are computed at once.
    """

    def __init__(self, method: Method, frames: int, mix: float = 1.0, threads: int = 1) -> None:
        if not 0 <= mix <= 1:
            raise ValueError(
                f"the mix is a number from 0 (the input) to 1 (all of the restoration), got {mix}"
            )
        if threads < 1:
            raise ValueError(f"at least one thread has to do the work, got {threads}")
        self._method, self._mix, self._threads = method, mix, threads
        self._block = frames * method.frame_length
        self.reset()

    @property
    def latency(self) -> int:
        """By how many samples the output is behind the input, at most."""
        return self._block + self._method.context - 1

    def reset(self) -> None:
        """Forget the signal so far."""
        self._waiting: list[Cells] = []
        self._before = self._method.context  # how much of the silence before the signal is still to be added
        self._pending = 0  # samples that came in and not out

    def feed(self, cells: Cells) -> Restored:
        """Take the cells of the next samples, shape (channels, frames); return what can be told by now."""
        if self._before:
            cells = concatenate([_silence(len(cells), self._before), cells])
            self._pending -= self._before
            self._before = 0
        self._waiting.append(cells)
        self._pending += cells.shape[-1]
        return self._drain(max(self._pending - self._method.context, 0) // self._block)

    def flush(self) -> Restored:
        """Return the rest: the signal is over, and silence follows. The next one may begin."""
        if not self._waiting:
            empty = np.empty((1, 0))
            return Restored(empty, Cells(empty, empty))
        pending, count = self._pending, -(-self._pending // self._block)
        channels = len(self._waiting[0])
        held = sum(piece.shape[-1] for piece in self._waiting)
        missing = count * self._block + 2 * self._method.context - held
        self._waiting.append(_silence(channels, missing))
        rest = self._drain(count)
        self.reset()
        return Restored(rest.samples[:, :pending], rest.cells[:, :pending])

    def _drain(self, count: int) -> Restored:
        """Compute the next so many blocks of every channel and let go of what no other needs."""
        channels = len(self._waiting[0])
        if count == 0:
            empty = np.empty((channels, 0))
            return Restored(empty, Cells(empty, empty))
        cells = concatenate(self._waiting)
        length, context = count * self._block, self._method.context
        window = self._block + 2 * context
        restored = np.empty((channels, length))
        places = [(channel, start) for channel in range(channels) for start in range(0, length, self._block)]

        def compute(place: tuple[int, int]) -> None:
            channel, start = place
            around = cells[channel, start : start + window]
            inside = around[context : context + self._block]
            restored[channel, start : start + self._block] = _mixed(
                inside, self._method.restore(around), self._mix
            )

        if self._threads == 1 or len(places) == 1:
            for place in places:
                compute(place)
        else:
            with ThreadPoolExecutor(self._threads) as executor:
                list(executor.map(compute, places))
        self._waiting = [cells[:, length:]]
        self._pending -= length
        return Restored(restored, cells[:, context : context + length])


def _silence(channels: int, length: int) -> Cells:
    return Cells(*frozen(np.zeros((channels, length)), np.zeros((channels, length))))


def _mixed(cells: Cells, samples: FloatArray, mix: float) -> FloatArray:
    """Return a point of each cell on the way from its centre to the sample."""
    inside = cells.project(samples.astype(np.float64))
    return inside if mix == 1 else cells.project((1 - mix) * cells.centre + mix * inside)
