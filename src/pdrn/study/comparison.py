"""Comparisons: networks on the same task, each trained for the same time or the same number of steps.

Where several learning rates are tried, a network counts with the one that is best for it on the development
set, from the first seed; where several seeds are, errors are means with an interval of 95 %.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdrn.audio.corpus import Corpus
from pdrn.study.config import Budget, Config
from pdrn.study.data import TrainingData
from pdrn.study.evaluate import evaluate, whole_frames
from pdrn.study.methods import network_method
from pdrn.study.paper import FRAME_LENGTH
from pdrn.study.runs import Run, run_for

ROUNDS = 12
"""How many steps of each network are timed, in turn: a busy machine then slows down all of them."""

WARM_UP = 2
"""The first of these do not count."""

Labels = Mapping[str, str | int]
"""What tells a network from the others, by heading."""


@dataclass(frozen=True)
class Entrant:
    """A network in a comparison; its seed, learning rate and length are the comparison's."""

    labels: Labels
    config: Config

    @property
    def name(self) -> str:
        """All labels in a row."""
        return ", ".join(f"{heading} {label}" for heading, label in self.labels.items())


def at_rate(entrants: Sequence[Entrant], sample_rate_hz: int) -> tuple[Entrant, ...]:
    """Return networks for a corpus that is resampled to this rate, or not (0)."""

    def resampled(config: Config) -> Config:
        data = dataclasses.replace(config.data, sample_rate_hz=sample_rate_hz)
        return dataclasses.replace(config, data=data)

    return tuple(dataclasses.replace(each, config=resampled(each.config)) for each in entrants)


@dataclass(frozen=True)
class Comparison:
    """Networks, and how long, with which learning rates and from which seeds each of them is trained."""

    entrants: tuple[Entrant, ...]
    steps: tuple[int, ...]
    """How long, for each entrant."""
    rates: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def run_count(self) -> int:
        """How many runs it takes."""
        return len(self.entrants) * (len(self.rates) + len(self.seeds) - 1)

    def trials(self) -> list[tuple[Entrant, Config]]:
        """Return the runs that choose learning rates: all of them, from the first seed."""
        return [
            (entrant, self.config(index, rate, self.seeds[0]))
            for index, entrant in enumerate(self.entrants)
            for rate in self.rates
        ]

    def repetitions(self, rates: Sequence[float]) -> list[tuple[Entrant, Config]]:
        """Return the runs from the other seeds, with a learning rate for each entrant."""
        return [
            (entrant, self.config(index, rates[index], seed))
            for seed in self.seeds[1:]
            for index, entrant in enumerate(self.entrants)
        ]

    def config(self, index: int, rate: float, seed: int) -> Config:
        """Return the run of the entrant at an index."""
        config, budget = self.entrants[index].config, Budget(steps=self.steps[index])
        optimiser = dataclasses.replace(config.optimiser, learning_rate=rate)
        return dataclasses.replace(config, seed=seed, optimiser=optimiser, budget=budget)


@dataclass(frozen=True)
class Outcome:
    """What an entrant reached, with the learning rate that is best for it."""

    labels: Labels
    parameters: int
    steps: int
    learning_rate: float
    dev_ratio: tuple[float, ...]
    """What is left of the quantization error on the development set, for each seed."""
    test_ratio: tuple[float, ...]
    """The same on the test set."""
    test_snr: tuple[float, ...]
    """The signal-to-noise ratio there in dB."""
    runs: tuple[str, ...]
    """The run folder of each seed."""
    theta: tuple[tuple[float, ...], ...] = ()
    """The extrapolation that was learned, for each seed, where it was."""
    course: dict[str, Any] | None = None
    """What it does beyond its training, where that was measured."""


def check(corpus: Corpus) -> None:
    """Refuse a corpus whose test set could not be measured when all runs are done.

    That is over whole frames of 1024 samples, whatever the networks take.
    """
    whole_frames(corpus, "test", FRAME_LENGTH)


def in_equal_time(entrants: Sequence[Entrant], corpus: Corpus, epochs: int, threads: int) -> tuple[int, ...]:
    """Return how many steps of each entrant take the processor as long as so many epochs of the first."""
    from pdrn.study.learner import Learner
    from pdrn.study.machine import repeatable

    data = [TrainingData.read(corpus, entrant.config) for entrant in entrants]
    times = np.empty((ROUNDS, len(entrants)))
    with repeatable(threads):
        learners = [Learner(entrant.config, ROUNDS) for entrant in entrants]
        batches = [next(each.batches(0)) for each in data]
        for turn in times:
            for place, (learner, batch) in enumerate(zip(learners, batches, strict=True)):
                begin = time.process_time()  # what other processes take is none of it
                learner.learn(batch)
                turn[place] = time.process_time() - begin
    seconds = np.median(times[WARM_UP:], axis=0)
    steps = epochs * data[0].steps_per_epoch * seconds[0] / seconds
    return tuple(max(1, round(count)) for count in steps)


def best_rates(comparison: Comparison, corpus: Corpus, out: str | os.PathLike[str]) -> list[float]:
    """Return the learning rate that is best for each entrant, once all trials have ended."""
    found = []
    for index in range(len(comparison.entrants)):
        configs = [comparison.config(index, rate, comparison.seeds[0]) for rate in comparison.rates]
        runs = [run_for(config, corpus.checksum, out) for config in configs]
        errors = [_dev_ratio(run) if run.is_done else math.inf for run in runs]
        if math.isinf(min(errors)):
            raise ValueError(
                f"{comparison.entrants[index].name} could be trained with none of the learning rates; "
                "name smaller ones"
            )
        found.append(comparison.rates[int(np.argmin(errors))])
    return found


def outcomes(comparison: Comparison, corpus: Corpus, out: str | os.PathLike[str]) -> list[Outcome]:
    """Return what came of a comparison whose runs are all done; the test set is measured now."""
    found = []
    for index, rate in enumerate(best_rates(comparison, corpus, out)):
        entrant = comparison.entrants[index]
        configs = [comparison.config(index, rate, seed) for seed in comparison.seeds]
        runs = [run_for(config, corpus.checksum, out) for config in configs]
        tested = [_on_test_set(run, corpus) for run in runs]
        found.append(
            Outcome(
                labels=entrant.labels,
                parameters=entrant.config.architecture.parameter_count,
                steps=comparison.steps[index],
                learning_rate=rate,
                dev_ratio=tuple(map(_dev_ratio, runs)),
                test_ratio=tuple(ratio for ratio, _ in tested),
                test_snr=tuple(snr for _, snr in tested),
                runs=tuple(run.folder.name for run in runs),
                theta=tuple(theta for run in runs if (theta := _theta(run))),
            )
        )
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its interval of 95 %, which is NaN for a single value.

    >>> mean, half = interval([1.0, 2.0, 3.0])
    >>> round(mean, 2), round(half, 2)
    (2.0, 2.48)
    """
    from scipy.stats import t

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return mean, math.nan
    return mean, float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))


def _dev_ratio(run: Run) -> float:
    return float(min(entry["dev_ratio"] for entry in run.whole_log()))


def _theta(run: Run) -> tuple[float, ...]:
    return tuple(float(value) for value in run.best().weights.get("theta", ()))


def _on_test_set(run: Run, corpus: Corpus) -> tuple[float, float]:
    data = run.config().data
    row = next(evaluate(corpus, "test", int(data.bits[0]), {"": network_method(run.best(), data.unit)}))
    return row.ratio, row.snr
