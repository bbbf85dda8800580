"""Methods that restore signals in their cells: Chambolle-Pock on frames, a network, their mean.

All have one signature, cells -> signal, and none is asked which it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.frames import cut, join
from pdrn.audio.quantizers import check_positive
from pdrn.convex import DCT, ChambollePock, Problem, dequantization, solve
from pdrn.errors import InputError
from pdrn.nets import Network, PrimalDual, SpectralPrimalDual
from pdrn.nets.maps import ConvolutionalMap
from pdrn.nets.primal_dual import Architecture
from pdrn.nets.runtime import RunningNetwork, RunningSpectralNetwork

RestoreBlock: TypeAlias = Callable[[Cells], FloatArray]
"""Restores the middle of a stretch of one channel; see `Method.restore`."""


class Method(Protocol):
    """A local way to restore: a restored sample depends only on the cells around it.

    Locality lets files of any length, streams and arrays share one code path, `BlockRestorer`.
    """

    @property
    def name(self) -> str:
        """What users call it: network, cp, both."""
        ...

    @property
    def model(self) -> str | None:
        """The name of the model; None for Chambolle-Pock alone."""
        ...

    @property
    def before(self) -> int:
        """Cells before a block that it looks at."""
        ...

    @property
    def after(self) -> int:
        """Cells after a block that it looks at."""
        ...

    @property
    def stream_block(self) -> int:
        """Length of the blocks of a stream: short, for low latency."""
        ...

    def offline_block(self, frames: int | None) -> int:
        """Return the length of the blocks of a file or array of this many frames; None: unknown.

        They are long, so that little is computed twice.
        """
        ...

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel.

        Parameters
        ----------
        cells : Cells, shape (before + length + after,)
            `length` is that of a block. Before the start and after the end of the signal there is silence:
            cells that hold zero alone.

        Returns
        -------
        array, shape (length,)
            Close to the cells; the caller projects onto them.
        """
        ...

    def open_stream(self) -> RestoreBlock | None:
        """Return a stateful `restore` for consecutive blocks of one channel, None if there is none.

        It keeps its state from block to block, and may begin anywhere.
        """
        ...


def describe_method(name: str, model: str | None) -> str:
    """Name a method for people.

    >>> describe_method("both", "speech-large")
    'speech-large and Chambolle-Pock'
    """
    return " and ".join(filter(None, (model, "Chambolle-Pock" if name in ("cp", "both") else None)))


# --- Chambolle-Pock on overlapping frames ---

LOUDNESS = (-3.4, -3.0, -2.0, -1.5, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Binary logarithm of a frame's root mean square over the mean radius of its cells."""

PACE = (0.01, 0.1, 0.18, 0.28, 0.67, 2.9, 1.0, 0.75, 0.68, 0.72, 0.73, 0.77, 0.9, 1.2, 2.0, 4.0)
"""Step tau of Chambolle-Pock in units of that radius, before it is shortened in full spectra."""


def tuned_pace(loudness: FloatArray) -> FloatArray:
    """Interpolate the table of the pace by loudness, constant beyond its ends."""
    return np.exp(np.interp(loudness, LOUDNESS, np.log(PACE)))


FRAME_SECONDS = 0.032
OVERLAP = 8
"""Frames that hold each sample."""

STREAM_FRAMES, OFFLINE_FRAMES = 2, 32
"""Lengths of the blocks of streams and of files, in frames."""

ITERATIONS = 20

CAUTION = 3
"""Steps shrink with this power of the mean weight: the fuller a spectrum, the less sparse it is."""

LOUDEST = 16.0
"""Frames louder than this, a binary logarithm as above, are left alone: their cells are fine enough."""

CLIPPED_SHARE = 0.02
CLIPPED_LOUDNESS = 8.0
"""A frame is clipped if more than this share of its cells is open-ended, and its level this many radii."""

DAMAGE_ROUNDS = 4
DAMAGE_SCALE, FINER = 0.3, 0.4
DAMAGE_PACE = 3.0
DAMAGE_PATIENCE = 2
"""Damaged frames are solved repeatedly with weights from the solution before: the number of rounds; the
scale of the weights in units of the level, and its factor per round; the steps in the same units; how many
times more iterations."""

_GRAIN = 64  # frame lengths are multiples: quick to transform, and whole hops
_LONGEST_FRAME = 16384
_FAINT = 1e-12
_SHORTEST_STEP = 1e-30


@dataclass(frozen=True)
class ChambollePockMethod:
    """Chambolle-Pock on overlapping frames: min ``|w DCT(x)|_1`` with x in its cells, frame by frame.

    The weights w of a frame come from its own spectrum; the restored frames are averaged.

    Parameters
    ----------
    frame_length : int
        In samples.
    iterations : int
        Per frame.
    pace : callable
        Steps in units of the mean radius of a frame's cells, by its loudness.
    """

    frame_length: int = 512
    iterations: int = ITERATIONS
    pace: Callable[[FloatArray], FloatArray] = tuned_pace

    name: ClassVar[str] = "cp"
    model: ClassVar[None] = None

    @staticmethod
    def at(sample_rate_hz: int, iterations: int | None = None) -> ChambollePockMethod:
        """Return the method with frames of 32 ms at this rate; iterations default to `ITERATIONS`.

        >>> ChambollePockMethod.at(44100).frame_length
        1408
        """
        grains = max(round(FRAME_SECONDS * sample_rate_hz / _GRAIN), 1)
        length = min(grains * _GRAIN, _LONGEST_FRAME)
        return ChambollePockMethod(length, ITERATIONS if iterations is None else iterations)

    @property
    def hop(self) -> int:
        """Distance of two frames."""
        return self.frame_length // OVERLAP

    @property
    def before(self) -> int:
        """How much earlier a frame that holds the first sample of a block may begin."""
        return self.frame_length - self.hop

    @property
    def after(self) -> int:
        """How much later a frame that holds the last sample of a block may end."""
        return self.before

    @property
    def stream_block(self) -> int:
        """Two frames."""
        return STREAM_FRAMES * self.frame_length

    def offline_block(self, frames: int | None) -> int:
        """Return a second, at frames of 32 ms."""
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

    def open_stream(self) -> None:
        """Return None: frames have no state."""

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
    """Tell which frames have gaps or clipped peaks, not quantization alone.

    A few open-ended cells are the outermost ones of a quantizer; many, in a frame whose other cells are
    narrow, are clipping.
    """
    no_lo, no_hi = np.isneginf(lo), np.isposinf(hi)
    gaps = (no_lo & no_hi).any(-1)
    clipped = (no_lo ^ no_hi).mean(-1) > np.where(error > 0, CLIPPED_SHARE, 0)
    return np.asarray((gaps | (clipped & (error < level / CLIPPED_LOUDNESS))) & (level > 0))


def _weights(coefficients: FloatArray, scale: FloatArray) -> FloatArray:
    """Return 1 for coefficients far below the scale, less the more they exceed it."""
    power = np.pad(coefficients**2, [(0, 0), (1, 1)], "edge")
    power = power[:, :-2] / 4 + power[:, 1:-1] / 2 + power[:, 2:] / 4
    return 1 / (1 + np.sqrt(power) / scale)


# --- A network ---

UNKNOWN = 16.0
"""A missing sample is searched for this many steps to either side of zero."""

SHIFTS = 2
"""Shifted grids whose results are averaged, by default; a causal network has one."""

OFFLINE_HOPS = 100
"""Length of the blocks of files, in hops."""

MOST_NUMBERS = 1 << 24
"""Largest array of a block: a small file may ask for endless windows, layers and hops."""

MOST_PRODUCTS = 1 << 38
"""Most multiplications of a block, 700 times those of `speech-large`."""


def check_network(plan: Architecture, shifts: int | None = None) -> tuple[PrimalDual, int, list[int]]:
    """Refuse a network that cannot restore sound of any length, or not in reasonable memory and time.

    Returns
    -------
    plan : PrimalDual
    hop : int
    displacements : list of int
        Of the shifted grids, in samples.
    """
    if not (isinstance(plan, PrimalDual) and isinstance(plan.map, ConvolutionalMap)):
        raise InputError("sound of any length takes a convolutional primal-dual network; choose another")
    hop = plan.map.hop
    shifts = (1 if plan.causal else min(SHIFTS, hop)) if shifts is None else shifts
    if not 1 <= shifts <= hop:
        raise InputError(f"a network with a hop of {hop} has 1 to {hop} shifts, got {shifts}")
    displacements = [hop * shift // shifts for shift in range(shifts)]
    length = OFFLINE_HOPS * hop + sum(_reach(plan, hop, displacements))
    channels, window = plan.map.kernel_shape
    views = plan.map.sizes((length,))[1] // channels
    if max(length, views * max(channels, window)) > MOST_NUMBERS or plan.products((length,)) > MOST_PRODUCTS:
        raise InputError(
            f"this network looks at {length} samples at once, by {channels} filters of {window} in "
            f"{plan.depth} layers, which is beyond reason; choose a smaller one"
        )
    return plan, hop, displacements


def _reach(plan: PrimalDual, hop: int, displacements: list[int]) -> tuple[int, int]:
    """Return how many samples before and after a block a network on shifted grids looks at."""
    before, after = plan.reach
    # A displaced hop holds samples of two blocks: it begins up to a hop earlier, and ends later.
    return before + (hop if len(displacements) > 1 else 0), after + displacements[-1]


class NetworkMethod:
    """A network for cells that are all ``step`` wide, except open-ended ones at full scale; see `Method`.

    Parameters
    ----------
    network : Network
        Convolutional, primal-dual, in units of the cell.
    step : float
    model : str
        Its name.
    shifts : int, optional
        Number of grids it is run on, a fraction of a hop apart. The mean of the results lies in the cells
        too, and is better than each. Default: 1 for causal networks, `SHIFTS` for others.
    """

    name = "network"

    def __init__(
        self, network: Network, step: float, *, model: str = "network", shifts: int | None = None
    ) -> None:
        check_positive("the step", step)
        plan, self.hop, self._displacements = check_network(network.architecture, shifts)
        self.network, self.step, self.model = network, step, model
        self.before, self.after = _reach(plan, self.hop, self._displacements)
        self._has_state = plan.causal and len(self._displacements) == 1
        # One that looks far ahead is late anyway, and short blocks would compute most samples twice.
        self.stream_block = self.hop if plan.causal else self.hop * max(-(-self.after // self.hop), 1)

    def offline_block(self, frames: int | None) -> int:
        """Return a hundred hops."""
        return OFFLINE_HOPS * self.hop

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel."""
        lower, upper = self.in_steps(cells)
        end = len(lower) - self.after
        total: Any = sum(
            self.network(lower[shift:], upper[shift:])[self.before - shift : end - shift]
            for shift in self._displacements
        )
        restored: FloatArray = total * (self.step / len(self._displacements))
        return self.keep_silence(restored, cells)

    def open_stream(self) -> RestoreBlock | None:
        """Return a causal network that runs on hop by hop, None for others."""
        return _CausalStream(self) if self._has_state else None

    def keep_silence(self, restored: FloatArray, cells: Cells) -> FloatArray:
        """Zero the restored samples that depend on zeros alone: networks add noise to digital silence."""
        heard = np.cumsum(np.concatenate([[False], cells.lo != -cells.hi]))
        in_sight = self.before + self.after + 1
        return np.where(heard[in_sight:] == heard[:-in_sight], 0.0, restored)

    def by_layer(self, cells: Cells) -> list[FloatArray]:
        """Return the estimate of each layer for a whole stretch of one channel, on the first grid."""
        return [estimate * self.step for estimate in self.network.by_layer(*self.in_steps(cells))]

    def in_steps(self, cells: Cells) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the cells in steps, all finite."""
        lo, hi = cells.lo / self.step, cells.hi / self.step
        no_lo, no_hi = np.isneginf(lo), np.isposinf(hi)
        lower = np.where(no_lo, np.where(no_hi, -UNKNOWN, hi - 1), lo)
        upper = np.where(no_hi, np.where(no_lo, UNKNOWN, lo + 1), hi)
        return lower, upper


class _CausalStream:
    """A causal network on consecutive blocks of one hop."""

    def __init__(self, method: NetworkMethod) -> None:
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
        return self._method.keep_silence(restored, cells)


class SpectralMethod:
    """A spectral network, for cells of any width at any sample rate; see `Method`.

    Missing samples, whose cells are unbounded, are beyond it.

    Parameters
    ----------
    network : Network
        A `SpectralPrimalDual`, at the sample rate of the sound.
    model : str
        Its name.
    """

    name = "network"

    def __init__(self, network: Network, *, model: str = "network") -> None:
        plan = require_spectral(network.architecture)
        self.network, self.model = network, model
        self.before, self.after = plan.reach
        self.hop, self._causal = plan.grid, plan.causal
        # One that looks far ahead is late anyway, and short blocks would compute most samples twice.
        self.stream_block = self.hop if plan.causal else max(self.after, self.hop)

    def offline_block(self, frames: int | None) -> int:
        """Divide the sound evenly into blocks of at most `OFFLINE_SAMPLES`: the last one is padded."""
        frames = max(frames or OFFLINE_SAMPLES, 1)
        count = -(-frames // OFFLINE_SAMPLES)
        return -(-frames // (count * self.hop)) * self.hop

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel."""
        restored: FloatArray = self.network(cells.lo, cells.hi)
        return restored[self.before : len(restored) - self.after]

    def open_stream(self) -> RestoreBlock | None:
        """Return a causal network that runs on block by block, None for others."""
        return _SpectralStream(self) if self._causal else None

    def by_layer(self, cells: Cells) -> list[FloatArray]:
        """Return the estimate of each layer for a whole stretch of one channel."""
        return self.network.by_layer(cells.lo, cells.hi)


class _SpectralStream:
    """A causal spectral network on consecutive blocks."""

    def __init__(self, method: SpectralMethod) -> None:
        self._running = RunningSpectralNetwork(method.network)
        self._is_new = True

    def __call__(self, cells: Cells) -> FloatArray:
        grid = self._running.grid
        news, self._is_new = cells if self._is_new else cells[-grid:], False
        for start in range(0, len(news), grid):
            block = news[start : start + grid]
            last = self._running.push(block.lo, block.hi)
        return last


OFFLINE_SAMPLES = 1 << 18
"""Longest block of a file for a spectral network, about: long beside its reach, bounded in memory."""


_FEATURES = 80  # of a spectral network, per sample


def require_spectral(plan: Architecture) -> SpectralPrimalDual:
    """Refuse a network that is not spectral, or cannot run in reasonable memory and time."""
    if not isinstance(plan, SpectralPrimalDual):
        raise InputError("sound of any rate takes a spectral network; choose another")
    length = sum(plan.reach) + max(OFFLINE_SAMPLES, plan.grid)
    numbers = length * (plan.channels + 4 * plan.steps + _FEATURES)
    if numbers > MOST_NUMBERS << 4 or plan.products((length,)) > MOST_PRODUCTS:
        raise InputError(
            f"this network looks at {length} samples at once, with {plan.channels} channels in {plan.blocks} "
            f"blocks and {plan.depth} layers, which is beyond reason; choose a smaller one"
        )
    return plan


# --- The mean of both ---

NETWORK_SHARE, SPECTRAL_SHARE = 0.7, 0.5
"""Weights of a network with learned filters, and of a spectral one, in the mean; chosen on held-out sound
(results/LOG.md)."""


class MeanMethod:
    """The mean of a network and Chambolle-Pock; see `Method`."""

    name = "both"

    def __init__(self, network: NetworkMethod | SpectralMethod, solver: ChambollePockMethod) -> None:
        self.network, self.solver, self.model = network, solver, network.model
        share = SPECTRAL_SHARE if isinstance(network, SpectralMethod) else NETWORK_SHARE
        self._parts: tuple[tuple[Method, float], ...] = ((network, share), (solver, 1 - share))
        self.before = max(network.before, solver.before)
        self.after = max(network.after, solver.after)
        self.stream_block = self._whole(max(network.stream_block, solver.stream_block))

        if self._whole(1) > OFFLINE_SAMPLES:
            raise InputError(
                f"the windows of {self.model} do not fit Chambolle-Pock's; choose method network"
            )

    def offline_block(self, frames: int | None) -> int:
        """Return the longer block of the two, on a grid that suits both."""
        return self._whole(max(part.offline_block(frames) for part, _ in self._parts))

    def _whole(self, length: int) -> int:
        grid = math.lcm(self.network.hop, self.solver.hop)
        return -(-length // grid) * grid

    def restore(self, cells: Cells) -> FloatArray:
        """Restore the middle of a stretch of one channel."""
        length = cells.shape[-1]
        network, solver = (
            share * part.restore(cells[self.before - part.before : length - (self.after - part.after)])
            for part, share in self._parts
        )
        return network + solver

    def open_stream(self) -> None:
        """Return None: the frames of Chambolle-Pock have no state."""
