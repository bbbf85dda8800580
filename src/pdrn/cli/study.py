"""The commands evaluate, train, search, reproduce, study and report."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from pdrn.cli.options import (
    Address,
    CorpusFolder,
    CorpusFolders,
    CorpusRate,
    EngineName,
    EngineOption,
    Json,
    Metrics,
    RunsFolder,
    names,
    numbers,
    require,
    scanned,
    scanned_at,
)
from pdrn.errors import InputError, printable

EVALUATE_EXAMPLES = """\b
For example:
  pdrn evaluate --corpus ieee --methods qu,cp:25
  pdrn evaluate --corpus ieee --methods qu,overlapped,speech-large --metrics pesq,stoi
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
    metrics: Metrics = "",
    sample_rate: CorpusRate = 0,
    json: Json = False,
) -> None:
    """Measure methods on a corpus, as in Table 2 of the paper."""
    import dataclasses
    from json import dumps

    from rich.console import Console
    from rich.table import Table

    from pdrn.reproduction.evaluate import evaluate as rows_of

    perceptual, index = names(metrics), scanned(corpus, sample_rate_hz=sample_rate)
    rows = rows_of(index, split, bits, names(methods), frame_length, perceptual, _note)
    if json:
        for row in rows:
            print(dumps(dataclasses.asdict(row)), flush=True)
        return
    table = Table(title=f"{printable(corpus.resolve().name)}, {split} split, {bits} bits")
    table.add_column("method", overflow="fold")
    for heading in ("MSE / 1e-4", "SNR / dB", "pooled SNR / dB", "ratio", *perceptual):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        figures = (f"{1e4 * row.mse:.3f}", f"{row.snr:.2f}", f"{row.snr_pooled:.2f}", f"{row.ratio:.3f}")
        table.add_row(printable(row.method), *figures, *(f"{getattr(row, name):.3f}" for name in perceptual))
    Console(markup=False, emoji=False).print(table)


def _note(sentence: str) -> None:

    print(f"pdrn: {printable(sentence)}", file=sys.stderr)


TRAIN_EXAMPLES = """\b
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
    from pdrn.training.config import load
    from pdrn.training.distributed import joined

    require("torch", "train")
    with ExitStack() as held:
        processes = held.enter_context(joined())
        with processes.together():
            settings = load(config)
            rate = settings.data.sample_rate_hz
            index = scanned(*corpus, sample_rate_hz=rate, quiet=not processes.is_first)

            from pdrn.cli.progress import Board, display
            from pdrn.training.loop import train as run_training

            shown = held.enter_context(display()) if processes.is_first else None
            callbacks = [shown, *([Board()] if tensorboard else [])] if shown else []
        run = run_training(settings, index, out, threads=threads, callbacks=callbacks, processes=processes)
    if processes.is_first:
        print(run.best_path)


SEARCH_EXAMPLES = """\b
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
    from pdrn.training.config import as_toml, load

    require("torch", "train")
    require("optuna", "search")
    settings = load(config)
    index = scanned(*corpus, sample_rate_hz=settings.data.sample_rate_hz)

    from rich.console import Console

    from pdrn.cli.progress import display
    from pdrn.training.search import Range, Search, usual_ranges

    ranges = tuple(Range.read(text, settings) for text in tune or usual_ranges(settings))
    wanted = Search(settings, index, out, ranges, storage, threads)
    console = Console(stderr=True, highlight=False)
    for tried in wanted.tries(trials, display):
        became = tried.reason if tried.error is None else f"dev ratio {tried.error:.4f}"
        console.print(f"{tried.number}/{trials}  {became}", markup=False, soft_wrap=True)
    best = wanted.best()
    print(f"# dev ratio {best.error:.4f}, by trial {best.number}: {best.run.best_path}")
    print(as_toml(best.config), end="")


REPRODUCE_EXAMPLES = """\b
For example:
  pdrn reproduce all --corpus ieee --recipe paper --dry-run
  pdrn reproduce all --corpus ieee --recipe modern --out runs
  pdrn reproduce all --corpus ieee --engine ray --address auto --cpus-per-network 2"""


def reproduce(
    what: Annotated[str, typer.Argument(help="table1, table2, figures or all.")],
    corpus: CorpusFolder,
    recipe: Annotated[str, typer.Option(help="paper or modern.")] = "paper",
    epochs: Annotated[int, typer.Option(min=0, help="0: as many as the recipe says.")] = 0,
    depths: Annotated[str, typer.Option(help="Comma-separated numbers of layers.")] = "1,2,5,10,15",
    lambdas: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: regularisations to choose from; empty for none. "
            "1e-8,1e-7,1e-6 at 5 bits unless given, and at others as cells are wider or narrower.",
            show_default=False,
        ),
    ] = None,
    lambda_depth: Annotated[
        int, typer.Option(min=0, help="Number of layers at which lambda is chosen; 0: 2, or the least.")
    ] = 0,
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    frame_length: Annotated[int, typer.Option(min=1, help="Samples of a frame.")] = 1024,
    sample_rate: CorpusRate = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    metrics: Metrics = "",
    jobs: Annotated[
        int, typer.Option(min=1, help="Networks trained at the same time, by this machine alone.")
    ] = 1,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    cpus_per_network: Annotated[
        float | None,
        typer.Option(
            help="CPUs that Ray sets aside for each network, and its threads: 1 unless given. "
            "Below 1, several share a CPU.",
        ),
    ] = None,
    out: RunsFolder = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost.")] = False,
) -> None:
    """Train the networks of the paper and make its tables and figures; done ones are not done again."""
    if what not in ("table1", "table2", "figures", "all"):
        raise InputError(f"there are table1, table2, figures and all to reproduce, not {what!r}")
    _check_engine(engine, address, cpus_per_network, jobs)
    if dry_run and engine is EngineName.ray:
        raise typer.BadParameter("the plan is one for this machine; leave --engine out, or --dry-run")
    perceptual = names(metrics)
    require("torch", "train")
    require("matplotlib", "report")
    from pdrn.cli.grid import in_turn, show_plan, side_by_side, train_grid
    from pdrn.reproduction import report
    from pdrn.reproduction.grid import Grid, default_lambdas
    from pdrn.reproduction.tables import (
        best_runs,
        measure_table_2,
        restore_example,
        save_example,
        save_table_2,
    )

    if perceptual and what not in ("table2", "all"):
        raise InputError(f"--metrics is for table2, which {what} is not a part of; leave it out")
    index = scanned_at(corpus, sample_rate)
    grid = Grid(
        recipe=recipe,
        depths=tuple(numbers(depths, int, "depths")),
        epochs=epochs,
        bits=bits,
        frame_length=frame_length,
        lambdas=default_lambdas(bits) if lambdas is None else tuple(numbers(lambdas, float, "lambdas")),
        lambda_depth=lambda_depth,
        sample_rate_hz=index.sample_rate_hz or 0,
        seed=seed,
    )
    grid.check(index, perceptual)
    if dry_run:
        show_plan(grid, index, out, jobs)
        return
    if engine is EngineName.ray:
        from pdrn.cli.grid import train_on_ray
        from pdrn.workers import connected

        with connected(address, os.cpu_count() or 1) as ray:
            failure = train_grid(grid, index, out, partial(train_on_ray, ray, cpus_per_network or 1.0))
    else:
        failure = train_grid(grid, index, out, partial(side_by_side, jobs=jobs) if jobs > 1 else in_turn)
    experiment, table = grid.table(index, out)
    if failure and not table:
        raise InputError(failure)
    if what in ("table2", "all"):
        table2 = measure_table_2(experiment, table, index, perceptual)
        save_table_2(out, experiment, table2)
    if what in ("figures", "all"):
        save_example(out, experiment, restore_example(experiment, table, index), best_runs(table))
    if what == "table1":
        shown = report.table_1_markdown(experiment, table)
        print(report.experiment_section(experiment, [shown, report.training_markdown(table)]))
    elif what == "table2":
        shown = report.table_2_markdown(experiment, table, table2)
        print(report.experiment_section(experiment, [shown, report.training_markdown(table)]))
    else:
        print(report.write_report(out, out / "report"))
    if failure:
        raise InputError(f"{failure}; what could be trained is in the tables")


def _check_engine(engine: EngineName, address: str | None, cpus_per_network: float | None, jobs: int) -> None:
    """Refuse options of the other engine."""
    if engine is EngineName.ray:
        if jobs > 1:
            raise typer.BadParameter("a Ray trains as many networks as it has CPUs for; leave --jobs out")
        if cpus_per_network is not None and not 0 < cpus_per_network < float("inf"):
            raise typer.BadParameter("--cpus-per-network is a number above 0")
        return
    for name, given in {"--address": address, "--cpus-per-network": cpus_per_network}.items():
        if given is not None:
            raise typer.BadParameter(f"{name} is for a Ray; add --engine ray")


STUDY_EXAMPLES = """\b
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
        raise InputError(f"there are neighbours, extrapolation and iterating to study, not {what!r}")
    require("torch", "train")
    require("matplotlib", "report")
    from pdrn.cli.progress import display
    from pdrn.reproduction import studies
    from pdrn.reproduction.evaluate import FRAME_LENGTH, whole_frames
    from pdrn.reproduction.report import comparison_section
    from pdrn.training.config import Config
    from pdrn.training.loop import Diverged, train
    from pdrn.training.machine import fastest_threads

    index, given_threads, threads = scanned_at(corpus, sample_rate), threads, threads or fastest_threads()
    layers, learning_rates = numbers(depths, int, "depths"), numbers(rates, float, "rates")
    least = 2 if what == "iterating" else 1
    if not learning_rates or not layers or min(layers) < least:
        raise InputError(f"{what} takes learning rates, and numbers of layers from {least} on; name some")
    whole_frames(index, "test", FRAME_LENGTH)  # refuse a test set that could not be measured in the end
    resampled_hz = index.sample_rate_hz or 0
    candidates = studies.candidates(what, frame_length, bits, layers, batches, resampled_hz)
    task = {
        "networks": [candidate.name for candidate in candidates],
        "corpus": index.folder.resolve().name,
        "corpus_sha256": index.checksum,
        "bits": bits,
        "frame_length": frame_length,
        "epochs": epochs,
    }
    if resampled_hz:
        task["sample_rate_hz"] = resampled_hz
    if what == "neighbours":
        measure = partial(studies.equal_time_steps, candidates, index, epochs, threads)
        steps = studies.saved_steps(out, task | {"threads": given_threads}, measure)
    else:
        task["batches"], steps = batches, (epochs * batches,) * len(candidates)
    comparison = studies.Comparison(candidates, steps, tuple(learning_rates), tuple(range(seeds)))
    names, numbered = list[str](), count(1)

    def train_all(runs: list[tuple[studies.Candidate, Config]]) -> None:
        for candidate, config in runs:
            rate, number = config.optimiser.learning_rate, f"{next(numbered)}/{comparison.run_count}"
            title = f"{number}  {candidate.name}, learning rate {rate:g}, seed {config.seed}"
            with display(title) as shown:
                try:
                    names.append(train(config, index, out, threads=threads, callbacks=[shown]).folder.name)
                except Diverged as error:
                    if config.seed != comparison.seeds[0]:
                        raise
                    shown.on_note(f"{title}: {error.fact}; this learning rate does not count")

    train_all(comparison.trials())
    train_all(comparison.repetitions(comparison.best_rates(index, out)))
    measured = comparison.measure(index, out)
    if what == "iterating":
        measured = [studies.add_curve(each, index, out) for each in measured]
    saved = {"task": task, "steps": steps, "runs": names, "results": [asdict(each) for each in measured]}
    print(comparison_section(studies.save_comparison(out, what, saved), saved))


REPORT_EXAMPLES = """\b
For example:
  pdrn report runs --out results
  pdrn report runs --out results --logs && pdrn report results"""


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of run folders.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; RUNS/report unless given.")] = None,
    logs: Annotated[
        bool,
        typer.Option(
            "--logs",
            help="Put records, logs and tables there too, without networks and sound: "
            "what can be published, and reported on again.",
        ),
    ] = False,
) -> None:
    """Write report.md with the tables and figures of all runs in a folder."""
    require("matplotlib", "report")
    from pdrn.reproduction.report import export_logs, write_report

    out = out or runs / "report"
    path = write_report(runs, out)
    if logs:
        export_logs(runs, out)
    print(path)
