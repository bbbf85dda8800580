"""Telephone sound: mu-law and A-law say in which of 256 cells a sample lies, narrow ones around zero.

    min |w Kx|_1  with x in its cells,  K the cosine transform of overlapping frames: `pdrn.restore`

python examples/g711.py [PICTURE.png]
"""

from __future__ import annotations

import sys

import numpy as np
import soxr

import pdrn
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.sample import speech
from showing import compared, decibels, draw


def main(path: str = "g711.png", seconds: float = 4.0, level: float = 0.1) -> dict[str, float]:
    """Code speech of 8 and 16 kHz by both laws, expand it and return the SNR of each way."""
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
            figures |= compared(title, decibels(clean), results)
    cells = law.cells(law.encode(clean))
    levels = np.abs(clean[: len(clean) // 120 * 120]).reshape(-1, 120).mean(1)
    quiet = 120 * int(np.argmin(np.abs(levels - level / 100)))  # where A-law has few cells left
    part = slice(quiet, quiet + 120)
    decoded, restored = results.values()
    curves = {"original": 0 * clean, "decoder's centres": decoded - clean, "pdrn.restore": restored - clean}
    draw(
        path,
        "errors of A-law at 16 kHz",
        np.arange(len(clean))[part] / sample_rate_hz,
        {label: curve[part] for label, curve in curves.items()},
        ((cells.lo - clean)[part], (cells.hi - clean)[part]),
    )
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
