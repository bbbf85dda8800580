"""Guard against regressions: hash what the command line makes of fixed inputs, before and after a change.

    python tools/guard.py before.json
    python tools/guard.py after.json --compare before.json

It knows the package by its command line and its bundled recording alone, so modules may move in between. Both
runs belong on one machine: another processor may round differently. It takes about a minute and a half.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from safetensors.numpy import load_file

RATE = 16000
SECONDS = 4
CHUNKS = ((1, 777, 4096, 3), (2047, 5, 16384), (1 << 20,))
"""In what sizes, in bytes, streams are fed: over and over."""

SECONDS_TO_STATE = 61.0
"""A run writes its state after an epoch, but not before a minute has passed."""

DENSE = """
[architecture]
kind = "PrimalDual"
depth = 2
memory = "bias"
map = { kind = "DenseMap", samples = 128 }
[start]
kind = "chambolle pock"
sigma = 20.0
[data]
length = 128
[optimiser]
learning_rate = 3e-4
batch_size = 16
schedule = "cosine"
clip_norm = 1.0
averaging = 0.95
[budget]
epochs = 12
"""
"""Its best network is not its last."""

CONVOLUTIONAL = """
[architecture]
kind = "PrimalDual"
depth = 2
memory = "gain"
theta = 1.0
learn_theta = "per layer"
weighting = "context"
stages = 2
context = 2
map = { kind = "ConvolutionalMap", channels = 32, window = 64, hop = 32 }
[start]
kind = "chambolle pock"
sigma = 2.0
memory_gain = 0.8
[data]
bits = [2.0, 8.5]
quantizer = "both"
unit = "cell"
length = 2048
placing = "random"
measured_on = "files"
flips = true
rumble = 0.1
speeds = [0.9, 1.0, 1.1]
batches = 12
[loss]
relative = true
[optimiser]
learning_rate = 1e-3
batch_size = 4
schedule = "cosine"
warmup_steps = 4
clip_norm = 0.5
averaging = 0.9
[budget]
epochs = 8
"""

Signal = NDArray[np.float64]


def sha256(*parts: bytes) -> str:
    """Return one hash of all parts."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def hash_of_sound(file: Path | io.BytesIO) -> str:
    """Hash samples, their shape and their rate, not the file around them."""
    samples, rate = soundfile.read(file, dtype="float64")
    return sha256(f"{rate} {samples.shape}".encode(), samples.tobytes())


def rounded(value: Any, digits: int) -> Any:
    """Round every float of a JSON value to this number of significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(part, digits) for key, part in value.items()}
    return [rounded(part, digits) for part in value] if isinstance(value, list) else value


def hash_of_json(lines: bytes, digits: int = 9, keys: Iterable[str] = ()) -> str:
    """Hash JSON, one object per line, with rounded figures: these keys, or all."""
    entries = [json.loads(line) for line in lines.splitlines()]
    kept = [{key: entry[key] for key in keys or entry} for entry in entries]
    return sha256(json.dumps(rounded(kept, digits), sort_keys=True).encode())


def hash_of_tensors(file: Path) -> str:
    """Hash names, shapes and numbers, not what else the file says."""
    tensors = sorted(load_file(file).items())
    return sha256(*(f"{name} {part.dtype} {part.shape}".encode() + part.tobytes() for name, part in tensors))


def mid_rise(samples: Signal, bits: int) -> Signal:
    """Quantize to 2^bits levels, none of which is zero."""
    step = 2.0 ** (1 - bits)
    return np.clip((np.floor(samples / step) + 0.5) * step, -1 + step / 2, 1 - step / 2)


def mid_tread(samples: Signal, bits: int) -> Signal:
    """Quantize to 2^bits levels, one of which is zero."""
    step = 2.0 ** (1 - bits)
    return np.clip(np.round(samples / step) * step, -1, 1 - step)


def _check(process: subprocess.Popen[bytes], errors: bytes) -> None:
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {errors.decode()}")


class Guard:
    """Does jobs in a folder and keeps the hashes of their results.

    Files are named relative to that folder, so that no result depends on where it is.

    Parameters
    ----------
    folder : Path
        An empty folder.
    package : Path
        The package whose command line is run.
    """

    def __init__(self, folder: Path, package: Path) -> None:
        self.folder = folder
        self.env = os.environ | {
            "PYTHONPATH": str(package.parent),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        (recording,) = package.rglob("speech.flac")
        self.recording: Signal = soundfile.read(recording, dtype="float64")[0]
        self.speech = self.recording[: SECONDS * RATE]
        self.hashes: dict[str, str] = {}
        self.failures: list[str] = []

    def job(self, name: str, work: Callable[..., str | dict[str, str]], *arguments: Any) -> None:
        """Keep the hash that the work returns, or several of them, or none; go on where it fails."""
        began = time.monotonic()
        try:
            result = work(*arguments)
        except Exception as error:
            self.failures.append(name)
            print(f"{name} FAILED: {error}", flush=True)
            return
        found = result if isinstance(result, dict) else {"": result}
        self.hashes |= {f"{name} {part}".strip(): digest for part, digest in found.items()}
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command."""
        command = [sys.executable, "-m", "pdrn", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.env, **options)

    def pdrn(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a command and return what it writes to standard output."""
        pipe = subprocess.PIPE
        with self.start(*arguments, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            output, errors = process.communicate(stdin)
        _check(process, errors)
        return output

    def said(self, *arguments: str) -> str:
        """Hash the JSON that a command prints."""
        return hash_of_json(self.pdrn(*arguments, "--json"))

    def write(self, file: str, samples: Signal, rate: int = RATE, subtype: str = "PCM_16") -> str:
        """Write a sound file and return its name."""
        (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(self.folder / file, samples, rate, subtype=subtype)
        return file

    def quantized(self, file: str, *options: str) -> str:
        """Quantize the speech by the command line into a file."""
        self.pdrn("quantize", "speech.wav", file, *options)
        return hash_of_sound(self.folder / file)

    def restored(self, file: str, *options: str) -> str:
        """Restore a file."""
        self.pdrn("restore", file, "-o", "restored.wav", "--overwrite", *options)
        return hash_of_sound(self.folder / "restored.wav")

    def piped(self, file: str) -> str:
        """Restore a file from standard input to standard output."""
        sound = (self.folder / file).read_bytes()
        return hash_of_sound(io.BytesIO(self.pdrn("restore", "-", "-o", "-", stdin=sound)))

    def streamed(self, samples: Signal, *options: str) -> str:
        """Restore a stream, which must not depend on the chunks that it comes in."""
        stream = np.round(samples * 32768).astype("<i2").tobytes()
        raw = ("restore", "--raw", "--rate", str(RATE), "--encoding", "s16le", "--bits", "5", *options)
        outputs = {self._fed(stream, sizes, *raw, "-", "-") for sizes in CHUNKS}
        if len(outputs) > 1:
            raise AssertionError("the result depends on the chunks")
        return sha256(*outputs)

    def _fed(self, stream: bytes, sizes: Iterable[int], *arguments: str) -> bytes:
        pipe, left, size = subprocess.PIPE, memoryview(stream), cycle(sizes)
        with open(self.folder / "stream.raw", "w+b") as output:
            # A small pipe: little of the stream waits in it, to be read as one chunk.
            files = {"stdin": pipe, "stdout": output, "stderr": pipe, "bufsize": 0, "pipesize": 4096}
            with self.start(*arguments, **files) as process:
                with suppress(BrokenPipeError):  # it ended: its exit code and what it said tell why
                    while left:
                        left = left[process.stdin.write(left[: next(size)]) :]
                _check(process, process.communicate()[1])
            output.seek(0)
            return output.read()


class Training:
    """One training, whole in one folder; stopped, killed and resumed in another.

    Parameters
    ----------
    guard : Guard
        What runs it.
    name, config : str
        The name of the configuration, and its text.
    """

    def __init__(self, guard: Guard, name: str, config: str) -> None:
        self.guard, self.name, self.process = guard, name, None
        (guard.folder / f"{name}.toml").write_text(config)

    def command(self, out: str) -> list[str]:
        """Return the arguments that train it, or go on with it, in a folder."""
        return ["train", f"{self.name}.toml", "--corpus", "corpus", "--threads", "1", "--out", out]

    def file(self, out: str, name: str) -> Path:
        """Return a file of the only run in a folder; an empty one where there is none."""
        return next((self.guard.folder / out).glob(f"*/{name}"), Path(os.devnull))

    def hashes(self, out: str) -> dict[str, str]:
        """Hash the networks and the figures of a run."""
        log = self.file(out, "log.jsonl").read_bytes()
        return {
            "best": hash_of_tensors(self.file(out, "best.safetensors")),
            "last": hash_of_tensors(self.file(out, "last.safetensors")),
            "log": hash_of_json(log, 6, ("epoch", "train_mse", "dev_mse", "dev_ratio")),
        }

    def whole(self) -> dict[str, str]:
        """Train without an interruption."""
        self.guard.pdrn(*self.command(f"{self.name}-whole"))
        return self.hashes(f"{self.name}-whole")

    def begin_and_stop(self, stack: ExitStack) -> dict[str, str]:
        """Begin, and stop after the first epoch: then a minute passes while other jobs are done."""
        self.process = self.guard.start(*self.command(f"{self.name}-killed"), stderr=subprocess.DEVNULL)
        stack.enter_context(self.process)
        stack.callback(self.process.kill)
        self._wait_for("log.jsonl")
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = time.monotonic()
        return {}

    def killed_and_resumed(self) -> dict[str, str]:
        """Kill the stopped training after it has written a state, go on, and expect the same result."""
        out = f"{self.name}-killed"
        time.sleep(max(0.0, self.stopped + SECONDS_TO_STATE - time.monotonic()))
        self.process.send_signal(signal.SIGCONT)
        self._wait_for("state.safetensors")
        self.process.kill()
        self.process.wait()
        if self.file(out, "last.safetensors").is_file():
            raise AssertionError("training ended before it was killed")
        first = self.file(out, "log.jsonl").read_bytes().splitlines()[0]
        self.guard.pdrn(*self.command(out))
        if self.file(out, "log.jsonl").read_bytes().splitlines()[0] != first:  # it says how long that took
            raise AssertionError("training began anew instead of going on")
        if self.hashes(out) != self.hashes(f"{self.name}-whole"):
            raise AssertionError("resumed training ends elsewhere")
        return self.hashes(out)

    def _wait_for(self, name: str) -> None:
        while not self.file(f"{self.name}-killed", name).stat().st_size:  # the log is empty at first
            if self.process.poll() is not None:
                raise AssertionError(f"training ended without {name}")
            time.sleep(0.002)


def quantize(guard: Guard) -> None:
    """Quantize in all ways, and say what is found and how far it is from the speech."""
    made = {
        "mid-rise-5.wav": ["--bits", "5"],
        "mid-rise-12.wav": ["--bits", "12"],
        "mid-rise-20.wav": ["--bits", "20"],
        "mid-tread-4.wav": ["--bits", "4", "--kind", "mid-tread"],
        "truncation-6.wav": ["--bits", "6", "--kind", "truncation"],
        "mulaw.wav": ["--law", "mulaw"],
        "alaw.wav": ["--law", "alaw"],
        "clipped-5.wav": ["--bits", "5", "--clip-at", "0.3"],
    }
    for file, options in made.items():
        guard.job(f"quantize {file}", guard.quantized, file, *options)
        guard.job(f"inspect {file}", guard.said, "inspect", file)
    guard.job("compare", guard.said, "compare", "speech.wav", *made)


def restore(guard: Guard) -> None:
    """Restore what was quantized in all ways."""
    speech, write = guard.speech, guard.write
    slow, fast = soxr.resample(speech, RATE, 8000), soxr.resample(speech, RATE, 44100)
    loud, gaps = np.clip(speech, -0.3, 0.3), speech.copy()
    for begin, length in ((5000, 40), (20000, 320), (40001, 1)):
        gaps[begin : begin + length] = np.nan
    five = mid_rise(speech, 5)
    inputs = {f"{bits} bits": write(f"{bits}.wav", mid_rise(speech, bits)) for bits in range(2, 9)}
    inputs |= {
        "5 bits mid-tread": write("tread-5.wav", mid_tread(speech, 5)),
        "8 bits mid-tread": write("tread-8.wav", mid_tread(speech, 8)),
        "5 bits 8 kHz": write("8k.wav", mid_rise(slow, 5), 8000),
        "5 bits 44.1 kHz": write("44k.wav", mid_rise(fast, 5), 44100),
        "5 bits stereo": write("stereo.wav", np.stack([five, mid_rise(speech[::-1] / 2, 5)], axis=1)),
        "5 bits flac": write("5.flac", five),
        "PCM_U8": write("u8.wav", speech, subtype="PCM_U8"),
    }
    write("step.wav", 0.7 * five, subtype="FLOAT")
    write("clipped.wav", loud, subtype="FLOAT")
    write("gaps.wav", gaps, subtype="FLOAT")
    write("gaps-5.wav", mid_rise(gaps, 5), subtype="FLOAT")
    jobs = {name: [file] for name, file in inputs.items()} | {
        "5 bits cp": ["5.wav", "--method", "cp"],
        "5 bits network": ["5.wav", "--method", "network"],
        "5 bits speech-small": ["5.wav", "--model", "speech-small", "--method", "network"],
        "5 bits mix": ["5.wav", "--mix", "0.5"],
        "mulaw": ["mulaw.wav", "--law", "mulaw"],
        "alaw": ["alaw.wav", "--law", "alaw"],
        "step": ["step.wav", "--step", str(0.7 / 16)],
        "truncates": ["truncation-6.wav", "--bits", "6", "--converter", "truncates"],
        "clipped": ["clipped.wav", "--clip-at", "0.3"],
        "clipped 5 bits": ["clipped-5.wav", "--bits", "5", "--clip-at", "0.3"],
        "gaps": ["gaps.wav", "--gaps"],
        "gaps 5 bits": ["gaps-5.wav", "--gaps", "--bits", "5"],
    }
    for name, arguments in jobs.items():
        guard.job(f"restore {name}", guard.restored, *arguments)
    guard.job("restore pipe", guard.piped, "5.wav")
    streams = {
        "stream": [],
        "stream --model speech-small": ["--model", "speech-small", "--method", "network"],
        "stream --method cp": ["--method", "cp"],
    }
    for name, options in streams.items():
        guard.job(name, guard.streamed, five, *options)


def make_corpus(guard: Guard) -> None:
    """Write six files of 1.2 s to learn from, three to develop on, three to test on."""
    for i, split in enumerate(6 * ["train"] + 3 * ["dev"] + 3 * ["test"]):
        guard.write(f"corpus/{split}/{i:02}.flac", guard.recording[2 * i * RATE :][: RATE * 6 // 5])


def study(guard: Guard, trainings: list[Training]) -> None:
    """Train, evaluate, and restore by what was trained."""
    for training in trainings:
        guard.job(f"train {training.name}", training.whole)
    methods = "qu,cp:10,overlapped,speech-small"
    guard.job("evaluate", guard.said, "evaluate", "--corpus", "corpus", "--methods", methods)
    trained = str(trainings[-1].file("convolutional-whole", "best.safetensors"))
    guard.job("restore trained", guard.restored, "5.wav", "--model", trained, "--method", "network")
    for training in trainings:
        guard.job(f"resume {training.name}", training.killed_and_resumed)


def differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return what is not as before, a line for each name."""
    return [
        f"{'missing' if name not in now else 'new' if name not in before else 'differs'}: {name}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def main() -> int:
    """Do all jobs, write their hashes, and compare them."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where the hashes go, as JSON")
    parser.add_argument("--compare", type=Path, metavar="BEFORE", help="hashes that they should equal")
    arguments = parser.parse_args()
    before = json.loads(arguments.compare.read_text()) if arguments.compare else None
    package = Path(str(files("pdrn")))
    print(f"guarding {package}", flush=True)
    with TemporaryDirectory(prefix="pdrn-guard-") as folder, ExitStack() as stack:
        guard = Guard(Path(folder), package)
        guard.write("speech.wav", guard.speech)
        make_corpus(guard)
        trainings = [Training(guard, "dense", DENSE), Training(guard, "convolutional", CONVOLUTIONAL)]
        for training in trainings:
            guard.job(f"begin {training.name}", training.begin_and_stop, stack)
        quantize(guard)
        restore(guard)
        study(guard, trainings)
    arguments.out.write_text(json.dumps(guard.hashes, indent=1) + "\n")
    lines = differences(before, guard.hashes) if before is not None else []
    print("\n".join([f"{len(guard.hashes)} hashes", *lines, *(f"failed: {name}" for name in guard.failures)]))
    return 1 if lines or guard.failures else 0


if __name__ == "__main__":
    sys.exit(main())
