"""Restore clipped peaks: a clipped sample gives a half-open cell.

    min |w Kx|_1  with x in its cells,  K a Gabor frame, w from the signal itself (reweighted l1)

python examples/declip.py [PICTURE.png]
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.interpolate import CubicSpline

import pdrn
from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import Clipping
from pdrn.convex import GaborFrame, reweighted
from shared import compare, draw, snr_db


def main(path: str = "declip.png", seconds: float = 2.0, clip_at: float = 0.2) -> dict[str, float]:
    """Clip speech, restore it and return the SNR of each method."""
    samples, sample_rate_hz = speech()
    clean = samples[2 * sample_rate_hz :][: round(seconds * sample_rate_hz)]
    clean = clean / np.abs(clean).max()
    clipping = Clipping(clip_at)
    clipped = clipping.clip(clean)
    cells = clipping.observe(clipped)

    place = np.arange(len(clean))
    known = np.abs(clipped) < clip_at
    spline = CubicSpline(place[known], clipped[known])(place)
    frame = GaborFrame(len(clean), window_length=1024, hop=256)
    sparse = reweighted(cells.lo, cells.hi, frame, faint=0.01, group=2, move=0.1)
    results = {
        "clipped": clipped,
        "cubic spline over the peaks": cells.project(spline),
        "pdrn.restore(..., clip_at=...)": pdrn.restore(clipped, sample_rate_hz, clip_at=clip_at),
        "reweighted l1 of a Gabor frame": sparse.x,
    }
    figures = compare(
        f"declip at {clip_at} of the peak, {1 - known.mean():.1%} clipped, SNR / dB", snr_db(clean), results
    )
    start = max(int(np.argmax(np.abs(clean))) - 120, 0)
    part = slice(start, start + 240)
    draw(
        path,
        "clipped speech",
        place[part] / sample_rate_hz,
        {"original": clean[part]} | {name: result[part] for name, result in results.items()},
        (cells.lo[part], cells.hi[part]),
    )
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
