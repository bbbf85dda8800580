"""Recordings: a sound file in, a restored one out, in memory that does not grow with its length."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.files import PCM_BITS, Sound, Source, blocks, opened
from pdrn.audio.placing import Target, refuse_same
from pdrn.audio.system import AudioError
from pdrn.audio.writing import format_of, writer
from pdrn.restoring.blockwise import Blockwise, Progress
from pdrn.restoring.description import Description
from pdrn.restoring.levels import BoundedLevels, ClippedLevels, LevelReader, Levels, step_of

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
