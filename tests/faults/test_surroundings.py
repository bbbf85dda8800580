"""Disks that are full or cannot be written, and clocks that jump: said in a sentence, and nothing is lost."""

import os
import random
import subprocess
import time
from itertools import accumulate

import pytest
from tests.cli.running import pdrn
from tests.faults.kills import CONFIG, sounds, trained

from pdrn.audio.corpus import Corpus
from pdrn.training.config import load
from pdrn.training.loop import train


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own, and a function that mounts it again with other options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        return subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False
        )

    if not hasattr(os, "geteuid") or os.geteuid() != 0 or mount("size=48k").returncode:
        pytest.skip("to mount a small disk takes root")
    try:
        yield folder, lambda options: mount(f"remount,{options}")
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def training(tmp_path):
    (tmp_path / "corpus").mkdir()
    sounds(tmp_path / "corpus", 12, 0.1)
    (tmp_path / "tiny.toml").write_text(CONFIG.replace("epochs = 6", "epochs = 2"))
    return ["train", tmp_path / "tiny.toml", "--corpus", tmp_path / "corpus", "--threads", 1, "--out"]


def refused(result, reason):
    assert result.returncode == 1
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
    return True


def test_training_on_a_full_disk_goes_on_when_there_is_room(disk, training, tmp_path):
    folder, remount = disk
    assert pdrn(*training, tmp_path / "elsewhere").returncode == 0
    assert refused(pdrn(*training, folder / "runs"), "No space left on device; make room")
    assert not list(folder.rglob("*.part"))
    remount("size=4m")
    assert pdrn(*training, folder / "runs").returncode == 0
    assert trained(folder / "runs") == trained(tmp_path / "elsewhere")


def test_restoring_to_a_full_disk_leaves_nothing(disk, tmp_path):
    folder, _ = disk
    (tmp_path / "in").mkdir()
    sounds(tmp_path / "in", 2, 1.0)
    restoring = ["restore", tmp_path / "in", "-o", folder, "--bits", 5, "--method", "cp", "--iterations", 1]
    assert refused(pdrn(*restoring), "is the disk full?")
    assert list(folder.iterdir()) == []


def test_what_cannot_be_written_is_named(disk, training, tmp_path):
    folder, remount = disk
    sounds(folder, 1, 0.1)
    remount("ro")
    before = sorted(os.listdir(folder))
    assert refused(pdrn("restore", folder / "00.wav", "--bits", 5), "Read-only file system")
    assert refused(pdrn(*training, folder), "Read-only file system; correct that")
    assert sorted(os.listdir(folder)) == before


def test_a_clock_that_jumps_changes_nothing(training, tmp_path, monkeypatch):
    corpus, config = Corpus.scan(tmp_path / "corpus"), load(training[1])
    train(config, corpus, tmp_path / "steady", threads=1)
    jumps = random.Random(0)
    times = accumulate(iter(lambda: jumps.choice([-1e9, -3600.0, 0.0, 3600.0, 1e9]), None), initial=1.7e9)
    monkeypatch.setattr(time, "time", lambda: next(times))
    train(config, corpus, tmp_path / "jumping", threads=1)
    assert trained(tmp_path / "jumping") == trained(tmp_path / "steady")
