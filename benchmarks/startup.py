"""How soon the command line answers, against the time that importing NumPy takes.

    python -m benchmarks.startup

Every command runs in a fresh process, in turn, round after round; the best of each counts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pdrn.audio.corpus import speech
from pdrn.audio.files import write
from pdrn.audio.quantizers import MidRise

ROUNDS = 7
SECONDS = 3

PDRN = "from pdrn.cli.main import main; main()"


def main() -> None:
    """Print one table and one JSON line."""
    with tempfile.TemporaryDirectory() as folder:
        samples, sample_rate_hz = speech()
        source = Path(folder) / "speech.wav"
        write(
            source, MidRise(5).quantize(samples[: SECONDS * sample_rate_hz]), sample_rate_hz, subtype="PCM_16"
        )
        restore = [PDRN, "restore", str(source), "--overwrite", "--quiet"]
        commands = {
            "import numpy": ["import numpy"],
            "import pdrn": ["import pdrn"],
            "pdrn --help": [PDRN, "--help"],
            f"pdrn restore, {SECONDS} s, --bits 5": [*restore, "--bits", "5"],
            f"pdrn restore, {SECONDS} s, detected": restore,
        }
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(ROUNDS):
            for name, arguments in commands.items():
                began = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-c", *arguments],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                )
                best[name] = min(best[name], time.perf_counter() - began)
    print("| | seconds | times importing NumPy |")
    print("|---|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds:.2f} | {seconds / best['import numpy']:.1f} |")
    print(json.dumps({"benchmark": "startup", "seconds": best}))


if __name__ == "__main__":
    main()
