"""How much of the command line's throughput the server of the page keeps, with many clients at once.

    python -m benchmarks.serving [ROUNDS]

Eight clients at once send clips of 10 s of 5-bit speech, one after another; the command line restores the
same clips in one go, by as many processes, and its start counts too. Both take turns, the best turn of each
counts, and every answer is compared with what Python returns. On a machine that others use, processor time
tells more than the clock does: both are printed, with the largest memory of the server and its processes.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from pdrn.audio.corpus import speech
from pdrn.audio.files import read, write
from pdrn.audio.quantizers import MidRise
from pdrn.restoration.restorer import Restorer

CLIENTS = 8
SECONDS = 10
CLIPS_EACH = 4
PROCESSES = 2
COMMAND = [sys.executable, "-c", "from pdrn.cli.main import main; main()"]


def main(rounds: int) -> None:
    """Print one table and one JSON line."""
    with tempfile.TemporaryDirectory() as folder:
        clips = _clips(Path(folder) / "in")
        wanted = [_restored(clip) for clip in clips]
        server = subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", "--jobs", str(PROCESSES)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found
            turns = [_turn(clips, wanted, server.pid, found[0], Path(folder)) for _ in range(rounds)]
            memory = sum(_status(pid, "VmHWM") for pid in _family(server.pid)) / 1024
        finally:
            server.terminate()
            server.wait()
    sound = len(clips) * SECONDS
    best = {name: min(turn[name] for turn in turns) for name in turns[0]}
    row = {
        "server_times_real_time": sound / best["server_seconds"],
        "command_line_times_real_time": sound / best["command_seconds"],
        "throughput_ratio": best["command_seconds"] / best["server_seconds"],
        "processor_time_ratio": best["command_processor"] / best["server_processor"],
        "server_memory_mb": memory,
    }
    print("| " + " | ".join(name.replace("_", " ") for name in row) + " |")
    print("|---" * len(row) + "|")
    print("| " + " | ".join(f"{value:.3g}" for value in row.values()) + " |")
    print(json.dumps({"benchmark": "serving", "clients": CLIENTS, "turns": turns, **row}))


def _clips(folder: Path) -> list[Path]:
    samples, rate = speech()
    folder.mkdir()
    paths = []
    count = CLIENTS * CLIPS_EACH
    for number in range(count):
        start = number * (len(samples) - SECONDS * rate) // (count - 1)
        quantized = MidRise(5, full_scale=True).quantize(samples[start : start + SECONDS * rate])
        paths.append(folder / f"{number}.wav")
        write(paths[-1], quantized, rate, subtype="PCM_16")
    return paths


def _restored(clip: Path) -> np.ndarray:
    sound = read(clip)
    return Restorer().restore(sound.samples, sound.sample_rate_hz)


def _turn(clips: list[Path], wanted: list[np.ndarray], pid: int, url: str, folder: Path) -> dict[str, float]:
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    output = ["--output", str(folder / "out"), "--overwrite", "--quiet", "--jobs", str(PROCESSES)]
    subprocess.run([*COMMAND, "restore", *map(str, clips), *output], check=True)
    command_seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    command_processor = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime

    def client(first: int) -> None:
        for number in range(first, len(clips), CLIENTS):
            request = urllib.request.Request(f"{url}/api/restore", clips[number].read_bytes())
            with urllib.request.urlopen(request) as answer:
                (folder / f"{number}.wav").write_bytes(answer.read())
            np.testing.assert_allclose(read(folder / f"{number}.wav").samples, wanted[number], atol=1e-7)

    before, began = _processor_time(pid), time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as executor:
        list(executor.map(client, range(CLIENTS)))
    return {
        "command_seconds": command_seconds,
        "command_processor": command_processor,
        "server_seconds": time.perf_counter() - began,
        "server_processor": _processor_time(pid) - before,
    }


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _status(pid: int, name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def _processor_time(pid: int) -> float:
    def used(each: int) -> int:
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(") ", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    return sum(map(used, _family(pid))) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
