"""What restoring gains on recordings that nothing was tuned on.

    python -m benchmarks.restoring FOLDER [COUNT]

Each of the folder's recordings (or so many of them, evenly chosen), its peak at full scale, is quantized and
restored by the default. "Ratio" is the mean squared error in units of the quantized signal's, over all
samples; "worst" that of the recording where it is largest; SNRs are the mean over the recordings.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.tuning import RATE, signals
from pdrn.audio.metrics import snr
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw
from pdrn.restoration.restorer import Restorer

QUANTIZERS: dict[str, Any] = (
    {f"{bits} bits": MidRise(bits, full_scale=True) for bits in range(2, 13)}
    | {f"{bits} bits, mid-tread": MidTread(bits, full_scale=True) for bits in range(2, 13)}
    | {"mu-law": MuLaw(), "A-law": ALaw()}
)


def main(folder: str, count: int) -> None:
    """Print one table and one JSON line."""
    recordings = list(signals([folder], count, seconds=np.inf))
    rows = []
    print("| cells | quantized, dB | restored, dB | ratio | worst | x real time |")
    print("|---|---|---|---|---|---|")
    for name, quantizer in QUANTIZERS.items():
        cells = [quantizer.cells(quantizer.encode(signal)) for signal in recordings]
        began = time.perf_counter()
        restored = [Restorer(method="cp").restore_cells(each, RATE) for each in cells]
        seconds = time.perf_counter() - began
        centres = [each.centre for each in cells]
        before, after = (
            np.array([((s - e) ** 2).sum() for s, e in zip(recordings, estimates, strict=True)])
            for estimates in (centres, restored)
        )
        row = {
            "cells": name,
            "quantized_snr_db": snr(recordings, centres),
            "restored_snr_db": snr(recordings, restored),
            "ratio": after.sum() / before.sum(),
            "worst": (after / before).max(),
            "times_real_time": sum(map(len, recordings)) / RATE / seconds,
        }
        rows.append(row)
        figures = (
            f"{row[key]:.{digits}f}" for key, digits in zip(list(row)[1:], (2, 2, 3, 3, 0), strict=True)
        )
        print(f"| {name} | " + " | ".join(figures) + " |", flush=True)
    print(json.dumps({"benchmark": "restoring", "recordings": len(recordings), "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10**9)
