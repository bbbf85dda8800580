"""The configuration of a training run: frozen dataclasses, read from TOML; a misspelt key fails at load.

A run is determined by its configuration, complete with all defaults, and its corpus. `run_name` hashes both:
two runs share a folder exactly if they are the same.
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

PAPER_EPOCHS = 1000


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)


@dataclass(frozen=True)
class Start:
    """The initial weights."""

    kind: Literal["own", "chambolle pock", "glorot", "identity", "network"] = "own"
    """``own``: the architecture's default. ``network``: the weights of another network. The others are for
    primal-dual networks."""
    network: str = ""
    """A bundled model by its name, or a file, of the same architecture."""
    network_sha256: str = ""
    """The checksum of that file; filled in at load, so that another file makes another run."""
    sigma: float = 10.0
    tau: float = 0.0
    """The steps of Chambolle-Pock; a tau of 0 is the longest that converges."""
    memory_gain: float = 1.0
    """The map of the dual memory starts at this multiple of the identity."""

    def __post_init__(self) -> None:
        _require(0 < self.sigma < math.inf and 0 <= self.tau < math.inf, "need sigma > 0 and tau >= 0")
        _require(math.isfinite(self.memory_gain), "memory_gain must be finite")
        _require(
            (self.kind == "network") == bool(self.network),
            'start.network belongs to start.kind = "network"; set both, or neither',
        )
        _require(
            bool(self.network) or not self.network_sha256,
            "start.network_sha256 is the checksum of start.network; set that too",
        )
        for name in ("sigma", "tau", "memory_gain"):
            _require(
                self.kind == "chambolle pock" or getattr(self, name) == getattr(Start, name),
                f'start.{name} is for a start at Chambolle-Pock; set start.kind = "chambolle pock"',
            )


@dataclass(frozen=True)
class Data:
    """The training data: frames or segments of signals with a peak of 1, quantized uniformly."""

    bits: tuple[float, ...] = (5.0,)
    """The bit depth, or a range, from which every segment draws its own, whole or not."""
    quantizer: Literal["mid-rise", "mid-tread", "both"] = "mid-rise"
    """``both`` draws one for every segment; development error is that of mid-rise."""
    companded: float = 0.0
    """The share of segments that are coded by G.711 instead, mu-law or A-law."""
    clipped: float = 0.0
    """The share of segments that are clipped instead, and else stored in 16 bits."""
    unit: Unit = "full scale"
    """The unit of the network's signals; ``cell`` makes every cell one unit wide."""
    length: int = 1024
    """Samples of a frame or segment."""
    placing: Literal["cut", "random"] = "cut"
    """``cut``: the whole frames of every file, each once per epoch. ``random``: anywhere in the files."""
    measured_on: Literal["frames", "files"] = "frames"
    """Measure development error on whole frames of ``length``, as in the paper, or on whole files."""
    flips: bool = False
    """Augmentation: draw the sign of every segment."""
    rumble: float = 0.0
    """Augmentation: the share of segments that get an offset and a slow wave; see `pdrn.training.data`."""
    attenuation_db: float = 0.0
    """Augmentation: attenuate every segment, by up to this much."""
    speeds: tuple[float, ...] = (1.0,)
    """Augmentation: play the training signals at each of these speeds."""
    batches: int = 0
    """Batches per epoch (0: one pass over the corpus)."""
    sample_rate_hz: int = 0
    """Resample the corpus to this rate in Hz (0: keep)."""
    training_rates_hz: tuple[int, ...] = ()
    """Train at these sample rates, drawn for every batch, with each file at rates up to its own. Empty: at
    ``sample_rate_hz``, where development error is measured in any case."""
    rate_jitter: float = 0.0
    """Augmentation: take a batch for one of a rate up to this share off, which changes speed and pitch."""

    def __post_init__(self) -> None:
        _require(
            len(self.bits) in (1, 2)
            and all(1 <= b <= 24 for b in self.bits)
            and self.bits == tuple(sorted(self.bits)),
            f"bits must be one bit depth from 1 to 24, or a range of them, got {list(self.bits)}",
        )
        for name in ("rumble", "companded", "clipped"):
            share = getattr(self, name)
            _require(0 <= share <= 1, f"{name} must be a share from 0 to 1, got {share}")
        _require(self.companded + self.clipped <= 1, "companded and clipped must be at most 1 together")
        _require(
            self.unit == "full scale" or not (self.companded or self.clipped),
            'cells of several widths have no unit; set data.unit = "full scale"',
        )
        _require(0 <= self.attenuation_db <= 120, "attenuation_db must be from 0 to 120")
        _require(
            all(1000 <= rate <= 768000 for rate in self.training_rates_hz),
            f"training_rates_hz must be from 1000 to 768000, got {list(self.training_rates_hz)}",
        )
        _require(0 <= self.rate_jitter <= 0.5, "rate_jitter must be a share from 0 to 0.5")
        _require(
            bool(self.training_rates_hz) or not self.rate_jitter, "rate_jitter needs data.training_rates_hz"
        )
        _require(
            not self.training_rates_hz or (self.placing == "random" and self.sample_rate_hz > 0),
            'training_rates_hz need data.placing = "random" and data.sample_rate_hz',
        )
        _require(
            len(self.speeds) > 0 and all(0.25 <= speed <= 4 for speed in self.speeds),
            f"speeds must be numbers from 0.25 to 4, got {list(self.speeds)}",
        )
        _require(self.length >= 1, f"length must be at least 1, got {self.length}")
        _require(min(self.batches, self.sample_rate_hz) >= 0, "batches and sample_rate_hz cannot be negative")
        _require(
            self.placing == "random" or not self.batches,
            'batches per epoch need random placing; set data.placing = "random", or leave them out',
        )

    @property
    def depths_measured(self) -> tuple[float, ...]:
        """The bit depths at which development error is measured: the whole ones in the range, if any."""
        low, high = self.bits[0], self.bits[-1]
        return tuple(float(b) for b in range(math.ceil(low), math.floor(high) + 1)) or self.bits


@dataclass(frozen=True)
class Loss:
    """The loss (4.2): mean squared error plus ``regularisation`` times a sum of squared weights.

    ``spectral``, which the paper does not have, weighs a third term.
    """

    relative: bool = False
    """Divide each segment's error by that of the quantized segment, so that loud ones do not dominate."""
    logarithmic: bool = False
    """Take the logarithm of relative errors, so that every bit depth counts by its gain in dB."""
    spectral: float = 0.0
    """The weight of the mean distance of log spectra; see `pdrn.training.losses`."""
    regularisation: float = 0.0
    """The paper's lambda."""
    regularised: Literal["kernels", "all"] = "kernels"
    """Which weights count: matrices, or biases and steps too."""
    last_layers: int = 0
    """Truncate gradients to this number of last layers of a tied network, which saves memory (0: all)."""

    def __post_init__(self) -> None:
        for name in ("spectral", "regularisation"):
            _require(0 <= getattr(self, name) < math.inf, f"{name} must be a number >= 0")
        _require(self.last_layers >= 0, "last_layers cannot be negative")
        _require(
            self.relative or not self.logarithmic, "loss.logarithmic is of relative errors; set loss.relative"
        )


@dataclass(frozen=True)
class Optimiser:
    """Adam, its schedule, gradient clipping and EMA."""

    learning_rate: float = 1e-4
    batch_size: int = 128
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule: Literal["constant", "cosine"] = "constant"
    """``cosine`` decays to ``final_share`` of the learning rate over the whole budget."""
    final_share: float = 0.02
    warmup_steps: int = 0
    """Steps over which the learning rate rises from 0."""
    clip_norm: float = 0.0
    """The largest norm of the gradient, without that of the regularisation (0: no clipping)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """``bfloat16``: products and convolutions in 16 bits, by autocast; weights and the rest stay float32."""
    averaging: float = 0.0
    """The decay of the EMA of the weights, which is then the network (0: no EMA)."""

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
    """The length of training: exactly one of epochs, steps and seconds."""

    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Converted to steps by a short measurement when the run begins, so that the run can be repeated."""
    patience: int = 0
    """Early stopping after this number of epochs without a smaller development error (0: never)."""

    def __post_init__(self) -> None:
        given = [value for value in (self.epochs, self.steps, self.seconds) if value]
        _require(
            len(given) == 1 and 0 < given[0] < math.inf,
            "budget needs one of epochs, steps, seconds above 0",
        )
        _require(self.patience >= 0, "patience cannot be negative")


@dataclass(frozen=True)
class Config:
    """A whole training run."""

    architecture: CellArchitecture
    recipe: str = ""
    """The recipe that supplied the defaults, if any."""
    seed: int = 0
    start: Start = field(default_factory=Start)
    data: Data = field(default_factory=Data)
    loss: Loss = field(default_factory=Loss)
    optimiser: Optimiser = field(default_factory=Optimiser)
    budget: Budget = field(default_factory=lambda: Budget(epochs=PAPER_EPOCHS))

    def __post_init__(self) -> None:
        _require(self.seed >= 0, f"seed must be at least 0, got {self.seed}")
        _require(
            not self.loss.last_layers or self._can_truncate(),
            "loss.last_layers is for tied PDNs with at most one theta: other weights would never learn",
        )

    def _can_truncate(self) -> bool:
        """Tell whether every weight has a gradient through the last layers alone."""
        plan, last = self.architecture, self.loss.last_layers
        return (
            isinstance(plan, PrimalDual)
            and (plan.tying, plan.memory, plan.weighting) == ("tied", "dual", "one")
            and plan.learn_theta != "per layer"
            and (2 if plan.learn_theta == "once" else 1) <= last <= plan.depth
        )


ADDED = {
    "data": ("companded", "clipped", "attenuation_db", "training_rates_hz", "rate_jitter"),
    "loss": ("logarithmic",),
    "optimiser": ("precision",),
}
"""Settings that names of runs leave out at their default: runs from before they existed keep their names."""


def run_name(config: Config, corpus_sha256: str) -> str:
    """Return the hash that names the folder of a run."""
    table = encode(config)
    for part, names in ADDED.items():
        defaults = type(getattr(config, part))
        for name in names:
            if getattr(getattr(config, part), name) == getattr(defaults, name):
                del table[part][name]
    described = json.dumps([table, corpus_sha256], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"start": {"kind": "glorot"}},
    "modern": {
        "start": {"kind": "chambolle pock", "sigma": 20.0},
        "data": {"placing": "random"},
        "optimiser": {"learning_rate": 1e-4, "schedule": "cosine", "clip_norm": 0.002, "averaging": 0.999},
        "budget": {"epochs": 60},
    },
}
"""Defaults by recipe.

``paper`` is section 4.1: frames cut once, Adam at 1e-4, batches of 128, 1000 epochs. The paper does not say
how weights start; Glorot is the default of the software that it used.
"""


def from_table(table: Mapping[str, Any]) -> Config:
    """Return the configuration of a table, completed by its recipe and the defaults.

    The architecture may be missing if training starts at a network, which then provides it.
    """
    recipe = table.get("recipe", "")
    if recipe not in ("", *RECIPES):
        raise InputError(f"no recipe is called {recipe!r}; there are {', '.join(RECIPES)}")
    base, budget = {"budget": {"epochs": PAPER_EPOCHS}} | RECIPES.get(recipe, {}), table.get("budget")
    if isinstance(budget, Mapping) and budget.keys() & {"epochs", "steps", "seconds"}:
        del base["budget"]  # a budget has only one of the three
    start = table.get("start")
    if not isinstance(start, Mapping):
        start = {}  # missing, or refused below
    if start.get("kind") not in (None, base.get("start", {}).get("kind")):
        base.pop("start", None)  # the recipe's numbers are for its own kind of start
    if start.get("network"):
        file = file_of(str(start["network"]))
        base["start"] = {**base.get("start", {}), "network_sha256": file_sha256(file)}
        architecture = encode(describe(file)[0])  # a file that holds no network fails now
        base |= {} if "architecture" in table else {"architecture": architecture}
    return from_complete_table(_merge(base, table))


def _merge(base: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the entries of another in place of its own, recursively."""
    merged = dict(base)
    for name, value in table.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both else value
    return merged


def from_complete_table(table: Mapping[str, Any]) -> Config:
    """Return the configuration that `encode` made a table of."""
    config: Config = decode(Config, table)
    return config


BUNDLED = Path(__file__).parent / "configs"


def names() -> list[str]:
    """Return the names of the bundled configurations."""
    return sorted(file.stem for file in BUNDLED.glob("*.toml"))


def load(path: str | os.PathLike[str]) -> Config:
    """Read a configuration from a TOML file, or a bundled one by its name."""
    path = BUNDLED / f"{path}.toml" if os.fspath(path) in names() else path
    if not os.path.exists(path):
        raise InputError(
            f"no configuration or file is called {os.fspath(path)!r}; there are {', '.join(names())}"
        )
    try:
        with open_file(path) as stream:
            table = tomllib.load(stream)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{os.fspath(path)} is not TOML: {error}") from error
    try:
        return from_table(table)
    except InputError as error:
        raise InputError(f"{os.fspath(path)}: {error}") from error


def as_toml(config: Config) -> str:
    """Return a configuration as TOML, complete with all defaults."""
    table = encode(config)
    parts = {name: part for name, part in table.items() if isinstance(part, dict)}
    lines = [f"{name} = {_toml(value)}" for name, value in table.items() if name not in parts]
    for name, part in parts.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in part.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + " }"
    # JSON's strings are TOML's, but for DEL, and for characters that JSON splits to stay within ASCII.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
