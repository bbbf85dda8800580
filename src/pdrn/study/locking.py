"""Locks: one process at a time, and a killed one lets go by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
            raise ValueError(refusal) from error
        yield
