"""Frames: the paper's cut, and a lossless split and join with overlap."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from pdrn.audio.cells import FloatArray
from pdrn.errors import InputError


def _check(frame_length: int, hop: int) -> None:
    if not 1 <= hop <= frame_length:
        raise InputError(f"need 1 <= hop <= frame_length, got hop {hop} and frame_length {frame_length}")


def cut(signal: ArrayLike, frame_length: int, hop: int | None = None) -> FloatArray:
    """Cut a signal into whole frames, without the incomplete tail: the paper's (4.1).

    Frame j holds the samples j hop to j hop + frame_length - 1, j = 0 ... floor((N - frame_length) / hop).

    Parameters
    ----------
    signal : array_like, shape (..., N)
    frame_length : int
        The paper's n.
    hop : int, optional
        The paper's s; default: `frame_length`.

    Returns
    -------
    array, shape (..., frames, frame_length)
        A read-only view of the signal.

    Examples
    --------
    >>> cut(np.arange(7.0), 3)
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """
    signal = np.asarray(signal)
    hop = frame_length if hop is None else hop
    _check(frame_length, hop)
    if signal.shape[-1] < frame_length:
        return np.empty((*signal.shape[:-1], 0, frame_length), signal.dtype)
    return sliding_window_view(signal, frame_length, axis=-1)[..., ::hop, :]


def split(signal: ArrayLike, frame_length: int, hop: int) -> FloatArray:
    """Split a signal into overlapping frames that hold every sample, with zeros around it.

    The first frame starts `frame_length - hop` samples early, so that the first samples are in as many
    frames as all others.

    Parameters
    ----------
    signal : array_like, shape (..., N)
    frame_length, hop : int
        1 <= hop <= frame_length.

    Returns
    -------
    array, shape (..., frames, frame_length)
        A read-only view of the padded signal.

    Examples
    --------
    >>> split(np.array([1.0, 2.0, 3.0]), 2, 1)
    array([[0., 1.],
           [1., 2.],
           [2., 3.],
           [3., 0.]])
    """
    signal = np.asarray(signal)
    _check(frame_length, hop)
    lead = frame_length - hop
    frames = -(-(lead + signal.shape[-1]) // hop)
    tail = (frames - 1) * hop + frame_length - lead - signal.shape[-1]
    padded = np.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(lead, max(tail, 0))])
    return cut(padded, frame_length, hop)


def join(frames: ArrayLike, length: int, hop: int, window: ArrayLike | None = None) -> FloatArray:
    """Join the frames of `split` into a signal, averaging where they overlap.

    Each sample is the mean of the frames that hold it, weighted by the window. Where these agree the result
    is that very number, so join(split(s)) equals s exactly, for every window.

    Parameters
    ----------
    frames : array_like, shape (..., frames, frame_length)
    length : int
        Samples of the signal that was split.
    hop : int
        As in `split`.
    window : array_like, shape (frame_length,), optional
        Weights >= 0; default: all one. A sample with no weight at all is taken from its first frame.

    Returns
    -------
    array, shape (..., length)
        In float32 for float32 and short integers, else in float64.

    Examples
    --------
    >>> signal = np.array([0.1, 0.2, 0.3])
    >>> join(split(signal, 2, 1), 3, 1, np.hanning(2))
    array([0.1, 0.2, 0.3])
    """
    frames = np.asarray(frames)
    if frames.ndim < 2:
        raise InputError(
            f"need (..., frames, frame_length), got shape {frames.shape}; use split to make them"
        )
    frames = frames.astype(np.result_type(frames, np.float32), copy=False)
    count, frame_length = frames.shape[-2:]
    _check(frame_length, hop)
    weights = np.ones(frame_length) if window is None else np.asarray(window, dtype=np.float64)
    if weights.shape != (frame_length,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError(f"the window needs {frame_length} finite weights >= 0, got shape {weights.shape}")
    lead = frame_length - hop
    if length < 0 or count != -(-(lead + length) // hop):
        raise InputError(
            f"{count} frames at hop {hop} do not make {length} samples; pass what split was given"
        )
    total = (count - 1) * hop + frame_length if count else 0
    weights = (weights / (weights.max() or 1.0)).astype(frames.dtype)

    # Differences from the first frame that holds a sample are averaged, and vanish where frames agree.
    first = np.empty((*frames.shape[:-2], total), frames.dtype)
    for index in reversed(range(count)):
        first[..., index * hop : index * hop + frame_length] = frames[..., index, :]
    difference = np.zeros_like(first)
    weight = np.zeros(total, frames.dtype)
    for index in range(count):
        here = slice(index * hop, index * hop + frame_length)
        difference[..., here] += weights * (frames[..., index, :] - first[..., here])
        weight[here] += weights
    mean = first + difference / np.where(weight > 0, weight, 1)
    return mean[..., lead : lead + length]
