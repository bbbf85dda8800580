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
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw, numbers
from pdrn.errors import InputError, UncertainError, UndetectedError

Values = NDArray[np.float64]

_MOST_STEPS = 1 << 24
_LEAST_STEP = 15  # in units of the rounding: keeps the sum of all errors under a quarter of a step
_MOST_SKIPPED = 8  # try steps down to this fraction of the smallest distance between two values


@dataclass(frozen=True)
class Grid:
    """Levels `level` + step * whole number, the samples off by `tolerance` and stored with `rounding`."""

    step: float
    level: float
    tolerance: float
    rounding: float
    doubt: float
    """The chance that values without such a step seem to have it."""


def stored_grid(values: Values, codes: NDArray[np.int64], bits: int) -> Grid | None:
    """Tell the grid of samples that lie on the grid of PCM with these codes, None where they have no step."""
    distances = np.diff(codes)
    factor = int(np.gcd.reduce(distances))
    lsb = 2.0 ** (1 - bits)
    if factor > 1:
        aligned = codes[0] % factor in (0, factor / 2)
        doubt = float(factor) ** (2 - len(codes)) * (2 / factor if aligned else 1.0)
        return Grid(factor * lsb, float(values[0]), 0.0, lsb / 2, doubt)
    if distances.min() == 1:
        neighbours = int(np.count_nonzero(distances == 1))  # each speaks against any coarser step
        return Grid(lsb, float(values[0]), 0.0, 0.0, 2.0**-neighbours)
    return fit(values, lsb / 2)


def fit(values: Values, rounding: float) -> Grid | None:
    """Fit value = level_0 + step * whole number, each off by `rounding` at most, None where that fails."""
    differences = np.diff(values)
    ordered = np.sort(differences)
    for skipped in range(1, _MOST_SKIPPED + 1):
        if ordered[0] < _LEAST_STEP * rounding * skipped:
            return None
        step = _refined_step(ordered, ordered[0] / skipped)
        numbers = np.concatenate([[0.0], np.cumsum(np.rint(differences / step))])
        centred = numbers - numbers.mean()
        step = float(centred @ values / (centred @ centred))
        first = float(values.mean() - step * numbers.mean())
        if numbers[-1] > _MOST_STEPS:
            return None
        error = np.abs(values - first - step * numbers).max()
        if error <= 2 * rounding:
            doubt = min(_MOST_SKIPPED * (4 * rounding / step) ** (len(values) - 2), 1.0)
            return Grid(step, first, 2 * rounding, rounding, doubt)
    return None


def _refined_step(ordered: Values, step: float) -> float:
    """Return the step that ever larger differences are multiples of, each counted with the step so far."""
    reach = 1.5 * ordered[0]
    while True:
        within = ordered[ordered <= reach]
        step = float(within.sum() / np.rint(within / step).sum())
        if len(within) == len(ordered):
            return step
        reach = max(2 * reach, ordered[len(within)])


Places = NDArray[np.int64]
Counts = NDArray[np.intp]

_NEARLY_ALL = 0.999
_PRIMES = (2, 3, 5, 7, 11, 13)
_DENSE = 30  # a level that a dense part of the histogram reaches this often is not missed by chance
_LEAST_LEVELS = 4  # fewer may be odd by chance
_MOST_HOLES = 0.02
_MOST_ROUGHNESS = 0.25
_STRETCHES = (1, 2, 4, 8)
_AMBIGUOUS = 0.4


def companding_of(places: Places, full_scale: bool) -> tuple[MuLaw | ALaw | None, NDArray[np.float64], float]:
    """Find the G.711 outputs that these places are, after any gain and shift.

    Returns
    -------
    law : MuLaw, ALaw or None
    levels : array
        The law's output for each place.
    doubt : float
        The chance that places on a uniform grid all are such outputs.
    """
    codes = np.arange(256)
    best: tuple[MuLaw | ALaw | None, NDArray[np.float64], float] = (None, np.empty(0), 0.5)
    for law, unit in (
        (MuLaw(full_scale, any_encoder=True), 8192),
        (ALaw(full_scale, any_encoder=True), 4096),
    ):
        outputs, first = np.unique(np.rint(law.levels(codes) * unit).astype(np.int64), return_index=True)
        widths = 2 * type(law)().cells(codes[first]).radius * unit
        width_at = np.zeros(outputs[-1] - outputs[0] + 1)
        width_at[outputs - outputs[0]] = np.minimum(widths, unit)
        for stretch in _STRETCHES:
            wanted = stretch * (places - places[0])
            starts = outputs[outputs + wanted[-1] <= outputs[-1]] - outputs[0]
            if len(places) > len(outputs) or not len(starts):
                continue
            found = width_at[starts[:, None] + wanted]
            matches = np.flatnonzero((found > 0).all(axis=1))
            matching = found[matches]
            if not len(matches) or (matching == matching[:, :1]).all(axis=1).any():
                continue  # no such outputs, or a stretch where the law is uniform
            chances = np.minimum(stretch / matching[0], 1.0)
            doubt = float(np.prod(chances)) * len(outputs) * len(_STRETCHES)
            if (matching != matching[0]).any():
                doubt = max(doubt, _AMBIGUOUS)  # the cells depend on which outputs they are
            if doubt < best[2]:
                levels = (starts[matches[0]] + wanted + outputs[0]) / unit
                best = (law, levels, doubt)
    return best


def zero_is_silence(places: Places, counts: Counts, at_zero: NDArray[np.bool_]) -> bool:
    """Tell whether zero was put in among the levels of a mid-rise quantizer, of which it is none.

    All other levels are then odd numbers of half steps from it. Those of a quantizer that has zero would be
    even ones too, unless there are next to none.
    """
    others = ~at_zero
    if at_zero.sum() != 1 or others.sum() < _LEAST_LEVELS:
        return False
    is_odd = (places[others] - places[at_zero]) % 2 == 1
    return bool(is_odd.all()) and counts[others].sum() >= _DENSE * others.sum()


def never_rounded(samples: NDArray[np.float64]) -> bool:
    """Tell whether samples on few levels are a square wave's or clicks rather than a rounded wave's."""
    return _jump(samples) or _click(samples)


def _jump(samples: NDArray[np.float64]) -> bool:
    """Tell whether samples mostly go from one of few levels to another that is not the next.

    Rounded waves do not, and square waves do. Zero among four other levels may be silence that was put in.
    """
    without_zero = samples[samples != 0]
    for heard in (samples, without_zero) if len(np.unique(without_zero)) > 3 else (samples,):
        moves = np.abs(np.diff(np.unique(heard, return_inverse=True)[1]))
        if np.count_nonzero(moves > 1) <= np.count_nonzero(moves == 1):
            return False
    return True


def _click(samples: NDArray[np.float64]) -> bool:
    """Tell whether samples leave the usual one of three levels for one at a time mostly, as clicks do."""
    values, counts = np.unique(samples, return_counts=True)
    if len(values) != 3:
        return False
    away = samples != values[counts.argmax()]
    begins = np.count_nonzero(away[1:] & ~away[:-1])
    return bool(np.count_nonzero(away) < 1.5 * begins)


def flaw(places: Places, counts: Counts) -> str | None:
    """Return what speaks against a uniform quantizer with these levels, None if nothing does.

    The level that occurs most often is left out: silence says nothing.
    """
    others = np.arange(len(places)) != counts.argmax()
    from_mode = places[others] - places[counts.argmax()]
    rest = counts[others]
    for prime in _PRIMES:
        share = rest[from_mode % prime == 0].sum() / rest.sum()
        if _NEARLY_ALL <= share < 1:
            return f"nearly all samples, but not all, lie on a grid at least {prime} times as coarse"
    # The middle half of the samples, level by level.
    reached = rest.cumsum() / rest.sum()
    low, high = from_mode[np.searchsorted(reached, [0.25, 0.75])]
    if high - low < 8 or rest.sum() < _DENSE * 8:
        return None
    middle = np.zeros(high - low + 1)
    inside = (low <= from_mode) & (from_mode <= high)
    middle[from_mode[inside] - low] = rest[inside]
    if low <= 0 <= high:
        middle = np.delete(middle, -low)
    around = np.minimum(np.maximum.accumulate(middle), np.maximum.accumulate(middle[::-1])[::-1])
    holes = np.mean((around >= _DENSE) & (middle < around / 10))
    if holes > _MOST_HOLES:
        return f"{holes:.0%} of the most used levels are hardly used, as after a change of gain or a fade"
    often = np.log(middle[1:-1] + 1) - np.log((middle[:-2] + 1) * (middle[2:] + 1)) / 2
    often = np.abs(often[middle[1:-1] >= 3 * _DENSE])
    if len(often) >= 20 and np.median(often) > _MOST_ROUGHNESS:
        return "neighbouring levels are not used equally often, as after a change of gain or mixing"
    return None


LEAST_CONFIDENCE = 0.99

_STORED_BITS = (8, 16, 24)
_FEW_LEVELS = 8  # that many may be equally far apart in sounds that were never rounded
_MOST_LEVELS = 1 << 17


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
            raise InputError(f"{samples[off_grid][0]} is no level of {self.kind}; detect this part apart")
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
    UndetectedError
        If the samples are not quantized, or their channels differ. An `UncertainError` if they are silent or
        too few.

    Examples
    --------
    >>> found = detect(MidRise(bits=5).quantize(np.sin(np.arange(1000))) * 0.7 + 0.01)
    >>> found.kind, found.effective_bits, round(found.quantizer.step / 0.7, 6)
    ('shifted', 5, 0.0625)
    """
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise UndetectedError(f"need (frames,) or (channels, frames), got shape {array.shape}; reshape it")
    if array.ndim == 1 or len(array) == 1:
        return _detect_channel(array.ravel(), full_scale)
    channels, refusals = [], []
    for index, channel in enumerate(array):
        try:
            channels.append(_detect_channel(channel, full_scale))
        except UndetectedError as reason:
            refusals.append(type(reason)(f"channel {index}: {reason}"))
    if refusals:
        raise min(refusals, key=lambda refusal: isinstance(refusal, UncertainError))
    try:
        together = _detect_channel(array.ravel(), full_scale)
    except UndetectedError:
        together = None
    if together is None or not all(_agree(found, together) for found in channels):
        raise UndetectedError("the channels were quantized in different ways; split them, and restore each")
    return together


def _agree(channel: Detection, together: Detection) -> bool:
    """Tell whether the channel's step is that of all: a finer one of all would be half of it or less."""
    if isinstance(channel.quantizer, MuLaw | ALaw) or isinstance(together.quantizer, MuLaw | ALaw):
        return (channel.kind, channel.quantizer) == (together.kind, together.quantizer)
    return channel.kind == together.kind and channel.quantizer.step < 1.5 * together.quantizer.step


def _detect_channel(samples: Values, full_scale: bool) -> Detection:
    values, counts = np.unique(samples, return_counts=True)
    if not np.isfinite(values).all():
        raise UndetectedError("a sample is NaN or infinite; repair the input first")
    if len(values) < 3:
        raise UncertainError(
            f"the samples have {len(values)} different values, which fit any step; name the quantizer"
        )
    largest = float(np.abs(values).max())
    if not 1e-30 < largest < 1e30:
        raise UndetectedError(f"a peak of {largest:.3g} is no sound's; scale the samples to about 1")
    grid = _grid_of(values, largest)
    coarser_than_stored = grid.rounding > 0
    if coarser_than_stored and len(values) <= _FEW_LEVELS and never_rounded(samples):
        raise UndetectedError(
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
                raise UndetectedError(
                    f"the {bits}-bit codes are never neighbours but have no common step; name the quantizer"
                )
            return grid
    if len(values) > _MOST_LEVELS:
        raise UndetectedError(
            f"the samples have {len(values)} different values and no step; they are not quantized"
        )
    exact_in_float32 = (values == values.astype(np.float32)).all()
    found = fit(values, largest * 2.0 ** (-23 if exact_in_float32 else -47))
    if found is None:
        raise UndetectedError("the values have no common step; they are not quantized, or were changed since")
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
            raise UndetectedError(f"{reason}; name the quantizer")
        found = _describe(grid, values, full_scale)
    if found.confidence < LEAST_CONFIDENCE:
        raise UncertainError(
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
        raise UndetectedError(f"the samples lie {reach:.0f} steps from zero; remove their offset first")
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
