"""Quantizers: samples to codes, codes to cells; the uniform ones, clipping and gaps.

Every quantizer is a value with four methods (see `Quantizer`). Uniform ones number half-open cells
[edge(k), edge(k + 1)) that tile the line without gap or overlap, in floating point too: a sample is
compared with the very edges that its cell is made of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray

Codes = NDArray[Any]


class Quantizer(Protocol):
    """What every quantizer can do."""

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the code of each sample."""
        ...

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each code: all samples that have it."""
        ...

    def decode(self, codes: ArrayLike) -> FloatArray:
        """Return the centre of each code's cell."""
        ...

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the samples as a listener receives them."""
        ...


def numbers(samples: ArrayLike) -> NDArray[np.float64]:
    """Return the samples in float64, refusing NaN."""
    array = np.asarray(samples, dtype=np.float64)
    if np.isnan(array).any():
        raise ValueError("a sample is NaN; mark missing samples with Gaps, or repair the input")
    return array


def whole_codes(codes: ArrayLike, lowest: int, highest: int) -> NDArray[np.integer[Any]]:
    """Return the codes as an integer array, refusing any other type and codes out of range."""
    array = np.asarray(codes)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"codes are integers, got {array.dtype}; make them with encode")
    if array.size and not (lowest <= array.min() and array.max() <= highest):
        raise ValueError(
            f"codes lie in {lowest}..{highest}, got {array.min()}..{array.max()}; check the bit depth"
        )
    return array


@dataclass(frozen=True)
class Uniform:
    """A uniform quantizer of 2**bits levels: use one of `MidRise`, `MidTread` and `Truncation`.

    Parameters
    ----------
    bits : int
        Bit depth, 1 to 32.
    step : float
        Distance of two levels; 0, the default, stands for 2 / 2**bits: full scale is [-1, 1].
    offset : float
        What is added to a signal that is centred at zero: shifts edges and levels alike.
    full_scale : bool
        What is known about a sample with an outermost code. True: the signal keeps within full scale,
        offset -+ step * 2**bits / 2, and the outermost cells end there (the paper's peak-normalised
        speech). False: it may have been cut off, and the outermost cells are open-ended.
    """

    bits: int
    step: float = 0.0
    offset: float = 0.0
    full_scale: bool = True

    # Where code 0 has its lower edge and its level, in steps from the offset.
    _edge: ClassVar[float]
    _level: ClassVar[float]

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 32:
            raise ValueError(f"the bit depth is 1 to 32, got {self.bits}")
        if self.step == 0:
            object.__setattr__(self, "step", 2.0 / 2**self.bits)
        if not (self.step > 0 and math.isfinite(self.limit) and math.isfinite(self.offset)):
            raise ValueError(
                f"step and offset need finite numbers, step > 0, got {self.step} and {self.offset}"
            )
        if self.step < 8 * np.spacing(abs(self.offset) + self.limit):
            raise ValueError(
                f"step {self.step} at offset {self.offset} is beyond float64; remove the offset first"
            )

    @property
    def lowest(self) -> int:
        """The lowest code."""
        return -(1 << (self.bits - 1))

    @property
    def highest(self) -> int:
        """The highest code."""
        return (1 << (self.bits - 1)) - 1

    @property
    def limit(self) -> float:
        """Full scale: the largest distance from the offset that the levels are made for."""
        return self.step * (1 << (self.bits - 1))

    def _edges(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.offset + (codes + self._edge) * self.step

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the code of each sample, saturating at the outermost ones."""
        samples = numbers(samples)
        codes = np.floor((samples - self.offset) / self.step - self._edge)
        codes = np.clip(codes, self.lowest, self.highest)
        codes -= samples < self._edges(codes)  # the quotient was rounded, the edges decide
        codes += samples >= self._edges(codes + 1)
        return np.clip(codes, self.lowest, self.highest).astype(np.int32)

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each code; see `full_scale` for the outermost ones."""
        codes = whole_codes(codes, self.lowest, self.highest)
        limit = self.limit if self.full_scale else math.inf
        wide = codes.astype(np.float64)
        return Cells(
            np.where(codes == self.lowest, self.offset - limit, self._edges(wide)),
            np.where(codes == self.highest, self.offset + limit, self._edges(wide + 1)),
        )

    def decode(self, codes: ArrayLike) -> FloatArray:
        """Return the centre of each code's cell, which `levels` need not be: see `Truncation`."""
        return self.cells(codes).centre

    def levels(self, codes: ArrayLike) -> FloatArray:
        """Return the value that each code is shown as."""
        return self.offset + (whole_codes(codes, self.lowest, self.highest) + self._level) * self.step

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return each sample's level."""
        return self.levels(self.encode(samples))

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the codes of samples that show levels already, up to a quarter of a step."""
        levels = numbers(levels)
        nearest = np.rint((levels - self.offset) / self.step - self._level)
        codes = np.clip(nearest, self.lowest, self.highest).astype(np.int32)
        off_grid = np.abs(levels - self.levels(codes)) > self.step / 4
        if off_grid.any():
            raise ValueError(
                f"{levels[off_grid][0]} is no level of {self}; encode samples that are not quantized"
            )
        return codes


@final
@dataclass(frozen=True)
class MidRise(Uniform):
    """Uniform, zero is an edge: q = step (floor(s / step) + 1/2), as in the paper.

    Examples
    --------
    >>> paper = MidRise(bits=5)
    >>> paper.step
    0.0625
    >>> paper.quantize([-1.0, -0.01, 0.0, 1.0])
    array([-0.96875, -0.03125,  0.03125,  0.96875])
    >>> cells = paper.cells(paper.encode([0.3, 1.0]))
    >>> cells.lo, cells.hi
    (array([0.25  , 0.9375]), array([0.3125, 1.    ]))
    """

    _edge: ClassVar[float] = 0.0
    _level: ClassVar[float] = 0.5


@final
@dataclass(frozen=True)
class MidTread(Uniform):
    """Uniform, zero is a level: q = step floor(s / step + 1/2), as in signed PCM.

    Within full scale its lowest cell is half a step wide and its highest one and a half.

    Examples
    --------
    >>> pcm = MidTread(bits=8, full_scale=False)
    >>> pcm.quantize([0.001, 0.5, 1.0])
    array([0.       , 0.5      , 0.9921875])
    >>> pcm.cells(pcm.encode(1.0)).hi
    array(inf)
    """

    _edge: ClassVar[float] = -0.5
    _level: ClassVar[float] = 0.0


@final
@dataclass(frozen=True)
class Truncation(Uniform):
    """Uniform, rounded down: q = step floor(s / step), as in converters that drop bits.

    The level is the lower edge of the cell, so `decode`, which gives centres, lies half a step above.

    Examples
    --------
    >>> dropped = Truncation(bits=4)
    >>> dropped.quantize([0.2, -0.01]), dropped.decode(dropped.encode([0.2, -0.01]))
    (array([ 0.125, -0.125]), array([ 0.1875, -0.0625]))
    """

    _edge: ClassVar[float] = 0.0
    _level: ClassVar[float] = 0.0


@final
@dataclass(frozen=True)
class Clipping:
    """Cut off at a threshold: samples below it are known, the others only to reach it.

    The codes are the clipped samples themselves. Where they are quantized too, combine the cells:
    `quantizer.cells(codes).opened(clipped_below, clipped_above)`.

    Examples
    --------
    >>> cells = Clipping(0.5).cells([0.2, 0.5, -0.5])
    >>> cells.lo, cells.hi
    (array([ 0.2,  0.5, -inf]), array([ 0.2,  inf, -0.5]))
    """

    threshold: float

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise ValueError(f"the threshold needs a positive finite number, got {self.threshold}")

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the clipped samples."""
        return np.clip(numbers(samples), -self.threshold, self.threshold)

    def cells(self, codes: ArrayLike) -> Cells:
        """Return a point for each sample below the threshold, a half-line for the others."""
        codes = self.encode(codes)
        return Cells(codes, codes).opened(codes <= -self.threshold, codes >= self.threshold)

    def decode(self, codes: ArrayLike) -> FloatArray:
        """Return the clipped samples."""
        return self.cells(codes).centre

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the clipped samples."""
        return self.encode(samples)


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

    def decode(self, codes: ArrayLike) -> FloatArray:
        """Return the samples, 0 where they are missing."""
        return self.cells(codes).centre

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the samples, 0 where they are missing."""
        return self.decode(self.encode(samples))
