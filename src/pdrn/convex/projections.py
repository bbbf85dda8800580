"""Projections onto boxes and balls, along the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from pdrn.convex.arrays import Array, Step, convert, detached, is_array, is_tensor, namespace, norm


def clip(x: Array, lower: Array, upper: Array, *, overwrite: bool = False) -> Array:
    """Project x onto the box [lower, upper].

    ``overwrite`` allows a NumPy array's memory to be reused for the result; tensors are never overwritten.
    On a bound itself, the gradient of a tensor is 0 where bounds are numbers and 1 where they are tensors.
    """
    if is_tensor(x):
        if is_array(lower) or is_array(upper):
            return namespace(x).clamp(x, convert(lower, x), convert(upper, x))
        # The same as clamp with a gradient in one pass instead of four, zero on the bounds themselves.
        return namespace(x).nn.functional.hardtanh(x, lower, upper)
    out: Any = x if overwrite else None
    if is_array(lower) or is_array(upper):
        # Two passes that NumPy vectorises: its clip is up to four times slower with array bounds.
        raised = np.maximum(x, lower, out=out)
        return np.minimum(raised, upper, out=raised)
    return x.clip(lower, upper, out=out)


def project_l2_ball(x: Array, radius: Step) -> Array:
    """Project each vector onto the Euclidean ball of that radius."""
    length = norm(x)
    if is_tensor(x):
        return x * (radius / namespace(x).maximum(length, convert(radius, x)))
    return x * (radius / np.maximum(length, radius))


def project_l1_ball(x: Array, radius: Step) -> Array:
    """Project each vector onto the l1 ball of that radius: soft thresholding at the right level.

    The level is the largest of ``(|x|_(1) + ... + |x|_(k) - radius) / k`` over k, with the magnitudes in
    descending order, and zero where the vector is inside already.
    """
    xp = namespace(x)
    magnitudes = abs(x)
    descending = xp.flip(xp.sort(magnitudes, axis=-1)[0] if is_tensor(x) else np.sort(magnitudes), (-1,))
    counts = convert(np.arange(1, x.shape[-1] + 1), x)
    levels = (xp.cumsum(descending, -1) - radius) / counts
    level = xp.clip(xp.amax(levels, -1)[..., None], 0, None)
    projected = x - clip(x, -level, level)
    # By rounding it may be outside still, the more the longer it is.
    size, most = detached(abs(projected).sum(-1)[..., None]), detached(convert(radius, x))
    return projected * xp.where(size > most, most / xp.where(size > most, size, xp.ones_like(size)), 1)
