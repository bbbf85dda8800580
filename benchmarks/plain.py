"""Chambolle-Pock on overlapping frames with nothing but its step and its stop tuned, for each bit depth.

    python -m benchmarks.plain RATE FOLDER...

The paper's problem, min |K x|_1 with x in its cells, on frames of 32 ms of which eight hold each sample, and
the mean of these: a baseline without what `pdrn restore --method cp` has besides, weights by the spectrum and
steps by the loudness of each frame. Prints the pace, which is the step tau in cells, and the iterations with
the highest mean SNR over twelve recordings of each folder, two seconds out of each, at this sample rate: they
are `TUNED`.
"""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np

from benchmarks.tuning import signals
from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.frames import join, split
from pdrn.audio.metrics import snr
from pdrn.audio.quantizers import MidRise
from pdrn.convex import DCT, ChambollePock, dequantization, solve
from pdrn.restoration.methods import FRAME_SECONDS, OVERLAP

PACES = 2.0 ** np.arange(-8, 1)
ITERATIONS = (10, 20, 40, 80)

BITS = range(2, 9)

_PACES_OF = {
    8000: (1 / 64, 1 / 64, 1 / 64, 1 / 64, 1 / 128, 1 / 256, 1 / 64),
    16000: (1 / 8, 1 / 8, 1 / 8, 1 / 64, 1 / 128, 1 / 256, 1 / 256),
}
_ITERATIONS_OF = {8000: (80, 80, 80, 80, 80, 80, 10), 16000: (80,) * 7}

TUNED = {
    rate: dict(zip(BITS, zip(paces, _ITERATIONS_OF[rate], strict=True), strict=True))
    for rate, paces in _PACES_OF.items()
}
"""For each sample rate and bit depth the pace and the iterations, from LibriSpeech's training part."""


def tuned(cells: Cells, sample_rate_hz: int, bits: int) -> FloatArray:
    """Restore what was quantized to so many bits of full scale, as well as this can."""
    pace, iterations = TUNED[sample_rate_hz][bits]
    return restore(cells, sample_rate_hz, pace * 2 / 2**bits, iterations)


def restore(cells: Cells, sample_rate_hz: int, tau: float, iterations: int) -> FloatArray:
    """Return the signal in its cells that so many iterations lead to."""
    length = round(FRAME_SECONDS * sample_rate_hz)
    hop = length // OVERLAP
    lo, hi = (split(bound.astype(np.float32), length, hop) for bound in (cells.lo, cells.hi))
    solution = solve(dequantization(lo, hi, DCT(length)), ChambollePock(tau=tau), iterations=iterations)
    window = np.sqrt(np.hanning(length + 2)[1:-1])
    return join(solution.x, len(cells.lo), hop, window)


def main(rate: int, folders: list[str]) -> None:
    """Print the table."""
    recordings = list(signals(folders, count=12, rate=rate))
    print(f"| bits | pace, iterations | SNR in dB | at pace {', '.join(f'{pace:g}' for pace in PACES)} |")
    print("|---|---|---|---|")
    chosen = {}
    for bits in BITS:
        quantizer = MidRise(bits, full_scale=True)
        cells = [quantizer.cells(quantizer.encode(signal)) for signal in recordings]
        found = {
            (pace, count): snr(
                recordings, [restore(each, rate, pace * quantizer.step, count) for each in cells]
            )
            for pace, count in itertools.product(PACES, ITERATIONS)
        }
        pace, iterations = chosen[bits] = max(found, key=lambda setting: found[setting])
        by_pace = ", ".join(f"{max(found[each, count] for count in ITERATIONS):.2f}" for each in PACES)
        print(f"| {bits} | {pace:g}, {iterations} | {found[pace, iterations]:.2f} | {by_pace} |", flush=True)
    print(json.dumps({"benchmark": "plain", "rate": rate, "tuned": chosen}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
