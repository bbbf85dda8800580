"""Sound files and raw samples: `read`, `blocks`, `info`, `write`, `writer`, `RawFormat`.

Files are read block by block. A pipe is copied to a temporary file first, since most formats need seeking.
Truncated files are refused. Output is written atomically, and every sample stays in its cell.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
import soundfile
import soxr
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.quantizers import PCM_BITS
from pdrn.errors import AudioError, InputError, system_reason
from pdrn.storage import Target, atomic_write, standard_input, temporary_file

Source = str | os.PathLike[str] | BinaryIO

SUFFIXES = (".wav", ".rf64", ".aif", ".aiff", ".aifc", ".au", ".snd", ".flac", ".ogg", ".oga", ".opus")
"""Suffixes that are read."""

FORMAT_OF_SUFFIX = {
    ".wav": "WAV",
    ".rf64": "RF64",
    ".aif": "AIFF",
    ".aiff": "AIFF",
    ".au": "AU",
    ".snd": "AU",
    ".flac": "FLAC",
}
"""Suffixes that are written, and their formats by libsndfile's names."""

_LARGEST_RATE_HZ = 10_000_000

_READ_FORMATS = ("WAV", "WAVEX", "RF64", "AIFF", "AU", "FLAC", "OGG")
_BYTES = {"FLOAT": 4, "DOUBLE": 8} | {subtype: bits // 8 for subtype, bits in PCM_BITS.items()}
_UNKNOWN_LENGTH = 1 << 62
_BLOCK_VALUES = 1 << 20
_LARGEST_FILE = 0xFFFF_0000  # bytes of samples: WAV, AIFF and AU count in 32 bits
_MOST_CHANNELS = 1024


@dataclass(frozen=True)
class Info:
    """The header of a sound file; `frames` is None where the header does not know it."""

    sample_rate_hz: int
    channels: int
    frames: int | None
    format: str
    subtype: str


@dataclass(frozen=True, eq=False)
class Sound:
    """Samples, their rate, and how they are stored.

    Parameters
    ----------
    samples : array of float64, shape (frames,) or (channels, frames)
        Full scale is [-1, 1].
    sample_rate_hz : int
    subtype : str
        How each sample is stored, by libsndfile's names: PCM_U8, PCM_16, ULAW, FLOAT, VORBIS ...
    """

    samples: NDArray[np.float64]
    sample_rate_hz: int
    subtype: str


def resample(sound: Sound, sample_rate_hz: int) -> Sound:
    """Resample a sound; the result does not lie on the quantizer's levels any more.

    Examples
    --------
    >>> resample(Sound(np.zeros(48000), 48000, "PCM_16"), 16000).samples.shape
    (16000,)
    """
    if sound.sample_rate_hz == sample_rate_hz:
        return sound
    samples = soxr.resample(sound.samples.T, sound.sample_rate_hz, sample_rate_hz, quality="VHQ").T
    return Sound(samples, sample_rate_hz, "DOUBLE")


# --- Reading ---


def read(source: Source) -> Sound:
    """Read a whole sound file.

    Parameters
    ----------
    source : str, path or binary file
        "-" stands for standard input.

    Raises
    ------
    AudioError
        If the source is no sound file, truncated or empty, or holds NaN or infinite samples.
    """
    with open_audio(source, None) as (_, sounds):
        pieces = list(sounds)
    return replace(pieces[0], samples=np.concatenate([piece.samples for piece in pieces], axis=-1))


def blocks(source: Source, block_length: int = 65536, *, gaps: bool = False) -> Iterator[Sound]:
    """Read a sound file as a sequence of sounds of `block_length` frames, the last one shorter.

    Memory is bounded by the block. The errors are those of `read`. With `gaps`, NaN marks missing samples and
    is no error.
    """
    if block_length < 1:
        raise InputError(f"a block needs at least one frame, got {block_length}")
    with open_audio(source, block_length, gaps=gaps) as (_, sounds):
        yield from sounds


def info(source: Source) -> Info:
    """Read the header of a sound file; the source is that of `read`."""
    with open_audio(source) as (header, _):
        return header


@contextmanager
def open_audio(
    source: Source, block_length: int | None = 65536, *, gaps: bool = False
) -> Iterator[tuple[Info, Iterator[Sound]]]:
    """Open a source and yield its header and its blocks, since a pipe cannot be opened twice.

    A `block_length` of None is a convenient one, for reading a whole file.
    """
    with _open_seekable(source) as (name, stream):
        _check_container(name, stream.fileno())
        try:
            file = soundfile.SoundFile(stream.fileno(), closefd=False)
        except (soundfile.SoundFileError, TypeError, ValueError) as error:
            reason = getattr(error, "error_string", str(error)).strip().rstrip(".")
            raise AudioError(
                f"{name} cannot be read ({reason}); get it again, or convert it to WAV"
            ) from error
        with file:
            if file.format not in _READ_FORMATS:
                raise AudioError(f"{name} is a {file.format} file, which is not read; convert it to WAV")
            if not 1 <= file.samplerate <= _LARGEST_RATE_HZ:
                raise AudioError(
                    f"{name} has a sample rate of {file.samplerate} Hz, which is absurd; repair the header"
                )
            frames = file.frames if file.frames < _UNKNOWN_LENGTH else None
            header = Info(file.samplerate, file.channels, frames, file.format, file.subtype)
            length = block_length or max(_BLOCK_VALUES // header.channels, 1)
            yield header, _read_sounds(name, file, header, length, gaps)


def _read_sounds(
    name: str, file: soundfile.SoundFile, header: Info, block_length: int, gaps: bool
) -> Iterator[Sound]:
    done = 0
    while len(block := _read_block(file, block_length, name, done)):
        damaged = np.isinf(block) if gaps else ~np.isfinite(block)
        if damaged.any():
            frame, channel = np.argwhere(damaged)[0]
            remedy = "" if gaps else ", or, where NaN marks missing samples, restore it with gaps"
            what = "infinite" if gaps else "NaN or infinite"
            raise AudioError(
                f"{name}: frame {done + frame} of channel {channel} is {what}; repair it{remedy}"
            )
        done += len(block)
        samples = block[:, 0] if header.channels == 1 else block.T
        yield Sound(samples, header.sample_rate_hz, header.subtype)
    if done == 0:
        raise AudioError(f"{name} holds no samples, or its header was never completed; record it again")
    if header.frames is not None and done < header.frames:
        raise AudioError(f"{name} ends at frame {done} of {header.frames}; get the whole file")


def _read_block(file: soundfile.SoundFile, block_length: int, name: str, done: int) -> NDArray[np.float64]:
    try:
        block: NDArray[np.float64] = file.read(block_length, dtype="float64", always_2d=True)
        return block
    except soundfile.SoundFileError as error:
        raise AudioError(f"{name} is damaged or cut off after frame {done}; get the whole file") from error


@contextmanager
def _open_seekable(source: Source) -> Iterator[tuple[str, BinaryIO]]:
    """Open a source as a file on disk, at its start; copy a pipe to a temporary file."""
    if isinstance(source, str | os.PathLike) and os.fspath(source) != "-":
        name = os.fspath(source)
        try:
            stream: BinaryIO = open(name, "rb")  # noqa: SIM115 (closed below)
        except (OSError, ValueError) as error:
            raise AudioError(f"{name} cannot be opened: {system_reason(error)}; check its name") from error
        with stream, _open_seekable(stream) as (_, seekable):
            yield name, seekable
        return
    if isinstance(source, str | os.PathLike):
        source = standard_input()
    name = str(getattr(source, "name", "the sound"))
    if _is_regular_file(source):
        os.lseek(source.fileno(), 0, os.SEEK_SET)  # a buffered stream may be at 0 before its descriptor is
        yield name, source
        return
    with _temporary_copy(source, name) as copy:
        yield name, copy


@contextmanager
def _temporary_copy(source: BinaryIO, name: str) -> Iterator[BinaryIO]:
    with temporary_file() as copy:
        try:
            start = b""
            while len(start) < 4 and (more := source.read(4 - len(start))):
                start += more
            if start in _DECLARED_SIZES:  # a pipe of anything else may be endless
                copy.write(start)
                shutil.copyfileobj(source, copy)
            copy.flush()
            copy.seek(0)
        except (OSError, ValueError) as error:
            raise AudioError(
                f"{name} cannot be copied to a temporary file: {system_reason(error)}; name a file on disk"
            ) from error
        yield copy


def _is_regular_file(stream: BinaryIO) -> bool:
    try:
        return stream.seekable() and stream.tell() == 0 and stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


# --- Container checks: libsndfile reads truncated files without an error ---

_MOST_CHUNKS = 10_000


def _check_container(name: str, file_descriptor: int) -> None:
    """Refuse a file that is shorter than its header declares.

    A header that declares no size, as in files written to a pipe, is accepted.
    """
    try:
        size = os.fstat(file_descriptor).st_size
        declared_size = _DECLARED_SIZES.get(os.pread(file_descriptor, 4, 0))
        if declared_size is None:
            raise AudioError(f"{name} is no WAV, AIFF, AU, FLAC or Ogg file; convert it to one of these")
        missing = declared_size(file_descriptor, size) - size
    except _DamagedError as damage:
        raise AudioError(f"{name} is damaged, {damage}; get it again") from damage
    except OSError as error:
        raise AudioError(f"{name} cannot be read: {system_reason(error)}; get it again") from error
    if missing > 0:
        raise AudioError(f"{name} is cut off, {missing} bytes or more are missing; get the whole file")


class _DamagedError(Exception):
    """A container that contradicts its format."""


def _is_unknown(length: int) -> bool:
    """Tell whether a length stands for an unknown one, as written to a pipe."""
    return length == 0 or length >= 0xFFFF_F000 or 0x7FFF_F000 <= length <= 0x8000_0000


def _size_by_chunks(data_chunk: bytes, byte_order: str) -> Callable[[int, int], int]:
    """Return a function that returns the end of the chunk with the samples, 0 if unknown."""

    def declared_size(file_descriptor: int, size: int) -> int:
        position = 12
        for _ in range(_MOST_CHUNKS):
            head = os.pread(file_descriptor, 8, position)
            if len(head) < 8:
                return 0
            if head[:4] == b"\0\0\0\0":
                raise _DamagedError("there are zeros instead of a chunk")
            (length,) = struct.unpack(byte_order + "I", head[4:])
            if head[:4] == data_chunk:
                return 0 if _is_unknown(length) else position + 8 + length
            position += 8 + length + length % 2
        raise _DamagedError(f"there are no samples after {_MOST_CHUNKS} chunks")

    return declared_size


def _rf64_size(file_descriptor: int, size: int) -> int:
    """Return the size in the ds64 chunk."""
    head = os.pread(file_descriptor, 28, 0)
    declared = struct.unpack("<Q", head[20:28])[0] if len(head) == 28 and head[12:16] == b"ds64" else 0
    return 0 if declared in (0, 2**64 - 1) else int(declared) + 8


def _au_size(file_descriptor: int, size: int) -> int:
    head = os.pread(file_descriptor, 12, 0)
    if len(head) < 12:
        return 12
    offset, length = struct.unpack(">II", head[4:])
    return 0 if _is_unknown(length) else int(offset) + int(length)


def _ogg_size(file_descriptor: int, size: int) -> int:
    """Return the end of the last page, or one byte beyond the file if the last page is missing."""
    position, ended = 0, False
    expected: dict[bytes, int] = {}
    while position < size:
        page = os.pread(file_descriptor, 27 + 255, position)
        if len(page) < 27 or len(page) < 27 + page[26]:
            return size + 1
        if page[:4] != b"OggS":
            raise _DamagedError(f"there is no page at byte {position}")
        stream, number = page[14:18], int.from_bytes(page[18:22], "little")
        if number != expected.get(stream, 0):
            raise _DamagedError(f"page {expected.get(stream, 0)} is missing")
        expected[stream] = number + 1
        ended = bool(page[5] & 4)
        position += 27 + page[26] + sum(page[27 : 27 + page[26]])
    return position if ended else size + 1


_DECLARED_SIZES: dict[bytes, Callable[[int, int], int]] = {
    b"RIFF": _size_by_chunks(b"data", "<"),
    b"RIFX": _size_by_chunks(b"data", ">"),
    b"FORM": _size_by_chunks(b"SSND", ">"),
    b"RF64": _rf64_size,
    b".snd": _au_size,
    b"fLaC": lambda file_descriptor, size: 0,  # libsndfile checks it frame by frame
    b"OggS": _ogg_size,
}


# --- Writing ---


def write(
    target: Target,
    samples: ArrayLike | Sound,
    sample_rate_hz: int | None = None,
    cells: Cells | None = None,
    *,
    subtype: str | None = None,
    format: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a sound file atomically.

    Parameters
    ----------
    target : str or path
        "-" stands for standard output.
    samples : Sound, or array_like of shape (frames,) or (channels, frames)
    sample_rate_hz : int
        Default: that of the `Sound`.
    cells : Cells, optional
        Cells of the samples; see `round_to_subtype`.
    subtype : str, optional
        How each sample is stored; see `round_to_subtype`. Default: that of the `Sound`, PCM_24 for arrays.
    format : str, optional
        WAV, RF64, AIFF, AU or FLAC. Default: by the target's suffix, WAV for standard output.
    overwrite : bool
        Replace an existing file instead of refusing.
    """
    if isinstance(samples, Sound):
        sample_rate_hz = samples.sample_rate_hz if sample_rate_hz is None else sample_rate_hz
        subtype = subtype or samples.subtype
        samples = samples.samples
    if sample_rate_hz is None:
        raise AudioError("an array does not tell its sample rate; pass sample_rate_hz")
    samples = _real(samples)
    if samples.ndim == 2 and len(samples) > max(samples.shape[1], 8):
        raise AudioError(f"need (channels, frames), got shape {samples.shape}; transpose it")
    channels = len(samples) if samples.ndim == 2 else 1
    options: dict[str, Any] = {"subtype": subtype or "PCM_24", "format": format, "overwrite": overwrite}
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
) -> Iterator[Callable[..., None]]:
    """Write a sound file block by block: yield a function that takes samples and, optionally, cells.

    The file appears under its name when the `with` block ends without an error. Parameters are those of
    `write`. If `frames`, the expected length, is too long for the format, WAV becomes RF64, and other formats
    are refused before anything is written. `check` is called with the complete file before it gets its name,
    and may raise.
    """
    _check_subtype(subtype)
    chosen = format or format_of(target)
    if format is None and chosen == "WAV" and not _fits(frames or 0, channels, chosen, subtype):
        chosen = "RF64"
    _check_length(frames or 0, channels, chosen, subtype)
    with atomic_write(target, overwrite) as stream:
        file = _create(stream, sample_rate_hz, channels, chosen, subtype)
        with file:
            written = 0

            def put(samples: ArrayLike, cells: Cells | None = None) -> None:
                nonlocal written
                block = _stored(samples, cells, subtype)
                if block.ndim == 0 or np.atleast_2d(block).shape[:-1] != (channels,):
                    raise AudioError(f"need {channels} channels, got samples of shape {block.shape}")
                written += block.shape[-1]
                _check_length(written, channels, chosen, subtype)
                try:
                    file.write(block.T)
                except (soundfile.SoundFileError, AssertionError) as error:
                    raise AudioError(f"{target} cannot be written; is the disk full?") from error

            yield put
        if written == 0:
            raise AudioError(f"{target} would hold no samples; pass one or more")
        if chosen == "AIFF" and _BYTES[subtype] * channels == 1 and written % 2:
            raise AudioError(
                f"8-bit AIFF pads an odd number of samples, such as these {written}, with one more; write WAV"
            )
        _zero_timestamp(stream.fileno())
        stream.seek(0)
        if not _is_complete(stream, written):
            raise AudioError(f"{target} cannot be written; is the disk full?")
        if check is not None:
            check(stream)


def _create(
    stream: BinaryIO, sample_rate_hz: int, channels: int, format: str, subtype: str
) -> soundfile.SoundFile:
    if not isinstance(sample_rate_hz, int | np.integer) or not 1 <= sample_rate_hz <= _LARGEST_RATE_HZ:
        raise AudioError(
            f"the sample rate needs a whole number from 1 to {_LARGEST_RATE_HZ}, got {sample_rate_hz!r}"
        )
    if format == "FLAC" and sample_rate_hz > 65535 and sample_rate_hz % 10:  # written, but not read again
        raise AudioError(f"FLAC counts sample rates above 65535 Hz in tens, got {sample_rate_hz}; write WAV")
    try:
        return soundfile.SoundFile(
            stream.fileno(), "w", int(sample_rate_hz), channels, subtype, format=format, closefd=False
        )
    except (soundfile.SoundFileError, TypeError, ValueError) as error:
        raise AudioError(
            f"there are no {format} files of subtype {subtype} with {channels} channels at "
            f"{sample_rate_hz} Hz; write WAV and FLOAT"
        ) from error


def format_of(target: Target) -> str:
    """Return the format for a file's suffix; WAV for standard output."""
    if os.fspath(target) == "-":
        return "WAV"
    try:
        return FORMAT_OF_SUFFIX[Path(target).suffix.lower()]
    except KeyError:
        known = ", ".join(FORMAT_OF_SUFFIX)
        raise AudioError(
            f"{target} has no suffix that can be written; end it in one of {known}, or in / for a folder"
        ) from None


def round_to_subtype(
    samples: ArrayLike, cells: Cells | None = None, subtype: str = "PCM_24"
) -> NDArray[np.float64]:
    """Round samples to the nearest values that a file of this subtype stores, inside their cells.

    Parameters
    ----------
    samples : array_like
        In [-1, 1] for the PCM subtypes; with cells, samples beyond are projected first.
    cells : Cells, optional
        Of the samples' shape. The upper end of a cell belongs to its neighbour, so that the quantizer gives a
        written sample its code again.
    subtype : str
        PCM_S8, PCM_U8, PCM_16, PCM_24, PCM_32, FLOAT or DOUBLE.

    Raises
    ------
    AudioError
        If a cell holds no storable value, or a sample cannot be stored.

    Examples
    --------
    >>> round_to_subtype([0.3], Cells([0.301], [0.4]), "PCM_U8") * 128
    array([39.])
    """
    x = _real(samples)
    _check_subtype(subtype)
    if not np.isfinite(x).all():
        raise AudioError("a sample is NaN or infinite and cannot be written; check what made it")
    if cells is not None and cells.shape != x.shape:
        raise AudioError(
            f"samples of shape {x.shape} do not match cells of shape {cells.shape}; pass one each"
        )
    if subtype in PCM_BITS:
        return _round_to_pcm(x, cells, subtype)
    with np.errstate(over="ignore"):
        stored = x.astype(np.float32) if subtype == "FLOAT" else x
    if cells is not None:
        try:
            stored = cells.astype(stored.dtype).project_inside(stored)
        except InputError as error:
            raise AudioError(f"FLOAT is too coarse: {error} and write DOUBLE") from error
    if not np.isfinite(stored).all():
        raise AudioError(f"a sample is too large for {subtype} output; write DOUBLE")
    return stored.astype(np.float64)


def _round_to_pcm(x: NDArray[np.float64], cells: Cells | None, subtype: str) -> NDArray[np.float64]:
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
    first += (first == lo) & (first < last)  # neither end, so that ties may be rounded either way
    first, last = np.maximum(first, -scale), np.minimum(last, scale - 1)
    empty = np.count_nonzero(first > last)
    if empty:
        raise AudioError(
            f"{empty} of {x.size} cells hold no {subtype} value; write a deeper subtype, such as FLOAT"
        )
    return np.clip(np.rint(x * scale), first, last) / scale


def _real(samples: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(samples)
    if array.dtype.kind not in "fiub":
        raise AudioError(f"samples need real numbers, got {array.dtype}; convert them first")
    return array.astype(np.float64, copy=False)


def _stored(samples: ArrayLike, cells: Cells | None, subtype: str) -> NDArray[Any]:
    """Round samples, and return the type that libsndfile stores without arithmetic: integers for PCM."""
    rounded = round_to_subtype(samples, cells, subtype)
    if subtype not in PCM_BITS:
        return rounded.astype(np.float32 if subtype == "FLOAT" else np.float64)
    dtype = np.int16 if PCM_BITS[subtype] <= 16 else np.int32
    return (rounded * -float(np.iinfo(dtype).min)).astype(dtype)


def _check_subtype(subtype: str) -> None:
    if subtype not in _BYTES:
        raise AudioError(f"{subtype} output may leave the cells; choose one of {', '.join(_BYTES)}")


def _fits(frames: int, channels: int, format: str, subtype: str) -> bool:
    return format in ("RF64", "FLAC") or frames * channels * _BYTES[subtype] <= _LARGEST_FILE


def _check_length(frames: int, channels: int, format: str, subtype: str) -> None:
    if not _fits(frames, channels, format, subtype):
        raise AudioError(f"more than 4 GB do not fit into {format}; write RF64 or FLAC")


def _zero_timestamp(file_descriptor: int) -> None:
    """Zero the time stamp in the PEAK chunk of float files, so that equal sounds give equal files."""
    head = os.pread(file_descriptor, 1 << 16, 0)
    at = head.find(b"PEAK")
    if 0 <= at < max(head.find(b"data"), head.find(b"SSND")):
        os.pwrite(file_descriptor, bytes(4), at + 12)


def _is_complete(stream: BinaryIO, frames: int) -> bool:
    """Tell whether the written file can be read, since libsndfile does not report errors on closing."""
    try:
        return info(stream).frames == frames
    except AudioError:
        return False


# --- Raw PCM ---

_RAW_SUBTYPES = {
    "u8": ("PCM_U8", "FILE"),
    "s8": ("PCM_S8", "FILE"),
    "s16le": ("PCM_16", "LITTLE"),
    "s16be": ("PCM_16", "BIG"),
    "s24le": ("PCM_24", "LITTLE"),
    "s32le": ("PCM_32", "LITTLE"),
    "f32le": ("FLOAT", "LITTLE"),
    "f64le": ("DOUBLE", "LITTLE"),
    "mulaw": ("ULAW", "FILE"),
    "alaw": ("ALAW", "FILE"),
}
"""Subtype and byte order of each encoding, by libsndfile's names."""

ENCODINGS = tuple(_RAW_SUBTYPES)


@final
@dataclass(frozen=True)
class RawFormat:
    """An encoding of interleaved samples without a header: PCM, floats or G.711.

    Examples
    --------
    >>> stereo = RawFormat("s16le", channels=2)
    >>> stereo.decode(bytes([0, 64, 0, 192]))
    array([[ 0.5],
           [-0.5]])
    """

    encoding: str
    channels: int = 1

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise AudioError(f"there is no encoding {self.encoding!r}; choose one of {', '.join(ENCODINGS)}")
        if not 1 <= self.channels <= _MOST_CHANNELS:
            raise AudioError(f"raw samples have 1 to {_MOST_CHANNELS} channels, got {self.channels}")

    @property
    def subtype(self) -> str:
        """The subtype of a file with such samples."""
        return _RAW_SUBTYPES[self.encoding][0]

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of every channel."""
        return self.channels * _BYTES.get(self.subtype, 1)

    def decode(self, content: bytes) -> NDArray[np.float64]:
        """Return the samples of whole frames, shape (channels, frames), full scale [-1, 1].

        NaN among floats marks missing samples.
        """
        subtype, endian = _RAW_SUBTYPES[self.encoding]
        header = {"channels": self.channels, "samplerate": 1, "subtype": subtype, "endian": endian}
        samples: NDArray[np.float64] = soundfile.read(
            io.BytesIO(content), format="RAW", always_2d=True, **header
        )[0].T
        if np.isinf(samples).any():
            raise AudioError("a raw sample is infinite; check the encoding")
        return samples

    def encode(self, samples: FloatArray, cells: Cells | None = None) -> bytes:
        """Return the bytes of samples of shape (channels, frames), inside their cells."""
        subtype, endian = _RAW_SUBTYPES[self.encoding]
        if subtype not in _BYTES:
            raise AudioError(f"{self.encoding} output may leave the cells; choose another encoding")
        stored = _stored(samples, cells, subtype).T
        content = io.BytesIO()
        soundfile.write(content, stored, 1, format="RAW", subtype=subtype, endian=endian)
        return content.getvalue()
