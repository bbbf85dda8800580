"""Files of tensors, opened with care: what a stranger made, or a disk has spoilt, is refused."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import safetensors

MOST_HEADER_BYTES = 4 << 20
"""A header of a thousand layers takes one megabyte; parsing takes up to sixteen times its size in memory."""


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a file of tensors; ValueError says what is wrong with it."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is not a file; name one")
    with open(path, "rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
    if header_bytes > MOST_HEADER_BYTES:
        raise ValueError(f"its header claims {header_bytes} bytes, more than {MOST_HEADER_BYTES}")
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from error


def digest(description: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]] | None = None) -> str:
    """Return a checksum of a description, but for a checksum that it has, and of tensors to the last bit."""
    described = {name: value for name, value in description.items() if name != "sha256"}
    checksum = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, part in sorted((tensors or {}).items()):
        checksum.update(f"{name} {part.dtype.str} {part.shape}".encode())
        checksum.update(np.ascontiguousarray(part).data)
    return checksum.hexdigest()


def require_undamaged(
    description: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    always: bool = False,
) -> None:
    """Refuse what is not as it was written; what has no checksum is believed, but where it always has one."""
    if always and "sha256" not in description:
        raise ValueError("its checksum is missing")
    if "sha256" in description and description["sha256"] != digest(description, tensors):
        raise ValueError("some of its bits have changed since it was written; get it again")
