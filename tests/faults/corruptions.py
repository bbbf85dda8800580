"""Damage the files of a study and of networks at random: each has to be refused in one sentence, or harmless.

    python -m tests.faults.corruptions FOLDER FIRST COUNT TARGET...

is one batch, in a process of its own, for `corrupt` below: so a crash, a hang or a use of too much memory
ends the batch and is reported with the number of the input, which is enough to make it again. Counted are


    refused     one sentence, of PdrnError
    harmless    the same result as of the undamaged file
    unnoticed   another result
"""

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np
from tests.faults.kills import CONFIG, sounds, timeless
from tests.fuzz import fuzz_files
from tests.training.folders import reopen

from pdrn.audio.corpus import Corpus
from pdrn.errors import PdrnError
from pdrn.nets import ConvolutionalMap, Network, PrimalDual
from pdrn.nets import files as network_files
from pdrn.nets.files import Provenance
from pdrn.reproduction.tables import (
    Experiment,
    load_example,
    load_table_2,
    measure_table_2,
    restore_example,
)
from pdrn.restoration.registry import _read, read_model
from pdrn.training.config import Data, load
from pdrn.training.loop import train
from pdrn.training.runs import Run, runs_in

MEMORY_BYTES = 4 << 30
HANG_SECONDS = 20
"""Of processor time: a busy machine makes nothing hang."""
BATCH = 500

DAMAGES = [
    fuzz_files.flip_bit,
    fuzz_files.flip_bit,
    fuzz_files.flip_bytes,
    fuzz_files.zero_block,
    fuzz_files.repeat_block,
    fuzz_files.cut_off,
    fuzz_files.damage_header,
    fuzz_files.put_extreme_number,
    fuzz_files.remove_piece,
    fuzz_files.insert_piece,
]


def prepare(folder: Path) -> None:
    """Make what is going to be damaged: a run, what a study found, and a network."""
    (folder / "corpus").mkdir()
    sounds(folder / "corpus", 12, 0.1)
    (folder / "tiny.toml").write_text(CONFIG)
    corpus = Corpus.scan(folder / "corpus")
    train(load(folder / "tiny.toml"), corpus, folder / "runs", threads=1)
    experiment = experiment_on(corpus)
    measure_table_2(folder, experiment, {}, corpus)
    restore_example(folder, experiment, {}, corpus)
    plan = PrimalDual(ConvolutionalMap(channels=8, window=16, hop=8), 2, "gain")
    meaning = Provenance(unit="cell", sample_rate_hz=16000)
    network_files.save(folder / "model.safetensors", Network.started(plan), meaning)


def experiment_on(corpus: Corpus) -> Experiment:
    return Experiment("modern", Data(length=64), 0, corpus.checksum, "corpus", corpus.signal_rate_hz)


@cache
def scanned(folder: Path) -> Corpus:
    return Corpus.scan(folder / "corpus")


def resumed(folder: Path) -> object:
    """Go on with a run that lacks but the last step, writing the network at the end."""
    run = train(load(folder / "tiny.toml"), scanned(folder), folder / "runs", threads=1)
    return weights_in(run.folder / "last.safetensors"), [timeless(entry) for entry in run.complete_log()]


def weights_in(path: Path) -> dict[str, bytes]:
    return {name: part.tobytes() for name, part in network_files.load(path)[0].weights.items()}


def used(path: Path) -> dict[str, bytes]:
    """Restore by a network, whose result has to lie in the cells, whatever it is."""
    network = network_files.load(path)[0]
    lower = np.floor(8 * np.sin(np.arange(640).reshape(10, 64))) / 8
    restored = network(lower, lower + 0.125)
    assert ((lower <= restored) & (restored <= lower + 0.125)).all(), "outside of the cells"
    return weights_in(path)


def restoring(path: Path) -> dict[str, bytes]:
    _read.cache_clear()  # a file may change twice within a tick of its clock
    read_model(path).method(16000, 0.125)
    return used(path)


def run_in(folder: Path) -> Run:
    return runs_in(folder / "runs")[0]


TARGETS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "training state": (lambda folder: run_in(folder).folder / "state.safetensors", resumed),
    "run.json": (lambda folder: run_in(folder).folder / "run.json", resumed),
    "log": (lambda folder: run_in(folder).folder / "log.jsonl", resumed),
    "best network": (lambda folder: run_in(folder).best_path, lambda folder: used(run_in(folder).best_path)),
    "table 2": (
        lambda folder: next(folder.glob("table2-*.json")),
        lambda folder: load_table_2(folder, experiment_on(scanned(folder))),
    ),
    "example": (
        lambda folder: next(folder.glob("example-*.safetensors")),
        lambda folder: {
            name: part.tobytes()
            for name, part in load_example(folder, experiment_on(scanned(folder)))[0].items()
        },
    ),
    "model": (
        lambda folder: folder / "model.safetensors",
        lambda folder: restoring(folder / "model.safetensors"),
    ),
}


def damaged(content: bytes, number: int) -> bytes:
    """Return the content with the damages of this number."""
    generator = np.random.default_rng([number, 7643])
    changed = bytearray(content)
    for _ in range(int(generator.choice([1, 1, 2]))):
        if changed:
            DAMAGES[generator.integers(len(DAMAGES))](changed, generator)
    return bytes(changed)


def tried(folder: Path, target: str, first: int, count: int) -> Counter:
    """Damage a target, and return what was counted; any other error ends it."""
    file_of, result_of = TARGETS[target]
    pristine, scratch, counts = folder / "pristine", folder / "scratch", Counter()
    reopen(run_in(pristine))

    def fresh() -> Path:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(pristine, scratch)
        return file_of(scratch)

    path = fresh()
    content, wanted = path.read_bytes(), result_of(scratch)
    for number in range(first, first + count):
        print(f"{target}: input {number}", file=sys.stderr, flush=True)
        if result_of is resumed:  # which writes files too
            fresh()
        path.write_bytes(damaged(content, number))
        signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        try:
            counts["harmless" if result_of(scratch) == wanted else "unnoticed"] += 1
        except PdrnError as error:
            if not str(error).isprintable():  # which newlines are not either
                raise RuntimeError(f"an error that is not one line of text: {error!r}") from error
            counts["refused"] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
    return counts


def corrupt(folder: Path, targets: Iterable[str], count: int) -> Counter:
    """Damage each of the targets so many times, in batches, and return what was counted."""
    targets = list(targets)
    counts = Counter(injected=0, refused=0, harmless=0, unnoticed=0, hangs=0, tracebacks=0)
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        batch = [str(folder), str(first), str(size), *targets]
        command = [sys.executable, "-m", "tests.faults.corruptions", *batch]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        counts["injected"] += size * len(targets)
        if done.returncode == 0:
            counts.update(json.loads(done.stdout))
        else:
            counts["hangs" if done.returncode == -signal.SIGPROF else "tracebacks"] += 1
            print(f"a batch ended with {done.returncode}:\n{done.stderr[-2000:]}", file=sys.stderr)
    return counts


def main() -> None:
    """Try one batch; print the outcomes as JSON, or end with the input that failed as the last one named."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    folder, first, count, *targets = sys.argv[1:]
    batches = (tried(Path(folder), target, int(first), int(count)) for target in targets)
    print(json.dumps(sum(batches, Counter())))


if __name__ == "__main__":
    main()
