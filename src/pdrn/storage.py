"""Atomic writes, standard streams, checksums, checked safetensors and locks.

Nothing here knows sound: audio files, networks and training runs are stored by the same means. An error of
the operating system becomes a `StorageError` that names the file, the reason and a remedy.
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

# Files ------------------------------------------------------------------------------------------------------


def open_file(path: Target) -> BufferedReader:
    """Open a file for reading."""
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:  # ValueError: a null byte or half a character in the name
        raise StorageError(f"{path} cannot be opened: {system_reason(error)}; check its name") from error


def make_folder(folder: Target) -> None:
    """Make a folder and its parents, if they do not exist."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be made: {system_reason(error)}; choose another place"
        ) from error


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
    failed = f"{target} cannot be written"
    try:
        path = Path(os.path.realpath(target))
        _check(path, overwrite)
        stream, temporary = _open_beside(path)
    except StorageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise StorageError(f"{failed}: {system_reason(error)}; choose another place") from error
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            _check(path, overwrite)
            temporary = _place(stream, temporary, path, overwrite)
            _sync_folder(path.parent)
    except StorageError:
        raise
    except FileExistsError as error:
        raise StorageError(_exists(path)) from error
    except OSError as error:  # closing flushes the buffer, which may fail too
        raise StorageError(f"{failed}: {system_reason(error)}; choose another place") from error
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
        raise StorageError(_exists(path))


def _exists(path: Path) -> str:
    return f"{path} is there already; choose another name, or allow overwriting"


def _temporary_name(path: Path) -> Path:
    return path.parent / f".{secrets.token_hex(8)}.part"


def _open_beside(path: Path) -> tuple[BinaryIO, Path | None]:
    """Open a file in the path's folder, without a name where the system can; return its name if any."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):  # not every file system can
            return open(os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o666), "wb+"), None
    temporary = _temporary_name(path)
    return open(temporary, "xb+"), temporary


def _place(stream: BinaryIO, temporary: Path | None, path: Path, overwrite: bool) -> Path | None:
    """Give the file its name; return the temporary name that is left to be removed, if any."""
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
            os.link(temporary, path)  # fails if the name was taken meanwhile, as replacing would not
            return temporary
        except FileExistsError:
            raise
        except OSError:  # no links here; the check a moment ago has to do
            pass
    os.replace(temporary, path)
    return None


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power, where the system can."""
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
    """Give standard output as a binary file, and flush it at the end."""
    if sys.stdout is None or sys.stdout.closed:
        raise StorageError("standard output is closed; name a file, or open it")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # the rest of the buffer would fail again at exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        raise StorageError(
            f"standard output cannot be written: {system_reason(error)}; name a file"
        ) from error


@contextmanager
def temporary_file() -> Iterator[BinaryIO]:
    """Open a temporary file that is removed when it is closed."""
    with _temporary_space(), tempfile.TemporaryFile() as stream:
        yield stream


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a private temporary folder that is removed at the end."""
    temporary = tempfile.TemporaryDirectory
    with _temporary_space(), temporary(prefix="pdrn-", ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def _temporary_space() -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"there is no temporary space: {system_reason(error)}; set TMPDIR, or name a file"
        ) from error


# Checksums --------------------------------------------------------------------------------------------------


def file_sha256(path: Target) -> str:
    """Return the SHA-256 of a file, byte by byte."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_sha256(
    description: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> str:
    """Return the SHA-256 of a description, without its own entry "sha256", and of tensors to the last bit."""
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

    Content without one is accepted, as older files have none, unless it should `always` have one.
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
    try:
        stream = open(path, "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {system_reason(error)}; choose another place"
        ) from error
    with stream:
        lock(stream, refusal)
        yield


def lock(stream: IO[Any], refusal: str) -> None:
    """Lock an open file until it is closed, where the file system has locks."""
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
