"""Training the paper's grid: the plan, local processes or a Ray cluster."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from pdrn import workers
from pdrn.audio.corpus import Corpus
from pdrn.cli.progress import clock, display, following
from pdrn.errors import InputError, LockedError
from pdrn.reproduction.grid import Grid, Trained, multiplications, train_network
from pdrn.reproduction.tables import KINDS, variant_of
from pdrn.training.config import Config
from pdrn.training.runs import Run, run_for

TYPICAL_SHARE_OF_FLOOR = 0.75
"""What training reaches of the speed of matrix products alone, for the estimate of a plan."""


Trainer = Callable[[Sequence[Config], Corpus, Path], Generator[Trained, None, None]]
"""Trains networks, and yields each when it is done."""


def title(config: Config) -> str:
    """Return what a network of the grid is called."""
    variant = variant_of(config)
    assert variant is not None
    return f"{variant.kind} L={variant.depth} lambda={config.loss.regularisation:g}"


def show_plan(grid: Grid, corpus: Corpus, out: Path, jobs: int) -> None:
    """Print what would be trained, with its FLOPs and its time on this machine."""
    from pdrn.training.loop import shorter_run
    from pdrn.training.machine import fastest_threads, multiplications_per_second, usable_cores

    threads = fastest_threads(jobs)
    at_once = min(jobs, max(1, usable_cores() // threads))
    rate = at_once * multiplications_per_second(threads) * TYPICAL_SHARE_OF_FLOOR
    table = RichTable(title=f"{grid.recipe} recipe, {grid.bits} bits, {corpus.folder}")
    for heading in ("network", "epochs", "done", "TFLOP", "time"):
        table.add_column(heading, justify="right")
    total = 0.0
    chosen = grid.choose_lambdas(corpus, out)
    parts = []
    for config in [*grid.configs_before_lambda(), *grid.configs_after_lambda(chosen)]:
        log = run_for(config, corpus.checksum, out).log()
        if not log and (shorter := shorter_run(config, corpus.checksum, out, threads if jobs > 1 else 0)):
            log = shorter.log()
        parts.append((config, title(config), log[-1]["epoch"] if log else 0))
    # Which lambda will be chosen does not matter for the cost: any stands for it.
    open_kinds = {kind: grid.lambdas[0] for kind in KINDS if grid.lambdas and kind not in chosen}
    for config in grid.configs_after_lambda(open_kinds):
        parts.append((config, title(config).partition("lambda")[0] + "lambda as chosen", 0))
    for config, name, done in parts:
        left = multiplications(config, corpus) * (1 - done / config.budget.epochs)
        total += left
        time = clock(jobs * left / rate)  # its share of the machine is one of so many
        table.add_row(name, str(config.budget.epochs), str(done), f"{2e-12 * left:.1f}", time)
    table.add_section()
    table.add_row("all", "", "", f"{2e-12 * total:.1f}", clock(total / rate))
    Console(markup=False, emoji=False).print(table)
    gflops = 2e-9 * rate / TYPICAL_SHARE_OF_FLOOR
    print(f"{jobs} at a time, {threads} threads each: {gflops:.0f} GFLOPS in matrix products, ", end="")
    print(f"of which training takes about {TYPICAL_SHARE_OF_FLOOR:.0%}")
    if grid.lambdas:
        candidates = ", ".join(map(str, grid.lambdas))
        print(f"lambda of {candidates} is chosen at L={grid.depth_for_lambda}, ", end="")
        print("for each kind of network, by the development error")


def train_grid(grid: Grid, corpus: Corpus, out: Path, trainer: Trainer) -> str:
    """Train all networks of a grid that are not there yet, and return which could not be, if any."""
    failed = _train(grid.configs_before_lambda(), corpus, out, trainer)
    chosen = grid.choose_lambdas(corpus, out, partial=True)
    for warning in grid.lambda_warnings(chosen):
        Console(stderr=True, highlight=False).print(warning, soft_wrap=True)
    failed += _train(grid.configs_after_lambda(chosen), corpus, out, trainer)
    if not failed:
        return ""
    first, more = failed[0], f", and {len(failed) - 1} more as said above" if failed[1:] else ""
    return f"{title(first.config)} was not trained: {first.error}{more}"


def _train(configs: Sequence[Config], corpus: Corpus, out: Path, trainer: Trainer) -> list[Trained]:
    """Train what is missing, say how it goes, and return what failed."""
    runs = {title(config): (config, run_for(config, corpus.checksum, out)) for config in configs}
    missing = {name: pair for name, pair in runs.items() if not pair[1].is_done}
    followed = {name: run for name, (_, run) in missing.items() if trainer is not in_turn}
    failed = []
    with (
        following(followed) as console,
        closing(trainer([config for config, _ in missing.values()], corpus, out)) as results,
    ):
        for number, result in enumerate(results, 1):
            said = f"{number}/{len(missing)}  {title(result.config)}"
            for sentence in result.notes:
                console.print(f"{said}  {sentence}", markup=False, soft_wrap=True)
            if result.run is None:
                failed.append(result)
                console.print(f"{said}  {result.error}", markup=False, soft_wrap=True)
            elif trainer is not in_turn:  # which showed it already
                error = min(entry["dev_mse"] for entry in result.run.complete_log())
                console.print(f"{said}  dev {1e4 * error:.3f}e-4")
    return failed


def side_by_side(
    configs: Sequence[Config], corpus: Corpus, out: Path, jobs: int
) -> Generator[Trained, None, None]:
    """Train networks, so many at a time, by processes of their own, and yield each when it is done.

    One that fails does not keep others from their training. Where the caller ends, so do the processes.
    """
    from pdrn.training.machine import fastest_threads

    with workers.deaf():  # it may start threads
        threads = fastest_threads(jobs)
    train = partial(train_network, corpus=corpus, out=out, threads=threads)
    with closing(workers.side_by_side(train, configs, jobs)) as results:
        for config, result in results:
            yield result or Trained(config, error="its process was killed; is memory short? try fewer jobs")


def in_turn(configs: Sequence[Config], corpus: Corpus, out: Path) -> Generator[Trained, None, None]:
    """Train networks one after another, each with its progress."""
    for number, config in enumerate(configs, 1):
        with display(f"{number}/{len(configs)}  {title(config)}") as shown:
            result = train_network(config, corpus, out, callback=shown)
        yield result


RETRIES = 3
"""How often a network whose worker died is given to another, which goes on where that stopped."""

SECONDS_TO_LET_GO = 60.0
"""Workers of a machine that the cluster has lost may live a little longer, and hold on to their runs."""


def train_on_ray(
    ray: Any, cpus: float, configs: Sequence[Config], corpus: Corpus, out: Path
) -> Generator[Trained, None, None]:
    """Train networks wherever the cluster has CPUs for them, and yield each when it is done.

    One that fails does not keep others from their training. Where the caller ends, so do the tasks.

    Parameters
    ----------
    ray : module
        Connected to a cluster.
    cpus : float
        How many are set aside for a network; it computes with as many threads, or with one.
    configs, corpus, out
        As in `reproducing.side_by_side`, which does the same on one machine.
    """
    largest = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
    if cpus > largest:
        raise InputError(f"no machine of the cluster has {cpus:g} CPUs; set --cpus-per-network lower")
    task = ray.remote(num_cpus=cpus, max_retries=RETRIES)(_trained_by_worker)
    everywhere = dataclasses.replace(corpus, folder=corpus.folder.resolve()), out.resolve()
    running = {task.remote(config, *everywhere, max(1, int(cpus))): config for config in configs}
    try:
        while running:
            ready, _ = ray.wait(list(running))
            config = running.pop(ready[0])
            try:
                result: Trained = ray.get(ready[0])
            except ray.exceptions.RayError as error:
                reason = str(error).strip().splitlines()[-1]
                result = Trained(config, error=f"its workers died or could not start: {reason}")
            yield result
    finally:
        for left in running:
            ray.cancel(left, force=True)


def _trained_by_worker(config: Config, corpus: Corpus, out: Path, threads: int) -> Trained:
    with suppress(OSError, ValueError):  # which training meets again, and says
        _wait_for(run_for(config, corpus.checksum, out))
    return train_network(config, corpus, out, threads)


def _wait_for(run: Run) -> None:
    """Wait until whoever trains a run lets go of it."""
    end = time.monotonic() + SECONDS_TO_LET_GO
    while time.monotonic() < end:
        with suppress(LockedError), run.locked():
            return
        time.sleep(0.1)
