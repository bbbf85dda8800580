"""Inject faults and count what becomes of them.

    python -m tests.faults.run --kills 200 --corruptions 5000

prints a table, and ends with 1 where anything was lost, hung, or ended in a traceback.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults import corruptions
from tests.faults.kills import SIGNS, hospital, kill_and_finish, measured, prepared

SHARE_OF_KILLS = {"restore": 0.45, "train": 0.4, "reproduce": 0.15}
HITS_BETWEEN_LINES = 10
SHARE_OF_SIGNALS = 0.1
"""How many interrupts and SIGTERMs there are, each, for a kill."""
SHARE_OF_DAMAGE = {
    "training state": 0.04,
    "run.json": 0.04,
    "log": 0.04,
    "best network": 0.13,
    "table 2": 0.13,
    "example": 0.12,
    "model": 0.2,
}
SHARE_OF_SOUND = 0.3
BAD = ("losses", "partial", "unnoticed", "hangs", "tracebacks", "wrong_codes")


def kill(count: int, seed: int, shown) -> list[Counter]:
    """Kill, interrupt and terminate training, restoring and reproducing."""
    found = []
    with tempfile.TemporaryDirectory() as name, hospital(Path(name)) as clinic:
        for work in prepared(Path(name)):
            measured(work, clinic, Path(name))
            for word, sign in SIGNS.items():
                share = SHARE_OF_KILLS[work.name] * (1 if word == "kill" else SHARE_OF_SIGNALS)
                moments = random.Random(f"{seed} {work.name} {word}")
                hits, counts = max(1, round(share * count)), Counter()
                for done in range(0, hits, HITS_BETWEEN_LINES):
                    some = min(HITS_BETWEEN_LINES, hits - done)
                    counts.update(kill_and_finish(work, clinic, Path(name), some, moments, sign))
                    shown(f"{word} {work.name}", counts)
                found.append(counts)
    return found


def corrupt(count: int, shown) -> list[Counter]:
    """Damage the files of studies and networks, and sound."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        pristine = Path(name) / "pristine"
        pristine.mkdir()
        corruptions.prepare(pristine)
        for target, share in SHARE_OF_DAMAGE.items():
            found.append(corruptions.corrupt(Path(name), [target], max(1, round(share * count))))
            shown(f"damage {target}", found[-1])
    script = Path(corruptions.fuzz_files.__file__)
    sounds = max(1, round(SHARE_OF_SOUND * count))
    done = subprocess.run([sys.executable, script, str(sounds)], capture_output=True, text=True, check=False)
    tried, _, refused, *_, failed = map(int, re.findall(r"\d+", done.stdout))
    found.append(Counter(injected=sounds, refused=refused, harmless=tried - refused, tracebacks=failed))
    shown("damage sound", found[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--corruptions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began = time.monotonic()

    def shown(name: str, counts: Counter) -> None:
        figures = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.items())
        print(f"{time.monotonic() - began:6.0f} s  {name:24} {figures}", flush=True)

    found = kill(arguments.kills, arguments.seed, shown) if arguments.kills else []
    found += corrupt(arguments.corruptions, shown) if arguments.corruptions else []
    total = sum(found, Counter())
    shown("all", Counter(injected=total["injected"]) | {word: total[word] for word in BAD})
    sys.exit(1 if any(total[word] for word in BAD) else 0)


if __name__ == "__main__":
    main()
