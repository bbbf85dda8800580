"""Atomic writes, standard streams, checksums, checked safetensors and locks.

Audio files, networks and training runs are stored by the same functions. An error of the operating system
becomes a `StorageError` that names the file, the reason and a remedy.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import safetensors

from pdrn.errors import InputError, LockedError, StorageError, system_reason

Target = str | os.PathLike[str]

NAME_ERRORS = (OSError, ValueError)
"""Errors of using a name: a null byte or half a character in it is a ValueError."""


@contextmanager
def storage_errors(
    failure: str, remedy: str, kinds: type[Exception] | tuple[type[Exception], ...] = OSError
) -> Iterator[None]:
    """Turn errors of the operating system into StorageError("failure: reason; remedy")."""
    try:
        yield
    except StorageError:
        raise
    except kinds as error:
        raise StorageError(f"{failure}: {system_reason(error)}; {remedy}") from error


# Files ------------------------------------------------------------------------------------------------------


def open_file(path: Target) -> BufferedReader:
    """Open a file for reading."""
    with storage_errors(f"{path} cannot be opened", "check its name", NAME_ERRORS):
        return open(path, "rb")


def make_folder(folder: Target) -> None:
    """Make a folder and its parents, if they do not exist."""
    with storage_errors(f"{folder} cannot be made", "choose another place", NAME_ERRORS):
        os.makedirs(folder, exist_ok=True)


def refuse_same(source: object, target: Target) -> None:
    """Refuse an output that is the input's own file: the input would be lost."""
    if isinstance(source, str | os.PathLike) and os.path.exists(target):
        try:
            status = os.fstat(standard_input().fileno()) if os.fspath(source) == "-" else os.stat(source)
        except (OSError, ValueError):  # reading the source will say why
            return
        if os.path.samestat(status, os.stat(target)):
            raise StorageError(f"{target} is the input; choose another name for the output")


@contextmanager
def atomic_write(target: Target, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file that gets its name only when it is complete and on disk.

    Parameters
    ----------
    target : path
        "-" stands for standard output, which gets the content at the end.
    overwrite : bool
        Whether an existing file may be replaced.
    """
    if os.fspath(target) == "-":
        with temporary_file() as stream:
            yield stream
            stream.seek(0)
            with standard_output() as output:
                shutil.copyfileobj(stream, output)
        return
    failure, remedy = f"{target} cannot be written", "choose another place"
    with storage_errors(failure, remedy, NAME_ERRORS):
        path = Path(os.path.realpath(target))
        _check(path, overwrite)
        stream, temporary = _open_beside(path)
    try:
        with storage_errors(failure, remedy), stream:  # closing flushes the buffer, which may fail too
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            _check(path, overwrite)
            temporary = _place(stream, temporary, path, overwrite)
            _sync_folder(path.parent)
    finally:
        if temporary:
            with suppress(OSError):
                temporary.unlink()


def _check(path: Path, overwrite: bool) -> None:
    if path.is_symlink():  # although realpath followed all links
        raise StorageError(f"{path} is a loop of symbolic links; name a file")
    if path.exists() and not path.is_file():
        raise StorageError(f"{path} is not a file; name one, or - for standard output")
    if path.exists() and not overwrite:
        raise StorageError(f"{path} is there already; choose another name, or allow overwriting")


def _temporary_name(path: Path) -> Path:
    return path.parent / f".{secrets.token_hex(8)}.part"


def _open_beside(path: Path) -> tuple[BinaryIO, Path | None]:
    """Open a temporary file in the path's folder, nameless if the system can; return it and its name."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):  # not every file system can
            return open(os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666), "wb+"), None
    temporary = _temporary_name(path)
    return open(temporary, "xb+"), temporary


def _place(stream: BinaryIO, temporary: Path | None, path: Path, overwrite: bool) -> Path | None:
    """Give the file its name; return the temporary name that is left to remove, if any."""
    replaces = overwrite and path.exists()
    if replaces:
        os.fchmod(stream.fileno(), path.stat().st_mode & 0o7777)
    if temporary is None:
        goal = _temporary_name(path) if replaces else path
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
            os.link(temporary, path)  # unlike replacing, it fails if the name was taken meanwhile
            return temporary
        except FileExistsError:
            raise
        except OSError:  # no links here: the check a moment ago must do
            pass
    os.replace(temporary, path)
    return None


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power, if the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Standard streams and temporary files -----------------------------------------------------------------------


def standard_input() -> BinaryIO:
    """Return standard input as a binary file."""
    if sys.stdin is None or sys.stdin.closed:
        raise StorageError("standard input is closed; name a file, or open it")
    return sys.stdin.buffer


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yield standard output as a binary file, and flush it at the end."""
    if sys.stdout is None or sys.stdout.closed:
        raise StorageError("standard output is closed; name a file, or open it")
    with storage_errors("standard output cannot be written", "name a file"):
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError:
            with suppress(OSError, ValueError):  # the rest of the buffer would fail again at exit
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
            raise


_NO_SPACE = "there is no temporary space", "set TMPDIR, or name a file"


@contextmanager
def temporary_file() -> Iterator[BinaryIO]:
    """Open a temporary file that is removed when it is closed."""
    with storage_errors(*_NO_SPACE), tempfile.TemporaryFile() as stream:
        yield stream


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a private temporary folder that is removed at the end."""
    temporary = tempfile.TemporaryDirectory
    with storage_errors(*_NO_SPACE), temporary(prefix="pdrn-", ignore_cleanup_errors=True) as folder:
        yield folder


# Checksums --------------------------------------------------------------------------------------------------


def file_sha256(path: Target) -> str:
    """Return the SHA-256 of a file, byte by byte."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_sha256(
    description: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> str:
    """Return the SHA-256 of a description without its entry "sha256", and of tensors."""
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
    """Refuse content that does not match its entry "sha256".

    Older files have none, and are accepted, unless this kind of file `always` has one.
    """
    if always and "sha256" not in description:
        raise InputError("its checksum is missing")
    if "sha256" in description and description["sha256"] != content_sha256(description, tensors):
        raise InputError("some of its bits have changed since it was written; get it again")


# Tensors ----------------------------------------------------------------------------------------------------

MAX_HEADER_BYTES = 4 << 20
"""A header of a thousand layers takes one megabyte; parsing takes up to sixteen times its size in memory."""


@contextmanager
def open_tensors(path: Target) -> Iterator[Any]:
    """Open a safetensors file; a damaged one raises InputError.

    The header's size is checked before anything is parsed.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError("it is not a file; name one")
    with open_file(path) as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
    if header_bytes > MAX_HEADER_BYTES:
        raise InputError(f"its header claims {header_bytes} bytes, more than {MAX_HEADER_BYTES}")
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise InputError(str(error)) from error


# Locks ------------------------------------------------------------------------------------------------------


@contextmanager
def exclusive_lock(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file; a process that dies releases it.

    Raises
    ------
    LockedError
        With the message `refusal`, if another process holds it.
    """
    make_folder(path.parent)
    with storage_errors(f"{path} cannot be written", "choose another place"):
        stream = open(path, "w")  # noqa: SIM115 (closed below)
    with stream:
        lock(stream, refusal)
        yield


def lock(stream: IO[Any], refusal: str) -> None:
    """Lock an open file until it is closed, if the file system has locks."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(refusal) from None
    except OSError:  # no locks on this file system
        pass
