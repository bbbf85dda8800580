"""G.711: mu-law and A-law, the quantizers of telephony, bit-exact.

Both number cells that grow with the distance from zero: eight segments on either side, each of sixteen
cells, each segment's cells twice as wide as the one before. The decision values are those of ITU-T
G.711, tables 1 and 2, divided by full scale, 8192 for mu-law and 4096 for A-law; a linear 16-bit code
divided by 32768 is on the same scale. Codes are the bytes on the line, with the inversions that G.711
prescribes.

The cells are exact for encoders of 16-bit samples that follow the tables. Others first round a finer
signal to the units of the tables (libsndfile does, to 1/8192 for mu-law and 1/2048 for A-law), or choose
the nearest output, which differs where segments meet. `any_encoder` gives each cell all of these samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.quantizers import Codes, numbers, refuse_beyond, whole_codes


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
            raise ValueError(
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
