"""Cells: the box of intervals that a quantized signal is known to lie in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from pdrn.errors import InputError

FloatArray = NDArray[np.floating[Any]]

_MARGIN = 2.0**-20


@dataclass(frozen=True, eq=False)
class Cells:
    """Closed intervals [lo, hi], one per sample, that the true samples lie in.

    A side may be infinite: a clipped sample has an open-ended cell, a missing one an unbounded cell.
    Both arrays have one shape and one floating-point type and cannot be written to; writable arrays are
    copied.

    Parameters
    ----------
    lo, hi : array_like
        Lower and upper ends, lo <= hi, never NaN. Anything but float32 becomes float64.

    Examples
    --------
    >>> cells = Cells([0.0, 0.5, -np.inf], [0.25, np.inf, np.inf])
    >>> cells.centre
    array([0.125, 0.5  , 0.   ])
    >>> cells.project([1.0, 0.0, 7.0])
    array([0.25, 0.5 , 7.  ])
    >>> cells.violation([1.0, 0.0, 7.0])
    0.75
    """

    lo: FloatArray
    hi: FloatArray

    def __post_init__(self) -> None:
        lo, hi = _immutable(self.lo), _immutable(self.hi)
        dtype = np.float32 if lo.dtype == hi.dtype == np.float32 else np.float64
        lo, hi = lo.astype(dtype, copy=False), hi.astype(dtype, copy=False)
        if lo.shape != hi.shape:
            raise InputError(
                f"lo and hi need one shape, got {lo.shape} and {hi.shape}; pass one cell per sample"
            )
        if not np.all(lo <= hi) or (lo.size and not (lo.max() < np.inf and hi.min() > -np.inf)):
            raise InputError(
                "every cell needs lo <= hi, no NaN and a number inside; check how lo and hi were made"
            )
        for name, ends in zip(("lo", "hi"), frozen(lo, hi), strict=True):
            object.__setattr__(self, name, ends)

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of lo and hi."""
        return self.lo.shape

    @property
    def centre(self) -> FloatArray:
        """The middle of each cell; the finite end of an open-ended cell; 0 for an unbounded one.

        It depends on the cell alone, so it commutes with slicing.
        """
        lo = np.where(np.isfinite(self.lo), self.lo, np.where(np.isfinite(self.hi), self.hi, 0))
        hi = np.where(np.isfinite(self.hi), self.hi, lo)
        return self.project(lo / 2 + hi / 2)

    @property
    def radius(self) -> FloatArray:
        """Half the width of each cell, infinite where a side is."""
        return self.hi / 2 - self.lo / 2

    def project(self, samples: ArrayLike) -> FloatArray:
        """Return the points of the cells that are nearest to the samples, refusing NaN."""
        x = self._matched(samples)
        if np.isnan(x).any():
            raise InputError("a sample is NaN and no point of a cell is nearest to it; check what made it")
        return np.asarray(np.clip(x, self.lo, self.hi))

    def project_inside(self, samples: ArrayLike) -> FloatArray:
        """Return the nearest points strictly inside the cells, 2**-20 of the width away from either end.

        An end belongs to two cells. A point inside has one code, however ties are rounded. A cell with no
        number between its ends keeps the projected sample.

        >>> Cells([0.25], [0.5]).project_inside([0.7]) < 0.5
        array([ True])
        """
        inside = self.project(samples)
        at_end = (inside == self.lo) | (inside == self.hi)
        if at_end.any():
            lo, hi = self.lo[at_end], self.hi[at_end]
            width = hi - lo
            margin = np.where(np.isfinite(width), width * lo.dtype.type(_MARGIN), 0)
            lo, hi = (
                np.maximum(lo + margin, np.nextafter(lo, hi)),
                np.minimum(hi - margin, np.nextafter(hi, lo)),
            )
            inside[at_end] = np.where(lo <= hi, np.clip(inside[at_end], lo, hi), inside[at_end])
        return inside

    def contains(self, samples: ArrayLike) -> NDArray[np.bool_]:
        """Tell for each sample whether it lies in its cell."""
        x = self._matched(samples)
        return np.asarray((self.lo <= x) & (x <= self.hi))

    def violation(self, samples: ArrayLike) -> float:
        """Return the largest distance of a sample to its cell: 0.0 if all are inside, inf if one is NaN."""
        outside = ~self.contains(samples)
        if not outside.any():
            return 0.0
        lo, hi, x = (ends[outside] for ends in (self.lo, self.hi, np.asarray(samples)))
        if np.isnan(x).any():
            return float("inf")
        with np.errstate(over="ignore"):
            return float(np.maximum(lo - x, x - hi).max())

    def opened(self, below: ArrayLike, above: ArrayLike) -> Cells:
        """Return these cells with no lower end where `below` is true and no upper end where `above` is."""
        return Cells(*frozen(np.where(below, -np.inf, self.lo), np.where(above, np.inf, self.hi)))

    def clipped(self, threshold: float, full_scale: float = 1.0) -> Cells:
        """Return these cells, open-ended where they reach the threshold on either side of zero.

        The float32 nearest to the threshold counts as the threshold too. An upper end belongs to the next
        cell, so a cell does not reach it, except where it ends at full scale and there is no next cell.

        >>> cells = Cells([0.25, 0.5, 0.75], [0.5, 0.75, 1.0])
        >>> cells.clipped(0.5).hi, cells.clipped(1.0).hi
        (array([0.5, inf, inf]), array([0.5 , 0.75,  inf]))
        """
        reached = min(threshold, float(np.float32(threshold)))
        above = (self.hi > reached) | (self.lo >= reached)
        if reached == full_scale:
            above |= self.hi == full_scale
        return self.opened(self.lo <= -reached, above)

    def silenced(self, where: ArrayLike, radius: float) -> Cells:
        """Return these cells with [-radius, radius] where `where` is true."""
        return Cells(*frozen(np.where(where, -radius, self.lo), np.where(where, radius, self.hi)))

    def astype(self, dtype: DTypeLike) -> Cells:
        """Return the cells in float32 or float64, rounded inward: lo up, hi down.

        The result lies inside these cells. A cell that holds no float32 at all is refused, since any
        float32 in its place would claim what the data does not support.
        """
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise InputError(f"cells are float32 or float64, not {np.dtype(dtype)}")
        with np.errstate(over="ignore"):
            lo, hi = self.lo.astype(dtype), self.hi.astype(dtype)
            lo = np.where(lo < self.lo, np.nextafter(lo, np.inf, dtype=dtype), lo)
            hi = np.where(hi > self.hi, np.nextafter(hi, -np.inf, dtype=dtype), hi)
        empty = ~((lo <= hi) & (lo < np.inf) & (hi > -np.inf))
        if empty.any():
            raise InputError(
                f"{np.count_nonzero(empty)} of {empty.size} cells hold no {np.dtype(dtype)}; keep float64"
            )
        return Cells(lo, hi)

    def _matched(self, samples: ArrayLike) -> NDArray[Any]:
        """Return the samples as an array, refusing another shape than the cells'."""
        x = np.asarray(samples)
        if x.shape != self.shape:
            raise InputError(
                f"samples of shape {x.shape} do not match cells of shape {self.shape}; pass one per cell"
            )
        return x

    def __getitem__(self, key: Any) -> Cells:
        return _unchecked(self.lo[key], self.hi[key])

    def __len__(self) -> int:
        return len(self.lo)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cells):
            return NotImplemented
        return np.array_equal(self.lo, other.lo) and np.array_equal(self.hi, other.hi)

    __hash__ = None  # type: ignore[assignment]


def frozen(*arrays: FloatArray) -> tuple[FloatArray, ...]:
    """Make the arrays read-only and return them, so that cells need not copy them."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


def _immutable(ends: ArrayLike) -> NDArray[Any]:
    """Return an array that cannot be written to, neither itself nor through its base."""
    array = np.asarray(ends)
    base = array.base
    if array.flags.writeable or (isinstance(base, np.ndarray) and base.flags.writeable):
        array = array.copy()
        array.flags.writeable = False
    return array


def concatenate(pieces: Sequence[Cells], axis: int = -1) -> Cells:
    """Concatenate cells along an axis, by default time.

    Examples
    --------
    >>> cells = Cells([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    >>> concatenate([cells[:1], cells[1:]]) == cells
    True
    """
    return _unchecked(
        np.concatenate([piece.lo for piece in pieces], axis),
        np.concatenate([piece.hi for piece in pieces], axis),
    )


def _unchecked(lo: FloatArray, hi: FloatArray) -> Cells:
    """Build cells from parts of valid ones without the checks, which would slow a live stream."""
    cells = object.__new__(Cells)
    for name, ends in zip(("lo", "hi"), frozen(np.asarray(lo), np.asarray(hi)), strict=True):
        object.__setattr__(cells, name, ends)
    return cells
