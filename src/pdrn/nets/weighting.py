"""Weights of the prior that a network reads off the signal itself: ``F(y) = sum_i w_i |y_i|``.

What stands out of the quantization error is spared, as in reweighted l1 (Candes, Wakin and Boyd 2008), with

    w = 1 / (1 + exp(a - r) m),

m the magnitude of an analysis of the signal, smoothed over neighbouring channels. The sparing ``a`` is one
learned number per channel. The correction ``r`` is 0, or what a small network makes of the magnitudes of
neighbouring views: it sees what a single coefficient does not tell, that of two equal ones one belongs to a
vowel and the other to noise. Its hidden layers clip to [-1, 1], like the dual step: with an activation that
has no bounds the correction grows until nothing more can be learned (results/LOG.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pdrn.convex import L1
from pdrn.convex.arrays import Array, namespace, zeros
from pdrn.convex.convolution import views
from pdrn.nets.maps import KernelMap

FAINT = 1e-6
"""Added to a power before its root is taken, which has no gradient at zero."""

SMOOTHING = (1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8)
"""Over neighbouring channels: a cosine, a sine, and the frequencies beside."""

VIEWS = 3
"""How many neighbouring views a hidden layer looks at."""

Hidden = tuple[Array, Array]
"""The matrix ``(channels, VIEWS * channels)`` and the bias of a hidden layer."""

Beside = Callable[[int, Array], Array]
"""Puts what a hidden layer is given beside its neighbours, ``(..., channels) -> (..., VIEWS * channels)``."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What a stage of a network sees of the signal that it starts from."""

    power: Array
    """Of the analysis, smoothed, shape ``(..., channels)``."""

    @staticmethod
    def of(x: Array, map: KernelMap, kernel: Array) -> Spectrum:
        """Analyse a signal, laid out."""
        return Spectrum(_smoothed(map.analyse(x, kernel) ** 2))

    def prior(self, sparing: Array, correction: Array | float = 0.0) -> L1:
        """Return F with the weights above."""
        xp = namespace(self.power)
        weight = 1 / (1 + xp.exp(sparing - correction) * xp.sqrt(self.power + FAINT))
        return L1(xp.where(xp.isfinite(weight), weight, 0.0))

    def context(self, layers: Iterator[Hidden], beside: Beside) -> Array:
        """Return what hidden layers make of neighbouring views, ``(..., channels)``."""
        xp = namespace(self.power)
        seen = xp.log1p(self.power) / 2
        for depth, (kernel, bias) in enumerate(layers):
            new = xp.clip(beside(depth, seen) @ kernel.T + bias, -1, 1)
            seen = seen + new if depth else new
        return seen


def with_neighbours(seen: Array, before: int) -> Array:
    """Put ``VIEWS`` neighbouring views side by side, so many of them earlier ones; zeros beyond the ends."""
    channels = seen.shape[-1]
    earlier, later = zeros((before, channels), seen), zeros((VIEWS - 1 - before, channels), seen)
    padded = namespace(seen).concatenate([earlier, seen, later], 0)
    return views(padded.reshape(-1), VIEWS * channels, channels)


def _smoothed(power: Array) -> Array:
    """Average over neighbouring channels, the outermost of which repeat."""
    reach = len(SMOOTHING) // 2
    count = power.shape[-1]
    first, last = power[..., :1], power[..., -1:]
    padded = namespace(power).concatenate([first] * reach + [power] + [last] * reach, -1)
    return sum(share * padded[..., i : i + count] for i, share in enumerate(SMOOTHING))
