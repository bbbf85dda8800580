"""The commands evaluate, train, search, reproduce, study and report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pdrn.cli.options import (
    Address,
    CorpusFolder,
    CorpusFolders,
    CorpusRate,
    EngineOption,
    Json,
    Metrics,
    RunsFolder,
    WorkerOption,
    names,
    numbers,
    print_table,
    refuse_given,
    require,
    scanned,
    scanned_at,
)
from pdrn.errors import InputError, LockedError, PdrnError, UsageError, printable

if TYPE_CHECKING:
    from pdrn.audio.corpus import Corpus
    from pdrn.reproduction.grid import Grid, Trained
    from pdrn.training.config import Config

Threads = Annotated[int, typer.Option(min=0, help="Threads (0: measure which number is fastest).")]

EVALUATE_EXAMPLES = """\b
For example:
  pdrn evaluate --corpus ieee --methods qu,cp:25
  pdrn evaluate --corpus ieee --methods qu,overlapped,speech-large --metrics pesq,stoi
  pdrn evaluate --corpus ieee --methods qu,runs/NAME/best.safetensors"""


def evaluate(
    corpus: CorpusFolder,
    split: Annotated[Literal["train", "dev", "test"], typer.Option(help="Split of the corpus.")] = "test",
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: qu, cp:ITERATIONS, overlapped, restore, models, files.")
    ] = "qu,cp:10,cp:25,cp:50",
    frame_length: Annotated[
        int, typer.Option(min=1, help="Samples per frame; shorter files are left out.")
    ] = 1024,
    metrics: Metrics = "",
    sample_rate: CorpusRate = 0,
    json: Json = False,
) -> None:
    """Measure methods on a corpus, as in Table 2 of the paper."""
    import dataclasses
    from json import dumps

    from pdrn.reproduction.evaluate import evaluate as rows_of

    perceptual, index = names(metrics), scanned(corpus, sample_rate_hz=sample_rate)
    rows = rows_of(index, split, bits, names(methods), frame_length, perceptual, _note)
    if json:
        for row in rows:
            print(dumps(dataclasses.asdict(row)), flush=True)
        return
    headings = ("method", "MSE / 1e-4", "SNR / dB", "pooled SNR / dB", "ratio", *perceptual)
    figures = [
        (
            row.method,
            f"{1e4 * row.mse:.3f}",
            f"{row.snr:.2f}",
            f"{row.snr_pooled:.2f}",
            f"{row.ratio:.3f}",
            *(f"{getattr(row, name):.3f}" for name in perceptual),
        )
        for row in rows
    ]
    print_table(headings, figures, f"{printable(corpus.resolve().name)}, {split} split, {bits} bits")


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
            help="TOML file, see docs/training.md; or a name: universal, universal-live, minute, "
            "adapt, speech-large, speech-small, speech-large-8k, speech-small-8k."
        ),
    ],
    corpus: CorpusFolders,
    out: RunsFolder = Path("runs"),
    threads: Threads = 0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write a TensorBoard log into the run's folder.")
    ] = False,
) -> None:
    """Train a network; after an interruption, the same command resumes.

    Processes that torchrun starts share every batch, and train the same network as one alone.
    """
    from pdrn.training.config import load
    from pdrn.training.distributed import rank

    require("torch", "train")
    settings, is_first = load(config), rank() == 0
    index = scanned(*corpus, sample_rate_hz=settings.data.sample_rate_hz, quiet=not is_first)

    from pdrn.cli.progress import Board, display
    from pdrn.training.loop import train as run_training

    with display() as shown:
        callbacks = [shown, *([Board()] if tensorboard and is_first else [])]
        run = run_training(settings, index, out, threads=threads, callbacks=callbacks)
    if is_first:
        print(run.best_path)


SEARCH_EXAMPLES = """\b
For example:
  pdrn search pdrn.toml --corpus ieee --trials 30 > best.toml
  pdrn search pdrn.toml --corpus ieee --tune loss.regularisation=1e-9..1e-6,log --tune start.sigma=1..9"""


def search(
    config: Annotated[str, typer.Argument(help="TOML file, or a name, as for pdrn train.")],
    corpus: CorpusFolders,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials, finished ones included.")] = 20,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting and its range; default: learning rate, lambda, and sigma if the start is "
            "Chambolle-Pock.",
            metavar="PART.SETTING=LOW..HIGH[,log]",
        ),
    ] = None,
    out: RunsFolder = Path("runs"),
    storage: Annotated[
        str, typer.Option(help="Optuna's database; default: a file among the runs.", metavar="URL")
    ] = "",
    threads: Threads = 0,
) -> None:
    """Search for the settings with the least development error.

    Prints the best configuration. Every trial is a run that pdrn train and pdrn report find; after an
    interruption, the same command resumes.
    """
    from pdrn.training.config import as_toml, load

    require("torch", "train")
    require("optuna", "search")
    settings = load(config)
    index = scanned(*corpus, sample_rate_hz=settings.data.sample_rate_hz)

    from rich.console import Console

    from pdrn.cli.progress import display
    from pdrn.training.search import Range, Search, default_ranges

    ranges = tuple(Range.read(text, settings) for text in tune or default_ranges(settings))
    search = Search(settings, index, out, ranges, storage, threads)
    console = Console(stderr=True, highlight=False)
    for trial in search.run_trials(trials, display):
        result = trial.reason if trial.error is None else f"dev ratio {trial.error:.4f}"
        console.print(f"{trial.number}/{trials}  {result}", markup=False, soft_wrap=True)
    best = search.best()
    print(f"# dev ratio {best.error:.4f}, by trial {best.number}: {search.run_for(best.values).best_path}")
    print(as_toml(search.config_for(best.values)), end="")


REPRODUCE_EXAMPLES = """\b
For example:
  pdrn reproduce all --corpus ieee --recipe paper --dry-run
  pdrn reproduce all --corpus ieee --recipe modern --out runs
  pdrn reproduce all --corpus ieee --engine ray --address auto --cpus-per-network 2"""


def reproduce(
    context: typer.Context,
    what: Annotated[Literal["table1", "table2", "figures", "all"], typer.Argument(help="Tables or figures.")],
    corpus: CorpusFolder,
    recipe: Annotated[Literal["paper", "modern"], typer.Option(help="Settings of training.")] = "paper",
    epochs: Annotated[int, typer.Option(min=0, help="Number of epochs (0: the recipe's).")] = 0,
    depths: Annotated[str, typer.Option(help="Comma-separated numbers of layers.")] = "1,2,5,10,15",
    lambdas: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated regularisations to choose from; empty for none; default: 1e-8,1e-7,1e-6 "
            "at 5 bits, scaled by the squared step at others.",
            show_default=False,
        ),
    ] = None,
    lambda_depth: Annotated[
        int, typer.Option(min=0, help="Depth at which lambda is chosen (0: 2, or the least).")
    ] = 0,
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    frame_length: Annotated[int, typer.Option(min=1, help="Samples of a frame.")] = 1024,
    sample_rate: CorpusRate = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    metrics: Metrics = "",
    jobs: Annotated[int, WorkerOption(min=1, help="Networks trained at a time, on this machine.")] = 1,
    engine: EngineOption = "local",
    address: Address = None,
    cpus_per_network: Annotated[
        float,
        WorkerOption(
            help="CPUs that Ray reserves for each network, and its threads; below 1, several share a CPU."
        ),
    ] = 1.0,
    out: RunsFolder = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost only.")] = False,
) -> None:
    """Train the paper's networks and make its tables and figures.

    Finished runs are reused.
    """
    if engine == "ray":
        refuse_given(context, ["jobs", "dry-run"], "is for this machine; leave it or --engine out")
    else:
        refuse_given(context, ["address", "cpus-per-network"], "is for a Ray cluster; add --engine ray")
    if what not in ("table2", "all"):
        refuse_given(context, ["metrics"], f"is for table2, not for {what}; leave it out")
    if not 0 < cpus_per_network < float("inf"):
        raise UsageError("--cpus-per-network is a number above 0")
    perceptual = names(metrics)
    require("torch", "train")
    require("matplotlib", "report")
    from pdrn.reproduction import report
    from pdrn.reproduction.grid import Grid, default_lambdas
    from pdrn.reproduction.tables import measure_table_2, restore_example
    from pdrn.workers import connect_ray

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
        _print_plan(grid, index, out, jobs)
        return
    with connect_ray(address, os.cpu_count() or 1) if engine == "ray" else nullcontext() as ray:
        failure = _train_grid(grid, index, out, jobs, ray, cpus_per_network)
    experiment, table = grid.table(index, out)
    if failure and not table:
        raise InputError(failure)
    if what in ("table2", "all"):
        table2 = measure_table_2(out, experiment, table, index, perceptual)
    if what in ("figures", "all"):
        restore_example(out, experiment, table, index)
        print(report.write_report(out, out / "report"))
    else:
        shown = (
            report.table_1_markdown(experiment, table)
            if what == "table1"
            else report.table_2_markdown(experiment, table, table2)
        )
        print(report.experiment_section(experiment, [shown, report.training_markdown(table)]))
    if failure:
        raise InputError(f"{failure}; what could be trained is in the tables")


_SHARE_OF_PEAK = 0.75
"""Speed of training as a share of matrix products alone, for the estimate of a plan."""


def _print_plan(grid: Grid, corpus: Corpus, out: Path, jobs: int) -> None:
    """Print the networks that would be trained, with FLOPs and time on this machine."""
    from pdrn.cli.progress import clock
    from pdrn.training.machine import fastest_threads, multiplications_per_second, usable_cores

    threads = fastest_threads(jobs)
    running = min(jobs, max(1, usable_cores() // threads))
    rate = running * multiplications_per_second(threads) * _SHARE_OF_PEAK
    plan = grid.plan(corpus, out, threads if jobs > 1 else 0)
    total = sum(each.multiplications for each in plan)
    rows = [
        (
            each.name,
            str(each.epochs),
            str(each.epochs_done),
            f"{2e-12 * each.multiplications:.1f}",
            clock(jobs * each.multiplications / rate),  # a network has one part in `jobs` of the machine
        )
        for each in plan
    ]
    print_table(
        ("network", "epochs", "done", "TFLOP", "time"),
        [*rows, ("all", "", "", f"{2e-12 * total:.1f}", clock(total / rate))],
        f"{grid.recipe} recipe, {grid.bits} bits, {printable(corpus.folder)}",
    )
    gflops = 2e-9 * rate / _SHARE_OF_PEAK
    print(
        f"{jobs} at a time, {threads} threads each: {gflops:.0f} GFLOPS in matrix products; "
        f"training reaches about {_SHARE_OF_PEAK:.0%} of that"
    )
    if grid.lambdas:
        candidates = ", ".join(map(str, grid.lambdas))
        print(
            f"lambda of {candidates} is chosen at L={grid.depth_for_lambda}, "
            "for each kind of network, by the development error"
        )


def _train_grid(grid: Grid, corpus: Corpus, out: Path, jobs: int, ray: Any, cpus: float) -> str:
    """Train all networks of a grid that are missing; return a sentence on those that failed, if any."""
    from rich.console import Console

    from pdrn.reproduction.grid import network_name

    failed = _train_all(grid.configs_before_lambda(), corpus, out, jobs, ray, cpus)
    chosen = grid.choose_lambdas(corpus, out, partial=True)
    for warning in grid.lambda_warnings(chosen):
        Console(stderr=True, highlight=False).print(warning, soft_wrap=True)
    failed += _train_all(grid.configs_after_lambda(chosen), corpus, out, jobs, ray, cpus)
    if not failed:
        return ""
    first, more = failed[0], f", and {len(failed) - 1} more as listed above" if failed[1:] else ""
    return f"{network_name(first.config)} was not trained: {first.error}{more}"


def _train_all(
    configs: Sequence[Config], corpus: Corpus, out: Path, jobs: int, ray: Any, cpus: float
) -> list[Trained]:
    """Train the networks that are missing, show the progress, and return the failures."""
    from pdrn.cli.progress import display_runs
    from pdrn.reproduction.grid import network_name
    from pdrn.training.runs import run_for

    runs = {config: run_for(config, corpus.checksum, out) for config in configs}
    missing = [config for config, run in runs.items() if not run.is_done]
    by_workers = ray is not None or jobs > 1
    shown = {network_name(config): runs[config] for config in missing if by_workers}
    results = train_networks(missing, corpus, out, jobs, ray, cpus)
    failed = []
    with display_runs(shown) as console, closing(results):
        for number, result in enumerate(results, 1):
            heading = f"{number}/{len(missing)}  {network_name(result.config)}"
            for sentence in result.notes:
                console.print(f"{heading}  {sentence}", markup=False, soft_wrap=True)
            if result.run is None:
                failed.append(result)
                console.print(f"{heading}  {result.error}", markup=False, soft_wrap=True)
            elif by_workers:
                console.print(f"{heading}  dev {1e4 * result.run.smallest('dev_mse'):.3f}e-4")
    return failed


def train_networks(
    configs: Sequence[Config], corpus: Corpus, out: Path, jobs: int = 1, ray: Any = None, cpus: float = 1.0
) -> Generator[Trained, None, None]:
    """Train networks and yield each as it is done; one that fails does not stop the others.

    Parameters
    ----------
    configs, corpus, out
        The networks, the corpus and the folder of the runs.
    jobs : int
        Number of processes; 1 trains in this one, with a progress bar for each network.
    ray : module, optional
        Ray, connected to a cluster (`connect_ray`), to train there instead.
    cpus : float
        CPUs that Ray reserves for each network; their whole number, at least 1, is its number of threads.
    """
    from pdrn.cli.progress import display
    from pdrn.reproduction.grid import Trained, network_name, train_network
    from pdrn.training.machine import fastest_threads
    from pdrn.training.runs import code_version
    from pdrn.workers import KILLED, interrupts_blocked, run_jobs

    if ray is None and jobs == 1:
        for number, config in enumerate(configs, 1):
            with display(f"{number}/{len(configs)}  {network_name(config)}") as callback:
                result = train_network(config, corpus, out, callback=callback)
            yield result
        return
    if ray is None:
        with interrupts_blocked():  # it may start threads
            threads = fastest_threads(jobs)
        results = run_jobs(partial(train_network, corpus=corpus, out=out, threads=threads), configs, jobs)
    else:
        shared, threads = replace(corpus, folder=corpus.folder.resolve()), max(1, int(cpus))
        results = run_jobs(
            partial(_train_on_cluster, corpus=shared, out=out.resolve(), threads=threads),
            configs,
            len(configs),
            ray=ray,
            cpus=cpus,
            fingerprint=code_version,
            retry=lambda config, result: config if result is None else None,
        )
    with closing(results):
        for config, outcome in results:
            yield outcome or Trained(config, error=KILLED)


_RELEASE_SECONDS = 60.0
"""A worker of a lost machine may live a little longer, and hold the lock of its run."""


def _train_on_cluster(config: Config, corpus: Corpus, out: Path, threads: int) -> Trained:
    """Wait until a lost worker has released the lock of the run, and train."""
    from pdrn.reproduction.grid import train_network
    from pdrn.training.runs import run_for

    deadline = time.monotonic() + _RELEASE_SECONDS
    with suppress(PdrnError):  # training meets any other error again, and reports it
        run = run_for(config, corpus.checksum, out)
        while time.monotonic() < deadline:
            try:
                with run.locked():
                    break
            except LockedError:
                time.sleep(0.1)
    return train_network(config, corpus, out, threads)


STUDY_EXAMPLES = """\b
For example:
  pdrn study neighbours --corpus ieee --out runs
  pdrn study extrapolation --corpus ieee --frame-length 256 --epochs 4 --seeds 3
  pdrn study iterating --corpus ieee --frame-length 256 --epochs 4 --depths 5,10"""


def study(
    what: Annotated[
        Literal["neighbours", "extrapolation", "iterating"], typer.Argument(help="Name of the study.")
    ],
    corpus: CorpusFolder,
    epochs: Annotated[
        int, typer.Option(min=1, help="Number of epochs; for neighbours, of the first network.")
    ] = 12,
    depths: Annotated[
        str, typer.Option(help="Comma-separated numbers of layers; not for neighbours.")
    ] = "2,5,10",
    rates: Annotated[
        str,
        typer.Option(
            help="Comma-separated learning rates; each network takes its best one at the first seed."
        ),
    ] = "1e-4,3e-4,1e-3",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 1,
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    frame_length: Annotated[int, typer.Option(min=8, help="Samples of a frame.")] = 1024,
    sample_rate: CorpusRate = 0,
    batches: Annotated[int, typer.Option(min=1, help="Batches per epoch; not for neighbours.")] = 500,
    threads: Threads = 0,
    out: RunsFolder = Path("runs"),
) -> None:
    """Compare networks on the same task.

    The networks of `neighbours` train for the same time, those of the others for the same number of steps.
    """
    require("torch", "train")
    require("matplotlib", "report")
    from pdrn.cli.progress import display
    from pdrn.reproduction.report import comparison_section
    from pdrn.reproduction.studies import run_study

    layers, learning_rates = numbers(depths, int, "depths"), numbers(rates, float, "rates")
    least = 2 if what == "iterating" else 1
    if not learning_rates or not layers or min(layers) < least:
        raise UsageError(f"{what} takes learning rates, and numbers of layers from {least} on; name some")
    name, comparison = run_study(
        what,
        scanned_at(corpus, sample_rate),
        out,
        display,
        epochs=epochs,
        depths=layers,
        rates=learning_rates,
        seeds=seeds,
        bits=bits,
        frame_length=frame_length,
        batches=batches,
        threads=threads,
    )
    print(comparison_section(name, comparison))


REPORT_EXAMPLES = """\b
For example:
  pdrn report runs --out results
  pdrn report runs --out results --logs && pdrn report results"""


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of run folders.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the report; default: RUNS/report.")] = None,
    logs: Annotated[
        bool,
        typer.Option(
            "--logs",
            help="Copy records, logs and tables there, without networks and sound, to publish the folder "
            "and make the report again.",
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
