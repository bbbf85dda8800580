"""Bundled models and your own, and the choice among them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from pdrn.errors import InputError
from pdrn.nets import Network
from pdrn.nets.files import Provenance, describe, load
from pdrn.restoration.methods import LearnedMethod
from pdrn.restoration.streaming import Blockwise
from pdrn.storage import file_sha256


@dataclass(frozen=True, eq=False)
class Model:
    """A network, and what it was made for."""

    name: str
    network: Network
    provenance: Provenance

    def method(self, sample_rate_hz: int, step: float | None, shifts: int | None = None) -> LearnedMethod:
        """Return what restores sound of this rate, whose cells are one step wide, or differ (None)."""
        rate = self.provenance.sample_rate_hz
        if step is None:
            raise InputError(f"{self.name} is for cells of one width, and these differ; choose method cp")
        if rate not in (None, sample_rate_hz):
            raise InputError(
                f"{self.name} is for {rate} Hz and this is {sample_rate_hz} Hz; choose method cp"
            )
        return LearnedMethod(self.network, step, model=self.name, shifts=shifts)


def model_of(path: str | os.PathLike[str], name: str | None = None) -> Model:
    """Read a network from a file, again where that has changed; it is called as the file unless named."""
    try:
        state = os.stat(path)
        version: tuple[int, ...] = (state.st_ino, state.st_size, state.st_mtime_ns)
    except OSError:
        version = ()  # reading it says what is wrong
    return _read(os.fspath(path), name, version)


@lru_cache(maxsize=4)
def _read(path: str, name: str | None, _: tuple[int, ...]) -> Model:
    network, provenance = load(path)
    model = Model(name or os.path.basename(path), network, provenance)
    if provenance.unit != "cell":
        raise InputError(f"{model.name} measures in {provenance.unit}; train one in units of the cell")
    LearnedMethod(network, 1.0)  # refuses one that is not convolutional
    return model


FOLDER = Path(__file__).parent / "models"
CHECKSUMS = "SHA256SUMS"
SUFFIX = ".safetensors"


def names() -> list[str]:
    """Return what networks there are, sorted."""
    return sorted(_checksums())


def path(name: str) -> Path:
    """Return the file of a network."""
    if name not in _checksums():
        raise InputError(f"no model is called {name!r}; {_there_are()}")
    return FOLDER / (name + SUFFIX)


def card(name: str) -> str:
    """Return a network's card, in Markdown: what it is for, how it was made, how good it is."""
    return path(name).with_suffix(".md").read_text()


def verify(name: str) -> None:
    """Refuse a network whose file is not the one that was shipped."""
    file = path(name)
    try:
        found = file_sha256(file)
    except OSError as error:
        raise InputError(f"{file} cannot be read; install pdrn again") from error
    if found != _checksums()[name]:
        raise InputError(f"{file} is not what was shipped; install pdrn again")


@dataclass(frozen=True)
class Facts:
    """What a network is, in figures."""

    name: str
    sample_rate_hz: int
    weights: int
    bytes: int
    stream_latency_samples: int


def facts(name: str) -> Facts:
    """Return what a network is, in figures."""
    model = shipped(name)
    rate = _rate(model.provenance)
    method = model.method(rate, 1.0)
    return Facts(
        name=name,
        sample_rate_hz=rate,
        weights=sum(part.size for part in model.network.weights.values()),
        bytes=path(name).stat().st_size,
        stream_latency_samples=Blockwise(method, method.stream_block).latency,
    )


def sample_rate_of(name: str) -> int:
    """Return the sample rate of the sound that a network is for."""
    return _rate(describe(path(name))[1])


def for_rate(rate_hz: int) -> list[str]:
    """Return the networks for sound of this rate, the largest first."""
    fitting = [name for name in names() if sample_rate_of(name) == rate_hz]
    return sorted(fitting, key=lambda name: path(name).stat().st_size, reverse=True)


def shipped(name: str) -> Model:
    """Return a network that comes with the package."""
    return model_of(path(name), name)


def shipped_or_own(model: str) -> Model:
    """Return a network that comes with the package, by its name, or another, by its path."""
    return model_of(file_of(model), model if model in _checksums() else None)


def file_of(model: str) -> Path:
    """Return the file of a network that comes with the package, by its name, or of another, by its path."""
    if model in _checksums():
        return path(model)
    if not os.path.exists(model):
        raise InputError(f"no model is called {model!r}, and no file; {_there_are()}")
    return Path(model)


def _rate(provenance: Provenance) -> int:
    if provenance.sample_rate_hz is None:
        raise InputError("a network that is shipped has to say what sample rate it is for; ship it again")
    return provenance.sample_rate_hz


def _checksums() -> dict[str, str]:
    try:
        lines = (FOLDER / CHECKSUMS).read_text().splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split() for line in lines)
    return {file.removesuffix(SUFFIX): checksum for checksum, file in pairs}


def _there_are() -> str:
    return f"there are {', '.join(names())}" if names() else "none comes with this package; name a file"


MethodName = Literal["auto", "both", "network", "cp"]

FINEST_STEP = 2 / 2**9
"""Networks have learned from levels about as close as this, and from no closer ones."""

_ROUNDING = 1 + 1e-3  # a step that was detected may be a little off


def check_method(method: str, model: str | None, iterations: int | None, shifts: int | None) -> None:
    """Refuse a method that there is not, and one that contradicts what else is wanted."""
    if method not in get_args(MethodName):
        raise InputError(f"the methods are {', '.join(get_args(MethodName))}; there is no {method!r}")
    if iterations is not None and method != "both" and (model is not None or method == "network"):
        raise InputError("a network has its layers, and no iterations; leave one of the two out")
    if model is not None and method == "cp":
        raise InputError("method cp takes no model; leave one of the two out")
    if shifts is not None and (method == "cp" or not isinstance(shifts, int) or shifts < 1):
        raise InputError(f"shifts are for networks, one or more, got {shifts} for method {method}")


def automatic(sample_rate_hz: int, step: float | None) -> Model | None:
    """Return the network that restores sound of this rate and step unless told otherwise, if one does."""
    if step is None or step * _ROUNDING < FINEST_STEP:
        return None
    fitting = for_rate(sample_rate_hz)
    return shipped(fitting[0]) if fitting else None


def network_for(sample_rate_hz: int) -> Model:
    """Return the largest network for sound of this rate."""
    fitting = for_rate(sample_rate_hz)
    if not fitting:
        known = [f"{name} ({sample_rate_of(name)} Hz)" for name in names()]
        there_is = f"; there are {', '.join(known)}" if known else ""
        raise InputError(f"no network is for {sample_rate_hz} Hz{there_is}; choose method cp")
    return shipped(fitting[0])
