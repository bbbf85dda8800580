"""Reproduce: the grid of section 4, trained; lambda chosen on the development set; Table 2; an example.

Every network has a run folder of its own. What is there is not done again, so that a study can be stopped,
continued, and widened.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdrn.audio.corpus import SPLITS, Corpus
from pdrn.audio.quantizers import MidRise
from pdrn.errors import InputError
from pdrn.reproduction import paper
from pdrn.reproduction.evaluate import (
    Method,
    check_metrics,
    evaluate,
    method_named,
    network_method,
    whole_frames,
)
from pdrn.reproduction.paper import KINDS, Kind
from pdrn.reproduction.tables import Setting, Table, best, chosen_runs, config_at, tables
from pdrn.training.config import RECIPES, Budget, Config
from pdrn.training.data import without_a_frame
from pdrn.training.loop import Watcher
from pdrn.training.runs import Run, run_for, runs_in

LAMBDAS = (1e-8, 1e-7, 1e-6)
"""Where lambda is looked for, at the paper's bit depth."""

EXAMPLE_SECONDS = 2.5

OVERLAPPED = "CP overlapped"
"""A row that the paper does not have: nothing is learned, but frames overlap. Comparisons need it."""


def lambdas_at(bits: int) -> tuple[float, ...]:
    """Return where lambda is looked for at a bit depth: what it is weighed against grows with the cells."""
    return tuple(value * 4.0 ** (paper.BITS - bits) for value in LAMBDAS)


@dataclass(frozen=True)
class Study:
    """A reproduction of the paper's grid."""

    recipe: str = "paper"
    depths: tuple[int, ...] = paper.DEPTHS
    epochs: int = 0
    """How long; 0 leaves it to the recipe."""
    bits: int = paper.BITS
    frame_length: int = paper.FRAME_LENGTH
    lambdas: tuple[float, ...] = LAMBDAS
    """Those to try for networks with regularisation; none leaves these out. See ``lambdas_at``."""
    lambda_depth: int = 0
    """At how many layers lambda is chosen; 0 is two, or the least that there are."""
    sample_rate_hz: int = 0
    """What the corpus is resampled to; 0 leaves it as it is."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise InputError(f"no recipe is called {self.recipe!r}; there are {', '.join(RECIPES)}")
        if not self.depths or min(self.depths) < 1:
            raise InputError("depths are whole numbers of 1 or more, for example 1,2,5")
        if len({*self.depths}) < len(self.depths) or len({*self.lambdas}) < len(self.lambdas):
            raise InputError("depths and lambdas are different numbers; name each once")
        if self.lambda_depth not in (0, *self.depths):
            raise InputError(
                f"lambda cannot be chosen at {self.lambda_depth} layers; choose one of the depths"
            )
        if self.lambda_depth and not self.lambdas:
            raise InputError("without lambdas none is chosen; leave the depth at which to choose it out")
        if any(value <= 0 for value in self.lambdas):
            raise InputError(
                "lambdas are numbers above 0; networks without regularisation are trained anyway"
            )

    @property
    def depth_for_lambda(self) -> int:
        """At how many layers lambda is chosen, for each kind of network."""
        return self.lambda_depth or (2 if 2 in self.depths else min(self.depths))

    def config(self, kind: Kind, depth: int, regularisation: float = 0.0) -> Config:
        """Return the configuration of one network of the grid."""
        config = config_at(kind, depth, regularisation, self.recipe, self.bits, self.frame_length)
        budget = Budget(epochs=self.epochs) if self.epochs else config.budget
        data = dataclasses.replace(config.data, sample_rate_hz=self.sample_rate_hz)
        return dataclasses.replace(config, seed=self.seed, budget=budget, data=data)

    def check(self, corpus: Corpus, metrics: Collection[str]) -> None:
        """Refuse, before anything is trained, a corpus or measures with which the tables cannot be made."""
        check_metrics(metrics, corpus.signal_rate_hz)
        for split in SPLITS:
            if not any(corpus.length(entry) >= self.frame_length for entry in corpus.split(split)):
                raise without_a_frame(corpus, split, self.frame_length)
        whole_frames(corpus, "test", self.frame_length)

    def first_part(self) -> list[Config]:
        """Return what can be trained at once: all without regularisation, and every lambda at one depth."""
        plain = [self.config(kind, depth) for depth in self.depths for kind in KINDS]
        candidates = [
            self.config(kind, self.depth_for_lambda, value) for value in self.lambdas for kind in KINDS
        ]
        return plain + candidates

    def second_part(self, lambdas: dict[Kind, float]) -> list[Config]:
        """Return what is left when lambda is chosen: the other depths with regularisation."""
        depths = [depth for depth in self.depths if depth != self.depth_for_lambda]
        return [self.config(kind, depth, value) for depth in depths for kind, value in lambdas.items()]

    def lambda_errors(self, corpus: Corpus, out: str | os.PathLike[str]) -> dict[Kind, dict[float, float]]:
        """Return the development errors by which lambda is chosen, of the candidates that are done."""
        found: dict[Kind, dict[float, float]] = {kind: {} for kind in KINDS}
        for kind in KINDS:
            for value in self.lambdas:
                run = run_for(self.config(kind, self.depth_for_lambda, value), corpus.checksum, out)
                if run.is_done:
                    found[kind][value] = min(float(entry["dev_mse"]) for entry in run.complete_log())
        return found

    def chosen_lambdas(
        self, corpus: Corpus, out: str | os.PathLike[str], all_done: bool = True
    ) -> dict[Kind, float]:
        """Return the lambda with the smallest development error.

        For kinds whose candidates are all done; or else, where some of them cannot be trained, for kinds
        that have one.
        """
        least = len(self.lambdas) if all_done else 1
        errors = self.lambda_errors(corpus, out)
        return {kind: min(of, key=of.__getitem__) for kind, of in errors.items() if len(of) >= max(least, 1)}

    def remarks(self, chosen: Mapping[Kind, float]) -> list[str]:
        """Return what there is to say of lambdas that were chosen."""
        said, least, largest = [], min(self.lambdas, default=0.0), max(self.lambdas, default=0.0)
        for kind in KINDS if self.lambdas else ():
            if kind not in chosen:
                said.append(f"without a lambda, {kind}s with regularisation are left out at other depths")
            elif least < chosen[kind] == largest:
                said.append(f"lambda={largest:g}, chosen for {kind}s, is the largest tried; try larger ones")
            elif least == chosen[kind] < largest:
                said.append(f"lambda={least:g}, chosen for {kind}s, is the smallest tried; try smaller ones")
        return said

    def table(self, corpus: Corpus, out: str | os.PathLike[str]) -> tuple[Setting, Table]:
        """Return Table 1 of the depths and lambdas of this study, as far as networks are here."""
        name = corpus.folder.resolve().name
        setting = Setting(
            self.recipe,
            self.bits,
            self.frame_length,
            name,
            corpus.checksum,
            corpus.signal_rate_hz,
            self.sample_rate_hz,
            self.seed,
        )
        asked = (run for run in runs_in(out) if run.is_done and self._asks_for(run.config()))
        return setting, tables(asked).get(setting, {})

    def _asks_for(self, config: Config) -> bool:
        return config.architecture.depth in self.depths and config.loss.regularisation in (0, *self.lambdas)


@dataclass(frozen=True)
class Trained:
    """What became of a network: a run or an error, and what there was to say meanwhile."""

    config: Config
    run: Run | None = None
    error: str = ""
    notes: tuple[str, ...] = ()


def trained(
    config: Config,
    corpus: Corpus,
    out: str | os.PathLike[str],
    threads: int = 0,
    watcher: Watcher | None = None,
) -> Trained:
    """Train a network in this process, and return what became of it; without a watcher, notes are kept."""
    from pdrn.training.loop import Diverged, train

    keeper = _Keeper()
    run, error = None, ""
    try:
        run = train(config, corpus, out, threads=threads, watcher=watcher or keeper)
    except Diverged as reason:
        error = f"{reason.fact}; leave this depth or lambda out, or take the modern recipe"
    except (ValueError, OSError) as reason:
        error = str(reason)
    return Trained(config, run, error, tuple(keeper.notes))


class _Keeper(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def multiplications(config: Config, corpus: Corpus) -> float:
    """Count the multiplications of a training run over frames: a gradient costs twice a forward pass."""
    length = config.data.length
    train, dev = (
        sum(corpus.length(entry) // length for entry in corpus.split(name)) for name in ("train", "dev")
    )
    return config.budget.epochs * float(config.architecture.products((3 * train + dev, length)))


def table_2(setting: Setting, table: Table, corpus: Corpus, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Measure Table 2 on the test set: nothing done, the best networks, Chambolle-Pock, and it run well."""
    methods: dict[str, Method] = {"QU": method_named("qu")}
    methods |= _best_networks(table)
    for iterations in (10, 25, 50):
        methods[f"CP {iterations}"] = method_named(f"cp:{iterations}", setting.frame_length)
    rate = corpus.signal_rate_hz
    methods[OVERLAPPED] = method_named("overlapped", sample_rate_hz=rate)
    rows = evaluate(corpus, "test", setting.bits, methods, setting.frame_length, metrics)
    return {"chosen": chosen_runs(table), "rows": [dataclasses.asdict(row) for row in rows]}


def example(setting: Setting, table: Table, corpus: Corpus) -> dict[str, np.ndarray[Any, Any]]:
    """Return the beginning of a test file: the signal, its cells, and what the methods make of it."""
    methods = {"CP 25": method_named("cp:25", setting.frame_length)} | _best_networks(table)
    longest = max(corpus.split("test"), key=corpus.length)
    rate = corpus.signal_rate_hz
    signal = corpus.signal(longest)[: round(EXAMPLE_SECONDS * rate)]
    quantizer = MidRise(setting.bits, full_scale=True)
    cells = quantizer.cells(quantizer.encode(signal))
    arrays = {name: method([cells])[0] for name, method in methods.items()}
    found = arrays | {"signal": signal, "lower": cells.lo, "upper": cells.hi, "rate": np.array([rate])}
    return {name: np.ascontiguousarray(part, np.float32) for name, part in found.items()}


def _best_networks(table: Table) -> dict[str, Method]:
    found = {kind: best(table, kind) for kind in KINDS}
    return {
        kind: network_method(result.run.best(), result.config.data.unit)
        for kind, result in found.items()
        if result
    }
