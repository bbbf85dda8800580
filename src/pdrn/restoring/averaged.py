"""A network and Chambolle-Pock, averaged: two answers that lie in the cells, and a mean that does too.

They err in different ways, so that the mean of equally good answers is better than both; and where a network
hears what it was not trained on, as music, the solver holds it.
"""

from __future__ import annotations

import math

from pdrn.audio.cells import Cells, FloatArray
from pdrn.restoring.learned import LearnedMethod
from pdrn.restoring.method import Method
from pdrn.restoring.overlapped import OverlappedChambollePock

NETWORK_SHARE = 0.7
"""How much of the mean is the network's; chosen on held-out speech (results/LOG.md)."""


class Averaged:
    """The mean of what a network and Chambolle-Pock restore; see `Method`."""

    name = "both"

    def __init__(
        self, network: LearnedMethod, solver: OverlappedChambollePock, share: float = NETWORK_SHARE
    ) -> None:
        self.network, self.model = network, network.model
        self._parts: tuple[tuple[Method, float], ...] = ((network, share), (solver, 1 - share))
        self.before = max(network.before, solver.before)
        self.after = max(network.after, solver.after)
        grid = math.lcm(network.hop, solver.hop)
        self.stream_block, self.offline_block = (
            -(-max(lengths) // grid) * grid
            for lengths in (
                (network.stream_block, solver.stream_block),
                (network.offline_block, solver.offline_block),
            )
        )

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel."""
        length = cells.shape[-1]
        network, solver = (
            share * part.restore(cells[self.before - part.before : length - (self.after - part.after)])
            for part, share in self._parts
        )
        return network + solver

    def follow(self) -> None:
        """Return None: every block is computed from its surroundings."""
