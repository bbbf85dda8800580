"""A network as a method: convolutional, and so local; in units of the cell, and so for any bit depth."""

from __future__ import annotations

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.nets import Network, PrimalDual
from pdrn.nets.maps import ConvolutionalMap
from pdrn.nets.running import RunningNetwork
from pdrn.restoring.method import RestoreBlock

UNKNOWN = 16.0
"""Where a sample is missing, the network looks for it so many steps to either side of zero."""

SHIFTS = 2
"""On so many grids a network is run whose results are averaged, unless it is causal: that has one."""

OFFLINE_HOPS = 100
"""Blocks of what is there already, in hops."""


MOST_NUMBERS = 1 << 24
"""No array that restores a block has more: a small file may ask for endless windows, layers and hops."""

MOST_PRODUCTS = 1 << 38
"""No block takes more multiplications, 700 times those of `speech-large`: what takes ages is no answer."""


class LearnedMethod:
    """A network for cells that are all ``step`` wide, but for open-ended ones at full scale; see `Method`.

    Parameters
    ----------
    network : Network
        Convolutional, primal-dual, in units of the cell.
    step : float
    model : str
        What it is called.
    shifts : int, optional
        On how many grids it is run, a fraction of a hop apart; the mean of the results lies in the cells as
        they do, and is better than each. One for causal networks and `SHIFTS` for others, unless given.
    """

    name = "network"

    def __init__(
        self, network: Network, step: float, *, model: str = "network", shifts: int | None = None
    ) -> None:
        plan = network.architecture
        if not (isinstance(plan, PrimalDual) and isinstance(plan.map, ConvolutionalMap)):
            raise ValueError("sound of any length takes a convolutional primal-dual network; choose another")
        if not 0 < step < np.inf:
            raise ValueError(f"a step is a positive finite number, got {step}")
        self.hop = plan.map.hop
        shifts = (1 if plan.causal else min(SHIFTS, self.hop)) if shifts is None else shifts
        if not 1 <= shifts <= self.hop:
            raise ValueError(f"a network with a hop of {self.hop} has 1 to {self.hop} shifts, got {shifts}")
        self.model = model
        self._displacements = [self.hop * shift // shifts for shift in range(shifts)]
        before, after = plan.reach
        # A displaced hop holds samples of two blocks: it begins up to a hop earlier, and ends later.
        self.before = before + (self.hop if shifts > 1 else 0)
        self.after = after + self._displacements[-1]
        # One that looks far ahead is late anyway, and would do most of its work on what is around the block.
        self.stream_block = self.hop if plan.causal else self.hop * max(-(-self.after // self.hop), 1)
        self.offline_block = OFFLINE_HOPS * self.hop
        self.network, self.step = network, step
        self._follows = plan.causal and shifts == 1
        _require_modest(plan, self.before + self.offline_block + self.after)

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel."""
        lower, upper = self.in_steps(cells)
        end = len(lower) - self.after
        total = sum(
            self.network(lower[shift:], upper[shift:])[self.before - shift : end - shift]
            for shift in self._displacements
        )
        restored: FloatArray = total * (self.step / len(self._displacements))
        return self.silenced(restored, cells)

    def follow(self) -> RestoreBlock | None:
        """Return what restores blocks of a stream where the network is causal: it goes on where it was."""
        return _Following(self) if self._follows else None

    def silenced(self, restored: FloatArray, cells: Cells) -> FloatArray:
        """Return what was restored of a stretch, with zeros where nothing but zeros is in sight.

        Networks would hear something in digital silence, however faint.
        """
        heard = np.cumsum(np.concatenate([[False], cells.lo != -cells.hi]))
        in_sight = self.before + self.after + 1
        return np.where(heard[in_sight:] == heard[:-in_sight], 0.0, restored)

    def by_layer(self, cells: Cells) -> list[FloatArray]:
        """Return what each layer makes of all of a stretch of one channel, on the first of the grids."""
        return [estimate * self.step for estimate in self.network.by_layer(*self.in_steps(cells))]

    def in_steps(self, cells: Cells) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of the cells in steps, all finite."""
        lo, hi = cells.lo / self.step, cells.hi / self.step
        no_lo, no_hi = np.isneginf(lo), np.isposinf(hi)
        lower = np.where(no_lo, np.where(no_hi, -UNKNOWN, hi - 1), lo)
        upper = np.where(no_hi, np.where(no_lo, UNKNOWN, lo + 1), hi)
        return lower, upper


class _Following:
    """A causal network on blocks of one hop, each next to the one before."""

    def __init__(self, method: LearnedMethod) -> None:
        self._method, self._hop = method, method.hop
        self._running = RunningNetwork(method.network)
        self._is_new = True

    def __call__(self, cells: Cells) -> FloatArray:
        news, self._is_new = cells if self._is_new else cells[-self._hop :], False
        lower, upper = self._method.in_steps(news)
        for start in range(0, len(lower), self._hop):
            hop = slice(start, start + self._hop)
            last = self._running.push(lower[hop], upper[hop])
        restored: FloatArray = last * self._method.step
        return self._method.silenced(restored, cells)


def _require_modest(plan: PrimalDual, length: int) -> None:
    """Refuse a network that takes absurd memory or time for a block that, with what is around, is so long."""
    channels, window = plan.map.kernel_shape
    views = plan.map.sizes((length,))[1] // channels
    if max(length, views * max(channels, window)) > MOST_NUMBERS or plan.products((length,)) > MOST_PRODUCTS:
        raise ValueError(
            f"this network looks at {length} samples at once, by {channels} filters of {window} in "
            f"{plan.depth} layers, which is beyond reason; choose a smaller one"
        )
