"""Measure methods on every kind of sound: materials, sample rates, bit depths, G.711 and clipping.

    python -m benchmarks.sounds FOLDER... [--rates HZ,...] [--cells NAME,...] [--methods NAME,...] [--count N]

Of every folder, COUNT recordings, evenly chosen, are taken at each rate up to their own, their middle SECONDS
with a peak at full scale. They are turned into cells: `rise5` and `tread5` are 5 bits mid-rise and mid-tread,
`mulaw` and `alaw` are G.711, `clip5` is clipping at a signal-to-noise ratio of 5 dB in 16 bits. Methods are
`cp`, `restore` (the default of `pdrn restore`), a bundled model or a network file; with `+cp`, its mean with
Chambolle-Pock.

Prints, for every method, the mean gain in dB over the centres of the cells, the worst gain of a recording,
and how many times faster than real time it was; with --metrics PESQ (at 8 and 16 kHz) and Zimtohrli, too.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.files import info, read, resample
from pdrn.audio.metrics import or_none, pesq, snr, zimtohrli
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw
from pdrn.restoration.restorer import Restorer
from pdrn.training.data import clipped_cells


def signals(folder: Path, rate: int, count: int, seconds: float) -> list[FloatArray]:
    """Return the middles of recordings at a rate up to their own, with a peak of 1."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".flac", ".wav", ".ogg"))
    files = [file for file in files if info(file).sample_rate_hz >= rate]
    found = []
    chosen = np.unique(np.linspace(0, len(files) - 1, min(count, len(files))).round().astype(int))
    for file in (files[index] for index in chosen):
        samples = np.atleast_2d(resample(read(file), rate).samples).mean(0)
        length = int(min(len(samples), seconds * rate))
        start = (len(samples) - length) // 2
        part = samples[start : start + length]
        if part.any():
            found.append(part / np.abs(part).max())
    return found


def cells_of(signal: FloatArray, name: str) -> tuple[Cells, float | None]:
    """Return the cells of a signal by the name of their kind, and their width if they have one."""
    kind = name.rstrip("0123456789.")
    number = float(name[len(kind) :] or 0)
    if kind in ("mulaw", "alaw"):
        law = MuLaw() if kind == "mulaw" else ALaw()
        return law.cells(law.encode(signal)), None
    if kind == "clip":
        return clipped_cells(signal.astype(np.float32), number), None
    coder = {"rise": MidRise, "tread": MidTread}[kind](int(number), full_scale=kind == "rise")
    return coder.cells(coder.encode(signal)), coder.step


def restorer(method: str) -> Restorer:
    """Return the restorer of a method by its name."""
    if method in ("cp", "restore"):
        return Restorer(method="cp" if method == "cp" else "auto")
    model = method.removesuffix("+cp")
    return Restorer(model, method="network" if model == method else "both")


def measure(recordings: list[FloatArray], rate: int, kind: str, method: str, metrics: bool) -> dict[str, Any]:
    """Restore recordings by a method and return its figures."""
    cells = [cells_of(signal, kind) for signal in recordings]
    restoring = restorer(method)
    began = time.process_time()
    estimates = [restoring.restore_cells(each, rate, step) for each, step in cells]
    seconds = time.process_time() - began
    gains = [
        snr(signal, estimate) - snr(signal, each.centre)
        for signal, estimate, (each, _) in zip(recordings, estimates, cells, strict=True)
    ]
    outside = max(each.violation(x) for (each, _), x in zip(cells, estimates, strict=True))
    if outside:
        raise RuntimeError(f"a sample is outside of its cell, by {outside}")
    row: dict[str, Any] = {
        "gain_db": float(np.mean(gains)),
        "worst_db": float(np.min(gains)),
        "snr_db": float(np.mean([snr(*pair) for pair in zip(recordings, estimates, strict=True)])),
        "times_real_time": sum(map(len, recordings)) / rate / seconds,
    }
    if metrics:
        if rate in (8000, 16000):
            row["pesq"] = or_none(lambda: pesq(recordings, estimates, rate))
        row["zimtohrli"] = or_none(lambda: zimtohrli(recordings, estimates, rate))
    return row


def main() -> None:
    """Print a table and one JSON line for every folder and rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rates", default="16000")
    parser.add_argument("--cells", default="rise3,rise5,rise8,tread4,tread6,tread8")
    parser.add_argument("--methods", default="cp,restore")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--metrics", action="store_true")
    asked = parser.parse_args()
    methods = asked.methods.split(",")
    for folder in asked.folders:
        for rate in map(int, asked.rates.split(",")):
            recordings = signals(folder, rate, asked.count, asked.seconds)
            if not recordings:
                continue
            print(f"\n{folder.name}, {rate} Hz, {len(recordings)} recordings")
            print(f"| cells | {' | '.join(methods)} |\n|{'---|' * (1 + len(methods))}")
            rows = {}
            for kind in asked.cells.split(","):
                found = {name: measure(recordings, rate, kind, name, asked.metrics) for name in methods}
                rows[kind] = found
                print(f"| {kind} | {' | '.join(map(_printed, found.values()))} |", flush=True)
            print(json.dumps({"benchmark": "sounds", "folder": folder.name, "rate_hz": rate, "rows": rows}))


def _printed(row: dict[str, Any]) -> str:
    parts = [f"{row['gain_db']:+.2f} ({row['worst_db']:+.2f}) dB"]
    parts += [f"{name} {row[name]:.2f}" for name in ("pesq", "zimtohrli") if row.get(name) is not None]
    return ", ".join([*parts, f"{row['times_real_time']:.0f}x"])


if __name__ == "__main__":
    main()
