"""Fill gaps: a missing sample gives an unbounded cell.

    min |w Kx|_1  with x in its cells,  K a Gabor frame, w from the signal (reweighted l1)

python examples/gaps.py [PICTURE.png]
"""

from __future__ import annotations

import sys

import numpy as np

from pdrn import Restorer
from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import Gaps
from pdrn.convex import GaborFrame, reweighted
from shared import compare, draw, snr_db


def main(path: str = "gaps.png", seconds: float = 2.0, gap_ms: int = 5) -> dict[str, float]:
    """Cut gaps into speech, fill them and return the SNR of each method, in the gaps alone."""
    samples, sample_rate_hz = speech()
    clean = samples[2 * sample_rate_hz :][: round(seconds * sample_rate_hz)]
    place, every = np.arange(len(clean)), sample_rate_hz // 10
    missing = (place % every >= every // 2) & (place % every < every // 2 + gap_ms * sample_rate_hz // 1000)
    cells = Gaps().observe(np.where(missing, np.nan, clean))

    frame = GaborFrame(len(clean), window_length=1024, hop=256)
    sparse = reweighted(cells.lo, cells.hi, frame, faint=0.01, group=2, move=0.1)
    results = {
        "silence": cells.centre,
        "straight lines": np.interp(place, place[~missing], clean[~missing]),
        "Restorer().restore_cells": Restorer().restore_cells(cells, sample_rate_hz),
        "reweighted l1 of a Gabor frame": sparse.x,
    }
    figures = compare(
        f"gaps of {gap_ms} ms, ten per second, SNR / dB in the gaps",
        lambda result: snr_db(clean[missing])(result[missing]),
        results,
    )
    energy = np.add.reduceat(np.where(missing, clean**2, 0), np.arange(0, len(clean), every))
    middle = int(np.argmax(energy)) * every + every // 2 + gap_ms * sample_rate_hz // 2000
    part = slice(max(middle - 150, 0), middle + 150)
    draw(
        path,
        "a gap in speech",
        place[part] / sample_rate_hz,
        {"original": clean[part]} | {name: result[part] for name, result in results.items()},
        (cells.lo[part], cells.hi[part]),
    )
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
