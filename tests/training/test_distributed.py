"""Several processes train what one would, and resume after one of them was killed."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.cli.running import pdrn
from tests.training.folders import reopen
from tests.training.test_loop import files_of, weights_of

from pdrn.errors import InputError
from pdrn.training.config import load, run_name
from pdrn.training.distributed import shard
from pdrn.training.loop import train
from pdrn.training.runs import Run

CONFIG = """
[architecture]
kind = "PrimalDual"
depth = 2
memory = "bias"
map = { kind = "DenseMap", samples = 64 }
[data]
length = 64
bits = [3.5, 6.5]
quantizer = "both"
flips = true
[loss]
relative = true
regularisation = 1e-4
[optimiser]
batch_size = 257  # the last batch of an epoch has one row, and one of two processes none
learning_rate = 1e-3
clip_norm = 0.05
averaging = 0.9
[budget]
epochs = 12
"""

OFTEN = """
import sys
from pdrn.cli.main import main
from pdrn.training.loop import train
train.__kwdefaults__["seconds_between_states"] = 0.0
"""
"""The command line, with a state after every epoch."""

STARTER = f"""{OFTEN}
import json, os
for line in sys.stdin:
    environment, commands = json.loads(line)
    children = []
    for rank, command in enumerate(commands):
        if (child := os.fork()) == 0:
            os.environ |= environment | {{"RANK": str(rank), "WORLD_SIZE": str(len(commands))}}
            sys.argv = ["pdrn", *command]
            sys.stdout, sys.stderr = (open(f"{{environment['SAID']}}.{{n}}.{{rank}}", "w") for n in (1, 2))
            try:
                main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
            sys.stdout.close(), sys.stderr.close()
            os._exit(code)
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""
"""Does what a launcher does for every line that it reads, without importing everything again."""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return a function that runs one command per process, and says how they ended and what they said."""
    folder = tmp_path_factory.mktemp("said")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STARTER], **pipes) as starter:

        def together(*commands):
            said = folder / str(len(list(folder.iterdir())))
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "SAID": str(said)}
            wanted = [[str(part) for part in command] for command in commands]
            print(json.dumps([place, wanted]), file=starter.stdin, flush=True)
            codes = json.loads(starter.stdout.readline())
            texts = [
                [Path(f"{said}.{number}.{rank}").read_text() for rank in range(len(commands))]
                for number in (1, 2)
            ]
            return SimpleNamespace(codes=codes, output=texts[0], errors=texts[1])

        yield together
        starter.stdin.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def toml(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "a.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def command(toml, corpus_folder):
    return ["train", toml, "--corpus", corpus_folder, "--threads", 1, "--out"]


@pytest.fixture(scope="module")
def pair(start, command, toml, corpus, tmp_path_factory):
    """A run that two processes did."""
    out = tmp_path_factory.mktemp("pair")
    result = start([*command, out], [*command, out])
    assert result.codes == [0, 0], result.errors
    return Run(out / run_name(load(toml), corpus.checksum)), result


def test_two_processes_train_what_one_does(pair, toml, corpus, tmp_path):
    run, _ = pair
    alone = train(load(toml), corpus, tmp_path, threads=1)
    for name, part in weights_of(alone).items():
        assert np.allclose(weights_of(run)[name], part, rtol=1e-4, atol=2e-6), name
    for key in ("train_loss", "train_mse", "dev_mse", "dev_snr", "dev_ratio"):
        wanted, found = ([entry[key] for entry in each.log()] for each in (alone, run))
        assert found == pytest.approx(wanted, rel=1e-4), key


def test_only_the_first_process_prints(pair):
    run, result = pair
    assert result.output == [f"{run.best_path}\n", ""]
    assert result.errors[0].count("epoch ") == 12
    assert "processes: 2" in result.errors[0]
    assert result.errors[1] == ""


def test_run_resumes_with_its_number_of_processes_only(pair, start, command, toml, corpus, tmp_path):
    run, _ = pair
    assert run.record().processes == 2
    record = run.record()
    reopen(run)
    with pytest.raises(InputError, match="begun by 2 processes, not 1"):
        train(load(toml), corpus, run.folder.parent)
    three = start(*3 * [[*command, run.folder.parent]])
    assert three.codes == 3 * [1]
    assert "begun by 2 processes, not 3" in three.errors[0]
    run.save_record(record)


def test_processes_with_other_data_are_refused(start, command, toml, corpus_folder, tmp_path):
    (tmp_path / "other.toml").write_text(CONFIG + "patience = 3\n")
    other = ["train", tmp_path / "other.toml", "--corpus", corpus_folder, "--out", tmp_path]
    result = start([*command, tmp_path], other)
    assert 0 not in result.codes
    assert "process 1 has another configuration" in result.errors[1]


def test_divergence_ends_all_processes(start, corpus_folder, tmp_path):
    (tmp_path / "a.toml").write_text(CONFIG.replace("1e-3", "1e30").replace("0.05", "0.0"))
    command = ["train", tmp_path / "a.toml", "--corpus", corpus_folder, "--out", tmp_path]
    result = start(command, command)
    assert result.codes == [1, 1]
    assert "learning_rate" in result.errors[0]


def test_a_budget_in_seconds_is_for_one_process(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "a.toml").write_text(CONFIG.replace("epochs = 12", "seconds = 5.0"))
    with pytest.raises(InputError, match="seconds"):
        train(load(tmp_path / "a.toml"), corpus, tmp_path)


DYING = """
import os, signal
from pdrn.training.loop import Trainer
undisturbed = Trainer.step

def step(self, batch):
    first_try = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if first_try and os.environ["RANK"] == "1" and self.steps == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return undisturbed(self, batch)

Trainer.step = step
main()
"""
"""The second process kills itself in the middle of the fifth epoch, once."""


@pytest.mark.slow
def test_after_kill_9_of_a_worker_torchrun_ends_with_the_same_bits(pair, command, tmp_path):
    whole, _ = pair
    (tmp_path / "dying.py").write_text(OFTEN + DYING)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    launcher += ["--monitor-interval", "0.1", "--master-port", str(free_port()), str(tmp_path / "dying.py")]
    torchrun = subprocess.run([*launcher, *map(str, command), tmp_path], capture_output=True, text=True)
    assert torchrun.returncode == 0, torchrun.stderr
    assert "after epoch 5" in torchrun.stderr
    one, other = files_of(whole), files_of(Run(tmp_path / whole.folder.name))
    assert (one["last"], one["best"], one["log"]) == (other["last"], other["best"], other["log"])


def test_process_without_torchrun_is_refused(toml, corpus_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    result = pdrn("train", toml, "--corpus", corpus_folder, "--out", tmp_path)
    assert result.returncode == 1
    assert "torchrun" in result.stderr


def test_every_row_belongs_to_one_process(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rows in range(9):
        parts = []
        for rank in range(4):
            monkeypatch.setenv("RANK", str(rank))
            parts.append(list(range(rows))[shard(rows)])
        assert [row for part in parts for row in part] == list(range(rows))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_package_runs_as_a_module():
    result = subprocess.run([sys.executable, "-m", "pdrn", "--help"], capture_output=True, text=True)
    assert "Usage: python -m pdrn" in result.stdout
