"""Training: a step is Adam on (4.2), a run learns, and it resumes exactly where it was killed."""

import json
import math
import os
import random
import re
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
from tests.conftest import TINY
from tests.nets.plans import disturbed

from pdrn.audio.corpus import Corpus
from pdrn.errors import InputError, LockedError
from pdrn.nets import files
from pdrn.nets.files import Provenance, encode, save
from pdrn.nets.torch import NetworkModule
from pdrn.training.config import from_table, load, run_name
from pdrn.training.data import Batch, TrainingData
from pdrn.training.loop import STEPS_PER_AVERAGE, Callback, Trainer, initial_weights, learning_rate, train
from pdrn.training.losses import regularisation
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
def test_last_network_includes_all_steps(corpus, tmp_path, steps):
    settings = config(budget={"epochs": 0, "steps": steps})
    run = quickly(settings, corpus, tmp_path)
    last, first = weights_of(run)["W.0"], initial_weights(settings)["W.0"]
    assert not np.array_equal(last, first.astype(np.float32))
    trainer = Trainer(settings, steps)
    for batch in islice(TrainingData.read(corpus, settings).batches(0), steps):
        trainer.step(batch)
    trainer.update_average()
    assert np.allclose(last, trainer.averaged.network().weights["W.0"], atol=1e-6)


def test_record_describes_the_run(corpus, tmp_path):
    run = quickly(config(), corpus, tmp_path)
    record = run.record()
    assert run.folder.name == run_name(config(), corpus.checksum)
    assert record.config == config()
    assert record.corpus_sha256 == corpus.checksum
    assert record.code.startswith("0.")
    assert (record.threads, record.steps_per_epoch, record.total_steps) == (1, 29, 116)


def test_finished_run_is_not_repeated(corpus, tmp_path):
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
def test_interrupted_training_ends_with_the_same_bits(corpus, tmp_path, changes):
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
from pdrn.errors import InputError, LockedError
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


@pytest.mark.slow
def test_kill_9_at_any_moment_keeps_the_bits(corpus_folder, corpus, tmp_path):
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


def test_missing_corpus_is_named(corpus, tmp_path):
    shutil.copytree(corpus.folder, tmp_path / "sounds")
    copy = Corpus.scan(tmp_path / "sounds")
    gone = copy.folder / copy.split("train")[0].path
    gone.unlink()
    with pytest.raises(ValueError, match=f"{gone} cannot be opened"):
        quickly(config(), copy, tmp_path / "runs")


SPECTRAL = {
    "architecture": {
        "kind": "SpectralPrimalDual",
        "windows": [0.008, 0.004],
        "steps": 2,
        "channels": 4,
        "blocks": 1,
        "hidden": 4,
    },
    "data": {
        "bits": [2.0, 8.0],
        "quantizer": "both",
        "companded": 0.3,
        "clipped": 0.3,
        "length": 1024,
        "placing": "random",
        "measured_on": "files",
        "batches": 5,
        "sample_rate_hz": 16000,
        "training_rates_hz": [8000, 16000],
        "rate_jitter": 0.1,
    },
    "loss": {"relative": True, "logarithmic": True, "spectral": 0.02},
    "optimiser": {"batch_size": 4, "learning_rate": 3e-3, "precision": "bfloat16", "averaging": 0.9},
    "budget": {"epochs": 4},
}


def test_spectral_network_resumes_exactly(corpus_folder, tmp_path):
    class Interrupt(Callback):
        def on_epoch(self, entry):
            if entry["epoch"] == 2:
                raise KeyboardInterrupt

    settings, corpus = from_table(SPECTRAL), Corpus.scan(corpus_folder, 16000)
    whole = quickly(settings, corpus, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        quickly(settings, corpus, tmp_path / "parts", callbacks=[Interrupt()])
    parts = quickly(settings, corpus, tmp_path / "parts")
    network, provenance = files.load(whole.best_path)
    again, _ = files.load(parts.best_path)
    assert all(np.array_equal(network.weights[name], part) for name, part in again.weights.items())
    assert provenance.sample_rate_hz is None


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_spectral_network_learns(corpus_folder, precision):
    settings = from_table(SPECTRAL | {"optimiser": SPECTRAL["optimiser"] | {"precision": precision}})
    batch = next(TrainingData.read(Corpus.scan(corpus_folder, 16000), settings).batches(0))
    trainer = Trainer(settings, 1000)
    losses = [trainer.step(batch)[0] for _ in range(30)]
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize(
    ("architecture", "rate", "key"),
    [(SPECTRAL["architecture"], 8000, "architecture.sample_rate_hz"), (DENSE, 16000, "training_rates_hz")],
)
def test_refuses_rates_that_do_not_fit_the_network(corpus_folder, tmp_path, architecture, rate, key):
    data = SPECTRAL["data"] | {"sample_rate_hz": rate, "length": 64, "measured_on": "frames"}
    table = {"architecture": architecture, "data": data, "budget": {"epochs": 1}}
    with pytest.raises(InputError, match=key):
        quickly(from_table(table), Corpus.scan(corpus_folder, rate), tmp_path)


def test_longer_budget_resumes_a_shorter_run(corpus, tmp_path):
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


@pytest.mark.slow
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
    (note,) = callback.notes
    assert "2 threads" in note
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
def test_early_stopping_prevents_resuming_shorter_runs(corpus, tmp_path, first, then):
    def settings(epochs, budget):
        return config(recipe="paper", optimiser={"learning_rate": 1e-12}, budget={"epochs": epochs} | budget)

    quickly(settings(4, first), corpus, tmp_path)
    assert quickly(settings(5, then), corpus, tmp_path).record().resumed_from is None


@pytest.mark.parametrize("kind", ["LISTA", "ResidualNetwork", "LearnedPrimalDual", "DeepPrimalDual"])
@pytest.mark.parametrize("map", [DENSE["map"], FILTERS], ids=["dense", "convolutional"])
def test_related_networks_are_trained_too(corpus, tmp_path, kind, map):
    network = {"kind": kind, "depth": 2, "map": map}
    settings = from_table(
        QUICK | {"architecture": network, "start": {"kind": "own"}, "budget": {"epochs": 3}}
    )
    run = quickly(settings, corpus, tmp_path)
    first, *_, last = run.log()
    assert last["dev_ratio"] < first["dev_ratio"]
    assert run.best().architecture == settings.architecture
    with pytest.raises(ValueError, match=f"glorot.*not a {kind}"):
        quickly(from_table(QUICK | {"architecture": network, "start": {"kind": "glorot"}}), corpus, tmp_path)


def test_seeds_make_different_networks_and_equal_seeds_equal_ones(corpus, tmp_path):
    runs = [
        quickly(config(recipe="paper", seed=seed), corpus, tmp_path / folder)
        for seed, folder in ((0, "a"), (0, "b"), (1, "c"))
    ]
    a, b, c = (weights_of(run)["W.0"] for run in runs)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_budget_in_seconds_becomes_steps(corpus, tmp_path):
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


def test_divergence_keeps_the_best_network(corpus, tmp_path, monkeypatch):
    settings = config(budget={"epochs": 6})
    from pdrn.training import loop

    honest = loop.learning_rate
    monkeypatch.setattr(
        loop, "learning_rate", lambda o, step, total: math.inf if step > 70 else honest(o, step, total)
    )
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: None)
    with pytest.raises(ValueError, match=r"not finite.*best network, of epoch 2.*; lower optimiser"):
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


def test_full_disk_leaves_the_last_checkpoint(corpus, tmp_path):
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


def test_refuses_another_sample_rate(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"sample_rate_hz.* 8000.* 0"):
        quickly(config(data={"sample_rate_hz": 8000}), corpus, tmp_path)
    with pytest.raises(ValueError, match=r"sample_rate_hz.* 0.* 8000"):
        quickly(config(), Corpus.scan(corpus.folder, 8000), tmp_path)


def test_other_storage_errors_do_not_ask_for_room(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be written: (?!.*make room)"):
        quickly(config(), corpus, tmp_path / "file")


def test_broken_pipe_is_not_a_storage_error(corpus, tmp_path):
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
def test_refuses_data_that_do_not_fit_a_dense_network(corpus, tmp_path, data):
    with pytest.raises(ValueError, match=r"takes frames of 64 samples; set data\.length = 64 and"):
        quickly(config(data=data), corpus, tmp_path)
    assert list(tmp_path.iterdir()) == []


SMALL = {"kind": "PrimalDual", "depth": 2, "memory": "bias", "map": {"kind": "DenseMap", "samples": 32}}


def paper_config(**parts):
    return from_table({"recipe": "paper", "architecture": SMALL, **parts})


def examples(seed=0, rows=8):
    signal = np.random.default_rng(seed).normal(0, 0.2, (rows, 32)).astype(np.float32)
    lower = np.floor(16 * signal) / np.float32(16)
    return Batch(signal, lower, lower + np.float32(1 / 16), np.ones(rows))


@pytest.mark.parametrize("regularised", ["kernels", "all"])
def test_a_step_is_that_of_adam_on_the_loss_of_the_paper(regularised):
    settings = paper_config(
        loss={"regularisation": 0.01, "regularised": regularised}, optimiser={"learning_rate": 1e-3}
    )
    trainer = Trainer(settings, 100)
    net = NetworkModule(settings.architecture, initial_weights(settings))
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for seed in range(5):
        these = examples(seed)
        restored = net(torch.tensor(these.lo), torch.tensor(these.hi))
        mse = (restored - torch.tensor(these.signal)).square().mean()
        squares = sum(p.square().sum() for p in net.parameters() if regularised == "all" or p.ndim == 2)
        adam.zero_grad()
        (mse + 0.01 * squares).backward()
        loss, reported = trainer.step(these)
        assert loss == reported == pytest.approx(mse.item(), rel=1e-5)
        if seed == 0:
            assert regularisation(settings.loss, trainer.module) != 0
        adam.step()
    for name, part in net.named_parameters():
        assert torch.allclose(part, trainer.module.get_parameter(name), atol=2e-6), name


def test_weight_without_influence_stays():
    """One layer has nothing to extrapolate to."""
    one_layer = SMALL | {"depth": 1, "theta": 0.5, "learn_theta": "per layer"}
    trainer = Trainer(from_table({"recipe": "paper", "architecture": one_layer}), 100)
    before = trainer.module.get_parameter("W.0").detach().clone()
    trainer.step(examples())
    assert trainer.module.get_parameter("theta").tolist() == [0.5]
    assert not torch.equal(trainer.module.get_parameter("W.0"), before)


def test_the_relative_loss_is_the_mean_of_the_ratios():
    settings = paper_config(loss={"relative": True})
    these = examples()
    trainer = Trainer(settings, 100)
    restored = trainer.restore(these.lo, these.hi)
    error = np.square(restored - these.signal).mean(-1)
    noise = np.square((these.lo + these.hi) / 2 - these.signal).mean(-1)
    loss, mse = trainer.step(these)
    assert loss == pytest.approx(np.mean(error / noise), rel=1e-4)
    assert mse == pytest.approx(error.mean(), rel=1e-4)


def test_errors_are_reported_in_full_scale_whatever_the_unit():
    settings = paper_config(data={"unit": "cell", "bits": [3, 8]})
    these = examples()
    scale = np.linspace(0.1, 1, 8)
    trainer = Trainer(settings, 100)
    restored = trainer.restore(these.lo, these.hi)
    errors = np.square(restored - these.signal).mean(-1)
    loss, mse = trainer.step(Batch(these.signal, these.lo, these.hi, scale))
    assert loss == pytest.approx(errors.mean(), rel=1e-4)
    assert mse == pytest.approx((errors * scale**2).mean(), rel=1e-4)


def test_a_segment_without_any_error_does_not_spoil_the_relative_loss():
    trainer = Trainer(paper_config(loss={"relative": True}), 100)
    zero = np.zeros((2, 32), np.float32)
    loss, _ = trainer.step(Batch(zero, zero - np.float32(0.5), zero + np.float32(0.5), np.ones(2)))
    assert np.isfinite(loss)
    assert all(torch.isfinite(part).all() for part in trainer.module.parameters())


def test_long_gradients_are_cut_and_short_ones_left():
    def gradient(longest):
        trainer = Trainer(paper_config(optimiser={"clip_norm": longest}), 100)
        trainer.step(examples())
        return np.concatenate([part.grad.numpy().ravel() for part in trainer.module.parameters()])

    free = gradient(0.0)
    norm = np.linalg.norm(free)
    assert np.array_equal(gradient(2 * float(norm)), free)
    assert np.allclose(gradient(float(norm) / 4), free / 4, rtol=5e-3)


def test_the_network_is_the_average_where_there_is_one():
    trainer = Trainer(paper_config(optimiser={"averaging": 0.5, "learning_rate": 0.1}), 100)

    def moved(steps, seen):
        """Do a step; return the share of the previous average that the new one keeps."""
        before = trainer.averaged.network().weights["W.0"].copy()
        for seed in range(steps):
            assert np.array_equal(trainer.averaged.network().weights["W.0"], before)
            trainer.step(examples(seed))
        if seen:
            trainer.update_average()
        after, average = (
            trainer.module.get_parameter("W.0").detach().numpy(),
            trainer.averaged.network().weights["W.0"],
        )
        return np.linalg.norm(average - after) / np.linalg.norm(before - after)

    for step in range(1, STEPS_PER_AVERAGE + 1):
        assert moved(1, seen=False) == pytest.approx(min(0.5, (1 + step) / (10 + step)), abs=1e-4)
    assert moved(STEPS_PER_AVERAGE, seen=False) == pytest.approx(0.5**STEPS_PER_AVERAGE, abs=1e-4)
    assert moved(3, seen=True) == pytest.approx(0.5**3, abs=1e-4)
    assert moved(STEPS_PER_AVERAGE, seen=False) == pytest.approx(0.5**STEPS_PER_AVERAGE, abs=1e-4)


def test_learning_rate_schedule():
    shape = {"learning_rate": 2.0, "schedule": "cosine", "final_share": 0.1, "warmup_steps": 9}
    optimiser = paper_config(optimiser=shape).optimiser
    rates = [learning_rate(optimiser, step, 1000) for step in (0, 4, 9, 500, 1000)]
    assert rates == pytest.approx([0.2, 1.0, 2.0, 1.1, 0.2], rel=1e-3)
    constant = paper_config(optimiser={"learning_rate": 2.0}).optimiser
    assert {learning_rate(constant, step, 10) for step in range(10)} == {2.0}


@pytest.mark.parametrize("kind", ["own", "chambolle pock", "glorot", "identity"])
def test_initial_weights_follow_the_configuration(kind):
    steps = {"sigma": 3.0, "tau": 0.2} if kind == "chambolle pock" else {}
    settings = paper_config(start={"kind": kind} | steps)
    weights = initial_weights(settings)
    if kind == "chambolle pock":
        assert np.allclose(weights["W.0"] @ weights["V.1"].T, -0.6 * np.eye(32), atol=1e-9)
    elif kind == "own":
        assert np.allclose(weights["W.0"] @ weights["V.1"].T, -1.0 * np.eye(32), atol=1e-9)
    else:
        assert weights["W.0"].max() == pytest.approx(np.sqrt(6 / 64), rel=0.01)
        assert (weights["V.0"] == 0).all() == (kind == "identity")


@pytest.fixture
def learned(tmp_path):
    """The file of a network that has learned something, in units of the cell."""
    network = disturbed(TINY["speech-large"], 5, 0.1, np.float32)
    save(tmp_path / "learned.safetensors", network, Provenance("cell", 16000))
    return tmp_path / "learned.safetensors", network


def adapting(path, **changes):
    start = {"kind": "network", "network": str(path)}
    data = {"unit": "cell", "length": 1024, "placing": "random", "measured_on": "files"}
    return from_table({"start": start, "data": data, "optimiser": {"batch_size": 4}} | changes)


def test_training_starts_at_a_network_that_was_learned(learned, corpus, tmp_path):
    path, network = learned
    settings = adapting(path, budget={"steps": 1}, optimiser={"batch_size": 4, "learning_rate": 1e-12})
    assert settings.architecture == network.architecture
    run = train(settings, corpus, tmp_path / "runs", threads=1)
    for name, part in run.best().weights.items():
        np.testing.assert_allclose(part, network.weights[name], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architecture": encode(TINY["speech-small"])}, "has another architecture"),
        ({"data": {"unit": "full scale", "length": 1024}}, 'another unit; set data.unit = "cell"'),
    ],
    ids=["architecture", "unit"],
)
def test_a_start_at_a_network_that_does_not_fit_is_refused(learned, changes, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        Trainer(adapting(learned[0], **changes), 1)


def test_refuses_a_changed_start_network(learned):
    path, network = learned
    before = adapting(path)
    save(path, disturbed(network.architecture, 6, 0.1, np.float32), Provenance("cell", 16000), overwrite=True)
    after = adapting(path)
    assert run_name(before, "") != run_name(after, "")
    Trainer(after, 1)
    with pytest.raises(ValueError, match="changed"):
        Trainer(before, 1)
    with pytest.raises(ValueError, match="changed"):
        Trainer(adapting(path, start={**encode(after.start), "network_sha256": "0" * 64}), 1)


def test_a_start_at_no_network_is_refused():
    with pytest.raises(ValueError, match="nowhere"):
        adapting("nowhere")
