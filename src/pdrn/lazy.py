"""Lazy exports: a package offers names of its modules, and imports these when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, names: Sequence[str], modules: Sequence[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose `names` are found in its `modules`.

    Modules are imported in turn until one has the name: put light ones first.

    Examples
    --------
    >>> get, list_names = lazy_exports("pdrn.audio", ["Cells"], ["cells", "files"])
    >>> get("Cells"), list_names()
    (<class 'pdrn.audio.cells.Cells'>, ['Cells'])
    """

    def get(name: str) -> Any:
        if name in names:
            for module in modules:
                if hasattr(found := import_module(f"{package}.{module}"), name):
                    setattr(sys.modules[package], name, getattr(found, name))
                    return getattr(found, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: list(names)
