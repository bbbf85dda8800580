"""Primal-dual networks: the iterations of Chambolle-Pock, unrolled and learned.

Everything here runs on NumPy arrays without torch; ``pdrn.nets.modules`` has the torch modules.
"""

from pdrn.nets.architecture import Architecture
from pdrn.nets.maps import ConvolutionalMap, DenseMap
from pdrn.nets.network import Network
from pdrn.nets.primal_dual import PrimalDual

__all__ = ["Architecture", "ConvolutionalMap", "DenseMap", "Network", "PrimalDual"]
