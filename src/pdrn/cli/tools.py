"""The commands quantize, inspect, compare, models, demo and env."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pdrn.cli.options import Command, Json, Law, Overwrite, print_table, usage_errors
from pdrn.errors import AudioError, PdrnError, StorageError, UsageError, printable

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
            help="Zero is an edge of cells (mid-rise, as in the paper), a level in the middle of its cell "
            "(mid-tread, as in PCM), or a level at the lower end of its cell (truncation); default: mid-rise."
        ),
    ] = None,
    law: Annotated[Law | None, typer.Option(help="Law of G.711, instead of a bit depth.")] = None,
    clip_at: Annotated[float | None, typer.Option(help="Clip samples at this magnitude first.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Quantize sound, to have something to restore.

    The output holds the levels exactly: in 16 bits, or in 24 or 32 if these are too few.
    """
    if (bits is None) == (law is None):
        raise UsageError("the quantizer is missing: pass either --bits or --law")
    if law is not None and kind is not None:
        raise UsageError("G.711 is of one kind; leave --kind or --law out")
    import numpy as np

    from pdrn.audio.files import open_audio, writer
    from pdrn.audio.quantizers import ALaw, Clipping, MidRise, MidTread, MuLaw, Truncation
    from pdrn.storage import refuse_same

    with usage_errors():
        if bits is None:
            quantizer: Coder = MuLaw() if law == "mulaw" else ALaw()
        else:
            kinds = {"mid-rise": MidRise, "mid-tread": MidTread, "truncation": Truncation}
            quantizer = kinds[kind or "mid-rise"](bits)
        clipping = None if clip_at is None else Clipping(clip_at)
    # Mid-rise levels lie half-way between those of PCM, and take one bit more.
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


INSPECT_EXAMPLES = """\b
For example:
  pdrn inspect recording.wav
  pdrn inspect --json *.flac"""


def inspect(
    files: Annotated[list[Path], typer.Argument(help="Sound files.", metavar="FILE")], json: Json = False
) -> None:
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
    """Measure the distance of sounds from a reference.

    In decibels: signal-to-noise ratio, whole and segmental, scale-invariant signal-to-distortion ratio
    (higher is better), log-spectral distance (lower is better). PESQ, STOI and Zimtohrli need pdrn[metrics].
    """
    from json import dumps

    from pdrn.audio.files import read
    from pdrn.audio.metrics import is_finite

    wanted = read(reference)
    rows: list[dict[str, Any]] = []
    for file in files:
        sound = read(file)
        if (sound.sample_rate_hz, sound.samples.shape) != (wanted.sample_rate_hz, wanted.samples.shape):
            raise AudioError(
                f"{file} has {sound.samples.shape} samples at {sound.sample_rate_hz} Hz, the reference "
                f"{wanted.samples.shape} at {wanted.sample_rate_hz} Hz; compare sounds of one length and rate"
            )
        figures = _figures(wanted.samples, sound.samples, sound.sample_rate_hz)
        rows.append({"file": str(file)} | figures)
    if json:
        for row in rows:
            print(dumps({name: value if is_finite(value) else None for name, value in row.items()}))
        return
    defined = [name for name in figures if any(row[name] is not None for row in rows)]
    print_table(
        ["file", *(_HEADINGS[name] for name in defined)],
        [[row["file"], *(_decimals(row[name]) for name in defined)] for row in rows],
    )


_HEADINGS = {
    "snr_db": "SNR dB",
    "segmental_snr_db": "seg. SNR dB",
    "si_sdr_db": "SI-SDR dB",
    "log_spectral_distance_db": "LSD dB",
    "pesq": "PESQ",
    "stoi": "STOI",
    "zimtohrli": "Zimtohrli",
}
"""Short, so that the names of files have room on a line of 80 characters."""


def _decimals(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.2f}"


def _figures(reference: FloatArray, estimate: FloatArray, sample_rate_hz: int) -> dict[str, float | None]:
    from pdrn.audio import metrics

    measures: dict[str, Callable[[], float]] = {
        "snr_db": lambda: metrics.snr(reference, estimate),
        "segmental_snr_db": lambda: metrics.segmental_snr(reference, estimate),
        "si_sdr_db": lambda: metrics.si_sdr(reference, estimate),
        "log_spectral_distance_db": lambda: metrics.log_spectral_distance(reference, estimate),
        "pesq": lambda: metrics.pesq(reference, estimate, sample_rate_hz),
        "stoi": lambda: metrics.stoi(reference, estimate, sample_rate_hz),
        "zimtohrli": lambda: metrics.zimtohrli(reference, estimate, sample_rate_hz),
    }
    return {name: metrics.or_none(measure) for name, measure in measures.items()}


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

    from pdrn.restoration.registry import facts, names

    rows = [facts(name) for name in names()]
    if json:
        for row in rows:
            print(dumps(asdict(row)), flush=True)
        return
    print_table(
        ("name", "sample rate", "weights", "file", "stream latency"),
        [
            (
                row.name,
                f"{row.sample_rate_hz} Hz" if row.sample_rate_hz else "any",
                f"{row.weights:,}",
                f"{row.bytes / 1e6:.1f} MB",
                f"{row.stream_latency_ms:.0f} ms",
            )
            for row in rows
        ],
    )


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
            print(f"{name}: intact")
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
    import time

    from pdrn.audio.corpus import speech
    from pdrn.audio.files import write
    from pdrn.audio.metrics import or_none, pesq, snr
    from pdrn.audio.quantizers import MidRise
    from pdrn.restoration.registry import for_rate
    from pdrn.restoration.restorer import Restorer
    from pdrn.storage import atomic_write, make_folder

    samples, sample_rate_hz = speech()
    restorers = {name: Restorer(name, method="network") for name in for_rate(sample_rate_hz)[:1]}
    restorers["cp"] = Restorer(method="cp")
    make_folder(folder)
    _refuse_foreign_files(folder, samples)
    write(folder / "speech.wav", samples, sample_rate_hz, overwrite=True)
    rows = []
    for bits in (4, 5, 6, 8):
        quantizer = MidRise(bits, full_scale=True)
        cells = quantizer.cells(quantizer.encode(samples))
        name = f"speech_{bits}bits"
        write(folder / f"{name}.wav", cells.centre, sample_rate_hz, cells, subtype="PCM_16", overwrite=True)
        snr_before = snr(samples, cells.centre)
        pesq_before = or_none(partial(pesq, samples, cells.centre, sample_rate_hz))
        curves: dict[str, FloatArray] = {"original": samples[_PICTURED]}
        for method, restorer in restorers.items():
            begin = time.perf_counter()
            restored = restorer.restore_cells(cells, sample_rate_hz, quantizer.step)
            seconds = time.perf_counter() - begin
            write(folder / f"{name}_{method}.wav", restored, sample_rate_hz, cells, overwrite=True)
            curves[method] = restored[_PICTURED]
            snr_after = snr(samples, restored)
            pesq_after = or_none(partial(pesq, samples, restored, sample_rate_hz))
            rows.append(
                (
                    str(bits),
                    method,
                    f"{snr_before:.2f}→{snr_after:.2f}",
                    f"{snr_after - snr_before:+.2f}",
                    f"{_decimals(pesq_before)}→{_decimals(pesq_after)}",
                    f"by {cells.violation(restored):g}",
                    f"{len(samples) / sample_rate_hz / seconds:.0f}x",
                )
            )
        if bits == _PICTURED_BITS:
            title = f"{bits} bits: every cell holds the truth"
            with atomic_write(folder / "cells.svg", overwrite=True) as file:
                file.write(_draw(cells[_PICTURED], curves, sample_rate_hz, title).encode())
    headings = ("bits", "method", "SNR / dB", "gain / dB", "PESQ", "outside", "speed")
    print_table(headings, rows, "32 s of synthetic speech, restored")
    print(f"Listen to {folder}/*.wav and look at {folder}/cells.svg. What to try next:")
    print(f"  pdrn inspect {folder}/speech_5bits.wav")
    print(f"  pdrn restore {folder}/speech_5bits.wav --mix 0.7 -o half.wav")
    print("  pdrn restore --help")


_PICTURED_BITS = 4
_PICTURED = slice(193043, 193043 + 100)


def _refuse_foreign_files(folder: Path, samples: FloatArray) -> None:
    """Refuse to replace files of anything but an earlier demo, which is known by its speech.wav."""
    import numpy as np

    from pdrn.audio.files import read

    found = [*sorted(folder.glob("speech*.wav")), *folder.glob("cells.svg")]
    if found:
        with suppress(PdrnError):
            if np.array_equal(read(folder / "speech.wav").samples, samples.astype(np.float32)):
                return
        raise StorageError(f"{found[0]} is not of the demonstration; choose another folder for that")


_CURVE_COLOURS = ("#1d4ed8", "#c2410c", "#15803d")


def _draw(cells: Cells, curves: Mapping[str, FloatArray], sample_rate_hz: int, title: str) -> str:
    """Return an SVG image of a stretch of sound: its cells as boxes, up to three signals as curves."""
    count, low, high = len(cells.lo), float(cells.lo.min()), float(cells.hi.max())
    ends = zip(cells.lo, cells.hi, strict=True)
    boxes = "".join(f"M{i} {-hi:.6f}h1V{-lo:.6f}h-1z" for i, (lo, hi) in enumerate(ends))
    levels = "".join(f"M{i} {-centre:.6f}h1" for i, centre in enumerate(cells.centre))
    shapes = [f'<path d="{boxes}" fill="#e3e8ef" stroke="white"/>', f'<path d="{levels}" stroke="#8a94a6"/>']
    legend = [("cell", "#c3ccd9"), ("quantized", "#8a94a6"), *zip(curves, _CURVE_COLOURS, strict=False)]
    for (_, colour), curve in zip(legend[2:], curves.values(), strict=True):
        points = " ".join(f"{i + 0.5},{-value:.6f}" for i, value in enumerate(curve))
        shapes.append(f'<polyline points="{points}" stroke="{colour}"/>')
    names = [f'\u2003<tspan fill="{colour}">\u25a0</tspan> {name}' for name, colour in legend]
    ticks = [
        f'<text x="{60 + 820 * ms * sample_rate_hz / 1000 / count:.1f}" y="405">{ms} ms</text>'
        for ms in range(1000 * count // sample_rate_hz + 1)
    ]
    ticks += [f'<text x="8" y="{y}">{value:g}</text>' for value, y in ((high, 60), (low, 380))]
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 420" font-family="sans-serif" '
            'font-size="13" fill="#334155">',
            '<rect width="900" height="420" fill="white"/>',
            f'<text x="60" y="28" font-size="16">{title}</text>',
            f'<text x="880" y="28" text-anchor="end">{"".join(names)}</text>',
            f'<svg x="60" y="50" width="820" height="330" viewBox="0 {-high} {count} {high - low}" '
            'preserveAspectRatio="none"><g fill="none" stroke-width="2">',
            *(shape.replace("/>", ' vector-effect="non-scaling-stroke"/>') for shape in shapes),
            "</g></svg>",
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
