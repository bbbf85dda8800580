"""Files written whole or not at all, checksums, locks, and checked safetensors.

Nothing here knows sound: audio files, networks and training runs are stored by the same means.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors

from pdrn.errors import InputError, StorageError, system_reason


def standard_input() -> BinaryIO:
    """Return standard input as a binary file."""
    if sys.stdin is None or sys.stdin.closed:
        raise StorageError("standard input is closed; name a file, or open it")
    return sys.stdin.buffer


@contextmanager
def temporary_file() -> Iterator[BinaryIO]:
    """Open a temporary file that is gone when it is closed."""
    try:
        with tempfile.TemporaryFile() as stream:
            yield stream
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"there is no temporary space: {system_reason(error)}; set TMPDIR, or name a file"
        ) from error


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the checksum of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


Target = str | os.PathLike[str]


@contextmanager
def atomic_write(target: Target, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file that becomes the target, or is copied to standard output for "-", only without error."""
    if os.fspath(target) == "-":
        with temporary_file() as stream:
            yield stream
            _copy_to_stdout(stream)
        return
    try:
        path = Path(os.path.realpath(target))
        _check(path, overwrite)
        stream, temporary = _open_beside(path)
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{target} cannot be written: {system_reason(error)}; choose another place"
        ) from error
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            _check(path, overwrite)
            temporary = _place(stream, temporary, path, overwrite)
            _keep_names(path.parent)
    except StorageError:
        raise
    except FileExistsError as error:
        raise StorageError(_there_already(path)) from error
    except OSError as error:  # of closing too: what is left in the buffer fails again there
        raise StorageError(
            f"{target} cannot be written: {system_reason(error)}; choose another place"
        ) from error
    finally:
        if temporary:
            with suppress(OSError):
                temporary.unlink()


def make_folder(folder: Target) -> None:
    """Make a folder, and those that it lies in, unless it is there."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be made: {system_reason(error)}; choose another place"
        ) from error


def refuse_same(source: object, target: Target) -> None:
    """Refuse an output that is the file which the input comes from: it would be lost."""
    if isinstance(source, str | os.PathLike) and os.path.exists(target):
        try:
            status = os.fstat(standard_input().fileno()) if os.fspath(source) == "-" else os.stat(source)
        except (OSError, ValueError):  # whoever reads it says why
            return
        if os.path.samestat(status, os.stat(target)):
            raise StorageError(f"{target} is the input; choose another name for the output")


def _check(path: Path, overwrite: bool) -> None:
    if path.is_symlink():  # after all links were followed
        raise StorageError(f"{path} is a loop of symbolic links; name a file")
    if path.exists() and not path.is_file():
        raise StorageError(f"{path} is not a file; name one, or - for standard output")
    if path.exists() and not overwrite:
        raise StorageError(_there_already(path))


def _there_already(path: Path) -> str:
    return f"{path} is there already; choose another name, or allow overwriting"


def _part(path: Path) -> Path:
    return path.parent / f".{secrets.token_hex(8)}.part"


def _open_beside(path: Path) -> tuple[BinaryIO, Path | None]:
    """Open a file in the path's folder, without a name where that can be done; return its name if any."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):  # not every file system can
            return open(os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666), "wb+"), None
    temporary = _part(path)
    return open(temporary, "xb+"), temporary


def _place(stream: BinaryIO, temporary: Path | None, path: Path, overwrite: bool) -> Path | None:
    """Give the file its name; return the temporary name that is left to be removed, if any."""
    replaces = overwrite and path.exists()
    if replaces:
        os.fchmod(stream.fileno(), path.stat().st_mode & 0o7777)
    if temporary is None:
        goal = _part(path) if replaces else path
        folder = os.open(path.parent, os.O_RDONLY)
        try:  # a folder's descriptor makes link follow /proc's link to the file itself
            os.link(f"/proc/self/fd/{stream.fileno()}", goal, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)
        if replaces:
            os.replace(goal, path)
        return None
    if not overwrite:
        try:
            os.link(temporary, path)  # fails if the name was taken meanwhile, as replacing would not
            return temporary
        except FileExistsError:
            raise
        except OSError:  # no links here; the check a moment ago has to do
            pass
    os.replace(temporary, path)
    return None


def _keep_names(folder: Path) -> None:
    """Have the names in a folder outlive a loss of power, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _copy_to_stdout(stream: BinaryIO) -> None:
    stream.seek(0)
    with standard_output() as output:
        shutil.copyfileobj(stream, output)


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Give standard output as a binary file, flushed in the end; failing to write is an `StorageError`."""
    if sys.stdout is None or sys.stdout.closed:
        raise StorageError("standard output is closed; name a file, or open it")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # what is left in the buffer would fail again at exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        raise StorageError(
            f"standard output cannot be written: {system_reason(error)}; name a file"
        ) from error


MOST_HEADER_BYTES = 4 << 20
"""A header of a thousand layers takes one megabyte; parsing takes up to sixteen times its size in memory."""


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a file of tensors; InputError says what is wrong with it."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise InputError("it is not a file; name one")
    with open(path, "rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
    if header_bytes > MOST_HEADER_BYTES:
        raise InputError(f"its header claims {header_bytes} bytes, more than {MOST_HEADER_BYTES}")
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise InputError(str(error)) from error


def digest(description: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]] | None = None) -> str:
    """Return a checksum of a description, but for a checksum that it has, and of tensors to the last bit."""
    described = {name: value for name, value in description.items() if name != "sha256"}
    checksum = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, part in sorted((tensors or {}).items()):
        checksum.update(f"{name} {part.dtype.str} {part.shape}".encode())
        checksum.update(np.ascontiguousarray(part).data)
    return checksum.hexdigest()


def verify_checksum(
    description: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    always: bool = False,
) -> None:
    """Refuse what is not as it was written; what has no checksum is believed, but where it always has one."""
    if always and "sha256" not in description:
        raise InputError("its checksum is missing")
    if "sha256" in description and description["sha256"] != digest(description, tensors):
        raise InputError("some of its bits have changed since it was written; get it again")


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold a file that other processes are refused meanwhile, and that a killed process lets go of."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(refusal) from error
        yield
