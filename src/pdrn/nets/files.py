"""Networks as files: safetensors with their plan and their history as JSON. Loading executes nothing.

A file says what the network is (its architecture), what its numbers mean (the unit of its signals, the sample
rate) and where it comes from (data, training, seed, version, licence). Names, shapes and types are checked
against the architecture before a tensor is read.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field
from importlib.metadata import version
from typing import Any, Literal, get_args

import numpy as np
import safetensors.numpy

from pdrn.errors import InputError, printable
from pdrn.nets.maps import ConvolutionalMap, DenseMap
from pdrn.nets.primal_dual import Architecture, PrimalDual
from pdrn.nets.related import LISTA, DeepPrimalDual, LearnedPrimalDual, ResidualNetwork
from pdrn.nets.runtime import Arrays, Network, Plan, check_weights
from pdrn.nets.unrolling import Unrolled, Unrolling
from pdrn.storage import atomic_write, digest, opened, verify_checksum

FORMAT = 1
"""Raised when files of this version could not be read by the versions before."""

METADATA_KEY = "pdrn"

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        ConvolutionalMap,
        DeepPrimalDual,
        DenseMap,
        LearnedPrimalDual,
        LISTA,
        PrimalDual,
        ResidualNetwork,
        Unrolling,
    )
}
"""What a file may ask for by name."""

STORED_TYPES = ("F16", "F32", "F64")
"""Types that tensors in a file may have."""

Unit = Literal["full scale", "cell"]


@dataclass(frozen=True)
class Provenance:
    """What a network's numbers mean, and where they come from."""

    unit: Unit = "full scale"
    """What signals are measured in: full scale is 1, or the width of a cell is."""
    sample_rate_hz: int | None = None
    """The sample rate of the sound that it was trained on."""
    data: str = ""
    """What it was trained on, with attribution."""
    licence: str = ""
    corpus_sha256: str = ""
    seed: int | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    """The training's complete configuration, and how far it went."""
    version: str = field(default_factory=lambda: version("pdrn"))
    """The version of this package that wrote the file."""

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise InputError(f"the unit must be one of {', '.join(get_args(Unit))}, got {self.unit!r}")
        for name in ("sample_rate_hz", "seed"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise InputError(f"{name} must be a whole number or nothing, got {value!r}")
        for name in ("data", "licence", "corpus_sha256", "version"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be text, got {getattr(self, name)!r}")
        if not isinstance(self.training, Mapping):
            raise InputError(f"training must be a table, got {self.training!r}")


def save(
    path: str | os.PathLike[str],
    network: Network | Unrolled,
    provenance: Provenance | None = None,
    *,
    half: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a network to a file, whole or not at all.

    ``half`` stores the weights in 16 bits, which halves the file; they come back as float32.
    """
    if not isinstance(network, Network | Unrolled):
        raise InputError(f"a {type(network).__name__} cannot be saved; save what its network() returns")
    described = {
        "format": FORMAT,
        "architecture": _encoded(network.architecture),
        "provenance": dataclasses.asdict(provenance or Provenance()),
    }
    tensors = dataclasses.replace(network).weights  # checked again: someone may have written to the arrays
    if half:
        with np.errstate(over="ignore"):
            tensors = {name: part.astype(np.float16) for name, part in tensors.items()}
        if not all(np.isfinite(part).all() for part in tensors.values()):
            raise InputError("some weights are too large for 16 bits; store them in 32")
    try:
        described = json.loads(json.dumps(described, allow_nan=False))  # as it is read again
    except (TypeError, ValueError) as error:
        raise InputError(f"the provenance cannot be written as JSON: {error}") from error
    described["sha256"] = digest(described, tensors)
    contents = safetensors.numpy.save(tensors, {METADATA_KEY: json.dumps(described)})
    with atomic_write(path, overwrite) as stream:
        stream.write(contents)


def load(path: str | os.PathLike[str]) -> tuple[Network, Provenance]:
    """Read a network and its provenance, refusing whatever is not exactly what the file says it is."""
    with _opened(path) as file:
        described, plan, provenance = _description(file.metadata() or {})
        architecture = _restoring(plan)
        stored = _stored(file, architecture)
        network = Network(architecture, _widened(stored))
        verify_checksum(described, stored)
        return network, provenance


def load_unrolled(path: str | os.PathLike[str]) -> tuple[Unrolled, Provenance]:
    """Read a network that was unrolled from a problem, as ``load`` does."""
    with _opened(path) as file:
        described, plan, provenance = _description(file.metadata() or {})
        if not isinstance(plan, Unrolling):
            raise InputError("it restores signals inside their cells; read it with load")
        stored = _stored(file, plan)
        unrolled = Unrolled(plan, _widened(stored))
        verify_checksum(described, stored)
        return unrolled, provenance


def describe(path: str | os.PathLike[str]) -> tuple[Architecture, Provenance]:
    """Read what a file says of its network, without the weights."""
    with _opened(path) as file:
        _, plan, provenance = _description(file.metadata() or {})
        return _restoring(plan), provenance


def _restoring(plan: Architecture | Unrolling) -> Architecture:
    if isinstance(plan, Unrolling):
        raise InputError("it was unrolled from a problem and takes no sound; read it with load_unrolled")
    return plan


def _stored(file: Any, plan: Plan) -> Arrays:
    """Read the tensors, after a look at their names, shapes and types."""
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    check_weights(plan, {name: tuple(part.get_shape()) for name, part in slices.items()})
    for name, part in slices.items():
        if part.get_dtype() not in STORED_TYPES:
            raise InputError(f"tensor {name} is of type {part.get_dtype()}, not a float")
    return {name: file.get_tensor(name) for name in slices}


def _widened(tensors: Arrays) -> Arrays:
    """Return tensors in a type that networks compute in: 16 bits are for files alone."""
    return {
        name: part.astype(np.promote_types(part.dtype, np.float32), copy=False)
        for name, part in tensors.items()
    }


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a file of tensors; whatever is wrong with it is said in one sentence."""
    try:
        with opened(path) as file:
            yield file
    except ValueError as error:
        raise InputError(f"{path} is not a network that can be used: {printable(error)}") from error


def _description(
    metadata: Mapping[str, str],
) -> tuple[dict[str, Any], Architecture | Unrolling, Provenance]:
    if METADATA_KEY not in metadata:
        raise InputError("it does not say what network it holds; was it written by another program?")
    described = _parsed(metadata[METADATA_KEY])
    if not isinstance(described, dict) or type(described.get("format")) is not int or described["format"] < 1:
        raise InputError("its description is damaged")
    if described["format"] > FORMAT:
        raise InputError(f"it has format {described['format']}, newer than this version reads; update pdrn")
    try:
        architecture = _decoded(described.get("architecture"))
    except RecursionError as error:
        raise InputError("its description is damaged") from error
    if not isinstance(architecture, Architecture | Unrolling):
        raise InputError(f"its description names no architecture but {described.get('architecture')!r}")
    provenance = described.get("provenance")
    if not isinstance(provenance, dict):
        raise InputError("its description has no provenance")
    return described, architecture, _made(Provenance, provenance)


def _parsed(text: str) -> Any:
    """Return what JSON in a file says; InputError where it is damaged, or says one thing twice."""
    try:
        value = json.loads(text, parse_constant=_no_number, object_pairs_hook=_no_duplicates)
        json.dumps(value, ensure_ascii=False).encode()  # no halves of characters
    except (ValueError, RecursionError) as error:
        raise InputError("its description is damaged") from error
    return value


def _no_number(name: str) -> float:
    raise InputError(f"{name} is no number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise InputError("a name is there twice")
    return table


def _encoded(value: Any) -> Any:
    """Turn an architecture into what JSON can say."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {field.name: _encoded(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"kind": type(value).__name__} | fields


def _decoded(value: Any) -> Any:
    """Turn what ``_encoded`` made back into an architecture."""
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"this version knows no network part called {kind!r}; update pdrn")
    return _made(KINDS[kind], {name: _decoded(part) for name, part in value.items() if name != "kind"})


def _made(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    known = {field.name: field for field in dataclasses.fields(kind)}
    # A field that came later has the default that stands for how it was before.
    needed = {name for name, field in known.items() if field.default is field.default_factory is MISSING}
    if differing := (fields.keys() - known.keys()) | (needed - fields.keys()):
        listed = ", ".join(sorted(differing))
        raise InputError(f"the description of its {kind.__name__} does not fit this version: {listed}")
    try:
        return kind(**fields)
    except TypeError as error:
        raise InputError(f"the description of its {kind.__name__} makes no sense: {error}") from error
