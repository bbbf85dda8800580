"""Files: sound in, with the cells that its stored codes stand for.

Files and pipes are read block by block; a pipe is first copied to a temporary file on disk, since most
formats cannot be read without going back and forth. Whatever is wrong with the input, the answer is one
`AudioError`.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from pdrn.audio.cells import Cells
from pdrn.audio.containers import fault, is_known
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.quantizers import MidTread, Truncation
from pdrn.audio.system import AudioError, standard_input, unnamed_file, why

Source = str | os.PathLike[str] | BinaryIO
StoredQuantizer = MidTread | MuLaw | ALaw

FORMATS = ("WAV", "WAVEX", "RF64", "AIFF", "AU", "FLAC", "OGG")
SUFFIXES = (".wav", ".rf64", ".aif", ".aiff", ".aifc", ".au", ".snd", ".flac", ".ogg", ".oga", ".opus")
PCM_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
LARGEST_RATE_HZ = 10_000_000

_UNKNOWN_LENGTH = 1 << 62
_BLOCK_VALUES = 1 << 20


@dataclass(frozen=True)
class Info:
    """What a header says: frames is None where the length is not known beforehand."""

    sample_rate_hz: int
    channels: int
    frames: int | None
    format: str
    subtype: str


@dataclass(frozen=True, eq=False)
class Sound:
    """Samples and how they were stored.

    Parameters
    ----------
    samples : array of float64, shape (frames,) or (channels, frames)
        Full scale is [-1, 1].
    sample_rate_hz : int
    subtype : str
        How each sample was stored, by libsndfile's names: PCM_U8, PCM_16, ULAW, FLOAT, VORBIS ...
    """

    samples: NDArray[np.float64]
    sample_rate_hz: int
    subtype: str

    @property
    def channels(self) -> int:
        """The number of channels."""
        return 1 if self.samples.ndim == 1 else len(self.samples)

    @property
    def quantizer(self) -> StoredQuantizer:
        """The quantizer whose levels the stored codes are: signed PCM is mid-tread, G.711 any encoder's.

        Its outermost cells are open-ended, since nobody knows whether the recording was cut off there.
        """
        if self.subtype in PCM_BITS:
            return MidTread(PCM_BITS[self.subtype])
        if self.subtype == "ULAW":
            return MuLaw(any_encoder=True)
        if self.subtype == "ALAW":
            return ALaw(any_encoder=True)
        raise AudioError(f"{self.subtype} samples have no cells of their own; detect or name the quantizer")

    @property
    def codes(self) -> NDArray[Any]:
        """The stored codes: signed numbers of PCM, bytes of G.711 (+0 for mu-law's -0)."""
        quantizer = self.quantizer
        try:
            return quantizer.codes_of(self.samples)
        except ValueError as error:
            raise AudioError(f"the samples are no {self.subtype} codes; detect the quantizer") from error

    def cells(self, converter: type[MidTread] | type[Truncation] = MidTread) -> Cells:
        """Return the cells of the stored codes, of the samples' shape.

        Parameters
        ----------
        converter : MidTread or Truncation
            How PCM was made, which a file does not tell. Assumed is rounding to the nearest code; for a
            converter that dropped bits pass `Truncation`. libsndfile, and with it python-soundfile, drops
            them when it writes floats to WAV, and rounds to FLAC. Dither goes beyond either.
        """
        quantizer = self.quantizer
        if converter is Truncation:
            if not isinstance(quantizer, MidTread):
                raise AudioError(f"{self.subtype} is not made by truncation; leave out the converter")
            return Truncation(quantizer.bits).cells(self.codes)
        return quantizer.cells(self.codes)


def info(source: Source) -> Info:
    """Return what a sound file's header says; see `read` for the source."""
    with _opened(source) as (_, _, header):
        return header


def read(source: Source) -> Sound:
    """Read a whole sound file.

    Parameters
    ----------
    source : str, path or binary file
        "-" stands for standard input.

    Raises
    ------
    AudioError
        If the source is no sound file, is cut off or empty, or holds NaN or infinite samples.
    """
    pieces = list(_blocks(source, None))
    return replace(pieces[0], samples=np.concatenate([piece.samples for piece in pieces], axis=-1))


def blocks(source: Source, block_length: int = 65536, *, gaps: bool = False) -> Iterator[Sound]:
    """Read a sound file as a sequence of sounds of `block_length` frames, the last one shorter.

    Memory use does not depend on the length of the file, only on the block's and the number of channels.
    The errors of `read` come when the place is reached. With `gaps`, NaN is none: it marks missing samples.
    """
    if block_length < 1:
        raise ValueError(f"a block needs at least one frame, got {block_length}")
    return _blocks(source, block_length, gaps)


@contextmanager
def opened(
    source: Source, block_length: int | None = 65536, *, gaps: bool = False
) -> Iterator[tuple[Info, Iterator[Sound]]]:
    """Open a source once, for its header and its blocks: a pipe cannot be opened again."""
    with _opened(source) as (name, file, header):
        length = block_length or max(_BLOCK_VALUES // header.channels, 1)
        yield header, _sounds(name, file, header, length, gaps)


def _blocks(source: Source, block_length: int | None, gaps: bool = False) -> Iterator[Sound]:
    with opened(source, block_length, gaps=gaps) as (_, sounds):
        yield from sounds


def _sounds(
    name: str, file: soundfile.SoundFile, header: Info, block_length: int, gaps: bool
) -> Iterator[Sound]:
    done = 0
    while len(block := _next_block(file, block_length, name, done)):
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


def resample(sound: Sound, sample_rate_hz: int) -> Sound:
    """Return the sound at another rate; its samples are new ones, so that the stored cells are gone.

    Examples
    --------
    >>> resample(Sound(np.zeros(48000), 48000, "PCM_16"), 16000).samples.shape
    (16000,)
    """
    if sound.sample_rate_hz == sample_rate_hz:
        return sound
    samples = soxr.resample(sound.samples.T, sound.sample_rate_hz, sample_rate_hz, quality="VHQ").T
    return Sound(samples, sample_rate_hz, "DOUBLE")


@contextmanager
def _opened(source: Source) -> Iterator[tuple[str, soundfile.SoundFile, Info]]:
    """Open a source and check its header."""
    with _seekable(source) as (name, stream):
        try:
            reason = fault(stream.fileno())
        except OSError as error:
            raise AudioError(f"{name} cannot be read: {why(error)}; get it again") from error
        if reason:
            raise AudioError(f"{name} {reason}")
        try:
            file = soundfile.SoundFile(stream.fileno(), closefd=False)
        except (soundfile.SoundFileError, TypeError, ValueError) as error:
            reason = getattr(error, "error_string", str(error)).strip().rstrip(".")
            raise AudioError(
                f"{name} cannot be read ({reason}); get it again, or convert it to WAV"
            ) from error
        with file:
            if file.format not in FORMATS:
                raise AudioError(f"{name}: {file.format} files are not read; convert it to WAV")
            if not 1 <= file.samplerate <= LARGEST_RATE_HZ:
                raise AudioError(
                    f"{name}: a sample rate of {file.samplerate} Hz is absurd; repair the header"
                )
            frames = file.frames if file.frames < _UNKNOWN_LENGTH else None
            yield name, file, Info(file.samplerate, file.channels, frames, file.format, file.subtype)


@contextmanager
def _seekable(source: Source) -> Iterator[tuple[str, BinaryIO]]:
    """Open a source as a file on disk, at its start, copying what cannot seek to a temporary one."""
    if isinstance(source, str | os.PathLike) and os.fspath(source) != "-":
        name = os.fspath(source)
        try:
            stream: BinaryIO = open(name, "rb")  # noqa: SIM115 (closed below)
        except (OSError, ValueError) as error:
            raise AudioError(f"{name} cannot be opened: {why(error)}; check its name") from error
        with stream, _seekable(stream) as (_, seekable):
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
    with unnamed_file() as copy:
        try:
            start = b""
            while len(start) < 4 and (more := source.read(4 - len(start))):
                start += more
            if is_known(start):  # else there may be no end to it
                copy.write(start)
                shutil.copyfileobj(source, copy)
            copy.flush()
            copy.seek(0)
        except (OSError, ValueError) as error:
            raise AudioError(
                f"{name} cannot be copied to a temporary file: {why(error)}; name a file on disk"
            ) from error
        yield copy


def _is_regular_file(stream: BinaryIO) -> bool:
    try:
        return stream.seekable() and stream.tell() == 0 and stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _next_block(file: soundfile.SoundFile, block_length: int, name: str, done: int) -> NDArray[np.float64]:
    try:
        block: NDArray[np.float64] = file.read(block_length, dtype="float64", always_2d=True)
        return block
    except soundfile.SoundFileError as error:
        raise AudioError(f"{name} is damaged or cut off after frame {done}; get the whole file") from error
