"""What a network restores, alone and with Chambolle-Pock, beside that alone, on sound that it has not heard.

    python -m benchmarks.models MODEL FOLDER [COUNT] [--hearing]

MODEL is the name of a shipped network or a file. Each of the folder's recordings (or so many of them, evenly
chosen), its peak at full scale, is quantized mid-rise and restored by Chambolle-Pock, by the network, and by
both, which is the default of `pdrn restore`. SNRs are the mean over the recordings; "gain" is over
Chambolle-Pock, recording by recording, with a 95 % interval of its mean; "ratio" is the mean squared error in
units of the quantized signal's, over all samples; "worst" that of both on the recording where it is largest.
With --hearing, wide-band PESQ and STOI.
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
from pdrn.restoring.averaged import NETWORK_SHARE
from pdrn.restoring.restorer import Restorer

BITS = range(2, 9)
HEADINGS = (
    "bits",
    "SNR in dB: quantized / CP / network / both",
    "gain: network",
    "both",
    "ratio: CP / network / both",
    "worst",
    "times real time: CP / network",
)


def main(model: str, folder: str, count: int, hearing: bool) -> None:
    """Print one table and one JSON line."""
    recordings = list(signals([folder], count, seconds=np.inf))
    headings = [*HEADINGS, *(("PESQ", "STOI") if hearing else ())]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    rows = []
    for bits in BITS:
        rows.append(_row(model, recordings, bits, hearing))
        print(_printed(rows[-1]), flush=True)
    print(json.dumps({"benchmark": "models", "model": model, "recordings": len(recordings), "rows": rows}))


def _row(model: str, recordings: list[Any], bits: int, hearing: bool) -> dict[str, Any]:
    quantizer = MidRise(bits, full_scale=True)
    cells = [quantizer.cells(quantizer.encode(signal)) for signal in recordings]
    seconds_of_sound = sum(map(len, recordings)) / RATE
    estimates = {"quantized": [each.centre for each in cells]}
    speeds = {}
    for name, restorer in {"cp": Restorer(method="cp"), "network": Restorer(model)}.items():
        began = time.perf_counter()
        estimates[name] = [restorer.restore_cells(each, RATE, quantizer.step) for each in cells]
        speeds[name] = seconds_of_sound / (time.perf_counter() - began)
    estimates["both"] = [
        NETWORK_SHARE * network + (1 - NETWORK_SHARE) * solver
        for network, solver in zip(estimates["network"], estimates["cp"], strict=True)
    ]
    outside = max(each.violation(x) for each, x in zip(cells, estimates["network"], strict=True))
    if outside:
        raise RuntimeError(f"a sample is outside of its cell, by {outside}")
    pairs = {name: list(zip(recordings, those, strict=True)) for name, those in estimates.items()}
    snrs = {name: np.array([snr(*pair) for pair in those]) for name, those in pairs.items()}
    errors = {name: np.array([((s - e) ** 2).sum() for s, e in those]) for name, those in pairs.items()}
    gains = {name: snrs[name] - snrs["cp"] for name in ("network", "both")}
    row: dict[str, Any] = {
        "bits": bits,
        "snr_db": {name: those.mean() for name, those in snrs.items()},
        "gain_db": {name: those.mean() for name, those in gains.items()},
        "gain_interval_db": {
            name: 1.96 * those.std(ddof=1) / np.sqrt(len(those)) for name, those in gains.items()
        },
        "ratio": {name: those.sum() / errors["quantized"].sum() for name, those in errors.items()},
        "worst": (errors["both"] / errors["quantized"]).max(),
        "times_real_time": speeds,
    }
    if hearing:
        row["pesq"] = {name: pesq_wb(recordings, those, RATE) for name, those in estimates.items()}
        row["stoi"] = {name: stoi(recordings, those, RATE) for name, those in estimates.items()}
    return row


def _printed(row: dict[str, Any]) -> str:
    def several(values: Any, digits: int) -> str:
        return " / ".join(f"{value:.{digits}f}" for value in values)

    figures = [str(row["bits"]), several(row["snr_db"].values(), 2)]
    figures += [f"{row['gain_db'][n]:.2f} ± {row['gain_interval_db'][n]:.2f}" for n in ("network", "both")]
    figures.append(several((row["ratio"][name] for name in ("cp", "network", "both")), 3))
    figures += [f"{row['worst']:.3f}", several(row["times_real_time"].values(), 0)]
    if "pesq" in row:
        figures += [several(row["pesq"].values(), 2), several(row["stoi"].values(), 3)]
    return f"| {' | '.join(figures)} |"


if __name__ == "__main__":
    plain = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    main(plain[0], plain[1], int(plain[2]) if len(plain) > 2 else sys.maxsize, "--hearing" in sys.argv)
