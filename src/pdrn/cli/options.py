"""Options that several commands share, and the command class that prints them in sections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand

from pdrn.errors import InputError, MissingDependencyError, UsageError, printable

if TYPE_CHECKING:
    from pdrn.audio.corpus import Corpus


class Command(TyperCommand):
    """A command whose help has a section per `rich_help_panel`, and whose summary is not cut."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the summary, whatever its length."""
        return super().get_short_help_str(limit=1000)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections in the order of their first option."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                kind = "Arguments" if param.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(param, "rich_help_panel", None) or kind, []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


TEMPLATE = "{stem}_restored{ext}"
"""Default name of an output."""


Law = Literal["mulaw", "alaw"]
Method = Literal["auto", "network", "cp", "both"]
Encoding = Literal["u8", "s8", "s16le", "s16be", "s24le", "s32le", "f32le", "f64le", "mulaw", "alaw"]
Subtype = Literal["PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]
EngineName = Literal["local", "ray"]

WorkerOption = partial(typer.Option, rich_help_panel="Workers")
EngineOption = Annotated[
    EngineName, WorkerOption(help="Processes of this machine, or tasks of a Ray (pdrn[ray]).")
]
Address = Annotated[
    str | None,
    WorkerOption(
        help="The Ray cluster to join, or auto; default: start one on this machine.", metavar="HOST:PORT"
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per result.")]
CorpusFolder = Annotated[Path, typer.Option(help="Folder of sound, split by its folders train, dev, test.")]
CorpusFolders = Annotated[
    list[Path],
    typer.Option(
        help="Folder of sound, split by its folders train, dev, test. Several are joined.", metavar="DIR"
    ),
]
RunsFolder = Annotated[Path, typer.Option(help="Folder of run folders.")]
CorpusRate = Annotated[int, typer.Option(min=0, help="Resample the corpus to this rate in Hz (0: keep).")]
Metrics = Annotated[
    str, typer.Option(help="Perceptual metrics, comma-separated: pesq, stoi, zimtohrli (slow).")
]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an InputError about the value of an option into a UsageError."""
    try:
        yield
    except InputError as error:
        raise UsageError(str(error)) from error


def refuse_given(context: typer.Context, options: Iterable[str], reason: str) -> None:
    """Refuse options that the command line contains, whatever their values are."""
    for option in options:
        source = context.get_parameter_source(option.replace("-", "_"))
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"--{option} {reason}")


Number = TypeVar("Number", int, float)


def numbers(text: str, kind: type[Number], name: str) -> list[Number]:
    """Return the numbers of a comma-separated list."""
    try:
        return [kind(part) for part in names(text)]
    except ValueError as error:
        raise UsageError(f"--{name} takes numbers with commas between, got {text!r}") from error


def names(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


def require(module: str, extra: str) -> None:
    """Check that a module of an optional extra is installed."""
    if find_spec(module) is None:
        raise MissingDependencyError(
            f"this needs {module}, which is not installed: pip install 'pdrn[{extra}]'"
        )


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table that fits the terminal: headings fold, and the first column beyond 20 characters."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    names = [printable(first) for first, *_ in rows]
    table.add_column(headings[0], overflow="fold", min_width=min(max(map(len, names), default=0), 20))
    for heading, *cells in list(zip(headings, *rows, strict=True))[1:]:
        table.add_column(heading, justify="right", min_width=max(map(len, cells), default=0))
    for name, (_, *others) in zip(names, rows, strict=True):
        table.add_row(name, *others)
    Console(markup=False, emoji=False).print(table)


def scanned(*folders: Path, sample_rate_hz: int = 0, quiet: bool = False) -> Corpus:
    """Index a corpus in one folder or several, with a status line on standard error."""
    from rich.console import Console
    from rich.text import Text

    from pdrn.audio.corpus import Corpus

    reading = Text(f"reading {', '.join(map(printable, folders))}")  # as text it is not parsed as markup
    with Console(stderr=True, quiet=quiet).status(reading):
        return Corpus.joined([Corpus.scan(folder, sample_rate_hz or None) for folder in folders])


def scanned_at(folder: Path, sample_rate_hz: int) -> Corpus:
    """Index a corpus at a sample rate (0: its own); files that all have this rate are not resampled."""
    corpus = scanned(folder, sample_rate_hz=sample_rate_hz)
    if all(entry.sample_rate_hz == sample_rate_hz for entry in corpus.entries):
        return replace(corpus, sample_rate_hz=None)
    return corpus
