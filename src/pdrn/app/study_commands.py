"""The commands of the study: train, evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdrn.audio.corpus import Corpus

CORPUS = Annotated[Path, typer.Option(help="Folder of sound; its folders train, dev, test are the split.")]
OUT = Annotated[Path, typer.Option(help="Folder of run folders.")]
THREADS = Annotated[int, typer.Option(min=0, help="0: what is fastest just now.")]


def train(
    config: Annotated[Path, typer.Argument(help="TOML file; see docs/training.md.")],
    corpus: CORPUS,
    out: OUT = Path("runs"),
    threads: THREADS = 0,
) -> None:
    """Train a network; interrupted, the same command goes on where it stopped.

    Example: pdrn train pdrn.toml --corpus ieee --out runs
    """
    from pdrn.app.training import display
    from pdrn.study.config import load
    from pdrn.study.train import train as run_training

    settings = load(config)
    index = scanned(corpus, settings.data.sample_rate_hz)
    with display() as watcher:
        run = run_training(settings, index, out, threads=threads, watcher=watcher)
    print(run.best_path)


def evaluate(
    corpus: CORPUS,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: qu, cp:ITERATIONS, files of networks.")
    ] = "qu,cp:10,cp:25,cp:50",
    hearing: Annotated[str, typer.Option(help="Comma-separated: pesq, stoi (slow).")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per method.")] = False,
) -> None:
    """Measure methods on the frames of a corpus, as in Table 2 of the paper.

    Example: pdrn evaluate --corpus ieee --methods qu,cp:25,network.safetensors
    """
    import dataclasses
    from json import dumps

    from rich.console import Console
    from rich.table import Table

    from pdrn.study.evaluate import evaluate as rows_of

    heard = hearing.split(",") if hearing else []
    rows = rows_of(scanned(corpus), split, bits, methods.split(","), hearing=heard)
    if json:
        for row in rows:
            print(dumps(dataclasses.asdict(row)), flush=True)
        return
    table = Table(title=f"{corpus.name}, {split} split, {bits} bits")
    for heading in ("method", "MSE / 1e-4", "SNR / dB", "pooled SNR / dB", "ratio", *heard):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = (f"{1e4 * row.mse:.3f}", f"{row.snr:.2f}", f"{row.snr_pooled:.2f}", f"{row.ratio:.3f}")
        table.add_row(row.method, *figures, *(f"{getattr(row, name):.3f}" for name in heard))
    Console().print(table)


def scanned(corpus: Path, sample_rate_hz: int = 0) -> Corpus:
    """Index a corpus, showing that this takes a moment."""
    from rich.console import Console

    from pdrn.audio.corpus import Corpus

    with Console(stderr=True).status(f"reading {corpus}"):
        return Corpus.scan(corpus, sample_rate_hz or None)
