"""Training: it learns, it goes on exactly where it was killed, and what goes wrong is said."""

import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from itertools import islice

import numpy as np
import pytest
import soundfile
import torch

from pdrn.audio.corpus import Corpus
from pdrn.errors import LockedError
from pdrn.nets import files
from pdrn.training.config import from_table, load, run_name
from pdrn.training.data import TrainingData
from pdrn.training.loop import Callback, Trainer, initial_weights, train
from pdrn.training.runs import Run

DENSE = {"kind": "PrimalDual", "depth": 2, "memory": "bias", "map": {"kind": "DenseMap", "samples": 64}}
FILTERS = {"kind": "ConvolutionalMap", "channels": 16, "window": 32, "hop": 16}
QUICK = {
    "recipe": "modern",
    "architecture": DENSE,
    "data": {"length": 64},
    "optimiser": {"batch_size": 64, "learning_rate": 1e-3},
    "budget": {"epochs": 4},
}


def config(**changes):
    table = json.loads(json.dumps(QUICK))
    for part, values in changes.items():
        table[part] = table.get(part, {}) | values if isinstance(values, dict) else values
    return from_table(table)


def quickly(settings, corpus, out, **options):
    return train(settings, corpus, out, threads=1, seconds_between_states=0.0, **options)


def files_of(run):
    return {name: (run.folder / f"{name}.safetensors").read_bytes() for name in ("state", "best", "last")} | {
        "log": [untimed(entry) for entry in run.log()]
    }


def untimed(entry):
    return {key: value for key, value in entry.items() if not key.endswith(("second", "seconds", "fraction"))}


def weights_of(run):
    return files.load(run.folder / "last.safetensors")[0].weights


class StopAfter(Callback):
    """Interrupts training in the middle of an epoch."""

    def __init__(self, steps):
        self.steps, self.notes = steps, []

    def on_note(self, sentence):
        self.notes.append(sentence)

    def on_step(self, step):
        if step == self.steps:
            raise KeyboardInterrupt


def test_it_learns(corpus, tmp_path):
    run = quickly(config(budget={"epochs": 12}), corpus, tmp_path)
    log = run.log()
    assert [entry["epoch"] for entry in log] == list(range(1, 13))
    assert log[-1]["dev_ratio"] < log[0]["dev_ratio"] < 0.7
    network, provenance = files.load(run.best_path)
    assert network.architecture == config().architecture
    assert provenance.corpus_sha256 == corpus.checksum
    assert provenance.training["epoch"] == log[-1]["best_epoch"]


@pytest.mark.parametrize("steps", [1, 13])
def test_what_is_kept_has_learned_all_steps(corpus, tmp_path, steps):
    settings = config(budget={"epochs": 0, "steps": steps})
    run = quickly(settings, corpus, tmp_path)
    last, first = weights_of(run)["W.0"], initial_weights(settings)["W.0"]
    assert not np.array_equal(last, first.astype(np.float32))
    trainer = Trainer(settings, steps)
    for batch in islice(TrainingData.read(corpus, settings).batches(0), steps):
        trainer.step(batch)
    trainer.update_average()
    assert np.allclose(last, trainer.averaged.network().weights["W.0"], atol=1e-6)


def test_the_folder_says_what_the_run_is(corpus, tmp_path):
    run = quickly(config(), corpus, tmp_path)
    record = run.record()
    assert run.folder.name == run_name(config(), corpus.checksum)
    assert record.config == config()
    assert record.corpus_sha256 == corpus.checksum
    assert record.code.startswith("0.")
    assert (record.threads, record.steps_per_epoch, record.total_steps) == (1, 29, 116)


def test_a_finished_run_is_not_done_again(corpus, tmp_path):
    first = files_of(quickly(config(), corpus, tmp_path))
    callback = StopAfter(1)
    assert files_of(quickly(config(), corpus, tmp_path, callbacks=[callback])) == first


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recipe": "paper"},
        {"recipe": "paper", "loss": {"regularisation": 1e-6, "regularised": "all"}},
        {"data": {"flips": True, "bits": [3.5, 6.5], "quantizer": "both"}, "loss": {"relative": True}},
        {
            "architecture": {"depth": 2, "memory": "mix", "map": FILTERS},
            "data": {"length": 512, "unit": "cell", "measured_on": "files", "batches": 6},
            "optimiser": {"batch_size": 4},
        },
    ],
    ids=["modern", "paper", "regularised", "every bit depth", "convolutional"],
)
def test_interrupted_training_ends_as_if_it_had_not_been(corpus, tmp_path, changes):
    settings = config(**changes)
    whole = quickly(settings, corpus, tmp_path / "whole")
    for steps in (7, 20, 21):  # in the first, a later, and the same epoch again
        with pytest.raises(KeyboardInterrupt):
            quickly(settings, corpus, tmp_path / "parts", callbacks=[StopAfter(steps)])
    parts = quickly(settings, corpus, tmp_path / "parts")
    one, other = files_of(whole), files_of(parts)
    assert one["log"] == other["log"]
    assert one["last"] == other["last"]
    assert one["best"] == other["best"]
    for name, part in whole.load_state(shapes_in(whole))[0].items():
        assert np.array_equal(part, parts.load_state(shapes_in(parts))[0][name]), name


def shapes_in(run):
    import safetensors

    with safetensors.safe_open(run.folder / "state.safetensors", framework="numpy") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


KILLABLE = """
import json, os, sys
from pdrn.audio.corpus import Corpus
from pdrn.errors import LockedError
from pdrn.training.config import from_table
from pdrn.training.loop import train

settings, corpus = from_table(json.loads(sys.argv[1])), Corpus.scan(sys.argv[2])
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        train(settings, corpus, sys.argv[3], threads=1, seconds_between_states=0.0)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Trains in a new process for every line that it reads, and prints its id and how it ended."""


def test_kill_9_at_any_moment_changes_nothing(corpus_folder, corpus, tmp_path):
    table = QUICK | {"budget": {"epochs": 30}}
    whole = quickly(from_table(table), corpus, tmp_path / "whole")
    run = Run(tmp_path / "killed" / whole.folder.name)
    command = [
        sys.executable,
        "-c",
        KILLABLE,
        json.dumps(table),
        str(corpus_folder),
        str(tmp_path / "killed"),
    ]
    moments = random.Random(0)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        for lines in (0, 1, 4, 9, 16, 25):
            print("go", file=starter.stdin, flush=True)
            child = int(starter.stdout.readline())
            while len(run.log()) < lines:
                time.sleep(0.001)
            time.sleep(moments.uniform(0, 0.1))
            os.kill(child, signal.SIGKILL)
            assert int(starter.stdout.readline()) == -signal.SIGKILL
        assert not run.is_done
        assert len(run.log()) >= 25
        print("go", file=starter.stdin, flush=True)
        starter.stdout.readline()
        assert int(starter.stdout.readline()) == 0
        starter.stdin.close()
    assert files_of(run)["last"] == files_of(whole)["last"]
    assert files_of(run)["best"] == files_of(whole)["best"]
    assert files_of(run)["log"] == files_of(whole)["log"]


def test_a_corpus_that_is_gone_is_named_and_not_the_run(corpus, tmp_path):
    shutil.copytree(corpus.folder, tmp_path / "sounds")
    copy = Corpus.scan(tmp_path / "sounds")
    gone = copy.folder / copy.split("train")[0].path
    gone.unlink()
    with pytest.raises(ValueError, match=f"{gone} cannot be opened"):
        quickly(config(), copy, tmp_path / "runs")


def test_a_longer_budget_goes_on_from_a_shorter_one(corpus, tmp_path):
    whole = quickly(config(recipe="paper", budget={"epochs": 5}), corpus, tmp_path / "whole")
    quickly(config(recipe="paper", budget={"epochs": 3}), corpus, tmp_path)
    with pytest.raises(KeyboardInterrupt):  # it does not begin at 0
        quickly(
            config(recipe="paper", budget={"epochs": 5}), corpus, tmp_path, callbacks=[StopAfter(3 * 29 + 1)]
        )
    longer = quickly(config(recipe="paper", budget={"epochs": 5}), corpus, tmp_path)
    assert longer.record().resumed_from not in (None, longer.folder.name)
    assert untimed(longer.log()[-1]) == untimed(whole.log()[-1])
    assert all(np.array_equal(part, weights_of(whole)[name]) for name, part in weights_of(longer).items())


def test_a_run_keeps_its_threads(corpus, tmp_path):
    settings, callback = config(recipe="paper", budget={"epochs": 2}), StopAfter(40)
    with pytest.raises(KeyboardInterrupt):
        train(settings, corpus, tmp_path, threads=2, callbacks=[callback])
    callback.steps = 50
    with pytest.raises(KeyboardInterrupt):
        train(settings, corpus, tmp_path, threads=2, callbacks=[callback])
    assert callback.notes == []
    callback.steps, callback.on_step = 0, lambda step: used.append(torch.get_num_threads())
    used = []
    assert train(settings, corpus, tmp_path, threads=1, callbacks=[callback]).record().threads == 2
    assert set(used) == {2}
    assert callback.notes == ["threads: 2, with which this run began, and not 1"]
    longer, other = (config(recipe="paper", budget={"epochs": epochs}) for epochs in (3, 4))
    record = train(longer, corpus, tmp_path).record()
    assert (record.threads, record.resumed_from) == (2, run_name(settings, corpus.checksum))
    record = train(other, corpus, tmp_path, threads=1).record()
    assert (record.threads, record.resumed_from) == (1, None)


def test_another_version_of_the_code_is_noted(corpus, tmp_path, monkeypatch):
    callback = StopAfter(40)
    for version, steps in (("0.1+a", 40), ("0.1+a", 41), ("0.1+b", 0)):
        monkeypatch.setattr("pdrn.training.loop.code_version", lambda version=version: version)
        callback.steps = steps
        with pytest.raises(KeyboardInterrupt) if steps else nullcontext():
            run = quickly(config(), corpus, tmp_path, callbacks=[callback])
    assert [("0.1+a" in note, "0.1+b" in note) for note in callback.notes] == [(True, True)]
    assert run.record().code == "0.1+a"


@pytest.mark.parametrize(("first", "then"), [({}, {"patience": 2}), ({"patience": 9}, {})])
def test_a_run_with_patience_neither_goes_on_from_another_nor_is_gone_on_from(corpus, tmp_path, first, then):
    def settings(epochs, budget):
        return config(recipe="paper", optimiser={"learning_rate": 1e-12}, budget={"epochs": epochs} | budget)

    quickly(settings(4, first), corpus, tmp_path)
    assert quickly(settings(5, then), corpus, tmp_path).record().resumed_from is None


@pytest.mark.parametrize("kind", ["LISTA", "ResidualNetwork", "LearnedPrimalDual", "DeepPrimalDual"])
@pytest.mark.parametrize("map", [DENSE["map"], FILTERS], ids=["dense", "convolutional"])
def test_the_neighbours_are_trained_by_the_same_engine(corpus, tmp_path, kind, map):
    network = {"kind": kind, "depth": 2, "map": map}
    settings = from_table(
        QUICK | {"architecture": network, "start": {"kind": "own"}, "budget": {"epochs": 3}}
    )
    run = quickly(settings, corpus, tmp_path)
    first, *_, last = run.log()
    assert last["dev_ratio"] < first["dev_ratio"]
    assert run.best().architecture == settings.architecture
    with pytest.raises(ValueError, match=f"a {kind} cannot start at glorot"):
        quickly(from_table(QUICK | {"architecture": network, "start": {"kind": "glorot"}}), corpus, tmp_path)


def test_seeds_make_different_networks_and_equal_seeds_equal_ones(corpus, tmp_path):
    runs = [
        quickly(config(recipe="paper", seed=seed), corpus, tmp_path / folder)
        for seed, folder in ((0, "a"), (0, "b"), (1, "c"))
    ]
    a, b, c = (weights_of(run)["W.0"] for run in runs)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_a_budget_in_seconds_is_one_in_steps_once_the_run_has_begun(corpus, tmp_path):
    run = quickly(config(budget={"epochs": 0, "seconds": 0.5}), corpus, tmp_path)
    assert run.log()[-1]["step"] == run.record().total_steps
    assert 0.1 < run.log()[-1]["training_seconds"] < 5


def test_patience_ends_a_run_that_gets_no_better(corpus, tmp_path):
    settings = config(
        recipe="paper", optimiser={"learning_rate": 1e-12}, budget={"epochs": 50, "patience": 2}
    )
    log = quickly(settings, corpus, tmp_path).log()
    assert len(log) == log[-1]["best_epoch"] + 2 < 50


def test_the_loss_has_the_regularisation_in_it_and_its_gradient(corpus, tmp_path):
    plain, strong = (
        quickly(config(recipe="paper", loss={"regularisation": value}), corpus, tmp_path).log()
        for value in (0.0, 1e-3)
    )
    assert all(entry["train_loss"] == entry["train_mse"] for entry in plain)
    assert all(entry["train_loss"] > 2 * entry["train_mse"] for entry in strong)
    last = tmp_path / run_name(config(recipe="paper", loss={"regularisation": 1e-3}), corpus.checksum)
    weights = weights_of(Run(last))
    squares = sum((part.astype(float) ** 2).sum() for name, part in weights.items() if name[0] in "WV")
    assert strong[-1]["train_loss"] - strong[-1]["train_mse"] == pytest.approx(1e-3 * squares, rel=1e-6)
    assert squares < 0.9 * 4 * 64 * 64 * 6 / 128 / 3  # what Glorot starts at


def test_a_loss_that_is_not_a_number_is_said_and_the_best_network_stays(corpus, tmp_path, monkeypatch):
    settings = config(budget={"epochs": 6})
    from pdrn.training import loop

    honest = loop.learning_rate
    monkeypatch.setattr(
        loop, "learning_rate", lambda o, step, total: math.inf if step > 70 else honest(o, step, total)
    )
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: None)
    with pytest.raises(ValueError, match=r"not a number.*best network, of epoch 2.*; lower optimiser"):
        quickly(settings, corpus, tmp_path)
    run = Run(tmp_path / run_name(settings, corpus.checksum))
    assert run.best().weights
    assert len(run.log()) == 2
    assert not run.is_done


@contextmanager
def limited_file_size(size):
    """No file can grow longer than this, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_said_and_leaves_the_last_state(corpus, tmp_path):
    toml = tmp_path / "quick.toml"
    toml.write_text(
        '[architecture]\nkind = "PrimalDual"\ndepth = 2\nmap = { kind = "DenseMap", samples = 64 }\n'
        "[data]\nlength = 64\n[budget]\nepochs = 3\n"
    )
    with pytest.raises(KeyboardInterrupt):
        quickly(load(toml), corpus, tmp_path, callbacks=[StopAfter(20)])
    run = Run(tmp_path / run_name(load(toml), corpus.checksum))
    before = (run.folder / "state.safetensors").read_bytes()
    with (
        limited_file_size(50_000),
        pytest.raises(OSError, match="cannot be written: File too large; make room"),
    ):
        quickly(load(toml), corpus, tmp_path)
    assert (run.folder / "state.safetensors").read_bytes() == before
    assert quickly(load(toml), corpus, tmp_path).is_done


def test_a_rate_that_the_corpus_does_not_have_is_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"data.sample_rate_hz is 8000, and the corpus was scanned with 0"):
        quickly(config(data={"sample_rate_hz": 8000}), corpus, tmp_path)
    with pytest.raises(ValueError, match=r"data.sample_rate_hz is 0, and the corpus was scanned with 8000"):
        quickly(config(), Corpus.scan(corpus.folder, 8000), tmp_path)


def test_only_a_full_disk_wants_room(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be written: (?!.*make room)"):
        quickly(config(), corpus, tmp_path / "file")


def test_a_listener_that_is_gone_is_not_taken_for_a_folder_that_cannot_be_written(corpus, tmp_path):
    class Gone(Callback):
        def on_epoch(self, entry):
            raise BrokenPipeError("nobody listens")

    with pytest.raises(BrokenPipeError, match="nobody listens"):
        quickly(config(), corpus, tmp_path, callbacks=[Gone()])


def test_two_processes_do_not_train_in_one_folder(corpus, tmp_path):
    run = Run(tmp_path / run_name(config(), corpus.checksum))
    with run.locked(), pytest.raises(LockedError):
        quickly(config(), corpus, tmp_path)


@pytest.fixture
def poor_corpus(tmp_path):
    """A corpus whose files are long enough in some splits only."""
    noise = np.random.default_rng(0).uniform(-1, 1, 4000)
    for split, length in (("train", 4000), ("dev", 1000), ("test", 0)):
        (tmp_path / split).mkdir()
        if length:
            soundfile.write(tmp_path / split / "a.wav", noise[:length], 16000)
    soundfile.write(tmp_path / "train" / "short.wav", noise[:50], 16000)
    return Corpus.scan(tmp_path)


def test_files_that_are_too_short_are_left_out_and_counted(poor_corpus, tmp_path):
    run = quickly(config(), poor_corpus, tmp_path / "runs")
    assert run.record().files_too_short == 1
    assert run.record().steps_per_epoch == 1


@pytest.mark.parametrize(("length", "split"), [(1001, "dev"), (5000, "train")])
def test_a_split_without_a_frame_is_refused(poor_corpus, tmp_path, length, split):
    with pytest.raises(ValueError, match=f"the {split} split of .* has no file of {length} samples or more"):
        quickly(
            config(data={"length": length}, architecture={"map": FILTERS}), poor_corpus, tmp_path / "runs"
        )


@pytest.mark.parametrize("data", [{"length": 48}, {"measured_on": "files"}], ids=str)
def test_data_that_a_dense_network_cannot_take_are_refused_before_anything_is_done(corpus, tmp_path, data):
    with pytest.raises(ValueError, match=r"takes frames of 64 samples; set data\.length = 64 and"):
        quickly(config(data=data), corpus, tmp_path)
    assert list(tmp_path.iterdir()) == []
