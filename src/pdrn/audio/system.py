"""What the system gives, and what it says when it does not: errors, standard input, temporary files.

Nothing here knows sound, so that files of networks are written by the same means.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


class AudioError(ValueError):
    """Sound that cannot be read or written, with the cause and the remedy in one sentence."""


def standard_input() -> BinaryIO:
    """Return standard input as a binary file."""
    if sys.stdin is None or sys.stdin.closed:
        raise AudioError("standard input is closed; name a file, or open it")
    return sys.stdin.buffer


@contextmanager
def unnamed_file() -> Iterator[BinaryIO]:
    """Open a temporary file that is gone when it is closed."""
    try:
        with tempfile.TemporaryFile() as stream:
            yield stream
    except OSError as error:
        raise AudioError(f"there is no temporary space: {why(error)}; set TMPDIR, or name a file") from error


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the checksum of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def why(error: Exception) -> str:
    """Return the reason that the system gives for an error."""
    return getattr(error, "strerror", None) or str(error)


def printable(text: object, most: int = 10_000) -> str:
    r"""Return text for one line of a terminal: what would steer that is written out, what is long is cut.

    >>> printable("red\x1b[31m\n")
    'red\\x1b[31m\\n'
    """
    written = str(text)
    if len(written) > most:
        written = f"{written[: most // 2]} ... {written[-most // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in written)
