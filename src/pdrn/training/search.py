"""Hyperparameter search with Optuna: the settings with the smallest development error.

Every trial is a run. Its values depend only on its number and on the results of earlier trials, and runs
resume exactly. So a search that was killed resumes and finds the same settings.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import optuna
from optuna.trial import Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from pdrn.audio.corpus import Corpus
from pdrn.errors import InputError, StorageError
from pdrn.nets.files import encode
from pdrn.storage import exclusive_lock, make_folder
from pdrn.training.config import Config, from_complete_table, run_name
from pdrn.training.loop import Callback, Diverged, train
from pdrn.training.runs import Entry, Record, Run, run_for

DIGITS = 4
"""Significant digits of the values that trials use."""

GRACE = 0.25
"""No trial is pruned in this share of its epochs."""

Display = Callable[[str], AbstractContextManager[Callback]]
"""Shows the progress of a trial with a title."""


@dataclass(frozen=True)
class Range:
    """The range in which a setting is searched."""

    name: str
    low: float
    high: float
    log: bool
    whole: bool
    """Whether the setting is a whole number."""

    @staticmethod
    def read(text: str, config: Config) -> Range:
        """Read ``PART.SETTING=LOW..HIGH`` or ``PART.SETTING=LOW..HIGH,log``."""
        name, _, values = text.partition("=")
        values, comma, scale = values.partition(",")
        low, _, high = values.partition("..")
        value = reduce(
            lambda part, key: part.get(key) if isinstance(part, dict) else None,
            name.split("."),
            encode(config),
        )
        if type(value) not in (int, float):
            raise InputError(f"{name} is no numeric setting; tune optimiser.learning_rate, for example")
        kind, number = type(value), "whole numbers" if type(value) is int else "numbers"
        try:
            found = Range(name, kind(low), kind(high), scale == "log", kind is int)
        except ValueError:
            found = None
        if found is None or not -math.inf < found.low < found.high < math.inf or (comma and scale != "log"):
            raise InputError(f"{text!r} is no range; write {name}=LOW..HIGH in {number}, or LOW..HIGH,log")
        if found.log and found.low <= 0:
            raise InputError(f"{text!r} begins at {low}; a range with ,log begins above 0")
        for end in (found.low, found.high):
            with_values(config, {name: end})  # refuses values that no configuration has
        return found

    def suggest(self, trial: Trial) -> float:
        """Return the value for a trial, always the same for the same trial."""
        if self.whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        return self.round(trial.suggest_float(self.name, self.low, self.high, log=self.log))

    def round(self, value: float) -> float:
        """Round a value to a few digits, within the range."""
        if self.whole:
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial: an error, or the reason why there is none."""

    number: int
    """Counted from 1."""
    values: Mapping[str, float]
    error: float | None = None
    """The smallest development error relative to that of the quantized signal."""
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Search:
    """A search for the best settings of a configuration on a corpus."""

    config: Config
    corpus: Corpus
    out: Path
    ranges: tuple[Range, ...]
    storage: str = ""
    """The URL of a database for SQLAlchemy; default: a file in ``out``."""
    threads: int = 0

    def __post_init__(self) -> None:
        if len({each.name for each in self.ranges}) < len(self.ranges):
            raise InputError("a setting has two ranges; tune each once")

    @property
    def name(self) -> str:
        """A hash of configuration, corpus and ranges."""
        ranges = json.dumps([vars(each) for each in sorted(self.ranges, key=lambda each: each.name)])
        described = run_name(self.config, self.corpus.checksum) + ranges
        return f"search-{hashlib.sha256(described.encode()).hexdigest()[:16]}"

    def config_for(self, values: Mapping[str, float]) -> Config:
        """Return the configuration of a trial."""
        return with_values(self.config, values)

    def run_for(self, values: Mapping[str, float]) -> Run:
        """Return the run of a trial."""
        return run_for(self.config_for(values), self.corpus.checksum, self.out)

    def run_trials(self, count: int, display: Display) -> Generator[TrialResult, None, None]:
        """Run trials and yield their results, until this search has ``count``, earlier ones included."""
        with exclusive_lock(
            self.out / f".{self.name}", f"another process runs {self.name} in {self.out}; wait for it"
        ):
            study = self._study()
            while (trial := self._next_trial(study, count)) is not None:
                yield self._run_trial(study, trial, count, display)

    def best(self) -> TrialResult:
        """Return the trial with the smallest development error."""
        done = self._study().get_trials(states=(TrialState.COMPLETE,))
        if not done:
            raise InputError("no trial finished; widen the ranges, or lower the learning rate")
        best = min(done, key=lambda trial: float(trial.value or 0.0))
        values = {each.name: each.round(best.params[each.name]) for each in self.ranges}
        return TrialResult(best.number + 1, values, best.value)

    def _study(self) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        make_folder(self.out)
        storage = self.storage or f"sqlite:///{self.out / self.name}.db"
        try:
            return optuna.create_study(
                storage=storage,
                study_name=self.name,
                pruner=optuna.pruners.MedianPruner(),
                load_if_exists=True,
            )
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
            reason = str(error).strip().splitlines()[0]
            raise StorageError(
                f"the storage {storage} cannot be used: {reason}; name another, or remove it"
            ) from error

    def _next_trial(self, study: optuna.Study, count: int) -> Trial | None:
        """Return the trial that a killed process left, or a new one; None if the search has enough."""
        trials = study.get_trials(deepcopy=False)
        left = [trial for trial in trials if trial.state == TrialState.RUNNING]
        if not left and len(trials) >= count:
            return None
        number = left[0].number if left else len(trials)
        # A new sampler for every trial: its values must not depend on when the process started.
        study.sampler = optuna.samplers.TPESampler(seed=self.config.seed + number)
        return Trial(study, left[0]._trial_id) if left else study.ask()

    def _run_trial(self, study: optuna.Study, trial: Trial, count: int, display: Display) -> TrialResult:
        values = {each.name: each.suggest(trial) for each in self.ranges}
        number = trial.number + 1
        settings = "  ".join(f"{name}={value:g}" for name, value in values.items())
        try:
            config = self.config_for(values)
        except InputError as reason:  # only the ends of a range were checked
            study.tell(trial, state=TrialState.FAIL)
            return TrialResult(number, values, reason=str(reason))
        try:
            with display(f"{number}/{count}  {settings}") as callback:
                callbacks = [callback, _Pruner(trial)]
                run = train(config, self.corpus, self.out, threads=self.threads, callbacks=callbacks)
        except optuna.TrialPruned as end:
            study.tell(trial, state=TrialState.PRUNED)
            return TrialResult(number, values, reason=str(end))
        except Diverged as end:
            study.tell(trial, state=TrialState.FAIL)
            return TrialResult(number, values, reason=end.fact)
        error = run.smallest("dev_ratio")
        study.tell(trial, error)
        return TrialResult(number, values, error)


class _Pruner(Callback):
    """Reports errors to Optuna, and ends a trial that it prunes."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.reported = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def on_start(self, run: Run, record: Record, first_epoch: int) -> None:
        self.grace = GRACE * record.total_steps / record.steps_per_epoch

    def on_epoch(self, entry: Entry) -> None:
        if entry["epoch"] not in self.reported:
            self.trial.report(entry["dev_ratio"], entry["epoch"])
        if entry["epoch"] > self.grace and self.trial.should_prune():
            raise optuna.TrialPruned(f"stopped after epoch {entry['epoch']}: most others were better by then")


def default_ranges(config: Config) -> list[str]:
    """Return the ranges that are searched by default: of sigma only for a start at Chambolle-Pock."""
    ranges = ["optimiser.learning_rate=1e-4..3e-3,log", "loss.regularisation=1e-10..1e-6,log"]
    return ranges + ["start.sigma=0.5..20,log"] * (config.start.kind == "chambolle pock")


def with_values(config: Config, values: Mapping[str, float]) -> Config:
    """Return a configuration with other settings, named as in ``optimiser.learning_rate``."""
    table = encode(config)
    for name, value in values.items():
        *path, last = name.split(".")
        reduce(lambda part, key: part[key], path, table)[last] = value
    return from_complete_table(table)
