"""What restoring on a Ray cluster costs, and what that means for more sound and more cores.

    python -m benchmarks.scaling FOLDER

restores 5-bit versions of the sounds in a folder with one worker and with two, and by a process without Ray,
compares all bytes, and times what the driver does for each file by itself. A model is fitted to that, and
printed for 1 to 10,000 hours and 1 to 1,000 cores. Wants two cores that are free, for some minutes.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.app.batch import Job
from pdrn.app.cluster import across
from pdrn.app.manifest import Proof, opened
from pdrn.app.on_ray import connected
from pdrn.audio.files import read
from pdrn.audio.quantizers import MidRise
from pdrn.audio.writing import write

COMMAND = [sys.executable, "-c", "from pdrn.app.cli import main; main()"]
LONG, SHORT = 48, 160
"""How many files there are in a set of long ones, and in one of half a second each."""

NO_OPS = 3000
NOTES = 100_000
HOURS = (1, 10, 100, 1000, 10_000)
CORES = (1, 2, 10, 100, 1000)
SECONDS_PER_FILE = 15.0


def pdrn(*arguments: object) -> float:
    """Run a command; return how long it took."""
    began = time.perf_counter()
    subprocess.run([*COMMAND, *map(str, arguments)], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def prepared(speech: Path, folder: Path, seconds: int) -> dict[str, tuple[int, float]]:
    """Write sets of quantized sounds; return how many files and how many seconds each has."""
    sounds, total = [], 0.0
    for path in itertools.cycle(sorted(speech.iterdir())):
        sound = read(path)
        sounds.append(MidRise(5).quantize(np.atleast_2d(sound.samples)[0]))
        rate = sound.sample_rate_hz
        total += len(sounds[-1]) / rate
        if total > seconds:
            break
    signal = np.concatenate(sounds)[: seconds * rate]
    lengths = {"long": seconds * rate // LONG, "short": rate // 2}
    counts = {"long": LONG, "short": SHORT}
    facts = {}
    for name, length in lengths.items():
        (folder / name).mkdir()
        for number in range(counts[name]):
            at = number * length % (len(signal) - length + 1)
            write(folder / name / f"{number:04}.wav", signal[at : at + length], rate, subtype="PCM_16")
        facts[name] = counts[name], counts[name] * length / rate
    return facts


def same_bytes(one: Path, other: Path) -> bool:
    """Tell whether two folders hold the same files."""
    names = sorted(os.listdir(one))
    return names == sorted(os.listdir(other)) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


def nothing(job: object) -> object:
    """Do no work."""
    return job


def always() -> bool:
    """Approve of any worker."""
    return True


def never(_: object) -> bool:
    """Repeat nothing."""
    return False


def no_ops(workers: int, count: int) -> dict[str, float]:
    """Time starting Ray and its workers, and the way to a worker and back, with nothing done there."""
    jobs = [Job(f"/some/folder/of/sound/{n:08}.wav", f"/some/other/folder/{n:08}.wav") for n in range(count)]
    began = time.perf_counter()
    with connected(None, workers) as ray:
        started = time.perf_counter()
        results = across(ray, nothing, jobs, workers, cpus=1, check=always, passing=never, again=nothing)
        next(results)
        first = time.perf_counter()
        spent = time.process_time()
        rest = sum(1 for _ in results)
        ended = time.perf_counter()
        spent = time.process_time() - spent
    return {
        "start": started - began,
        "first_worker": first - started,
        "per_job": (ended - first) / rest,
        "driver_cpu_per_job": spent / rest,
        "end": time.perf_counter() - ended,
    }


def notes(folder: Path, count: int) -> dict[str, float]:
    """Time noting, reading and asking for so many files, and what memory they take."""
    path = str(folder / "notes.jsonl")
    proof = Proof(bytes(32), bytes(32), bytes(32))
    place = str(folder / "some" / "folder")
    empty = memory()
    jobs = [Job(f"{place}/{n:08}.wav", f"{place}/{n:08}_restored.wav", True) for n in range(count)]
    planned = memory()
    began = time.perf_counter()
    with opened(path) as manifest:
        for job in jobs:
            manifest.note(job.source, job.target, proof)
    noted = time.perf_counter()
    before = memory()
    read_at = time.perf_counter()
    with opened(path) as manifest:
        asked = time.perf_counter()
        held = memory()
        assert all(manifest.known(job.target) for job in jobs)
    ended = time.perf_counter()
    return {
        "note": (noted - began) / count,
        "read": (asked - read_at) / count,
        "ask": (ended - asked) / count,
        "bytes_per_line": os.path.getsize(path) / count,
        "job_bytes": (planned - empty) / count,
        "proof_bytes": (held - before) / count,
    }


def memory() -> int:
    """Return how many bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measured(speech: Path, seconds: int, scratch: Path) -> dict[str, Any]:
    """Take all measurements."""
    facts = prepared(speech, scratch, seconds)
    rows = []
    for name, options in {
        "1 process": ("--jobs", 1),
        "1 worker": ("--jobs", 1, "--engine", "ray"),
        "2 workers": ("--jobs", 2, "--engine", "ray"),
    }.items():
        for sounds, (files, length) in facts.items():
            out = scratch / f"{sounds} by {name}"
            took = pdrn("restore", scratch / sounds, "-o", out, "--quiet", *options)
            same = same_bytes(out, scratch / f"{sounds} by 1 process")
            rows.append(
                {"who": name, "sounds": sounds, "files": files, "audio": length, "took": took, "same": same}
            )
            print(
                f"{name}, {sounds}: {files} files, {length:.0f} s of sound, {took:.1f} s, {same=}", flush=True
            )
    return {"rows": rows, "no_ops": {n: no_ops(n, NO_OPS) for n in (1, 2)}, "notes": notes(scratch, NOTES)}


def fitted(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Fit a fixed time, one per file and one per second of sound, the latter two shared by the workers."""
    rows = [row for row in rows if row["who"] != "1 process"]
    workers = [int(row["who"].split()[0]) for row in rows]
    matrix = [[1, row["files"] / n, row["audio"] / n] for row, n in zip(rows, workers, strict=True)]
    took = np.array([row["took"] for row in rows])
    found = np.linalg.lstsq(np.array(matrix), took, rcond=None)[0]
    off = np.abs(np.array(matrix) @ found / took - 1).max()
    return dict(zip(("fixed", "per_file", "per_second"), found.tolist(), strict=True)) | {"worst": float(off)}


def predicted(model: dict[str, float], serial: float, hours: float, cores: int) -> tuple[float, str]:
    """Return the seconds that a job takes, and what most of them go into."""
    audio = hours * 3600
    files = audio / SECONDS_PER_FILE
    share = (files * model["per_file"] + audio * model["per_second"]) / min(cores, files)
    parts = {"fixed": model["fixed"], "driver": files * serial, "workers": share}
    # Driver and workers work at the same time; the slower of them is waited for.
    total = parts["fixed"] + max(parts["driver"], parts["workers"])
    return total, max(parts, key=lambda part: parts[part])


def show(model: dict[str, float], serial: float) -> None:
    """Print the model, and what it says."""
    print(f"model: {', '.join(f'{name} {value:.4g}' for name, value in model.items())}, {serial=:.3g}")
    print("| hours | " + " | ".join(f"{cores} cores" for cores in CORES) + " |")
    print("|---" * (len(CORES) + 1) + "|")
    for hours in HOURS:
        cells = (predicted(model, serial, hours, cores) for cores in CORES)
        print(f"| {hours} | " + " | ".join(f"{_in_words(total)} ({part})" for total, part in cells) + " |")


def _in_words(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def main() -> None:
    """Print what was measured, the model, and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("speech", type=Path, help="folder of 16 kHz sound files")
    parser.add_argument("--seconds", type=int, default=960, help="how much of them is restored")
    arguments = parser.parse_args()
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        figures = measured(arguments.speech, arguments.seconds, Path(scratch))
    model = fitted(figures["rows"])
    own = figures["notes"]
    serial = figures["no_ops"][2]["driver_cpu_per_job"] + own["note"] + own["read"] + own["ask"]
    show(model, serial)
    print(json.dumps({"benchmark": "scaling", **figures, "model": model, "serial": serial}))


if __name__ == "__main__":
    main()
