"""The command ``pdrn demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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

    from pdrn.app.demonstration import restorations

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
