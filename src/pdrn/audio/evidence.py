"""Evidence: what the levels that occur, and how often, say for or against a uniform quantizer.

Levels are given by whole numbers, their places on the finest grid that holds them all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.g711 import ALaw, MuLaw

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
