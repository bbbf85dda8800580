"""The commands quantize, inspect, compare, models, demo and env."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdrn.cli.options import Files, Json, Law, Overwrite

if TYPE_CHECKING:
    from pdrn.audio.quantizers import Quantizer


QUANTIZE_EXAMPLES = """\b
For example:
  pdrn quantize speech.wav speech5.wav --bits 5
  pdrn quantize speech.wav call.wav --law mulaw"""


class Kind(StrEnum):
    """Where the levels of a uniform quantizer are."""

    mid_rise = "mid-rise"
    mid_tread = "mid-tread"
    truncation = "truncation"


def quantize(
    source: Annotated[str, typer.Argument(help="Sound file; - for standard input.", metavar="INPUT")],
    target: Annotated[str, typer.Argument(help="Sound file; - for standard output.", metavar="OUTPUT")],
    bits: Annotated[int | None, typer.Option(min=1, max=24, help="Bit depth.")] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="Zero is an edge (mid-rise, as in the paper, unless given), a level (mid-tread, as in PCM), "
            "or a level that stands for all up to the next (truncation)."
        ),
    ] = None,
    law: Annotated[Law | None, typer.Option(help="The law of G.711, instead of a bit depth.")] = None,
    clip_at: Annotated[
        float | None, typer.Option(help="Cut samples off here first, on both sides of zero.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Quantize sound, to have something to restore.

    The output holds the levels exactly, in 16 bits or, where these are too few, in 24 or 32.
    """
    if (bits is None) == (law is None):
        raise typer.BadParameter("say how coarse it shall be: pass either --bits or --law")
    if law is not None and kind is not None:
        raise typer.BadParameter("G.711 is of one kind; leave --kind or --law out")
    import numpy as np

    from pdrn.audio.files import opened, writer
    from pdrn.storage import refuse_same

    try:
        quantizer = _quantizer(bits, kind or Kind.mid_rise, law, clip_at)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    # A level half-way between two of as many bits takes one bit more.
    subtype = "PCM_16" if (bits or 0) < 16 else "PCM_24" if (bits or 0) < 24 else "PCM_32"
    refuse_same(source, target)
    with opened(source) as (header, sounds):
        shape = header.sample_rate_hz, header.channels, header.frames
        with writer(target, *shape, subtype=subtype, overwrite=overwrite) as put:
            beyond = 0
            for sound in sounds:
                beyond += int(np.count_nonzero(np.abs(sound.samples) > 1))
                put(quantizer.quantize(sound.samples))
    if beyond and clip_at is None:
        print(f"{beyond} samples beyond full scale were cut off there", file=sys.stderr)


def _quantizer(bits: int | None, kind: Kind, law: Law | None, clip_at: float | None) -> Quantizer:
    from pdrn.audio.quantizers import ALaw, Clipping, MidRise, MidTread, MuLaw, Truncation

    if bits is None:
        quantizer: Quantizer = MuLaw() if law is Law.mulaw else ALaw()
    else:
        kinds = {Kind.mid_rise: MidRise, Kind.mid_tread: MidTread, Kind.truncation: Truncation}
        quantizer = kinds[kind](bits)
    return quantizer if clip_at is None else Clipping(clip_at, quantizer)


INSPECT_EXAMPLES = """\b
For example:
  pdrn inspect recording.wav
  pdrn inspect --json *.flac"""


def inspect(files: Files, json: Json = False) -> None:
    """Say what files hold, and how their samples were quantized.

    The levels are told from the beginning of each file, the peak from all of it.
    """
    from json import dumps

    from pdrn.errors import AudioError, printable

    failed = False
    for file in files:
        try:
            facts = _facts(file)
        except AudioError as error:
            failed = True
            print(f"pdrn: {printable(error)}", file=sys.stderr)
            continue
        if json:
            print(dumps(facts), flush=True)
            continue
        print(printable(facts.pop("file")))
        for name, value in facts.items():
            print(f"  {name.replace('_', ' '):16} {'-' if value is None else value}", flush=True)
    if failed:
        raise typer.Exit(1)


def _facts(file: Path) -> dict[str, Any]:
    from itertools import chain

    import numpy as np

    from pdrn.audio.files import opened
    from pdrn.audio.levels import Description, step_of
    from pdrn.errors import UndetectedError
    from pdrn.restoration.methods import in_words
    from pdrn.restoration.restorer import Restorer, beginning_of

    frames, peak, at_peak = 0, 0.0, 0
    with opened(file) as (header, sounds):
        pieces = (np.atleast_2d(sound.samples) for sound in sounds)
        head, telling = beginning_of(pieces)
        for rows in chain(head, pieces):
            frames += rows.shape[-1]
            highest = float(np.abs(rows).max())
            if highest > peak:
                peak, at_peak = highest, 0
            at_peak += int(np.count_nonzero(np.abs(rows) == peak))
    levels = advice = restored_by = None
    try:
        found = Description().levels_of(telling, header.subtype)
        method = Restorer().method_for(header.sample_rate_hz, step_of(found))
        levels, restored_by = str(found), in_words(method.name, method.model)
    except UndetectedError as reason:
        advice = str(reason)
    return {
        "file": str(file),
        "format": header.format,
        "subtype": header.subtype,
        "sample_rate_hz": header.sample_rate_hz,
        "channels": header.channels,
        "frames": frames,
        "seconds": round(frames / header.sample_rate_hz, 6),
        "peak": peak,
        "samples_at_peak": at_peak,
        "levels": levels,
        "restored_by": restored_by,
        "advice": advice,
    }


COMPARE_EXAMPLES = """\b
For example:
  pdrn compare speech.wav speech5.wav speech5_restored.wav"""


def compare(
    reference: Annotated[Path, typer.Argument(help="The sound as it was.", metavar="REFERENCE")],
    files: Annotated[list[Path], typer.Argument(help="What became of it.", metavar="FILE...")],
    json: Json = False,
) -> None:
    """Measure how far sounds are from a reference.

    In decibels: signal-to-noise ratio, whole and by segments, scale-invariant distortion (the higher the
    better), log-spectral distance (the lower). PESQ and STOI where pdrn[metrics] is installed.
    """
    from json import dumps

    from pdrn.audio.files import read
    from pdrn.audio.metrics import is_finite
    from pdrn.errors import AudioError

    wanted = read(reference)
    rows = []
    for file in files:
        sound = read(file)
        if (sound.sample_rate_hz, sound.samples.shape) != (wanted.sample_rate_hz, wanted.samples.shape):
            raise AudioError(
                f"{file} has {sound.samples.shape} samples at {sound.sample_rate_hz} Hz, the reference "
                f"{wanted.samples.shape} at {wanted.sample_rate_hz} Hz; compare sounds of one length and rate"
            )
        rows.append({"file": str(file)} | _measured(wanted.samples, sound.samples, sound.sample_rate_hz))
    if json:
        for row in rows:
            print(dumps({name: value if is_finite(value) else None for name, value in row.items()}))
        return
    _print_table(rows)


def _measured(reference: Any, estimate: Any, sample_rate_hz: int) -> dict[str, float | None]:
    from pdrn.audio import metrics
    from pdrn.audio.metrics import or_none

    measures: dict[str, Callable[[], float]] = {
        "snr_db": lambda: metrics.snr(reference, estimate),
        "segmental_snr_db": lambda: metrics.segmental_snr(reference, estimate),
        "si_sdr_db": lambda: metrics.si_sdr(reference, estimate),
        "log_spectral_distance_db": lambda: metrics.log_spectral_distance(reference, estimate),
        "pesq": lambda: metrics.pesq(reference, estimate, sample_rate_hz),
        "stoi": lambda: metrics.stoi(reference, estimate, sample_rate_hz),
    }
    return {name: or_none(measure) for name, measure in measures.items()}


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from pdrn.errors import printable

    table = Table()
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    for name in names:
        heading = name.removesuffix("_db").replace("_", " ") + (" / dB" if name.endswith("_db") else "")
        table.add_column(heading, justify="left" if name == "file" else "right", overflow="fold")
    for row in rows:
        cells = (row[name] for name in names)
        table.add_row(
            *(
                "-" if cell is None else printable(cell) if isinstance(cell, str) else f"{cell:.2f}"
                for cell in cells
            )
        )
    Console(markup=False, emoji=False).print(table)


MODELS_EXAMPLES = """\b
For example:
  pdrn models list
  pdrn models show speech-large
  pdrn models verify"""

models = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A name of `pdrn models list`.", metavar="NAME")]


@models.command("list")
def list_models(json: Json = False) -> None:
    """Say what networks there are."""
    from dataclasses import asdict
    from json import dumps

    from rich.console import Console
    from rich.table import Table

    from pdrn.restoration.registry import facts, names

    rows = [facts(name) for name in names()]
    if json:
        for row in rows:
            print(dumps(asdict(row)), flush=True)
        return
    table = Table()
    for heading in ("name", "sample rate", "weights", "file", "stream is late by"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    for row in rows:
        latency = 1000 * row.stream_latency_samples / row.sample_rate_hz
        table.add_row(
            row.name,
            f"{row.sample_rate_hz} Hz",
            f"{row.weights:,}",
            f"{row.bytes / 1e6:.1f} MB",
            f"{latency:.0f} ms",
        )
    Console().print(table)


@models.command()
def show(name: Name) -> None:
    """Print the card of a network: what it is for, how it was made, how good it is."""
    from pdrn.restoration.registry import card

    print(card(name))


@models.command()
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names; all networks unless given.", metavar="NAME")
    ] = None,
) -> None:
    """Prove that the files of networks are those that were shipped, by their checksums."""
    from pdrn.restoration import registry

    failed = False
    for name in names or registry.names():
        try:
            registry.verify(name)
            print(f"{name}: as shipped")
        except ValueError as error:
            failed = True
            print(f"pdrn: {error}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def demo(
    folder: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Folder for the sounds and the picture; those of another demo are replaced.",
        ),
    ] = Path("pdrn-demo"),
) -> None:
    """Quantize the synthetic speech that comes along, restore it, show the gain."""
    from rich.console import Console
    from rich.table import Table

    from pdrn.cli.demo import restorations

    rows = list(restorations(folder))
    has_pesq = any(row.restored_pesq is not None for row in rows)
    table = Table(title="32 s of synthetic speech, restored")
    pesq = ["PESQ"] if has_pesq else []
    for heading in ("bits", "by", "SNR / dB", "gain / dB", *pesq, "outside", "speed"):
        table.add_column(heading, justify="left" if heading == "by" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.bits),
            row.method,
            f"{row.quantized_snr:.2f}→{row.restored_snr:.2f}",
            f"{row.restored_snr - row.quantized_snr:+.2f}",
            *([f"{row.quantized_pesq:.2f}→{row.restored_pesq:.2f}"] if has_pesq else []),
            f"by {row.violation:g}",
            f"{row.times_real_time:.0f}x",
        )
    Console().print(table)
    print(f"Listen to {folder}/*.wav and look at {folder}/cells.svg. What to try next:")
    print(f"  pdrn inspect {folder}/speech_5bits.wav")
    print(f"  pdrn restore {folder}/speech_5bits.wav --mix 0.7 -o half.wav")
    print("  pdrn restore --help")


PACKAGES = (
    *("numpy", "scipy", "soundfile", "soxr", "safetensors", "typer", "rich"),
    *("torch", "matplotlib", "pesq", "pystoi", "fastapi", "uvicorn", "websockets", "ray", "optuna"),
    *("onnx", "onnxscript", "onnxruntime"),
)
"""The core, and what extras bring for users."""


def env() -> None:
    """Show versions and the machine, for reports of problems."""
    import os
    import platform
    from importlib import metadata

    import soundfile

    print(f"{'pdrn':12} {metadata.version('pdrn')}")
    print(f"{'python':12} {platform.python_version()}")
    for package in PACKAGES:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            version = "not installed"
        print(f"{package:12} {version}")
    print(f"{'libsndfile':12} {soundfile.__libsndfile_version__}")
    print(f"{'platform':12} {platform.platform()}")
    print(f"{'cores':12} {os.cpu_count()}")
