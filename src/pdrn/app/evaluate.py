"""The command ``pdrn evaluate``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pdrn.app.options import CorpusFolder, CorpusRate, Hearing, Json
from pdrn.app.studying import names, scanned

EXAMPLES = """\b
For example:
  pdrn evaluate --corpus ieee --methods qu,cp:25
  pdrn evaluate --corpus ieee --methods qu,overlapped,speech-large --hearing pesq,stoi
  pdrn evaluate --corpus ieee --methods qu,runs/NAME/best.safetensors"""


def evaluate(
    corpus: CorpusFolder,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: qu, cp:ITERATIONS, overlapped, restore, models, files.")
    ] = "qu,cp:10,cp:25,cp:50",
    frame_length: Annotated[
        int, typer.Option(min=1, help="Samples of a frame; files shorter than one do not count.")
    ] = 1024,
    hearing: Hearing = "",
    sample_rate: CorpusRate = 0,
    json: Json = False,
) -> None:
    """Measure methods on a corpus, as in Table 2 of the paper."""
    import dataclasses
    from json import dumps

    from rich.console import Console
    from rich.table import Table

    from pdrn.audio.system import printable
    from pdrn.study.evaluate import evaluate as rows_of

    heard, index = names(hearing), scanned(corpus, sample_rate_hz=sample_rate)
    rows = rows_of(index, split, bits, names(methods), frame_length, heard, _note)
    if json:
        for row in rows:
            print(dumps(dataclasses.asdict(row)), flush=True)
        return
    table = Table(title=f"{printable(corpus.resolve().name)}, {split} split, {bits} bits")
    table.add_column("method", overflow="fold")
    for heading in ("MSE / 1e-4", "SNR / dB", "pooled SNR / dB", "ratio", *heard):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        figures = (f"{1e4 * row.mse:.3f}", f"{row.snr:.2f}", f"{row.snr_pooled:.2f}", f"{row.ratio:.3f}")
        table.add_row(printable(row.method), *figures, *(f"{getattr(row, name):.3f}" for name in heard))
    Console(markup=False, emoji=False).print(table)


def _note(sentence: str) -> None:
    from pdrn.audio.system import printable

    print(f"pdrn: {printable(sentence)}", file=sys.stderr)
