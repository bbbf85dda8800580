"""The speech sample that the package carries, for demonstrations and tests."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.files import read


def speech() -> tuple[NDArray[np.float64], int]:
    """Return 32 s of synthetic speech as samples in [-1, 1] and their rate, 16000 Hz.

    `data/README.md` beside the recording says how it was made and what may be done with it: anything.

    Examples
    --------
    >>> samples, sample_rate_hz = speech()
    >>> samples.ndim, sample_rate_hz
    (1, 16000)
    """
    with as_file(files("pdrn.audio") / "data" / "speech.flac") as path:
        sound = read(path)
    return sound.samples, sound.sample_rate_hz
