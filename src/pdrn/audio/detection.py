"""Detection: find the quantizer from the samples alone.

A quantized signal has few different values, its levels. Three steps lead from samples to a quantizer:

1. **Grid.** Find the step: the values are multiples of one step on the grid of 8-, 16- or 24-bit PCM, or lie
   on a straight line over the integers, up to the rounding of their storage (16 bits, float32, float64).
2. **Evidence.** Test whether the values are outputs of G.711 after any gain and shift, and whether the
   histogram of the levels contradicts a uniform quantizer.
3. **Decision.** Return the quantizer, or refuse. The confidence is one minus the probability that values
   without such a step pass the same test. It grows with the number of values and with step over rounding.

Limits: levels do not show the edges between them. Half-way is assumed, as for converters that round; the user
has to say if a converter truncates. Fades and mixing after the quantizer leave only the grid of the storage;
at most, holes in the histogram reveal them. Dither before the quantizer is not noticed, and the original then
lies outside some cells. Sound that was not quantized, such as a square wave, may have few equidistant levels
too: samples that jump between them are refused.

`choose_quantizer` combines detection with the user's options and the container's subtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, TypedDict, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells
from pdrn.audio.quantizers import (
    LAWS,
    PCM_BITS,
    ALaw,
    Bounded,
    Clipping,
    Exact,
    MidRise,
    MidTread,
    MuLaw,
    Quantizer,
    Uniform,
    check_bits,
    check_positive,
    numbers,
)
from pdrn.errors import InputError, UncertainError, UndetectedError

Values = NDArray[np.float64]
Places = NDArray[np.int64]
Counts = NDArray[np.intp]


# --- The result ---


@final
@dataclass(frozen=True)
class Detected:
    """A detected quantizer: samples are shift + gain * level of `quantizer`.

    Cells do not overlap: they end half-way between two levels, or by G.711's tables. Levels beyond the range
    of the examined samples have cells too, so that the start of a recording serves for the rest.

    Parameters
    ----------
    quantizer : MidTread, MidRise, MuLaw or ALaw
        Uniform ones have the step and offset of the samples, and the bit depth that these need.
    effective_bits : int
        Bits that number the levels from the lowest sample to the highest; 8 for G.711.
    confidence : float
        One minus the probability that samples without this structure seem to have it.
    slack : float
        Largest distance of a stored sample from its level.
    gain, shift : float
        Applied to the outputs of G.711.
    truncating : bool
        Whether levels are the lower ends of their cells; samples do not show it.
    """

    quantizer: MidTread | MidRise | MuLaw | ALaw
    effective_bits: int
    confidence: float
    slack: float
    gain: float = 1.0
    shift: float = 0.0
    truncating: bool = False

    limit: ClassVar[float] = 1.0

    @property
    def kind(self) -> str:
        """One of mid-tread (zero is a level), mid-rise (zero is an edge), shifted, mu-law and A-law."""
        if isinstance(self.quantizer, MuLaw | ALaw):
            return str(self.quantizer)
        if self.quantizer.offset:
            return "shifted"
        return "mid-tread" if isinstance(self.quantizer, MidTread) else "mid-rise"

    @property
    def step(self) -> float | None:
        """Width of all cells; None for G.711."""
        return self.quantizer.step

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the cells of samples that lie on the detected levels.

        In mid-rise and A-law, zero is no level but inserted silence: its cell reaches to the levels on either
        side.
        """
        x = numbers(samples)
        least = self._silence_radius
        silent = (x == 0) & (least > 0)
        levels = np.where(silent, least, x)
        try:
            if isinstance(self.quantizer, MuLaw | ALaw):
                cells = self._observe_law(self.quantizer, levels)
            else:
                cells = self._observe_uniform(self.quantizer, levels)
        except InputError as error:
            raise InputError(
                f"a sample lies off the levels detected from others ({self}); name the quantizer, or restore "
                "parts or channels separately"
            ) from error
        return cells.silenced(silent, least)

    @property
    def _silence_radius(self) -> float:
        """Magnitude of the levels on either side of zero if zero is an edge, otherwise 0."""
        if isinstance(self.quantizer, MuLaw | ALaw):
            return self.gain * self.quantizer.least_level if abs(self.shift) <= self.slack else 0.0
        return self.quantizer.step / 2 if self.kind == "mid-rise" else 0.0

    def _observe_uniform(self, quantizer: MidTread | MidRise, samples: Values) -> Cells:
        boundless = replace(quantizer, bits=32)
        codes = boundless.codes_of(samples)
        cells = boundless.cells(codes)
        if self.truncating:
            return Cells(cells.lo + quantizer.step / 2, cells.hi + quantizer.step / 2)
        if self.kind == "mid-tread" and quantizer.limit == 1:
            # The highest cell ends at full scale, half a step further; the lowest, half a step earlier. With
            # another full scale a gain was applied, and the highest level is unknown.
            lo = np.where(codes == quantizer.lowest, -1.0, cells.lo)
            return Cells(lo, np.where(codes == quantizer.highest, 1.0, cells.hi))
        return cells

    def _observe_law(self, law: MuLaw | ALaw, samples: Values) -> Cells:
        codes = law.encode((samples - self.shift) / self.gain)
        if (np.abs(samples - self.shift - self.gain * law.decode(codes)) > self.slack).any():
            raise InputError(f"a sample is no level of {law}; detect it separately")
        cells = law.cells(codes)
        lo, hi = np.maximum(cells.lo, -1.0), np.minimum(cells.hi, 1.0)  # the outermost are open-ended
        return Cells(self.shift + self.gain * lo, self.shift + self.gain * hi)

    def __str__(self) -> str:
        if self.step is None:
            return self.kind
        how = ", truncated" if self.truncating else ""
        return f"{self.effective_bits} bits in use, {self.kind}, a step of {self.step:.6g}{how}"


# --- 1. Grid: the common step of all values ---

_STORED_BITS = (8, 16, 24)
_MOST_LEVELS = 1 << 17
_MOST_STEPS = 1 << 24
_LEAST_STEP = 15  # in units of the rounding: keeps the sum of all errors under a quarter of a step
_MOST_SKIPPED = 8  # the smallest distance between two values is at most this many steps


@dataclass(frozen=True)
class _Grid:
    """Levels `level` + step * integer; values deviate by `tolerance` at most, stored with `rounding`."""

    step: float
    level: float
    tolerance: float
    rounding: float
    doubt: float
    """Probability that values without such a step seem to have it."""


def _find_grid(values: Values, largest: float) -> _Grid:
    """Return the grid of sorted, distinct values, or raise `UndetectedError`."""
    for bits in _STORED_BITS:
        codes = values * 2.0 ** (bits - 1)
        if largest <= 1 << 16 and (codes == np.rint(codes)).all():
            grid = _pcm_grid(values, codes.astype(np.int64), bits)
            if grid is None:
                raise UndetectedError(
                    f"the {bits}-bit samples skip codes but have no common step; name the quantizer"
                )
            return grid
    if len(values) > _MOST_LEVELS:
        raise UndetectedError(
            f"the samples have {len(values)} different values and no step; they were not quantized"
        )
    exact_in_float32 = (values == values.astype(np.float32)).all()
    found = _fit_line(values, largest * 2.0 ** (-23 if exact_in_float32 else -47))
    if found is None:
        raise UndetectedError("the samples have no common step; they were not quantized, or processed since")
    return found


def _pcm_grid(values: Values, codes: Places, bits: int) -> _Grid | None:
    """Return the grid of PCM codes: by their common divisor, one code per step, or a fitted step."""
    distances = np.diff(codes)
    factor = int(np.gcd.reduce(distances))
    lsb = 2.0 ** (1 - bits)
    if factor > 1:
        aligned = codes[0] % factor in (0, factor / 2)
        doubt = float(factor) ** (2 - len(codes)) * (2 / factor if aligned else 1.0)
        return _Grid(factor * lsb, float(values[0]), 0.0, lsb / 2, doubt)
    if distances.min() == 1:
        neighbours = int(np.count_nonzero(distances == 1))  # each contradicts any coarser step
        return _Grid(lsb, float(values[0]), 0.0, 0.0, 2.0**-neighbours)
    return _fit_line(values, lsb / 2)


def _fit_line(values: Values, rounding: float) -> _Grid | None:
    """Fit value = first + step * integer with errors of 2 * rounding at most; None if that fails."""
    differences = np.diff(values)
    ordered = np.sort(differences)
    for skipped in range(1, _MOST_SKIPPED + 1):
        if ordered[0] < _LEAST_STEP * rounding * skipped:
            return None
        step = _refine_step(ordered, ordered[0] / skipped)
        places = np.concatenate([[0.0], np.cumsum(np.rint(differences / step))])
        centred = places - places.mean()
        step = float(centred @ values / (centred @ centred))
        first = float(values.mean() - step * places.mean())
        if places[-1] > _MOST_STEPS:
            return None
        error = np.abs(values - first - step * places).max()
        if error <= 2 * rounding:
            doubt = min(_MOST_SKIPPED * (4 * rounding / step) ** (len(values) - 2), 1.0)
            return _Grid(step, first, 2 * rounding, rounding, doubt)
    return None


def _refine_step(ordered: Values, step: float) -> float:
    """Estimate the step from growing differences, each divided by the estimate so far."""
    reach = 1.5 * ordered[0]
    while True:
        within = ordered[ordered <= reach]
        step = float(within.sum() / np.rint(within / step).sum())
        if len(within) == len(ordered):
            return step
        reach = max(2 * reach, ordered[len(within)])


# --- 2. Evidence: G.711, inserted silence, and contradictions to a uniform quantizer ---

_STRETCHES = (1, 2, 4, 8)
_AMBIGUOUS = 0.4
_DENSE = 30  # where levels occur this often, one that does not is no coincidence
_LEAST_LEVELS = 4  # fewer may all be odd by coincidence
_NEARLY_ALL = 0.999
_PRIMES = (2, 3, 5, 7, 11, 13)
_MOST_HOLES = 0.02
_MOST_ROUGHNESS = 0.25


def _match_law(places: Places) -> tuple[MuLaw | ALaw | None, Values, float]:
    """Match integer places on a uniform grid with the outputs of G.711, after any gain and shift.

    Returns
    -------
    law : MuLaw, ALaw or None
    levels : array
        The law's output for each place.
    doubt : float
        Probability that places of a uniform quantizer match.
    """
    codes = np.arange(256)
    best: tuple[MuLaw | ALaw | None, Values, float] = (None, np.empty(0), 0.5)
    laws: tuple[tuple[MuLaw | ALaw, int], ...] = ((MuLaw(), 8192), (ALaw(), 4096))
    for law, unit in laws:
        outputs, first = np.unique(np.rint(law.decode(codes) * unit).astype(np.int64), return_index=True)
        widths = 2 * law.cells(codes[first]).radius * unit
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
                continue  # no match, or one within a segment, where the law is uniform
            chances = np.minimum(stretch / matching[0], 1.0)
            doubt = float(np.prod(chances)) * len(outputs) * len(_STRETCHES)
            if (matching != matching[0]).any():
                doubt = max(doubt, _AMBIGUOUS)  # matches with different cells
            if doubt < best[2]:
                best = (law, (starts[matches[0]] + wanted + outputs[0]) / unit, doubt)
    return best


def _is_silence(places: Places, counts: Counts, at_zero: NDArray[np.bool_]) -> bool:
    """Tell whether zero is silence inserted between mid-rise levels.

    All levels are then an odd number of half steps away from zero. A quantizer with a level at zero would use
    even numbers too.
    """
    others = ~at_zero
    if at_zero.sum() != 1 or others.sum() < _LEAST_LEVELS:
        return False
    is_odd = (places[others] - places[at_zero]) % 2 == 1
    return bool(is_odd.all()) and counts[others].sum() >= _DENSE * others.sum()


def _is_square_wave(samples: Values) -> bool:
    """Tell whether samples mostly skip the neighbouring level, unlike quantized waves.

    With four other levels, zero may be inserted silence: samples without it are tested too.
    """
    without_zero = samples[samples != 0]
    for tested in (samples, without_zero) if len(np.unique(without_zero)) > 3 else (samples,):
        moves = np.abs(np.diff(np.unique(tested, return_inverse=True)[1]))
        if np.count_nonzero(moves > 1) <= np.count_nonzero(moves == 1):
            return False
    return True


def _is_clicks(samples: Values) -> bool:
    """Tell whether samples with three levels leave the most frequent one mostly for a single sample."""
    values, counts = np.unique(samples, return_counts=True)
    if len(values) != 3:
        return False
    away = samples != values[counts.argmax()]
    begins = np.count_nonzero(away[1:] & ~away[:-1])
    return bool(np.count_nonzero(away) < 1.5 * begins)


def _histogram_flaw(places: Places, counts: Counts) -> str | None:
    """Return a contradiction of the histogram to a uniform quantizer, or None.

    The most frequent level is left out: it may be silence.
    """
    others = np.arange(len(places)) != counts.argmax()
    from_mode = places[others] - places[counts.argmax()]
    rest = counts[others]
    for prime in _PRIMES:
        share = rest[from_mode % prime == 0].sum() / rest.sum()
        if _NEARLY_ALL <= share < 1:
            return f"nearly all samples, but not all, lie on a grid {prime} times as coarse"
    # Counts of the levels in the middle half of the samples.
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
        return f"{holes:.0%} of the levels in use hardly occur, as after a change of gain or a fade"
    roughness = np.log(middle[1:-1] + 1) - np.log((middle[:-2] + 1) * (middle[2:] + 1)) / 2
    roughness = np.abs(roughness[middle[1:-1] >= 3 * _DENSE])
    if len(roughness) >= 20 and np.median(roughness) > _MOST_ROUGHNESS:
        return "neighbouring levels differ in frequency, as after a change of gain or mixing"
    return None


# --- 3. Decision ---

LEAST_CONFIDENCE = 0.99

_FEW_LEVELS = 8  # so few may be equidistant without a quantizer


def detect(samples: ArrayLike) -> Detected:
    """Detect the quantizer that made the samples.

    Parameters
    ----------
    samples : array_like, shape (frames,) or (channels, frames)
        All channels need the same quantizer.

    Raises
    ------
    UndetectedError
        If the samples were not quantized, or the channels differ; `UncertainError` if samples are silent or
        too few.

    Examples
    --------
    >>> found = detect(MidRise(bits=5).quantize(np.sin(np.arange(1000))) * 0.7 + 0.01)
    >>> found.kind, found.effective_bits, round(found.step / 0.7, 6)
    ('shifted', 5, 0.0625)
    """
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise UndetectedError(f"need (frames,) or (channels, frames), got shape {array.shape}; reshape it")
    if array.ndim == 1 or len(array) == 1:
        return _detect_channel(array.ravel())
    channels, refusals = [], []
    for index, channel in enumerate(array):
        try:
            channels.append(_detect_channel(channel))
        except UndetectedError as reason:
            refusals.append(type(reason)(f"channel {index}: {reason}"))
    if refusals:
        raise min(refusals, key=lambda refusal: isinstance(refusal, UncertainError))
    try:
        together = _detect_channel(array.ravel())
    except UndetectedError:
        together = None
    if together is None or not all(_agree(found, together) for found in channels):
        raise UndetectedError("the channels have different quantizers; split them, and restore each")
    return together


def _agree(channel: Detected, together: Detected) -> bool:
    """Tell whether a channel has the quantizer of all; its step may not be two or more of theirs."""
    if channel.step is None or together.step is None:
        return channel.quantizer == together.quantizer
    return channel.kind == together.kind and channel.step < 1.5 * together.step


def _detect_channel(samples: Values) -> Detected:
    values, counts = np.unique(samples, return_counts=True)
    if not np.isfinite(values).all():
        raise UndetectedError("a sample is NaN or infinite; repair the input first")
    if len(values) < 3:
        raise UncertainError(
            f"the samples have {len(values)} different values, which fit any step; name the quantizer"
        )
    largest = float(np.abs(values).max())
    if not 1e-30 < largest < 1e30:
        raise UndetectedError(f"a peak of {largest:.3g} is absurd; scale the samples to about 1")
    grid = _find_grid(values, largest)
    coarser_than_stored = grid.rounding > 0
    few = coarser_than_stored and len(values) <= _FEW_LEVELS
    if few and (_is_square_wave(samples) or _is_clicks(samples)):
        raise UndetectedError(
            f"the samples jump between {len(values)} values, as square waves and clicks do without being "
            "quantized; name the quantizer if they were"
        )
    return _decide(grid, values, counts)


def _decide(grid: _Grid, values: Values, counts: Counts) -> Detected:
    """Return the quantizer of values on this grid, by the evidence."""
    places = np.rint((values - grid.level) / grid.step).astype(np.int64)
    law, levels, doubt = _match_law(places)
    nonzero = values != 0
    if law is not None:
        found = _describe_law(law, levels, doubt, grid, values)
    elif not nonzero.all() and isinstance(_match_law(places[nonzero])[0], ALaw):
        without = replace(grid, level=float(values[nonzero][0]))
        return _decide(without, values[nonzero], counts[nonzero])
    elif _is_silence(places, counts, ~nonzero):
        doubt = min(grid.doubt, 2.0 ** (2 - int(nonzero.sum())))  # all are odd by coincidence
        apart = replace(grid, step=2 * grid.step, level=float(values[nonzero][0]), doubt=doubt)
        return _decide(apart, values[nonzero], counts[nonzero])
    else:
        flaw = _histogram_flaw(places, counts)
        if flaw:
            raise UndetectedError(f"{flaw}; name the quantizer")
        found = _describe_uniform(grid, values)
    if found.confidence < LEAST_CONFIDENCE:
        raise UncertainError(
            f"the best guess, {found.kind} with {found.effective_bits} bits, has a confidence of only "
            f"{found.confidence:.3f}; use a longer recording, or name the quantizer"
        )
    return found


def _describe_law(law: MuLaw | ALaw, levels: Values, doubt: float, grid: _Grid, values: Values) -> Detected:
    """Fit gain and shift; prefer a power of two and zero if these fit the values as well."""
    centred = levels - levels.mean()
    gain = float(centred @ values / (centred @ centred))
    shift = float(values.mean() - gain * levels.mean())
    usual = 2.0 ** round(math.log2(gain))
    if (np.abs(values - usual * levels) <= grid.tolerance).all():
        gain, shift = usual, 0.0
    error = float(np.abs(values - shift - gain * levels).max())
    slack = 0.0 if np.array_equal(values, levels) else 2 * error + grid.rounding
    return Detected(law, 8, 1 - doubt, slack, gain, shift)


def _describe_uniform(grid: _Grid, values: Values) -> Detected:
    """Make a quantizer of the grid; prefer a power of two and no offset if these fit the values as well."""
    step, tolerance = grid.step, grid.tolerance
    span = (values[-1] - values[0]) / step
    exponent = round(math.log2(step))
    if abs(2.0**exponent - step) * span <= tolerance:
        step = 2.0**exponent
    phase = (grid.level / step) % 1.0
    tolerance += 1e-9 * step
    on_tread, on_rise = min(phase, 1 - phase) * step <= tolerance, abs(phase - 0.5) * step <= tolerance
    offset = 0.0 if on_tread or on_rise else grid.level + step * (round(span / 2) - 0.5)
    codes = np.rint((values - offset) / step - (0.0 if on_tread else 0.5))
    reach = max(-codes[0], codes[-1] + 1)
    bits = max(math.ceil(math.log2(reach)) + 1, 1)
    if step == 2.0**exponent and offset == 0:
        bits = max(bits, min(1 - exponent, 32))  # full scale is 1, or more if samples are beyond
    if bits > 32:
        raise UndetectedError(f"the samples are {reach:.0f} steps from zero; remove their offset first")
    quantizer = (MidTread if on_tread else MidRise)(bits, step, offset)
    error = np.abs(quantizer.decode(codes.astype(np.int64)) - values).max()
    rounded = tolerance > 1e-9 * step or step != 2.0**exponent or offset != 0
    return Detected(
        quantizer,
        effective_bits=max(math.ceil(math.log2(codes[-1] - codes[0] + 1)), 1),
        confidence=1 - grid.doubt,
        slack=float(error) + (grid.rounding if rounded else 0.0),
    )


# --- The choice: named, stored or detected ---

_LAW_OF_SUBTYPE = {"ULAW": "mulaw", "ALAW": "alaw"}
_SAME_STEP = 1e-3


class QuantizerKeywords(TypedDict, total=False):
    """The fields of `QuantizerOptions` as keywords."""

    bits: int | None
    step: float | None
    law: str | None
    clip_at: float | None
    truncated: bool


@dataclass(frozen=True)
class QuantizerOptions:
    """The properties of the quantizer that the user names; the rest is detected.

    Parameters
    ----------
    bits : int, optional
        Bit depth: levels are 2 / 2**bits apart, at any offset.
    step : float, optional
        Distance of two levels, instead of the bit depth.
    law : str, optional
        "mulaw" or "alaw", instead of bit depth and step.
    clip_at : float, optional
        Where samples were clipped, on both sides of zero. Default: nowhere; cells end at full scale.
    truncated : bool
        Whether the converter truncated instead of rounding.
    """

    bits: int | None = None
    step: float | None = None
    law: str | None = None
    clip_at: float | None = None
    truncated: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("bits", "step", "law") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} exclude each other; pass one of them")
        if self.law is not None and self.law not in LAWS:
            raise InputError(f"the laws are {' and '.join(LAWS)}, got {self.law!r}")
        if self.law is not None and self.truncated:
            raise InputError("G.711 does not truncate; leave law or truncated out")
        if self.bits is not None:
            check_bits(self.bits)
        if self.step is not None:
            check_positive("the step", self.step)
        if self.clip_at is not None:
            check_positive("the clipping threshold", self.clip_at)


COARSE_BITS = 8
"""PCM of at most this bit depth is restored at the levels that it stores, where detection fails."""


def choose_quantizer(
    samples: Values | None,
    options: QuantizerOptions | None = None,
    subtype: str | None = None,
    *,
    gaps: bool = False,
) -> Quantizer:
    """Choose the quantizer of samples: named by the user, stored by the container, or detected.

    Parameters
    ----------
    samples : array, shape (channels, frames), or None
        All samples or the first ones. NaN marks missing samples. None: a stream that has not started.
    options : QuantizerOptions, optional
        The quantizer as named by the user; default: nothing is named.
    subtype : str, optional
        How the container stores samples, such as PCM_16 or ULAW.
    gaps : bool
        Whether later samples may be missing.

    Raises
    ------
    InputError
        If the samples do not lie on the named levels; `UndetectedError` if none are named nor detected.
    """
    options = options or QuantizerOptions()
    known = np.empty(0) if samples is None else samples[~np.isnan(samples)]
    stored = Uniform(PCM_BITS[subtype], truncating=options.truncated) if subtype in PCM_BITS else None

    # 1. The user names bits, step or law. Bits and step leave the offset open: it is detected.
    if options.law is not None or options.bits is not None or options.step is not None:
        uniform = options.bits, options.step or 0.0, options.truncated
        named = Uniform(*uniform) if options.law is None else LAWS[options.law]
        try:
            named.observe(known)
        except InputError as error:
            found = _detect_at_step(known, named.step, options, error)
            return _with_ends(found, options.clip_at)
        return _with_ends(named, options.clip_at, bounded=options.step is None)

    # 2. The container stores G.711.
    if subtype in _LAW_OF_SUBTYPE:
        if options.truncated:
            raise InputError(f"{subtype} is G.711, which does not truncate; leave that option out")
        return _with_ends(LAWS[_LAW_OF_SUBTYPE[subtype]], options.clip_at, bounded=True)

    # 3. The user names clipping: levels are detected below the threshold, else PCM as stored, else exact.
    if options.clip_at is not None:
        try:
            found = _detect(known[np.abs(known) < options.clip_at], options.truncated)
            found.observe(known)
        except InputError:
            return Clipping(options.clip_at, stored or Exact())
        return Clipping(options.clip_at, found)

    # 4. Nothing is named: detection.
    if samples is None:
        raise InputError("a stream cannot be detected beforehand; pass bits, step, law or clip_at")
    try:
        return _detect(_with_sound(samples), options.truncated)
    except UndetectedError as reason:
        # 5. Whatever was done to them, samples were rounded to the levels of the PCM that stores them. These
        # are the quantizer if they are coarse, or if too few levels are in use to detect a step.
        if stored and known.size:
            is_coarse = stored.bits is not None and stored.bits <= COARSE_BITS
            if is_coarse or (isinstance(reason, UncertainError) and _are_dense(samples, stored.step)):
                return Bounded(stored)
        # 6. Not quantized, and only gaps are to be filled in.
        has_gaps = gaps or known.size < samples.size
        if has_gaps and not stored and _is_unquantized(samples):
            return Exact()
        raise UndetectedError(f"no quantizer is detected, pass bits, step or law: {reason}") from reason


def _with_ends(quantizer: Quantizer, clip_at: float | None, *, bounded: bool = False) -> Quantizer:
    """Open the outermost cells where clipping is named, else end them at full scale if `bounded`."""
    if clip_at is not None:
        return Clipping(clip_at, quantizer)
    return Bounded(quantizer) if bounded else quantizer


def _detect(samples: Values, truncated: bool) -> Detected:
    found = detect(samples)
    if truncated and found.step is None:
        raise UndetectedError(f"{found} is detected, which does not truncate; name the quantizer")
    return replace(found, truncating=truncated)


def _detect_at_step(
    samples: Values, step: float | None, options: QuantizerOptions, refusal: InputError
) -> Detected:
    """Return the detected quantizer if it has the named step, at another offset; else refuse."""
    try:
        found = _detect(samples, options.truncated)
    except UndetectedError:
        found = None
    if found is None or found.step is None or step is None or abs(found.step / step - 1) >= _SAME_STEP:
        raise InputError(f"{refusal}, or leave it out to have it detected") from refusal
    return found


def _with_sound(samples: Values) -> Values:
    """Return the channels with sound, their gaps filled; without any, all known samples in one row.

    Sound has three values or more: the last bit of a dead channel may toggle.
    """
    channels = []
    for channel in samples:
        known = channel[~np.isnan(channel)]
        others = known[known != known[:1]]
        if (others != others[:1]).any():
            channels.append(np.where(np.isnan(channel), known[0], channel))
    return np.stack(channels) if channels else samples[~np.isnan(samples)][None]


def _are_dense(samples: Values, step: float) -> bool:
    """Tell whether most levels of each channel are neighbours, which makes a longer step unlikely."""
    for channel in _with_sound(samples):
        distances = np.diff(np.unique(channel))
        if 2 * np.count_nonzero(distances > step) >= max(len(distances), 1):
            return False
    return True


def _is_unquantized(samples: Values) -> bool:
    """Tell whether there are samples, and no quantizer is detected in any channel."""
    for channel in _with_sound(samples):
        try:
            detect(channel)
        except UndetectedError:
            continue
        return False
    return not np.isnan(samples).all()
