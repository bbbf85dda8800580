"""Methods that restore signals in their cells: Chambolle-Pock on frames, a network, their mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.frames import cut, join
from pdrn.convex import DCT, ChambollePock, Problem, dequantization, solve
from pdrn.errors import InputError
from pdrn.nets import Network, PrimalDual
from pdrn.nets.maps import ConvolutionalMap
from pdrn.nets.runtime import RunningNetwork

RestoreBlock: TypeAlias = Callable[[Cells], FloatArray]
"""Restores the middle of a stretch of one channel; see `Method.restore`."""


class Method(Protocol):
    """A local way to restore: what becomes of a sample depends only on the cells around it.

    Locality is what lets files of any length, streams and arrays share one code path: see `Blockwise`.
    """

    @property
    def name(self) -> str:
        """What users call it: network, cp, both."""
        ...

    @property
    def model(self) -> str | None:
        """The name of the network; None where nothing is learned, which is Chambolle-Pock."""
        ...

    @property
    def before(self) -> int:
        """How many cells before a block it looks at."""
        ...

    @property
    def after(self) -> int:
        """How many cells after a block it looks at."""
        ...

    @property
    def stream_block(self) -> int:
        """Length of the blocks of a stream: short, so that samples come out soon."""
        ...

    @property
    def offline_block(self) -> int:
        """Length of the blocks of what is there already: long, so that little is computed twice."""
        ...

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel.

        Parameters
        ----------
        cells : Cells, shape (before + length + after,)
            The length is that of a block. Before the start and after the end of the signal there is silence:
            cells that hold zero alone.

        Returns
        -------
        array, shape (length,)
            Close to the cells; whoever calls projects onto them.
        """
        ...

    def follow(self) -> RestoreBlock | None:
        """Return what does the same for the blocks of a stream, one channel, each next to the one before.

        It remembers the past, and one that is new may begin anywhere. None: blocks are better off alone.
        """
        ...


def in_words(name: str, model: str | None) -> str:
    """Say what restores a sound.

    >>> in_words("both", "speech-large")
    'speech-large and Chambolle-Pock'
    """
    return " and ".join(filter(None, (model, "Chambolle-Pock" if name in ("cp", "both") else None)))


LOUDNESS = (-3.4, -3.0, -2.0, -1.5, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Binary logarithm of a frame's root mean square over the mean radius of its cells."""

PACE = (0.01, 0.1, 0.18, 0.28, 0.67, 2.9, 1.0, 0.75, 0.68, 0.72, 0.73, 0.77, 0.9, 1.2, 2.0, 4.0)
"""Step tau of Chambolle-Pock in units of that radius, before `overlapped` shortens it in full spectra."""


def tuned_pace(loudness: FloatArray) -> FloatArray:
    """Return the pace for each loudness, interpolated, constant beyond the ends of the table."""
    return np.exp(np.interp(loudness, LOUDNESS, np.log(PACE)))


FRAME_SECONDS = 0.032
OVERLAP = 8
"""How many frames hold each sample."""

STREAM_FRAMES, OFFLINE_FRAMES = 2, 32
"""Blocks of streams and of what is there already, in frames."""

ITERATIONS = 20

CAUTION = 3
"""Steps shrink with this power of the mean weight: the fuller a spectrum, the less it wants to be sparse."""

LOUDEST = 16.0
"""Frames louder than this, a binary logarithm as in `tuning`, are left alone: their cells are fine enough."""

CLIPPED_SHARE = 0.02
CLIPPED_LOUDNESS = 8.0
"""A frame is clipped if more than this share of its cells is open-ended, and its level so many radii."""

DAMAGE_ROUNDS = 4
DAMAGE_SCALE, FINER = 0.3, 0.4
DAMAGE_PACE = 3.0
DAMAGE_PATIENCE = 2
"""Damaged frames are solved so often, each time with weights by what came of it before: what stands out, in
units of the level, and how much less each time; the steps, in these units; how many times more iterations."""

_GRAIN = 64  # frame lengths are multiples: quick to transform, and whole hops
_LONGEST_FRAME = 16384
_FAINT = 1e-12
_SHORTEST_STEP = 1e-30


@dataclass(frozen=True)
class OverlappedChambollePock:
    """The method for a frame length, in samples, and a number of iterations per frame.

    `pace` gives the steps, in units of the mean radius of a frame's cells, by its loudness; see `tuning`.
    """

    frame_length: int = 512
    iterations: int = ITERATIONS
    pace: Callable[[FloatArray], FloatArray] = tuned_pace

    def __post_init__(self) -> None:
        if not isinstance(self.iterations, int | np.integer) or self.iterations < 1:
            raise InputError(f"iterations are a whole number, one or more, got {self.iterations}")

    @staticmethod
    def at(sample_rate_hz: int, iterations: int | None = None) -> OverlappedChambollePock:
        """Return the method with frames of 32 ms at this rate.

        >>> OverlappedChambollePock.at(44100).frame_length
        1408
        """
        grains = max(round(FRAME_SECONDS * sample_rate_hz / _GRAIN), 1)
        length = min(grains * _GRAIN, _LONGEST_FRAME)
        return OverlappedChambollePock(length, ITERATIONS if iterations is None else iterations)

    @property
    def hop(self) -> int:
        """From one frame to the next."""
        return self.frame_length // OVERLAP

    @property
    def name(self) -> str:
        """Chambolle-Pock."""
        return "cp"

    @property
    def model(self) -> None:
        """None: nothing is learned."""

    @property
    def before(self) -> int:
        """A frame that holds the first sample of a block may begin this much earlier."""
        return self.frame_length - self.hop

    @property
    def after(self) -> int:
        """A frame that holds the last sample of a block may end this much later."""
        return self.before

    @property
    def stream_block(self) -> int:
        """Two frames."""
        return STREAM_FRAMES * self.frame_length

    @property
    def offline_block(self) -> int:
        """A second, at frames of 32 ms."""
        return OFFLINE_FRAMES * self.frame_length

    @cached_property
    def _window(self) -> FloatArray:
        return np.sqrt(np.hanning(self.frame_length + 2)[1:-1])

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel; see `Method`."""
        lo, hi, centre, radius = (
            cut(part.astype(np.float32), self.frame_length, self.hop)
            for part in (cells.lo, cells.hi, cells.centre, cells.radius)
        )
        moves = self._solve(lo, hi, centre, radius) - centre
        length = cells.shape[-1] - self.before - self.after
        inside = cells[self.before : self.before + length]
        return inside.centre + join(moves, length, self.hop, self._window)

    def follow(self) -> None:
        """Return None: every block is computed from its surroundings."""

    def _solve(self, lo: FloatArray, hi: FloatArray, centre: FloatArray, radius: FloatArray) -> FloatArray:
        """Return the restored frames, shape (frames, frame_length)."""
        finite = (radius > 0) & (radius < np.inf)
        error = np.where(finite, radius, 0).mean(-1) / np.maximum(finite.mean(-1, dtype=np.float32), 1e-9)
        level = np.sqrt((centre**2).mean(-1))
        damaged = _damaged(lo, hi, error, level)
        loudness = np.log2(np.maximum(level, _FAINT) / np.maximum(error, _FAINT))
        quantized = ~damaged & (error > _FAINT) & (loudness < LOUDEST)
        restored = centre.copy()
        if (rows := np.flatnonzero(quantized)).size:
            weight = _weights(self._K.apply(centre[rows]), error[rows, None])
            steps = error[rows] * self.pace(loudness[rows]) * weight.mean(-1) ** CAUTION
            problem = self._problem(lo[rows], hi[rows], weight, steps)
            restored[rows] = solve(problem, ChambollePock(), iterations=self.iterations).x
        if (rows := np.flatnonzero(damaged)).size:
            for finer in FINER ** np.arange(DAMAGE_ROUNDS):
                scale = np.float32(DAMAGE_SCALE * finer) * level[rows, None]
                weight = _weights(self._K.apply(restored[rows]), scale)
                problem = self._problem(lo[rows], hi[rows], weight, DAMAGE_PACE * level[rows])
                many = DAMAGE_PATIENCE * self.iterations
                restored[rows] = solve(problem, ChambollePock(), iterations=many, x0=restored[rows]).x
        return restored

    @cached_property
    def _K(self) -> DCT:
        return DCT(self.frame_length)

    def _problem(self, lo: FloatArray, hi: FloatArray, weight: FloatArray, steps: FloatArray) -> Problem:
        problem = dequantization(lo, hi, self._K, weight)
        inverse = 1 / np.maximum(steps[:, None], _SHORTEST_STEP).astype(np.float32)
        return replace(problem, weight=inverse)


def _damaged(lo: FloatArray, hi: FloatArray, error: FloatArray, level: FloatArray) -> NDArray[np.bool_]:
    """Tell which frames have more wrong with them than quantization: gaps, or peaks that were cut off.

    A few open-ended cells are the outermost ones of a quantizer; many, in a frame whose other cells are
    narrow, are clipping.
    """
    no_lo, no_hi = np.isneginf(lo), np.isposinf(hi)
    gaps = (no_lo & no_hi).any(-1)
    clipped = (no_lo ^ no_hi).mean(-1) > np.where(error > 0, CLIPPED_SHARE, 0)
    return np.asarray((gaps | (clipped & (error < level / CLIPPED_LOUDNESS))) & (level > 0))


def _weights(coefficients: FloatArray, scale: FloatArray) -> FloatArray:
    """Return 1 for coefficients far below the scale, and less the more they stand out of it."""
    power = np.pad(coefficients**2, [(0, 0), (1, 1)], "edge")
    power = power[:, :-2] / 4 + power[:, 1:-1] / 2 + power[:, 2:] / 4
    return 1 / (1 + np.sqrt(power) / scale)


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
            raise InputError("sound of any length takes a convolutional primal-dual network; choose another")
        if not 0 < step < np.inf:
            raise InputError(f"a step is a positive finite number, got {step}")
        self.hop = plan.map.hop
        shifts = (1 if plan.causal else min(SHIFTS, self.hop)) if shifts is None else shifts
        if not 1 <= shifts <= self.hop:
            raise InputError(f"a network with a hop of {self.hop} has 1 to {self.hop} shifts, got {shifts}")
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
        raise InputError(
            f"this network looks at {length} samples at once, by {channels} filters of {window} in "
            f"{plan.depth} layers, which is beyond reason; choose a smaller one"
        )


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
