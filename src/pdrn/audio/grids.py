"""Grids: the step that values are multiples of, up to the rounding of how they were stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
