"""Restore telephone sound: mu-law and A-law have 256 cells, narrow ones around zero.

    min |w Kx|_1  with x in its cells,  K the cosine transform of overlapping frames: `pdrn.restore`

python examples/g711.py [PICTURE.png]
"""

from __future__ import annotations

import sys

import numpy as np
import soxr
from scipy.ndimage import uniform_filter1d

import pdrn
from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import ALaw, MuLaw
from shared import compare, draw, snr_db


def main(path: str = "g711.png", seconds: float = 4.0, level: float = 0.1) -> dict[str, float]:
    """Code speech of 8 and 16 kHz by both laws, restore it and return the SNR of each method."""
    samples, rate = speech()
    samples = samples[2 * rate :][: round(seconds * rate)]
    samples = level * samples / np.abs(samples).max()
    figures: dict[str, float] = {}
    for sample_rate_hz in (8000, 16000):
        clean = soxr.resample(samples, rate, sample_rate_hz)
        for name, law in (("mulaw", MuLaw()), ("alaw", ALaw())):
            decoded = law.quantize(clean)
            results = {
                f"{name} {sample_rate_hz} Hz, decoder's centres": decoded,
                f"{name} {sample_rate_hz} Hz, pdrn.restore": pdrn.restore(decoded, sample_rate_hz, law=name),
            }
            title = f"{name} at {sample_rate_hz} Hz, peaks at {level} of full scale, SNR / dB"
            figures |= compare(title, snr_db(clean), results)
    window = sample_rate_hz // 20
    errors = {
        label: np.sqrt(uniform_filter1d((result - clean) ** 2, window)) for label, result in results.items()
    }
    draw(path, "error of A-law over 50 ms", np.arange(len(clean)) / sample_rate_hz, errors, unit="RMS error")
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
