"""Filters that move over a signal by a hop: a redundant dictionary without frame edges.

A *view* is what a filter sees at one place: ``window`` consecutive samples; the next view begins ``hop``
samples later. The window is a whole number of hops, so that a signal is cut into blocks of one hop and a view
is ``window / hop`` of them side by side. Both directions are then one matrix product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pdrn.convex.arrays import Array, convert, is_real, is_tensor, namespace, require_finite, to_numpy, zeros
from pdrn.convex.operators import NORM_TOLERANCE, Operator, estimate_norm

LONG = 512
"""From so many views on a norm is the bound for signals of any length, which takes no time."""


def views(x: Array, window: int, hop: int) -> Array:
    """Cut signals into overlapping views, ``(..., (count - 1) * hop + window) -> (..., count, window)``.

    >>> import numpy as np
    >>> views(np.arange(6.0), window=4, hop=2)
    array([[0., 1., 2., 3.],
           [2., 3., 4., 5.]])
    """
    overlap = window // hop
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // hop, hop)
    count = blocks.shape[-2] - overlap + 1
    return namespace(x).concatenate([blocks[..., r : r + count, :] for r in range(overlap)], -1)


def overlap_add(seen: Array, hop: int) -> Array:
    """Add views up where they overlap, ``(..., count, window) -> (..., (count - 1) * hop + window)``.

    >>> import numpy as np
    >>> overlap_add(np.ones((2, 4)), hop=2)
    array([1., 1., 2., 2., 1., 1.])
    """
    *batch, count, window = seen.shape
    overlap = window // hop
    parts = [seen[..., r * hop : (r + 1) * hop] for r in range(overlap)]
    if is_tensor(seen):
        pad = namespace(seen).nn.functional.pad
        blocks = sum(pad(part, (0, 0, r, overlap - 1 - r)) for r, part in enumerate(parts))
    else:
        blocks = zeros((*batch, count + overlap - 1, hop), seen)
        for r, part in enumerate(parts):
            blocks[..., r : r + count, :] += part
    return blocks.reshape(*batch, (count + overlap - 1) * hop)


def analyse(x: Array, filters: Array, hop: int) -> Array:
    """Correlate every view with every filter, ``(..., samples) -> (..., views, filters)``."""
    return views(x, filters.shape[-1], hop) @ filters.T


def synthesise(y: Array, filters: Array, hop: int) -> Array:
    """Add up the filters, weighted, ``(..., views, filters) -> (..., samples)``: the adjoint of analysis."""
    return overlap_add(y @ filters, hop)


def norm_on_long_signals(filters: np.ndarray[Any, Any], hop: int) -> float:
    """Return a bound on the norm of a convolution over signals of any length, tight to a part in a thousand.

    With the filters cut into blocks of one hop, ``K_0, ..., K_d``, the norm over endless signals is the
    largest norm of ``sum_r K_r exp(i r w)`` over all w. Its square is a maximum of trigonometric polynomials
    of degree d, which exceed their values at N equally spaced points by ``1 / cos(pi d / N)`` times at most.
    """
    channels, window = filters.shape
    degree = window // hop - 1
    points = max(1, 64 * degree)
    symbols = np.fft.rfft(filters.reshape(channels, degree + 1, hop), points, axis=1).swapaxes(0, 1)
    largest = np.linalg.svd(symbols, compute_uv=False).max()
    return float(largest) / math.sqrt(math.cos(math.pi * degree / points)) * (1 + NORM_TOLERANCE)


@dataclass(frozen=True, eq=False)
class Convolution(Operator):
    """A bank of filters, shape ``(channels, window)``, seen by ``count`` views that are ``hop`` apart.

    Signals have ``(count - 1) * hop + window`` samples. Those near the ends are seen by fewer views; pad the
    signal with ``window - hop`` zeros on either side where they shall be seen as often as the others.
    Coefficients are ordered by view, then channel.
    """

    filters: Array
    hop: int
    count: int

    def __post_init__(self) -> None:
        if not is_real(self.filters) or self.filters.ndim != 2 or 0 in self.filters.shape:
            raise ValueError("need filters of float32 or float64, of shape (channels, window)")
        require_finite(self.filters, "the filters")
        window = self.filters.shape[-1]
        if not 1 <= self.hop <= window or window % self.hop:
            raise ValueError(
                f"the window must be a whole number of hops, got windows of {window} and hops of {self.hop}; "
                "add zeros to the filters"
            )
        if self.count < 1:
            raise ValueError(f"a convolution needs at least one view, got {self.count}")

    @property
    def shape(self) -> tuple[int, int]:
        channels, window = self.filters.shape
        return self.count * channels, (self.count - 1) * self.hop + window

    @property
    def channels(self) -> int:
        return int(self.filters.shape[0])

    @cached_property
    def norm(self) -> float:
        if self.count < LONG:
            return estimate_norm(self)
        return norm_on_long_signals(to_numpy(self.filters).astype(np.float64), self.hop)

    def _apply(self, x: Array, overwrite: bool) -> Array:
        return analyse(x, convert(self.filters, x), self.hop).reshape(*x.shape[:-1], -1)

    def _adjoint(self, y: Array, overwrite: bool) -> Array:
        coefficients = y.reshape(*y.shape[:-1], self.count, self.filters.shape[0])
        return synthesise(coefficients, convert(self.filters, y), self.hop)
