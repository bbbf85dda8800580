"""What restoring on a Ray cluster costs, and what that means for more sound and more cores.

    python -m benchmarks.scaling FOLDER

restores 5-bit versions of the sounds in a folder by a process without Ray, by one worker and by two, compares
all bytes, and times what the driver does for each file by itself. A model is fitted to that, and printed for
1 to 10,000 hours and 1 to 1,000 cores. What workers take is fitted to processor time, which others on the
machine disturb less than the clock.
"""

import argparse
import itertools
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.audio.detection import QuantizerOptions
from pdrn.audio.files import read, write
from pdrn.audio.quantizers import MidRise
from pdrn.cli.batch import Job, Outcome, Proof, Settings, open_manifest, restore_one
from pdrn.restoration.restorer import Restorer
from pdrn.workers import connect_ray, run_jobs

RATE = 16000
LENGTHS = (0.5, 2.0, 8.0)
NO_OPS = 3000
NOTES = 100_000
HOURS = (1, 10, 100, 1000, 10_000)
CORES = (1, 2, 10, 100, 1000)
SECONDS_PER_FILE = 15.0
SETTINGS = Settings(Restorer(), QuantizerOptions(bits=5))


@dataclass(frozen=True)
class Done:
    """When a worker had a job, in seconds of the clock, and how much processor time that took."""

    began: float
    ended: float
    cpu: float
    outcome: Outcome | None = None


def prepared(speech: Path, folder: Path, each: int) -> list[Job]:
    """Write so many quantized sounds of each length, and return what is to be done with them."""
    total = int(each * sum(LENGTHS) * RATE)
    signal = np.zeros(0)
    for path in itertools.cycle(sorted(speech.iterdir())):
        signal = np.append(signal, MidRise(5).quantize(np.atleast_2d(read(path).samples)[0]))
        if len(signal) >= total:
            break
    (folder / "in").mkdir()
    jobs, at = [], 0
    for number, seconds in itertools.product(range(each), LENGTHS):
        source = folder / "in" / f"{seconds}-{number}.wav"
        write(source, signal[at : at + int(seconds * RATE)], RATE, subtype="PCM_16")
        at += int(seconds * RATE)
        jobs.append(Job(str(source), source.name))
    return jobs


def timed(job: Job, folder: Path) -> Done:
    """Restore a file into a folder."""
    began, cpu = time.time(), time.process_time()
    outcome = restore_one(Job(job.source, str(folder / job.target), True), SETTINGS)
    return Done(began, time.time(), time.process_time() - cpu, outcome)


def nothing(_: Job) -> Done:
    """Do no work."""
    return Done(time.time(), time.time(), 0.0)


def by_ray(work: Callable[[Job], Done], jobs: Iterable[Job], workers: int) -> dict[str, Any]:
    """Have a Ray of our own do the jobs; time its parts."""
    began = time.time()
    with connect_ray(None, workers) as ray:
        connected_at = time.time()
        done = {}
        cpu = time.process_time()
        for job, result in run_jobs(work, jobs, workers, ray=ray):
            assert result is not None
            done[job] = result
        cpu = time.process_time() - cpu
        ended = time.time()
    span = max(each.ended for each in done.values()) - min(each.began for each in done.values())
    return {
        "workers": workers,
        "start": connected_at - began,
        "workers_start": min(each.began for each in done.values()) - connected_at,
        "working": span,
        "end": time.time() - ended,
        "busy": sum(each.ended - each.began for each in done.values()) / (workers * span),
        "worker_cpu": sum(each.cpu for each in done.values()),
        "driver_cpu_per_file": cpu / len(done),
        "done": done,
    }


def notes(folder: Path, count: int) -> dict[str, float]:
    """Time noting, reading and asking for so many files, and what memory they take."""
    path = str(folder / "notes.jsonl")
    proof = Proof(bytes(32), bytes(32), bytes(32))
    place = str(folder / "some" / "folder")
    empty = memory()
    jobs = [Job(f"{place}/{n:08}.wav", f"{place}/{n:08}_restored.wav", True) for n in range(count)]
    planned = memory()
    times = [time.process_time()]
    with open_manifest(path) as manifest:
        for job in jobs:
            manifest.note(job.source, job.target, proof)
    times.append(time.process_time())
    before = memory()
    with open_manifest(path) as manifest:
        held = memory()
        times.append(time.process_time())
        assert all(manifest.pop(job.target) for job in jobs)
    times.append(time.process_time())
    note, reading, ask = np.diff(times) / count
    return {
        "note": float(note),
        "read": float(reading),
        "ask": float(ask),
        "bytes_per_line": os.path.getsize(path) / count,
        "job_bytes": (planned - empty) / count,
        "proof_bytes": (held - before) / count,
    }


def memory() -> int:
    """Return how many bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def seconds_of(done: Done) -> float:
    """Return how long the sound is."""
    assert done.outcome is not None
    assert done.outcome.report is not None
    return done.outcome.report.frames / RATE


def fitted(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Fit what a file and a second of sound take of a worker's processor time."""
    done = [each for run in runs for each in run["done"].values()]
    matrix = np.array([[1.0, seconds_of(each)] for each in done])
    found = np.linalg.lstsq(matrix, np.array([each.cpu for each in done]), rcond=None)[0]
    return {"per_file": float(found[0]), "per_second": float(found[1])}


def predicted(model: dict[str, float], hours: float, cores: int) -> tuple[float, str]:
    """Return the seconds that a job takes, and what most of them go into."""
    files = hours * 3600 / SECONDS_PER_FILE
    per_file = model["per_file"] + SECONDS_PER_FILE * model["per_second"]
    parts = {
        "start": model["fixed"],
        "driver": files * model["serial"],
        "workers": files * per_file / min(cores, files) / model["busy"],
    }
    # Driver and workers work at the same time: the slower of the two is waited for.
    return parts["start"] + max(parts["driver"], parts["workers"]), max(parts, key=lambda part: parts[part])


def show(model: dict[str, float]) -> None:
    """Print the model, and what it says."""
    print("model:", ", ".join(f"{name} {value:.4g}" for name, value in model.items()))
    print("| hours | " + " | ".join(f"{cores} cores" for cores in CORES) + " |")
    print("|---" * (len(CORES) + 1) + "|")
    for hours in HOURS:
        cells = (predicted(model, hours, cores) for cores in CORES)
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
    parser.add_argument("--each", type=int, default=16, help="how many sounds there are of each length")
    arguments = parser.parse_args()
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        own = notes(folder, NOTES)
        print("notes:", own, flush=True)
        jobs = prepared(arguments.speech, folder, arguments.each)
        idle = by_ray(nothing, (Job(f"{n:08}.wav", f"{n:08}.wav") for n in range(NO_OPS)), 1)
        print("nothing to do:", _summary(idle), flush=True)
        runs = []
        for workers in (1, 2):
            runs.append(by_ray(partial(timed, folder=folder / str(workers)), jobs, workers))
            print(f"{len(jobs)} files:", _summary(runs[-1]), flush=True)
        alone = [timed(job, folder / "alone") for job in jobs]
        print("one process:", sum(each.ended - each.began for each in alone), "s", flush=True)
        for job in jobs:
            made = {(folder / by / job.target).read_bytes() for by in ("alone", "1", "2")}
            assert len(made) == 1, f"{job.target} differs"
        print("all bytes are the same")
    model = fitted(runs) | {
        "fixed": min(run["start"] + run["workers_start"] + run["end"] for run in runs),
        "busy": runs[-1]["busy"],
        "serial": idle["driver_cpu_per_file"] + own["note"] + own["read"] + own["ask"],
    }
    show(model)
    result = {"notes": own, "idle": _summary(idle), "runs": [_summary(run) for run in runs], "model": model}
    result["one_process"] = sum(each.ended - each.began for each in alone)
    print(json.dumps({"benchmark": "scaling", **result}))


def _summary(run: dict[str, Any]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in run.items() if name != "done"}


if __name__ == "__main__":
    main()
