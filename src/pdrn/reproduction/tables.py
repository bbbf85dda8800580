"""Tables 1 and 2 of the paper: the printed figures, and ours from run folders.

Table 1 comes from the logs of the runs in a folder. Table 2 is measured on the test set, with the networks
that are best on the development set. It is kept beside the runs, and so is an example for the figures.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pdrn.audio.corpus import Corpus
from pdrn.audio.quantizers import MidRise
from pdrn.nets import PrimalDual
from pdrn.reproduction.evaluate import FRAME_LENGTH, Method, evaluate, method_named, network_method
from pdrn.training.config import RECIPES, Config, Data, from_table
from pdrn.training.runs import (
    Entry,
    Record,
    Run,
    Tensors,
    load_json,
    load_tensors,
    readable,
    save_json,
    save_tensors,
)

# The paper --------------------------------------------------------------------------------------------------

Kind = Literal["PDN", "PDRN"]

KINDS: tuple[Kind, ...] = ("PDN", "PDRN")

DEPTHS = (1, 2, 5, 10, 15)

BITS, SAMPLE_RATE_HZ = 5, 16000
"""Bit depth and sample rate of the experiments; `FRAME_LENGTH` is the length of their frames."""

_PRINTED = {
    ("PDN", "train", False): (2.08, 1.28, 0.48, 0.28, 1.51),
    ("PDRN", "train", False): (2.05, 1.28, 0.53, 0.40, 0.57),
    ("PDN", "train", True): (3.29, 2.96, 2.06, 1.62, 1.69),
    ("PDRN", "train", True): (2.09, 1.57, 1.06, 1.01, 1.06),
    ("PDN", "dev", False): (2.43, 2.36, 2.31, 2.37, 2.48),
    ("PDRN", "dev", False): (2.38, 2.32, 2.00, 1.92, 2.03),
    ("PDN", "dev", True): (3.46, 3.20, 2.49, 2.07, 2.13),
    ("PDRN", "dev", True): (2.40, 2.24, 1.84, 1.81, 1.88),
}

PAPER_TABLE_1 = {
    (kind, split, regularised, depth): 1e-4 * value
    for (kind, split, regularised), values in _PRINTED.items()
    for depth, value in zip(DEPTHS, values, strict=True)
}
"""(kind, split, regularised, depth) -> smallest mean squared error over 1000 epochs."""

PAPER_TABLE_2 = {
    "QU": (4.47e-4, 15.06),
    "PDN": (2.13e-4, 18.27),
    "PDRN": (1.85e-4, 18.90),
    "CP 10": (3.05e-4, 16.71),
    "CP 25": (3.00e-4, 16.81),
    "CP 50": (3.00e-4, 16.85),
}
"""Method -> mean squared error and signal-to-noise ratio in dB on the test set."""


# Table 1 ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Experiment:
    """The settings that all networks of one Table 1 share."""

    recipe: str
    data: Data
    seed: int
    corpus_sha256: str
    corpus: str = field(compare=False)
    """The name of its folder; the checksum identifies it."""
    signal_rate_hz: int = field(compare=False)
    """The sample rate of the signals, resampled or not."""

    @property
    def bits(self) -> int:
        """The bit depth."""
        return int(self.data.bits[0])

    @property
    def matches_paper(self) -> bool:
        """Whether bit depth, frames and sample rate are the paper's, so that its figures can be compared."""
        ours = self.bits, self.data.length, self.signal_rate_hz
        return ours == (BITS, FRAME_LENGTH, SAMPLE_RATE_HZ)

    @property
    def sort_key(self) -> tuple[bool, bool, str]:
        """Sorts the paper's own experiment first, then comparable ones."""
        return not self.matches_paper, self.recipe != "paper", self.name

    @property
    def name(self) -> str:
        """A name for its files."""
        resampled = f"-{self.data.sample_rate_hz}-Hz" if self.data.sample_rate_hz else ""
        seed = f"-seed-{self.seed}" if self.seed else ""
        return f"{self.recipe}-{self.bits}-bits-{self.data.length}-{self.corpus_sha256[:8]}{resampled}{seed}"


@dataclass(frozen=True, order=True)
class Variant:
    """A network of Table 1."""

    kind: Kind
    regularised: bool
    depth: int


@dataclass(frozen=True)
class Result:
    """A run that is done, with its log."""

    run: Run
    record: Record
    log: Sequence[Entry]
    variant: Variant | None
    """The network of Table 1 that it is; None for other networks."""

    @property
    def experiment(self) -> Experiment:
        """The settings that it shares with the other networks of its table."""
        config, record = self.config, self.record
        corpus = record.corpus_sha256, record.corpus, record.sample_rate_hz
        return Experiment(config.recipe, config.data, config.seed, *corpus)

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.record.config

    @property
    def epochs(self) -> int:
        """The number of epochs."""
        return len(self.log)

    @property
    def best(self) -> Entry:
        """The epoch with the smallest development error, whose network was kept."""
        return min(self.log, key=lambda entry: float(entry["dev_ratio"]))

    def min_mse(self, split: str) -> float:
        """Return the smallest mean squared error over all epochs, of ``train`` or ``dev``."""
        return float(min(entry[f"{split}_mse"] for entry in self.log))

    def roughness(self, split: str) -> float:
        """Return the relative distance of errors from the mean of their two neighbours in the log.

        The root mean square over the later half of the epochs, of ``train`` or ``dev``; NaN for few epochs.
        """
        errors = np.log([entry[f"{split}_mse"] for entry in self.log[len(self.log) // 2 :]])
        if len(errors) < 3:
            return math.nan
        distances = errors[1:-1] - (errors[:-2] + errors[2:]) / 2
        return float(np.sqrt(np.mean(np.square(distances))))

    @property
    def rank(self) -> tuple[int, float]:
        """Ranks runs of one network: the longest first, then by development error."""
        return self.epochs, -self.min_mse("dev")


Table1 = dict[Variant, Result]


def load_results(runs: Iterable[Run]) -> list[Result]:
    """Return the runs that are done."""
    found = []
    for run in runs:
        record = run.record()
        if record is not None and record.finished:
            found.append(Result(run, record, run.complete_log(), variant_of(record.config)))
    return found


def by_experiment(results: Iterable[Result]) -> dict[Experiment, list[Result]]:
    """Group the networks of Table 1 by experiment, the paper's first."""
    found: dict[Experiment, list[Result]] = {}
    for result in results:
        if result.variant is not None:
            found.setdefault(result.experiment, []).append(result)
    return dict(sorted(found.items(), key=lambda item: item[0].sort_key))


def table_1(results: Iterable[Result]) -> Table1:
    """Return Table 1 of one experiment.

    Runs of one network may differ in lambda and length. The longest counts, and among equally long ones that
    with the smallest development error: so the paper chooses lambda.
    """
    table: Table1 = {}
    for result in sorted(results, key=lambda result: result.rank, reverse=True):
        if result.variant is not None:
            table.setdefault(result.variant, result)
    return dict(sorted(table.items()))


def lambdas_tried(results: Iterable[Result]) -> dict[Variant, dict[float, Result]]:
    """Return the longest run for each lambda, for networks that were trained with several."""
    tried: dict[Variant, dict[float, Result]] = {}
    for result in sorted(results, key=lambda result: result.rank):
        if result.variant is not None:
            tried.setdefault(result.variant, {})[result.config.loss.regularisation] = result
    return {
        variant: dict(sorted(found.items())) for variant, found in sorted(tried.items()) if len(found) > 1
    }


def variant_of(config: Config) -> Variant | None:
    """Return the network of Table 1 that a configuration trains, None if it is another."""
    network, regularisation = config.architecture, config.loss.regularisation
    if config.recipe not in RECIPES or not isinstance(network, PrimalDual):
        return None
    for kind in KINDS:
        bits, length = int(config.data.bits[0]), config.data.length
        wanted = grid_config(kind, network.depth, regularisation, config.recipe, bits, length)
        data = dataclasses.replace(config.data, sample_rate_hz=0)
        if dataclasses.replace(config, budget=wanted.budget, seed=wanted.seed, data=data) == wanted:
            return Variant(kind, regularisation > 0, network.depth)
    return None


def grid_config(
    kind: Kind, depth: int, regularisation: float, recipe: str, bits: int, frame_length: int
) -> Config:
    """Return the configuration of a network of Table 1, with the budget of its recipe."""
    network = {
        "kind": "PrimalDual",
        "depth": depth,
        "memory": {"PDN": "dual", "PDRN": "bias"}[kind],
        "map": {"kind": "DenseMap", "samples": frame_length},
    }
    config = from_table(
        {
            "recipe": recipe,
            "architecture": network,
            "data": {"bits": bits, "length": frame_length},
            "loss": {"regularisation": regularisation},
        }
    )
    return for_bits(config, bits)


def for_bits(config: Config, bits: int) -> Config:
    """Return the configuration of a recipe, which is for 5 bits, at another bit depth.

    sigma is inversely proportional to the width of the cells.
    """
    start = config.start
    if start.kind == "chambolle pock":
        start = dataclasses.replace(start, sigma=start.sigma * 2.0 ** (bits - BITS))
    return dataclasses.replace(config, start=start)


# Table 2 and an example -------------------------------------------------------------------------------------

EXAMPLE_SECONDS = 2.5


def best_results(table: Table1) -> dict[Kind, Result]:
    """Return the network of each kind with the smallest development error, which Table 2 measures."""
    found = {kind: [result for variant, result in table.items() if variant.kind == kind] for kind in KINDS}
    return {kind: min(of, key=lambda result: result.min_mse("dev")) for kind, of in found.items() if of}


def best_runs(table: Table1) -> dict[str, str]:
    """Return the names of the runs with the best networks, by kind."""
    return {kind: result.run.name for kind, result in best_results(table).items()}


def _best_networks(table: Table1) -> dict[str, Method]:
    return {
        kind: network_method(result.run.best(), result.config.data.unit)
        for kind, result in best_results(table).items()
    }


def measure_table_2(
    out: str | os.PathLike[str],
    experiment: Experiment,
    table: Table1,
    corpus: Corpus,
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure Table 2 on the test set, keep it beside the runs, and return it.

    Its rows are the quantized signal, the best networks and Chambolle-Pock. The paper does not have the last
    row, Chambolle-Pock on overlapping frames.
    """
    methods: dict[str, Method] = {"QU": method_named("qu")}
    methods |= _best_networks(table)
    for iterations in (10, 25, 50):
        methods[f"CP {iterations}"] = method_named(f"cp:{iterations}", experiment.data.length)
    methods["CP overlapped"] = method_named("overlapped", sample_rate_hz=corpus.signal_rate_hz)
    rows = evaluate(corpus, "test", experiment.bits, methods, experiment.data.length, metrics)
    table2 = {"networks": best_runs(table), "rows": [dataclasses.asdict(row) for row in rows]}
    save_json(_table_2_path(out, experiment), table2)
    return table2


def restore_example(
    out: str | os.PathLike[str], experiment: Experiment, table: Table1, corpus: Corpus
) -> None:
    """Restore the beginning of the longest test file, and keep signal, cells and restored signals."""
    methods = {"CP 25": method_named("cp:25", experiment.data.length)} | _best_networks(table)
    rate = corpus.signal_rate_hz
    longest = max(corpus.split("test"), key=corpus.length)
    signal = corpus.signal(longest)[: round(EXAMPLE_SECONDS * rate)]
    quantizer = MidRise(experiment.bits, full_scale=True)
    cells = quantizer.cells(quantizer.encode(signal))
    arrays = {name: method([cells])[0] for name, method in methods.items()}
    arrays |= {"signal": signal, "lower": cells.lo, "upper": cells.hi, "rate": np.array([rate])}
    tensors = {name: np.ascontiguousarray(part, np.float32) for name, part in arrays.items()}
    save_tensors(_example_path(out, experiment), tensors, {"networks": best_runs(table)})


def load_table_2(out: str | os.PathLike[str], experiment: Experiment) -> dict[str, Any] | None:
    """Return Table 2 of an experiment, None if it was not measured."""
    path = _table_2_path(out, experiment)
    return load_kept(path) if path.exists() else None


def load_example(
    out: str | os.PathLike[str], experiment: Experiment
) -> tuple[Tensors, dict[str, str]] | None:
    """Return the arrays of an experiment's example and the runs that restored it, None if it has none."""
    path = _example_path(out, experiment)
    if not path.exists():
        return None
    with readable(path, REMEDY):
        arrays, facts = load_tensors(path)
        return arrays, facts["networks"]


REMEDY = "remove it and make it again"


def load_kept(path: Path) -> dict[str, Any]:
    """Return a table that is kept beside the runs."""
    with readable(path, REMEDY):
        return load_json(path)


def _table_2_path(out: str | os.PathLike[str], experiment: Experiment) -> Path:
    return Path(out) / f"table2-{experiment.name}.json"


def _example_path(out: str | os.PathLike[str], experiment: Experiment) -> Path:
    return Path(out) / f"example-{experiment.name}.safetensors"
