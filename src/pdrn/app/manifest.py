"""The manifest: a record of what is done, so that work that was cut off goes on where it was.

A line of JSON per file: where the output is, and checksums of the input, of what it was made with, and of
the output. The place only says where to look; the checksums are the proof, and whoever asks compares them
with the files. So a line that is damaged, or out of date, never makes anything pass for done.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO

from pdrn.audio.system import AudioError, why

HEAD = {"manifest": "pdrn restore", "version": 1}
SYNC_SECONDS = 1.0
"""A machine that fails forgets at most the lines of so long; a process that is killed forgets none."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Checksums (SHA-256) of an input, of what it was restored with, and of what became of it."""

    source: bytes
    options: bytes
    target: bytes


def checksum(path: str) -> bytes:
    """Return the checksum of a file's content."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise AudioError(f"{path} is no file that can be read twice; leave out the manifest")
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except (OSError, ValueError) as error:
        raise AudioError(f"{path} cannot be opened: {why(error)}; check the name") from error


class Manifest:
    """A manifest that is open; `opened` opens one."""

    def __init__(self, path: str, stream: FileIO) -> None:
        self._path = path
        self._folder = os.path.dirname(os.path.realpath(path))
        self._stream = stream
        self._synced = time.monotonic()
        self._proofs: dict[str, Proof] = {}
        self.unreadable = 0
        """How many lines say nothing, but for one that was cut off at the end."""
        self._read()

    def known(self, target: str) -> Proof | None:
        """Return what was noted about an output, if anything; asked once, it is forgotten."""
        return self._proofs.pop(self._place(target), None)

    def note(self, source: str, target: str, proof: Proof) -> None:
        """Note that an output is done."""
        checksums = {"source": proof.source, "options": proof.options, "target": proof.target}
        row = {"input": source, "output": self._place(target)}
        self._append(_line(row | {name: content.hex() for name, content in checksums.items()}))
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Have the disk hold all that is noted."""
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def _place(self, target: str) -> str:
        """Return where an output is, seen from the manifest, so that both can move together."""
        folder, name = os.path.split(target)
        return os.path.join(_from(self._folder, folder or "."), name)

    def _append(self, line: bytes) -> None:
        try:
            written = self._stream.write(line)  # at once: there is no buffer
        except OSError as error:
            raise AudioError(f"{self._path} cannot be written: {why(error)}; run the same again") from error
        if written != len(line):
            raise AudioError(f"{self._path} cannot be written; is the disk full? then run the same again")

    def _read(self) -> None:
        with open(self._path, "rb") as lines:
            head = line = lines.readline()
            if not head:
                self._append(_line(HEAD))
                return
            if _parsed(head) != HEAD:
                raise AudioError(f"{self._path} is there already and no manifest; choose another name")
            for line in lines:
                if line.endswith(b"\n"):
                    self._take(_parsed(line))
        if not line.endswith(b"\n"):
            self._append(b"\n")  # a line that was cut off ends here, so that the next one begins

    def _take(self, row: dict[str, str]) -> None:
        try:
            source, options, target = (bytes.fromhex(row[name]) for name in ("source", "options", "target"))
            self._proofs[row["output"]] = Proof(source, options, target)
        except (KeyError, TypeError, ValueError):
            self.unreadable += 1


@lru_cache
def _from(start: str, folder: str) -> str:
    return os.path.relpath(os.path.realpath(folder), start)


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, str]:
    with suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    return {}


@contextmanager
def opened(path: str) -> Iterator[Manifest]:
    """Open a manifest, or begin one; nobody else may have it open."""
    try:
        stream = open(path, "ab+", buffering=0)  # noqa: SIM115 (closed below)
    except (OSError, ValueError) as error:
        raise AudioError(f"{path} cannot be written: {why(error)}; choose another place") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AudioError(f"{path} is in use by another run; wait for it, or name another") from error
        except OSError:  # no locks on this file system
            pass
        manifest = Manifest(path, stream)
        try:
            yield manifest
        finally:
            manifest.sync()
