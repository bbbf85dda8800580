"""Iterating beyond training: what a network does when its last block is repeated.

A tied network is Chambolle-Pock on a problem of its own, min ``|Kx|_1`` over the cells with the K that it
learned. So there is a second view of its iterations: the duality gap of that problem.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdrn.audio.corpus import Corpus
from pdrn.convex import Box, Dense, dequantization
from pdrn.nets import DenseMap, Network, PrimalDual
from pdrn.nets.repeating import repeated
from pdrn.nets.threads import limited
from pdrn.study.comparison import Outcome
from pdrn.study.config import Config
from pdrn.study.data import DevelopmentData, TrainingData
from pdrn.study.runs import Run

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
    remembered_bytes: int
    """What a training step keeps in memory for its gradient, weights aside."""


def iterated(outcome: Outcome, corpus: Corpus, out: str | os.PathLike[str]) -> Outcome:
    """Return an outcome with the course of its first network, ten times as deep as it was trained."""
    run = Run(Path(out) / outcome.runs[0])
    network, config = run.best(), run.config()
    found = course(network, config, corpus, TIMES_AS_DEEP * network.architecture.depth)
    return dataclasses.replace(outcome, course=dataclasses.asdict(found))


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

    from pdrn.study.learner import Learner

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
    problem = dequantization(cells.lower, cells.upper, Dense(exact.weights["K"]))
    with limited(network.threads):
        return tuple(
            float(np.median(problem.certificate(each.x, each.y).relative_gap))
            for each in plan.activations(exact.weights, cells)
        )
