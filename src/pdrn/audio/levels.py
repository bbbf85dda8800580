"""What is known about samples, and the cells that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, frozen
from pdrn.audio.detection import Detection, detect
from pdrn.audio.files import PCM_BITS
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw
from pdrn.errors import InputError, UncertainError, UndetectedError

LAWS = {"mulaw": MuLaw(), "alaw": ALaw()}

LOUDEST = 1e6

_ROUNDING = 2.0**-16  # what storing levels in 16 bits may have moved them by
_MOST_OFF = 1 / 64, 1 / 6  # in steps: what is let pass for steps long and short against that
_MOST_MOVED = 2.0**-15  # where bits were dropped, and as a share where 32767 stood for 1
_ZERO_MOVED = 2.0**-24  # zero is stored as it is; arithmetic in float32 may have moved it


class Levels(Protocol):
    """A description of the levels that samples have; its text is for people."""

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the cells of samples at these levels, refusing others with an InputError."""
        ...


@dataclass(frozen=True)
class UniformLevels:
    """Multiples of a step, or half-way between them, but not both; zero always counts as silence.

    Parameters
    ----------
    step : float
    bits : int, optional
        With it, full scale is 2**bits steps and the outermost cells are open-ended.

    Examples
    --------
    >>> cells = UniformLevels(1 / 4, bits=3).cells([0.125, 0.0, 0.875])
    >>> cells.lo, cells.hi
    (array([ 0.   , -0.125,  0.75 ]), array([0.25 , 0.125,   inf]))
    """

    step: float
    bits: int | None = None

    def __post_init__(self) -> None:
        MidRise(self.bits or 32, self.step)  # refuses what no quantizer has

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the cells, half a step to either side of each level."""
        x = np.asarray(samples, dtype=np.float64)
        halves = np.rint(x * (2 / self.step))
        moved = np.where(halves == 0, _ZERO_MOVED, _MOST_MOVED * (1 + np.abs(x)))
        let_pass = np.minimum(moved / self.step, np.clip(_ROUNDING / self.step, *_MOST_OFF))
        off = np.abs(x * (2 / self.step) - halves) > 2 * let_pass
        odd = halves % 2 == 1
        if odd.any():
            off |= ~odd & (halves != 0)
        rise, tread = MidRise(self.bits or 32, self.step), MidTread(self.bits or 32, self.step)
        # A peak at full scale, rounded by hand, may have gone to a level that the bits do not have.
        full_scale = 2.0**rise.bits
        beyond = (halves < -full_scale) | (halves >= full_scale)
        off |= np.abs(x) > rise.limit + self.step
        if off.any():
            raise InputError(
                f"{x[off][0]:.6g} is no level of {self} like the others; name another bit depth or step"
            )
        between = rise.cells(rise.codes_of(np.where(odd & ~beyond, x, self.step / 2)))
        at = tread.cells(tread.codes_of(np.where(odd | beyond, 0.0, x)))
        lo, hi = (np.where(odd, *ends) for ends in ((between.lo, at.lo), (between.hi, at.hi)))
        lo[beyond], hi[beyond] = x[beyond] - self.step / 2, x[beyond] + self.step / 2
        return Cells(*frozen(lo, hi))

    def __str__(self) -> str:
        return f"{self.bits} bits" if self.bits else f"a step of {self.step:.6g}"


@dataclass(frozen=True)
class LawLevels:
    """Decoder outputs of G.711: "mulaw" or "alaw". The cells are those of its tables.

    Zero, which A-law has not, is silence that was put in: up to the outputs on either side.
    """

    law: str

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise InputError(f"there are the laws {' and '.join(LAWS)}, got {self.law!r}")

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the cells of the codes that decode to these samples."""
        law = LAWS[self.law]
        x = np.asarray(samples, dtype=np.float64)
        silent = (x == 0) & (law.least_level > 0)
        codes = law.codes_of(np.where(silent, law.least_level, x))
        return law.cells(codes).silenced(silent, law.least_level)

    def __str__(self) -> str:
        return {"mulaw": "mu-law", "alaw": "A-law"}[self.law]


@dataclass(frozen=True)
class DetectedLevels:
    """What `detect` found, with cells that do not overlap; those of G.711 are the ones of its tables."""

    found: Detection
    truncated: bool = False
    """Whether levels are the lower ends of their cells."""

    def __post_init__(self) -> None:
        quantizer = self.found.quantizer
        if isinstance(quantizer, MuLaw | ALaw):
            by_table = replace(self.found, quantizer=replace(quantizer, any_encoder=False))
            object.__setattr__(self, "found", by_table)

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the cells that the detected quantizer gives the samples."""
        try:
            return self.found.cells(samples, self.truncated, widened=False)
        except ValueError as error:
            raise InputError(
                f"not all samples have the levels that were told from some, {self}; name the levels, or "
                "restore the parts, or the channels, by themselves"
            ) from error

    def __str__(self) -> str:
        found = self.found
        if isinstance(found.quantizer, MuLaw | ALaw):
            return found.kind
        how = ", truncated" if self.truncated else ""
        return f"{found.effective_bits} bits in use, {found.kind}, a step of {found.quantizer.step:.6g}{how}"


@dataclass(frozen=True)
class AnyLevels:
    """Samples that were never rounded: every cell is a point."""

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the samples themselves as cells."""
        points = np.asarray(samples, dtype=np.float64)
        return Cells(points, points)

    def __str__(self) -> str:
        return "exact samples"


@dataclass(frozen=True)
class TruncatedLevels:
    """Levels that are the lower ends of their cells: a converter dropped what was above them."""

    levels: UniformLevels

    @property
    def step(self) -> float:
        """The distance of two levels."""
        return self.levels.step

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the cells, from each level to the next."""
        cells = self.levels.cells(samples)
        return Cells(cells.lo + self.step / 2, cells.hi + self.step / 2)

    def __str__(self) -> str:
        return f"{self.levels}, truncated"


@dataclass(frozen=True)
class ClippedLevels:
    """Levels of which those that reach the threshold stand for anything beyond it too.

    Examples
    --------
    >>> cells = ClippedLevels(AnyLevels(), 0.5).cells([0.2, 0.5, -0.5])
    >>> cells.lo, cells.hi
    (array([ 0.2,  0.5, -inf]), array([ 0.2,  inf, -0.5]))
    """

    levels: Levels
    threshold: float

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise InputError(f"samples are clipped at a positive finite number, got {self.threshold}")

    def cells(self, samples: ArrayLike) -> Cells:
        """Return the cells, open-ended from the one that holds the threshold on."""
        return self.levels.cells(samples).clipped(self.threshold)

    def __str__(self) -> str:
        return f"{self.levels}, clipped at {self.threshold:g}"


@dataclass(frozen=True)
class BoundedLevels:
    """Levels whose cells end at full scale, for output that can hold nothing beyond.

    Examples
    --------
    >>> BoundedLevels(UniformLevels(1 / 4, bits=3)).cells([0.875]).hi
    array([1.])
    """

    levels: Levels

    def cells(self, samples: ArrayLike) -> Cells:
        """Return what of each cell lies in [-1, 1], or is nearest to it."""
        cells = self.levels.cells(samples)
        lo = np.where(cells.lo < -1, np.minimum(cells.hi, -1), cells.lo)
        hi = np.where(cells.hi > 1, np.maximum(cells.lo, 1), cells.hi)
        return Cells(*frozen(lo, hi))

    def __str__(self) -> str:
        return str(self.levels)


def step_of(levels: Levels) -> float | None:
    """Return how wide all cells of some levels are, but for open-ended ones; None where they differ.

    >>> step_of(UniformLevels(1 / 4)), step_of(LawLevels("mulaw"))
    (0.25, None)
    """
    if isinstance(levels, BoundedLevels):
        return step_of(levels.levels)
    if isinstance(levels, UniformLevels | TruncatedLevels):
        return levels.step
    if isinstance(levels, DetectedLevels) and not isinstance(levels.found.quantizer, MuLaw | ALaw):
        return levels.found.quantizer.step
    return None


def cells_of(samples: NDArray[np.float64], levels: Levels) -> Cells:
    """Return the cells of samples, unbounded where NaN marks a missing one."""
    known = ~np.isnan(samples)
    if (np.abs(samples[known]) > LOUDEST).any():
        raise InputError(f"a sample is beyond {LOUDEST:g}, where full scale is 1; turn it down")
    if known.all():
        return levels.cells(samples)
    lo, hi = np.full(samples.shape, -np.inf), np.full(samples.shape, np.inf)
    cells = levels.cells(samples[known])
    lo[known], hi[known] = cells.lo, cells.hi
    return Cells(*frozen(lo, hi))


class LevelReader:
    """Gives the cells of a signal piece by piece, whose levels have to go together all the same."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        self._level = np.nan  # one that the signal has; zero may be silence, and tells nothing
        self.open_ended = 0
        """How many cells so far have one end that is infinite."""
        self.missing = 0
        """How many samples so far are missing."""

    def cells(self, samples: NDArray[np.float64]) -> Cells:
        """Return the cells of the next samples, shape (channels, frames), refusing levels of another kind."""
        cells = self.look(samples)
        self.open_ended += int(np.count_nonzero(np.isinf(cells.lo) ^ np.isinf(cells.hi)))
        self.missing += int(np.count_nonzero(np.isnan(samples)))
        if np.isnan(self._level):
            telling = samples[~np.isnan(samples) & (samples != 0)]
            self._level = telling[0] if telling.size else np.nan
        return cells

    def look(self, samples: NDArray[np.float64]) -> Cells:
        """Do the same for samples that might be next."""
        level = np.full((len(samples), 1), self._level)
        return cells_of(np.concatenate([level, samples], axis=-1), self._levels)[:, 1:]


_LAW_OF_SUBTYPE = {"ULAW": "mulaw", "ALAW": "alaw"}
_SAME_STEP = 1e-3


class LevelOptions(TypedDict, total=False):
    """The fields of `Description` as keywords."""

    bits: int | None
    step: float | None
    law: str | None
    clip_at: float | None
    truncated: bool


@dataclass(frozen=True)
class Description:
    """What a user says about samples; what is left out is detected.

    Parameters
    ----------
    bits : int, optional
        Bit depth: levels are 2 / 2**bits apart, at whatever offset the samples show.
    step : float, optional
        Distance of two levels, instead of the bit depth.
    law : str, optional
        "mulaw" or "alaw", instead of either.
    clip_at : float, optional
        Where samples were cut off, on both sides of zero; without it, none were, and the outermost cells
        end at full scale. On its own, levels are those that are detected below it, or else those of how
        samples are stored; of a stream always the latter.
    truncated : bool
        Whether the converter dropped bits instead of rounding.
    """

    bits: int | None = None
    step: float | None = None
    law: str | None = None
    clip_at: float | None = None
    truncated: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("bits", "step", "law") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} say the same in different ways; pass one of them")
        if self.truncated and self.law is not None:
            raise InputError("G.711 is not made by truncation; leave one of the two out")
        self._named()
        if self.clip_at is not None:
            ClippedLevels(AnyLevels(), self.clip_at)

    def _named(self) -> Levels | None:
        """Return the levels that are named, without clipping, None where they are to be detected."""
        if self.bits is not None:
            return self._with_edges(UniformLevels(MidRise(self.bits).step, MidRise(self.bits).bits))
        if self.step is not None:
            if not 0 < self.step < math.inf:
                raise InputError(f"a step is a positive finite number, got {self.step}")
            return self._with_edges(UniformLevels(self.step))
        return None if self.law is None else LawLevels(self.law)

    def _with_edges(self, levels: UniformLevels | DetectedLevels) -> Levels:
        if not self.truncated:
            return levels
        if isinstance(levels, UniformLevels):
            return TruncatedLevels(levels)
        if isinstance(levels.found.quantizer, MuLaw | ALaw):
            raise UndetectedError(f"{levels} was found, which is not made by truncation; name the quantizer")
        return replace(levels, truncated=True)

    def _ended(self, levels: Levels) -> Levels:
        """Return the levels with outermost cells that end at full scale, or do not where clipping was."""
        if self.clip_at is not None:
            return ClippedLevels(levels, self.clip_at)
        return levels if self.step is not None else BoundedLevels(levels)

    def levels(self, subtype: str | None = None) -> Levels:
        """Return the levels without looking at any sample, for streams; a subtype says how it stores them."""
        named = self._named_or_stored(subtype)
        if named is None:
            raise InputError("a stream does not tell its levels beforehand; pass bits, step, law or clip_at")
        return self._ended(named)

    def _named_or_stored(self, subtype: str | None) -> Levels | None:
        """Return the levels that are named, or that the way of storing leaves no doubt about, if any."""
        named = self._named()
        if named is None and subtype in _LAW_OF_SUBTYPE:
            return replace(self, law=_LAW_OF_SUBTYPE[subtype])._named()
        if named is None and self.clip_at is not None:
            return self._stored(subtype) or AnyLevels()
        return named

    def _stored(self, subtype: str | None) -> UniformLevels | TruncatedLevels | None:
        """Return the levels of PCM that is stored so."""
        bits = PCM_BITS.get(subtype or "")
        if not bits:
            return None
        levels = UniformLevels(MidTread(bits).step, bits)
        return TruncatedLevels(levels) if self.truncated else levels

    def levels_of(
        self, samples: NDArray[np.float64], subtype: str | None = None, *, gaps: bool = False
    ) -> Levels:
        """Return the levels of these samples, which may be the beginning of more.

        Parameters
        ----------
        samples : array, shape (channels, frames)
            NaN marks missing ones.
        subtype : str, optional
            How a file stored them.
        gaps : bool
            Whether missing ones may follow. Where some are missing, the others need no levels: where none can
            be told, they are exact.

        Raises
        ------
        InputError
            If they are none that were named, or `UndetectedError` if none were named and none can be told.
        """
        known = samples[~np.isnan(samples)]
        named = self._named_or_stored(subtype)
        if self.clip_at is not None and self._named() is None and subtype not in _LAW_OF_SUBTYPE:
            named = self._below_the_clip(known, self.clip_at) or named
        if named is None:
            try:
                return self._with_edges(_detected(_telling(samples)))
            except UndetectedError as reason:
                stored = self._stored(subtype)
                if stored and known.size and isinstance(reason, UncertainError) and _fill(stored, samples):
                    return self._ended(stored)
                if (gaps or known.size < samples.size) and not stored and _is_unquantized(samples):
                    return AnyLevels()
                raise UndetectedError(
                    f"the levels cannot be told, pass bits, step or law: {reason}"
                ) from reason
        try:
            named.cells(known)
        except ValueError as error:
            shifted = self._shifted(known)
            if shifted is None:
                raise InputError(f"{error}, or leave it out to have it detected") from error
            return shifted if self.clip_at is None else ClippedLevels(shifted, self.clip_at)
        return self._ended(named)

    def _below_the_clip(self, samples: NDArray[np.float64], clip_at: float) -> Levels | None:
        """Return the levels that samples show, those at which they were cut off aside, if they do."""
        try:
            found = self._with_edges(_detected(samples[np.abs(samples) < clip_at]))
            found.cells(samples)
        except ValueError:
            return None
        return found

    def _shifted(self, samples: NDArray[np.float64]) -> Levels | None:
        """Return levels of the step that was named at an offset that the samples show, if they do."""
        step = self.step or (MidRise(self.bits).step if self.bits else None)
        try:
            found = _detected(samples).found
        except UndetectedError:
            return None
        if step is None or isinstance(found.quantizer, MuLaw | ALaw):
            return None
        same = abs(found.quantizer.step / step - 1) < _SAME_STEP
        return self._with_edges(DetectedLevels(found)) if same else None


def _telling(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the channels that tell levels, not dead ones unless all are, with known samples alone."""
    heard = [row for row in samples if _has_three_values(row[~np.isnan(row)])]
    if not heard:
        return samples[~np.isnan(samples)]
    return np.stack([np.where(np.isnan(row), row[~np.isnan(row)][0], row) for row in heard])


def _has_three_values(samples: NDArray[np.float64]) -> bool:
    """Tell whether there are more values than in a channel without sound, whose last bit may toggle."""
    others = samples[samples != samples[:1]]
    return bool((others != others[:1]).any())


def _fill(levels: UniformLevels | TruncatedLevels, samples: NDArray[np.float64]) -> bool:
    """Tell whether the levels that occur are neighbours mostly, and so of no longer step; silence is."""
    for channel in np.atleast_2d(_telling(samples)):
        distances = np.diff(np.unique(channel))
        if 2 * np.count_nonzero(distances > levels.step) >= max(len(distances), 1):
            return False
    return True


def _is_unquantized(samples: NDArray[np.float64]) -> bool:
    """Tell whether there are samples, of which no channel tells levels even by itself."""
    for channel in np.atleast_2d(_telling(samples)):
        try:
            _detected(channel)
        except UndetectedError:
            continue
        return False
    return not np.isnan(samples).all()


def _detected(samples: NDArray[np.float64]) -> DetectedLevels:
    return DetectedLevels(detect(samples, full_scale=True))
