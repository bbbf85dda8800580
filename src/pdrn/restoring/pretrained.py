"""Networks that come with the package: weights, a card for each, and checksums.

The folder `models` holds NAME.safetensors, NAME.md and SHA256SUMS, the list of what there is, in the form
that ``sha256sum --check`` reads. `tools/ship_model.py` puts a network there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pdrn.audio.system import sha256
from pdrn.nets.checkpoint import Provenance, describe
from pdrn.restoring.blockwise import Blockwise
from pdrn.restoring.trained import Model, model_of

FOLDER = Path(__file__).parent / "models"
CHECKSUMS = "SHA256SUMS"
SUFFIX = ".safetensors"


def names() -> list[str]:
    """Return what networks there are, sorted."""
    return sorted(_checksums())


def path(name: str) -> Path:
    """Return the file of a network."""
    if name not in _checksums():
        raise ValueError(f"no model is called {name!r}; {_there_are()}")
    return FOLDER / (name + SUFFIX)


def card(name: str) -> str:
    """Return a network's card, in Markdown: what it is for, how it was made, how good it is."""
    return path(name).with_suffix(".md").read_text()


def verify(name: str) -> None:
    """Refuse a network whose file is not the one that was shipped."""
    file = path(name)
    try:
        found = sha256(file)
    except OSError as error:
        raise ValueError(f"{file} cannot be read; install pdrn again") from error
    if found != _checksums()[name]:
        raise ValueError(f"{file} is not what was shipped; install pdrn again")


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


def sample_rate_hz(name: str) -> int:
    """Return the sample rate of the sound that a network is for."""
    return _rate(describe(path(name))[1])


def for_rate(rate_hz: int) -> list[str]:
    """Return the networks for sound of this rate, the largest first."""
    fitting = [name for name in names() if sample_rate_hz(name) == rate_hz]
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
        raise ValueError(f"no model is called {model!r}, and no file; {_there_are()}")
    return Path(model)


def _rate(provenance: Provenance) -> int:
    if provenance.sample_rate_hz is None:
        raise ValueError("a network that is shipped has to say what sample rate it is for; ship it again")
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
