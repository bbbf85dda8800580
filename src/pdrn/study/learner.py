"""A network that learns: the loss (4.2), Adam, and the average of its weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from pdrn.audio.system import sha256
from pdrn.convex import Box
from pdrn.convex.arrays import set_field
from pdrn.nets import Architecture, Network, PrimalDual, starts
from pdrn.nets import architecture as forward
from pdrn.nets.checkpoint import load
from pdrn.restoring.pretrained import file_of
from pdrn.study.config import Config, Optimiser
from pdrn.study.data import Array, Examples
from pdrn.study.machine import MatrixProducts
from pdrn.study.processes import ALONE, Processes
from pdrn.study.runs import Tensors
from pdrn.study.spectra import spectral_distance

STEPS_PER_AVERAGE = 8
"""The average follows the weights at each of so many first steps, then after so many at a time: following at
every step would cost a tenth of the time."""

QUIETEST = 1e-3
"""A relative loss divides by at least so many squared units: a silent segment may have no error at all."""


def start(config: Config) -> forward.Start:
    """Return the weights that a configuration starts from."""
    architecture, generator = config.architecture, np.random.default_rng(config.seed)
    how = config.start
    if how.kind == "own":
        return architecture.start(generator)
    if how.kind == "network":
        return _learned_weights(config)
    if not isinstance(architecture, PrimalDual):
        raise ValueError(
            f'a {type(architecture).__name__} cannot start at {how.kind}; set start.kind = "own"'
        )
    if how.kind == "chambolle pock":
        return starts.chambolle_pock(
            architecture,
            sigma=how.sigma,
            tau=how.tau or None,
            memory_gain=how.memory_gain,
            generator=generator,
        )
    return {"glorot": starts.glorot, "identity": starts.identity}[how.kind](architecture, generator)


def _learned_weights(config: Config) -> forward.Start:
    learned, file = config.start.network, file_of(config.start.network)
    if config.start.network_sha256 not in ("", sha256(file)):
        raise ValueError(f"{learned} is not the file any more that this run starts at; put that one there")
    network, provenance = load(file)
    if network.architecture != config.architecture:
        raise ValueError(f"{learned} has another architecture; leave the architecture out, to have its own")
    if provenance.unit != config.data.unit:
        raise ValueError(f'{learned} measures in another unit; set data.unit = "{provenance.unit}"')
    return {name: part.astype(np.float64) for name, part in network.weights.items()}


def learning_rate(optimiser: Optimiser, step: int, total_steps: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    rate = optimiser.learning_rate
    if optimiser.schedule == "cosine":
        share = optimiser.final_share
        rate *= share + (1 - share) * (1 + math.cos(math.pi * step / total_steps)) / 2
    return rate * min(1.0, (step + 1) / (optimiser.warmup_steps + 1))


def _unchecked(lower: Tensor, upper: Tensor) -> Box:
    """Return cells that a quantizer made, sparing the checks: they take as long as all of Adam."""
    cells = object.__new__(Box)
    set_field(cells, "lower", lower)
    set_field(cells, "upper", upper)
    return cells


class Learner:
    """The weights of a run and what changes them.

    Each of several processes has a learner: it is given whole batches, and computes on its rows of them.
    """

    def __init__(self, config: Config, total_steps: int, processes: Processes = ALONE) -> None:
        self.config, self.total_steps, self.step, self.followed = config, total_steps, 0, 0
        self.processes = processes
        self.architecture: Architecture = config.architecture
        tensors = {name: torch.tensor(part, dtype=torch.float32) for name, part in start(config).items()}
        self.fixed = {name: tensors.pop(name) for name in self.architecture.fixed}
        self.weights = {name: part.requires_grad_() for name, part in tensors.items()}
        zeros = {name: torch.zeros_like(part) for name, part in self.weights.items()}
        # What Adam remembers of the gradients, and the average of the weights where that is used.
        self.kept = {"means": zeros, "squares": {name: part.clone() for name, part in zeros.items()}}
        if config.optimiser.averaging:
            self.kept["average"] = {name: part.detach().clone() for name, part in self.weights.items()}

    def _is_regularised(self, part: Tensor) -> bool:
        return self.config.loss.regularised == "all" or part.ndim > 1

    def learn(self, examples: Examples) -> tuple[float, float]:
        """Do one step; return the loss without regularisation, and the mean squared error in full scale."""
        loss, mse = self._gradient(examples)
        if self.processes.count > 1:
            loss, mse = self._added_up(examples, loss, mse)
        self._clip()
        self._adam()
        self.step += 1
        if self.step <= STEPS_PER_AVERAGE or self.step - self.followed >= STEPS_PER_AVERAGE:
            self.follow()
        return loss, mse

    @torch.no_grad()
    def _adam(self) -> None:
        optimiser = self.config.optimiser
        rate = learning_rate(optimiser, self.step, self.total_steps)
        for regularised in (True, False):
            names = [name for name, part in self.weights.items() if self._is_regularised(part) is regularised]
            if not names:
                continue
            # What torch.optim.Adam calls; going through it would import torch's compiler, for seconds.
            torch._fused_adam_(
                [self.weights[name] for name in names],
                [self._gradient_of(name) for name in names],
                [self.kept["means"][name] for name in names],
                [self.kept["squares"][name] for name in names],
                [],
                [torch.tensor(float(self.step + 1)) for _ in names],
                lr=rate,
                beta1=optimiser.beta1,
                beta2=optimiser.beta2,
                # It adds this times the weight to the gradient: that of (4.2), not a decay beside it.
                weight_decay=2 * self.config.loss.regularisation if regularised else 0.0,
                eps=optimiser.epsilon,
                amsgrad=False,
                maximize=False,
            )

    def _added_up(self, examples: Examples, *means: float) -> list[float]:
        """Turn gradients and means over this process's rows into those over the whole batch."""
        share = len(self._mine(examples).signal) / len(examples.signal)
        parts = [self._gradient_of(name).reshape(-1) for name in self.weights]
        everything = torch.cat([*parts, torch.tensor(means)]) * share
        self.processes.add_up(everything)
        *gradients, sums = torch.split(everything, [*map(len, parts), len(means)])
        for part, gradient in zip(self.weights.values(), gradients, strict=True):
            part.grad = gradient.view_as(part)
        return [float(value) for value in sums]

    def _mine(self, examples: Examples) -> Examples:
        return examples.rows(self.processes.rows(len(examples.signal)))

    def _gradient_of(self, name: str) -> Tensor:
        """Return the gradient: zero where a weight has no say, as the extrapolation after one layer."""
        part = self.weights[name]
        return torch.zeros_like(part) if part.grad is None else part.grad

    def products(self, examples: Examples) -> MatrixProducts:
        """Return the matrix products of a step, changing nothing."""
        products = MatrixProducts()
        with products:
            self._gradient(examples)
        return products

    def _gradient(self, examples: Examples) -> tuple[float, float]:
        for part in self.weights.values():
            part.grad = None
        examples = self._mine(examples)
        if not len(examples.signal):  # a last batch may have fewer rows than there are processes
            return 0.0, 0.0
        # Copies lie where torch wants them, not NumPy: products of other layouts may round otherwise.
        signal, lower, upper = (torch.tensor(x) for x in (examples.signal, examples.lower, examples.upper))
        weights, cells = self.weights | self.fixed, _unchecked(lower, upper)
        estimate = self._estimate(weights, cells)
        if not isinstance(self.architecture, PrimalDual):  # its estimates lie in the cells already
            estimate = cells.project(estimate)
        wanted = self.config.loss
        if not (wanted.relative or wanted.spectral) and self.config.data.unit == "full scale":
            loss = torch.nn.functional.mse_loss(estimate, signal)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item(), loss.item()
        errors = (estimate - signal).square().mean(-1)
        steps = upper[:, 0] - lower[:, 0]
        if wanted.relative:
            noise = ((lower + upper) / 2 - signal).square().mean(-1)
            loss = (errors / torch.maximum(noise, QUIETEST * steps.square())).mean()
        else:
            loss = errors.mean()
        if wanted.spectral:
            loss = loss + wanted.spectral * spectral_distance(estimate, signal, steps).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        in_full_scale = errors.detach().double() * torch.tensor(examples.scale).square()
        return loss.item(), in_full_scale.mean().item()

    def _estimate(self, weights: forward.Weights, cells: Box) -> Tensor:
        """Return the estimate of the last layer; only its last layers remember how they came about."""
        activations = self.architecture.activations(weights, cells)
        if learned := self.config.loss.last_layers:
            with torch.no_grad():
                for _ in range(self.architecture.depth - learned):
                    next(activations)
        last = reduce(lambda _, activation: activation, activations)
        estimate: Tensor = self.architecture.estimate(weights, cells, last)
        return estimate

    def _clip(self) -> None:
        longest = self.config.optimiser.clip_norm
        if not longest:
            return
        gradients = [part.grad for part in self.weights.values() if part.grad is not None]
        norm = math.hypot(*map(float, torch._foreach_norm(gradients)))
        if norm > longest:
            torch._foreach_mul_(gradients, longest / norm)

    @torch.no_grad()
    def follow(self) -> None:
        """Move the average towards the weights; over the first steps it is a plain mean of recent ones.

        This is for before the network is measured or kept: the steps since the last time count too.
        """
        steps, self.followed = self.step - self.followed, self.step
        if "average" in self.kept and steps:
            kept = min(self.config.optimiser.averaging, (1 + self.step) / (10 + self.step))
            torch._foreach_lerp_(
                list(self.kept["average"].values()),
                list(self.weights.values()),
                1 - kept**steps,
            )

    @torch.no_grad()
    def regularisation(self) -> float:
        """Return the second term of the loss."""
        parts = [part.double().square().sum() for part in self.weights.values() if self._is_regularised(part)]
        return self.config.loss.regularisation * float(sum(parts))

    def is_finite(self) -> bool:
        """Whether all weights are numbers."""
        return all(bool(torch.isfinite(part).all()) for part in self.weights.values())

    def restorer(self) -> Callable[[Array, Array], Array]:
        """Return the network as it stands: cells in, signals out."""
        weights = self.kept.get("average", self.weights) | self.fixed

        @torch.no_grad()
        def restore(lower: Array, upper: Array) -> Array:
            cells = torch.tensor(lower), torch.tensor(upper)
            restored: Array = forward.restore(self.architecture, weights, *cells).numpy()
            return restored

        return restore

    def network(self) -> Network:
        """Return the network as it stands, for NumPy."""
        weights = self.kept.get("average", self.weights) | self.fixed
        return Network(self.architecture, {n: part.detach().numpy().copy() for n, part in weights.items()})

    def tensors(self) -> Tensors:
        """Return everything that learning depends on, besides the number of steps done."""
        return {name: part.detach().numpy() for name, part in self._everything().items()}

    @torch.no_grad()
    def restore(self, tensors: Tensors, step: int) -> None:
        """Go back to where ``tensors`` was taken, the average having followed."""
        self.step = self.followed = step
        for name, part in self._everything().items():
            part.copy_(torch.tensor(tensors[name]))

    @torch.no_grad()
    def take_from_first(self) -> None:
        """Let all processes stand where the first does: other processors may round otherwise."""
        self.step, self.followed = self.processes.shared((self.step, self.followed))
        self.processes.take_from_first(self._everything().values())

    def _everything(self) -> dict[str, Tensor]:
        kinds: dict[str, Mapping[str, Tensor]] = {"weights": self.weights, **self.kept}
        return {f"{kind}/{name}": part for kind, parts in kinds.items() for name, part in parts.items()}
