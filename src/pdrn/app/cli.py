"""The command ``pdrn``. Each command imports what it needs when it runs, so that help comes at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Restore quantized sound inside its cells.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def demo() -> None:
    """Quantize the speech that comes with the package, restore it, and show the gain."""
    from rich.console import Console
    from rich.table import Table

    from pdrn.app.demo import restorations

    table = Table(title="32 s of speech, restored by Chambolle-Pock over a Gabor frame")
    for heading in ("bits", "quantized", "restored", "gain", "outside its cells", "speed"):
        table.add_column(heading, justify="right")
    for row in restorations():
        table.add_row(
            str(row.bits),
            f"{row.quantized_snr:.2f} dB",
            f"{row.restored_snr:.2f} dB",
            f"{row.restored_snr - row.quantized_snr:+.2f} dB",
            f"by {row.violation:g}",
            f"{row.times_real_time:.0f}x real time",
        )
    Console().print(table)


@app.command()
def evaluate(
    corpus: Annotated[
        Path, typer.Option(help="Folder of sound; its folders train, dev, test are the split.")
    ],
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: qu, cp:ITERATIONS.")
    ] = "qu,cp:10,cp:25,cp:50",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per method.")] = False,
) -> None:
    """Measure methods on the frames of a corpus, as in Table 2 of the paper.

    Example: pdrn evaluate --corpus ieee --methods qu,cp:25
    """
    import dataclasses
    from json import dumps

    from rich.console import Console
    from rich.table import Table

    from pdrn.audio.corpus import Corpus
    from pdrn.study.evaluate import evaluate as rows_of

    with Console(stderr=True).status(f"reading {corpus}"):
        index = Corpus.scan(corpus)
    rows = rows_of(index, split, bits, methods.split(","))
    if json:
        for row in rows:
            print(dumps(dataclasses.asdict(row)), flush=True)
        return
    table = Table(title=f"{corpus.name}, {split} split, {bits} bits")
    for heading in ("method", "MSE / 1e-4", "SNR / dB", "pooled SNR / dB", "ratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.method, f"{1e4 * row.mse:.3f}", f"{row.snr:.2f}", f"{row.snr_pooled:.2f}", f"{row.ratio:.3f}"
        )
    Console().print(table)


def main() -> None:
    """Run the command line: what a user did wrong is one sentence on stderr and exit code 1."""
    try:
        app()
    except (ValueError, OSError) as error:
        print(f"pdrn: {error}", file=sys.stderr)
        raise SystemExit(1) from None
