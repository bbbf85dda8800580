"""Registry: bundled models, model files, and which one fits a sound.

A bundled model is one file, `NAME.safetensors`, beside its model card, `NAME.md`. The file's metadata holds
the provenance and a checksum.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pdrn.errors import InputError
from pdrn.nets import Network, SpectralPrimalDual
from pdrn.nets.files import Provenance, describe, load
from pdrn.restoration.methods import NetworkMethod, SpectralMethod, check_network, require_spectral

FOLDER = Path(__file__).parent / "models"
SUFFIX = ".safetensors"


@dataclass(frozen=True, eq=False)
class Model:
    """A network in a file, with its provenance."""

    name: str
    network: Network
    provenance: Provenance

    def method(
        self, sample_rate_hz: int, step: float | None, shifts: int | None = None
    ) -> NetworkMethod | SpectralMethod:
        """Return the method for this sample rate and cells of this width; None: widths differ."""
        rate = self.provenance.sample_rate_hz
        if isinstance(self.network.architecture, SpectralPrimalDual):
            if shifts is not None:
                raise InputError(f"{self.name} has no grids to shift; leave the shifts out")
            return SpectralMethod(self.network.at(sample_rate_hz), model=self.name)
        if step is None:
            raise InputError(f"{self.name} is for cells of one width, and these differ; choose method cp")
        if rate not in (None, sample_rate_hz):
            raise InputError(
                f"{self.name} is for {rate} Hz and this is {sample_rate_hz} Hz; choose method cp"
            )
        return NetworkMethod(self.network, step, model=self.name, shifts=shifts)


def names() -> list[str]:
    """Return the names of the bundled models, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*" + SUFFIX))


def path(name: str) -> Path:
    """Return the file of a bundled model."""
    if name not in names():
        raise InputError(f"no model is called {name!r}; {_known_names()}")
    return FOLDER / (name + SUFFIX)


def file_of(model: str | os.PathLike[str]) -> Path:
    """Return the file of a model: the name of a bundled one, or a path."""
    name = os.fspath(model)
    if name in names():
        return path(name)
    if not os.path.exists(name):
        raise InputError(f"there is no model or file {name!r}; {_known_names()}")
    return Path(name)


def read_model(model: str | os.PathLike[str]) -> Model:
    """Read a model by name or path, once unless the file changes."""
    file = file_of(model)
    state = os.stat(file)
    version = (state.st_ino, state.st_size, state.st_mtime_ns)
    return _read(file, file.stem if file.parent == FOLDER else file.name, version)


@lru_cache(maxsize=4)
def _read(file: Path, name: str, version: tuple[int, ...]) -> Model:
    network, provenance = load(file)
    if isinstance(network.architecture, SpectralPrimalDual):
        require_spectral(network.architecture)
        return Model(name, network, provenance)
    if provenance.unit != "cell":
        raise InputError(f"{name} measures in {provenance.unit}; train one in units of the cell")
    check_network(network.architecture)
    return Model(name, network, provenance)


def _known_names() -> str:
    return f"there are {', '.join(names())}" if names() else "no model is bundled; name a file"


# --- Facts ---


def card(name: str) -> str:
    """Return the model card of a bundled model, in Markdown."""
    return path(name).with_suffix(".md").read_text()


def verify(name: str) -> None:
    """Check a bundled model against the checksum in its metadata."""
    file = path(name)
    try:
        load(file)
    except (InputError, OSError) as error:
        raise InputError(f"{name} is damaged ({error}); install pdrn again") from error


ANY_RATE_HZ = 16000
"""The rate for which facts about a model for any rate are stated."""


@dataclass(frozen=True)
class Facts:
    """The figures of a bundled model."""

    name: str
    sample_rate_hz: int | None
    """None: any."""
    weights: int
    bytes: int
    stream_latency_ms: float


def facts(name: str) -> Facts:
    """Return the figures of a bundled model."""
    model = read_model(name)
    rate = model.provenance.sample_rate_hz or ANY_RATE_HZ
    method = model.method(rate, 1.0)
    return Facts(
        name=name,
        sample_rate_hz=model.provenance.sample_rate_hz,
        weights=sum(part.size for part in model.network.weights.values()),
        bytes=path(name).stat().st_size,
        stream_latency_ms=1000 * (method.stream_block + method.after - 1) / rate,
    )


def sample_rate_of(name: str) -> int | None:
    """Return the sample rate in Hz that a bundled model is for; None: any."""
    return describe(path(name))[1].sample_rate_hz


# --- Choice ---

FINEST_STEP = 2 / 2**9
"""Finest step that networks are taken for by themselves; they gain nothing over Chambolle-Pock below."""

_ROUNDING = 1 + 1e-3  # of a detected step


def for_rate(rate_hz: int) -> list[str]:
    """Return the bundled models for sound of this rate: those for it alone first, then the larger ones."""
    rates = {name: sample_rate_of(name) for name in names()}
    fitting = [name for name, rate in rates.items() if rate in (None, rate_hz)]
    return sorted(fitting, key=lambda name: (rates[name] is None, -path(name).stat().st_size))


def best(rate_hz: int) -> Model | None:
    """Return the best bundled model for sound of this rate, None if there is none."""
    fitting = for_rate(rate_hz)
    return read_model(fitting[0]) if fitting else None


def automatic(rate_hz: int, step: float | None) -> Model | None:
    """Return the model for this rate and step under method "auto", None if none fits."""
    return best(rate_hz) if step is not None and step * _ROUNDING >= FINEST_STEP else None
