"""Quantizers: samples <-> codes <-> cells.

A quantizer gives each sample a code; a decoder turns each code into a level. The samples of one code form its
cell, an interval. `Quantizer.observe` maps received samples, which are levels, to the cells of the true ones:

=========================================  =====================================================
`MidRise`, `MidTread`, `Truncation`        uniform levels at any step and offset
`Uniform`                                  mid-rise or mid-tread of a known step, as the samples show
`MuLaw`, `ALaw`                            G.711
`Exact`                                    not quantized: the cell is a point
`Clipping`                                 open-ended cells from a threshold on
`Gaps`                                     unbounded cells where samples are missing (NaN)
`Bounded`                                  cells that end at full scale
`pdrn.audio.detection.Detected`            detected: uniform or G.711, after any gain and shift
=========================================  =====================================================

`MidRise`, `MidTread`, `Truncation` and G.711 also encode and decode: they are a `Coder`.
"""

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

PCM_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32}
"""Bit depths of the PCM subtypes, by libsndfile's names."""

LOUDEST = 1e6
"""Largest sample that is accepted; full scale is 1."""


class Quantizer(Protocol):
    """A mapping from received samples to cells; `str` describes it to users."""

    @property
    def step(self) -> float | None:
        """Width of all cells but the outermost; None where widths differ."""
        ...

    @property
    def limit(self) -> float:
        """Full scale."""
        ...

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the cells of samples that lie on levels; refuse others with an InputError."""
        ...


class Coder(Quantizer, Protocol):
    """A quantizer that encodes any sample and decodes any code."""

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the code of each sample."""
        ...

    def decode(self, codes: ArrayLike) -> FloatArray:
        """Return the level of each code: the decoder's output."""
        ...

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each code: all samples that have it."""
        ...

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the codes of samples that lie on levels; refuse others with an InputError."""
        ...

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the level of each sample: decode(encode(samples))."""
        ...


def pcm_subtype(samples: ArrayLike) -> str | None:
    """Return how a file would store an array of integers; None for floats.

    >>> pcm_subtype(np.zeros(3, np.int16))
    'PCM_16'
    """
    subtypes = {"uint8": "PCM_U8", "int8": "PCM_S8", "int16": "PCM_16", "int32": "PCM_32"}
    return subtypes.get(np.asarray(samples).dtype.name)


def numbers(samples: ArrayLike) -> NDArray[np.float64]:
    """Return the samples in float64, refusing NaN."""
    array = np.asarray(samples, dtype=np.float64)
    if np.isnan(array).any():
        raise InputError("a sample is NaN; fill in missing samples with gaps=True (--gaps), or repair it")
    return array


def _whole_codes(codes: ArrayLike, lowest: int, highest: int) -> NDArray[np.integer[Any]]:
    """Return the codes as an integer array, refusing any other type and codes out of range."""
    array = np.asarray(codes)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"codes are integers, got {array.dtype}; make them with encode")
    if array.size and not (lowest <= array.min() and array.max() <= highest):
        raise InputError(
            f"codes lie in {lowest}..{highest}, got {array.min()}..{array.max()}; check the bit depth"
        )
    return array


def _refuse_off_level(off: NDArray[np.bool_], samples: NDArray[np.float64], quantizer: object) -> None:
    if off.any():
        raise InputError(
            f"{samples[off][0]:.6g} is no level of {quantizer} like the others; name another quantizer"
        )


def check_bits(bits: int) -> int:
    """Return the bit depth as an int; refuse all but whole numbers from 1 to 32."""
    if isinstance(bits, bool) or not hasattr(bits, "__index__") or not 1 <= bits <= 32:
        raise InputError(f"the bit depth is a whole number from 1 to 32, got {bits!r}")
    return operator.index(bits)


def check_positive(name: str, value: float) -> None:
    """Refuse a value that is not positive and finite."""
    if not 0 < value < math.inf:
        raise InputError(f"{name} is a positive finite number, got {value}")


# --- Uniform quantizers ---


@dataclass(frozen=True)
class _UniformCoder:
    """A uniform quantizer of 2**bits levels; base of `MidRise`, `MidTread` and `Truncation`.

    Parameters
    ----------
    bits : int
        Bit depth, 1 to 32.
    step : float
        Distance of two levels; default: 2 / 2**bits, for full scale [-1, 1].
    offset : float
        Shift of all edges and levels.
    full_scale : bool
        False: samples may have been clipped, so the outermost cells are open-ended. True: the signal stays
        within offset -+ step * 2**bits / 2, as the paper's peak-normalised speech does; the outermost cells
        end there, and samples beyond are refused.
    """

    bits: int
    step: float = 0.0
    offset: float = 0.0
    full_scale: bool = False

    _kind: ClassVar[str]
    # The lower edge and the level of code 0, in steps from the offset.
    _edge: ClassVar[float]
    _level: ClassVar[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", check_bits(self.bits))
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
        """Full scale, as a distance from the offset."""
        return self.step * (1 << (self.bits - 1))

    def _edges(self, codes: NDArray[Any], above: int = 0) -> NDArray[np.float64]:
        """Return the lower edges of the codes `above` these."""
        edges = np.asarray(np.add(codes, self._edge + above, dtype=np.float64))
        edges *= self.step  # in place: memory bandwidth is the bottleneck
        edges += self.offset
        return edges

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the code of each sample, saturating at the outermost ones unless `full_scale`."""
        samples = numbers(samples)
        if self.full_scale:
            low, high = self.offset - self.limit, self.offset + self.limit
            if ((samples < low) | (samples > high)).any():
                raise InputError(
                    f"a sample is beyond full scale, {low:.6g} to {high:.6g}; turn it down or pass "
                    "full_scale=False"
                )
        codes = np.floor((samples - self.offset) / self.step - self._edge)
        codes = np.clip(codes, self.lowest, self.highest)
        codes -= samples < self._edges(codes)  # corrects the rounding of the quotient
        codes += samples >= self._edges(codes, above=1)
        return np.clip(codes, self.lowest, self.highest).astype(np.int32)

    def decode(self, codes: ArrayLike) -> FloatArray:
        """Return the level of each code."""
        return self.offset + (_whole_codes(codes, self.lowest, self.highest) + self._level) * self.step

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each code; see `full_scale` for the outermost ones."""
        codes = _whole_codes(codes, self.lowest, self.highest)
        limit = self.limit if self.full_scale else math.inf
        lo, hi = self._edges(codes), self._edges(codes, above=1)
        lo[codes == self.lowest] = self.offset - limit
        hi[codes == self.highest] = self.offset + limit
        return Cells(*frozen(lo, hi))

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the codes of samples that lie within a quarter of a step of a level; refuse others."""
        levels = numbers(levels)
        places = np.asarray(levels - self.offset)
        places /= self.step
        places -= self._level
        codes = np.asarray(np.rint(places))
        np.clip(codes, self.lowest, self.highest, out=codes)
        places -= codes
        _refuse_off_level(np.abs(places, out=places) > 1 / 4, levels, self)
        return codes.astype(np.int32)

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the level of each sample."""
        return self.decode(self.encode(samples))

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the cells of samples that lie on levels."""
        return self.cells(self.codes_of(samples))

    def __str__(self) -> str:
        return f"{self.bits} bits, {self._kind}, a step of {self.step:.6g}"


@final
@dataclass(frozen=True)
class MidRise(_UniformCoder):
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

    _kind: ClassVar[str] = "mid-rise"
    _edge: ClassVar[float] = 0.0
    _level: ClassVar[float] = 0.5


@final
@dataclass(frozen=True)
class MidTread(_UniformCoder):
    """Uniform, zero is a level: q = step floor(s / step + 1/2), as in signed PCM.

    With `full_scale` its lowest cell is half a step wide and its highest one and a half.

    Examples
    --------
    >>> pcm = MidTread(bits=8)
    >>> pcm.quantize([0.001, 0.5, 1.0])
    array([0.       , 0.5      , 0.9921875])
    >>> pcm.cells(pcm.encode(1.0)).hi
    array(inf)
    """

    _kind: ClassVar[str] = "mid-tread"
    _edge: ClassVar[float] = -0.5
    _level: ClassVar[float] = 0.0


@final
@dataclass(frozen=True)
class Truncation(_UniformCoder):
    """Uniform, rounded down: q = step floor(s / step), as in converters that drop bits.

    A level is the lower end of its cell; the centre lies half a step above.

    Examples
    --------
    >>> dropped = Truncation(bits=4)
    >>> codes = dropped.encode([0.2, -0.01])
    >>> dropped.decode(codes), dropped.cells(codes).centre
    (array([ 0.125, -0.125]), array([ 0.1875, -0.0625]))
    """

    _kind: ClassVar[str] = "truncating"
    _edge: ClassVar[float] = 0.0
    _level: ClassVar[float] = 0.0


# How far a stored sample may lie from its level:
_ROUNDING = 2.0**-16  # rounding to 16 bits
_TOLERANCE = 1 / 64, 1 / 6  # least and largest tolerance for it, in steps
_MOVED = 2.0**-15  # truncation to 16 bits; also, relatively, 32767 as full scale
_ZERO_MOVED = 2.0**-24  # zero is stored exactly, but float32 arithmetic may move it


@final
@dataclass(frozen=True)
class Uniform:
    """Uniform levels of a known step: its multiples (mid-tread) or half-way between (mid-rise).

    The samples show which; a mixture is refused. Zero is accepted in either case, as digital silence. Samples
    may deviate from the levels by the rounding of 16-bit storage.

    Parameters
    ----------
    bits : int, optional
        Bit depth: full scale is 2**bits steps, and the outermost cells are open-ended.
    step : float
        Distance of two levels; default: 2 / 2**bits.
    truncating : bool
        Whether levels are the lower ends of their cells, not the centres.

    Examples
    --------
    >>> cells = Uniform(bits=3).observe([0.125, 0.0, 0.875])
    >>> cells.lo, cells.hi
    (array([ 0.   , -0.125,  0.75 ]), array([0.25 , 0.125,   inf]))
    """

    bits: int | None = None
    step: float = 0.0
    truncating: bool = False

    limit: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if self.bits is not None:
            object.__setattr__(self, "bits", check_bits(self.bits))
            object.__setattr__(self, "step", self.step or 2.0 / 2**self.bits)
        check_positive("the step", self.step)

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the cells of samples that lie on levels, one step wide."""
        x, step = numbers(samples), self.step
        levels = 2.0 ** (self.bits or 32)
        places = x * (2 / step)
        halves = np.rint(places)  # half steps from zero: odd in mid-rise, even in mid-tread
        odd = halves % 2 == 1
        moved = np.where(halves == 0, _ZERO_MOVED, _MOVED * (1 + np.abs(x)))
        tolerance = np.minimum(moved / step, np.clip(_ROUNDING / step, *_TOLERANCE))
        off = np.abs(places - halves) > 2 * tolerance
        if odd.any():
            off |= ~odd & (halves != 0)
        off |= np.abs(x) > step * levels / 2 + step
        _refuse_off_level(off, x, self)
        lo, hi = (np.asarray((halves + side) / 2 * step) for side in (-1, 1))
        # Software that does not saturate rounds a peak at full scale to the level above the highest.
        beyond = (halves < -levels) | (halves >= levels)
        lo[beyond], hi[beyond] = x[beyond] - step / 2, x[beyond] + step / 2
        lo[~beyond & (halves <= 1 - levels)] = -np.inf
        hi[~beyond & (halves >= levels - 2)] = np.inf
        if self.truncating:
            lo, hi = lo + step / 2, hi + step / 2
        return Cells(*frozen(lo, hi))

    def __str__(self) -> str:
        known = f"{self.bits} bits" if self.bits else f"a step of {self.step:.6g}"
        return f"{known}, truncated" if self.truncating else known


# --- G.711 ---


_SEGMENT, _CELL = np.divmod(np.arange(129), 16)

_MU_LAW = ((2.0 * _CELL + 32) * 2.0**_SEGMENT - 33) / 8192
"""Decision values of positive samples: -1 (for zero), 1, 3 ... 8159, over 8192."""

_A_LAW = np.where(_SEGMENT == 0, 2.0 * _CELL, (2.0 * _CELL + 32) * 2.0 ** (_SEGMENT - 1)) / 4096
"""Decision values of positive samples: 0, 2, 4 ... 4096, over 4096."""


def _edges(decisions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the 257 edges of all cells, by increasing value."""
    positive = np.maximum(decisions, 0)
    return np.concatenate([-positive[:0:-1], positive])


def _levels(decisions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the 256 decoder outputs, half-way between decision values."""
    positive = (decisions[:-1] + decisions[1:]) / 2
    return np.concatenate([-positive[::-1], positive])


@dataclass(frozen=True)
class _Companding:
    """G.711: 256 cells, finest around zero, each with a byte as its code; the outermost are open-ended.

    The cells are those of the recommendation's tables; other encoders may differ by a unit.
    """

    step: ClassVar[None] = None
    limit: ClassVar[float] = 1.0
    _name: ClassVar[str]
    _edges: ClassVar[NDArray[np.float64]]
    _levels: ClassVar[NDArray[np.float64]]
    _inversion: ClassVar[int]

    @property
    def least_level(self) -> float:
        """The smallest magnitude of a level: 0 for mu-law, which has a level at zero."""
        return float(np.abs(self._levels).min())

    def _ranks(self, codes: ArrayLike) -> NDArray[np.intp]:
        """Return the rank of each code's cell by increasing value, 0 to 255."""
        plain = _whole_codes(codes, 0, 255).astype(np.intp) ^ self._inversion
        return np.where(plain & 128, 255 - plain, 128 + plain)

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the byte of each sample, saturating at the outermost ones."""
        ranks = np.searchsorted(self._edges[1:-1], numbers(samples), side="right")
        return (np.where(ranks < 128, 255 - ranks, ranks - 128) ^ self._inversion).astype(np.uint8)

    def decode(self, codes: ArrayLike) -> FloatArray:
        """Return the decoder's output for each byte."""
        return self._levels[self._ranks(codes)]

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each byte."""
        ranks = self._ranks(codes)
        cells = Cells(self._edges[ranks], self._edges[ranks + 1])
        return cells.opened(ranks == 0, ranks == 255)

    def codes_of(self, levels: ArrayLike) -> Codes:
        """Return the bytes that decode to exactly these values; refuse others."""
        levels = numbers(levels)
        codes = self.encode(levels)
        _refuse_off_level(self.decode(codes) != levels, levels, self)
        return codes

    def quantize(self, samples: ArrayLike) -> FloatArray:
        """Return the level of each sample."""
        return self.decode(self.encode(samples))

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the cells of decoded samples.

        Zero is no level of A-law but inserted silence: its cell reaches to the levels on either side.
        """
        x = numbers(samples)
        silent = (x == 0) & (self.least_level > 0)
        codes = self.codes_of(np.where(silent, self.least_level, x))
        return self.cells(codes).silenced(silent, self.least_level)

    def __str__(self) -> str:
        return self._name


@final
@dataclass(frozen=True)
class MuLaw(_Companding):
    """G.711 mu-law, range -+8159/8192.

    The codes +0 and -0 decode to the same sample: both encode as +0, with the cell [-1/8192, 1/8192].

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

    _name: ClassVar[str] = "mu-law"
    _edges: ClassVar[NDArray[np.float64]] = _edges(_MU_LAW)
    _levels: ClassVar[NDArray[np.float64]] = _levels(_MU_LAW)
    _inversion: ClassVar[int] = 0xFF

    def encode(self, samples: ArrayLike) -> Codes:
        """Return the byte of each sample, +0 for -0."""
        codes = super().encode(samples)
        return np.where(codes == 0x7F, np.uint8(0xFF), codes)

    def cells(self, codes: ArrayLike) -> Cells:
        """Return the cell of each byte."""
        cells = super().cells(codes)
        zero = (np.asarray(codes) & 0x7F) == 0x7F
        return cells.silenced(zero, self._edges[129])


@final
@dataclass(frozen=True)
class ALaw(_Companding):
    """G.711 A-law, range [-1, 1].

    Examples
    --------
    >>> law = ALaw()
    >>> law.encode([0.0, 1.0, -1.0])
    array([213, 170,  42], dtype=uint8)
    >>> law.quantize([0.0, 0.1]) * 32768
    array([   8., 3264.])
    """

    _name: ClassVar[str] = "A-law"
    _edges: ClassVar[NDArray[np.float64]] = _edges(_A_LAW)
    _levels: ClassVar[NDArray[np.float64]] = _levels(_A_LAW)
    _inversion: ClassVar[int] = 0xD5


LAWS: dict[str, MuLaw | ALaw] = {"mulaw": MuLaw(), "alaw": ALaw()}


# --- Exact, clipped, missing and bounded samples ---


@final
@dataclass(frozen=True)
class Exact:
    """Samples that were not quantized: every cell is a point."""

    step: ClassVar[None] = None
    limit: ClassVar[float] = 1.0

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the samples themselves as cells."""
        points = numbers(samples)
        return Cells(points, points)

    def __str__(self) -> str:
        return "exact samples"


@final
@dataclass(frozen=True)
class Clipping:
    """Clipped samples: cells that reach the threshold are open-ended.

    Parameters
    ----------
    threshold : float
        Where samples were clipped, on both sides of zero; the nearest float32 counts too.
    quantizer : Quantizer
        How the clipped samples were quantized; default: not at all.

    Examples
    --------
    >>> cells = Clipping(0.5).observe([0.2, 0.5, -0.5])
    >>> cells.lo, cells.hi
    (array([ 0.2,  0.5, -inf]), array([ 0.2,  inf, -0.5]))
    """

    threshold: float
    quantizer: Quantizer = Exact()

    step: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_positive("the clipping threshold", self.threshold)
        object.__setattr__(self, "threshold", float(self.threshold))

    @property
    def limit(self) -> float:
        """Full scale of the quantizer."""
        return self.quantizer.limit

    def clip(self, samples: ArrayLike) -> FloatArray:
        """Clip samples at the threshold."""
        return np.clip(numbers(samples), -self.threshold, self.threshold)

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the cells of clipped samples."""
        return self.quantizer.observe(samples).clipped(self.threshold, self.limit)

    def __str__(self) -> str:
        return f"{self.quantizer}, clipped at {self.threshold:g}"


@final
@dataclass(frozen=True)
class Gaps:
    """Samples with gaps: NaN marks missing ones, whose cells are unbounded.

    Parameters
    ----------
    quantizer : Quantizer
        How the other samples were quantized; default: not at all.

    Examples
    --------
    >>> cells = Gaps().observe([0.25, np.nan])
    >>> cells.lo, cells.hi
    (array([0.25, -inf]), array([0.25,  inf]))
    """

    quantizer: Quantizer = Exact()

    step: ClassVar[None] = None

    @property
    def limit(self) -> float:
        """Full scale of the quantizer."""
        return self.quantizer.limit

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the cells of the samples, unbounded where they are NaN."""
        x = np.asarray(samples, dtype=np.float64)
        known = ~np.isnan(x)
        lo, hi = np.full(x.shape, -np.inf), np.full(x.shape, np.inf)
        cells = self.quantizer.observe(x[known])
        lo[known], hi[known] = cells.lo, cells.hi
        return Cells(*frozen(lo, hi))

    def __str__(self) -> str:
        return str(self.quantizer)


@final
@dataclass(frozen=True)
class Bounded:
    """Cells that end at full scale, for sound that was not clipped there.

    Examples
    --------
    >>> Bounded(Uniform(bits=3)).observe([0.875]).hi
    array([1.])
    """

    quantizer: Quantizer

    limit: ClassVar[float] = 1.0

    @property
    def step(self) -> float | None:
        """Width of all cells but the outermost."""
        return self.quantizer.step

    def observe(self, samples: ArrayLike) -> Cells:
        """Return the part of each cell in [-1, 1]; of a cell outside, the nearest end."""
        cells = self.quantizer.observe(samples)
        lo = np.where(cells.lo < -1, np.minimum(cells.hi, -1), cells.lo)
        hi = np.where(cells.hi > 1, np.maximum(cells.lo, 1), cells.hi)
        return Cells(*frozen(lo, hi))

    def __str__(self) -> str:
        return str(self.quantizer)


class Observer:
    """Observes a signal piece by piece, with the cells of the whole.

    `Uniform` tells mid-rise from mid-tread by the samples, so a sample of the earlier pieces is observed
    again with each piece.
    """

    def __init__(self, quantizer: Quantizer) -> None:
        self._quantizer = quantizer
        self._earlier: float | None = None  # not zero, which is silence in either case
        self.clipped = 0
        """Number of cells so far with one infinite end."""
        self.missing = 0
        """Number of missing samples so far."""

    def observe(self, samples: NDArray[np.float64]) -> Cells:
        """Return the cells of the next samples, shape (channels, frames)."""
        if (np.abs(samples) > LOUDEST).any():
            raise InputError(f"a sample is beyond {LOUDEST:g}, where full scale is 1; turn it down")
        if self._earlier is None:
            cells = self._quantizer.observe(samples)
            telling = samples[~np.isnan(samples) & (samples != 0)]
            self._earlier = float(telling[0]) if telling.size else None
        else:
            earlier = np.full((len(samples), 1), self._earlier)
            cells = self._quantizer.observe(np.concatenate([earlier, samples], axis=-1))[:, 1:]
        self.clipped += int(np.count_nonzero(np.isinf(cells.lo) ^ np.isinf(cells.hi)))
        self.missing += int(np.count_nonzero(np.isnan(samples)))
        return cells
