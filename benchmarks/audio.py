"""How fast sound is read, turned into cells and cut, and that memory does not grow with the file.

    python -m benchmarks.audio

Speech is repeated to files of several lengths; each is read block by block and cut into frames of 1024 in a
process of its own, whose peak memory is noted. "bytes only" reads the
same file, which is in the cache by then, without decoding it.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pdrn.audio.corpus import speech
from pdrn.audio.files import blocks, writer
from pdrn.audio.frames import cut
from pdrn.audio.quantizers import MidTread

HOURS = (0.25, 2.0)
NAMES = {"WAV, 16 bit": ("wav", "PCM_16"), "FLAC, 16 bit": ("flac", "PCM_16"), "WAV, float": ("wav", "FLOAT")}
FRAME_LENGTH = 1024
BLOCK_LENGTH = 64 * FRAME_LENGTH


def make(file: Path, subtype: str, hours: float) -> None:
    """Write repeated speech of this length."""
    samples, sample_rate_hz = speech()
    with writer(file, sample_rate_hz, subtype=subtype) as put:
        for _ in range(round(hours * 3600 * sample_rate_hz / len(samples))):
            put(samples)


def measure(file: str, with_cells: bool) -> dict[str, float]:
    """Read and cut one file, and with the cells of its codes if asked for; return what it took."""
    began = time.perf_counter()
    with open(file, "rb") as stream:
        while stream.read(1 << 20):
            pass
    bytes_only = time.perf_counter() - began
    began = time.perf_counter()
    frames = 0
    energy = 0.0
    for block in blocks(file, BLOCK_LENGTH):
        pieces = cut(block.samples, FRAME_LENGTH)
        frames += len(pieces)
        energy += float(np.vdot(pieces[:, 0], pieces[:, 0]))
        if with_cells:
            energy += float(MidTread(16).observe(block.samples).radius[0])
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"frames": frames, "seconds": seconds, "bytes_only_seconds": bytes_only, "peak_mb": peak}


def main() -> None:
    """Print one table and one JSON line."""
    rows = []
    print("| file | hours | hours/min | MB/s | bytes only, MB/s | with cells, hours/min | peak memory, MB |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (suffix, subtype) in NAMES.items():
            for hours in HOURS:
                file = Path(folder) / f"speech.{suffix}"
                make(file, subtype, hours)
                plain = _in_own_process(file, with_cells=False)
                coded = _in_own_process(file, with_cells=True) if subtype != "FLOAT" else None
                megabytes = file.stat().st_size / 1e6
                file.unlink()
                row = {
                    "file": name,
                    "hours": hours,
                    "hours_per_minute": hours * 60 / plain["seconds"],
                    "mb_per_second": megabytes / plain["seconds"],
                    "bytes_only_mb_per_second": megabytes / plain["bytes_only_seconds"],
                    "with_cells_hours_per_minute": coded and hours * 60 / coded["seconds"],
                    "peak_mb": max(plain["peak_mb"], coded["peak_mb"] if coded else 0.0),
                }
                rows.append(row)
                print("| " + " | ".join(_shown(value) for value in row.values()) + " |", flush=True)
    print(json.dumps({"benchmark": "audio", "rows": rows}))


def _in_own_process(file: Path, with_cells: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.audio", str(file), "cells" if with_cells else "plain"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(answer)
    return result


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], sys.argv[2] == "cells")))
    else:
        main()
