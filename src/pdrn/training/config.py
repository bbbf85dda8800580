"""What a training run is: frozen values, read from TOML, where a misspelt key fails at load.

A run is determined by its configuration and its corpus. ``run_name`` hashes both, the configuration complete
with all defaults, so that two runs share a folder exactly if they are the same run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pdrn.errors import InputError
from pdrn.nets import CellArchitecture, PrimalDual
from pdrn.nets.files import Unit, decode, describe, encode
from pdrn.restoration.registry import file_of
from pdrn.storage import file_sha256, open_file


def as_toml(config: Any) -> str:
    """Return a configuration as TOML, with everything said that has a default."""
    table = encode(config)
    parts = {name: part for name, part in table.items() if isinstance(part, dict)}
    lines = [f"{name} = {_toml(value)}" for name, value in table.items() if name not in parts]
    for name, part in parts.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in part.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + " }"
    return json.dumps(value)


def merged(base: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with what another says in place of its own, part by part."""
    found = dict(base)
    for name, value in table.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found


RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"start": {"kind": "glorot"}},
    "modern": {
        "start": {"kind": "chambolle pock", "sigma": 20.0},
        "data": {"placing": "random"},
        "optimiser": {"learning_rate": 1e-4, "schedule": "cosine", "clip_norm": 0.002, "averaging": 0.999},
        "budget": {"epochs": 60},
    },
}
"""What a configuration that names a recipe starts from; what it says itself goes before.

``paper`` is section 4.1: frames cut once, Adam at 1e-4, batches of 128, 1000 epochs, everything else at its
standard value. The paper does not say how weights start; Glorot is the default of the software that it used.
"""

NAMED = Path(__file__).parent / "configs"

EPOCHS = 1000
"""How long, where nothing else is said: as the paper."""


@dataclass(frozen=True)
class Start:
    """Where training starts."""

    kind: Literal["own", "chambolle pock", "glorot", "identity", "network"] = "own"
    """``own`` is what the architecture says of itself; ``network`` are the weights of another one, learned
    already; the others are for primal-dual networks."""
    network: str = ""
    """The name of that other one if it comes along, else its file. Both have the same architecture."""
    network_sha256: str = ""
    """The checksum of its file, taken when it is named: a run does not outlast what it started at."""
    sigma: float = 10.0
    tau: float = 0.0
    """The steps of a start at Chambolle-Pock; a tau of 0 is the longest that converges."""
    memory_gain: float = 1.0
    """Where a network has a map of the dual memory, it starts at so many times the identity."""

    def __post_init__(self) -> None:
        _require(0 < self.sigma < math.inf and 0 <= self.tau < math.inf, "need sigma > 0 and tau >= 0")
        _require(math.isfinite(self.memory_gain), "memory_gain must be a number")
        _require(
            (self.kind == "network") == bool(self.network),
            'start.network names what start.kind = "network" starts at; set both, or neither',
        )
        _require(
            bool(self.network) or not self.network_sha256,
            "start.network_sha256 is the checksum of start.network; set that too",
        )

    def require_use_of(self, setting: str) -> None:
        """Refuse a number that this start does not look at."""
        _require(
            self.kind == "chambolle pock",
            f'start.{setting} is for a start at Chambolle-Pock; set start.kind = "chambolle pock"',
        )


@dataclass(frozen=True)
class Data:
    """What is trained on: frames or segments of signals with a peak of 1, quantized uniformly."""

    bits: tuple[float, ...] = (5.0,)
    """The bit depth, or two: then every segment has its own, drawn between them, whole or not."""
    quantizer: Literal["mid-rise", "mid-tread", "both"] = "mid-rise"
    """``both`` draws one of them for every segment; development error is then that of mid-rise."""
    unit: Unit = "full scale"
    """What the network measures signals in; ``cell`` makes every cell one unit wide."""
    length: int = 1024
    """Samples of a frame or segment."""
    placing: Literal["cut", "random"] = "cut"
    """``cut``: the whole frames of every file, each once per epoch. ``random``: anywhere in the files."""
    measured_on: Literal["frames", "files"] = "frames"
    """What development error is measured on: whole frames of ``length``, as in the paper, or whole files."""
    flips: bool = False
    """Whether every segment's sign is drawn."""
    rumble: float = 0.0
    """The share of segments that get an offset and a slow wave; see `pdrn.training.data`."""
    speeds: tuple[float, ...] = (1.0,)
    """How fast the training signals are played; with several, each is there so often."""
    batches: int = 0
    """Batches per epoch; 0 is one pass over the corpus."""
    sample_rate_hz: int = 0
    """Resample the corpus to this rate; 0 leaves it as it is."""

    def __post_init__(self) -> None:
        _require(
            len(self.bits) in (1, 2)
            and all(1 <= b <= 24 for b in self.bits)
            and self.bits == tuple(sorted(self.bits)),
            f"bits must be one bit depth from 1 to 24, or a range of them, got {list(self.bits)}",
        )
        _require(0 <= self.rumble <= 1, f"rumble must be a share from 0 to 1, got {self.rumble}")
        _require(
            len(self.speeds) > 0 and all(0.25 <= speed <= 4 for speed in self.speeds),
            f"speeds must be numbers from 0.25 to 4, got {list(self.speeds)}",
        )
        _require(self.length >= 1, f"length must be at least 1, got {self.length}")
        _require(min(self.batches, self.sample_rate_hz) >= 0, "batches and sample_rate_hz cannot be negative")
        _require(
            self.placing == "random" or not self.batches,
            "batches per epoch are for random placing only",
        )

    @property
    def depths_measured(self) -> tuple[float, ...]:
        """The bit depths that development error is measured at: the whole ones, if there are some."""
        low, high = self.bits[0], self.bits[-1]
        return tuple(float(b) for b in range(math.ceil(low), math.floor(high) + 1)) or self.bits


@dataclass(frozen=True)
class Loss:
    """The loss (4.2): the mean squared error, plus ``regularisation`` times a sum of squares of weights.

    Beyond the paper, ``spectral`` times a distance of spectra is added.
    """

    relative: bool = False
    """Divide each segment's error by that of the quantized segment, so that loud ones do not rule."""
    spectral: float = 0.0
    """The weight of the mean distance of log spectra beside the error; see `pdrn.training.losses`."""
    regularisation: float = 0.0
    """The paper's lambda."""
    regularised: Literal["kernels", "all"] = "kernels"
    """Whose squares count: those of matrices, or of biases and steps too."""
    last_layers: int = 0
    """Gradients go through so many last layers, which saves memory; 0 is all. For tied networks."""

    def __post_init__(self) -> None:
        for name in ("spectral", "regularisation"):
            _require(0 <= getattr(self, name) < math.inf, f"{name} must be a number >= 0")
        _require(self.last_layers >= 0, "last_layers cannot be negative")


@dataclass(frozen=True)
class Optimiser:
    """Adam, and how its learning rate goes."""

    learning_rate: float = 1e-4
    batch_size: int = 128
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule: Literal["constant", "cosine"] = "constant"
    """``cosine`` falls from the learning rate to ``final_share`` of it over the whole budget."""
    final_share: float = 0.02
    warmup_steps: int = 0
    """Steps over which the learning rate rises from 0 at first."""
    clip_norm: float = 0.0
    """The longest gradient of the data term; 0 leaves all as they are."""
    averaging: float = 0.0
    """Use the average of the weights, each step keeping this share of it; 0 uses the weights themselves."""

    def __post_init__(self) -> None:
        _require(0 < self.learning_rate < math.inf, "learning_rate must be positive")
        _require(self.batch_size >= 1, f"batch_size must be at least 1, got {self.batch_size}")
        for name in ("beta1", "beta2", "averaging"):
            _require(0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1")
        _require(self.epsilon > 0, "epsilon must be positive")
        _require(0 <= self.final_share <= 1, "final_share must be between 0 and 1")
        _require(self.warmup_steps >= 0 and self.clip_norm >= 0, "need warmup_steps and clip_norm >= 0")


@dataclass(frozen=True)
class Budget:
    """How long to train: exactly one of the three is set."""

    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Turned into steps by a short measurement when the run begins: what follows can be repeated exactly."""
    patience: int = 0
    """Stop after so many epochs without a better development error; 0 never does."""

    def __post_init__(self) -> None:
        set_to = [value for value in (self.epochs, self.steps, self.seconds) if value]
        _require(
            len(set_to) == 1 and 0 < set_to[0] < math.inf,
            "budget needs one of epochs, steps, seconds above 0",
        )
        _require(self.patience >= 0, "patience cannot be negative")


@dataclass(frozen=True)
class Config:
    """A whole training run."""

    architecture: CellArchitecture
    recipe: str = ""
    """The recipe that it started from, if any."""
    seed: int = 0
    start: Start = field(default_factory=Start)
    data: Data = field(default_factory=Data)
    loss: Loss = field(default_factory=Loss)
    optimiser: Optimiser = field(default_factory=Optimiser)
    budget: Budget = field(default_factory=lambda: Budget(epochs=EPOCHS))

    def __post_init__(self) -> None:
        _require(self.seed >= 0, f"seed must be at least 0, got {self.seed}")
        _require(
            not self.loss.last_layers or self._learns_from_last_layers(),
            "loss.last_layers is for tied PDNs, with one theta at most: others have weights that would never "
            "learn",
        )

    def _learns_from_last_layers(self) -> bool:
        plan, last = self.architecture, self.loss.last_layers
        return (
            isinstance(plan, PrimalDual)
            and (plan.tying, plan.memory, plan.weighting) == ("tied", "dual", "one")
            and plan.learn_theta != "per layer"
            and (2 if plan.learn_theta == "once" else 1) <= last <= plan.depth
        )


def run_name(config: Config, corpus_sha256: str) -> str:
    """Return the hash that names a run's folder."""
    described = json.dumps([encode(config), corpus_sha256], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def from_table(table: Mapping[str, Any]) -> Config:
    """Make a configuration of a table; what it leaves out is the recipe's, or the default.

    The architecture may be left out where training starts at a network: it is that one's.
    """
    recipe = table.get("recipe", "")
    if recipe not in ("", *RECIPES):
        raise InputError(f"no recipe is called {recipe!r}; there are {', '.join(RECIPES)}")
    base, budget = {"budget": {"epochs": EPOCHS}} | RECIPES.get(recipe, {}), table.get("budget")
    if isinstance(budget, Mapping) and budget.keys() & {"epochs", "steps", "seconds"}:
        del base["budget"]  # one of three is set: what the recipe sets would be a second
    start = table.get("start")
    if not isinstance(start, Mapping):
        start = {}  # none, or none that will pass
    if start.get("kind") not in (None, base.get("start", {}).get("kind")):
        base.pop("start", None)  # the recipe's numbers are for its own kind of start
    if start.get("network"):
        file = file_of(str(start["network"]))
        architecture = encode(describe(file)[0])
        base["start"] = {**base.get("start", {}), "network_sha256": file_sha256(file)}
        if "architecture" not in table:
            base["architecture"] = architecture
    config = from_complete_table(merged(base, table))
    for name, value in start.items():
        if not name.startswith(("kind", "network")) and value != getattr(Start, name):
            config.start.require_use_of(name)
    return config


def from_complete_table(table: Mapping[str, Any]) -> Config:
    """Make a configuration of what ``encode`` returned; a field that is newer than that has its default."""
    config: Config = decode(Config, table)
    return config


def names() -> list[str]:
    """Return the names of the configurations that come along."""
    return sorted(file.stem for file in NAMED.glob("*.toml"))


def load(path: str | os.PathLike[str]) -> Config:
    """Read a configuration from a TOML file, or one that comes along by its name."""
    path = NAMED / f"{path}.toml" if os.fspath(path) in names() else path
    if not os.path.exists(path):
        raise InputError(
            f"no configuration is called {os.fspath(path)!r}, and no file; there are {', '.join(names())}"
        )
    try:
        with open_file(path) as stream:
            return from_table(tomllib.load(stream))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{os.fspath(path)} is no configuration: {error}") from error


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)
