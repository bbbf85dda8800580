"""Networks as files: safetensors with a JSON description, and ONNX. Loading executes no code.

A file holds the architecture, the weights and the provenance of a network: unit, sample rate, data, training,
seed, version, licence. Names, shapes and dtypes are checked against the architecture before a tensor is read.
``encode`` and ``decode`` turn dataclasses into tables and back; configurations use them, too.
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
from pdrn.nets.primal_dual import Architecture, CellArchitecture, PrimalDual
from pdrn.nets.related import LISTA, DeepPrimalDual, LearnedPrimalDual, ResidualNetwork
from pdrn.nets.runtime import Network, check_shapes
from pdrn.nets.spectral import SpectralPrimalDual
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
        SpectralPrimalDual,
        Unrolling,
    )
}
"""The dataclasses that a file may name."""

STORED_TYPES = ("F16", "F32", "F64")
"""Dtypes of tensors in a file."""

Unit = Literal["full scale", "cell"]


@dataclass(frozen=True)
class Provenance:
    """Unit and origin of a network's weights."""

    unit: Unit = "full scale"
    """Unit of the signals: full scale, or the width of their cells."""
    sample_rate_hz: int | None = None
    """Sample rate of the training sound."""
    data: str = ""
    """The training data, with attribution."""
    licence: str = ""
    corpus_sha256: str = ""
    seed: int | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    """The complete configuration of the training, and the epoch of these weights."""
    version: str = field(default_factory=lambda: version("pdrn"))
    """Version of pdrn that wrote the file."""

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

    ``half`` stores the weights in 16 bits, which halves the file; ``load`` returns them as float32.
    """
    if not isinstance(network, Network):
        raise InputError(f"only a Network can be saved; call network() of this {type(network).__name__}")
    described = {
        "format": FORMAT,
        "architecture": encode(network.architecture),
        "provenance": dataclasses.asdict(provenance or Provenance()),
    }
    tensors = dataclasses.replace(network).weights  # checked again: the arrays may have been written to
    if half:
        with np.errstate(over="ignore"):
            tensors = {name: part.astype(np.float16) for name, part in tensors.items()}
        if not all(np.isfinite(part).all() for part in tensors.values()):
            raise InputError("some weights are too large for 16 bits; store them in 32")
    try:
        described = json.loads(json.dumps(described, allow_nan=False))  # as load sees it
    except (TypeError, ValueError) as error:
        raise InputError(f"the provenance cannot be written as JSON: {error}") from error
    described["sha256"] = content_sha256(described, tensors)
    contents = safetensors.numpy.save(tensors, {METADATA_KEY: json.dumps(described)})
    with atomic_write(path, overwrite) as stream:
        stream.write(contents)


def load(path: str | os.PathLike[str]) -> tuple[Network, Provenance]:
    """Read a network and its provenance; raise ModelError for a file that is damaged or inconsistent."""
    with _opened(path) as file:
        described, architecture, provenance = _description(file.metadata() or {})
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        check_shapes(architecture, {name: tuple(part.get_shape()) for name, part in slices.items()})
        for name, part in slices.items():
            if part.get_dtype() not in STORED_TYPES:
                raise InputError(f"tensor {name} has dtype {part.get_dtype()}, not a float")
        stored = {name: file.get_tensor(name) for name in slices}
        # Networks compute in 32 or 64 bits; only files have 16.
        dtypes = {name: np.promote_types(part.dtype, np.float32) for name, part in stored.items()}
        weights = {name: part.astype(dtypes[name], copy=False) for name, part in stored.items()}
        network = Network(architecture, weights)
        verify_checksum(described, stored)
        return network, provenance


def describe(path: str | os.PathLike[str]) -> tuple[Architecture, Provenance]:
    """Read the architecture and provenance of a network, but not its weights."""
    with _opened(path) as file:
        _, architecture, provenance = _description(file.metadata() or {})
        return architecture, provenance


def require_cells(architecture: Architecture) -> CellArchitecture:
    """Return an architecture for sound; raise InputError for one that was unrolled from a problem."""
    if not isinstance(architecture, CellArchitecture):
        raise InputError("this network was unrolled from a problem; choose one for sound")
    return architecture


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a file of tensors; raise every InputError as a ModelError that names the file."""
    try:
        with open_tensors(path) as file:
            yield file
    except InputError as error:
        raise ModelError(f"{path} is not a usable network: {printable(error)}") from error


def _description(metadata: Mapping[str, str]) -> tuple[dict[str, Any], Architecture, Provenance]:
    if METADATA_KEY not in metadata:
        raise InputError("it has no description of a network; was it written by another program?")
    try:
        described = json.loads(metadata[METADATA_KEY], object_pairs_hook=_without_duplicates)
        json.dumps(described, ensure_ascii=False).encode()  # fails for lone surrogates, which do not print
    except (ValueError, RecursionError) as error:
        raise InputError("its description is damaged") from error
    if not isinstance(described, dict) or type(described.get("format")) is not int or described["format"] < 1:
        raise InputError("its description is damaged")
    if described["format"] > FORMAT:
        raise InputError(f"it has format {described['format']}, newer than this version reads; update pdrn")
    architecture = decode(Architecture, described.get("architecture"), "architecture")
    return described, architecture, decode(Provenance, described.get("provenance"), "provenance")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key occurs twice")
    return table


def encode(value: Any) -> Any:
    """Return a dataclass as tables and lists for JSON or TOML; ``decode`` reads them back.

    The table of an architecture or map also has its ``kind``, the name of its class.
    """
    if isinstance(value, tuple):
        return [encode(part) for part in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    table = {each.name: encode(getattr(value, each.name)) for each in dataclasses.fields(value)}
    kind = type(value).__name__
    return {"kind": kind} | table if kind in KINDS else table


def decode(kind: Any, table: Any, place: str = "") -> Any:
    """Make a dataclass from a table; raise InputError for unknown keys and values of another type.

    Missing keys have their defaults. ``place`` names the table in errors; default: the configuration.
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
        raise InputError(f"{place} has no {unknown[0]!r}; its keys are {', '.join(fields)}")
    required = [name for name, each in fields.items() if each.default is MISSING is each.default_factory]
    if missing := [name for name in required if name not in table]:
        raise InputError(f"{place} needs {', '.join(missing)}")
    hints = get_type_hints(kind)
    return kind(**{key: _decode_field(hints[key], value, prefix + key) for key, value in table.items()})


def _decode_field(kind: Any, value: Any, place: str) -> Any:
    """Return a value as a field of this type; raise InputError if it has another."""
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


EXAMPLE_LENGTH = 4096
"""Length of the signals with which a convolutional network is traced; the graph takes any length."""


def export(path: str | os.PathLike[str], network: Network, *, overwrite: bool = False) -> None:
    """Write a network on cells as ONNX, atomically.

    The graph has inputs ``lower`` and ``upper`` and an output ``restored``, of shape ``(batch, samples)`` in
    the dtype of the weights. The batch may have any size; signals may, too, unless the network is for frames.
    The graph of a spectral network is for one sample rate: export ``network.at(rate)``.
    """
    import torch

    from pdrn.nets.torch import NetworkModule

    frame_length = require_cells(network.architecture).frame_length
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
    """Trace a module with cells of this length, dynamic in the axes of ``sizes``, and write the graph."""
    import torch

    example = torch.zeros(2, length, dtype=next(iter(module.state_dict().values())).dtype)
    exporter_log = logging.getLogger("torch.onnx")
    level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)  # it warns of missing packages that these networks do not need
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
        raise InputError("torch cannot export this network to ONNX")
    with atomic_write(path, overwrite) as stream:
        stream.write(program.model_proto.SerializeToString())
