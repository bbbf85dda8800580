"""The command ``pdrn study``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.options import CorpusFolder, CorpusRate, RunsFolder
from pdrn.app.studying import numbers, require, scanned_at

EXAMPLES = """\b
For example:
  pdrn study neighbours --corpus ieee --out runs
  pdrn study extrapolation --corpus ieee --frame-length 256 --epochs 4 --seeds 3
  pdrn study iterating --corpus ieee --frame-length 256 --epochs 4 --depths 5,10"""


def study(
    what: Annotated[str, typer.Argument(help="neighbours, extrapolation or iterating.")],
    corpus: CorpusFolder,
    epochs: Annotated[int, typer.Option(min=1, help="How long; of the first network for neighbours.")] = 12,
    depths: Annotated[str, typer.Option(help="Numbers of layers, but for neighbours.")] = "2,5,10",
    rates: Annotated[
        str,
        typer.Option(help="Comma-separated learning rates: the best for each counts, from the first seed."),
    ] = "1e-4,3e-4,1e-3",
    seeds: Annotated[int, typer.Option(min=1, help="How many times, each from another seed.")] = 1,
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    frame_length: Annotated[int, typer.Option(min=8, help="Samples of a frame.")] = 1024,
    sample_rate: CorpusRate = 0,
    batches: Annotated[int, typer.Option(min=1, help="Batches of an epoch, but for neighbours.")] = 500,
    threads: Annotated[int, typer.Option(min=0, help="0: what is fastest just now.")] = 0,
    out: RunsFolder = Path("runs"),
) -> None:
    """Compare networks on the same task: neighbours in equal time, others in equal steps."""
    if what not in ("neighbours", "extrapolation", "iterating"):
        raise ValueError(f"there are neighbours, extrapolation and iterating to study, not {what!r}")
    require("torch", "train")
    require("matplotlib", "report")
    from pdrn.app.training import display
    from pdrn.study import comparison, entrants
    from pdrn.study.compared import markdown
    from pdrn.study.config import Config
    from pdrn.study.findings import known_steps, save_comparison
    from pdrn.study.iterating import iterated
    from pdrn.study.machine import fastest_threads
    from pdrn.study.train import Diverged, train

    index, asked_threads, threads = scanned_at(corpus, sample_rate), threads, threads or fastest_threads()
    layers, learning_rates = numbers(depths, int, "depths"), numbers(rates, float, "rates")
    least = 2 if what == "iterating" else 1
    if not learning_rates or not layers or min(layers) < least:
        raise ValueError(f"{what} takes learning rates, and numbers of layers from {least} on; name some")
    comparison.check(index)
    if what == "neighbours":
        networks = entrants.neighbours(frame_length, bits)
    elif what == "extrapolation":
        networks = entrants.extrapolation(frame_length, bits, layers, batches)
    else:
        networks = entrants.iterating(frame_length, bits, layers, batches)
    networks = comparison.at_rate(networks, index.sample_rate_hz or 0)
    asked = {
        "networks": [entrant.name for entrant in networks],
        "corpus": index.folder.resolve().name,
        "corpus_sha256": index.checksum,
        "bits": bits,
        "frame_length": frame_length,
        "epochs": epochs,
    }
    if index.sample_rate_hz:
        asked["sample_rate_hz"] = index.sample_rate_hz
    if what == "neighbours":
        timed = partial(comparison.in_equal_time, networks, index, epochs, threads)
        steps = known_steps(out, asked | {"threads": asked_threads}, timed)
    else:
        asked["batches"], steps = batches, (epochs * batches,) * len(networks)
    contest = comparison.Comparison(networks, steps, tuple(learning_rates), tuple(range(seeds)))
    names, numbered = list[str](), count(1)

    def train_all(runs: list[tuple[comparison.Entrant, Config]]) -> None:
        for entrant, config in runs:
            rate, number = config.optimiser.learning_rate, f"{next(numbered)}/{contest.run_count}"
            title = f"{number}  {entrant.name}, learning rate {rate:g}, seed {config.seed}"
            with display(title) as watcher:
                try:
                    names.append(train(config, index, out, threads=threads, watcher=watcher).folder.name)
                except Diverged as error:
                    if config.seed != contest.seeds[0]:
                        raise
                    watcher.note(f"{title}: {error.fact}; this learning rate does not count")

    train_all(contest.trials())
    train_all(contest.repetitions(comparison.best_rates(contest, index, out)))
    found = comparison.outcomes(contest, index, out)
    if what == "iterating":
        found = [iterated(outcome, index, out) for outcome in found]
    told = {"asked": asked, "steps": steps, "runs": names, "outcomes": [asdict(each) for each in found]}
    print(markdown(out, save_comparison(out, what, told)))
