"""Containers: whether a file is a sound file, by its first bytes, and holds all that its header promises.

libsndfile reads what is left of a cut WAV, AIFF, AU or Ogg file without a word, so its length is checked
here first. (A cut FLAC file fails while it is read.) What starts like no known sound file is not even
handed to libsndfile, which would try all its rarer decoders on it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable


def _is_unknown(length: int) -> bool:
    """Tell whether this is what writers to a pipe put where they cannot know the size yet."""
    return length == 0 or length >= 0xFFFF_F000 or 0x7FFF_F000 <= length <= 0x7FFF_FFFF


def missing_bytes(file_descriptor: int) -> int | None:
    """Return how many bytes a sound file lacks of what its header promises, None if it is no sound file.

    0 also stands for promises that cannot be told, such as those of a file written to a pipe.
    """
    size = os.fstat(file_descriptor).st_size
    promise = _PROMISES.get(os.pread(file_descriptor, 4, 0))
    return None if promise is None else max(promise(file_descriptor, size) - size, 0)


def _chunks(data_chunk: bytes, byte_order: str) -> Callable[[int, int], int]:
    """Return a function that walks over chunks to the end of the one with the samples."""

    def promised_size(file_descriptor: int, size: int) -> int:
        position = 12
        while len(head := os.pread(file_descriptor, 8, position)) == 8:
            (length,) = struct.unpack(byte_order + "I", head[4:])
            if head[:4] == data_chunk:
                return 0 if _is_unknown(length) else position + 8 + length
            position += 8 + length + length % 2
        return 0

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
    """Return one byte too many unless the last page is whole and flagged as the stream's end."""
    tail = os.pread(file_descriptor, 1 << 17, max(size - (1 << 17), 0))
    page = tail[tail.rfind(b"OggS") :]
    if len(page) < 27 or not page[5] & 4:
        return size + 1
    segments = page[27 : 27 + page[26]]
    return size - len(page) + 27 + page[26] + sum(segments)


_PROMISES: dict[bytes, Callable[[int, int], int]] = {
    b"RIFF": _chunks(b"data", "<"),
    b"RIFX": _chunks(b"data", ">"),
    b"FORM": _chunks(b"SSND", ">"),
    b"RF64": _rf64,
    b".snd": _au,
    b"fLaC": _nothing,
    b"OggS": _ogg,
}
