"""Search: which settings make the development error smallest, by Optuna; every trial is an ordinary run.

What a trial tries follows from the number of the trial and from what those before it found, and its run goes
on exactly. So a search that was killed goes on, and finds what it would have found.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from pdrn.audio.corpus import Corpus
from pdrn.errors import InputError
from pdrn.nets.files import encode
from pdrn.storage import exclusive_lock
from pdrn.training.config import Config, from_complete_table, run_name
from pdrn.training.loop import Callback, Diverged, train
from pdrn.training.runs import Entry, Run, run_for

USUAL = ("optimiser.learning_rate=1e-4..3e-3,log", "loss.regularisation=1e-10..1e-6,log")
USUAL_FROM_CHAMBOLLE_POCK = "start.sigma=0.5..20,log"
"""What is tuned where nothing is said."""

DIGITS = 4
"""Of a setting that is tried: more would not change what it is worth, and could not be read."""

GRACE = 0.25
"""No trial is stopped in this share of its epochs, its first."""

Shown = Callable[[str], AbstractContextManager[Callback]]


@dataclass(frozen=True)
class Range:
    """Between what a setting is looked for."""

    name: str
    low: float
    high: float
    log: bool
    whole: bool
    """Whether only whole numbers are meant."""

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
            raise InputError(
                f"{name} is no setting that is a number; tune optimiser.learning_rate, for example"
            )
        part, _, setting = name.partition(".")
        if part == "start":
            config.start.require_use_of(setting)
        kind, number = type(value), "whole numbers" if type(value) is int else "numbers"
        try:
            found = Range(name, kind(low), kind(high), scale == "log", kind is int)
        except ValueError:
            found = None
        if found is None or not -math.inf < found.low < found.high < math.inf or (comma and scale != "log"):
            raise InputError(
                f"{text!r} is no range; give {name}=LOW..HIGH in {number}, with ,log at the end or not"
            )
        if found.log and found.low <= 0:
            raise InputError(f"{text!r} begins at {low}; a range with ,log begins above 0")
        for end in (found.low, found.high):
            with_values(config, {name: end})  # which refuses what no configuration can have
        return found

    def suggested(self, trial: Trial) -> float:
        """Return what a trial is to try, which is the same however often it is asked."""
        if self.whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        return self.value(trial.suggest_float(self.name, self.low, self.high, log=self.log))

    def value(self, drawn: float) -> float:
        """Return what is tried where this was drawn: a number that is short to write."""
        if self.whole:
            return drawn
        return min(max(float(f"{drawn:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Tried:
    """What became of a trial."""

    number: int
    """Counted from 1."""
    values: dict[str, float]
    config: Config
    run: Run
    error: float | None = None
    """The smallest development error, in units of the quantized signal's."""
    reason: str = ""
    """Why it did not come to its end, if so."""


@dataclass(frozen=True)
class Impossible:
    """A trial of values that no configuration has: of a range, only the ends are known to be good."""

    number: int
    values: dict[str, float]
    reason: str
    error: None = None


@dataclass(frozen=True, eq=False)
class Search:
    """A search for the best settings of a configuration on a corpus."""

    config: Config
    corpus: Corpus
    out: Path
    ranges: tuple[Range, ...]
    storage: str = ""
    """A database, as SQLAlchemy names it; unless given, a file among the runs."""
    threads: int = 0

    def __post_init__(self) -> None:
        if len({each.name for each in self.ranges}) < len(self.ranges):
            raise InputError("a setting has two ranges; tune each once")

    @property
    def name(self) -> str:
        """What names the search: the same settings in the same ranges are the same search."""
        ranges = json.dumps([vars(each) for each in sorted(self.ranges, key=lambda each: each.name)])
        described = run_name(self.config, self.corpus.checksum) + ranges
        return f"search-{hashlib.sha256(described.encode()).hexdigest()[:16]}"

    def tries(self, count: int, shown: Shown) -> Generator[Tried | Impossible, None, None]:
        """Try until there are so many trials, those of before too, and yield each when it is done.

        Parameters
        ----------
        count
            How many trials there are in the end.
        shown
            Returns, for the title of a trial, who is told how its training goes.
        """
        busy = f"another process is at {self.name} in {self.out}; wait for it"
        with exclusive_lock(self.out / f".{self.name}", busy):
            study = self._study()
            while (trial := self._next(study, count)) is not None:
                yield self._tried(study, trial, count, shown)

    def best(self) -> Tried:
        """Return the trial with the smallest development error."""
        done = self._study().get_trials(states=(TrialState.COMPLETE,))
        if not done:
            raise InputError("no trial came to its end; widen the ranges, or lower the learning rate")
        best = min(done, key=lambda trial: float(trial.value or 0.0))
        values = {each.name: each.value(best.params[each.name]) for each in self.ranges}
        config = with_values(self.config, values)
        return Tried(
            best.number + 1, values, config, run_for(config, self.corpus.checksum, self.out), best.value
        )

    def _study(self) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.out.mkdir(parents=True, exist_ok=True)
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
            raise InputError(f"the storage {storage} cannot be used: {reason}") from error

    def _next(self, study: optuna.Study, count: int) -> Trial | None:
        """Return the trial that a killed process left, or a new one, or None where there are enough."""
        trials = study.get_trials(deepcopy=False)
        left = [trial for trial in trials if trial.state == TrialState.RUNNING]
        if not left and len(trials) >= count:
            return None
        number = left[0].number if left else len(trials)
        # A sampler that went on from where it was would repeat itself after a kill.
        study.sampler = optuna.samplers.TPESampler(seed=self.config.seed + number)
        return Trial(study, left[0]._trial_id) if left else study.ask()

    def _tried(self, study: optuna.Study, trial: Trial, count: int, shown: Shown) -> Tried | Impossible:
        values = {each.name: each.suggested(trial) for each in self.ranges}
        number = trial.number + 1
        said = "  ".join(f"{name}={value:g}" for name, value in values.items())
        try:
            config = with_values(self.config, values)
        except ValueError as error:
            study.tell(trial, state=TrialState.FAIL)
            return Impossible(number, values, str(error))
        tried = number, values, config, run_for(config, self.corpus.checksum, self.out)
        try:
            with shown(f"{number}/{count}  {said}") as callback:
                callbacks = [callback, _Judge(trial)]
                run = train(config, self.corpus, self.out, threads=self.threads, callbacks=callbacks)
        except _Hopeless as end:
            study.tell(trial, state=TrialState.PRUNED)
            return Tried(*tried, reason=str(end))
        except Diverged as end:
            study.tell(trial, state=TrialState.FAIL)
            return Tried(*tried, reason=end.fact)
        smallest = min(float(entry["dev_ratio"]) for entry in run.complete_log())
        study.tell(trial, smallest)
        return Tried(*tried, smallest)


class _Hopeless(Exception):
    """A trial is not worth going on with."""


class _Judge(Callback):
    """Hands errors to Optuna, and ends what it finds hopeless."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.reported = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def on_start(self, run: Run, record: dict[str, Any], first_epoch: int) -> None:
        self.grace = GRACE * record["total_steps"] / record["steps_per_epoch"]

    def on_epoch(self, entry: Entry) -> None:
        if entry["epoch"] not in self.reported:
            self.trial.report(entry["dev_ratio"], entry["epoch"])
        if entry["epoch"] > self.grace and self.trial.should_prune():
            raise _Hopeless(f"stopped after epoch {entry['epoch']}: most others were better by then")


def usual_ranges(config: Config) -> Sequence[str]:
    """Return what is tuned of a configuration where nothing is said."""
    return (*USUAL, USUAL_FROM_CHAMBOLLE_POCK) if config.start.kind == "chambolle pock" else USUAL


def with_values(config: Config, values: Mapping[str, float]) -> Config:
    """Return a configuration with other settings, named as in ``optimiser.learning_rate``."""
    table = encode(config)
    for name, value in values.items():
        *path, last = name.split(".")
        reduce(lambda part, key: part[key], path, table)[last] = value
    return from_complete_table(table)
