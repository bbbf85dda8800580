"""Damage: clipping and gaps, which leave some samples known by one side or not at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.quantizers import Codes, Quantizer, numbers


@final
@dataclass(frozen=True)
class Clipping:
    """Cut off at a threshold: samples below it are known as before, the others only to reach it.

    Parameters
    ----------
    threshold : float
        Where samples were cut off, on both sides of zero. The nearest float32 counts as reached too.
    quantizer : Quantizer, optional
        What stored the clipped samples: every code from that of the threshold on is open-ended. Without
        one, the codes are the clipped samples themselves. (Rounding moves samples away from the threshold,
        so leave it out only for samples that were never rounded.)

    Examples
    --------
    >>> cells = Clipping(0.5).cells([0.2, 0.5, -0.5])
    >>> cells.lo, cells.hi
    (array([ 0.2,  0.5, -inf]), array([ 0.2,  inf, -0.5]))
    """

    threshold: float
    quantizer: Quantizer | None = None

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise ValueError(f"the threshold needs a positive finite number, got {self.threshold}")
        object.__setattr__(self, "threshold", float(self.threshold))

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the codes of the clipped samples."""
        clipped = np.clip(numbers(samples), -self.threshold, self.threshold)
        return self.quantizer.encode(clipped) if self.quantizer else clipped

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each code, a half-line where it reaches the threshold."""
        if self.quantizer is None:
            codes = self.encode(codes)
            return Cells(codes, codes).clipped(self.threshold)
        own = self.quantizer.cells(self.quantizer.encode([self.threshold]))
        return self.quantizer.cells(codes).clipped(self.threshold, full_scale=float(own.hi[0]))

    def centres(self, codes: ArrayLike) -> FloatArray:
        """Return the centre of each cell: its finite end where it was clipped."""
        return self.cells(codes).centre

    def levels(self, codes: ArrayLike) -> FloatArray:
        """Return what a decoder puts out for each code."""
        return self.quantizer.levels(codes) if self.quantizer else self.encode(codes)

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the codes of samples that a decoder put out."""
        return self.quantizer.codes_of(levels) if self.quantizer else self.encode(levels)

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the clipped samples as a listener receives them."""
        return self.levels(self.encode(samples))


@final
@dataclass(frozen=True)
class Gaps:
    """Missing samples: NaN marks them, and anything may have been there.

    Where the others are quantized too, combine: `quantizer.cells(codes).opened(missing, missing)`.

    Examples
    --------
    >>> cells = Gaps().cells([0.25, np.nan])
    >>> cells.lo, cells.hi
    (array([0.25, -inf]), array([0.25,  inf]))
    """

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the samples, NaN where they are missing."""
        array = np.asarray(samples, dtype=np.float64)
        if np.isinf(array).any():
            raise ValueError("a sample is infinite; mark missing samples with NaN")
        return array

    def cells(self, codes: ArrayLike) -> Cells:
        """Return a point for each sample that is there, the whole line for the others."""
        codes = self.encode(codes)
        missing = np.isnan(codes)
        known = np.where(missing, 0.0, codes)
        return Cells(known, known).opened(missing, missing)

    def centres(self, codes: ArrayLike) -> FloatArray:
        """Return the samples, 0 where they are missing."""
        return self.cells(codes).centre

    def levels(self, codes: ArrayLike) -> FloatArray:
        """Return the samples, 0 where they are missing."""
        return self.centres(codes)

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the samples, NaN where they are missing."""
        return self.encode(levels)

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the samples, 0 where they are missing."""
        return self.levels(self.encode(samples))
