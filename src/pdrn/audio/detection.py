"""Detection: which quantizer made these samples, told from the values that occur, or a refusal.

The values of a quantized signal lie on few levels. They are asked whether they are multiples of one step
on the grid of 8-, 16- or 24-bit PCM, or fit a straight line over whole numbers, up to the rounding of how
they were stored (16-bit codes, float32, float64); then, whether they are the outputs of G.711 rather than
of a uniform quantizer, whatever gain and offset were applied since (`evidence` looks that up, and at how
often the values occur). The confidence is one minus the chance that values without such a step pass the
same test, so it grows with the number of different values and with the step's distance from the rounding.

What levels cannot tell is where the edges lie between them: half-way is assumed, as for converters that
round. For one that truncates, whose samples average half a step too low, make a `Truncation` with the
step that was found. Fades and mixing after the quantizer defeat the method: what they leave is the grid that
the result was stored on, and only where they leave holes in the histogram is this noticed. Dither before the
quantizer is not noticed at all; the original then lies outside a part of the cells. Few levels may be equally
far apart in sounds that were never rounded, such as square waves: where samples jump between them, and they
are further apart than how they were stored makes them, they are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells
from pdrn.audio.evidence import companding_of, flaw, never_rounded, zero_is_silence
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.grids import Grid, Values, fit, stored_grid
from pdrn.audio.quantizers import MidRise, MidTread, numbers

LEAST_CONFIDENCE = 0.99

_STORED_BITS = (8, 16, 24)
_FEW_LEVELS = 8  # that many may be equally far apart in sounds that were never rounded
_MOST_LEVELS = 1 << 17


class Undetected(ValueError):
    """No quantizer can be told from the samples, and the reason."""


class Unsure(Undetected):
    """Too few levels occur to tell a quantizer; none of them speaks against one."""


@dataclass(frozen=True)
class Detection:
    """A quantizer that explains the samples.

    Parameters
    ----------
    kind : str
        "mid-tread" (zero is a level), "mid-rise" (zero is an edge), "shifted" (neither), "mu-law" or "A-law".
    quantizer : MidTread, MidRise, MuLaw or ALaw
        With `step` and `offset` where they exist, and as many bits as the samples need.
    effective_bits : int
        Bits that number all levels from the lowest to the highest that occur; 8 for G.711.
    confidence : float
        One minus the chance that samples without this structure look like it.
    slack : float
        How far the levels may be from their true places, since storing rounded them.
    outermost : tuple of int
        The lowest and highest code that occur. Their samples may have been cut off there, whatever the gain
        was since, so their cells are open-ended unless `full_scale`. (For G.711 the quantizer says it all.)
    full_scale : bool
        Whether the signal is known not to have been cut off.
    gain, shift : float
        What was done to G.711's outputs: the samples are shift + gain * level.
    """

    kind: str
    quantizer: MidTread | MidRise | MuLaw | ALaw
    effective_bits: int
    confidence: float
    slack: float
    outermost: tuple[int, int]
    full_scale: bool
    gain: float = 1.0
    shift: float = 0.0

    def cells(self, samples: ArrayLike, truncated: bool = False, widened: bool = True) -> Cells:
        """Return the cells of samples that show this quantizer's levels.

        Levels are in the middle of their cells, or at their lower ends if `truncated`. Cells are `widened` by
        the slack, so that they hold the original for certain, and overlap by twice as much; or else they end
        where the next begin, so that whatever lies in one is nearest to its level.

        They may reach beyond those that it was detected from: a recording's start serves for the rest. Zero
        where it is an edge, in mid-rise and in A-law, is silence that was put in: its cell reaches to the
        levels on either side.
        """
        x = numbers(samples)
        least = self._least_level
        silent = (x == 0) & (least > 0)
        heard = np.where(silent, least, x)
        if isinstance(self.quantizer, MuLaw | ALaw):
            cells = self._cells_of_g711(self.quantizer, heard)
        else:
            cells = self._cells_of_uniform(self.quantizer, heard, truncated)
        cells = cells.silenced(silent, least)
        return Cells(cells.lo - self.slack, cells.hi + self.slack) if widened else cells

    @property
    def _least_level(self) -> float:
        """How far the levels next to zero are from it where zero is an edge between them, otherwise 0."""
        if isinstance(self.quantizer, MuLaw | ALaw):
            return self.gain * self.quantizer.least_level if abs(self.shift) <= self.slack else 0.0
        return self.quantizer.step / 2 if self.kind == "mid-rise" else 0.0

    def _cells_of_uniform(self, quantizer: MidTread | MidRise, samples: Values, truncated: bool) -> Cells:
        boundless = replace(quantizer, bits=32)
        codes = boundless.codes_of(samples)
        cells = boundless.cells(codes)
        if truncated:
            cells = Cells(cells.lo + quantizer.step / 2, cells.hi + quantizer.step / 2)
        if not self.full_scale:
            cells = cells.opened(codes <= self.outermost[0], codes >= self.outermost[1])
        elif self.kind == "mid-tread" and quantizer.limit == 1 and not truncated:
            # The highest of all levels has half a step more up to full scale, the lowest as much less. Where
            # full scale is not 1, a gain was applied, and it cannot be told which level was the highest.
            lo = np.where(codes == quantizer.lowest, -1.0, cells.lo)
            cells = Cells(lo, np.where(codes == quantizer.highest, 1.0, cells.hi))
        return cells

    def _cells_of_g711(self, law: MuLaw | ALaw, samples: Values) -> Cells:
        law = replace(law, full_scale=False)
        codes = law.encode((samples - self.shift) / self.gain)
        off_grid = np.abs(samples - self.shift - self.gain * law.levels(codes)) > self.slack
        if off_grid.any():
            raise ValueError(f"{samples[off_grid][0]} is no level of {self.kind}; detect this part apart")
        cells = law.cells(codes)
        lo, hi = cells.lo, cells.hi
        if self.full_scale:  # the outermost cells hold all that is louder
            lo, hi = np.maximum(lo, -1.0), np.minimum(hi, 1.0)
        return Cells(self.shift + self.gain * lo, self.shift + self.gain * hi)


def detect(samples: ArrayLike, full_scale: bool = False) -> Detection:
    """Tell the quantizer from the samples.

    Parameters
    ----------
    samples : array_like, shape (frames,) or (channels, frames)
        Channels are looked at one by one and have to agree.
    full_scale : bool
        Whether the signal is known not to have been cut off: the outermost cells are then bounded.

    Raises
    ------
    Undetected
        If the samples are not quantized, or their channels differ; `Unsure` if they are silent, or too few.

    Examples
    --------
    >>> found = detect(MidRise(bits=5).quantize(np.sin(np.arange(1000))) * 0.7 + 0.01)
    >>> found.kind, found.effective_bits, round(found.quantizer.step / 0.7, 6)
    ('shifted', 5, 0.0625)
    """
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise Undetected(f"need (frames,) or (channels, frames), got shape {array.shape}; reshape it")
    if array.ndim == 1 or len(array) == 1:
        return _detect_channel(array.ravel(), full_scale)
    channels, refusals = [], []
    for index, channel in enumerate(array):
        try:
            channels.append(_detect_channel(channel, full_scale))
        except Undetected as reason:
            refusals.append(type(reason)(f"channel {index}: {reason}"))
    if refusals:
        raise min(refusals, key=lambda refusal: isinstance(refusal, Unsure))
    try:
        together = _detect_channel(array.ravel(), full_scale)
    except Undetected:
        together = None
    if together is None or not all(_agree(found, together) for found in channels):
        raise Undetected("the channels were quantized in different ways; split them, and restore each")
    return together


def _agree(channel: Detection, together: Detection) -> bool:
    """Tell whether the channel's step is that of all: a finer one of all would be half of it or less."""
    if isinstance(channel.quantizer, MuLaw | ALaw) or isinstance(together.quantizer, MuLaw | ALaw):
        return (channel.kind, channel.quantizer) == (together.kind, together.quantizer)
    return channel.kind == together.kind and channel.quantizer.step < 1.5 * together.quantizer.step


def _detect_channel(samples: Values, full_scale: bool) -> Detection:
    values, counts = np.unique(samples, return_counts=True)
    if not np.isfinite(values).all():
        raise Undetected("a sample is NaN or infinite; repair the input first")
    if len(values) < 3:
        raise Unsure(
            f"the samples have {len(values)} different values, which fit any step; name the quantizer"
        )
    largest = float(np.abs(values).max())
    if not 1e-30 < largest < 1e30:
        raise Undetected(f"a peak of {largest:.3g} is no sound's; scale the samples to about 1")
    grid = _grid_of(values, largest)
    coarser_than_stored = grid.rounding > 0
    if coarser_than_stored and len(values) <= _FEW_LEVELS and never_rounded(samples):
        raise Undetected(
            f"the samples have {len(values)} different values and jump from one to another, as square waves "
            "and clicks do, which were never rounded; name the quantizer if these were"
        )
    return _judge(grid, values, counts, full_scale)


def _grid_of(values: Values, largest: float) -> Grid:
    for bits in _STORED_BITS:
        codes = values * 2.0 ** (bits - 1)
        if largest <= 1 << 16 and (codes == np.rint(codes)).all():
            grid = stored_grid(values, codes.astype(np.int64), bits)
            if grid is None:
                raise Undetected(
                    f"the {bits}-bit codes are never neighbours but have no common step; name the quantizer"
                )
            return grid
    if len(values) > _MOST_LEVELS:
        raise Undetected(
            f"the samples have {len(values)} different values and no step; they are not quantized"
        )
    exact_in_float32 = (values == values.astype(np.float32)).all()
    found = fit(values, largest * 2.0 ** (-23 if exact_in_float32 else -47))
    if found is None:
        raise Undetected("the values have no common step; they are not quantized, or were changed since")
    return found


def _judge(grid: Grid, values: Values, counts: NDArray[np.intp], full_scale: bool) -> Detection:
    """Tell what made the samples whose values lie on this grid."""
    places = np.rint((values - grid.level) / grid.step).astype(np.int64)
    law, levels, doubt = companding_of(places, full_scale)
    heard = values != 0
    if law is not None:
        centred = levels - levels.mean()
        gain = float(centred @ values / (centred @ centred))
        shift = float(values.mean() - gain * levels.mean())
        usual = 2.0 ** round(math.log2(gain))
        if (np.abs(values - usual * levels) <= grid.tolerance).all():
            gain, shift = usual, 0.0
        error = float(np.abs(values - shift - gain * levels).max())
        slack = 0.0 if np.array_equal(values, levels) else 2 * error + grid.rounding
        kind = "mu-law" if isinstance(law, MuLaw) else "A-law"
        outermost = int(law.encode(levels[0])), int(law.encode(levels[-1]))
        found = Detection(kind, law, 8, 1 - doubt, slack, outermost, full_scale, gain, shift)
    elif not heard.all() and isinstance(companding_of(places[heard], full_scale)[0], ALaw):
        without = replace(grid, level=float(values[heard][0]))
        return _judge(without, values[heard], counts[heard], full_scale)
    elif zero_is_silence(places, counts, ~heard):
        doubt = min(grid.doubt, 2.0 ** (2 - int(heard.sum())))  # that all of them are odd
        apart = replace(grid, step=2 * grid.step, level=float(values[heard][0]), doubt=doubt)
        return _judge(apart, values[heard], counts[heard], full_scale)
    else:
        reason = flaw(places, counts)
        if reason:
            raise Undetected(f"{reason}; name the quantizer")
        found = _describe(grid, values, full_scale)
    if found.confidence < LEAST_CONFIDENCE:
        raise Unsure(
            f"the best guess, {found.kind} with {found.effective_bits} bits, has a confidence of only "
            f"{found.confidence:.3f}; use a longer recording, or name the quantizer"
        )
    return found


def _describe(grid: Grid, values: Values, full_scale: bool) -> Detection:
    """Name the grid, snapped to usual places that explain the values as well."""
    step, tolerance = grid.step, grid.tolerance
    span = (values[-1] - values[0]) / step
    exponent = round(math.log2(step))
    if abs(2.0**exponent - step) * span <= tolerance:
        step = 2.0**exponent
    phase = (grid.level / step) % 1.0
    tolerance += 1e-9 * step
    on_tread, on_rise = min(phase, 1 - phase) * step <= tolerance, abs(phase - 0.5) * step <= tolerance
    kind = "mid-tread" if on_tread else "mid-rise" if on_rise else "shifted"
    quantizer_type = MidTread if on_tread else MidRise
    offset = 0.0 if on_tread or on_rise else grid.level + step * (round(span / 2) - 0.5)
    codes = np.rint((values - offset) / step - (0.0 if on_tread else 0.5))
    reach = max(-codes[0], codes[-1] + 1)
    bits = max(math.ceil(math.log2(reach)) + 1, 1)
    if step == 2.0**exponent and offset == 0:
        bits = max(bits, min(1 - exponent, 32))  # full scale is 1 unless the samples reach beyond
    if bits > 32:
        raise Undetected(f"the samples lie {reach:.0f} steps from zero; remove their offset first")
    quantizer = quantizer_type(bits, step, offset)
    error = np.abs(quantizer.levels(codes.astype(np.int64)) - values).max()
    rounded = tolerance > 1e-9 * step or step != 2.0**exponent or kind == "shifted"
    return Detection(
        kind,
        quantizer,
        effective_bits=max(math.ceil(math.log2(codes[-1] - codes[0] + 1)), 1),
        confidence=1 - grid.doubt,
        slack=float(error) + (grid.rounding if rounded else 0.0),
        outermost=(int(codes[0]), int(codes[-1])),
        full_scale=full_scale,
    )
