"""The pipe: raw samples restored while they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pdrn.audio.raw import RawFormat
from pdrn.audio.system import AudioError, why
from pdrn.restoring.stream import Stream

_READ_BYTES = 1 << 16


def restored_bytes(
    stream: Stream, source: BinaryIO, read_as: RawFormat, write_as: RawFormat
) -> Iterator[bytes]:
    """Yield restored raw samples as soon as they can be told, to the last one.

    Parameters
    ----------
    stream : Stream
    source : binary file
        Read as far as there is something, not until a block is full, if it has `read1`.
    read_as, write_as : RawFormat
        Of the same number of channels.
    """
    rest = b""
    while content := _next(source):
        content = rest + content
        whole = len(content) - len(content) % read_as.frame_bytes
        rest = content[whole:]
        if whole:
            restored = stream.feed_cells(read_as.decode(content[:whole]))
            if restored.samples.size:
                yield write_as.encode(restored.samples, restored.cells)
    last = stream.flush_cells()
    if last.samples.size:
        yield write_as.encode(last.samples, last.cells)
    if rest:
        raise AudioError(
            f"the raw samples end {len(rest)} bytes into a frame of {read_as.frame_bytes}; "
            "check the encoding and the number of channels"
        )


def _next(source: BinaryIO) -> bytes:
    read = getattr(source, "read1", source.read)
    try:
        content: bytes = read(_READ_BYTES)
        return content
    except OSError as error:
        raise AudioError(f"the raw samples cannot be read: {why(error)}; get them again") from error
