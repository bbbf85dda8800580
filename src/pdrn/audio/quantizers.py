"""Quantizers: samples to codes, codes to cells. Uniform ones, G.711, clipping and gaps."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray, frozen
from pdrn.errors import InputError

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
        raise InputError("a sample is NaN; mark missing samples with Gaps, or repair the input")
    return array


def whole_codes(codes: ArrayLike, lowest: int, highest: int) -> NDArray[np.integer[Any]]:
    """Return the codes as an integer array, refusing any other type and codes out of range."""
    array = np.asarray(codes)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"codes are integers, got {array.dtype}; make them with encode")
    if array.size and not (lowest <= array.min() and array.max() <= highest):
        raise InputError(
            f"codes lie in {lowest}..{highest}, got {array.min()}..{array.max()}; check the bit depth"
        )
    return array


def refuse_beyond(samples: NDArray[np.float64], low: float, high: float) -> None:
    """Refuse samples that a quantizer whose full scale is known would have to cut off."""
    beyond = (samples < low) | (samples > high)
    if beyond.any():
        raise InputError(
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
            raise InputError(f"the bit depth is a whole number from 1 to 32, got {self.bits!r}")
        object.__setattr__(self, "bits", operator.index(self.bits))
        if self.step == 0:
            object.__setattr__(self, "step", 2.0 / 2**self.bits)
        if not (self.step > 0 and math.isfinite(self.limit) and math.isfinite(self.offset)):
            raise InputError(
                f"step and offset need finite numbers, step > 0, got {self.step} and {self.offset}"
            )
        if self.step < 8 * np.spacing(abs(self.offset) + self.limit):
            raise InputError(
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
            raise InputError(
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


def _mu_law_decisions() -> NDArray[np.float64]:
    """Return the 129 decision values 0, 1, 3 ... 8159 of the positive side, over 8192."""
    segment, cell = np.divmod(np.arange(129), 16)
    return np.maximum((2.0 * cell + 32) * 2.0**segment - 33, 0) / 8192


def _mu_law_outputs() -> NDArray[np.float64]:
    """Return the 128 decoder outputs 0, 2, 4 ... 8031 of the positive side, over 8192."""
    segment, cell = np.divmod(np.arange(128), 16)
    return ((2.0 * cell + 33) * 2.0**segment - 33) / 8192


def _a_law_decisions() -> NDArray[np.float64]:
    """Return the 129 decision values 0, 2, 4 ... 4096 of the positive side, over 4096."""
    segment, cell = np.divmod(np.arange(129), 16)
    return np.where(segment == 0, 2.0 * cell, (2.0 * cell + 32) * 2.0 ** (segment - 1)) / 4096


def _a_law_outputs() -> NDArray[np.float64]:
    """Return the 128 decoder outputs 1, 3, 5 ... 4032 of the positive side, over 4096."""
    decisions = _a_law_decisions()
    return (decisions[:-1] + decisions[1:]) / 2


@dataclass(frozen=True)
class _Companded:
    """What both laws share: 256 cells by increasing value, and the bytes that name them."""

    full_scale: bool = False
    any_encoder: bool = False

    _edges: ClassVar[NDArray[np.float64]]
    _levels: ClassVar[NDArray[np.float64]]
    _inversion: ClassVar[int]
    _unit: ClassVar[float]  # what encoders may round to before they look up the code

    @property
    def least_level(self) -> float:
        """The smallest size of a decoder output: 0 where silence is one of them."""
        return float(np.abs(self._levels).min())

    def _ranks(self, codes: ArrayLike) -> NDArray[np.intp]:
        """Return the place of each code's cell by increasing value, 0 to 255."""
        plain = whole_codes(codes, 0, 255).astype(np.intp) ^ self._inversion
        return np.where(plain & 128, 255 - plain, 128 + plain)

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the byte of each sample, saturating at the outermost ones unless `full_scale`."""
        samples = numbers(samples)
        if self.full_scale:
            refuse_beyond(samples, self._edges[0], self._edges[-1])
        ranks = np.searchsorted(self._edges[1:-1], samples, side="right")
        return (np.where(ranks < 128, 255 - ranks, ranks - 128) ^ self._inversion).astype(np.uint8)

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each byte, open-ended at the outermost ones unless `full_scale`."""
        ranks = self._ranks(codes)
        lowest, highest = self._edges.copy(), self._edges.copy()
        if self.any_encoder:
            between = (self._levels[:-1] + self._levels[1:]) / 2
            lowest[1:-1] = np.minimum(lowest[1:-1] - self._unit / 2, between)
            highest[1:-1] = np.maximum(highest[1:-1] + self._unit / 2, between)
        cells = Cells(lowest[ranks], highest[ranks + 1])
        return cells if self.full_scale else cells.opened(ranks == 0, ranks == 255)

    def centres(self, codes: ArrayLike) -> FloatArray:
        """Return the centre of each byte's cell."""
        return self.cells(codes).centre

    def levels(self, codes: ArrayLike) -> FloatArray:
        """Return the decoder output of G.711 for each byte."""
        return self._levels[self._ranks(codes)]

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return what a listener hears in place of each sample."""
        return self.levels(self.encode(samples))

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the bytes that decode to exactly these values."""
        levels = numbers(levels)
        codes = self.encode(levels)
        off_grid = self.levels(codes) != levels
        if off_grid.any():
            raise InputError(
                f"{levels[off_grid][0]} is no level of {self}; encode samples that are not quantized"
            )
        return codes


def _mirrored(positive_side: NDArray[np.float64], zero_is_shared: bool) -> NDArray[np.float64]:
    return np.concatenate([-positive_side[: 0 if zero_is_shared else None : -1], positive_side])


@final
@dataclass(frozen=True)
class MuLaw(_Companded):
    """G.711 mu-law: bytes, whose cells are finest around zero.

    Parameters
    ----------
    full_scale : bool
        False: the signal may have been cut off, and the outermost cells are open-ended. True: it is known
        to keep within the coder's range, -+8159/8192, and samples beyond are refused.
    any_encoder : bool
        False: the encoder is this one. True: it is unknown, and the cells hold what any of them may have
        given this code, see above; they overlap by a unit, and by a quarter of a cell between segments.
    signed_zero : bool
        False: the bytes may come from decoded samples, where +0 and -0 are both 0; the cell of either is
        [-1/8192, 1/8192]. True: they tell +0, the cell [0, 1/8192], from -0, [-1/8192, 0].

    Examples
    --------
    >>> law = MuLaw()
    >>> law.encode([0.0, 1.0, -1.0])
    array([255, 128,   0], dtype=uint8)
    >>> law.quantize([0.1, 0.9]) * 32768
    array([ 3260., 29052.])
    >>> cells = law.cells(law.encode([0.1]))
    >>> cells.lo * 8192, cells.hi * 8192
    (array([799.]), array([831.]))
    """

    signed_zero: bool = False

    _edges: ClassVar[NDArray[np.float64]] = _mirrored(_mu_law_decisions(), zero_is_shared=True)
    _levels: ClassVar[NDArray[np.float64]] = _mirrored(_mu_law_outputs(), zero_is_shared=False)
    _inversion: ClassVar[int] = 0xFF
    _unit: ClassVar[float] = 1 / 8192

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the byte of each sample, +0 for -0 unless `signed_zero`."""
        codes = super().encode(samples)
        return codes if self.signed_zero else np.where(codes == 0x7F, np.uint8(0xFF), codes)

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each byte; see `full_scale` and `signed_zero`."""
        cells = super().cells(codes)
        if self.signed_zero:
            return cells
        zero = (np.asarray(codes) & 0x7F) == 0x7F
        either = super().cells(np.array([0x7F, 0xFF]))
        return Cells(np.where(zero, either.lo[0], cells.lo), np.where(zero, either.hi[1], cells.hi))


@final
@dataclass(frozen=True)
class ALaw(_Companded):
    """G.711 A-law: bytes, whose cells are finest around zero.

    Parameters
    ----------
    full_scale : bool
        False: the signal may have been cut off, and the outermost cells are open-ended. True: it is known
        to keep within [-1, 1], and samples beyond are refused.
    any_encoder : bool
        See `MuLaw`.

    Examples
    --------
    >>> law = ALaw()
    >>> law.encode([0.0, 1.0, -1.0])
    array([213, 170,  42], dtype=uint8)
    >>> law.quantize([0.0, 0.1]) * 32768
    array([   8., 3264.])
    """

    _edges: ClassVar[NDArray[np.float64]] = _mirrored(_a_law_decisions(), zero_is_shared=True)
    _levels: ClassVar[NDArray[np.float64]] = _mirrored(_a_law_outputs(), zero_is_shared=False)
    _inversion: ClassVar[int] = 0xD5
    _unit: ClassVar[float] = 1 / 2048


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
            raise InputError(f"the threshold needs a positive finite number, got {self.threshold}")
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
            raise InputError("a sample is infinite; mark missing samples with NaN")
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
