"""Options that several commands share."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pdrn.errors import InputError, printable

if TYPE_CHECKING:
    from pdrn.audio.corpus import Corpus
    from pdrn.audio.levels import Description


TEMPLATE = "{stem}_restored{ext}"
"""How outputs are called, from inputs."""


class Law(StrEnum):
    """The laws of G.711."""

    mulaw = "mulaw"
    alaw = "alaw"


class Converter(StrEnum):
    """What a converter does with samples between two levels."""

    rounds = "rounds"
    truncates = "truncates"


class Method(StrEnum):
    """How sound is restored."""

    auto = "auto"
    network = "network"
    cp = "cp"
    both = "both"


class Encoding(StrEnum):
    """How raw samples are stored."""

    u8 = "u8"
    s8 = "s8"
    s16le = "s16le"
    s16be = "s16be"
    s24le = "s24le"
    s32le = "s32le"
    f32le = "f32le"
    f64le = "f64le"
    mulaw = "mulaw"
    alaw = "alaw"


class EngineName(StrEnum):
    """What does the work."""

    local = "local"
    ray = "ray"


class Subtype(StrEnum):
    """How files store each sample."""

    PCM_S8 = "PCM_S8"
    PCM_U8 = "PCM_U8"
    PCM_16 = "PCM_16"
    PCM_24 = "PCM_24"
    PCM_32 = "PCM_32"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"


EngineOption = Annotated[
    EngineName, typer.Option(help="Processes of this machine, or the workers of a Ray (pdrn[ray]).")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster to join, or auto; one of this machine alone unless given.", metavar="HOST:PORT"
    ),
]
Bits = Annotated[
    int | None,
    typer.Option(min=1, max=24, help="Bit depth: levels are 2/2^N apart, at the offset that they show."),
]
Step = Annotated[float | None, typer.Option(help="Distance of two levels, instead of the bit depth.")]
LawOption = Annotated[Law | None, typer.Option(help="The law of G.711, instead of the bit depth.")]
ClipAt = Annotated[
    float | None,
    typer.Option(
        help="Samples were cut off here, on both sides of zero (full scale is 1); nowhere unless given."
    ),
]
ConverterOption = Annotated[
    Converter,
    typer.Option(help="Whether samples were rounded to the nearest level or truncated to the one below."),
]
SubtypeOption = Annotated[
    Subtype | None, typer.Option(help="How to store samples; deeper than the input unless given.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per result.")]
CorpusFolder = Annotated[
    Path, typer.Option(help="Folder of sound; its folders train, dev, test are the split.")
]
CorpusFolders = Annotated[
    list[Path],
    typer.Option(
        help="Folder of sound; its folders train, dev, test are the split. Several are joined.",
        metavar="DIR",
    ),
]
RunsFolder = Annotated[Path, typer.Option(help="Folder of run folders.")]
CorpusRate = Annotated[int, typer.Option(min=0, help="Resample the corpus to so many hertz; 0: not.")]
Metrics = Annotated[str, typer.Option(help="Perceptual metrics, comma-separated: pesq, stoi (slow).")]
Files = Annotated[list[Path], typer.Argument(help="Sound files.", metavar="FILE")]


def described(
    bits: int | None, step: float | None, law: Law | None, clip_at: float | None, converter: Converter
) -> Description:
    """Return what a user says about samples; contradictions are mistakes of usage."""
    from pdrn.audio.levels import Description

    try:
        return Description(bits, step, law and str(law), clip_at, truncated=converter is Converter.truncates)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Number = TypeVar("Number", int, float)


def numbers(text: str, kind: type[Number], name: str) -> list[Number]:
    """Return the numbers of a comma-separated list."""
    try:
        return [kind(part) for part in names(text)]
    except ValueError as error:
        raise InputError(f"--{name} takes numbers with commas between, got {text!r}") from error


def names(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


def require(module: str, extra: str) -> None:
    """Refuse to go on without a module that an extra of the package brings."""
    if find_spec(module) is None:
        raise InputError(f"this needs {module}, which is not installed: pip install 'pdrn[{extra}]'")


def scanned(*folders: Path, sample_rate_hz: int = 0, quiet: bool = False) -> Corpus:
    """Index a corpus in one folder or several, showing that this takes a moment."""
    from rich.console import Console
    from rich.text import Text

    from pdrn.audio.corpus import Corpus

    reading = Text(f"reading {', '.join(map(printable, folders))}")  # as text it is not parsed as markup
    with Console(stderr=True, quiet=quiet).status(reading):
        return Corpus.joined([Corpus.scan(folder, sample_rate_hz or None) for folder in folders])


def scanned_at(folder: Path, sample_rate_hz: int) -> Corpus:
    """Index a corpus that is to have this rate, or its own (0); one that has it already is not resampled."""
    corpus = scanned(folder, sample_rate_hz=sample_rate_hz)
    if all(entry.sample_rate_hz == sample_rate_hz for entry in corpus.entries):
        return replace(corpus, sample_rate_hz=None)
    return corpus
