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
    from pdrn.audio.cells import Cells as Cells
    from pdrn.audio.files import read as read
    from pdrn.audio.files import write as write
    from pdrn.convex import solve as solve
    from pdrn.nets import unroll as unroll
    from pdrn.nets.files import load as load
    from pdrn.nets.torch import PDN as PDN
    from pdrn.nets.torch import PDRN as PDRN
    from pdrn.restoration.restorer import Restorer as Restorer
    from pdrn.restoration.restorer import restore as restore

    __version__: str

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

__all__ = ["__version__", *_MODULES]


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
