"""The restorer: arrays and files in, restored arrays and files out."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.files import PCM_BITS, Sound, Source, blocks, format_of, opened, writer
from pdrn.audio.levels import (
    BoundedLevels,
    ClippedLevels,
    Description,
    LevelOptions,
    LevelReader,
    Levels,
    cells_of,
    step_of,
)
from pdrn.errors import AudioError, InputError
from pdrn.restoration import registry
from pdrn.restoration.methods import Averaged, Method, OverlappedChambollePock
from pdrn.restoration.registry import MethodName, automatic, check_method, network_for
from pdrn.restoration.streaming import Blockwise, Progress, Stream, as_channels
from pdrn.storage import Target, refuse_same

Rows = NDArray[np.float64]
"""Samples of all channels, shape (channels, frames)."""

Blocks = Callable[[int, float | None], Blockwise]
"""Gives what restores sound of a sample rate whose cells all have one width, or differ (None)."""

BLOCK_LENGTH = 1 << 15
LOOKED_AT = 1 << 20
"""From so many samples the levels are told, the first ones after silence."""


@dataclass(frozen=True)
class Report:
    """What was done to a recording."""

    input: str
    output: str
    levels: str
    method: str
    """How it was restored: "network", "cp" for Chambolle-Pock, or "both"."""
    model: str | None
    """The name of the network, if one took part."""
    sample_rate_hz: int
    channels: int
    frames: int
    subtype: str
    seconds: float
    verified: bool | None
    clipped: int | None = None
    """How many samples were cut off, where it was said that some were."""
    missing: int | None = None
    """How many samples were missing, where it was said that some may be."""

    @property
    def times_real_time(self) -> float:
        """Length of the sound over the time that it took."""
        return self.frames / self.sample_rate_hz / self.seconds


def restore_file(
    blocks_for: Blocks,
    source: Source,
    target: Target,
    description: Description,
    *,
    subtype: str | None = None,
    overwrite: bool = False,
    verify: bool = False,
    gaps: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Restore a sound file into another, which appears when it is complete and not otherwise.

    `Restorer.restore_file` says what the parameters are.
    """
    began = time.perf_counter()
    if verify and (_is_pipe(source) or _is_pipe(target)):
        raise AudioError("what comes from or goes to a pipe cannot be read again; verify files on disk")
    refuse_same(source, target)
    name = str(source) if isinstance(source, str | os.PathLike) else "the sound"
    frames = 0
    try:
        with opened(source, BLOCK_LENGTH, gaps=gaps) as (header, sounds):
            rate, total = header.sample_rate_hz, header.frames
            pieces = (_rows(sound) for sound in sounds)
            head, telling = beginning_of(pieces)
            subtype = subtype or deeper(header.subtype, format_of(target))
            levels = fitting(description.levels_of(telling, header.subtype, gaps=gaps), subtype)
            if not gaps:
                refuse_shallow(levels, subtype)
            restoring, reader = blocks_for(rate, None if gaps else step_of(levels)), LevelReader(levels)
            cells = map(reader.cells, itertools.chain(head, pieces))
            with writer(
                target,
                rate,
                header.channels,
                total,
                subtype=subtype,
                overwrite=overwrite,
                check=partial(_verify, source, target, levels, gaps) if verify else None,
            ) as put:
                for restored in restoring.run(cells, total, progress):
                    put(restored.samples, restored.cells)
                    frames += restored.samples.shape[-1]
    except AudioError:
        raise
    except ValueError as error:
        raise AudioError(f"{name}: {error}") from error
    return Report(
        input=name,
        output=str(target),
        levels=str(levels),
        method=restoring.method.name,
        model=restoring.method.model,
        sample_rate_hz=rate,
        channels=header.channels,
        frames=frames,
        subtype=subtype,
        seconds=time.perf_counter() - began,
        verified=verify or None,
        clipped=reader.open_ended if isinstance(levels, ClippedLevels) else None,
        missing=reader.missing if gaps else None,
    )


def beginning_of(pieces: Iterator[Rows]) -> tuple[list[Rows], Rows]:
    """Take as many pieces as levels are told from; return them, and the samples that tell.

    Silence before anything is heard does not tell, and takes no memory, however long it is.
    """
    taken, telling = list[Rows](), list[Rows]()
    seen = 0
    for rows in pieces:
        first = rows[:, :1].copy()
        if not telling and (rows == first).all():
            taken.append(np.broadcast_to(first, rows.shape))
            continue
        taken.append(rows)
        telling.append(rows)
        seen += rows.size
        if seen >= LOOKED_AT:
            break
    return taken, np.concatenate(telling or taken[-1:], axis=-1)


def deeper(subtype: str, format: str) -> str:
    """Return how to store what was restored from this subtype: with room between its levels, and above.

    FLAC ends at 24 bits, and at full scale.

    >>> deeper("PCM_16", "WAV"), deeper("PCM_24", "WAV"), deeper("PCM_16", "FLAC")
    ('FLOAT', 'DOUBLE', 'PCM_24')
    """
    if format == "FLAC":
        return "PCM_24"
    return "DOUBLE" if subtype in ("PCM_24", "PCM_32", "DOUBLE") else "FLOAT"


def fitting(levels: Levels, subtype: str) -> Levels:
    """Return the levels with cells that output of this subtype can hold.

    Peaks that were cut off stay open-ended: they are worth more than a subtype that cannot hold them.
    """
    return BoundedLevels(levels) if subtype in PCM_BITS and not isinstance(levels, ClippedLevels) else levels


def refuse_shallow(
    levels: Levels, subtype: str, remedy: str = "a deeper subtype, or a name that ends in .wav"
) -> None:
    """Refuse to store what was restored where there is no room between its levels."""
    step, bits = step_of(levels), PCM_BITS.get(subtype)
    if step is not None and bits is not None and step <= 2.0 ** (1 - bits):
        raise AudioError(
            f"{subtype} has nothing between the levels ({levels}), so that nothing could be restored; "
            f"choose {remedy}"
        )


def _is_pipe(place: Source | Target) -> bool:
    if not isinstance(place, str | os.PathLike) or os.fspath(place) == "-":
        return True
    return os.path.exists(place) and not os.path.isfile(place)


def _rows(sound: Sound) -> Rows:
    return np.atleast_2d(sound.samples)


def _verify(source: Source, target: Target, levels: Levels, gaps: bool, written: BinaryIO) -> None:
    """Read input and output again, and refuse a sample outside its cell or a length that differs."""
    written.seek(0)
    read = LevelReader(levels)
    inputs = (read.cells(_rows(sound)) for sound in blocks(source, BLOCK_LENGTH, gaps=gaps))
    outputs = (_rows(sound) for sound in blocks(written, BLOCK_LENGTH))
    for cells, samples in itertools.zip_longest(inputs, outputs):
        if cells is None or samples is None or cells.shape != samples.shape:
            raise AudioError(f"{target} is not as long as the input; write it again")
        if violation := cells.violation(samples):
            raise AudioError(f"{target} is outside a cell by {violation:g}; write it again")


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
    >>> from pdrn.audio.corpus import speech
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
            registry.shipped_or_own(self.model)

    @classmethod
    def from_pretrained(cls, name: str, **settings: Any) -> Restorer:
        """Return a restorer with a network that comes along; the settings are the other parameters.

        `pdrn.restoration.registry.names` says what there is.
        """
        registry.path(name)  # a file that is called so is not meant
        return cls(name, **settings)

    def method_for(self, sample_rate_hz: int, step: float | None) -> Method:
        """Return what restores sound of this rate, whose cells are all one step wide, or differ (None)."""
        rate = _rate(sample_rate_hz)
        solver = OverlappedChambollePock.at(rate, self.iterations)
        if self.model is not None:
            model = registry.shipped_or_own(self.model)
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
        raise InputError(f"the sample rate is a whole number of hertz, got {sample_rate_hz!r}")
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
