"""Primal-dual networks: restore quantized sound inside its cells.

>>> import numpy as np, pdrn
>>> pdrn.restore(np.array([0.125, 0.375, 0.125]), 16000, bits=3).shape
(3,)
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pdrn.errors import MissingDependencyError

if TYPE_CHECKING:
    from pdrn.audio.cells import Cells
    from pdrn.audio.files import read, write
    from pdrn.convex import solve
    from pdrn.nets import unroll
    from pdrn.nets.files import load
    from pdrn.nets.torch import PDN, PDRN
    from pdrn.restoration.restorer import Restorer, restore

    __version__: str

__all__ = [
    "PDN",
    "PDRN",
    "Cells",
    "Restorer",
    "__version__",
    "load",
    "read",
    "restore",
    "solve",
    "unroll",
    "write",
]

_MODULES = {
    "Cells": "pdrn.audio.cells",
    "PDN": "pdrn.nets.torch",
    "PDRN": "pdrn.nets.torch",
    "Restorer": "pdrn.restoration.restorer",
    "load": "pdrn.nets.files",
    "read": "pdrn.audio.files",
    "restore": "pdrn.restoration.restorer",
    "solve": "pdrn.convex",
    "unroll": "pdrn.nets",
    "write": "pdrn.audio.files",
}
_NEED_TORCH = ("PDN", "PDRN", "unroll")


def __getattr__(name: str) -> Any:
    """Import on first use, so that importing the package costs nothing."""
    if name == "__version__":
        from importlib.metadata import version

        return version("pdrn")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEED_TORCH and find_spec("torch") is None:
        raise MissingDependencyError(f"pdrn.{name} needs torch: pip install 'pdrn[train]'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
