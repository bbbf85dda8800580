"""The log of a run: a line of JSON per epoch."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from pdrn.audio.placing import whole_or_gone

Entry = dict[str, Any]
"""One line of a log."""

LOGGED = (
    "step",
    "train_mse",
    "dev_mse",
    "dev_snr",
    "dev_ratio",
    "best_epoch",
    "training_seconds",
    "floor_fraction",
)
"""What a line of a log cannot be without, besides its epoch."""


@dataclass(frozen=True)
class Log:
    """A log; its file need not exist yet."""

    path: Path

    @property
    def size_bytes(self) -> int:
        """How long it is; 0 where there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def entries(self) -> list[Entry]:
        """Return the epochs that it has; a line that was cut off or damaged ends it."""
        return [entry for entry in takewhile(bool, map(_entry, self._lines())) if entry]

    def append(self, entry: Entry) -> None:
        """Add an epoch."""
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def replace(self, entries: list[Entry]) -> None:
        """Have these epochs, and no others."""
        with whole_or_gone(self.path, overwrite=True) as stream:
            stream.write("".join(json.dumps(entry) + "\n" for entry in entries).encode())

    def sync(self) -> None:
        """Have the disk hold all of it."""
        with open(self.path, "ab") as stream:
            os.fsync(stream.fileno())

    def sha256(self, epochs: int) -> str:
        """Return a checksum of so many epochs."""
        return hashlib.sha256(b"".join(self._lines()[:epochs])).hexdigest()

    def _lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []


def has_all(entries: list[Entry], epochs: int) -> bool:
    """Tell whether entries are those of so many epochs, from the first to the last."""
    return [entry["epoch"] for entry in entries] == list(range(1, epochs + 1))


def _entry(line: bytes) -> Entry | None:
    """Return a line of a log, or None if it is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_whole = (
        isinstance(entry, dict)
        and type(entry.get("epoch")) is int
        and all(isinstance(entry.get(name), int | float) for name in LOGGED)
    )
    return entry if is_whole else None
