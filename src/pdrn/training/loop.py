"""Training: a configuration and a corpus in, a run folder out; killed at any moment, it resumes exactly."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pdrn.audio.corpus import Corpus
from pdrn.convex import Box
from pdrn.convex.backend import set_field
from pdrn.errors import InputError, StorageError, system_error, system_reason
from pdrn.nets import CellArchitecture, Network, PrimalDual, primal_dual
from pdrn.nets import primal_dual as forward
from pdrn.nets.files import Provenance, encode, load
from pdrn.restoration.registry import file_of
from pdrn.storage import file_sha256
from pdrn.training.config import Config, Optimiser
from pdrn.training.data import Array, DevelopmentData, Examples, TrainingData
from pdrn.training.distributed import ALONE, Processes
from pdrn.training.losses import RESOLUTIONS, spectral_distance
from pdrn.training.machine import fastest_threads, repeatable
from pdrn.training.runs import Entry, Record, Run, Tensors, code_version, run_for, runs_in


class Callback:
    """Base of callbacks: override the events of interest. An exception of a callback ends the training."""

    def on_start(self, run: Run, record: Record, first_epoch: int) -> None:
        """Handle the start of training, or its resumption, with an epoch counted from 1."""

    def on_note(self, sentence: str) -> None:
        """Handle a note on something that the caller may not expect."""

    def on_step(self, step: int) -> None:
        """Handle the end of a step, counted from 1."""

    def on_epoch(self, entry: Entry) -> None:
        """Handle the end of an epoch, given its line of the log."""


def _note(callbacks: Sequence[Callback], sentence: str) -> None:
    for callback in callbacks:
        callback.on_note(sentence)


STEPS_PER_AVERAGE = 8
"""The average follows the weights at each of so many first steps, then after so many at a time: following at
every step would cost a tenth of the time."""

QUIETEST = 1e-3
"""A relative loss divides by at least so many squared units: a silent segment may have no error at all."""


def start(config: Config) -> forward.Arrays:
    """Return the weights that a configuration starts from."""
    architecture, generator = config.architecture, np.random.default_rng(config.seed)
    how = config.start
    if how.kind == "own":
        return architecture.start(generator)
    if how.kind == "network":
        return _learned_weights(config)
    if not isinstance(architecture, PrimalDual):
        raise InputError(
            f'a {type(architecture).__name__} cannot start at {how.kind}; set start.kind = "own"'
        )
    if how.kind == "chambolle pock":
        return primal_dual.chambolle_pock(
            architecture,
            sigma=how.sigma,
            tau=how.tau or None,
            memory_gain=how.memory_gain,
            generator=generator,
        )
    return {"glorot": primal_dual.glorot, "identity": primal_dual.identity}[how.kind](architecture, generator)


def _learned_weights(config: Config) -> forward.Arrays:
    learned, file = config.start.network, file_of(config.start.network)
    if config.start.network_sha256 not in ("", file_sha256(file)):
        raise InputError(f"{learned} is not the file any more that this run starts at; put that one there")
    network, provenance = load(file)
    if network.architecture != config.architecture:
        raise InputError(f"{learned} has another architecture; leave the architecture out, to have its own")
    if provenance.unit != config.data.unit:
        raise InputError(f'{learned} measures in another unit; set data.unit = "{provenance.unit}"')
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
    set_field(cells, "lo", lower)
    set_field(cells, "hi", upper)
    return cells


class Learner:
    """The weights of a run and what changes them.

    Each of several processes has a learner: it is given whole batches, and computes on its rows of them.
    """

    def __init__(self, config: Config, total_steps: int, processes: Processes = ALONE) -> None:
        self.config, self.total_steps, self.step, self.followed = config, total_steps, 0, 0
        self.processes = processes
        self.architecture: CellArchitecture = config.architecture
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
        loss, mse = self.gradient(examples)
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

    def gradient(self, examples: Examples) -> tuple[float, float]:
        """Compute the gradient of a batch; return the two errors that ``learn`` returns."""
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
        activations = self.architecture.states(weights, cells)
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
            inputs = self.architecture.inputs(*cells, check_values=False)
            restored: Array = forward.run(self.architecture, weights, inputs).numpy()
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


def check(config: Config, corpus: Corpus, processes: Processes) -> None:
    """Refuse what these processes cannot train, whatever is in the run's folder."""
    frame_length = config.architecture.map.frame_length
    if frame_length and (config.data.length, config.data.measured_on) != (frame_length, "frames"):
        raise InputError(
            f"this network takes frames of {frame_length} samples; set data.length = {frame_length} and "
            'data.measured_on = "frames"'
        )
    length, least = config.data.length, max(RESOLUTIONS)
    if config.loss.spectral and length < least:
        raise InputError(
            f"loss.spectral takes {least} samples or more at a time, and data.length is {length}; set it to "
            f"{least}, and the samples of a dense map too"
        )
    wanted = config.data.sample_rate_hz
    if wanted != (corpus.sample_rate_hz or 0):
        raise InputError(
            f"data.sample_rate_hz is {wanted}, and the corpus was scanned with {corpus.sample_rate_hz or 0}; "
            "let both be the same"
        )
    if processes.count > config.optimiser.batch_size:
        raise InputError(
            f"{processes.count} processes cannot share batches of {config.optimiser.batch_size}; "
            "start fewer, or set a larger optimiser.batch_size"
        )
    if processes.count > 1 and config.budget.seconds:
        raise InputError(
            "a budget in seconds is for one process alone; set budget.epochs or budget.steps instead"
        )


def begun_or_going_on(
    run: Run,
    config: Config,
    corpus: Corpus,
    data: TrainingData,
    threads: int,
    processes: Processes,
    callbacks: Sequence[Callback],
) -> Record:
    """Return the record of a run, which is made where there is none."""
    record = run.record()
    if record is None:
        return _begun(run, config, corpus, data, threads, processes)
    if record.processes != processes.count:
        raise InputError(
            f"{run.folder} was begun by {record.processes} processes, not {processes.count}, and is only "
            "exact with as many; start that number, or remove the folder to begin again"
        )
    if threads not in (0, record.threads):
        _note(callbacks, f"threads: {record.threads}, with which this run began, and not {threads}")
    if record.code != (code := code_version()):
        _note(callbacks, f"this run began with version {record.code}, and resumes with {code}")
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
    for run in runs_in(out):
        record, log = run.record(), run.log()
        if record is None or record.corpus_sha256 != corpus_sha256 or not run.has_state:
            continue
        theirs = record.config
        is_alike = replace(theirs, budget=budget) == config and not theirs.budget.patience
        is_alike &= threads in (0, record.threads) and processes == record.processes
        if not (is_alike and record.finished and log):
            continue
        steps, steps_per_epoch = log[-1]["step"], record.steps_per_epoch
        if steps < (budget.steps or budget.epochs * steps_per_epoch) and steps % steps_per_epoch == 0:
            found[steps] = run
    return found[max(found)] if found else None


def _begun(
    run: Run, config: Config, corpus: Corpus, data: TrainingData, threads: int, processes: Processes
) -> Record:
    """Note what the run is, after it took over what a shorter one did."""
    shorter = shorter_run(config, corpus.checksum, run.folder.parent, threads, processes.count)
    theirs = shorter.record() if shorter else None
    threads = threads or (theirs.threads if theirs else fastest_threads(processes.on_this_machine))
    with repeatable(threads):
        total_steps = _total_steps(config, data)
    record = Record(
        name=run.name,
        config=config,
        code=code_version(),
        corpus=corpus.folder.resolve().name,
        corpus_sha256=corpus.checksum,
        sample_rate_hz=corpus.signal_rate_hz,
        threads=threads,
        processes=processes.count,
        parameters=config.architecture.parameter_count,
        steps_per_epoch=data.steps_per_epoch,
        total_steps=total_steps,
        files_too_short=data.left_out,
        resumed_from=theirs.name if theirs else None,
    )
    run.create(record, shorter)
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


SECONDS_BETWEEN_STATES = 60.0
"""State is written after an epoch, but not more often than this: a kill costs a minute or an epoch."""

FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""What goes wrong where there is no room."""


class Diverged(InputError):
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
    callbacks: Sequence[Callback] = (),
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
    callbacks
        Called as training proceeds.
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
            raise InputError("it has another configuration, corpus or version of pdrn than the first process")
        run = run_for(config, corpus.checksum, out)
        if run.is_done and not run.best_path.exists():
            raise InputError(
                f"{run.folder} has the log of this run without its networks; choose another folder"
            )
    if processes.shared(run.is_done):
        return run
    with ExitStack() as held:
        record: Record | None = None
        with processes.together():
            if processes.is_first:
                with _clear_errors(run):
                    held.enter_context(run.locked())
            data, dev = TrainingData.read(corpus, config), DevelopmentData.read(corpus, config.data)
            held.enter_context(_clear_errors(run))
            if processes.is_first:
                record = begun_or_going_on(run, config, corpus, data, threads, processes, callbacks)
        record = processes.shared(record)
        assert record is not None
        with repeatable(record.threads):
            with processes.together():
                training = _Training(run, config, record, data, dev, processes)
            training.take_from_first()
            training.go(callbacks, seconds_between_states)
    return run


@dataclass
class _Training:
    run: Run
    config: Config
    record: Record
    data: TrainingData
    dev: DevelopmentData
    processes: Processes = ALONE
    epoch: int = 0
    seconds: float = 0.0
    best: Best = field(default_factory=Best)

    def __post_init__(self) -> None:
        self.learner = Learner(self.config, self.record.total_steps, self.processes)
        self.best_network: Any = None
        if not self.processes.is_first:
            return
        found = self.run.load_state({name: part.shape for name, part in self.learner.tensors().items()})
        if found:
            tensors, facts = found
            self.learner.restore(tensors, facts["step"])
            self.epoch, self.seconds, self.best = facts["epoch"], facts["seconds"], Best(**facts["best"])
        self.run.truncate_log(self.epoch)

    def take_from_first(self) -> None:
        """Let all processes stand where the first does, which read the state."""
        self.learner.take_from_first()
        self.epoch, self.seconds, self.best = self.processes.shared((self.epoch, self.seconds, self.best))

    @property
    def is_over(self) -> bool:
        patience = self.config.budget.patience
        tired = patience > 0 and self.epoch - self.best.epoch >= patience
        return self.learner.step >= self.record.total_steps or tired

    def go(self, callbacks: Sequence[Callback], seconds_between_states: float) -> None:
        for callback in callbacks:
            callback.on_start(self.run, self.record, self.epoch + 1)
        written = time.monotonic()
        while not self.is_over:
            entry = self._learn_epoch(callbacks)
            entry |= self._measure()
            if not self.processes.is_first:
                continue
            self.run.append(entry)
            for callback in callbacks:
                callback.on_epoch(entry)
            if self.is_over or time.monotonic() - written >= seconds_between_states:
                self._write_state()
                written = time.monotonic()
        if self.processes.is_first:
            self.run.finish(self.learner.network(), self._provenance(self.epoch))

    def _learn_epoch(self, callbacks: Sequence[Callback]) -> Entry:
        begin, rows = time.perf_counter(), 0
        losses, errors, left = 0.0, 0.0, self.record.total_steps - self.learner.step
        for examples in islice(self.data.batches(self.epoch), left):
            loss, mse = self.learner.learn(examples)
            if not math.isfinite(loss):
                self._refuse_to_go_on()
            count = len(examples.signal)
            rows, losses, errors = rows + count, losses + count * loss, errors + count * mse
            for callback in callbacks:
                callback.on_step(self.learner.step)
        self.learner.take_from_first()
        if not self.learner.is_finite():
            self._refuse_to_go_on()
        spent = time.perf_counter() - begin
        self.epoch, self.seconds = self.epoch + 1, self.seconds + spent
        return {
            "epoch": self.epoch,
            "step": self.learner.step,
            "train_loss": losses / rows + self.learner.regularisation(),
            "train_mse": errors / rows,
            "learning_rate": learning_rate(
                self.config.optimiser, self.learner.step - 1, self.record.total_steps
            ),
            "samples_per_second": rows * self.config.data.length / spent,
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
            sample_rate_hz=self.record.sample_rate_hz,
            data=self.record.corpus,
            corpus_sha256=self.record.corpus_sha256,
            seed=self.config.seed,
            training={"config": encode(self.config), "epoch": epoch},
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
    except OSError as error:
        cause = system_error(error)
        if cause is None or isinstance(cause, BrokenPipeError):  # nobody reads standard error any more
            raise
        remedy = "make room" if cause.errno in FULL else "see to that"
        raise StorageError(
            f"{run.folder} cannot be written: {system_reason(cause)}; {remedy} and give the same command "
            "again: training goes on where it stopped"
        ) from error
