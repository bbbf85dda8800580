"""Values of dataclasses as tables, and tables as values: what JSON and TOML can say of a configuration."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pdrn.nets import Architecture
from pdrn.nets.checkpoint import KINDS


def as_table(config: Any) -> Any:
    """Return a configuration as what JSON and TOML can say; ``made`` reads it back."""
    if isinstance(config, tuple):
        return [as_table(part) for part in config]
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return config
    table = {part.name: as_table(getattr(config, part.name)) for part in dataclasses.fields(config)}
    is_part_of_network = type(config).__name__ in KINDS
    return {"kind": type(config).__name__} | table if is_part_of_network else table


def as_toml(config: Any) -> str:
    """Return a configuration as TOML, with everything said that has a default."""
    table = as_table(config)
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


def made(kind: Any, table: Any, place: str = "") -> Any:
    """Make a value of a dataclass from a table, refusing keys that it does not have.

    Errors name the place in the configuration; without one it is the whole.
    """
    prefix, place = f"{place}." if place else "", place or "the configuration"
    if not isinstance(table, Mapping):
        raise ValueError(f"{place} must be a table, got {table!r}")
    if kind is Architecture or get_origin(kind) in (Union, types.UnionType):
        wanted = get_args(kind) or (kind,)
        names = [name for name, each in KINDS.items() if issubclass(each, wanted)]
        named = table.get("kind")
        if named not in names:
            raise ValueError(f"{place}.kind must be one of {', '.join(names)}, got {named!r}")
        kind, table = KINDS[named], {key: value for key, value in table.items() if key != "kind"}
    fields = {part.name: part for part in dataclasses.fields(kind)}
    if unknown := sorted(table.keys() - fields.keys()):
        raise ValueError(f"{place} has no {unknown[0]!r}; there are {', '.join(fields)}")
    required = [name for name, part in fields.items() if _is_required(part) and name not in table]
    if required:
        raise ValueError(f"{place} needs {', '.join(required)}")
    hints = get_type_hints(kind)
    return kind(**{key: _checked(hints[key], value, prefix + key) for key, value in table.items()})


def _checked(kind: Any, value: Any, place: str) -> Any:
    """Return a value as a field of this type, refusing any other."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{place} must be one of {', '.join(get_args(kind))}, got {value!r}")
        return value
    if kind in (str, bool, int, float):
        if type(value) is not kind and not (kind is float and type(value) is int):
            words = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
            raise ValueError(f"{place} must be {words[kind]}, got {value!r}")
        return kind(value)
    if get_origin(kind) is tuple:
        parts = value if isinstance(value, list | tuple) else [value]
        return tuple(_checked(get_args(kind)[0], part, place) for part in parts)
    return made(kind, value, place)


def _is_required(part: dataclasses.Field[Any]) -> bool:
    return part.default is dataclasses.MISSING and part.default_factory is dataclasses.MISSING
