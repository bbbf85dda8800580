"""Kill, interrupt and terminate the command line at random moments, and see what comes of it."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile

from pdrn.audio.corpus import speech
from pdrn.nets import ConvolutionalMap, Network, PrimalDual
from pdrn.nets import files as network_files
from pdrn.nets.files import Provenance
from pdrn.storage import open_tensors
from pdrn.training.runs import runs_in

HANG_SECONDS = 300
SIGNS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
EXIT_CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, signal.SIGTERM: 143}
MOST_IN_A_ROW = 5

CONFIG = """recipe = "modern"
[architecture]
kind = "PrimalDual"
depth = 2
memory = "bias"
map = { kind = "DenseMap", samples = 64 }
[data]
length = 64
[optimiser]
batch_size = 64
[budget]
epochs = 6
"""


@dataclass
class Victim:
    """A process of the command line that is under way."""

    pid: int
    folder: Path

    def cpu_seconds(self) -> float:
        """Return how long it has been at work: unlike the time of day, this does not depend on other work."""
        with suppress(OSError):
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9
        return float("inf")

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text(errors="replace")


class Hospital:
    """Starts victims, by `victims.py`, and says how they ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = Path(__file__).with_name("victims.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, *arguments: object) -> Victim:
        files = [str(self.folder / "errors"), str(self.folder / "output")]
        for file in files:
            Path(file).write_text("")
        print(json.dumps([[str(part) for part in arguments], *files]), file=self.process.stdin, flush=True)
        return Victim(int(self.process.stdout.readline()), self.folder)

    def end(self) -> tuple[int, float]:
        """Wait for the victim; return its exit code and its processor time."""
        code, seconds = self.process.stdout.readline().split()
        return int(code), float(seconds)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(HANG_SECONDS)
        self.process.stdout.close()


@contextmanager
def hospital(folder: Path) -> Iterator[Hospital]:
    opened = Hospital(folder)
    try:
        yield opened
    finally:
        opened.close()


@dataclass
class Work:
    """What is done by the victims, and how to tell whether anything of it was lost."""

    name: str
    arguments: Callable[[Path], list[object]]
    """The command, for an output folder."""
    contents: Callable[[Path], dict[str, object]]
    """What is there, by name: what a whole run would have made, as far as it is made."""
    reported: Callable[[str], set[str]]
    """Which of the contents a victim said to be done."""
    whole: dict[str, object] = field(default_factory=dict)
    cpu_seconds: float = 0.0


def sounds(folder: Path, count: int, seconds: float) -> None:
    samples, rate = speech()
    for index in range(count):
        piece = samples[2 * index * rate :][: int(seconds * rate)]
        soundfile.write(folder / f"{index:02}.wav", np.floor(16 * piece) / 16, rate)


def prepared(folder: Path) -> list[Work]:
    """Make the inputs, and return the three kinds of work: training, restoring and reproducing."""
    (folder / "corpus").mkdir()
    sounds(folder / "corpus", 12, 0.25)
    (folder / "in").mkdir()
    sounds(folder / "in", 8, 1.0)
    (folder / "tiny.toml").write_text(CONFIG)
    plan = PrimalDual(ConvolutionalMap(channels=40, window=32, hop=16), 3, "gain")
    meaning = Provenance(unit="cell", sample_rate_hz=16000)
    network_files.save(folder / "tiny.safetensors", Network.started(plan), meaning)
    corpus = ("--corpus", folder / "corpus")
    training = ["train", folder / "tiny.toml", *corpus, "--threads", 1, "--out"]
    restoring = ["restore", folder / "in", "--bits", 5, "--model", folder / "tiny.safetensors"]
    grid = ["--epochs", 2, "--depths", 1, "--frame-length", 64, "--lambdas", ""]
    reproducing = ["reproduce", "table2", *corpus, *grid, "--out"]
    return [
        Work("restore", lambda out: [*restoring, "--skip-existing", "-o", out], restored, said_restored),
        Work("train", lambda out: [*training, out], trained, lambda said: set()),
        Work("reproduce", lambda out: [*reproducing, out], reproduced, lambda said: set()),
    ]


def restored(out: Path) -> dict[str, object]:
    return {path.name: path.read_bytes() for path in out.iterdir()} if out.exists() else {}


def said_restored(said: str) -> set[str]:
    return {Path(name).name for name in re.findall(r"-> (.*?): 5 bits", said)}


def trained(out: Path) -> dict[str, object]:
    """Return what finished runs made; what there is of others has to be whole too."""
    found: dict[str, object] = {}
    for run in runs_in(out):
        run.record()
        for path in run.folder.glob("*.safetensors"):
            if path.stem == "state":
                with open_tensors(path) as state:
                    shapes = {name: tuple(state.get_slice(name).get_shape()) for name in state.keys()}  # noqa: SIM118
                run.load_state(shapes)
            else:
                network_files.load(path)
        if run.is_done:
            names = ("best", "last")
            found |= {f"{run.name}/{n}": (run.folder / f"{n}.safetensors").read_bytes() for n in names}
            found[f"{run.name}/log"] = [timeless(entry) for entry in run.complete_log()]
    return found


def timeless(entry: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in entry.items() if not key.endswith(("second", "seconds", "fraction"))}


def reproduced(out: Path) -> dict[str, object]:
    kept = [*out.glob("table2-*"), *out.glob("example-*")]
    return trained(out) | {path.name: path.read_bytes() for path in kept}


def leftovers(out: Path) -> list[Path]:
    return list(out.rglob(".*.part")) if out.exists() else []


def measured(work: Work, clinic: Hospital, folder: Path) -> None:
    """Do the work once without a fault: this is what it has to come to, and how long it takes."""
    clinic.start(*work.arguments(folder / "whole"))
    code, work.cpu_seconds = clinic.end()
    said = Victim(0, folder).errors
    assert code == 0, said
    work.whole = work.contents(folder / "whole")
    assert work.whole
    shutil.rmtree(folder / "whole")


def kill_and_finish(
    work: Work, clinic: Hospital, folder: Path, count: int, moments: random.Random, sign: signal.Signals
) -> Counter:
    """Hit the work so many times, letting it finish after a few, and return what was counted."""
    counts = Counter(
        injected=0, too_late=0, losses=0, partial=0, hangs=0, tracebacks=0, wrong_codes=0, left=0
    )
    out = folder / "out"
    while counts["injected"] < count:
        shutil.rmtree(out, ignore_errors=True)
        for _ in range(min(moments.randint(1, MOST_IN_A_ROW), count - counts["injected"])):
            was_there = work.contents(out)
            code, said = struck(work, clinic, out, moments.random(), sign, counts)
            counts["injected" if code else "too_late"] += 1  # less is left to do than the first time
            counts["tracebacks"] += "Traceback" in said
            if code not in (0, EXIT_CODES[sign]):
                counts["wrong_codes"] += 1
                print(f"{work.name}: exit code {code} after {sign.name}: {said[-500:]}", file=sys.stderr)
            now = work.contents(out)
            counts["partial"] += sum(now[name] != work.whole.get(name) for name in now)
            counts["losses"] += len((was_there.keys() | work.reported(said)) - now.keys())
            counts["left"] += len(leftovers(out))
        clinic.start(*work.arguments(out))
        code, _ = clinic.end()
        if code != 0 or work.contents(out) != work.whole:
            counts["losses"] += 1
            print(f"{work.name}: did not come to the same: {Victim(0, folder).errors}", file=sys.stderr)
    return counts


def struck(
    work: Work, clinic: Hospital, out: Path, share: float, sign: signal.Signals, counts: Counter
) -> tuple[int, str]:
    victim = clinic.start(*work.arguments(out))
    began = time.monotonic()
    while victim.cpu_seconds() < share * work.cpu_seconds:
        time.sleep(0.005)
        if time.monotonic() - began > HANG_SECONDS:
            counts["hangs"] += 1
            os.kill(victim.pid, signal.SIGKILL)
            break
    with suppress(ProcessLookupError):
        os.kill(victim.pid, sign)
    code, _ = clinic.end()
    return code, victim.errors
