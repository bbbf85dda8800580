"""Chambolle-Pock on overlapping frames, averaged: restores any cells, and nothing is learned.

Every frame is a problem of its own: the signal in its cells whose cosine coefficients are sparsest,

    min |w K x|_1   with   lo <= x <= hi,

solved only so far as it helps. The weights w spare coefficients that stand out of the quantization error,
and where most do, as in noise, steps are short; `tuning` says how long they are otherwise. Where samples are
missing or were cut off, the weights follow what was restored, round after round. Each sample is the
mean of its values in all frames that hold it, weighted by a window, and so lies in its cell as they all do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.frames import cut, join
from pdrn.convex import DCT, ChambollePock, Problem, dequantization, solve
from pdrn.restoring.tuning import tuned_pace

FRAME_SECONDS = 0.032
OVERLAP = 8
"""How many frames hold each sample."""

STREAM_FRAMES, OFFLINE_FRAMES = 2, 32
"""Blocks of streams and of what is there already, in frames."""

ITERATIONS = 20

CAUTION = 3
"""Steps shrink with this power of the mean weight: the fuller a spectrum, the less it wants to be sparse."""

LOUDEST = 16.0
"""Frames louder than this, a binary logarithm as in `tuning`, are left alone: their cells are fine enough."""

CLIPPED_SHARE = 0.02
CLIPPED_LOUDNESS = 8.0
"""A frame is clipped if more than this share of its cells is open-ended, and its level so many radii."""

DAMAGE_ROUNDS = 4
DAMAGE_SCALE, FINER = 0.3, 0.4
DAMAGE_PACE = 3.0
DAMAGE_PATIENCE = 2
"""Damaged frames are solved so often, each time with weights by what came of it before: what stands out, in
units of the level, and how much less each time; the steps, in these units; how many times more iterations."""

_GRAIN = 64  # frame lengths are multiples: quick to transform, and whole hops
_LONGEST_FRAME = 16384
_FAINT = 1e-12
_SHORTEST_STEP = 1e-30


@dataclass(frozen=True)
class OverlappedChambollePock:
    """The method for a frame length, in samples, and a number of iterations per frame.

    `pace` gives the steps, in units of the mean radius of a frame's cells, by its loudness; see `tuning`.
    """

    frame_length: int = 512
    iterations: int = ITERATIONS
    pace: Callable[[FloatArray], FloatArray] = tuned_pace

    def __post_init__(self) -> None:
        if not isinstance(self.iterations, int | np.integer) or self.iterations < 1:
            raise ValueError(f"iterations are a whole number, one or more, got {self.iterations}")

    @staticmethod
    def at(sample_rate_hz: int, iterations: int | None = None) -> OverlappedChambollePock:
        """Return the method with frames of 32 ms at this rate.

        >>> OverlappedChambollePock.at(44100).frame_length
        1408
        """
        grains = max(round(FRAME_SECONDS * sample_rate_hz / _GRAIN), 1)
        length = min(grains * _GRAIN, _LONGEST_FRAME)
        return OverlappedChambollePock(length, ITERATIONS if iterations is None else iterations)

    @property
    def hop(self) -> int:
        """From one frame to the next."""
        return self.frame_length // OVERLAP

    @property
    def name(self) -> str:
        """Chambolle-Pock."""
        return "cp"

    @property
    def model(self) -> None:
        """None: nothing is learned."""

    @property
    def before(self) -> int:
        """A frame that holds the first sample of a block may begin this much earlier."""
        return self.frame_length - self.hop

    @property
    def after(self) -> int:
        """A frame that holds the last sample of a block may end this much later."""
        return self.before

    @property
    def stream_block(self) -> int:
        """Two frames."""
        return STREAM_FRAMES * self.frame_length

    @property
    def offline_block(self) -> int:
        """A second, at frames of 32 ms."""
        return OFFLINE_FRAMES * self.frame_length

    @cached_property
    def _window(self) -> FloatArray:
        return np.sqrt(np.hanning(self.frame_length + 2)[1:-1])

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel; see `Method`."""
        lo, hi, centre, radius = (
            cut(part.astype(np.float32), self.frame_length, self.hop)
            for part in (cells.lo, cells.hi, cells.centre, cells.radius)
        )
        moves = self._solve(lo, hi, centre, radius) - centre
        length = cells.shape[-1] - self.before - self.after
        inside = cells[self.before : self.before + length]
        return inside.centre + join(moves, length, self.hop, self._window)

    def follow(self) -> None:
        """Return None: every block is computed from its surroundings."""

    def _solve(self, lo: FloatArray, hi: FloatArray, centre: FloatArray, radius: FloatArray) -> FloatArray:
        """Return the restored frames, shape (frames, frame_length)."""
        finite = (radius > 0) & (radius < np.inf)
        error = np.where(finite, radius, 0).mean(-1) / np.maximum(finite.mean(-1, dtype=np.float32), 1e-9)
        level = np.sqrt((centre**2).mean(-1))
        damaged = _damaged(lo, hi, error, level)
        loudness = np.log2(np.maximum(level, _FAINT) / np.maximum(error, _FAINT))
        quantized = ~damaged & (error > _FAINT) & (loudness < LOUDEST)
        restored = centre.copy()
        if (rows := np.flatnonzero(quantized)).size:
            weight = _weights(self._K.apply(centre[rows]), error[rows, None])
            steps = error[rows] * self.pace(loudness[rows]) * weight.mean(-1) ** CAUTION
            problem = self._problem(lo[rows], hi[rows], weight, steps)
            restored[rows] = solve(problem, ChambollePock(), iterations=self.iterations).x
        if (rows := np.flatnonzero(damaged)).size:
            for finer in FINER ** np.arange(DAMAGE_ROUNDS):
                scale = np.float32(DAMAGE_SCALE * finer) * level[rows, None]
                weight = _weights(self._K.apply(restored[rows]), scale)
                problem = self._problem(lo[rows], hi[rows], weight, DAMAGE_PACE * level[rows])
                many = DAMAGE_PATIENCE * self.iterations
                restored[rows] = solve(problem, ChambollePock(), iterations=many, x0=restored[rows]).x
        return restored

    @cached_property
    def _K(self) -> DCT:
        return DCT(self.frame_length)

    def _problem(self, lo: FloatArray, hi: FloatArray, weight: FloatArray, steps: FloatArray) -> Problem:
        problem = dequantization(lo, hi, self._K, weight)
        inverse = 1 / np.maximum(steps[:, None], _SHORTEST_STEP).astype(np.float32)
        return replace(problem, weight=inverse)


def _damaged(lo: FloatArray, hi: FloatArray, error: FloatArray, level: FloatArray) -> NDArray[np.bool_]:
    """Tell which frames have more wrong with them than quantization: gaps, or peaks that were cut off.

    A few open-ended cells are the outermost ones of a quantizer; many, in a frame whose other cells are
    narrow, are clipping.
    """
    no_lo, no_hi = np.isneginf(lo), np.isposinf(hi)
    gaps = (no_lo & no_hi).any(-1)
    clipped = (no_lo ^ no_hi).mean(-1) > np.where(error > 0, CLIPPED_SHARE, 0)
    return np.asarray((gaps | (clipped & (error < level / CLIPPED_LOUDNESS))) & (level > 0))


def _weights(coefficients: FloatArray, scale: FloatArray) -> FloatArray:
    """Return 1 for coefficients far below the scale, and less the more they stand out of it."""
    power = np.pad(coefficients**2, [(0, 0), (1, 1)], "edge")
    power = power[:, :-2] / 4 + power[:, 1:-1] / 2 + power[:, 2:] / 4
    return 1 / (1 + np.sqrt(power) / scale)
