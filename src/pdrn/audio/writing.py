"""Writing: sound out, whole or not at all, and never out of its cells.

Samples are put on the output's grid, at the nearest point that lies in the cell; an
output too coarse for a cell is refused. The same samples always make the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells
from pdrn.audio.files import LARGEST_RATE_HZ, PCM_BITS, info
from pdrn.audio.placing import Target, whole_or_gone
from pdrn.audio.system import AudioError

Put = Callable[..., None]

FORMAT_OF_SUFFIX = {
    ".wav": "WAV",
    ".rf64": "RF64",
    ".aif": "AIFF",
    ".aiff": "AIFF",
    ".au": "AU",
    ".snd": "AU",
    ".flac": "FLAC",
}
_BYTES = {"FLOAT": 4, "DOUBLE": 8} | {subtype: bits // 8 for subtype, bits in PCM_BITS.items()}
_LARGEST_FILE = 0xFFFF_0000  # what 32-bit sizes in a WAV, AIFF or AU header can count, with room for the rest
_MOST_CHANNELS = 1024


def settle(samples: ArrayLike, cells: Cells | None = None, subtype: str = "PCM_24") -> NDArray[np.float64]:
    """Return the samples as a file of this subtype would hold them: on its grid, and inside the cells.

    Parameters
    ----------
    samples : array_like
        In [-1, 1] for the PCM subtypes, unless cells say where they belong.
    cells : Cells, optional
        Of the samples' shape. Each sample goes to the nearest point of the grid that lies in its cell; a
        cell's upper end belongs to its neighbour, so that what is written has its code again.
    subtype : str
        PCM_S8, PCM_U8, PCM_16, PCM_24, PCM_32, FLOAT or DOUBLE.

    Raises
    ------
    AudioError
        If a cell holds no point of the grid, or a sample cannot be stored.

    Examples
    --------
    >>> settle([0.3], Cells([0.301], [0.4]), "PCM_U8") * 128
    array([39.])
    """
    x = _real(samples)
    if subtype not in _BYTES:
        raise AudioError(f"{subtype} output may leave the cells; choose one of {', '.join(_BYTES)}")
    if not np.isfinite(x).all():
        raise AudioError("a sample is NaN or infinite and cannot be written; check what made it")
    if cells is not None and cells.shape != x.shape:
        raise AudioError(
            f"samples of shape {x.shape} do not match cells of shape {cells.shape}; pass one each"
        )
    if subtype in PCM_BITS:
        return _settle_pcm(x, cells, subtype)
    with np.errstate(over="ignore"):
        stored = x.astype(np.float32) if subtype == "FLOAT" else x
    if cells is not None:
        try:
            stored = cells.astype(stored.dtype).settle(stored)
        except ValueError as error:
            raise AudioError(f"FLOAT is too coarse: {error} and write DOUBLE") from error
    if not np.isfinite(stored).all():
        raise AudioError(f"a sample is too large for {subtype} output; write DOUBLE")
    return stored.astype(np.float64)


def _real(samples: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(samples)
    if array.dtype.kind not in "fiub":
        raise AudioError(f"samples need real numbers, got {array.dtype}; convert them first")
    return array.astype(np.float64, copy=False)


def _settle_pcm(x: NDArray[np.float64], cells: Cells | None, subtype: str) -> NDArray[np.float64]:
    scale = 2.0 ** (PCM_BITS[subtype] - 1)
    inside = x if cells is None else cells.project(x)
    if x.size and np.abs(inside).max() > 1:
        raise AudioError(
            f"a sample of {np.abs(inside).max():.6g} is beyond full scale; write FLOAT, or turn it down"
        )
    if cells is None:
        return np.clip(np.rint(x * scale), -scale, scale - 1) / scale
    lo, hi = cells.lo.astype(np.float64) * scale, cells.hi.astype(np.float64) * scale
    first, last = np.ceil(lo), np.floor(hi)
    last -= (last == hi) & (lo < hi)
    first += (first == lo) & (first < last)  # neither end: then it rounds back whichever way ties go
    first, last = np.maximum(first, -scale), np.minimum(last, scale - 1)
    empty = np.count_nonzero(first > last)
    if empty:
        raise AudioError(
            f"{empty} of {x.size} cells hold no {subtype} value; write a deeper subtype, such as FLOAT"
        )
    return np.clip(np.rint(x * scale), first, last) / scale


def write(
    target: Target,
    samples: ArrayLike,
    sample_rate_hz: int,
    cells: Cells | None = None,
    *,
    subtype: str = "PCM_24",
    format: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a sound file, whole or not at all.

    Parameters
    ----------
    target : str or path
        "-" stands for standard output.
    samples : array_like, shape (frames,) or (channels, frames)
    sample_rate_hz : int
    cells : Cells, optional
        Where the samples have to stay; see `settle`.
    subtype : str
        How deep each sample is stored; see `settle`.
    format : str, optional
        WAV, RF64, AIFF, AU or FLAC; by the target's suffix unless given, WAV for standard output.
    overwrite : bool
        Replace a file that is there already, instead of refusing.
    """
    samples = _real(samples)
    if samples.ndim == 2 and len(samples) > max(samples.shape[1], 8):
        raise AudioError(f"need (channels, frames), got shape {samples.shape}; transpose it")
    channels = len(samples) if samples.ndim == 2 else 1
    options: dict[str, Any] = {"subtype": subtype, "format": format, "overwrite": overwrite}
    with writer(target, sample_rate_hz, channels, **options) as put:
        put(samples, cells)


@contextmanager
def writer(
    target: Target,
    sample_rate_hz: int,
    channels: int = 1,
    frames: int | None = None,
    *,
    subtype: str = "PCM_24",
    format: str | None = None,
    overwrite: bool = False,
    check: Callable[[BinaryIO], None] | None = None,
) -> Iterator[Put]:
    """Write a sound file block by block: yields a function that takes samples and, optionally, cells.

    The file appears under its name when the block of code ends well, and never otherwise. Parameters are
    those of `write`. Where it is known beforehand how many `frames` there will be, what is too long for a
    format is refused at once, and a WAV file is written as RF64, its form for more than 4 GB.
    A `check` looks at the complete file before it has its name, and may raise.
    """
    chosen = format or format_of(target)
    _check_output(chosen, subtype, sample_rate_hz, channels)
    if format is None and chosen == "WAV" and not _fits(frames or 0, channels, chosen, subtype):
        chosen = "RF64"
    format = chosen
    _check_length(frames or 0, channels, format, subtype)
    with whole_or_gone(target, overwrite) as stream:
        try:
            file = soundfile.SoundFile(
                stream.fileno(),
                "w",
                int(sample_rate_hz),
                int(channels),
                subtype,
                format=format,
                closefd=False,
            )
        except (soundfile.SoundFileError, TypeError, ValueError, OSError) as error:
            raise AudioError(
                f"there are no {format} files of {channels} channels at {sample_rate_hz} Hz; write WAV"
            ) from error
        with file:
            written = 0

            def put(samples: ArrayLike, cells: Cells | None = None) -> None:
                nonlocal written
                block = _as_stored(settle(samples, cells, subtype), subtype)
                if block.ndim == 0 or block.shape[:-1] != (
                    () if channels == 1 and block.ndim == 1 else (channels,)
                ):
                    raise AudioError(f"need {channels} channels, got samples of shape {block.shape}")
                written += block.shape[-1]
                _check_length(written, channels, format, subtype)
                try:
                    file.write(block.T)
                except (soundfile.SoundFileError, AssertionError) as error:
                    raise AudioError(f"{target} cannot be written; is the disk full?") from error

            yield put
        if written == 0:
            raise AudioError(f"{target}: there are no samples to write")
        if format == "AIFF" and _BYTES[subtype] * channels == 1 and written % 2:
            raise AudioError(
                f"8-bit AIFF files count samples in pairs and would gain one after these {written}; write WAV"
            )
        _forget_time(stream.fileno())
        stream.seek(0)
        if not _is_whole(stream, written):
            raise AudioError(f"{target} cannot be written; is the disk full?")
        if check is not None:
            check(stream)


def _check_output(format: str, subtype: str, sample_rate_hz: int, channels: int) -> None:
    """Refuse what there are no files of."""
    for name, number, most in (
        ("sample rate", sample_rate_hz, LARGEST_RATE_HZ),
        ("number of channels", channels, _MOST_CHANNELS),
    ):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 1 <= number <= most:
            raise AudioError(f"the {name} needs a whole number from 1 to {most}, got {number!r}")
    if subtype not in _BYTES:
        raise AudioError(f"{subtype} output may leave the cells; choose one of {', '.join(_BYTES)}")
    if format not in FORMAT_OF_SUFFIX.values() or not soundfile.check_format(format, subtype):
        raise AudioError(
            f"there are no {format} files of subtype {subtype}; choose another, such as WAV and FLOAT"
        )
    if format == "FLAC" and channels > 8:
        raise AudioError(f"FLAC files have 8 channels at most, got {channels}; write WAV")
    if format == "FLAC" and (sample_rate_hz > 655350 or (sample_rate_hz > 65535 and sample_rate_hz % 10)):
        raise AudioError(
            f"FLAC files have no sample rate of {sample_rate_hz} Hz, above 65535 only tens up to 655350; "
            "write WAV"
        )


def _fits(frames: int, channels: int, format: str, subtype: str) -> bool:
    """Tell whether a format can count so many frames."""
    return format in ("RF64", "FLAC") or frames * channels * _BYTES[subtype] <= _LARGEST_FILE


def _check_length(frames: int, channels: int, format: str, subtype: str) -> None:
    if not _fits(frames, channels, format, subtype):
        raise AudioError(f"more than 4 GB do not fit into {format}; write RF64 or FLAC")


def _as_stored(settled: NDArray[np.float64], subtype: str) -> NDArray[Any]:
    """Return settled samples in the type that libsndfile stores without computing: integers for PCM."""
    if subtype not in PCM_BITS:
        return settled.astype(np.float32 if subtype == "FLOAT" else np.float64)
    dtype = np.int16 if PCM_BITS[subtype] <= 16 else np.int32
    return (settled * -float(np.iinfo(dtype).min)).astype(dtype)


def _forget_time(file_descriptor: int) -> None:
    """Zero the time of writing that libsndfile puts into the header of float files, in a chunk PEAK."""
    head = os.pread(file_descriptor, 1 << 16, 0)
    at = head.find(b"PEAK")
    if 0 <= at < max(head.find(b"data"), head.find(b"SSND")):
        os.pwrite(file_descriptor, bytes(4), at + 12)


def _is_whole(stream: BinaryIO, frames: int) -> bool:
    """Tell whether what was written can be read: errors while closing a file come without notice."""
    try:
        return info(stream).frames == frames
    except AudioError:
        return False


def format_of(target: Target) -> str:
    """Return the format that a file's name tells, WAV for standard output."""
    if os.fspath(target) == "-":
        return "WAV"
    try:
        return FORMAT_OF_SUFFIX[Path(target).suffix.lower()]
    except KeyError:
        known = ", ".join(FORMAT_OF_SUFFIX)
        raise AudioError(
            f"{target} does not tell a format that can be written; end it in one of {known}, "
            "or in / for a folder"
        ) from None
