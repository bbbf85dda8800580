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
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.audio.corpus import Corpus
from pdrn.convex import Box, Dense, dequantization
from pdrn.errors import InputError
from pdrn.nets import Architecture, ConvolutionalMap, DenseMap, Network, PrimalDual
from pdrn.nets.files import encode
from pdrn.nets.maps import Map
from pdrn.nets.primal_dual import Learned, Memory
from pdrn.nets.related import LISTA, DeepPrimalDual, LearnedPrimalDual, ResidualNetwork, recurrent_proximal
from pdrn.nets.runtime import limited, repeated
from pdrn.reproduction.evaluate import evaluate, network_method, whole_frames
from pdrn.reproduction.paper import FRAME_LENGTH
from pdrn.reproduction.tables import for_bits
from pdrn.training.config import Budget, Config, from_table
from pdrn.training.data import DevelopmentData, TrainingData
from pdrn.training.runs import Run, run_for

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
    curve: dict[str, Any] | None = None
    """What it does beyond its training, where that was measured."""


def check(corpus: Corpus) -> None:
    """Refuse a corpus whose test set could not be measured when all runs are done.

    That is over whole frames of 1024 samples, whatever the networks take.
    """
    whole_frames(corpus, "test", FRAME_LENGTH)


def in_equal_time(entrants: Sequence[Entrant], corpus: Corpus, epochs: int, threads: int) -> tuple[int, ...]:
    """Return how many steps of each entrant take the processor as long as so many epochs of the first."""
    from pdrn.training.loop import Learner
    from pdrn.training.machine import repeatable

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
            raise InputError(
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
    return float(min(entry["dev_ratio"] for entry in run.complete_log()))


def _theta(run: Run) -> tuple[float, ...]:
    return tuple(float(value) for value in run.best().weights.get("theta", ()))


def _on_test_set(run: Run, corpus: Corpus) -> tuple[float, float]:
    data = run.config().data
    row = next(evaluate(corpus, "test", int(data.bits[0]), {"": network_method(run.best(), data.unit)}))
    return row.ratio, row.snr


Table = Mapping[str, Any]


def neighbours(frame_length: int, bits: int) -> tuple[Entrant, ...]:
    """Return primal-dual networks and their neighbours, with as many weights as a PDN of two layers.

    That is four square matrices. A network with fewer has larger ones; those that cannot be matched so come
    as they are: learned primal-dual has few weights by its nature.
    """
    n = frame_length
    square, wide = DenseMap(n), DenseMap(n, 4 * n)
    networks: dict[str, Architecture] = {
        "PDN": PrimalDual(square, 2, "dual"),
        "PDRN": PrimalDual(square, 2, "bias"),
        "PDRN with memory": PrimalDual(square, 2, "gain"),
        "PDN, half-tied": PrimalDual(square, 4, "dual", "half"),
        "PDN, tied": PrimalDual(square, 5, "dual", "tied"),
        "PDN, tied, wide": PrimalDual(wide, 5, "dual", "tied"),
        "recurrent proximal, wide": recurrent_proximal(wide, 5),
        "LISTA": LISTA(DenseMap(n, 4 * n // 3), 5),
        "residual network": ResidualNetwork(square, 1),
        "learned primal-dual": LearnedPrimalDual(square, 5),
        "deep primal-dual": DeepPrimalDual(DenseMap(n, 7 * n // 8), 5, body_depth=1),
    }
    data = {"bits": bits, "length": n, "placing": "random"}
    return tuple(
        Entrant({"network": name, "layers": network.depth}, _modern(network, data))
        for name, network in networks.items()
    )


def extrapolation(frame_length: int, bits: int, depths: Sequence[int], batches: int) -> tuple[Entrant, ...]:
    """Return networks with every kind of extrapolation: dense and convolutional, PDN and PDRN with memory.

    An epoch has so many batches, all of the same number of samples.
    """
    n, frames, segments = frame_length, 128, 8
    shapes: dict[str, tuple[Map, dict[str, Any], Table]] = {
        "dense": (DenseMap(n), {"length": n}, {"batch_size": frames}),
        "convolutional": (
            ConvolutionalMap(n // 4, n, n // 4),
            {"length": n * frames // segments},
            {"batch_size": segments},
        ),
    }
    thetas: dict[str, tuple[float, Learned]] = {
        "0": (0.0, "no"),
        "1": (1.0, "no"),
        "learned": (1.0, "once"),
        "per layer": (1.0, "per layer"),
    }
    memories: dict[str, Memory] = {"PDN": "dual", "PDRN with memory": "gain"}
    common: dict[str, Any] = {"bits": bits, "placing": "random", "batches": batches}
    return tuple(
        Entrant(
            {"map": shape, "network": name, "layers": depth, "theta": theta},
            _modern(
                PrimalDual(map, depth, memory, theta=start, learn_theta=learned),
                common | data,
                optimiser=optimiser,
            ),
        )
        for shape, (map, data, optimiser) in shapes.items()
        for name, memory in memories.items()
        for depth in depths
        for theta, (start, learned) in thetas.items()
    )


def iterating(frame_length: int, bits: int, depths: Sequence[int], batches: int) -> tuple[Entrant, ...]:
    """Return networks to be iterated beyond their training; tied ones by truncated gradients too.

    Chambolle-Pock converges with theta = 1; with theta = 0 it is another method, which need not.
    """
    map, common = DenseMap(frame_length), {"bits": bits, "length": frame_length}
    found = []
    for depth in depths:
        networks = {
            "PDN, tied, theta 1": PrimalDual(map, depth, "dual", "tied", theta=1.0),
            "PDN, tied, theta 0": PrimalDual(map, depth, "dual", "tied"),
            "PDN": PrimalDual(map, depth, "dual"),
            "PDRN": PrimalDual(map, depth, "bias"),
            "PDRN with memory": PrimalDual(map, depth, "gain"),
        }
        for name, network in networks.items():
            data = common | {"placing": "random", "batches": batches}
            for last in (0, 1, 3) if name == "PDN, tied, theta 1" and depth > 3 else (0,):
                config = _modern(network, data, loss={"last_layers": last})
                gradient = f"last {last}" if last else "all"
                found.append(Entrant({"network": name, "layers": depth, "gradient": gradient}, config))
    return tuple(found)


def _modern(network: Architecture, data: Table, **more: Table) -> Config:
    """Return a configuration by the modern recipe; networks of other families start as they do."""
    start = {} if isinstance(network, PrimalDual) else {"start": {"kind": "own"}}
    table = {"recipe": "modern", "architecture": encode(network), "data": data} | start | more
    return for_bits(from_table(table), data["bits"])


TIMES_AS_DEEP = 10
"""How far a network is iterated, in units of its depth."""

FRAMES_FOR_GAPS = 64
"""Certificates are computed in double precision, for so many frames."""


@dataclass(frozen=True)
class Course:
    """What a network does, iteration after iteration."""

    ratio: tuple[float, ...]
    """What is left of the quantization error on the development set."""
    gap: tuple[float, ...]
    """The median gap of the problem that a tied network solves, relative to its value; none for others."""
    activation_bytes: int
    """What a training step keeps in memory for its gradient, weights aside."""


def iterated(outcome: Outcome, corpus: Corpus, out: str | os.PathLike[str]) -> Outcome:
    """Return an outcome with the course of its first network, ten times as deep as it was trained."""
    run = Run(Path(out) / outcome.runs[0])
    network, config = run.best(), run.config()
    found = course(network, config, corpus, TIMES_AS_DEEP * network.architecture.depth)
    return dataclasses.replace(outcome, curve=dataclasses.asdict(found))


def course(network: Network, config: Config, corpus: Corpus, iterations: int) -> Course:
    """Repeat the last block of a network and measure every iteration on the development set."""
    longer = repeated(network, iterations)
    plan, weights = longer.architecture, longer.weights
    dev = DevelopmentData.read(corpus, config.data)
    errors, noise = np.zeros(iterations), 0.0
    with limited(longer.threads):
        for rows in dev.groups:
            examples = dev.quantized(rows, config.data.bits[0])
            cells = Box(examples.lower, examples.upper)
            noise += float(np.square(cells.centre - examples.signal, dtype=np.float64).sum())
            for layer, activation in enumerate(plan.activations(weights, cells)):
                estimate = cells.project(plan.estimate(weights, cells, activation))
                errors[layer] += np.square(estimate - examples.signal, dtype=np.float64).sum()
    ratios = tuple(float(error) / noise for error in errors)
    return Course(ratios, _gaps(longer, config, dev), _remembered(config, corpus))


def _remembered(config: Config, corpus: Corpus) -> int:
    import torch

    from pdrn.training.loop import Learner

    learner, sizes = Learner(config, 1), dict[int, int]()

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        learner.products(next(TrainingData.read(corpus, config).batches(0)))
    weights = {part.untyped_storage().data_ptr() for part in learner.weights.values()}
    return sum(size for place, size in sizes.items() if place not in weights)


def _gaps(network: Network, config: Config, dev: DevelopmentData) -> tuple[float, ...]:
    plan = network.architecture
    if not (isinstance(plan, PrimalDual) and plan.tying == "tied" and isinstance(plan.map, DenseMap)):
        return ()
    examples = dev.quantized(dev.groups[0][:FRAMES_FOR_GAPS], config.data.bits[0])
    exact = network.astype(np.float64)
    cells = Box(examples.lower.astype(np.float64), examples.upper.astype(np.float64))
    problem = dequantization(cells.lo, cells.hi, Dense(exact.weights["K"]))
    with limited(network.threads):
        return tuple(
            float(np.median(problem.certificate(each.x, each.y).relative_gap))
            for each in plan.activations(exact.weights, cells)
        )
