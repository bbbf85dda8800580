"""The restorer: arrays in, arrays out, and the way to streams and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.files import Source
from pdrn.audio.placing import Target
from pdrn.restoring import pretrained
from pdrn.restoring.averaged import Averaged
from pdrn.restoring.blockwise import Blockwise, Progress
from pdrn.restoring.choosing import MethodName, automatic, check_method, network_for
from pdrn.restoring.description import Description, LevelOptions
from pdrn.restoring.levels import Levels, cells_of, step_of
from pdrn.restoring.method import Method
from pdrn.restoring.overlapped import OverlappedChambollePock
from pdrn.restoring.recording import Report, restore_file
from pdrn.restoring.stream import Stream, as_channels

_PIECE = 1 << 16


@dataclass(frozen=True)
class Restorer:
    """Restores quantized sound inside its cells.

    Parameters
    ----------
    model : str or path, optional
        The name of a network that comes along, or the file of another, as `pdrn train` writes it: for sound
        of its sample rate and one step.
    iterations : int, optional
        Iterations of Chambolle-Pock; what is tuned unless given.
    mix : float
        From 0, the centres of the cells, to 1, the full restoration.
    threads : int
        How many blocks are computed at once.
    method : str
        "network"; "cp" for Chambolle-Pock, which takes any rate and cells; "both", their mean; or "auto": the
        model if one is named, both where a network that comes along fits the rate and the step, and
        Chambolle-Pock otherwise. See `choosing`.
    shifts : int, optional
        On how many grids a network is run, to average the results; see `LearnedMethod`.

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
    method: MethodName = "auto"
    shifts: int | None = None

    def __post_init__(self) -> None:
        check_method(self.method, self.model, self.iterations, self.shifts)
        solver = OverlappedChambollePock.at(1, self.iterations)
        Blockwise(solver, solver.offline_block, self.mix, self.threads)  # refuses what cannot be
        if self.model is not None:
            pretrained.shipped_or_own(self.model)

    @classmethod
    def from_pretrained(cls, name: str, **settings: Any) -> Restorer:
        """Return a restorer with a network that comes along; the settings are the other parameters.

        `pdrn.restoring.pretrained.names` says what there is.
        """
        pretrained.path(name)  # a file that is called so is not meant
        return cls(name, **settings)

    def method_for(self, sample_rate_hz: int, step: float | None) -> Method:
        """Return what restores sound of this rate, whose cells are all one step wide, or differ (None)."""
        rate = _rate(sample_rate_hz)
        solver = OverlappedChambollePock.at(rate, self.iterations)
        if self.model is not None:
            model = pretrained.shipped_or_own(self.model)
        elif self.method in ("network", "both"):
            model = network_for(rate)
        elif self.method == "auto" and self.iterations is None and (found := automatic(rate, step)):
            model = found
        else:
            return solver
        network = model.method(rate, step, self.shifts)
        alone = self.method == "network" or (self.method == "auto" and self.model is not None)
        return network if alone else Averaged(network, solver)

    def blocks(self, sample_rate_hz: int, step: float | None) -> Blockwise:
        """Return what restores sound of this rate, whose cells are all one step wide or differ, in pieces."""
        method = self.method_for(sample_rate_hz, step)
        return Blockwise(method, method.offline_block, self.mix, self.threads)

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
        blocks = self.blocks(sample_rate_hz, step)
        restored = [piece.samples for piece in blocks.run(pieces, frames, progress)]
        return np.concatenate([np.empty((len(rows), 0)), *restored], axis=-1).reshape(cells.shape)

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
            self.blocks,
            source,
            target,
            Description(**levels),
            subtype=subtype,
            overwrite=overwrite,
            verify=verify,
            gaps=gaps,
            progress=progress,
        )

    def stream(self, sample_rate_hz: int, *, gaps: bool = False, **levels: Unpack[LevelOptions]) -> Stream:
        """Return a stream for sound of this rate, whose levels have to be named.

        With gaps, NaN stands for missing samples, instead of being refused.
        """
        return self.stream_of(sample_rate_hz, Description(**levels).levels(), gaps=gaps)

    def stream_of(self, sample_rate_hz: int, levels: Levels, *, gaps: bool = False) -> Stream:
        """Return a stream for sound of this rate and any levels."""
        method = self.method_for(sample_rate_hz, None if gaps else step_of(levels))
        return Stream(method, levels, sample_rate_hz, self.mix, self.threads, gaps=gaps)


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
    method: MethodName = "auto",
    progress: Progress | None = None,
    **levels: Unpack[LevelOptions],
) -> FloatArray:
    """Restore samples as `Restorer(method=method).restore` does.

    Examples
    --------
    >>> import pdrn
    >>> quantized = np.array([0.125, 0.375, 0.125])
    >>> restored = pdrn.restore(quantized, 16000, bits=3)
    >>> bool((np.abs(restored - quantized) <= 0.125).all())
    True
    """
    return Restorer(method=method).restore(samples, sample_rate_hz, progress=progress, **levels)
