"""Training: a configuration and a corpus in, a run folder out; killed at any moment, it goes on exactly."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from pdrn.audio.corpus import Corpus
from pdrn.audio.system import AudioError, why
from pdrn.nets.checkpoint import Provenance
from pdrn.nets.memory import keep_freed_memory
from pdrn.study.config import Config, as_table
from pdrn.study.data import DevelopmentData, TrainingData
from pdrn.study.learner import Learner, learning_rate
from pdrn.study.machine import fastest_threads, repeatable
from pdrn.study.runs import Entry, Run, code_version, run_for, shorter_run

SECONDS_BETWEEN_STATES = 60.0
"""State is written after an epoch, but not more often than this: a kill costs a minute or an epoch."""

STEPS_PER_FLOOR = 50
"""The floor is measured so often while training goes on, so that a busy machine slows down both."""


FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""What goes wrong where there is no room."""


class Watcher:
    """What a caller may want to hear of a run; this one does not listen."""

    def begin(self, run: Run, record: dict[str, Any], first_epoch: int) -> None:
        """Hear that training begins, or goes on, with an epoch counted from 1."""

    def note(self, sentence: str) -> None:
        """Hear what is not as it might be expected."""

    def advance(self, step: int) -> None:
        """Hear that so many steps are done."""

    def epoch(self, entry: Entry) -> None:
        """Hear what is written to the log."""


@dataclass
class Best:
    """The best network so far."""

    epoch: int = 0
    ratio: float = math.inf


def train(
    config: Config,
    corpus: Corpus,
    out: str | os.PathLike[str],
    *,
    threads: int = 0,
    watcher: Watcher | None = None,
    seconds_between_states: float = SECONDS_BETWEEN_STATES,
) -> Run:
    """Train a network, or go on where the same training stopped, and return its run.

    Parameters
    ----------
    config, corpus
        What to train, on what.
    out
        The folder of run folders.
    threads
        How many; 0 takes those of a shorter run that this one goes on from, or what is fastest just now. A
        run that began keeps its number: for a given one the result is the same to the bit, however often
        training is interrupted.
    watcher
        Is told how it goes.
    seconds_between_states
        The state is written after an epoch, but not more often than this.
    """
    wanted = config.data.sample_rate_hz
    if wanted and wanted != corpus.sample_rate_hz:
        raise ValueError(f"data.sample_rate_hz is {wanted}; scan the corpus with that rate")
    run = run_for(config, corpus.checksum, out)
    if run.is_done:
        return run
    watcher = watcher or Watcher()
    keep_freed_memory()
    with _clear_errors(run), run.locked():
        data, dev = TrainingData.read(corpus, config), DevelopmentData.read(corpus, config.data)
        record = run.record()
        if record is None:
            record = _begun(run, config, corpus, data, threads)
        elif threads not in (0, record["threads"]):
            watcher.note(f"threads: {record['threads']}, with which this run began, and not {threads}")
        with repeatable(record["threads"]):
            training = _Training(run, config, record, data, dev)
            training.note_version(watcher)
            training.go(watcher, seconds_between_states)
    return run


def _begun(run: Run, config: Config, corpus: Corpus, data: TrainingData, threads: int) -> dict[str, Any]:
    """Note what the run is, after it took over what a shorter one did."""
    shorter = shorter_run(config, corpus.checksum, run.folder.parent, threads)
    record = {
        "name": run.name,
        "config": as_table(config),
        "code": code_version(),
        "corpus": corpus.folder.resolve().name,
        "corpus_sha256": corpus.checksum,
        "sample_rate_hz": corpus.sample_rate_hz or corpus.entries[0].sample_rate_hz,
        "seed": config.seed,
        "threads": threads or ((shorter.record() or {})["threads"] if shorter else fastest_threads()),
        "parameters": config.architecture.parameter_count,
        "steps_per_epoch": data.steps_per_epoch,
        "files_too_short": data.left_out,
    }
    with repeatable(record["threads"]):
        record["total_steps"] = _total_steps(config, data)
    if shorter:
        record["goes_on_from"] = {"run": shorter.name, "code": (shorter.record() or {})["code"]}
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


@dataclass
class _Training:
    run: Run
    config: Config
    record: dict[str, Any]
    data: TrainingData
    dev: DevelopmentData
    epoch: int = 0
    seconds: float = 0.0
    best: Best = field(default_factory=Best)

    def __post_init__(self) -> None:
        self.learner = Learner(self.config, self.record["total_steps"])
        self.best_network: Any = None
        found = self.run.load_state({name: part.shape for name, part in self.learner.tensors().items()})
        if found:
            tensors, facts = found
            self.learner.restore(tensors, facts["step"])
            self.epoch, self.seconds, self.best = facts["epoch"], facts["seconds"], Best(**facts["best"])
        self.run.forget_after(self.epoch)

    @property
    def is_over(self) -> bool:
        patience = self.config.budget.patience
        tired = patience > 0 and self.epoch - self.best.epoch >= patience
        return self.learner.step >= self.record["total_steps"] or tired

    def note_version(self, watcher: Watcher) -> None:
        """Say, and keep in the record, that the code is not what the run was at so far."""
        later = self.record.setdefault("later_code", [])
        before, now = [self.record, *later][-1]["code"], code_version()
        if before != now:
            watcher.note(f"epochs until {self.epoch} were trained by version {before}, those after by {now}")
            later.append({"code": now, "after_epoch": self.epoch})
            self.run.note(self.record)

    def go(self, watcher: Watcher, seconds_between_states: float) -> None:
        watcher.begin(self.run, self.record, self.epoch + 1)
        self.products = self.learner.products(next(self.data.batches(0)))
        written = time.monotonic()
        while not self.is_over:
            entry = self._learn_epoch(watcher)
            entry |= self._measure()
            self.run.append(entry)
            watcher.epoch(entry)
            if self.is_over or time.monotonic() - written >= seconds_between_states:
                self._write_state()
                written = time.monotonic()
        self.run.save_network("last", self.learner.network(), self._provenance(self.epoch))

    def _learn_epoch(self, watcher: Watcher) -> Entry:
        begin, rows, floors = time.perf_counter(), 0, []
        losses, errors, left = 0.0, 0.0, self.record["total_steps"] - self.learner.step
        for examples in islice(self.data.batches(self.epoch), left):
            loss, mse = self.learner.learn(examples)
            if not math.isfinite(loss):
                self._refuse_to_go_on()
            count = len(examples.signal)
            rows, losses, errors = rows + count, losses + count * loss, errors + count * mse
            watcher.advance(self.learner.step)
            if self.learner.step % STEPS_PER_FLOOR == 0:
                floors.append(self.products.seconds())
        if not self.learner.is_finite():
            self._refuse_to_go_on()
        spent = time.perf_counter() - begin - sum(floors)
        floor = float(np.mean(floors or [self.products.seconds()]))
        self.epoch, self.seconds = self.epoch + 1, self.seconds + spent
        return {
            "epoch": self.epoch,
            "step": self.learner.step,
            "train_loss": losses / rows + self.learner.regularisation(),
            "train_mse": errors / rows,
            "learning_rate": learning_rate(
                self.config.optimiser, self.learner.step - 1, self.record["total_steps"]
            ),
            "samples_per_second": rows * self.config.data.length / spent,
            "floor_fraction": floor * rows / self.config.optimiser.batch_size / spent,
            "training_seconds": self.seconds,
        }

    def _measure(self) -> Entry:
        self.learner.follow()
        measured = self.dev.measured(self.learner.restorer())
        ratio = float(np.mean([at.ratio for at in measured]))
        if ratio < self.best.ratio:
            self.best = Best(self.epoch, ratio)
            self.best_network = self.learner.network()
        return {
            "dev_mse": float(np.mean([at.mse for at in measured])),
            "dev_snr": float(np.mean([at.snr for at in measured])),
            "dev_ratio": ratio,
            "best_epoch": self.best.epoch,
        } | ({"dev_by_bits": [asdict(at) for at in measured]} if len(measured) > 1 else {})

    def _write_state(self) -> None:
        # The best network goes first: one that is newer than the state is found again before the run ends.
        self._write_best()
        facts = {"step": self.learner.step, "epoch": self.epoch, "seconds": self.seconds}
        self.run.save_state(self.learner.tensors(), facts | {"best": asdict(self.best)})

    def _write_best(self) -> None:
        if self.best_network is not None:
            self.run.save_network("best", self.best_network, self._provenance(self.best.epoch))
            self.best_network = None

    def _provenance(self, epoch: int) -> Provenance:
        return Provenance(
            unit=self.config.data.unit,
            sample_rate_hz=self.record["sample_rate_hz"],
            data=self.record["corpus"],
            corpus_sha256=self.record["corpus_sha256"],
            seed=self.config.seed,
            training={"config": self.record["config"], "epoch": epoch},
        )

    def _refuse_to_go_on(self) -> None:
        self._write_best()
        kept = f"; the best network, of epoch {self.best.epoch}, is in {self.run.best_path}"
        raise FloatingPointError(
            f"the loss is not a number any more, in epoch {self.epoch + 1} (step {self.learner.step}); "
            f"lower the learning rate or set optimiser.clip_norm{kept if self.run.best_path.exists() else ''}"
        )


@contextmanager
def _clear_errors(run: Run) -> Iterator[None]:
    try:
        yield
    except FloatingPointError as error:
        raise ValueError(str(error)) from None
    except (OSError, AudioError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        remedy = "make room" if cause.errno in FULL else "see to that"
        raise OSError(
            f"{run.folder} cannot be written: {why(cause)}; {remedy} and give the same command again: "
            "training goes on where it stopped"
        ) from error
