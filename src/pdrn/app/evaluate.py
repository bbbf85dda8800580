"""The command ``pdrn evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.options import Json

EXAMPLES = """\b
For example:
  pdrn evaluate --corpus ieee --methods qu,cp:25"""


def evaluate(
    corpus: Annotated[
        Path, typer.Option(help="Folder of sound; its folders train, dev, test are the split.")
    ],
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: qu, cp:ITERATIONS.")
    ] = "qu,cp:10,cp:25,cp:50",
    json: Json = False,
) -> None:
    """Measure methods on a corpus, as in Table 2 of the paper."""
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
