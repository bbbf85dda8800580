"""A network as a method: convolutional, and so local; in units of the cell, and so for any bit depth."""

from __future__ import annotations

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.nets import Network, PrimalDual
from pdrn.nets.maps import ConvolutionalMap

UNKNOWN = 16.0
"""Where a sample is missing, the network looks for it so many steps to either side of zero."""


class LearnedMethod:
    """A network for cells that are all ``step`` wide, but for open-ended ones at full scale; see `Method`."""

    def __init__(self, network: Network, step: float) -> None:
        plan = network.architecture
        if not (isinstance(plan, PrimalDual) and isinstance(plan.map, ConvolutionalMap)):
            raise ValueError("sound of any length takes a convolutional primal-dual network; choose another")
        if not 0 < step < np.inf:
            raise ValueError(f"a step is a positive finite number, got {step}")
        self.hop, self.frame_length, self.context = plan.map.hop, plan.map.window, max(plan.reach)
        self._network, self._step = network, step

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel."""
        lo, hi = cells.lo / self._step, cells.hi / self._step
        no_lo, no_hi = np.isneginf(lo), np.isposinf(hi)
        lower = np.where(no_lo, np.where(no_hi, -UNKNOWN, hi - 1), lo)
        upper = np.where(no_hi, np.where(no_lo, UNKNOWN, lo + 1), hi)
        restored: FloatArray = self._network(lower, upper) * self._step
        return restored[self.context : len(restored) - self.context]
