"""What makes more of a corpus: other speeds, and what recorders and rooms add to speech."""

from __future__ import annotations

import math

import numpy as np
import soxr
from numpy.typing import NDArray

Array = NDArray[np.float32]

OFFSETS = (1e-3, 1e-1)
WAVES = (1e-3, 5e-2)
"""How large an offset and a slow wave are, at least and at most, in full scale."""

WAVE_CYCLES = (2.5e-4, 7.5e-3)
"""How many cycles a slow wave has per sample: 4 to 120 Hz at 16 kHz."""


def at_speed(signal: Array, speed: float) -> Array:
    """Return a signal that is played so many times as fast, turned down where its peak would exceed 1.

    >>> len(at_speed(np.zeros(1100, np.float32), 1.1))
    1000
    """
    if speed == 1:
        return signal
    played: Array = soxr.resample(signal, speed, 1.0, quality="VHQ")
    played /= np.maximum(np.abs(played).max(initial=0), np.float32(1))
    return played


def with_rumble(signals: Array, share: float, generator: np.random.Generator) -> Array:
    """Add an offset and a slow wave to a share of the signals, in rows, and turn down what exceeds 1."""
    rows = (len(signals), 1)
    time = np.arange(signals.shape[-1])
    offset = _log_uniform(OFFSETS, rows, generator) * generator.choice([-1, 1], rows)
    turns = _log_uniform(WAVE_CYCLES, rows, generator) * time + generator.random(rows)
    wave = _log_uniform(WAVES, rows, generator) * np.sin(2 * np.pi * turns)
    rumble = np.where(generator.random(rows) < share, offset + wave, 0)
    louder = signals + rumble.astype(np.float32)
    peaks = np.abs(louder).max(-1, keepdims=True)
    limited: Array = louder / np.maximum(peaks, np.float32(1))
    return limited


def _log_uniform(
    ends: tuple[float, float], shape: tuple[int, int], generator: np.random.Generator
) -> NDArray[np.float64]:
    least, most = (math.log(end) for end in ends)
    return np.exp(generator.uniform(least, most, shape))
