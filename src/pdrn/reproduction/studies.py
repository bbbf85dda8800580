"""Studies beyond the paper: networks on the same task, in equal time or in equal steps.

    neighbours      primal-dual networks beside LISTA, residual networks, learned primal-dual
    extrapolation   theta = 0, 1, learned, and learned per layer
    iterating       networks repeated beyond the depth at which they were trained

The learning rate of a candidate is the best on the development set with the first seed. With several seeds,
errors are means with 95 % confidence intervals.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from pdrn.reproduction.evaluate import FRAME_LENGTH, evaluate, network_method, whole_frames
from pdrn.reproduction.tables import for_bits, load_kept
from pdrn.storage import content_sha256, make_folder
from pdrn.training.config import Budget, Config, from_table
from pdrn.training.data import DevelopmentData, TrainingData
from pdrn.training.runs import Run, run_for, save_json

if TYPE_CHECKING:
    from pdrn.training.loop import Callback

Labels = Mapping[str, str | int]
"""Column of the report -> label of a candidate."""

Options = Mapping[str, Any]


# Candidates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A network in a comparison."""

    labels: Labels
    config: Config
    """Its training, but for seed and learning rate, which a comparison varies."""

    @property
    def name(self) -> str:
        """All labels in one line."""
        return ", ".join(f"{column} {label}" for column, label in self.labels.items())

    def trained_for(self, steps: int) -> Candidate:
        """Return this candidate with another budget."""
        config = dataclasses.replace(self.config, budget=Budget(steps=steps))
        return dataclasses.replace(self, config=config)

    def run_config(self, rate: float, seed: int) -> Config:
        """Return the configuration of a run with this learning rate and seed."""
        optimiser = dataclasses.replace(self.config.optimiser, learning_rate=rate)
        return dataclasses.replace(self.config, seed=seed, optimiser=optimiser)


def candidates(
    study: str, frame_length: int, bits: int, depths: Sequence[int], batches: int, sample_rate_hz: int
) -> tuple[Candidate, ...]:
    """Return the networks of a study.

    Parameters
    ----------
    study
        ``neighbours`` has its own depths, and one pass over the corpus per epoch.
    frame_length
        In samples; for convolutional networks, the window.
    bits
        The bit depth.
    depths
        The numbers of layers.
    batches
        Batches per epoch.
    sample_rate_hz
        Resample the corpus to this rate (0: keep).
    """
    data = {"bits": bits, "placing": "random", "sample_rate_hz": sample_rate_hz}
    if study == "neighbours":
        return _neighbours(frame_length, data)
    make = _extrapolation if study == "extrapolation" else _iterating
    return make(frame_length, depths, data | {"batches": batches})


def _neighbours(n: int, data: Options) -> tuple[Candidate, ...]:
    """Return primal-dual networks and others with as many weights as a PDN of two layers.

    That is four square matrices. Networks with fewer matrices have larger ones. A tied PDN and learned
    primal-dual cannot be matched this way and stay smaller.
    """
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
    return tuple(
        Candidate({"network": name, "layers": network.depth}, _modern(network, {"length": n, **data}))
        for name, network in networks.items()
    )


def _extrapolation(n: int, depths: Sequence[int], common: Options) -> tuple[Candidate, ...]:
    """Return dense and convolutional PDNs, and PDRNs with memory, with every kind of extrapolation.

    All batches have the same number of samples.
    """
    shapes: dict[str, tuple[Map, int, int]] = {
        "dense": (DenseMap(n), n, 128),
        "convolutional": (ConvolutionalMap(n // 4, n, n // 4), 16 * n, 8),
    }
    thetas: dict[str, tuple[float, Learned]] = {
        "0": (0.0, "no"),
        "1": (1.0, "no"),
        "learned": (1.0, "once"),
        "per layer": (1.0, "per layer"),
    }
    memories: dict[str, Memory] = {"PDN": "dual", "PDRN with memory": "gain"}
    return tuple(
        Candidate(
            {"map": shape, "network": name, "layers": depth, "theta": theta},
            _modern(
                PrimalDual(map, depth, memory, theta=start, learn_theta=learned),
                {**common, "length": length},
                optimiser={"batch_size": batch_size},
            ),
        )
        for shape, (map, length, batch_size) in shapes.items()
        for name, memory in memories.items()
        for depth in depths
        for theta, (start, learned) in thetas.items()
    )


def _iterating(n: int, depths: Sequence[int], common: Options) -> tuple[Candidate, ...]:
    """Return networks to iterate beyond their training; tied ones with truncated gradients too.

    Chambolle-Pock converges with theta = 1. With theta = 0 it need not.
    """
    map, data = DenseMap(n), {"length": n, **common}
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
            for last in (0, 1, 3) if name == "PDN, tied, theta 1" and depth > 3 else (0,):
                config = _modern(network, data, loss={"last_layers": last})
                gradient = f"last {last}" if last else "all"
                found.append(Candidate({"network": name, "layers": depth, "gradient": gradient}, config))
    return tuple(found)


def _modern(network: Architecture, data: Options, **more: Options) -> Config:
    """Return a configuration of the modern recipe; networks of other families start in their own way."""
    start = {} if isinstance(network, PrimalDual) else {"start": {"kind": "own"}}
    table = {"recipe": "modern", "architecture": encode(network), "data": data} | start | more
    return for_bits(from_table(table), data["bits"])


# Comparisons ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """The training runs that compare candidates."""

    candidates: tuple[Candidate, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return len(self.candidates) * (len(self.rates) + len(self.seeds) - 1)

    def trials(self) -> list[tuple[Candidate, Config]]:
        """Return the runs that choose learning rates: all rates, with the first seed."""
        return [
            (candidate, candidate.run_config(rate, self.seeds[0]))
            for candidate in self.candidates
            for rate in self.rates
        ]

    def repetitions(self, rates: Sequence[float]) -> list[tuple[Candidate, Config]]:
        """Return the runs with the other seeds, given the learning rate of each candidate."""
        return [
            (candidate, candidate.run_config(rate, seed))
            for seed in self.seeds[1:]
            for candidate, rate in zip(self.candidates, rates, strict=True)
        ]

    def best_rates(self, corpus: Corpus, out: str | os.PathLike[str]) -> list[float]:
        """Return the learning rate of each candidate with the smallest development error in its trial."""
        found = []
        for candidate in self.candidates:
            errors = {}
            for rate in self.rates:
                run = run_for(candidate.run_config(rate, self.seeds[0]), corpus.checksum, out)
                if run.is_done:
                    errors[rate] = run.smallest("dev_ratio")
            if not errors:
                raise InputError(f"{candidate.name} diverged at every learning rate; name smaller ones")
            found.append(min(errors, key=errors.__getitem__))
        return found

    def measure(self, corpus: Corpus, out: str | os.PathLike[str]) -> list[Measurement]:
        """Measure every candidate on the test set, after all runs."""
        found = []
        for candidate, rate in zip(self.candidates, self.best_rates(corpus, out), strict=True):
            config, data = candidate.config, candidate.config.data
            runs = [run_for(candidate.run_config(rate, seed), corpus.checksum, out) for seed in self.seeds]
            networks = [run.best() for run in runs]
            methods = {str(seed): network_method(each, data.unit) for seed, each in enumerate(networks)}
            tested = list(evaluate(corpus, "test", int(data.bits[0]), methods))
            thetas = [each.weights["theta"] for each in networks if "theta" in each.weights]
            found.append(
                Measurement(
                    labels=candidate.labels,
                    parameters=config.architecture.parameter_count,
                    steps=config.budget.steps,
                    learning_rate=rate,
                    dev_ratio=tuple(run.smallest("dev_ratio") for run in runs),
                    test_ratio=tuple(row.ratio for row in tested),
                    test_snr=tuple(row.snr for row in tested),
                    runs=tuple(run.folder.name for run in runs),
                    theta=tuple(tuple(theta.tolist()) for theta in thetas),
                )
            )
        return found


@dataclass(frozen=True)
class Measurement:
    """The errors of a candidate with its best learning rate, by seed."""

    labels: Labels
    parameters: int
    steps: int
    learning_rate: float
    dev_ratio: tuple[float, ...]
    """Mean squared error relative to that of the quantized signal, on the development set."""
    test_ratio: tuple[float, ...]
    """The same on the test set."""
    test_snr: tuple[float, ...]
    """Signal-to-noise ratio on the test set in dB."""
    runs: tuple[str, ...]
    """The run folders."""
    theta: tuple[tuple[float, ...], ...] = ()
    """The learned extrapolation, if it was learned."""
    curve: Curve | None = None
    """For the study of iterating."""


TIMED_STEPS, UNTIMED_STEPS = 12, 2
"""The number of steps of each network that are timed, and of the first ones among them that do not count."""


def equal_time_steps(
    candidates: Sequence[Candidate], corpus: Corpus, epochs: int, threads: int
) -> tuple[int, ...]:
    """Return the steps of each candidate that take as long as these epochs of the first.

    Steps are timed in turn, in processor time, so that a busy machine slows down all candidates alike.
    """
    from pdrn.training.loop import Trainer
    from pdrn.training.machine import repeatable

    data = [TrainingData.read(corpus, candidate.config) for candidate in candidates]
    times = np.empty((TIMED_STEPS, len(candidates)))
    with repeatable(threads):
        trainers = [Trainer(candidate.config, TIMED_STEPS) for candidate in candidates]
        batches = [next(each.batches(0)) for each in data]
        for turn in times:
            for index, (trainer, batch) in enumerate(zip(trainers, batches, strict=True)):
                start = time.process_time()
                trainer.step(batch)
                turn[index] = time.process_time() - start
    seconds = np.median(times[UNTIMED_STEPS:], axis=0)
    steps = epochs * data[0].steps_per_epoch * seconds[0] / seconds
    return tuple(max(1, round(count)) for count in steps)


def confidence_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % confidence interval, NaN for a single value.

    >>> mean, half = confidence_interval([1.0, 2.0, 3.0])
    >>> round(mean, 2), round(half, 2)
    (2.0, 2.48)
    """
    from scipy.stats import t

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return mean, math.nan
    return mean, float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))


# Iterating beyond training ----------------------------------------------------------------------------------

TIMES_AS_DEEP = 10
"""Iterate a network to this multiple of its depth."""

FRAMES_FOR_GAPS = 64
"""Compute certificates for this number of frames, in double precision."""


@dataclass(frozen=True)
class Curve:
    """Errors of a network after every iteration."""

    ratio: tuple[float, ...]
    """Mean squared error relative to that of the quantized signal, on the development set."""
    gap: tuple[float, ...]
    """Median relative duality gap of the problem that a tied dense network solves; () for others."""
    activation_bytes: int
    """Activations that a training step stores for its gradient."""


def add_curve(measurement: Measurement, corpus: Corpus, out: str | os.PathLike[str]) -> Measurement:
    """Return a measurement with the curve of its first network."""
    run = Run(Path(out) / measurement.runs[0])
    network, config = run.best(), run.config()
    curve = iterate(network, config, corpus, TIMES_AS_DEEP * network.architecture.depth)
    return dataclasses.replace(measurement, curve=curve)


def iterate(network: Network, config: Config, corpus: Corpus, iterations: int) -> Curve:
    """Repeat the last block of a network and measure every iteration on the development set."""
    longer = repeated(network, iterations)
    plan, weights = longer.architecture, longer.weights
    dev = DevelopmentData.read(corpus, config.data)
    errors, noise = np.zeros(iterations), 0.0
    with limited(longer.threads):
        for rows in dev.groups:
            examples = dev.quantized(rows, config.data.bits[0])
            cells = Box(examples.lo, examples.hi)
            noise += float(np.square(cells.centre - examples.signal, dtype=np.float64).sum())
            for layer, state in enumerate(plan.states(weights, cells)):
                estimate = cells.project(plan.estimate(weights, cells, state))
                errors[layer] += np.square(estimate - examples.signal, dtype=np.float64).sum()
    ratios = tuple(float(error) / noise for error in errors)
    return Curve(ratios, _gaps(longer, config, dev), _activation_bytes(config, corpus))


def _activation_bytes(config: Config, corpus: Corpus) -> int:
    import torch

    from pdrn.training.loop import Trainer

    trainer, sizes = Trainer(config, 1), dict[int, int]()

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        trainer.gradient(next(TrainingData.read(corpus, config).batches(0)))
    weights = {part.untyped_storage().data_ptr() for part in trainer.module.parameters()}
    return sum(size for place, size in sizes.items() if place not in weights)


def _gaps(network: Network, config: Config, dev: DevelopmentData) -> tuple[float, ...]:
    plan = network.architecture
    if not (isinstance(plan, PrimalDual) and plan.tying == "tied" and isinstance(plan.map, DenseMap)):
        return ()
    examples = dev.quantized(dev.groups[0][:FRAMES_FOR_GAPS], config.data.bits[0])
    exact = network.astype(np.float64)
    cells = Box(examples.lo.astype(np.float64), examples.hi.astype(np.float64))
    problem = dequantization(cells.lo, cells.hi, Dense(exact.weights["K"]))
    with limited(network.threads):
        return tuple(
            float(np.median(problem.certificate(each.x, each.y).relative_gap))
            for each in plan.states(exact.weights, cells)
        )


# Running a study --------------------------------------------------------------------------------------------


def run_study(
    study: str,
    corpus: Corpus,
    out: str | os.PathLike[str],
    display: Callable[[str], AbstractContextManager[Callback]],
    *,
    epochs: int,
    depths: Sequence[int],
    rates: Sequence[float],
    seeds: int,
    bits: int,
    frame_length: int,
    batches: int,
    threads: int = 0,
) -> tuple[str, dict[str, Any]]:
    """Train and measure the candidates of a study; return the name and the contents of its comparison.

    Parameters
    ----------
    study, bits, frame_length, depths, batches
        The candidates; see `candidates`.
    corpus, out
        The corpus, and the folder of the runs. Finished runs are reused.
    display
        Shows the progress of a run with a title.
    epochs
        The budget of every candidate; for neighbours, of the first, whose time all have.
    rates, seeds
        The learning rates to choose from, and the number of seeds.
    threads
        Of training (0: measure which number is fastest).
    """
    from pdrn.training.loop import Diverged, train
    from pdrn.training.machine import fastest_threads

    whole_frames(corpus, "test", FRAME_LENGTH)  # refuse a test set that could not be measured in the end
    used_threads = threads or fastest_threads()
    resampled_hz = corpus.sample_rate_hz or 0
    networks = candidates(study, frame_length, bits, depths, batches, resampled_hz)
    task: dict[str, Any] = {
        "networks": [candidate.name for candidate in networks],
        "corpus": corpus.folder.resolve().name,
        "corpus_sha256": corpus.checksum,
        "bits": bits,
        "frame_length": frame_length,
        "epochs": epochs,
    }
    if resampled_hz:
        task["sample_rate_hz"] = resampled_hz
    if study == "neighbours":
        measure = partial(equal_time_steps, networks, corpus, epochs, used_threads)
        steps = saved_steps(out, task | {"threads": threads}, measure)
    else:
        task["batches"], steps = batches, (epochs * batches,) * len(networks)
    trained = tuple(each.trained_for(count) for each, count in zip(networks, steps, strict=True))
    comparison = Comparison(trained, tuple(rates), tuple(range(seeds)))
    names, numbers = list[str](), count(1)

    def train_all(runs: Iterable[tuple[Candidate, Config]]) -> None:
        for candidate, config in runs:
            number, rate = f"{next(numbers)}/{comparison.run_count}", config.optimiser.learning_rate
            title = f"{number}  {candidate.name}, learning rate {rate:g}, seed {config.seed}"
            with display(title) as shown:
                try:
                    run = train(config, corpus, out, threads=used_threads, callbacks=[shown])
                    names.append(run.folder.name)
                except Diverged as error:
                    if config.seed != comparison.seeds[0]:
                        raise
                    shown.on_note(f"{title}: {error.fact}; this learning rate does not count")

    train_all(comparison.trials())
    train_all(comparison.repetitions(comparison.best_rates(corpus, out)))
    measured = comparison.measure(corpus, out)
    if study == "iterating":
        measured = [add_curve(each, corpus, out) for each in measured]
    results = [dataclasses.asdict(each) for each in measured]
    contents = {"task": task, "steps": steps, "runs": names, "results": results}
    return save_comparison(out, study, contents), contents


# Files beside the runs --------------------------------------------------------------------------------------


def save_comparison(out: str | os.PathLike[str], study: str, comparison: dict[str, Any]) -> str:
    """Keep a comparison, and return its name; one with another task has another name."""
    make_folder(out)
    name = f"{study}-{content_sha256(comparison['task'])[:8]}"
    save_json(Path(out) / f"comparison-{name}.json", comparison)
    return name


def load_comparisons(out: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return the comparisons in a folder, by names that begin with that of their study."""
    paths = sorted(Path(out).glob("comparison-*.json"))
    return {path.stem.removeprefix("comparison-"): load_kept(path) for path in paths}


def saved_steps(
    out: str | os.PathLike[str], task: dict[str, Any], measure: Callable[[], tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the steps of each candidate, measured once: a comparison that resumes has the same runs."""
    path = Path(out) / f"steps-{content_sha256(task)[:16]}.json"
    if not path.exists():
        make_folder(out)
        save_json(path, {"task": task, "steps": measure()})
    return tuple(load_kept(path)["steps"])
