"""Primal-dual networks: the iterations of Chambolle-Pock, unrolled and learned.

Everything here runs on NumPy arrays without torch, except ``unroll``, which makes a torch module, and
``pdrn.nets.torch``.
"""

from pdrn.nets.maps import ConvolutionalMap, DenseMap
from pdrn.nets.primal_dual import Architecture, CellArchitecture, PrimalDual
from pdrn.nets.runtime import Network
from pdrn.nets.unrolling import unroll

__all__ = [
    "Architecture",
    "CellArchitecture",
    "ConvolutionalMap",
    "DenseMap",
    "Network",
    "PrimalDual",
    "unroll",
]
