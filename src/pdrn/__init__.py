"""Primal-dual networks: restore quantized sound inside its cells.

>>> import numpy as np, pdrn
>>> pdrn.restore(np.array([0.125, 0.375, 0.125]), 16000, bits=3).shape
(3,)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdrn.restoration.restorer import Restorer, restore

__all__ = ["Restorer", "restore"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for, so that importing the package costs nothing."""
    if name in __all__:
        from pdrn.restoration import restorer

        return getattr(restorer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
