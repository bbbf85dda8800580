"""Primal-dual networks: the iterations of Chambolle-Pock, unrolled and learned.

Networks run on NumPy arrays, without torch. Only ``unroll``, which returns a torch module, and
``pdrn.nets.torch`` import it.
"""

from pdrn.nets.maps import ConvolutionalMap, DenseMap
from pdrn.nets.primal_dual import Architecture, CellArchitecture, PrimalDual
from pdrn.nets.runtime import Network
from pdrn.nets.spectral import SpectralPrimalDual
from pdrn.nets.unrolling import unroll

__all__ = [
    "Architecture",
    "CellArchitecture",
    "ConvolutionalMap",
    "DenseMap",
    "Network",
    "PrimalDual",
    "SpectralPrimalDual",
    "unroll",
]


def __dir__() -> list[str]:
    return __all__
