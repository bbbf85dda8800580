"""The grid of section 4: which networks are trained, and how lambda is chosen.

Every network has its own run folder, and a run that is done is not repeated: a grid can be interrupted,
resumed and widened.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pdrn.audio.corpus import SPLITS, Corpus
from pdrn.errors import InputError, PdrnError
from pdrn.reproduction.evaluate import FRAME_LENGTH, check_metrics, whole_frames
from pdrn.reproduction.tables import (
    BITS,
    DEPTHS,
    KINDS,
    Experiment,
    Kind,
    Table1,
    by_experiment,
    grid_config,
    load_results,
    table_1,
    variant_of,
)
from pdrn.training.config import RECIPES, Budget, Config
from pdrn.training.data import without_a_frame
from pdrn.training.loop import Callback, Diverged, shorter_run, train
from pdrn.training.runs import Run, run_for, runs_in

LAMBDAS = (1e-8, 1e-7, 1e-6)
"""The candidates for lambda at 5 bits."""


def default_lambdas(bits: int) -> tuple[float, ...]:
    """Return the candidates for lambda at a bit depth: proportional to the squared width of the cells."""
    return tuple(value * 4.0 ** (BITS - bits) for value in LAMBDAS)


@dataclass(frozen=True)
class Grid:
    """PDNs and PDRNs of several depths, without and with regularisation."""

    recipe: str = "paper"
    depths: tuple[int, ...] = DEPTHS
    epochs: int = 0
    """0: as in the recipe."""
    bits: int = BITS
    frame_length: int = FRAME_LENGTH
    lambdas: tuple[float, ...] = LAMBDAS
    """Candidates for lambda; (): train without regularisation only."""
    lambda_depth: int = 0
    """The depth at which lambda is chosen (0: two, or else the smallest)."""
    sample_rate_hz: int = 0
    """Resample the corpus to this rate (0: keep)."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise InputError(f"no recipe is called {self.recipe!r}; there are {', '.join(RECIPES)}")
        if not self.depths or min(self.depths) < 1:
            raise InputError("depths are whole numbers of 1 or more, for example 1,2,5")
        if len({*self.depths}) < len(self.depths) or len({*self.lambdas}) < len(self.lambdas):
            raise InputError("a depth or lambda is given twice; name each once")
        if self.lambda_depth not in (0, *self.depths):
            raise InputError(f"lambda_depth {self.lambda_depth} is not a depth of the grid; choose one")
        if self.lambda_depth and not self.lambdas:
            raise InputError("the depth at which lambda is chosen needs lambdas; leave it out")
        if any(value <= 0 for value in self.lambdas):
            raise InputError("lambdas must be above 0; networks without regularisation are always trained")

    @property
    def depth_for_lambda(self) -> int:
        """The depth at which lambda is chosen, for each kind of network."""
        return self.lambda_depth or (2 if 2 in self.depths else min(self.depths))

    def config(self, kind: Kind, depth: int, regularisation: float = 0.0) -> Config:
        """Return the configuration of one network."""
        config = grid_config(kind, depth, regularisation, self.recipe, self.bits, self.frame_length)
        budget = Budget(epochs=self.epochs) if self.epochs else config.budget
        data = dataclasses.replace(config.data, sample_rate_hz=self.sample_rate_hz)
        return dataclasses.replace(config, seed=self.seed, budget=budget, data=data)

    def configs_before_lambda(self) -> list[Config]:
        """Return the networks without regularisation, and every candidate for lambda at one depth."""
        plain = [self.config(kind, depth) for depth in self.depths for kind in KINDS]
        candidates = [
            self.config(kind, self.depth_for_lambda, value) for value in self.lambdas for kind in KINDS
        ]
        return plain + candidates

    def configs_after_lambda(self, lambdas: Mapping[Kind, float]) -> list[Config]:
        """Return the networks of the other depths, with the lambda that was chosen for their kind."""
        depths = [depth for depth in self.depths if depth != self.depth_for_lambda]
        return [self.config(kind, depth, value) for depth in depths for kind, value in lambdas.items()]

    def dev_errors(self, corpus: Corpus, out: str | os.PathLike[str]) -> dict[Kind, dict[float, float]]:
        """Return the smallest development error for each lambda, of the candidates that are done."""
        found: dict[Kind, dict[float, float]] = {kind: {} for kind in KINDS}
        for kind in KINDS:
            for value in self.lambdas:
                run = run_for(self.config(kind, self.depth_for_lambda, value), corpus.checksum, out)
                if run.is_done:
                    found[kind][value] = run.smallest("dev_mse")
        return found

    def choose_lambdas(
        self, corpus: Corpus, out: str | os.PathLike[str], *, partial: bool = False
    ) -> dict[Kind, float]:
        """Return the lambda with the smallest development error, for kinds whose candidates are all done.

        ``partial`` accepts kinds with at least one candidate: some may have failed to train.
        """
        errors = self.dev_errors(corpus, out)
        needed = 1 if partial else max(1, len(self.lambdas))
        return {kind: min(of, key=of.__getitem__) for kind, of in errors.items() if len(of) >= needed}

    def lambda_warnings(self, chosen: Mapping[Kind, float]) -> list[str]:
        """Return warnings about lambdas at an end of the candidates, or none at all."""
        warnings, ends = [], dict[float, str]()
        if len(self.lambdas) > 1:
            ends = {max(self.lambdas): "largest", min(self.lambdas): "smallest"}
        for kind in KINDS if self.lambdas else ():
            if kind not in chosen:
                warnings.append(f"no lambda for {kind}s: other depths are not trained with regularisation")
            elif end := ends.get(chosen[kind]):
                warnings.append(
                    f"lambda={chosen[kind]:g}, chosen for {kind}s, is the {end} tried; try others"
                )
        return warnings

    def check(self, corpus: Corpus, metrics: Collection[str]) -> None:
        """Refuse, before training, a corpus or metrics with which the tables cannot be made."""
        check_metrics(metrics, corpus.signal_rate_hz)
        for split in SPLITS:
            if not any(corpus.length(entry) >= self.frame_length for entry in corpus.split(split)):
                raise without_a_frame(corpus, split, self.frame_length)
        whole_frames(corpus, "test", self.frame_length)

    def plan(self, corpus: Corpus, out: str | os.PathLike[str], threads: int) -> list[PlannedRun]:
        """Return all runs of the grid, with the work that is left.

        Parameters
        ----------
        threads
            A run resumes a shorter one with this number of threads (0: any).
        """
        chosen, planned = self.choose_lambdas(corpus, out), []
        for config in [*self.configs_before_lambda(), *self.configs_after_lambda(chosen)]:
            log = run_for(config, corpus.checksum, out).log()
            if not log and (shorter := shorter_run(config, corpus.checksum, out, threads)):
                log = shorter.log()
            planned.append(_planned(config, network_name(config), len(log), corpus))
        # The cost does not depend on which lambda will be chosen.
        open_kinds = {kind: self.lambdas[0] for kind in KINDS if self.lambdas and kind not in chosen}
        for config in self.configs_after_lambda(open_kinds):
            name = network_name(config).partition("lambda")[0] + "lambda as chosen"
            planned.append(_planned(config, name, 0, corpus))
        return planned

    def table(self, corpus: Corpus, out: str | os.PathLike[str]) -> tuple[Experiment, Table1]:
        """Return Table 1 of this grid's depths and lambdas, from the runs that are done."""
        name, data = corpus.folder.resolve().name, self.config("PDN", self.depths[0]).data
        experiment = Experiment(self.recipe, data, self.seed, corpus.checksum, name, corpus.signal_rate_hz)
        results = by_experiment(load_results(runs_in(out))).get(experiment, [])
        found = [each for each in results if each.config.loss.regularisation in (0, *self.lambdas)]
        table = table_1(found)
        return experiment, {variant: table[variant] for variant in table if variant.depth in self.depths}


@dataclass(frozen=True)
class PlannedRun:
    """The work that is left of a run of the grid."""

    name: str
    epochs: int
    epochs_done: int
    multiplications: float
    """Of the epochs that are left."""


def _planned(config: Config, name: str, epochs_done: int, corpus: Corpus) -> PlannedRun:
    """Count the multiplications that are left: a gradient costs twice a forward pass."""
    length, epochs = config.data.length, config.budget.epochs
    train, dev = (
        sum(corpus.length(entry) // length for entry in corpus.split(name)) for name in ("train", "dev")
    )
    per_epoch = float(config.architecture.products((3 * train + dev, length)))
    return PlannedRun(name, epochs, epochs_done, epochs * per_epoch * (1 - epochs_done / epochs))


def network_name(config: Config) -> str:
    """Return the name of a network of the grid, such as ``PDN L=2 lambda=1e-08``."""
    variant = variant_of(config)
    assert variant is not None
    return f"{variant.kind} L={variant.depth} lambda={config.loss.regularisation:g}"


@dataclass(frozen=True)
class Trained:
    """A run, or the error that prevented it, and the notes of its training."""

    config: Config
    run: Run | None = None
    error: str = ""
    notes: tuple[str, ...] = ()


def train_network(
    config: Config,
    corpus: Corpus,
    out: str | os.PathLike[str],
    threads: int = 0,
    callback: Callback | None = None,
) -> Trained:
    """Train a network of the grid; an error is returned, so that the others are still trained.

    Without a callback, its notes are returned: it may run in another process.
    """
    notes = _Notes()
    run, error = None, ""
    try:
        run = train(config, corpus, out, threads=threads, callbacks=[callback or notes])
    except Diverged as reason:
        error = f"{reason.fact}; leave this depth or lambda out, or take the modern recipe"
    except PdrnError as reason:
        error = str(reason)
    return Trained(config, run, error, tuple(notes.sentences))


class _Notes(Callback):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def on_note(self, sentence: str) -> None:
        self.sentences.append(sentence)
