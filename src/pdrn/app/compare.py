"""The command ``pdrn compare``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pdrn.app.measuring import is_finite, or_none
from pdrn.app.options import Json

EXAMPLES = """\b
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
    from pdrn.audio.system import AudioError

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

    from pdrn.audio.system import printable

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
