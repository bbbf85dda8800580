"""The command ``pdrn train``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.options import CorpusFolders, RunsFolder
from pdrn.app.studying import require, scanned

EXAMPLES = """\b
For example:
  pdrn train pdrn.toml --corpus ieee --out runs
  pdrn train speech-large --corpus librispeech --corpus festvox-ru
  torchrun --nproc-per-node 2 -m pdrn train pdrn.toml --corpus ieee"""


def train(
    config: Annotated[
        str,
        typer.Argument(
            help="TOML file, see docs/training.md; or a name: speech-large, speech-small, minute, "
            "adapt, speech-large-8k, speech-small-8k."
        ),
    ],
    corpus: CorpusFolders,
    out: RunsFolder = Path("runs"),
    threads: Annotated[int, typer.Option(min=0, help="0: what is fastest just now.")] = 0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log for TensorBoard too, into the run's folder.")
    ] = False,
) -> None:
    """Train a network; interrupted, the same command goes on where it stopped.

    Processes that torchrun starts share every batch, and train the network that one alone would.
    """
    from pdrn.study.config import load
    from pdrn.study.processes import joined

    require("torch", "train")
    with ExitStack() as held:
        processes = held.enter_context(joined())
        with processes.together():
            settings = load(config)
            rate = settings.data.sample_rate_hz
            index = scanned(*corpus, sample_rate_hz=rate, quiet=not processes.is_first)

            from pdrn.app.training import Board, display
            from pdrn.study.train import train as run_training

            shown = held.enter_context(display()) if processes.is_first else None
            watcher = Board(shown) if shown and tensorboard else shown
        run = run_training(settings, index, out, threads=threads, watcher=watcher, processes=processes)
    if processes.is_first:
        print(run.best_path)
