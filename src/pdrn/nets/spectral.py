"""Primal-dual networks for every sample rate: K is the STFT, and a network chooses the weights of the prior.

A stage is a few steps of Chambolle-Pock for

    min  sum_tf  w_tf |(K x)_tf|    with x in its cells,

where K is a tight short-time Fourier transform and the sum runs over frames t and frequencies f. The
weights w come from a convolutional network over time and frequency, the *context*, that sees the power of
every coefficient relative to the quantization error. Windows are set in seconds, frequencies in hertz, and
powers are relative: one set of weights serves any sample rate and cells of any width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pdrn.convex import Box, GroupL21
from pdrn.convex.backend import (
    AnyArray,
    Array,
    NumpyArray,
    convert,
    is_tensor,
    namespace,
    set_field,
    times,
    zeros,
)
from pdrn.convex.functionals import clip
from pdrn.convex.operators import GaborFrame, views
from pdrn.errors import InputError
from pdrn.nets.maps import require_size, set_size
from pdrn.nets.primal_dual import (
    INITIAL_A,
    MAX_LAYERS,
    POWER_FLOOR,
    Architecture,
    Arrays,
    Block,
    CellArchitecture,
    LinearMap,
    State,
    Weights,
    unchecked,
)

if TYPE_CHECKING:
    import torch

OVERLAP = 4
"""Frames that hold each sample."""

BINS = 4
"""Neighbouring frequencies that share one position of the context."""

HIGHEST_RATE_HZ = 1 << 22
"""Highest sample rate."""

DILATIONS = (1, 2, 4, 8)
"""Distances of the taps in time of consecutive blocks, in frames; then again from the first."""

GLOBAL_HZ, GLOBAL_SIZE = 8000, 512
"""Highest frequency, and about the number of inputs, of the global part of a context."""

FEATURES = 6
"""Maps that a context sees, for every frame and frequency; see ``_features``."""

ELEMENTWISE = 500
"""Work on features and coefficients, per position and stage, counted as multiply-adds."""

LARGEST_CORRECTION = 8.0
"""Bound of the correction of a weight, a natural logarithm."""

_GRAIN = 8  # windows are multiples: whole hops, and whole positions of the context
_MOST_POWER = 1e8

LEAST_SQUARE_RADIUS = 1e-20
"""Added to the mean square radius of a frame, which may be zero."""

Remember = Callable[[str, AnyArray, int], tuple[AnyArray, int]]
"""Puts this many earlier frames before the input of a convolution, by its name; returns their number, too."""


@dataclass(frozen=True)
class SpectralPrimalDual(CellArchitecture):
    """Chambolle-Pock on the STFT in stages, whose prior weights come from a network over time and frequency.

        w = g exp(s) / (1 + exp(a - r) m)

    g is the root mean square of the cells' radii in a frame, m the magnitude of a coefficient over g, and r
    the correction by the context, one map per step. The scale s, and a, are learned numbers. At the start
    r = 0: reweighted Chambolle-Pock.

    The weights of a network do not depend on the sample rate. ``at`` returns the architecture for another.

    Parameters
    ----------
    windows
        Length of the STFT window of each stage, in seconds: multiples of the shortest.
    steps
        Primal-dual blocks of a stage; the prior weights are computed at its start.
    channels, blocks
        Width of the local part of a context, and its residual blocks.
    hidden
        Hidden units of the global part of a context, which sees all frequencies up to 8 kHz of three frames
        at once: pitch and timbre. 0: there is none.
    causal
        Whether contexts see no later frames.
    sample_rate_hz
        Sample rate of the signals.

    Examples
    --------
    >>> from pdrn.nets import Network, SpectralPrimalDual
    >>> network = Network.started(SpectralPrimalDual(windows=(0.064, 0.032), steps=3, channels=8, blocks=2))
    >>> lower = np.floor(16 * np.sin(np.arange(2000) / 20)) / 16
    >>> restored = network.at(44100)(lower, lower + 1 / 16)
    >>> bool(np.all((lower <= restored) & (restored <= lower + 1 / 16)))
    True
    """

    windows: tuple[float, ...]
    steps: int
    channels: int
    blocks: int
    hidden: int = 0
    causal: bool = False
    sample_rate_hz: int = 16000

    def __post_init__(self) -> None:
        set_size(self, "steps")
        set_size(self, "channels")
        set_size(self, "sample_rate_hz", most=HIGHEST_RATE_HZ)
        set_size(self, "blocks", least=0, most=MAX_LAYERS)
        set_size(self, "hidden", least=0)
        set_field(self, "windows", tuple(map(float, self.windows)))
        require_size("the number of windows", len(self.windows), most=MAX_LAYERS)
        if not all(1e-3 <= seconds <= 1 for seconds in self.windows):
            raise InputError(f"windows must be 0.001 to 1 second long, got {list(self.windows)}")
        require_size("windows times steps", self.depth, most=MAX_LAYERS)
        require_size("windows times blocks", len(self.windows) * self.blocks, least=0, most=MAX_LAYERS)
        ratios = [seconds / min(self.windows) for seconds in self.windows]
        if any(abs(ratio - round(ratio)) > 1e-6 for ratio in ratios):
            raise InputError(f"windows must be multiples of the shortest, got {list(self.windows)}")

    @property
    def depth(self) -> int:  # type: ignore[override]  # other architectures store it
        """Number of primal-dual blocks."""
        return len(self.windows) * self.steps

    @property
    def frame_length(self) -> None:
        """None: signals may have any length."""

    def at(self, sample_rate_hz: int) -> SpectralPrimalDual:
        """Return the architecture for signals of another sample rate."""
        return replace(self, sample_rate_hz=sample_rate_hz)

    def window_lengths(self) -> tuple[int, ...]:
        """Return the window of each stage in samples, multiples of the shortest."""
        shortest = min(self.windows)
        length = max(round(shortest * self.sample_rate_hz / _GRAIN), 1) * _GRAIN
        return tuple(length * round(seconds / shortest) for seconds in self.windows)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        stages, C, H = len(self.windows), self.channels, self.hidden
        per_stage: dict[str, tuple[int, ...]] = {
            "enter": (C, 3, 1, 2 * BINS * FEATURES),
            "enter_bias": (C,),
            "leave": (self.steps * BINS, C),
            "leave_bias": (self.steps * BINS,),
        }
        per_block: dict[str, tuple[int, ...]] = {
            "look": (C, 3, 3, C),
            "look_bias": (C,),
            "mix": (C, C),
            "mix_bias": (C,),
        }
        shapes = {f"{name}.{stage}": shape for name, shape in per_stage.items() for stage in range(stages)}
        for stage in range(stages if H else 0):
            positions, depth = self._global_shape(stage)
            per_global = {
                "squeeze": (depth, C),
                "squeeze_bias": (depth,),
                "gather": (H, 3, 1, positions * depth),
                "gather_bias": (H,),
                "spread": (positions * depth, H),
                "spread_bias": (positions * depth,),
                "expand": (C, depth),
                "expand_bias": (C,),
            }
            shapes |= {f"{name}.{stage}": shape for name, shape in per_global.items()}
        count = stages * self.blocks
        shapes |= {f"{name}.{block}": shape for name, shape in per_block.items() for block in range(count)}
        return shapes | {
            "a": (stages,),
            "scale": (self.depth,),
            "log_sigma": (self.depth,),
            "theta": (self.depth,),
        }

    def start(self, generator: np.random.Generator) -> Arrays:
        """Start at reweighted Chambolle-Pock: contexts draw their first layers, the last are zero."""
        weights = {name: np.zeros(shape) for name, shape in self.shapes().items()}
        for name, part in weights.items():
            if name.partition(".")[0] in ("enter", "look", "squeeze", "gather", "spread"):
                limit = 1 / math.sqrt(math.prod(part.shape[1:]))
                part[...] = generator.uniform(-limit, limit, part.shape)
        return weights | {"a": np.full(len(self.windows), INITIAL_A), "theta": np.ones(self.depth)}

    def states(self, weights: Weights, inputs: Box) -> Iterator[State]:
        length = inputs.lo.shape[-1]
        box = unchecked(Box, lo=inputs.lo.reshape(-1, length), hi=inputs.hi.reshape(-1, length))
        x = centre = box.centre
        for stage, window in enumerate(self.window_lengths()):
            K = GaborFrame(length, window, window // OVERLAP)
            analysed = _pairs(K, x)
            first = analysed if stage == 0 else _pairs(K, centre)
            bounded, squares = _frame_square_radii(box, K)
            priors = self.priors(stage, weights, analysed, first, bounded, squares)
            state = State.at(x, GroupL21(2), box)
            for step, F in enumerate(priors):
                block = self.block(stage * self.steps + step, weights, K._apply, K._adjoint)
                state = block(State(state.x, state.y, state.x_bar, F, box))
                yield state
            x = state.x

    def priors(
        self,
        stage: int,
        weights: Weights,
        analysed: Array,
        first: Array,
        bounded: Array,
        squares: Array,
        remember: Remember = lambda name, h, before: (h, 0),
    ) -> Iterator[GroupL21]:
        """Yield F for every step of a stage.

        Parameters
        ----------
        stage, weights
            The stage, counted from 0, and the weights of the network.
        analysed, first : array, shape (rows, frames, frequencies, 2)
            The STFT of the signal at the start of the stage, and of the centres of the cells.
        bounded, squares : array, shape (rows, frames, 1)
            The mean square radius of the cells in every frame, without and with half-open ones.
        remember
            Adds earlier frames to the inputs of convolutions, for a stream.
        """
        g = namespace(squares).sqrt(squares)
        power, first_power = (_relative_power(pairs, squares) for pairs in (analysed, first))
        window = 2 * (power.shape[-1] - 1)
        kilohertz = np.arange(window // 2) * (self.sample_rate_hz / window / 1000)
        openness = namespace(squares).log1p(squares / bounded)
        seen = _features(power, first_power, openness, kilohertz)
        corrections = self._context(stage, weights, seen, remember)
        magnitude = _magnitude(power)
        for step, correction in enumerate(corrections):
            scale = weights["scale"][stage * self.steps + step]
            yield _prior(g, magnitude, correction, weights["a"][stage], scale)

    def block(self, layer: int, weights: Weights, analyse: LinearMap, synthesise: LinearMap) -> Block:
        """Return a step of Chambolle-Pock: ``W = sigma K``, ``V = -K' / sigma``."""
        sigma = namespace(weights["log_sigma"]).exp(weights["log_sigma"][layer])
        return Block(
            lambda x: times(analyse(x), sigma),
            lambda y: times(synthesise(y), -1 / sigma),
            theta=weights["theta"][layer],
        )

    def _context(self, stage: int, weights: Weights, seen: Array, remember: Remember) -> list[Array]:
        """Return the corrections r of every step, each of shape (rows, frames, frequencies)."""
        xp, like = namespace(seen), seen
        enter = self._convolution(stage, "enter", weights, 1)
        h = enter(*remember("enter", seen, enter.before))
        if self.hidden:
            h = self._global_context(stage, weights, h, remember)
        for block in range(self.blocks):
            index = stage * self.blocks + block
            look = self._convolution(index, "look", weights, _dilation(block))
            mix, bias = weights[f"mix.{index}"], weights[f"mix_bias.{index}"]
            h = look.residual(*remember(f"look.{block}", h, look.before), mix, bias)
        r = convert(h @ weights[f"leave.{stage}"].T + weights[f"leave_bias.{stage}"], like)
        r = clip(r, -LARGEST_CORRECTION, LARGEST_CORRECTION)
        rows, frames = r.shape[:2]
        corrections = []
        for step in range(self.steps):
            part = r[..., step * BINS : (step + 1) * BINS].reshape(rows, frames, -1)
            corrections.append(xp.concatenate([part, part[..., -1:]], -1))  # the Nyquist frequency
        return corrections

    def _global_shape(self, stage: int) -> tuple[int, int]:
        """Return the number of positions up to 8 kHz, and the maps of each that the global part sees."""
        positions = max(round(GLOBAL_HZ * self.windows[stage] / BINS), 1)
        return positions, max(GLOBAL_SIZE // positions, 1)

    def _global_context(self, stage: int, weights: Weights, h: Array, remember: Remember) -> Array:
        """Add to every position up to 8 kHz what all of them tell together."""
        xp, (rows, frames, positions, _) = namespace(h), h.shape
        most, depth = self._global_shape(stage)
        low = h[:, :, :most]
        squeezed = low @ weights[f"squeeze.{stage}"].T + weights[f"squeeze_bias.{stage}"]
        if positions < most:
            missing = zeros((rows, frames, most - positions, depth), squeezed)
            squeezed = xp.concatenate([squeezed, missing], 2)
        gather = self._convolution(stage, "gather", weights, 1)
        flat = squeezed.reshape(rows, frames, 1, most * depth)
        gathered = gather(*remember("gather", flat, gather.before))
        spread = clip(gathered @ weights[f"spread.{stage}"].T + weights[f"spread_bias.{stage}"], -1.0, 1.0)
        spread = spread.reshape(rows, frames, most, depth)[:, :, :positions]
        told = spread @ weights[f"expand.{stage}"].T + weights[f"expand_bias.{stage}"]
        return xp.concatenate([low + told, h[:, :, most:]], 2)

    def _convolution(
        self, index: int, kind: str, weights: Weights, dilation: int
    ) -> TimeFrequencyConvolution:
        before = 2 * dilation if self.causal else dilation
        return TimeFrequencyConvolution(
            weights[f"{kind}.{index}"], weights[f"{kind}_bias.{index}"], dilation, before
        )

    def estimate(self, weights: Weights, inputs: Box, state: State) -> Array:
        return state.x.reshape(inputs.lo.shape)

    def products(self, shape: tuple[int, ...]) -> int:
        C, total = self.channels, 0
        per_position = 3 * 2 * BINS * FEATURES * C + self.blocks * 10 * C * C + self.steps * BINS * C
        per_position += ELEMENTWISE
        for stage, window in enumerate(self.window_lengths()):
            frames = -(-shape[-1] * OVERLAP // window) + OVERLAP - 1
            transforms = 2 * (self.steps + 1) * window * math.ceil(math.log2(window))
            positions, depth = self._global_shape(stage)
            dense = positions * depth * (4 * self.hidden + 2 * C) if self.hidden else 0
            total += frames * (window // 2 // BINS * per_position + dense + transforms)
        return math.prod(shape[:-1]) * total

    @property
    def grid(self) -> int:
        """Signals may be cut at multiples of this many samples without moving a frame."""
        return math.lcm(*(window // OVERLAP for window in self.window_lengths()))

    @property
    def reach(self) -> tuple[int, int]:
        """Numbers of samples before and after a stretch of whole grids that its restoration depends on."""
        frames = 1 + (self.hidden > 0) + sum(map(_dilation, range(self.blocks)))
        grid, before, after = self.grid, 0, 0
        for window in self.window_lengths():
            hop = window // OVERLAP
            edges = self.steps * (window - hop)
            before += -(-(edges + (2 if self.causal else 1) * frames * hop) // grid) * grid
            after += -(-(edges + (0 if self.causal else 1) * frames * hop) // grid) * grid
        return before, after


def at_rate(architecture: Architecture, sample_rate_hz: int) -> SpectralPrimalDual:
    """Return an architecture for another sample rate; refuse one that is for one rate."""
    if not isinstance(architecture, SpectralPrimalDual):
        raise InputError(f"a {type(architecture).__name__} is for one sample rate; choose a spectral network")
    return architecture.at(sample_rate_hz)


def _dilation(block: int) -> int:
    return DILATIONS[block % len(DILATIONS)]


def _frame_square_radii(box: Box, K: GaborFrame) -> list[AnyArray]:
    """Return the mean square radius of the cells in every frame of the STFT, (rows, frames, 1).

    First without half-open cells, then with them.
    """
    xp, hop = namespace(box.lo), K.hop
    edge, (rows, length) = K.window_length - hop, box.lo.shape
    span = 2 * edge + (length + hop - 1) // hop * hop
    before, after = zeros((rows, edge), box.lo), zeros((rows, edge + hop), box.lo)
    weight = convert(window_weight(K), box.lo)
    squares = []
    for part in square_radii(box):
        padded = xp.concatenate([before, part, after], -1)[:, :span]
        # No matrix product: torch.autocast would compute it in 16 bits.
        mean_squares = (views(padded, K.window_length, hop) * weight).sum(-1)[..., None]
        squares.append(mean_squares + LEAST_SQUARE_RADIUS)
    return squares


def square_radii(box: Box) -> tuple[Array, Array]:
    """Return the squares of the cells' radii: 0 for half-open cells, or the distance of their end from 0."""
    xp = namespace(box.lo)
    radius, end = box.radius, xp.abs(box.centre)
    is_open = xp.isinf(radius)
    bounded, everything = (xp.where(is_open, other, radius) for other in (xp.zeros_like(end), end))
    return bounded * bounded, everything * everything


def window_weight(K: GaborFrame) -> NumpyArray:
    """Return the squares of the window, with a sum of 1."""
    weight: NumpyArray = K.window**2 / (K.window**2).sum()
    return weight


def _pairs(K: GaborFrame, x: Array) -> Array:
    """Return the STFT, (rows, frames, frequencies, 2)."""
    return K._apply(x).reshape(x.shape[0], -1, K.channels // 2, 2)


def _relative_power(pairs: Array, squares: Array) -> Array:
    """Return the power of every coefficient over the mean square radius of the cells in its frame."""
    power = pairs[..., 0] ** 2 + pairs[..., 1] ** 2
    return clip(power / squares, 0.0, _MOST_POWER)


def _magnitude(power: Array) -> Array:
    """Return the root of the power, averaged over three neighbouring frequencies."""
    xp = namespace(power)
    padded = xp.concatenate([power[..., :1], power, power[..., -1:]], -1)
    smooth = (padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]) / 3
    return xp.sqrt(smooth + POWER_FLOOR)


def _prior(g: Array, magnitude: Array, correction: Array, a: Array, scale: Array) -> GroupL21:
    xp = namespace(magnitude)
    weight = g * xp.exp(scale) / (1 + xp.exp(a - correction) * magnitude)
    return unchecked(GroupL21, size=2, weight=weight.reshape(weight.shape[0], -1))


def _features(power: Array, first: Array, openness: Array, kilohertz: NumpyArray) -> Array:
    """Return what a context sees, (rows, frames, positions, 2 BINS FEATURES).

    The logarithm of the power, twice, with a floor at the quantization error and one far below; that of the
    quantized signal; the openness of the cells in a frame; the frequency, linear and logarithmic. A position
    sees its own BINS frequencies and half as many on either side.
    """
    xp = namespace(power)
    power, first = power[..., :-1], first[..., :-1]
    maps = [xp.log1p(power) / 3, xp.log(power + 1e-3) / 3, xp.log1p(first) / 3]
    frequencies = (kilohertz / 8, np.log2(kilohertz + 0.05) / 3)
    for part in (openness / 5, *(convert(frequency, power) for frequency in frequencies)):
        maps.append(xp.broadcast_to(part, power.shape))
    seen = xp.stack(maps, -1)
    rows, frames, _, count = seen.shape
    beside = zeros((rows, frames, BINS // 2, count), seen)
    padded = xp.concatenate([beside, seen, beside], 2)
    return views(padded.reshape(rows, frames, -1), 2 * BINS * count, BINS * count)


POSITIONS_AT_ONCE = 2048
"""Positions that a convolution on NumPy computes at a time: its intermediate arrays stay in cache."""


@dataclass(frozen=True, eq=False)
class TimeFrequencyConvolution:
    """A convolution over time and frequency with zeros beyond the ends, clipped: ``clip(kernel * h + bias)``.

    Activations are clipped to [-1, 1]. So corrections stay bounded, where max(0, .) lets them grow.
    """

    kernel: Array
    """Shape (out, taps in time, taps in frequency, in)."""
    bias: Array
    """Shape (out,)."""
    dilation: int
    """Distance of the taps in time, in frames."""
    before: int
    """Frames that it sees before each frame."""

    @property
    def after(self) -> int:
        """Frames that it sees after each frame."""
        return (self.kernel.shape[1] - 1) * self.dilation - self.before

    def __call__(self, h: Array, skip: int = 0) -> Array:
        """Convolve maps of shape (rows, frames, positions, channels); leave out the first results."""
        return self._tensor(h)[:, skip:] if is_tensor(h) else self._numpy(h, skip, lambda out, _: out)

    def residual(self, h: Array, skip: int, mix: Array, bias: Array) -> Array:
        """Return h plus its convolution, mixed across channels, without the first frames."""
        if is_tensor(h):
            return (h + (self._tensor(h) @ mix.T + bias))[:, skip:]
        return self._numpy(h, skip, lambda out, own: out @ mix.T + bias + own)

    def _tensor(self, h: torch.Tensor) -> torch.Tensor:
        functional: Any = namespace(h).nn.functional
        kernel: Any = self.kernel
        before, after = self.before, self.after
        if before != after:
            h = functional.pad(h, (0, 0, 0, 0, before, after))
        convolved: torch.Tensor = functional.conv2d(
            h.permute(0, 3, 1, 2),
            kernel.permute(0, 3, 1, 2),
            self.bias,
            padding=(before if before == after else 0, kernel.shape[2] // 2),
            dilation=(self.dilation, 1),
        )
        return functional.hardtanh(convolved).permute(0, 2, 3, 1)  # type: ignore[no-any-return]

    def _numpy(
        self, h: NumpyArray, skip: int, finish: Callable[[NumpyArray, NumpyArray], NumpyArray]
    ) -> NumpyArray:
        """Convolve a few frames at a time; ``finish`` sees these and their inputs, (positions, channels)."""
        rows, frames, positions, channels = h.shape
        out, taps, width, _ = self.kernel.shape
        matrices = [self.kernel[:, tap].reshape(out, -1).T for tap in range(taps)]
        result = np.empty((rows, frames - skip, positions, out), h.dtype)
        most = max(POSITIONS_AT_ONCE // positions, 1)
        side = width // 2
        for row, start in itertools.product(range(rows), range(skip, frames, most)):
            count = min(most, frames - start)
            first, last = start - self.before, start + count + self.after
            padded = np.zeros((last - first, positions + 2 * side, channels), h.dtype)
            inside = slice(max(first, 0), min(last, frames))
            padded[inside.start - first : inside.stop - first, side : side + positions] = h[row, inside]
            seen = views(padded.reshape(last - first, -1), width * channels, channels)
            total = np.tile(self.bias, (count * positions, 1))
            for tap, matrix in enumerate(matrices):
                tapped = seen[tap * self.dilation :][:count]
                total += tapped.reshape(-1, width * channels) @ matrix
            clip(total, -1.0, 1.0, out=total)
            own = h[row, start : start + count].reshape(-1, channels)
            part = finish(total, own).reshape(count, positions, out)
            result[row, start - skip : start - skip + count] = part
        return result
