"""The paper's tables, from run folders; and what a study found, as files beside its runs."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.nets import PrimalDual
from pdrn.reproduction import paper
from pdrn.reproduction.paper import KINDS, MEMORY, Kind
from pdrn.storage import content_sha256
from pdrn.training.config import RECIPES, Config, from_table
from pdrn.training.runs import (
    Entry,
    Run,
    load_json,
    load_tensors,
    readable,
    runs_in,
    save_json,
    save_tensors,
)


@dataclass(frozen=True)
class Setting:
    """What all entries of one table have in common."""

    recipe: str
    bits: int
    frame_length: int
    corpus: str = field(compare=False)
    """What its folder is called: one corpus may have several names."""
    corpus_sha256: str
    signal_rate_hz: int = field(compare=False)
    """The sample rate of what was trained on."""
    resampled_hz: int = 0
    """The same if the corpus was resampled to it; 0 if it was not."""
    seed: int = 0

    @property
    def is_the_papers(self) -> bool:
        """Whether bit depth, frames and rate are those of the paper, so that its figures may stand beside."""
        ours = self.bits, self.frame_length, self.signal_rate_hz
        return ours == (paper.BITS, paper.FRAME_LENGTH, paper.SAMPLE_RATE_HZ)

    @property
    def order(self) -> tuple[bool, bool, str]:
        """Which comes first: what the paper did, then what can stand beside it."""
        return not self.is_the_papers, self.recipe != "paper", self.name

    @property
    def name(self) -> str:
        """A name for files about it."""
        resampled = f"-{self.resampled_hz}-Hz" if self.resampled_hz else ""
        seed = f"-seed-{self.seed}" if self.seed else ""
        return f"{self.recipe}-{self.bits}-bits-{self.frame_length}-{self.corpus_sha256[:8]}{resampled}{seed}"


@dataclass(frozen=True, order=True)
class Place:
    """A place in Table 1."""

    kind: Kind
    regularised: bool
    depth: int


@dataclass(frozen=True)
class Result:
    """What the run at a place of Table 1 reached."""

    run: Run
    config: Config
    log: list[Entry]

    @property
    def epochs(self) -> int:
        """How long it was trained."""
        return int(self.log[-1]["epoch"])

    @property
    def best(self) -> Entry:
        """The epoch whose network was kept."""
        return min(self.log, key=lambda entry: float(entry["dev_ratio"]))

    def smallest(self, split: str) -> float:
        """Return the smallest mean squared error over all epochs, of ``train`` or ``dev``."""
        return float(min(entry[f"{split}_mse"] for entry in self.log))

    def roughness(self, split: str) -> float:
        """Return how far an error is from the mean of those before and after, relative to it.

        The root mean square over the later half of the epochs, of ``train`` or ``dev``; NaN for few epochs.
        """
        errors = np.log([entry[f"{split}_mse"] for entry in self.log[len(self.log) // 2 :]])
        if len(errors) < 3:
            return math.nan
        off = errors[1:-1] - (errors[:-2] + errors[2:]) / 2
        return float(np.sqrt(np.mean(np.square(off))))


Table = dict[Place, Result]


def results(runs: Iterable[Run]) -> dict[Setting, list[tuple[Place, Result]]]:
    """Return what runs reached that have a place in some Table 1, are done or published, by setting."""
    found: dict[Setting, list[tuple[Place, Result]]] = {}
    for run in runs:
        record = run.record()
        if record is None or not run.is_done:
            continue
        config = run.config()
        place = place_of(config)
        if place is None:
            continue
        data = config.data
        setting = Setting(
            config.recipe,
            int(data.bits[0]),
            data.length,
            record["corpus"],
            record["corpus_sha256"],
            record["sample_rate_hz"],
            data.sample_rate_hz,
            config.seed,
        )
        found.setdefault(setting, []).append((place, Result(run, config, run.complete_log())))
    return dict(sorted(found.items(), key=lambda item: item[0].order))


def tables(runs: Iterable[Run]) -> dict[Setting, Table]:
    """Return the Table 1 of every setting that runs make which are done or published.

    Of several runs at one place, which differ in lambda or length, the longest counts, and of these the one
    with the smallest development error: so the paper chooses lambda.
    """
    return {setting: table_of(found) for setting, found in results(runs).items()}


def table_of(found: Iterable[tuple[Place, Result]]) -> Table:
    """Return the Table 1 that results make; see `tables`."""
    table: Table = {}
    for place, result in found:
        if place not in table or _rank(result) > _rank(table[place]):
            table[place] = result
    return dict(sorted(table.items()))


def lambdas_tried(found: Iterable[tuple[Place, Result]]) -> dict[Place, dict[float, Result]]:
    """Return what every lambda reached at the places where several were tried, of the longest runs."""
    tried: dict[Place, dict[float, Result]] = {}
    for place, result in found:
        of, value = tried.setdefault(place, {}), result.config.loss.regularisation
        if value not in of or _rank(result) > _rank(of[value]):
            of[value] = result
    return {place: dict(sorted(of.items())) for place, of in sorted(tried.items()) if len(of) > 1}


def others(runs: Iterable[Run]) -> list[Result]:
    """Return the runs, done or published, that have no place in Table 1, the best first."""
    done = [run for run in runs if run.record() is not None and run.is_done]
    results = [
        Result(run, run.config(), run.complete_log()) for run in done if place_of(run.config()) is None
    ]
    return sorted(results, key=lambda result: result.best["dev_ratio"])


def place_of(config: Config) -> Place | None:
    """Return where a run stands in Table 1, or None if it does not."""
    network, regularisation = config.architecture, config.loss.regularisation
    if config.recipe not in RECIPES or not isinstance(network, PrimalDual):
        return None
    for kind in KINDS:
        bits, length = int(config.data.bits[0]), config.data.length
        wanted = config_at(kind, network.depth, regularisation, config.recipe, bits, length)
        data = dataclasses.replace(config.data, sample_rate_hz=0)
        if dataclasses.replace(config, budget=wanted.budget, seed=wanted.seed, data=data) == wanted:
            return Place(kind, regularisation > 0, network.depth)
    return None


def for_bits(config: Config, bits: int) -> Config:
    """Return what a recipe, which is for the paper's bit depth, is for another.

    Where cells are wider, errors are, and all that is compared with them.
    """
    start = config.start
    if start.kind == "chambolle pock":
        start = dataclasses.replace(start, sigma=start.sigma * 2.0 ** (bits - paper.BITS))
    return dataclasses.replace(config, start=start)


def config_at(
    kind: Kind, depth: int, regularisation: float, recipe: str, bits: int, frame_length: int
) -> Config:
    """Return the configuration of a network of Table 1, as long as its recipe says."""
    network = {
        "kind": "PrimalDual",
        "depth": depth,
        "memory": MEMORY[kind],
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


def best(table: Mapping[Place, Result], kind: Kind) -> Result | None:
    """Return the network of a kind with the smallest development error, as the paper does for Table 2."""
    results = [result for place, result in table.items() if place.kind == kind]
    return min(results, key=lambda result: result.smallest("dev"), default=None)


def chosen_runs(table: Mapping[Place, Result]) -> dict[str, str]:
    """Return the names of the runs with the best networks, by kind."""
    return {kind: result.run.name for kind in KINDS if (result := best(table, kind))}


def _rank(result: Result) -> tuple[int, float]:
    return result.epochs, -result.smallest("dev")


Arrays = dict[str, np.ndarray[Any, Any]]

REMEDY = "remove it and make it again"


def _load(path: Path) -> dict[str, Any]:
    with readable(path, REMEDY):
        return load_json(path)


def save_study(out: str | os.PathLike[str], setting: Setting, found: dict[str, Any]) -> None:
    """Keep what was measured about a setting, beside what is there already."""
    path = Path(out) / f"study-{setting.name}.json"
    save_json(path, load_study(path) | {"setting": dataclasses.asdict(setting)} | found)


def with_known_metrics(
    table2: dict[str, Any], out: str | os.PathLike[str], setting: Setting
) -> dict[str, Any]:
    """Return a Table 2 with PESQ and STOI that are known of the same methods: they take long to measure.

    A method with the same error to the last bit is taken for the same.
    """
    known = load_study(Path(out) / f"study-{setting.name}.json").get("table2", {"rows": []})["rows"]
    heard = {(row["method"], row["mse"]): {name: row.get(name) for name in ("pesq", "stoi")} for row in known}
    rows = [
        row
        | {
            name: value
            for name, value in heard.get((row["method"], row["mse"]), {}).items()
            if row[name] is None
        }
        for row in table2["rows"]
    ]
    return table2 | {"rows": rows}


def load_study(path: Path) -> dict[str, Any]:
    """Return what was measured about a setting, nothing if that was not done yet."""
    return _load(path) if path.exists() else {}


def save_comparison(out: str | os.PathLike[str], kind: str, found: dict[str, Any]) -> str:
    """Keep what is known of a comparison, beside those in which something else was asked; return its name."""
    Path(out).mkdir(parents=True, exist_ok=True)
    name = f"{kind}-{content_sha256(found['task'])[:8]}"
    save_json(Path(out) / f"comparison-{name}.json", found)
    return name


def known_steps(
    out: str | os.PathLike[str], task: dict[str, Any], measure: Callable[[], tuple[int, ...]]
) -> tuple[int, ...]:
    """Return how long each network of a comparison is trained: measured once, so that it can go on."""
    path = Path(out) / f"steps-{content_sha256(task)[:16]}.json"
    if not path.exists():
        Path(out).mkdir(parents=True, exist_ok=True)
        save_json(path, {"task": task, "steps": measure()})
    return tuple(_load(path)["steps"])


def load_comparisons(out: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return what is known of the comparisons in a folder, by name: that of their kind comes first."""
    paths = sorted(Path(out).glob("comparison-*.json"))
    return {path.stem.removeprefix("comparison-"): _load(path) for path in paths}


def publish(runs: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write what was found to another folder, without networks and sound: these may be large, or not be free.

    Of every run that is done its record and its log, and all tables: what a report is made of, but for its
    example.
    """
    out = Path(out)
    for run in runs_in(runs):
        if run.is_done:
            run.copy_log(out / run.folder.name)
    for path in (*Path(runs).glob("study-*.json"), *Path(runs).glob("comparison-*.json")):
        save_json(out / path.name, _load(path))


def save_example(
    out: str | os.PathLike[str], setting: Setting, arrays: Arrays, chosen: Mapping[str, str]
) -> None:
    """Keep an example, for the figures, and by which runs it was restored."""
    save_tensors(Path(out) / f"study-{setting.name}.safetensors", arrays, {"chosen": dict(chosen)})


def load_example(path: Path) -> tuple[Arrays, dict[str, str]] | None:
    """Return the example and by which runs it was restored, None if there is none yet."""
    if not path.exists():
        return None
    with readable(path, REMEDY):
        arrays, facts = load_tensors(path)
        return arrays, dict(facts["chosen"])
