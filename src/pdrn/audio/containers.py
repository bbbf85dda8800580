"""Containers: whether a file is a sound file, by its first bytes, and is whole.

libsndfile reads what is left of a cut WAV, AIFF, AU or Ogg file without a word, so its length is checked
here first. (A cut FLAC file fails while it is read.) What starts like no known sound file is not even
handed to libsndfile, which would try all its rarer decoders on it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

_MOST_CHUNKS = 10_000


def _is_unknown(length: int) -> bool:
    """Tell whether this is what writers to a pipe put where they cannot know the size yet."""
    return length == 0 or length >= 0xFFFF_F000 or 0x7FFF_F000 <= length <= 0x8000_0000


def is_known(start: bytes) -> bool:
    """Tell whether a file that starts with these bytes, four or more, may be a sound file."""
    return start[:4] in _PROMISES


def fault(file_descriptor: int) -> str | None:
    """Return what is wrong with a sound file and what to do about it, None if nothing seems to be.

    Promises that cannot be told, such as those of a file written to a pipe, count as kept.
    """
    size = os.fstat(file_descriptor).st_size
    promise = _PROMISES.get(os.pread(file_descriptor, 4, 0))
    if promise is None:
        return "is no WAV, AIFF, AU, FLAC or Ogg file; convert it to one of these"
    try:
        missing = promise(file_descriptor, size) - size
    except _DamagedError as damage:
        return f"is damaged, {damage}; get it again"
    return f"is cut off, {missing} bytes or more are missing; get the whole file" if missing > 0 else None


class _DamagedError(Exception):
    """What is damaged about a file."""


def _chunks(data_chunk: bytes, byte_order: str) -> Callable[[int, int], int]:
    """Return a function that walks over chunks to the end of the one with the samples."""

    def promised_size(file_descriptor: int, size: int) -> int:
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

    return promised_size


def _rf64(file_descriptor: int, size: int) -> int:
    """Return the size of the whole that the ds64 chunk declares."""
    head = os.pread(file_descriptor, 28, 0)
    declared = struct.unpack("<Q", head[20:28])[0] if len(head) == 28 and head[12:16] == b"ds64" else 0
    return 0 if declared in (0, 2**64 - 1) else int(declared) + 8


def _nothing(file_descriptor: int, size: int) -> int:
    return 0


def _au(file_descriptor: int, size: int) -> int:
    head = os.pread(file_descriptor, 12, 0)
    if len(head) < 12:
        return 12
    offset, length = struct.unpack(">II", head[4:])
    return 0 if _is_unknown(length) else int(offset) + int(length)


def _ogg(file_descriptor: int, size: int) -> int:
    """Return one byte too many unless the pages follow one another to one flagged as the stream's end."""
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


_PROMISES: dict[bytes, Callable[[int, int], int]] = {
    b"RIFF": _chunks(b"data", "<"),
    b"RIFX": _chunks(b"data", ">"),
    b"FORM": _chunks(b"SSND", ">"),
    b"RF64": _rf64,
    b".snd": _au,
    b"fLaC": _nothing,
    b"OggS": _ogg,
}
