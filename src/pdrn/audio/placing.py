"""Placing: a file that appears under its name when it is complete, and never otherwise.

Where the file system can, the file has no name at all until then, so that not even a killed process leaves
anything behind; elsewhere it has a temporary one in the folder that it is meant for.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pdrn.audio.system import AudioError, standard_input, unnamed_file, why

Target = str | os.PathLike[str]


@contextmanager
def whole_or_gone(target: Target, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a file that becomes the target, or is copied to standard output for "-", only without error."""
    if os.fspath(target) == "-":
        with unnamed_file() as stream:
            yield stream
            _copy_to_stdout(stream)
        return
    try:
        path = Path(os.path.realpath(target))
        _check(path, overwrite)
        stream, temporary = _open_beside(path)
    except AudioError:
        raise
    except (OSError, ValueError) as error:
        raise AudioError(f"{target} cannot be written: {why(error)}; choose another place") from error
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            _check(path, overwrite)
            temporary = _place(stream, temporary, path, overwrite)
            _keep_names(path.parent)
    except FileExistsError as error:
        raise AudioError(_there_already(path)) from error
    except OSError as error:  # of closing too: what is left in the buffer fails again there
        raise AudioError(f"{target} cannot be written: {why(error)}; choose another place") from error
    finally:
        if temporary:
            with suppress(OSError):
                temporary.unlink()


def make_folder(folder: Target) -> None:
    """Make a folder, and those that it lies in, unless it is there."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise AudioError(f"{folder} cannot be made: {why(error)}; choose another place") from error


def refuse_same(source: object, target: Target) -> None:
    """Refuse an output that is the file which the input comes from: it would be lost."""
    if isinstance(source, str | os.PathLike) and os.path.exists(target):
        try:
            status = os.fstat(standard_input().fileno()) if os.fspath(source) == "-" else os.stat(source)
        except (OSError, ValueError):  # whoever reads it says why
            return
        if os.path.samestat(status, os.stat(target)):
            raise AudioError(f"{target} is the input; choose another name for the output")


def _check(path: Path, overwrite: bool) -> None:
    if path.is_symlink():  # after all links were followed
        raise AudioError(f"{path} is a loop of symbolic links; name a file")
    if path.exists() and not path.is_file():
        raise AudioError(f"{path} is not a file; name one, or - for standard output")
    if path.exists() and not overwrite:
        raise AudioError(_there_already(path))


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
    """Give standard output as a binary file, flushed in the end; failing to write is an `AudioError`."""
    if sys.stdout is None or sys.stdout.closed:
        raise AudioError("standard output is closed; name a file, or open it")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # what is left in the buffer would fail again at exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        raise AudioError(f"standard output cannot be written: {why(error)}; name a file") from error
