"""What the commands of the study share."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pdrn.audio.corpus import Corpus

Number = TypeVar("Number", int, float)


def numbers(text: str, kind: type[Number], name: str) -> list[Number]:
    """Return the numbers of a comma-separated list."""
    try:
        return [kind(part) for part in names(text)]
    except ValueError as error:
        raise ValueError(f"--{name} takes numbers with commas between, got {text!r}") from error


def names(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


def require(module: str, extra: str) -> None:
    """Refuse to go on without a module that an extra of the package brings."""
    if find_spec(module) is None:
        raise ValueError(f"this needs {module}, which is not installed: pip install 'pdrn[{extra}]'")


def scanned(*folders: Path, sample_rate_hz: int = 0, quiet: bool = False) -> Corpus:
    """Index a corpus in one folder or several, showing that this takes a moment."""
    from rich.console import Console
    from rich.text import Text

    from pdrn.audio.corpus import Corpus
    from pdrn.audio.system import printable

    reading = Text(f"reading {', '.join(map(printable, folders))}")  # as text it is not parsed as markup
    with Console(stderr=True, quiet=quiet).status(reading):
        return Corpus.joined([Corpus.scan(folder, sample_rate_hz or None) for folder in folders])


def scanned_at(folder: Path, sample_rate_hz: int) -> Corpus:
    """Index a corpus that is to have this rate, or its own (0); one that has it already is not resampled."""
    corpus = scanned(folder, sample_rate_hz=sample_rate_hz)
    if all(entry.sample_rate_hz == sample_rate_hz for entry in corpus.entries):
        return replace(corpus, sample_rate_hz=None)
    return corpus
