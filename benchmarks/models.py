"""What a network restores, beside Chambolle-Pock, on recordings that it has not seen.

    python -m benchmarks.models MODEL FOLDER [COUNT] [--hearing]

MODEL is the name of a shipped network or a file. Each of the folder's recordings (or so many of them, evenly
chosen), its peak at full scale, is quantized mid-rise and restored. SNRs are the mean over the recordings;
"gain" is the network's over Chambolle-Pock, recording by recording, with a 95 % interval of its mean; "ratio"
is the mean squared error in units of the quantized signal's, over all samples; "worst" the network's on the
recording where it is largest. With --hearing, PESQ (wide band) and STOI of the quantized signal and of both.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.tuning import RATE, signals
from pdrn.audio.metrics import pesq_wb, snr, stoi
from pdrn.audio.quantizers import MidRise
from pdrn.restoring.restorer import Restorer

BITS = range(2, 9)


def main(model: str, folder: str, count: int, hearing: bool) -> None:
    """Print one table and one JSON line."""
    recordings = list(signals([folder], count, seconds=np.inf))
    headings = ["bits", "quantized, dB", "CP, dB", "network, dB", "gain", "ratio CP", "network", "worst"]
    headings += ["x real time", *(("PESQ", "STOI") if hearing else ())]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    rows = [_row(model, recordings, bits, hearing) for bits in BITS]
    print(json.dumps({"benchmark": "models", "model": model, "recordings": len(recordings), "rows": rows}))


def _row(model: str, recordings: list[Any], bits: int, hearing: bool) -> dict[str, Any]:
    quantizer = MidRise(bits, full_scale=True)
    cells = [quantizer.cells(quantizer.encode(signal)) for signal in recordings]
    step = 2 / 2**bits
    estimates = {
        "quantized": [each.centre for each in cells],
        "cp": [Restorer(method="cp").restore_cells(each, RATE, step) for each in cells],
    }
    began = time.perf_counter()
    estimates["network"] = [Restorer(model).restore_cells(each, RATE, step) for each in cells]
    seconds = time.perf_counter() - began
    outside = sum(
        int(((x < each.lo) | (x > each.hi)).sum())
        for x, each in zip(estimates["network"], cells, strict=True)
    )
    if outside:
        raise RuntimeError(f"{outside} samples are not in their cells")
    pairs = {name: list(zip(recordings, those, strict=True)) for name, those in estimates.items()}
    snrs = {name: np.array([snr(*pair) for pair in those]) for name, those in pairs.items()}
    errors = {name: np.array([((s - e) ** 2).sum() for s, e in those]) for name, those in pairs.items()}
    gains = snrs["network"] - snrs["cp"]
    row: dict[str, Any] = {
        "bits": bits,
        "snr_db": {name: those.mean() for name, those in snrs.items()},
        "gain_db": gains.mean(),
        "gain_interval_db": 1.96 * gains.std(ddof=1) / np.sqrt(len(gains)),
        "ratio": {name: those.sum() / errors["quantized"].sum() for name, those in errors.items()},
        "worst": (errors["network"] / errors["quantized"]).max(),
        "times_real_time": sum(map(len, recordings)) / RATE / seconds,
    }
    figures = [f"{value:.2f}" for value in row["snr_db"].values()]
    figures.append(f"{row['gain_db']:.2f} ± {row['gain_interval_db']:.2f}")
    figures += [f"{row['ratio'][name]:.3f}" for name in ("cp", "network")]
    figures += [f"{row['worst']:.3f}", f"{row['times_real_time']:.0f}"]
    if hearing:
        row["pesq"] = {name: pesq_wb(recordings, those, RATE) for name, those in estimates.items()}
        row["stoi"] = {name: stoi(recordings, those, RATE) for name, those in estimates.items()}
        figures.append(" / ".join(f"{value:.2f}" for value in row["pesq"].values()))
        figures.append(" / ".join(f"{value:.3f}" for value in row["stoi"].values()))
    print(f"| {bits} | {' | '.join(figures)} |", flush=True)
    return row


if __name__ == "__main__":
    plain = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    main(plain[0], plain[1], int(plain[2]) if len(plain) > 2 else sys.maxsize, "--hearing" in sys.argv)
