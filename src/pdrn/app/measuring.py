"""Figures that may not be defined, or whose package may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable


def or_none(measure: Callable[[], float]) -> float | None:
    """Return the figure, None where it is not defined or its package is missing."""
    try:
        return measure()
    except (ValueError, ImportError):
        return None


def is_finite(value: object) -> bool:
    """Tell whether JSON can carry the value."""
    return not isinstance(value, float) or math.isfinite(value)
