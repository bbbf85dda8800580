"""Primal-dual networks: the iterations of Chambolle-Pock, unrolled and learned.

Everything here runs on NumPy arrays without torch, but for ``unroll``, which makes a torch module;
``pdrn.nets.torch`` has the other ones.
"""

from typing import TYPE_CHECKING, Any

from pdrn.nets.maps import ConvolutionalMap, DenseMap
from pdrn.nets.primal_dual import Architecture, PrimalDual
from pdrn.nets.runtime import Network
from pdrn.nets.unrolling import Unrolled

if TYPE_CHECKING:
    from pdrn.nets.torch import unroll

__all__ = ["Architecture", "ConvolutionalMap", "DenseMap", "Network", "PrimalDual", "Unrolled", "unroll"]


def __getattr__(name: str) -> Any:
    """Import torch when a module is asked for, not before."""
    if name == "unroll":
        from pdrn.nets.torch import unroll

        return unroll
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
