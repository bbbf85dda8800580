"""Training: a configuration and a corpus in, a run folder out; killed at any moment, it goes on exactly."""

from __future__ import annotations

import errno
import math
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from pdrn.audio.corpus import Corpus
from pdrn.audio.system import AudioError, why
from pdrn.nets.checkpoint import Provenance
from pdrn.nets.memory import keep_freed_memory
from pdrn.study.beginning import begun_or_going_on, check
from pdrn.study.config import Config
from pdrn.study.data import DevelopmentData, TrainingData
from pdrn.study.learner import Learner, learning_rate
from pdrn.study.log import Entry
from pdrn.study.machine import repeatable
from pdrn.study.processes import ALONE, Processes
from pdrn.study.runs import Run, code_version, run_for
from pdrn.study.watching import Watcher

SECONDS_BETWEEN_STATES = 60.0
"""State is written after an epoch, but not more often than this: a kill costs a minute or an epoch."""

STEPS_PER_FLOOR = 50
"""The floor is measured so often while training goes on, so that a busy machine slows down both."""

FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""What goes wrong where there is no room."""


class Diverged(ValueError):
    """The weights of a run are not numbers any more.

    Parameters
    ----------
    fact : str
        When that was, and what is left.
    """

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact

    def __str__(self) -> str:
        return f"{self.fact}; lower optimiser.learning_rate or set optimiser.clip_norm"


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
    processes: Processes = ALONE,
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
    processes
        Those that train it together, each with the same other arguments. A run keeps their number.
    """
    ours = config, corpus.checksum, code_version()
    is_alike = processes.shared(ours) == ours
    with processes.together():
        check(config, corpus, processes)
        if not is_alike:
            raise ValueError("it has another configuration, corpus or version of pdrn than the first process")
        run = run_for(config, corpus.checksum, out)
        if run.is_published:
            raise ValueError(
                f"{run.folder} has the figures of this run without its networks; choose another folder"
            )
    if processes.shared(run.is_done):
        return run
    watcher = watcher or Watcher()
    keep_freed_memory()
    with ExitStack() as held:
        record: dict[str, Any] | None = None
        with processes.together():
            if processes.is_first:
                with _clear_errors(run):
                    held.enter_context(run.locked())
            data, dev = TrainingData.read(corpus, config), DevelopmentData.read(corpus, config.data)
            held.enter_context(_clear_errors(run))
            if processes.is_first:
                record = begun_or_going_on(run, config, corpus, data, threads, processes, watcher.note)
        record = processes.shared(record)
        assert record is not None
        with repeatable(record["threads"]):
            with processes.together():
                training = _Training(run, config, record, data, dev, processes)
                training.note_version(watcher)
            training.take_from_first()
            training.go(watcher, seconds_between_states)
    return run


@dataclass
class _Training:
    run: Run
    config: Config
    record: dict[str, Any]
    data: TrainingData
    dev: DevelopmentData
    processes: Processes = ALONE
    epoch: int = 0
    seconds: float = 0.0
    best: Best = field(default_factory=Best)

    def __post_init__(self) -> None:
        self.learner = Learner(self.config, self.record["total_steps"], self.processes)
        self.best_network: Any = None
        if not self.processes.is_first:
            return
        found = self.run.load_state({name: part.shape for name, part in self.learner.tensors().items()})
        if found:
            tensors, facts = found
            self.learner.restore(tensors, facts["step"])
            self.epoch, self.seconds, self.best = facts["epoch"], facts["seconds"], Best(**facts["best"])
        self.run.forget_after(self.epoch)

    def take_from_first(self) -> None:
        """Let all processes stand where the first does, which read the state."""
        self.learner.take_from_first()
        self.epoch, self.seconds, self.best = self.processes.shared((self.epoch, self.seconds, self.best))

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
            if self.processes.is_first:
                self.run.note(self.record)

    def go(self, watcher: Watcher, seconds_between_states: float) -> None:
        watcher.begin(self.run, self.record, self.epoch + 1)
        batch = next(self.data.batches(0))
        self.products, self.rows_of_products = self.learner.products(batch), len(batch.signal)
        self.floors = deque((self.products.seconds() for _ in range(3)), maxlen=9)
        written = time.monotonic()
        while not self.is_over:
            entry = self._learn_epoch(watcher)
            entry |= self._measure()
            if not self.processes.is_first:
                continue
            self.run.append(entry)
            watcher.epoch(entry)
            if self.is_over or time.monotonic() - written >= seconds_between_states:
                self._write_state()
                written = time.monotonic()
        if self.processes.is_first:
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
        self.learner.take_from_first()
        if not self.learner.is_finite():
            self._refuse_to_go_on()
        spent = time.perf_counter() - begin - sum(floors)
        self.floors.extend(floors or [self.products.seconds()])
        # A few of before help where an epoch has hardly any of its own: one measurement may be far off.
        floor = float(np.median(floors if len(floors) > 2 else self.floors)) / self.rows_of_products
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
            "floor_fraction": floor * rows / spent,
            "training_seconds": self.seconds,
        }

    def _measure(self) -> Entry:
        self.learner.follow()
        measured = self.dev.measured(self.learner.restorer(), self.processes)
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
        if self.processes.is_first and self.best_network is not None:
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
        kept = f" (the best network, of epoch {self.best.epoch}, is in {self.run.best_path})"
        self.processes.refuse(
            Diverged(
                f"the loss is not a number any more, in epoch {self.epoch + 1}, step {self.learner.step}"
                + (kept if self.run.best_path.exists() else "")
            )
        )


@contextmanager
def _clear_errors(run: Run) -> Iterator[None]:
    try:
        yield
    except (OSError, AudioError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or isinstance(cause, BrokenPipeError):  # whoever listened is gone
            raise
        remedy = "make room" if cause.errno in FULL else "see to that"
        raise OSError(
            f"{run.folder} cannot be written: {why(cause)}; {remedy} and give the same command again: "
            "training goes on where it stopped"
        ) from error
