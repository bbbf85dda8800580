"""The command ``pdrn search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.options import CorpusFolders, RunsFolder
from pdrn.app.studying import require, scanned

EXAMPLES = """\b
For example:
  pdrn search pdrn.toml --corpus ieee --trials 30 > best.toml
  pdrn search pdrn.toml --corpus ieee --tune loss.regularisation=1e-9..1e-6,log --tune start.sigma=1..9"""


def search(
    config: Annotated[str, typer.Argument(help="TOML file, or a name, as for pdrn train.")],
    corpus: CorpusFolders,
    trials: Annotated[int, typer.Option(min=1, help="How many there are in the end, done ones too.")] = 20,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            help="What to tune, and between what; learning rate, lambda, and sigma of a start at "
            "Chambolle-Pock unless given.",
            metavar="PART.SETTING=LOW..HIGH[,log]",
        ),
    ] = None,
    out: RunsFolder = Path("runs"),
    storage: Annotated[
        str,
        typer.Option(help="Optuna's database; a file among the runs unless given.", metavar="URL"),
    ] = "",
    threads: Annotated[int, typer.Option(min=0, help="0: what is fastest just now.")] = 0,
) -> None:
    """Search settings with a small development error, and print the best configuration.

    Every trial is a run that pdrn train and pdrn report find. Interrupted, the same command goes on.
    """
    from pdrn.study.config import load
    from pdrn.study.tabular import as_toml

    require("torch", "train")
    require("optuna", "search")
    settings = load(config)
    index = scanned(*corpus, sample_rate_hz=settings.data.sample_rate_hz)

    from rich.console import Console

    from pdrn.app.training import display
    from pdrn.study.search import Range, Search, usual_ranges

    ranges = tuple(Range.read(text, settings) for text in tune or usual_ranges(settings))
    wanted = Search(settings, index, out, ranges, storage, threads)
    console = Console(stderr=True, highlight=False)
    for tried in wanted.tries(trials, display):
        became = tried.reason if tried.error is None else f"dev ratio {tried.error:.4f}"
        console.print(f"{tried.number}/{trials}  {became}", markup=False, soft_wrap=True)
    best = wanted.best()
    print(f"# dev ratio {best.error:.4f}, by trial {best.number}: {best.run.best_path}")
    print(as_toml(best.config), end="")
