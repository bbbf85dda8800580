"""Training: a configuration and a corpus in, a run folder out.

``train`` is the entry. ``Trainer`` does steps: the public ``NetworkModule``, ``torch.optim.Adam`` and an EMA.
``_Training`` does epochs: development error, log, checkpoints, early stopping. A run that is killed at any
moment resumes exactly: it ends with the same bits as one that was not.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from itertools import islice
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from pdrn.audio.corpus import Corpus
from pdrn.errors import InputError, StorageError, system_error, system_reason
from pdrn.nets import Network, PrimalDual, SpectralPrimalDual
from pdrn.nets.files import Provenance, encode, load
from pdrn.nets.primal_dual import Arrays, chambolle_pock, glorot, identity
from pdrn.nets.torch import NetworkModule
from pdrn.restoration.registry import file_of
from pdrn.storage import file_sha256
from pdrn.training.config import Config, Optimiser
from pdrn.training.data import Array, Batch, DevelopmentData, TrainingData
from pdrn.training.distributed import broadcast, parallel, process_group, rank, shard, total, world_size
from pdrn.training.losses import RESOLUTIONS, data_losses, is_regularised, regularisation, squared_errors
from pdrn.training.machine import fastest_threads, repeatable
from pdrn.training.runs import Entry, Record, Run, Tensors, code_version, run_for, runs_in

SECONDS_BETWEEN_STATES = 60.0
"""Shortest time between two checkpoints, written after epochs: a kill costs a minute or an epoch."""

STEPS_PER_AVERAGE = 8
"""The EMA is updated after each of the first 8 steps, then after every 8th: updates after every step would
take a tenth of the time."""


class Callback:
    """Base class of callbacks: override the events of interest. An exception in one ends the training."""

    def on_start(self, run: Run, record: Record, first_epoch: int) -> None:
        """Handle the start or resumption of training; epochs are counted from 1."""

    def on_note(self, sentence: str) -> None:
        """Handle a note on an unexpected circumstance."""

    def on_step(self, step: int) -> None:
        """Handle the end of a step, counted from 1."""

    def on_epoch(self, entry: Entry) -> None:
        """Handle the end of an epoch; ``entry`` is its line of the log."""


class Diverged(InputError):
    """The loss of a run became NaN or infinite.

    Parameters
    ----------
    fact : str
        The step, and the network that is left; callers may add a remedy of their own to it.
    """

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact

    def __str__(self) -> str:
        return f"{self.fact}; lower optimiser.learning_rate or set optimiser.clip_norm"


def train(
    config: Config,
    corpus: Corpus,
    out: str | os.PathLike[str],
    *,
    threads: int = 0,
    callbacks: Sequence[Callback] = (),
    seconds_between_states: float = SECONDS_BETWEEN_STATES,
) -> Run:
    """Train a network, or resume its training, and return the run.

    All processes of torchrun call this together. They share every batch and train the same network as a
    single process, up to rounding. The first of them reads and writes the run folder and calls the callbacks.

    Parameters
    ----------
    config, corpus
        The training, and its data.
    out
        The folder of run folders.
    threads
        Number of threads of a new run; 0: that of the shorter run to resume, or the fastest at the moment. A
        run that is resumed keeps its number.
    callbacks
        Called at the events of training.
    seconds_between_states
        Shortest time between two checkpoints, which are written after epochs.
    """
    check(config, corpus)
    run, is_first = run_for(config, corpus.checksum, out), rank() == 0
    with process_group(), ExitStack() as held:
        if broadcast(is_first and _is_done(run)):
            return run
        callbacks = callbacks if is_first else ()
        if is_first:
            with _explain_errors(run):
                held.enter_context(run.locked())
        data, dev = TrainingData.read(corpus, config), DevelopmentData.read(corpus, config.data)
        held.enter_context(_explain_errors(run))
        record = broadcast(_open_run(run, config, corpus, data, threads, callbacks) if is_first else None)
        assert record is not None
        if (record.config, record.corpus_sha256) != (config, corpus.checksum):
            raise InputError(
                f"process {rank()} has another configuration or corpus than process 0; give all the same"
            )
        with repeatable(record.threads):
            _Training(run, config, record, data, dev, callbacks).go(seconds_between_states)
    return run


def check(config: Config, corpus: Corpus) -> None:
    """Raise InputError if network, loss, data and budget of a configuration contradict each other."""
    frame_length = config.architecture.frame_length
    if frame_length and (config.data.length, config.data.measured_on) != (frame_length, "frames"):
        raise InputError(
            f"this network takes frames of {frame_length} samples; set data.length = {frame_length} and "
            'data.measured_on = "frames"'
        )
    plan, rate = config.architecture, corpus.signal_rate_hz
    if isinstance(plan, SpectralPrimalDual) and plan.sample_rate_hz != rate:
        raise InputError(
            f"this network is for {plan.sample_rate_hz} Hz and development error is measured at {rate} Hz; "
            f"set architecture.sample_rate_hz = {rate}"
        )
    if config.data.training_rates_hz and not isinstance(plan, SpectralPrimalDual):
        raise InputError("data.training_rates_hz are for a SpectralPrimalDual; leave them out")
    length, least = config.data.length, max(RESOLUTIONS)
    if config.loss.spectral and length < least:
        raise InputError(
            f"loss.spectral needs data.length >= {least}, got {length}; set it to {least}, and the "
            "samples of a dense map, too"
        )
    wanted = config.data.sample_rate_hz
    if wanted != (corpus.sample_rate_hz or 0):
        raise InputError(
            f"data.sample_rate_hz is {wanted}, but the corpus was scanned with {corpus.sample_rate_hz or 0}; "
            "use the same rate"
        )
    if world_size() > 1 and config.budget.seconds:
        raise InputError(
            "a budget in seconds works with one process only; set budget.epochs or budget.steps instead"
        )


def _is_done(run: Run) -> bool:
    if run.is_done and not run.best_path.exists():
        raise InputError(f"{run.folder} has the log of this run, but no networks; choose another folder")
    return run.is_done


def _open_run(
    run: Run,
    config: Config,
    corpus: Corpus,
    data: TrainingData,
    threads: int,
    callbacks: Sequence[Callback],
) -> Record:
    """Return the record of a run, creating it for a new one."""
    record = run.record()
    if record is None:
        return _create_run(run, config, corpus, data, threads)
    if record.processes != world_size():
        raise InputError(
            f"{run.folder} was begun by {record.processes} processes, not {world_size()}; start "
            f"{record.processes}, or remove the folder to begin again"
        )
    notes = []
    if threads not in (0, record.threads):
        notes.append(f"this run began with {record.threads} threads and keeps them, instead of {threads}")
    if record.code != (code := code_version()):
        notes.append(f"this run began with version {record.code} and resumes with {code}")
    for callback in callbacks:
        for note in notes:
            callback.on_note(note)
    return record


def _create_run(run: Run, config: Config, corpus: Corpus, data: TrainingData, threads: int) -> Record:
    """Create the run folder, with the checkpoint of a shorter run if one exists."""
    shorter = shorter_run(config, corpus.checksum, run.folder.parent, threads, world_size())
    theirs = shorter.record() if shorter else None
    processes_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = threads or (theirs.threads if theirs else fastest_threads(processes_here))
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
        processes=world_size(),
        parameters=config.architecture.parameter_count,
        steps_per_epoch=data.steps_per_epoch,
        total_steps=total_steps,
        files_too_short=data.left_out,
        resumed_from=theirs.name if theirs else None,
    )
    run.create(record, shorter)
    return record


def shorter_run(
    config: Config, corpus_sha256: str, out: str | os.PathLike[str], threads: int = 0, processes: int = 1
) -> Run | None:
    """Return the longest finished run whose checkpoint a new run can resume, or None.

    Its configuration differs by a smaller budget only; it used this number of processes, and of threads (0:
    any). With a constant learning rate and no early stopping, its epochs are the first ones of the new run.
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


def _total_steps(config: Config, data: TrainingData) -> int:
    """Return the budget in steps; a budget in seconds is divided by the median time of trial steps."""
    budget = config.budget
    if not budget.seconds:
        return budget.steps or budget.epochs * data.steps_per_epoch
    trial, times = Trainer(config, total_steps=1_000_000), []
    for batch in islice(data.batches(0), 50):
        begin = time.perf_counter()
        trial.step(batch)
        times.append(time.perf_counter() - begin)
        if len(times) > 3 and sum(times) > budget.seconds / 50:
            break
    return max(1, round(budget.seconds / float(np.median(times))))


class _Training:
    """A run in progress: its trainer, the epoch, and the best network so far."""

    def __init__(
        self,
        run: Run,
        config: Config,
        record: Record,
        data: TrainingData,
        dev: DevelopmentData,
        callbacks: Sequence[Callback],
    ) -> None:
        self.run, self.config, self.record, self.data, self.dev = run, config, record, data, dev
        self.callbacks, self.is_first = callbacks, rank() == 0
        self.trainer = Trainer(config, record.total_steps)
        self.epoch, self.seconds = 0, 0.0
        self.best_epoch, self.best_ratio = 0, math.inf
        self.best_network: Network | None = None
        """The best network, until it is written."""
        shapes = {name: part.shape for name, part in self.trainer.state().items()}
        state = broadcast(run.load_state(shapes) if self.is_first else None)
        if state:
            tensors, facts = state
            self.trainer.load_state(tensors, facts["step"])
            self.epoch, self.seconds = facts["epoch"], facts["seconds"]
            self.best_epoch, self.best_ratio = facts["best"]["epoch"], facts["best"]["ratio"]
        if self.is_first:
            run.truncate_log(self.epoch)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent, or early stopping ends the training."""
        patience = self.config.budget.patience
        stops_early = patience > 0 and self.epoch - self.best_epoch >= patience
        return self.trainer.steps >= self.record.total_steps or stops_early

    def go(self, seconds_between_states: float) -> None:
        """Train to the end."""
        for callback in self.callbacks:
            callback.on_start(self.run, self.record, self.epoch + 1)
        written = time.monotonic()
        while not self.is_over:
            entry = self._train_epoch() | self._measure()
            if not self.is_first:
                continue
            self.run.append(entry)
            for callback in self.callbacks:
                callback.on_epoch(entry)
            if self.is_over or time.monotonic() - written >= seconds_between_states:
                self._write_state()
                written = time.monotonic()
        if self.is_first:
            self.run.finish(self.trainer.averaged.network(), self._provenance(self.epoch))

    def _train_epoch(self) -> Entry:
        trainer, begin = self.trainer, time.perf_counter()
        rows, losses, errors = 0, 0.0, 0.0
        for batch in islice(self.data.batches(self.epoch), self.record.total_steps - trainer.steps):
            loss, mse = trainer.step(batch)
            if not math.isfinite(loss):
                self._raise_diverged()
            count = len(batch.signal)
            rows, losses, errors = rows + count, losses + count * loss, errors + count * mse
            for callback in self.callbacks:
                callback.on_step(trainer.steps)
        if not all(bool(torch.isfinite(part).all()) for part in trainer.module.parameters()):
            self._raise_diverged()
        spent = time.perf_counter() - begin
        self.epoch, self.seconds = self.epoch + 1, self.seconds + spent
        return {
            "epoch": self.epoch,
            "step": trainer.steps,
            "train_loss": losses / rows + regularisation(self.config.loss, trainer.module),
            "train_mse": errors / rows,
            "learning_rate": learning_rate(self.config.optimiser, trainer.steps - 1, self.record.total_steps),
            "samples_per_second": rows * self.config.data.length / spent,
            "training_seconds": self.seconds,
        }

    def _measure(self) -> Entry:
        """Measure the development error, and keep the network if it is the best so far."""
        self.trainer.update_average()
        measured = broadcast(self.dev.measured(self.trainer.restore) if self.is_first else [])
        ratio = float(np.mean([at.ratio for at in measured]))
        if ratio < self.best_ratio:
            self.best_epoch, self.best_ratio = self.epoch, ratio
            self.best_network = self.trainer.averaged.network()
        return {
            "dev_mse": float(np.mean([at.mse for at in measured])),
            "dev_snr": float(np.mean([at.snr for at in measured])),
            "dev_ratio": ratio,
            "best_epoch": self.best_epoch,
        } | ({"dev_by_bits": [asdict(at) for at in measured]} if len(measured) > 1 else {})

    def _write_state(self) -> None:
        # The best network goes first: if a kill leaves it newer than the checkpoint, resuming finds it again.
        self._write_best()
        facts = {
            "step": self.trainer.steps,
            "epoch": self.epoch,
            "seconds": self.seconds,
            "best": {"epoch": self.best_epoch, "ratio": self.best_ratio},
        }
        self.run.save_state(self.trainer.state(), facts)

    def _write_best(self) -> None:
        if self.is_first and self.best_network is not None:
            self.run.save_network("best", self.best_network, self._provenance(self.best_epoch))
            self.best_network = None

    def _provenance(self, epoch: int) -> Provenance:
        any_rate = isinstance(self.config.architecture, SpectralPrimalDual)
        return Provenance(
            unit=self.config.data.unit,
            sample_rate_hz=None if any_rate else self.record.sample_rate_hz,
            data=self.record.corpus,
            corpus_sha256=self.record.corpus_sha256,
            seed=self.config.seed,
            training={"config": encode(self.config), "epoch": epoch},
        )

    def _raise_diverged(self) -> None:
        self._write_best()
        kept = f" (the best network, of epoch {self.best_epoch}, is in {self.run.best_path})"
        raise Diverged(
            f"the loss is not finite any more, in epoch {self.epoch + 1}, step {self.trainer.steps}"
            + (kept if self.run.best_path.exists() else "")
        )


class Trainer:
    """A module, its optimiser, and the exponential moving average (EMA) of its weights.

    Parameters
    ----------
    config
        Network, start, loss and optimiser.
    total_steps
        Length of the learning rate's schedule.
    """

    def __init__(self, config: Config, total_steps: int) -> None:
        self.config, self.total_steps, self.steps, self.averaged_steps = config, total_steps, 0, 0
        self.module = NetworkModule(
            config.architecture, initial_weights(config), last_layers=config.loss.last_layers
        )
        self._forward = parallel(self.module)
        self._adam = _adam(config, self.module)
        self._average: AveragedModel | None = None
        if config.optimiser.averaging:
            self._average = AveragedModel(self.module, multi_avg_fn=self._move_average)
            self._average.update_parameters(self.module)  # the first call copies the weights

    @property
    def averaged(self) -> NetworkModule:
        """The module with averaged weights, or the trained one if there is no averaging."""
        return cast(NetworkModule, self._average.module) if self._average else self.module

    def step(self, batch: Batch) -> tuple[float, float]:
        """Do one step of Adam; return the loss without regularisation, and the MSE in full scale."""
        optimiser = self.config.optimiser
        loss, mse = self.gradient(batch)
        if optimiser.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), optimiser.clip_norm)
        for group in self._adam.param_groups:
            group["lr"] = learning_rate(optimiser, self.steps, self.total_steps)
        self._adam.step()
        self.steps += 1
        if self.steps <= STEPS_PER_AVERAGE or self.steps - self.averaged_steps >= STEPS_PER_AVERAGE:
            self.update_average()
        return loss, mse

    def gradient(self, batch: Batch) -> tuple[float, float]:
        """Compute the gradient of a batch, shared by the processes; return its loss and MSE."""
        count = len(batch.signal)
        mine = shard(count)
        weight = 1.0
        if mine.start == mine.stop:  # fewer rows than processes: compute one row, with weight 0
            mine, weight = slice(0, 1), 0.0
        # Copies in torch's own memory: products round differently for another alignment.
        signal, lo, hi = (torch.tensor(part[mine]) for part in (batch.signal, batch.lo, batch.hi))
        low_precision = self.config.optimiser.precision == "bfloat16"
        with torch.autocast("cpu", torch.bfloat16, enabled=low_precision):
            estimate = self._forward(lo, hi, batch.sample_rate_hz)
        losses = data_losses(self.config.loss, estimate, signal, lo, hi)
        self._adam.zero_grad()
        # Gradients are averaged over processes: times their number, that is the gradient of the batch.
        (losses.sum() * (weight * world_size() / count)).backward()  # type: ignore[no-untyped-call]
        for part in self.module.parameters():
            if part.grad is None:  # without influence, as theta of a single layer, but regularised
                part.grad = torch.zeros_like(part)
        errors = squared_errors(estimate.detach(), signal).double() * torch.tensor(batch.scale[mine]).square()
        sums = torch.stack([losses.detach().double().sum(), errors.sum()]) * (weight / count)
        loss, mse = total(sums).tolist()
        return loss, mse

    @torch.no_grad()
    def restore(self, lo: Array, hi: Array) -> Array:
        """Restore signals with the averaged module."""
        restored: Array = self.averaged(torch.tensor(lo), torch.tensor(hi)).numpy()
        return restored

    def update_average(self) -> None:
        """Update the EMA for all steps since the last update; call this before using or saving it."""
        if self._average and self.averaged_steps < self.steps:
            self._average.update_parameters(self.module)
        self.averaged_steps = self.steps

    def _move_average(self, average: Sequence[Tensor], weights: Sequence[Tensor], _: object) -> None:
        # A smaller decay over the first steps, so that the initial weights are soon forgotten.
        decay = min(self.config.optimiser.averaging, (1 + self.steps) / (10 + self.steps))
        for mean, part in zip(average, weights, strict=True):
            mean.lerp_(part, 1 - decay ** (self.steps - self.averaged_steps))

    def state(self) -> Tensors:
        """Return the tensors of a checkpoint: weights, moments of Adam and EMA."""
        return {name: part.detach().numpy() for name, part in self._tensors().items()}

    @torch.no_grad()
    def load_state(self, tensors: Tensors, steps: int) -> None:
        """Load the tensors of a checkpoint, taken after this many steps and an update of the EMA."""
        self.steps = self.averaged_steps = steps
        for name, part in self._tensors().items():
            part.copy_(torch.tensor(tensors[name]))
        for moments in self._adam.state.values():
            moments["step"].fill_(steps)

    def _tensors(self) -> dict[str, Tensor]:
        parts = dict(self.module.named_parameters())
        tensors: dict[str, Tensor] = {f"weights/{name}": part for name, part in parts.items()}
        for kind, moment in (("means", "exp_avg"), ("squares", "exp_avg_sq")):
            tensors |= {f"{kind}/{name}": self._adam.state[part][moment] for name, part in parts.items()}
        if self._average:
            tensors |= {f"average/{name}": part for name, part in self.averaged.named_parameters()}
        return tensors


def _adam(config: Config, module: NetworkModule) -> torch.optim.Adam:
    """Return Adam with the regularisation of (4.2), its moments at zero."""
    optimiser, loss = config.optimiser, config.loss
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for part in module.parameters():
        groups[is_regularised(loss, part)].append(part)
    adam = torch.optim.Adam(
        [
            # Adam adds weight_decay times w to the gradient; that of lambda w^2 is 2 lambda w.
            {"params": parts, "weight_decay": 2 * loss.regularisation if regularised else 0.0}
            for regularised, parts in groups.items()
            if parts
        ],
        lr=optimiser.learning_rate,
        betas=(optimiser.beta1, optimiser.beta2),
        eps=optimiser.epsilon,
        fused=True,
    )
    for part in module.parameters():
        moments = {name: torch.zeros_like(part) for name in ("exp_avg", "exp_avg_sq")}
        adam.state[part] = {"step": torch.tensor(0.0)} | moments
    return adam


def learning_rate(optimiser: Optimiser, step: int, total_steps: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    rate = optimiser.learning_rate
    if optimiser.schedule == "cosine":
        share = optimiser.final_share
        rate *= share + (1 - share) * (1 + math.cos(math.pi * step / total_steps)) / 2
    return rate * min(1.0, (step + 1) / (optimiser.warmup_steps + 1))


def initial_weights(config: Config) -> Arrays:
    """Return the initial weights of a configuration."""
    architecture, generator = config.architecture, np.random.default_rng(config.seed)
    start = config.start
    if start.kind == "own":
        return architecture.start(generator)
    if start.kind == "network":
        return _weights_of_file(config)
    if not isinstance(architecture, PrimalDual):
        raise InputError(
            f'start.kind {start.kind!r} is for a PrimalDual, not a {type(architecture).__name__}; set "own"'
        )
    if start.kind == "chambolle pock":
        return chambolle_pock(
            architecture,
            sigma=start.sigma,
            tau=start.tau or None,
            memory_gain=start.memory_gain,
            generator=generator,
        )
    return {"glorot": glorot, "identity": identity}[start.kind](architecture, generator)


def _weights_of_file(config: Config) -> Arrays:
    name, file = config.start.network, file_of(config.start.network)
    if config.start.network_sha256 not in ("", file_sha256(file)):
        raise InputError(f"{name} has changed since this run was configured; restore the file")
    network, provenance = load(file)
    if network.architecture != config.architecture:
        raise InputError(f"{name} has another architecture; remove [architecture] to use that of the network")
    if provenance.unit != config.data.unit:
        raise InputError(f'{name} has another unit; set data.unit = "{provenance.unit}"')
    return {part: array.astype(np.float64) for part, array in network.weights.items()}


_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextmanager
def _explain_errors(run: Run) -> Iterator[None]:
    """Turn an OSError into a StorageError that says how to resume."""
    try:
        yield
    except OSError as error:
        cause = system_error(error)
        if cause is None or isinstance(cause, BrokenPipeError):  # the reader of standard error is gone
            raise
        remedy = "make room" if cause.errno in _NO_ROOM else "correct that"
        raise StorageError(
            f"{run.folder} cannot be written: {system_reason(cause)}; {remedy} and repeat the command: "
            "training resumes from its checkpoint"
        ) from error
