"""What a user says about samples, and the levels that follow, with a look at the samples for the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.detection import Undetected, Unsure, detect
from pdrn.audio.files import PCM_BITS
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.quantizers import MidRise, MidTread
from pdrn.restoring.levels import (
    AnyLevels,
    BoundedLevels,
    ClippedLevels,
    DetectedLevels,
    LawLevels,
    Levels,
    TruncatedLevels,
    UniformLevels,
)

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
            raise ValueError(f"{' and '.join(given)} say the same in different ways; pass one of them")
        if self.truncated and self.law is not None:
            raise ValueError("G.711 is not made by truncation; leave one of the two out")
        self._named()
        if self.clip_at is not None:
            ClippedLevels(AnyLevels(), self.clip_at)

    def _named(self) -> Levels | None:
        """Return the levels that are named, without clipping, None where they are to be detected."""
        if self.bits is not None:
            return self._with_edges(UniformLevels(MidRise(self.bits).step, MidRise(self.bits).bits))
        if self.step is not None:
            if not 0 < self.step < math.inf:
                raise ValueError(f"a step is a positive finite number, got {self.step}")
            return self._with_edges(UniformLevels(self.step))
        return None if self.law is None else LawLevels(self.law)

    def _with_edges(self, levels: UniformLevels | DetectedLevels) -> Levels:
        if not self.truncated:
            return levels
        if isinstance(levels, UniformLevels):
            return TruncatedLevels(levels)
        if isinstance(levels.found.quantizer, MuLaw | ALaw):
            raise Undetected(f"{levels} was found, which is not made by truncation; name the quantizer")
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
            raise ValueError("a stream does not tell its levels beforehand; pass bits, step, law or clip_at")
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
        ValueError
            If they are none that were named, or `Undetected` if none were named and none can be told.
        """
        known = samples[~np.isnan(samples)]
        named = self._named_or_stored(subtype)
        if self.clip_at is not None and self._named() is None and subtype not in _LAW_OF_SUBTYPE:
            named = self._below_the_clip(known, self.clip_at) or named
        if named is None:
            try:
                return self._with_edges(_detected(_telling(samples)))
            except Undetected as reason:
                stored = self._stored(subtype)
                if stored and known.size and isinstance(reason, Unsure) and _fill(stored, samples):
                    return self._ended(stored)
                if (gaps or known.size < samples.size) and not stored and _is_unquantized(samples):
                    return AnyLevels()
                raise Undetected(f"the levels cannot be told, pass bits, step or law: {reason}") from reason
        try:
            named.cells(known)
        except ValueError as error:
            shifted = self._shifted(known)
            if shifted is None:
                raise ValueError(f"{error}, or leave it out to have it detected") from error
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
        except Undetected:
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
        except Undetected:
            continue
        return False
    return not np.isnan(samples).all()


def _detected(samples: NDArray[np.float64]) -> DetectedLevels:
    return DetectedLevels(detect(samples, full_scale=True))
