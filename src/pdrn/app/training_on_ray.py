"""Networks trained as tasks of a Ray, each into a run folder that all machines of the cluster share."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pdrn.audio.corpus import Corpus
from pdrn.study.config import Config
from pdrn.study.reproduce import Trained, trained
from pdrn.study.runs import Run, run_for

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
        raise ValueError(f"no machine of the cluster has {cpus:g} CPUs; set --cpus-per-network lower")
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
    return trained(config, corpus, out, threads)


def _wait_for(run: Run) -> None:
    """Wait until whoever trains a run lets go of it."""
    end = time.monotonic() + SECONDS_TO_LET_GO
    while time.monotonic() < end:
        with suppress(ValueError), run.locked():
            return
        time.sleep(0.1)
