"""The command ``pdrn train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.options import RunsFolder
from pdrn.app.studying import require, scanned

EXAMPLES = """\b
For example:
  pdrn train pdrn.toml --corpus ieee --out runs
  pdrn train speech-large --corpus librispeech --corpus festvox-ru"""


def train(
    config: Annotated[
        str,
        typer.Argument(
            help="TOML file, see docs/training.md; or a name: speech-large, speech-small, minute."
        ),
    ],
    corpus: Annotated[
        list[Path],
        typer.Option(
            help="Folder of sound; its folders train, dev, test are the split. Several are joined.",
            metavar="DIR",
        ),
    ],
    out: RunsFolder = Path("runs"),
    threads: Annotated[int, typer.Option(min=0, help="0: what is fastest just now.")] = 0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log for TensorBoard too, into the run's folder.")
    ] = False,
) -> None:
    """Train a network; interrupted, the same command goes on where it stopped."""
    from pdrn.study.config import load

    require("torch", "train")
    settings = load(config)
    index = scanned(*corpus, sample_rate_hz=settings.data.sample_rate_hz)

    from pdrn.app.training import Board, display
    from pdrn.study.train import train as run_training

    with display() as shown:
        watcher = Board(shown) if tensorboard else shown
        run = run_training(settings, index, out, threads=threads, watcher=watcher)
    print(run.best_path)
