"""The commands quantize, inspect, compare, models, demo and env."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pdrn.cli.options import Command, Files, Json, Law, Overwrite, usage_errors
from pdrn.errors import AudioError, MissingDependencyError, PdrnError, StorageError, UsageError, printable

if TYPE_CHECKING:
    from pdrn.audio.cells import Cells, FloatArray
    from pdrn.audio.quantizers import Coder


QUANTIZE_EXAMPLES = """\b
For example:
  pdrn quantize speech.wav speech5.wav --bits 5
  pdrn quantize speech.wav call.wav --law mulaw"""


Kind = Literal["mid-rise", "mid-tread", "truncation"]


def quantize(
    source: Annotated[str, typer.Argument(help="Sound file; - for standard input.", metavar="INPUT")],
    target: Annotated[str, typer.Argument(help="Sound file; - for standard output.", metavar="OUTPUT")],
    bits: Annotated[int | None, typer.Option(min=1, max=24, help="Bit depth.")] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="Zero is an edge (mid-rise, as in the paper), a level (mid-tread, as in PCM), or a level "
            "that stands for all up to the next (truncation); default: mid-rise."
        ),
    ] = None,
    law: Annotated[Law | None, typer.Option(help="Law of G.711, instead of a bit depth.")] = None,
    clip_at: Annotated[float | None, typer.Option(help="Clip samples at this magnitude first.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Quantize sound, to have something to restore.

    The output holds the levels exactly, in 16 bits or, where these are too few, in 24 or 32.
    """
    if (bits is None) == (law is None):
        raise UsageError("the quantizer is missing: pass either --bits or --law")
    if law is not None and kind is not None:
        raise UsageError("G.711 is of one kind; leave --kind or --law out")
    import numpy as np

    from pdrn.audio.files import open_audio, writer
    from pdrn.audio.quantizers import Clipping
    from pdrn.storage import refuse_same

    with usage_errors():
        quantizer = _coder(bits, kind or "mid-rise", law)
        clipping = None if clip_at is None else Clipping(clip_at)
    # A level half-way between two of as many bits takes one bit more.
    subtype = "PCM_16" if (bits or 0) < 16 else "PCM_24" if (bits or 0) < 24 else "PCM_32"
    refuse_same(source, target)
    with open_audio(source) as (header, sounds):
        shape = header.sample_rate_hz, header.channels, header.frames
        with writer(target, *shape, subtype=subtype, overwrite=overwrite) as put:
            beyond = 0
            for sound in sounds:
                beyond += int(np.count_nonzero(np.abs(sound.samples) > 1))
                samples = sound.samples if clipping is None else clipping.clip(sound.samples)
                put(quantizer.quantize(samples))
    if beyond and clip_at is None:
        print(f"{beyond} samples beyond full scale were cut off there", file=sys.stderr)


def _coder(bits: int | None, kind: Kind, law: Law | None) -> Coder:
    from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw, Truncation

    if bits is None:
        return MuLaw() if law == "mulaw" else ALaw()
    kinds = {"mid-rise": MidRise, "mid-tread": MidTread, "truncation": Truncation}
    return kinds[kind](bits)


INSPECT_EXAMPLES = """\b
For example:
  pdrn inspect recording.wav
  pdrn inspect --json *.flac"""


def inspect(files: Files, json: Json = False) -> None:
    """Describe files, and how their samples were quantized.

    The levels are detected at the beginning of each file, the peak in all of it.
    """
    from json import dumps

    failed = False
    for file in files:
        try:
            facts = _facts(file)
        except PdrnError as error:
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

    from pdrn.audio.detection import choose_quantizer
    from pdrn.audio.files import open_audio
    from pdrn.errors import UndetectedError
    from pdrn.restoration.methods import describe_method
    from pdrn.restoration.restorer import Restorer, read_beginning

    frames, peak, at_peak = 0, 0.0, 0
    with open_audio(file) as (header, sounds):
        pieces = (np.atleast_2d(sound.samples) for sound in sounds)
        head, telling = read_beginning(pieces)
        for rows in chain(head, pieces):
            frames += rows.shape[-1]
            highest = float(np.abs(rows).max())
            if highest > peak:
                peak, at_peak = highest, 0
            at_peak += int(np.count_nonzero(np.abs(rows) == peak))
    levels = advice = restored_by = None
    try:
        found = choose_quantizer(telling, subtype=header.subtype)
        method = Restorer().method_for(header.sample_rate_hz, found.step)
        levels, restored_by = str(found), describe_method(method.name, method.model)
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
    reference: Annotated[Path, typer.Argument(help="The original.", metavar="REFERENCE")],
    files: Annotated[list[Path], typer.Argument(help="Versions of it.", metavar="FILE...")],
    json: Json = False,
) -> None:
    """Measure how far sounds are from a reference.

    In decibels: signal-to-noise ratio, whole and segmental, scale-invariant signal-to-distortion ratio
    (higher is better), log-spectral distance (lower is better). PESQ and STOI need pdrn[metrics].
    """
    from json import dumps

    from pdrn.audio.files import read
    from pdrn.audio.metrics import is_finite

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


@models.command("list", cls=Command)
def list_models(json: Json = False) -> None:
    """List the bundled models."""
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
    for heading in ("name", "sample rate", "weights", "file", "stream latency"):
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


@models.command(cls=Command)
def show(name: Name) -> None:
    """Print the card of a model: its purpose, its training and its quality."""
    from pdrn.restoration.registry import card

    print(card(name))


@models.command(cls=Command)
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names; default: all models.", metavar="NAME")
    ] = None,
) -> None:
    """Verify the checksums of the bundled models."""
    from pdrn.restoration import registry

    failed = False
    for name in names or registry.names():
        try:
            registry.verify(name)
            print(f"{name}: as shipped")
        except PdrnError as error:
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
            help="Folder for the sounds and the picture; those of an earlier demo are replaced.",
        ),
    ] = Path("pdrn-demo"),
) -> None:
    """Quantize and restore the bundled speech, and show the gain."""
    from rich.console import Console
    from rich.table import Table

    rows = list(_demonstrations(folder))
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


_DEMO_BITS = (4, 5, 6, 8)
_PICTURED_BITS = 4
_PICTURED = slice(193043, 193043 + 100)


@dataclass(frozen=True)
class _Demonstration:
    """A bit depth and a method: quality before and after, and the distance outside the cells."""

    bits: int
    method: str
    quantized_snr: float
    restored_snr: float
    quantized_pesq: float | None
    restored_pesq: float | None
    violation: float
    times_real_time: float


def _demonstrations(folder: Path) -> Iterator[_Demonstration]:
    """Restore the speech at each bit depth by each method; leave all sounds and a picture in the folder."""
    import time

    from pdrn.audio.corpus import speech
    from pdrn.audio.files import write
    from pdrn.audio.metrics import snr
    from pdrn.audio.quantizers import MidRise
    from pdrn.restoration.registry import for_rate
    from pdrn.restoration.restorer import Restorer
    from pdrn.storage import atomic_write, make_folder

    samples, sample_rate_hz = speech()
    restorers = {"cp": Restorer(method="cp")}
    if fitting := for_rate(sample_rate_hz):
        restorers = {fitting[0]: Restorer.from_pretrained(fitting[0], method="network")} | restorers
    make_folder(folder)
    _refuse_foreign_files(folder, samples, restorers)
    write(folder / "speech.wav", samples, sample_rate_hz, overwrite=True)
    for bits in _DEMO_BITS:
        quantizer = MidRise(bits, full_scale=True)
        cells = quantizer.cells(quantizer.encode(samples))
        name = f"speech_{bits}bits"
        write(folder / f"{name}.wav", cells.centre, sample_rate_hz, cells, subtype="PCM_16", overwrite=True)
        quantized_pesq = _pesq(samples, cells.centre, sample_rate_hz)
        curves = {}
        for method, restorer in restorers.items():
            begin = time.perf_counter()
            restored = restorer.restore_cells(cells, sample_rate_hz, quantizer.step)
            seconds = time.perf_counter() - begin
            write(folder / f"{name}_{method}.wav", restored, sample_rate_hz, cells, overwrite=True)
            curves[method] = restored[_PICTURED]
            yield _Demonstration(
                bits=bits,
                method=method,
                quantized_snr=snr(samples, cells.centre),
                restored_snr=snr(samples, restored),
                quantized_pesq=quantized_pesq,
                restored_pesq=_pesq(samples, restored, sample_rate_hz),
                violation=cells.violation(restored),
                times_real_time=len(samples) / sample_rate_hz / seconds,
            )
        if bits == _PICTURED_BITS:
            title = f"{bits} bits: every cell holds the truth"
            drawing = draw_cells(cells[_PICTURED], samples[_PICTURED], curves, sample_rate_hz, title)
            with atomic_write(folder / "cells.svg", overwrite=True) as file:
                file.write(drawing.encode())


def _refuse_foreign_files(folder: Path, samples: FloatArray, methods: Iterable[str]) -> None:
    """Refuse to replace files that are no demo's: a demo is known by its own speech.wav."""
    import numpy as np

    from pdrn.audio.files import read

    endings = ("", *(f"_{method}" for method in methods))
    sounds = [f"speech_{bits}bits{end}.wav" for bits in _DEMO_BITS for end in endings]
    found = [folder / name for name in ("speech.wav", "cells.svg", *sounds) if (folder / name).exists()]
    try:
        is_demo = np.array_equal(read(folder / "speech.wav").samples, samples.astype(np.float32))
    except PdrnError:
        is_demo = False
    if found and not is_demo:
        raise StorageError(f"{found[0]} is not of the demonstration; choose another folder for that")


def _pesq(samples: FloatArray, estimate: FloatArray, sample_rate_hz: int) -> float | None:
    from pdrn.audio.metrics import pesq

    try:
        return pesq(samples, estimate, sample_rate_hz)
    except MissingDependencyError:
        return None


_WIDTH, _HEIGHT = 900, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 50, 40
_LEGEND = 108
"""Width of each entry."""

_CELL, _QUANTIZED, _ORIGINAL = "#e3e8ef", "#8a94a6", "#1d4ed8"
_RESTORED = ("#c2410c", "#15803d")
"""One colour per method."""


def draw_cells(
    cells: Cells, original: FloatArray, restored: Mapping[str, FloatArray], sample_rate_hz: int, title: str
) -> str:
    """Return an SVG image of a stretch of sound: its cells as boxes, the signals as curves.

    `restored` has up to two signals, by the names of their methods.
    """
    count = len(original)
    low, high = float(cells.lo.min()), float(cells.hi.max())
    across = (_WIDTH - _LEFT - _RIGHT) / count
    up = (_HEIGHT - _TOP - _BOTTOM) / (high - low)

    def x(index: float) -> float:
        return _LEFT + (index + 0.5) * across

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - low) * up

    def curve(samples: FloatArray, colour: str) -> str:
        points = " ".join(f"{x(index):.1f},{y(float(value)):.1f}" for index, value in enumerate(samples))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    boxes = [
        f'<rect x="{x(index) - across / 2:.1f}" y="{y(float(hi)):.1f}" width="{across:.1f}" '
        f'height="{(float(hi) - float(lo)) * up:.1f}" fill="{_CELL}" stroke="white" stroke-width="0.5"/>'
        for index, (lo, hi) in enumerate(zip(cells.lo, cells.hi, strict=True))
    ]
    marks = [
        f'<rect x="{x(index) - across / 2:.1f}" y="{y(float(centre)) - 1:.1f}" width="{across:.1f}" '
        f'height="2" fill="{_QUANTIZED}"/>'
        for index, centre in enumerate(cells.centre)
    ]
    by_method = list(zip(restored, _RESTORED, strict=False))
    names = [("cell", _CELL), ("quantized", _QUANTIZED), ("original", _ORIGINAL), *by_method]
    first = _WIDTH - _RIGHT - _LEGEND * len(names)
    legend = [
        f'<rect x="{first + _LEGEND * place}" y="18" width="14" height="10" fill="{colour}"/>'
        f'<text x="{first + 18 + _LEGEND * place}" y="28" font-size="12">{name}</text>'
        for place, (name, colour) in enumerate(names)
    ]
    ticks = [
        f'<text x="{x(milliseconds * sample_rate_hz / 1000):.1f}" y="{_HEIGHT - 15}" text-anchor="middle">'
        f"{milliseconds} ms</text>"
        for milliseconds in range(1000 * count // sample_rate_hz + 1)
    ] + [
        f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in (low, (low + high) / 2, high)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="13" fill="#334155">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            f'<text x="{_LEFT}" y="28" font-size="16">{title}</text>',
            *boxes,
            *marks,
            curve(original, _ORIGINAL),
            *(curve(restored[method], colour) for method, colour in by_method),
            *legend,
            *ticks,
            "</svg>\n",
        ]
    )


PACKAGES = (
    *("numpy", "scipy", "soundfile", "soxr", "safetensors", "typer", "rich"),
    *("torch", "matplotlib", "pesq", "pystoi", "fastapi", "uvicorn", "websockets", "ray", "optuna"),
    *("onnx", "onnxscript", "onnxruntime"),
)
"""The core, and the packages of the extras for users."""


def env() -> None:
    """Print versions and the machine, for bug reports."""
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
