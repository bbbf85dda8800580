"""Quantizers: samples to codes, codes to cells; here the uniform ones.

Every quantizer is a value with the methods of `Quantizer`. Uniform ones number half-open cells
[edge(k), edge(k + 1)) that tile the line without gap or overlap, in floating point too: a sample is
compared with the very edges that its cell is made of. (`Cells` are closed: they hold their upper edge too.)
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray, frozen

Codes = NDArray[Any]


class Quantizer(Protocol):
    """What every quantizer can do."""

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the code of each sample."""
        ...

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each code: all samples that have it."""
        ...

    def centres(self, codes: ArrayLike) -> FloatArray:
        """Return the centre of each code's cell."""
        ...

    def levels(self, codes: ArrayLike) -> FloatArray:
        """Return what a decoder puts out for each code."""
        ...

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the codes of samples that a decoder put out, refusing others."""
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


def refuse_beyond(samples: NDArray[np.float64], low: float, high: float) -> None:
    """Refuse samples that a quantizer whose full scale is known would have to cut off."""
    beyond = (samples < low) | (samples > high)
    if beyond.any():
        raise ValueError(
            f"a sample of {samples[beyond].flat[0]:.6g} is beyond full scale, {low:.6g} to {high:.6g}; "
            "turn it down or pass full_scale=False"
        )


@dataclass(frozen=True)
class _Uniform:
    """A uniform quantizer of 2**bits levels: what `MidRise`, `MidTread` and `Truncation` share.

    Parameters
    ----------
    bits : int
        Bit depth, 1 to 32.
    step : float
        Distance of two levels; 0, the default, stands for 2 / 2**bits: full scale is [-1, 1].
    offset : float
        What is added to a signal that is centred at zero: shifts edges and levels alike.
    full_scale : bool
        What is known about a sample with an outermost code. False: it may have been cut off, and the
        outermost cells are open-ended. True: the signal keeps within full scale, offset -+
        step * 2**bits / 2 (as the paper's peak-normalised speech), the outermost cells end there, and
        samples beyond are refused.
    """

    bits: int
    step: float = 0.0
    offset: float = 0.0
    full_scale: bool = False

    # Where code 0 has its lower edge and its level, in steps from the offset.
    _edge: ClassVar[float]
    _level: ClassVar[float]

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not hasattr(self.bits, "__index__") or not 1 <= self.bits <= 32:
            raise ValueError(f"the bit depth is a whole number from 1 to 32, got {self.bits!r}")
        object.__setattr__(self, "bits", operator.index(self.bits))
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

    def _edges(self, codes: NDArray[Any], above: int = 0) -> NDArray[np.float64]:
        """Return the lower edges of the codes, or of those `above` them by so many."""
        edges = np.asarray(np.add(codes, self._edge + above, dtype=np.float64))
        edges *= self.step  # in place: blocks of hours-long files are as fast as memory is
        edges += self.offset
        return edges

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the code of each sample, saturating at the outermost ones unless `full_scale`."""
        samples = numbers(samples)
        if self.full_scale:
            refuse_beyond(samples, self.offset - self.limit, self.offset + self.limit)
        codes = np.floor((samples - self.offset) / self.step - self._edge)
        codes = np.clip(codes, self.lowest, self.highest)
        codes -= samples < self._edges(codes)  # the quotient was rounded, the edges decide
        codes += samples >= self._edges(codes, above=1)
        return np.clip(codes, self.lowest, self.highest).astype(np.int32)

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each code; see `full_scale` for the outermost ones."""
        codes = whole_codes(codes, self.lowest, self.highest)
        limit = self.limit if self.full_scale else math.inf
        lo, hi = self._edges(codes), self._edges(codes, above=1)
        lo[codes == self.lowest] = self.offset - limit
        hi[codes == self.highest] = self.offset + limit
        return Cells(*frozen(lo, hi))

    def centres(self, codes: ArrayLike) -> FloatArray:
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
        places = np.asarray(levels - self.offset)
        places /= self.step
        places -= self._level
        codes = np.asarray(np.rint(places))
        np.clip(codes, self.lowest, self.highest, out=codes)
        places -= codes
        off_grid = np.abs(places, out=places) > 1 / 4
        if off_grid.any():
            raise ValueError(
                f"{levels[off_grid][0]} is no level of {self}; encode samples that are not quantized"
            )
        return codes.astype(np.int32)


@final
@dataclass(frozen=True)
class MidRise(_Uniform):
    """Uniform, zero is an edge: q = step (floor(s / step) + 1/2), as in the paper.

    Examples
    --------
    >>> paper = MidRise(bits=5, full_scale=True)
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
class MidTread(_Uniform):
    """Uniform, zero is a level: q = step floor(s / step + 1/2), as in signed PCM.

    Within full scale its lowest cell is half a step wide and its highest one and a half.

    Examples
    --------
    >>> pcm = MidTread(bits=8)
    >>> pcm.quantize([0.001, 0.5, 1.0])
    array([0.       , 0.5      , 0.9921875])
    >>> pcm.cells(pcm.encode(1.0)).hi
    array(inf)
    """

    _edge: ClassVar[float] = -0.5
    _level: ClassVar[float] = 0.0


@final
@dataclass(frozen=True)
class Truncation(_Uniform):
    """Uniform, rounded down: q = step floor(s / step), as in converters that drop bits.

    The level is the lower edge of the cell, so that `centres` lie half a step above.

    Examples
    --------
    >>> dropped = Truncation(bits=4)
    >>> dropped.quantize([0.2, -0.01]), dropped.centres(dropped.encode([0.2, -0.01]))
    (array([ 0.125, -0.125]), array([ 0.1875, -0.0625]))
    """

    _edge: ClassVar[float] = 0.0
    _level: ClassVar[float] = 0.0
