"""Networks trained side by side, by processes of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from pdrn.cli.study import train_networks
from pdrn.errors import LockedError
from pdrn.reproduction.grid import Grid
from pdrn.training.runs import runs_in

SMALL = Grid(depths=(1, 2), epochs=1, frame_length=32, lambdas=(1e-8, 1e-2))


def test_several_networks_are_trained_at_a_time_and_one_that_fails_does_not_spoil_others(corpus, tmp_path):
    bad, *good = Grid(epochs=1, frame_length=10**6).config("PDN", 1), *SMALL.configs_before_lambda()[:2]
    results = {each.config: each for each in train_networks([bad, *good], corpus, tmp_path, jobs=2)}
    assert "has no file of 1000000 samples or more" in results[bad].error
    assert results[bad].run is None
    assert all(results[each].run.is_done for each in good)


ENDLESS = """
import signal, sys
from pdrn.audio.corpus import Corpus
from pathlib import Path
from pdrn.cli.study import train_networks
from pdrn.errors import LockedError
from pdrn.reproduction.grid import Grid

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    config = Grid(epochs=10**6, frame_length=32).config("PDN", 1)
    list(train_networks([config], Corpus.scan(sys.argv[1]), Path(sys.argv[2]), jobs=1))
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(corpus, tmp_path, how):
    (tmp_path / "endless.py").write_text(ENDLESS)
    with subprocess.Popen([sys.executable, tmp_path / "endless.py", corpus.folder, tmp_path]) as parent:
        until(lambda: any(run.log() for run in runs_in(tmp_path)))
        parent.send_signal(how)
    assert parent.returncode == (143 if how == signal.SIGTERM else -how)
    (run,) = runs_in(tmp_path)
    until(lambda: not is_training(run))
    assert not run.is_done


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_training(run):
    try:
        with run.locked():
            return False
    except LockedError:
        return True


def test_an_interrupt_of_all_processes_is_answered_by_one_sentence(corpus, tmp_path):
    """A terminal interrupts the whole group, also processes that are still starting."""
    command = [sys.executable, "-m", "pdrn", "reproduce", "table1", "--corpus", corpus.folder, "--jobs", 2]
    options = ["--depths", 1, "--lambdas", "", "--frame-length", 32, "--epochs", 10**6, "--out", tmp_path]
    with subprocess.Popen(
        [str(part) for part in command + options],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as parent:
        until(lambda: len(children(parent.pid)) > 1)
        os.killpg(parent.pid, signal.SIGINT)
        errors = parent.communicate(timeout=60)[1]
    assert parent.returncode == 130
    assert "Traceback" not in errors


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
