"""Networks as files: safetensors with a JSON description, and ONNX. Loading executes nothing.

A file holds the architecture, the weights and the provenance of a network: unit, sample rate, data, training,
seed, version, licence. Names, shapes and types are checked against the architecture before a tensor is read.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field
from importlib.metadata import version
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import safetensors.numpy

from pdrn.errors import InputError, ModelError, printable
from pdrn.nets.maps import ConvolutionalMap, DenseMap
from pdrn.nets.primal_dual import Architecture, Arrays, CellArchitecture, PrimalDual
from pdrn.nets.related import LISTA, DeepPrimalDual, LearnedPrimalDual, ResidualNetwork
from pdrn.nets.runtime import Network, check_shapes
from pdrn.nets.unrolling import Unrolling
from pdrn.storage import atomic_write, content_sha256, open_tensors, verify_checksum

if TYPE_CHECKING:
    import torch

FORMAT = 1
"""Increased when earlier versions cannot read the files of this one."""

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
"""The dataclasses that a file may name."""

STORED_TYPES = ("F16", "F32", "F64")
"""Types that tensors in a file may have."""

Unit = Literal["full scale", "cell"]


@dataclass(frozen=True)
class Provenance:
    """The unit and the origin of a network's weights."""

    unit: Unit = "full scale"
    """Unit of the signals: full scale, or the width of a cell."""
    sample_rate_hz: int | None = None
    """Sample rate of the training sound."""
    data: str = ""
    """The training data, with attribution."""
    licence: str = ""
    corpus_sha256: str = ""
    seed: int | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    """The complete configuration of the training, and its last epoch."""
    version: str = field(default_factory=lambda: version("pdrn"))
    """Version of this package that wrote the file."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Provenance).items():
            _decode_field(kind, getattr(self, name), name)
        for name in ("sample_rate_hz", "seed"):
            if (getattr(self, name) or 0) < 0:
                raise InputError(f"{name} cannot be negative, got {getattr(self, name)}")


def save(
    path: str | os.PathLike[str],
    network: Network,
    provenance: Provenance | None = None,
    *,
    half: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a network to a file, atomically.

    ``half`` stores the weights in 16 bits, which halves the file; they come back as float32.
    """
    if not isinstance(network, Network):
        raise InputError(f"a {type(network).__name__} cannot be saved; save what its network() returns")
    described = {
        "format": FORMAT,
        "architecture": encode(network.architecture),
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
    described["sha256"] = content_sha256(described, tensors)
    contents = safetensors.numpy.save(tensors, {METADATA_KEY: json.dumps(described)})
    with atomic_write(path, overwrite) as stream:
        stream.write(contents)


def load(path: str | os.PathLike[str]) -> tuple[Network, Provenance]:
    """Read a network and its provenance, refusing a file that is not exactly what it says it is."""
    with _opened(path) as file:
        described, architecture, provenance = _description(file.metadata() or {})
        stored = _stored(file, architecture)
        network = Network(architecture, _widened(stored))
        verify_checksum(described, stored)
        return network, provenance


def describe(path: str | os.PathLike[str]) -> tuple[Architecture, Provenance]:
    """Read the architecture and provenance of a network, without its weights."""
    with _opened(path) as file:
        _, architecture, provenance = _description(file.metadata() or {})
        return architecture, provenance


def require_cells(architecture: Architecture) -> CellArchitecture:
    """Return an architecture of networks for sound, refusing one that was unrolled from a problem."""
    if not isinstance(architecture, CellArchitecture):
        raise InputError("this network was unrolled from a problem and takes no sound; choose another")
    return architecture


def _stored(file: Any, architecture: Architecture) -> Arrays:
    """Read the tensors, after a look at their names, shapes and types."""
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    check_shapes(architecture, {name: tuple(part.get_shape()) for name, part in slices.items()})
    for name, part in slices.items():
        if part.get_dtype() not in STORED_TYPES:
            raise InputError(f"tensor {name} is of type {part.get_dtype()}, not a float")
    return {name: file.get_tensor(name) for name in slices}


def _widened(tensors: Arrays) -> Arrays:
    """Return tensors in float32 or float64: 16 bits are for files only."""
    return {
        name: part.astype(np.promote_types(part.dtype, np.float32), copy=False)
        for name, part in tensors.items()
    }


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a file of tensors; errors name the file."""
    try:
        with open_tensors(path) as file:
            yield file
    except InputError as error:
        raise ModelError(f"{path} is not a network that can be used: {printable(error)}") from error


def _description(
    metadata: Mapping[str, str],
) -> tuple[dict[str, Any], Architecture, Provenance]:
    if METADATA_KEY not in metadata:
        raise InputError("it does not say what network it holds; was it written by another program?")
    described = _parsed(metadata[METADATA_KEY])
    if not isinstance(described, dict) or type(described.get("format")) is not int or described["format"] < 1:
        raise InputError("its description is damaged")
    if described["format"] > FORMAT:
        raise InputError(f"it has format {described['format']}, newer than this version reads; update pdrn")
    architecture = decode(Architecture, described.get("architecture"), "architecture")
    return described, architecture, decode(Provenance, described.get("provenance"), "provenance")


def _parsed(text: str) -> Any:
    """Parse JSON, refusing NaN, repeated names and lone surrogates."""
    try:
        value = json.loads(text, parse_constant=_no_number, object_pairs_hook=_no_duplicates)
        json.dumps(value, ensure_ascii=False).encode()
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


def encode(value: Any) -> Any:
    """Return a dataclass as tables and lists, which JSON and TOML can hold; ``decode`` reads them back.

    A part of a network also says its ``kind``, since a field may hold one of several.
    """
    if isinstance(value, tuple):
        return [encode(part) for part in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    table = {each.name: encode(getattr(value, each.name)) for each in dataclasses.fields(value)}
    kind = type(value).__name__
    return {"kind": kind} | table if kind in KINDS else table


def decode(kind: Any, table: Any, place: str = "") -> Any:
    """Make a dataclass from a table, refusing unknown keys and values of another type.

    Fields that the table lacks have their defaults. Errors name the place; default: the configuration.
    """
    prefix, place = f"{place}." if place else "", place or "the configuration"
    if not isinstance(table, Mapping):
        raise InputError(f"{place} must be a table, got {table!r}")
    if not dataclasses.is_dataclass(kind) or inspect.isabstract(kind):
        wanted = get_args(kind) or (kind,)
        names = [name for name, each in KINDS.items() if issubclass(each, wanted)]
        if (name := table.get("kind")) not in names:
            raise InputError(f"{place}.kind must be one of {', '.join(names)}, got {name!r}")
        kind, table = KINDS[name], {key: value for key, value in table.items() if key != "kind"}
    fields = {each.name: each for each in dataclasses.fields(kind)}
    if unknown := sorted(table.keys() - fields.keys()):
        raise InputError(f"{place} has no {unknown[0]!r}; there are {', '.join(fields)}")
    if missing := [name for name, each in fields.items() if _is_required(each) and name not in table]:
        raise InputError(f"{place} needs {', '.join(missing)}")
    hints = get_type_hints(kind)
    return kind(**{key: _decode_field(hints[key], value, prefix + key) for key, value in table.items()})


def _decode_field(kind: Any, value: Any, place: str) -> Any:
    """Return a value as a field of this type, refusing any other."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in args:
            raise InputError(f"{place} must be one of {', '.join(args)}, got {value!r}")
        return value
    if kind in _WORDS:
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(f"{place} must be {_WORDS[kind]}, got {value!r}")
        return kind(value)
    if origin is tuple:
        parts = value if isinstance(value, list | tuple) else [value]
        return tuple(_decode_field(args[0], part, place) for part in parts)
    if NoneType in args:
        return value if value is None else _decode_field(args[0], value, place)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise InputError(f"{place} must be a table, got {value!r}")
        return value
    return decode(kind, value, place)


_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


EXAMPLE_LENGTH = 4096
"""Length of the signals with which a network without frames is traced; the file takes any length."""


def export(path: str | os.PathLike[str], network: Network, *, overwrite: bool = False) -> None:
    """Write a network on cells as ONNX, atomically.

    The graph has inputs ``lower`` and ``upper`` and an output ``restored``, of shape ``(batch, samples)`` in
    the type of the weights. The batch may have any size, and so may signals, except for a network on frames.
    """
    import torch

    from pdrn.nets.torch import NetworkModule

    frame_length = require_cells(network.architecture).map.frame_length
    any_size = torch.export.Dim.DYNAMIC
    sizes = {0: any_size} if frame_length else {0: any_size, 1: any_size}
    _write_onnx(path, NetworkModule.of(network), frame_length or EXAMPLE_LENGTH, sizes, overwrite)


def export_block(
    path: str | os.PathLike[str],
    network: Network,
    before: int,
    length: int,
    after: int,
    *,
    overwrite: bool = False,
) -> None:
    """Write the step of a stream as ONNX: a network on the cells of a block and of its surroundings.

    The graph is that of `export` with other sizes: ``lower`` and ``upper`` have shape ``(batch, before +
    length + after)``, and ``restored`` is the middle of the result, ``(batch, length)``.
    """
    import torch

    from pdrn.nets.torch import NetworkModule

    class Middle(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = NetworkModule.of(network)

        def forward(self, lower: torch.Tensor, upper: torch.Tensor) -> torch.Tensor:
            restored: torch.Tensor = self.module(lower, upper)
            return restored[..., before : before + length]

    _write_onnx(path, Middle(), before + length + after, {0: torch.export.Dim.DYNAMIC}, overwrite)


def _write_onnx(
    path: str | os.PathLike[str], module: torch.nn.Module, length: int, sizes: dict[int, Any], overwrite: bool
) -> None:
    """Trace a module with cells of this length, of which some sizes may be any, and write the graph."""
    import torch

    example = torch.zeros(2, length, dtype=next(iter(module.state_dict().values())).dtype)
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)  # it warns of packages that no network of ours needs
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            program = torch.onnx.export(
                module.eval(),
                (example - 0.5, example + 0.5),
                dynamo=True,
                dynamic_shapes=(sizes, sizes),
                input_names=["lower", "upper"],
                output_names=["restored"],
                verbose=False,
            )
    finally:
        exporter_log.setLevel(level)
    if program is None:
        raise InputError("torch made no ONNX program of this network")
    with atomic_write(path, overwrite) as stream:
        stream.write(program.model_proto.SerializeToString())
