"""Detection: which quantizer made these samples, told from the values that occur, or a refusal.

The values of a quantized signal lie on few levels. Three questions are asked of them, in this order:
are they all decoder outputs of G.711; are they multiples of one step on the grid of 8-, 16- or 24-bit
PCM; do they fit a straight line over whole numbers, up to the rounding of how they were stored (16-bit
codes, float32, float64)? The confidence is one minus the chance that values without such a step pass the
same test, so it grows with the number of different values and with the step's distance from the rounding.

What levels cannot tell is where the edges lie between them: half-way is assumed, as for converters that
round. For one that truncates, whose samples average half a step too low, make a `Truncation` with the
step that was found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.quantizers import MidRise, MidTread

LEAST_CONFIDENCE = 0.99

_STORED_BITS = (8, 16, 24)
_MOST_LEVELS = 1 << 17
_MOST_STEPS = 1 << 24
_LEAST_STEP = 15  # in units of the rounding: keeps the sum of all errors under a quarter of a step
_MOST_SKIPPED = 8  # try steps down to this fraction of the smallest distance between two values

Values = NDArray[np.float64]


class Undetected(ValueError):
    """No quantizer can be told from the samples, and the reason."""


@dataclass(frozen=True)
class Detection:
    """A quantizer that explains the samples.

    Parameters
    ----------
    kind : str
        "mid-tread" (zero is a level), "mid-rise" (zero is an edge), "shifted" (neither), "mu-law" or "A-law".
    quantizer : MidTread, MidRise, MuLaw or ALaw
        With `step` and `offset` where they exist.
    effective_bits : int
        Bits that number all levels from the lowest to the highest that occur; 8 for G.711.
    confidence : float
        One minus the chance that samples without this structure look like it.
    slack : float
        How far the levels may be from their true places, since storing rounded them.
    saturated : tuple of int
        The outermost codes that occur: their samples may have been cut off there, whatever the gain was
        since, so their cells are open-ended. None where full scale is known, or the quantizer says it all.
    """

    kind: str
    quantizer: MidTread | MidRise | MuLaw | ALaw
    effective_bits: int
    confidence: float
    slack: float
    saturated: tuple[int, int] | None

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the cells of samples that show this quantizer's levels, widened by the slack."""
        codes = self.quantizer.codes_of(samples)
        cells = self.quantizer.cells(codes)
        if self.saturated:
            cells = cells.opened(codes <= self.saturated[0], codes >= self.saturated[1])
        return Cells(cells.lo - self.slack, cells.hi + self.slack)


def detect(samples: ArrayLike, full_scale: bool = False) -> Detection:
    """Tell the quantizer from the samples.

    Parameters
    ----------
    samples : array_like
        Of any shape; only the values that occur matter.
    full_scale : bool
        Whether the signal is known not to have been cut off: see `quantizers.Uniform`.

    Raises
    ------
    Undetected
        If the samples are not quantized, silent, or too few to be sure.

    Examples
    --------
    >>> found = detect(MidRise(bits=5).quantize(np.sin(np.arange(1000))) * 0.7 + 0.01)
    >>> found.kind, found.effective_bits, round(found.quantizer.step / 0.7, 6)
    ('shifted', 5, 0.0625)
    """
    values = np.unique(np.asarray(samples, dtype=np.float64))
    if not np.isfinite(values).all():
        raise Undetected("a sample is NaN or infinite; repair the input first")
    if len(values) < 3:
        raise Undetected(
            f"the samples have {len(values)} different values, which fit any step; name the quantizer"
        )
    for bits in _STORED_BITS:
        codes = values * 2.0 ** (bits - 1)
        if (codes == np.rint(codes)).all():
            return _detect_stored(values, codes.astype(np.int64), bits, full_scale)
    if len(values) > _MOST_LEVELS:
        raise Undetected(
            f"the samples have {len(values)} different values and no step; they are not quantized"
        )
    exact_in_float32 = (values == values.astype(np.float32)).all()
    rounding = np.abs(values).max() * 2.0 ** (-23 if exact_in_float32 else -47)
    found = _fit(values, float(rounding), full_scale)
    if found is None:
        raise Undetected("the values have no common step; they are not quantized, or were changed since")
    return _sure(found)


def _sure(found: Detection) -> Detection:
    if found.confidence < LEAST_CONFIDENCE:
        raise Undetected(
            f"the best guess, {found.kind} with {found.effective_bits} bits, has a confidence of only "
            f"{found.confidence:.3f}; use a longer recording, or name the quantizer"
        )
    return found


def _detect_stored(values: Values, codes: NDArray[np.int64], bits: int, full_scale: bool) -> Detection:
    """Tell the quantizer of samples that lie on the grid of PCM."""
    factor = int(np.gcd.reduce(np.diff(codes)))
    lsb = 2.0 ** (1 - bits)
    if bits == 16:
        for kind, law in (("mu-law", MuLaw(full_scale, signed_zero=False)), ("A-law", ALaw(full_scale))):
            doubt = _doubt_about(law, values, factor * lsb)
            if doubt < 0.5:
                return _sure(Detection(kind, law, 8, 1 - doubt, 0.0, None))
    if factor > 1:
        aligned = codes[0] % factor in (0, factor / 2)
        doubt = float(factor) ** (2 - len(codes)) * (2 / factor if aligned else 1.0)
        return _sure(_describe(factor * lsb, float(values[0]), values, 0.0, lsb / 2, 1 - doubt, full_scale))
    if np.diff(codes).min() == 1:
        return _describe(lsb, float(values[0]), values, 0.0, 0.0, 1.0, full_scale)
    found = _fit(values, lsb / 2, full_scale)
    if found is None:
        raise Undetected(
            f"the {bits}-bit codes are never neighbours but have no common step; name the quantizer"
        )
    return _sure(found)


def _doubt_about(law: MuLaw | ALaw, values: Values, step: float) -> float:
    """Return the chance that values on a uniform grid all are outputs of the law, 1 if they are not."""
    codes = law.encode(values)
    if (law.levels(codes) != values).any():
        return 1.0
    widths = 2 * law.cells(codes).radius
    finite = widths[np.isfinite(widths)]
    return float(np.prod(np.minimum(step / finite, 1.0)))


def _fit(values: Values, rounding: float, full_scale: bool) -> Detection | None:
    """Fit value = level_0 + step * whole number, each value off by `rounding` at most."""
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
            return _describe(step, first, values, 2 * rounding, rounding, 1 - doubt, full_scale)
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


def _describe(
    step: float,
    level: float,
    values: Values,
    tolerance: float,
    rounding: float,
    confidence: float,
    full_scale: bool,
) -> Detection:
    """Name the grid with this step through this level, snapped to usual places that explain it as well."""
    span = (values[-1] - values[0]) / step
    exponent = round(math.log2(step))
    if abs(2.0**exponent - step) * span <= tolerance:
        step = 2.0**exponent
    phase = (level / step) % 1.0
    tolerance += 1e-9 * step
    on_tread, on_rise = min(phase, 1 - phase) * step <= tolerance, abs(phase - 0.5) * step <= tolerance
    kind = "mid-tread" if on_tread else "mid-rise" if on_rise else "shifted"
    quantizer_type = MidTread if on_tread else MidRise
    offset = 0.0 if on_tread or on_rise else level + step * (round(span / 2) - 0.5)
    codes = np.rint((values - offset) / step - (0.0 if on_tread else 0.5))
    reach = max(-codes[0], codes[-1] + 1)
    bits = max(math.ceil(math.log2(reach)) + 1, 1)
    if step == 2.0**exponent and offset == 0:
        bits = max(bits, 1 - exponent)  # full scale is 1 unless the samples reach beyond
    if bits > 32:
        raise Undetected(f"the samples lie {reach:.0f} steps from zero; remove their offset first")
    quantizer = quantizer_type(bits, step, offset, full_scale)
    error = np.abs(quantizer.levels(codes.astype(np.int64)) - values).max()
    rounded = tolerance > 1e-9 * step or step != 2.0**exponent or kind == "shifted"
    return Detection(
        kind,
        quantizer,
        effective_bits=max(math.ceil(math.log2(codes[-1] - codes[0] + 1)), 1),
        confidence=confidence,
        slack=float(error) + (rounding if rounded else 0.0),
        saturated=None if full_scale else (int(codes[0]), int(codes[-1])),
    )
