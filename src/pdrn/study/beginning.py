"""How a run begins: what is refused, what its record says, and which shorter run it goes on from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from pdrn.audio.corpus import Corpus
from pdrn.study.config import Config
from pdrn.study.data import TrainingData
from pdrn.study.learner import Learner
from pdrn.study.machine import fastest_threads, repeatable
from pdrn.study.processes import Processes
from pdrn.study.runs import Run, code_version, processes_of, runs_on
from pdrn.study.spectra import RESOLUTIONS
from pdrn.study.tabular import as_table


def check(config: Config, corpus: Corpus, processes: Processes) -> None:
    """Refuse what these processes cannot train, whatever is in the run's folder."""
    frame_length = config.architecture.map.frame_length
    if frame_length and (config.data.length, config.data.measured_on) != (frame_length, "frames"):
        raise ValueError(
            f"this network takes frames of {frame_length} samples; set data.length = {frame_length} and "
            'data.measured_on = "frames"'
        )
    length, least = config.data.length, max(RESOLUTIONS)
    if config.loss.spectral and length < least:
        raise ValueError(
            f"loss.spectral takes {least} samples or more at a time, and data.length is {length}; set it to "
            f"{least}, and the samples of a dense map too"
        )
    wanted = config.data.sample_rate_hz
    if wanted != (corpus.sample_rate_hz or 0):
        raise ValueError(
            f"data.sample_rate_hz is {wanted}, and the corpus was scanned with {corpus.sample_rate_hz or 0}; "
            "let both be the same"
        )
    if processes.count > config.optimiser.batch_size:
        raise ValueError(
            f"{processes.count} processes cannot share batches of {config.optimiser.batch_size}; "
            "start fewer, or set a larger optimiser.batch_size"
        )
    if processes.count > 1 and config.budget.seconds:
        raise ValueError(
            "a budget in seconds is for one process alone; set budget.epochs or budget.steps instead"
        )


def begun_or_going_on(
    run: Run,
    config: Config,
    corpus: Corpus,
    data: TrainingData,
    threads: int,
    processes: Processes,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Return the record of a run, which is made where there is none."""
    record = run.record()
    if record is None:
        return _begun(run, config, corpus, data, threads, processes)
    if processes_of(record) != processes.count:
        raise ValueError(
            f"{run.folder} was begun by {processes_of(record)} processes, not {processes.count}, and is only "
            "exact with as many; start that number, or remove the folder to begin again"
        )
    if threads not in (0, record["threads"]):
        note(f"threads: {record['threads']}, with which this run began, and not {threads}")
    return record


def shorter_run(
    config: Config, corpus_sha256: str, out: str | os.PathLike[str], threads: int = 0, processes: int = 1
) -> Run | None:
    """Return the longest finished run that differs in nothing but a smaller budget.

    It has so many processes, and so many threads, or any for 0. Where the learning rate is constant and
    neither has patience, what it did is what this one would do.
    """
    budget = config.budget
    if config.optimiser.schedule != "constant" or budget.patience:
        return None
    found: dict[int, Run] = {}
    for run in runs_on(corpus_sha256, out):
        theirs, record, log = run.config(), run.record() or {}, run.log()
        is_alike = replace(theirs, budget=budget) == config and not theirs.budget.patience
        is_alike &= threads in (0, record["threads"]) and processes == processes_of(record)
        if not (is_alike and run.is_done and log):
            continue
        steps, steps_per_epoch = log[-1]["step"], record["steps_per_epoch"]
        if steps < (budget.steps or budget.epochs * steps_per_epoch) and steps % steps_per_epoch == 0:
            found[steps] = run
    return found[max(found)] if found else None


def _begun(
    run: Run, config: Config, corpus: Corpus, data: TrainingData, threads: int, processes: Processes
) -> dict[str, Any]:
    """Note what the run is, after it took over what a shorter one did."""
    shorter = shorter_run(config, corpus.checksum, run.folder.parent, threads, processes.count)
    theirs = (shorter.record() or {}) if shorter else {}
    threads = threads or theirs.get("threads") or fastest_threads(processes.on_this_machine)
    record = {
        "name": run.name,
        "config": as_table(config),
        "code": theirs.get("code") or code_version(),
        "later_code": theirs.get("later_code", []),
        "corpus": corpus.folder.resolve().name,
        "corpus_sha256": corpus.checksum,
        "sample_rate_hz": corpus.signal_rate_hz,
        "seed": config.seed,
        "threads": threads,
        "processes": processes.count,
        "parameters": config.architecture.parameter_count,
        "steps_per_epoch": data.steps_per_epoch,
        "files_too_short": data.left_out,
    }
    with repeatable(threads):
        record["total_steps"] = _total_steps(config, data)
    if shorter:
        record["goes_on_from"] = {"run": shorter.name}
    run.begin(record, shorter)
    return record


def _total_steps(config: Config, data: TrainingData) -> int:
    budget = config.budget
    if not budget.seconds:
        return budget.steps or budget.epochs * data.steps_per_epoch
    trial, times = Learner(config, total_steps=1_000_000), []
    for examples in islice(data.batches(0), 50):
        begin = time.perf_counter()
        trial.learn(examples)
        times.append(time.perf_counter() - begin)
        if len(times) > 3 and sum(times) > budget.seconds / 50:
            break
    return max(1, round(budget.seconds / float(np.median(times))))
