"""The restorer: arrays in, arrays out, and the way to streams and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.files import Source
from pdrn.audio.placing import Target
from pdrn.restoring.blockwise import OFFLINE_FRAMES, Blockwise, Progress, Restored
from pdrn.restoring.description import Description, LevelOptions
from pdrn.restoring.levels import Levels, cells_of, step_of
from pdrn.restoring.method import Method
from pdrn.restoring.overlapped import OverlappedChambollePock
from pdrn.restoring.recording import Report, restore_file
from pdrn.restoring.stream import Stream, as_channels
from pdrn.restoring.trained import model_of

_PIECE = 1 << 16


@dataclass(frozen=True)
class Restorer:
    """Restores quantized sound inside its cells.

    Parameters
    ----------
    model : path, optional
        A convolutional network in units of the cell, as `pdrn train` writes it, for sound of its sample
        rate and one step. Without it sound is restored by Chambolle-Pock, whatever its rate and cells.
    iterations : int, optional
        Iterations of Chambolle-Pock; what is tuned unless given.
    mix : float
        From 0, the centres of the cells, to 1, the full restoration.
    threads : int
        How many blocks are computed at once.

    Examples
    --------
    >>> from pdrn.audio.sample import speech
    >>> samples, sample_rate_hz = speech()
    >>> samples = samples[: 2 * sample_rate_hz]
    >>> quantized = (np.floor(samples * 16) + 0.5) / 16
    >>> restored = Restorer().restore(quantized, sample_rate_hz, bits=5)
    >>> bool((np.abs(restored - quantized) <= 1 / 32).all())
    True
    >>> bool(((restored - samples) ** 2).mean() < 0.4 * ((quantized - samples) ** 2).mean())
    True
    """

    model: str | None = None
    iterations: int | None = None
    mix: float = 1.0
    threads: int = 1

    def __post_init__(self) -> None:
        if self.model is not None and self.iterations is not None:
            raise ValueError("a network has its layers, and no iterations; leave one of the two out")
        solver = OverlappedChambollePock.at(1, self.iterations)
        Blockwise(solver, 1, self.mix, self.threads)  # refuses what cannot be, here and now
        if self.model is not None:
            model_of(self.model)

    def method(self, sample_rate_hz: int, step: float | None) -> Method:
        """Return what restores sound of this rate, whose cells are all one step wide, or differ (None)."""
        if self.model is None:
            return OverlappedChambollePock.at(sample_rate_hz, self.iterations)
        return model_of(self.model).method(sample_rate_hz, step)

    def restore(
        self,
        samples: ArrayLike,
        sample_rate_hz: int,
        *,
        progress: Progress | None = None,
        **levels: Unpack[LevelOptions],
    ) -> FloatArray:
        """Return the samples restored, of the same shape, in float64.

        Parameters
        ----------
        samples : array_like of floats, shape (frames,) or (channels, frames)
            Full scale is [-1, 1]. NaN marks missing samples. Channels do not influence each other.
        sample_rate_hz : int
        progress : callable, optional
            Called with the number of frames that are done, and of all.
        **levels
            `bits`, `step`, `law`, `clip_at` and `truncated` as in `Description`; detected unless given.
        """
        rows = as_channels(samples, most_channels=8)
        found = Description(**levels).levels_of(rows)
        step = None if np.isnan(rows).any() else step_of(found)
        return self.restore_cells(cells_of(rows, found), sample_rate_hz, step, progress).reshape(
            np.shape(samples)
        )

    def restore_cells(
        self,
        cells: Cells,
        sample_rate_hz: int,
        step: float | None = None,
        progress: Progress | None = None,
    ) -> FloatArray:
        """Return samples restored from any cells, shape (frames,) or (channels, frames).

        A network takes part only where all cells have one width, but for open-ended ones, and it is told.
        """
        rows = cells if len(cells.shape) == 2 else cells[None]
        frames = rows.shape[-1]
        pieces = (rows[:, start : start + _PIECE] for start in range(0, frames, _PIECE))
        blocks = [
            restored.samples for restored in self.pieces(pieces, sample_rate_hz, step, frames, progress)
        ]
        return np.concatenate([np.empty((len(rows), 0)), *blocks], axis=-1).reshape(cells.shape)

    def pieces(
        self,
        cells: Iterable[Cells],
        sample_rate_hz: int,
        step: float | None = None,
        frames: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Restored]:
        """Yield restored pieces of a signal that is given in pieces, shape (channels, frames) each."""
        blocks = Blockwise(self.method(_rate(sample_rate_hz), step), OFFLINE_FRAMES, self.mix, self.threads)
        done = 0
        for piece in cells:
            restored = blocks.feed(piece)
            if restored.samples.size:
                yield restored
            done += restored.samples.shape[-1]
            if progress is not None:
                progress(done, frames)
        rest = blocks.flush()
        if rest.samples.size:
            yield rest
        if progress is not None:
            progress(done + rest.samples.shape[-1], frames)

    def restore_file(
        self,
        source: Source,
        target: Target,
        *,
        subtype: str | None = None,
        overwrite: bool = False,
        verify: bool = False,
        gaps: bool = False,
        progress: Progress | None = None,
        **levels: Unpack[LevelOptions],
    ) -> Report:
        """Restore a sound file into another, which appears when it is complete and not otherwise.

        Parameters
        ----------
        source : str, path or binary file
            "-" stands for standard input.
        target : str or path
            "-" stands for standard output.
        subtype : str, optional
            How each sample is stored, such as PCM_24 or FLOAT; deeper than the input unless given.
        overwrite : bool
            Replace a file that is there already, instead of refusing.
        verify : bool
            Read both files again, and prove that every sample is in its cell.
        gaps : bool
            Take NaN in files of floats for missing samples, instead of refusing it.
        progress : callable, optional
            Called with the number of frames that are done, and of all where that is known.
        **levels
            As in `restore`.

        Raises
        ------
        AudioError
            If a file cannot be read or written, or the levels are not what they were said to be.
        """
        return restore_file(
            self.pieces,
            source,
            target,
            Description(**levels),
            subtype=subtype,
            overwrite=overwrite,
            verify=verify,
            gaps=gaps,
            progress=progress,
        )

    def stream(self, sample_rate_hz: int, **levels: Unpack[LevelOptions]) -> Stream:
        """Return a stream for sound of this rate, whose levels have to be named."""
        return self.stream_of(sample_rate_hz, Description(**levels).levels())

    def stream_of(self, sample_rate_hz: int, levels: Levels) -> Stream:
        """Return a stream for sound of this rate and any levels."""
        method = self.method(_rate(sample_rate_hz), step_of(levels))
        return Stream(method, levels, sample_rate_hz, self.mix, self.threads)


def _rate(sample_rate_hz: int) -> int:
    if (
        isinstance(sample_rate_hz, bool)
        or not isinstance(sample_rate_hz, int | np.integer)
        or sample_rate_hz < 1
    ):
        raise ValueError(f"the sample rate is a whole number of hertz, got {sample_rate_hz!r}")
    return int(sample_rate_hz)


def restore(
    samples: ArrayLike,
    sample_rate_hz: int,
    *,
    progress: Progress | None = None,
    **levels: Unpack[LevelOptions],
) -> FloatArray:
    """Restore samples as `Restorer().restore` does.

    Examples
    --------
    >>> import pdrn
    >>> quantized = np.array([0.125, 0.375, 0.125])
    >>> restored = pdrn.restore(quantized, 16000, bits=3)
    >>> bool((np.abs(restored - quantized) <= 0.125).all())
    True
    """
    return Restorer().restore(samples, sample_rate_hz, progress=progress, **levels)
