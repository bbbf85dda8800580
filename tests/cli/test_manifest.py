"""A manifest: what was cut off goes on, and nothing passes for done that is not."""

import json
import os
import shutil
import signal
from pathlib import Path
from unittest import mock

import pytest
from tests.cli.running import pdrn, run, started, wait_until
from tests.cli.test_restore import QUANTIZED, RATE

from pdrn.audio.files import write
from pdrn.cli.batch import open_manifest
from pdrn.errors import LockedError

QUICK = ("--bits", 5, "--method", "cp", "--iterations", 1)
COMMAND = ("restore", "in", "-o", "out", "--manifest", "done.jsonl", *QUICK)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three short sounds, restored once with a manifest."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("in")
    for number, name in enumerate("abc"):
        write(f"in/{name}.wav", QUANTIZED[1000 * number :], RATE, subtype="PCM_16")
    assert pdrn(*COMMAND).returncode == 0
    return tmp_path


def statuses(*options):
    """Run the command again; tell what became of each input."""
    done = pdrn(*COMMAND, "--json", *options)
    rows = map(json.loads, done.stdout.splitlines())
    return done.returncode, {Path(row["input"]).stem: row["status"] for row in rows}


def contents():
    return {path.name: path.read_bytes() for path in Path("out").iterdir()}


def test_what_is_done_is_not_done_again(folder):
    before, lines = os.stat("out/a_restored.wav"), Path("done.jsonl").read_text()
    assert statuses() == (0, {"a": "skipped", "b": "skipped", "c": "skipped"})
    assert os.stat("out/a_restored.wav") == before
    assert Path("done.jsonl").read_text() == lines


def test_not_even_where_outputs_may_be_overwritten(folder):
    assert statuses("--overwrite") == (0, {"a": "skipped", "b": "skipped", "c": "skipped"})


def test_it_moves_with_the_outputs(folder, tmp_path):
    os.mkdir("elsewhere")
    shutil.move("out", "elsewhere/out")
    shutil.move("done.jsonl", "elsewhere/done.jsonl")
    moved = ("restore", "in", "-o", "elsewhere/out", "--manifest", "elsewhere/done.jsonl")
    assert pdrn(*moved, *QUICK).stderr.endswith("3 skipped\n")


def test_an_output_that_is_gone_is_made_again(folder):
    before = contents()
    os.remove("out/b_restored.wav")
    assert statuses() == (0, {"a": "skipped", "b": "restored", "c": "skipped"})
    assert contents() == before


def test_an_output_that_was_altered_is_reported_and_made_again_where_told(folder):
    before = contents()
    Path("out/b_restored.wav").write_bytes(b"mine")
    done = pdrn(*COMMAND)
    assert done.returncode == 1
    assert "out/b_restored.wav was changed since it was restored; remove it, or allow" in done.stderr
    assert Path("out/b_restored.wav").read_bytes() == b"mine"
    assert statuses("--overwrite") == (0, {"a": "skipped", "b": "restored", "c": "skipped"})
    assert contents() == before


def test_an_input_that_is_another_now_is_not_done(folder):
    shutil.copy("in/a.wav", "in/b.wav")
    code, status = statuses()
    assert (code, status["b"]) == (1, "failed")
    assert statuses("--overwrite") == (0, {"a": "skipped", "b": "restored", "c": "skipped"})
    assert contents()["b_restored.wav"] == contents()["a_restored.wav"]


@pytest.mark.parametrize("options", [("--mix", 0.5), ("--iterations", 2), ("--subtype", "PCM_24")])
def test_what_was_made_otherwise_is_not_done(folder, options):
    before = contents()
    with mock.patch("pdrn.cli.batch.Restorer.restore_file", side_effect=AssertionError):
        assert set(statuses(*options)[1].values()) == {"failed"}
    assert contents() == before
    assert set(statuses(*options, "--overwrite")[1].values()) == {"restored"}
    assert set(statuses(*options)[1].values()) == {"skipped"}


def test_a_network_of_the_same_name_with_other_weights_is_another(folder, tiny_folder):
    learned = ("restore", "in", "-o", "new", "--manifest", "new.jsonl", "--bits", 5, "--model", "net")
    shutil.copy(tiny_folder / "speech-large.safetensors", "net")
    assert pdrn(*learned).returncode == 0
    assert pdrn(*learned).stderr.endswith("3 skipped\n")
    shutil.copy(tiny_folder / "speech-small.safetensors", "other")
    os.replace("other", "net")
    assert run(*learned).returncode == 1  # in a process that has not read the other


def test_an_output_that_nobody_noted_is_proven_by_doing_it_again(folder):
    """As where the process was killed after the one and before the other."""
    lines = Path("done.jsonl").read_text().splitlines(keepends=True)
    Path("done.jsonl").write_text("".join(lines[:2]))
    Path("out/c_restored.wav").write_bytes(b"mine")
    assert statuses() == (1, {"a": "skipped", "b": "restored", "c": "failed"})
    assert Path("out/c_restored.wav").read_bytes() == b"mine"
    assert len(Path("done.jsonl").read_text().splitlines()) == 3
    assert statuses("--skip-existing") == (0, {"a": "skipped", "b": "skipped", "c": "skipped"})


def test_a_last_line_that_was_cut_off_is_no_line(folder):
    content = Path("done.jsonl").read_bytes()
    Path("done.jsonl").write_bytes(content[:-20])
    assert pdrn(*COMMAND, "--overwrite").stderr.endswith("2 skipped, 1 restored\n")
    done = pdrn(*COMMAND)
    assert done.stderr.splitlines()[0] == "pdrn: done.jsonl: 1 unreadable lines are ignored"
    assert done.stderr.endswith("3 skipped\n")


@pytest.mark.parametrize(
    "damage", [b"\x00" * 90, b'{"output": 3}', b'{"output": "a"', b"[1]", b"[" * 200_000]
)
def test_lines_that_are_damaged_prove_nothing(folder, damage):
    head, first, *others = Path("done.jsonl").read_bytes().splitlines()
    assert b"in/a.wav" in first
    Path("done.jsonl").write_bytes(b"\n".join([head, damage, *others, b""]))
    os.remove("out/a_restored.wav")
    done = pdrn(*COMMAND)
    assert "1 unreadable lines" in done.stderr
    assert sorted(done.stderr.splitlines()[-1].split(", ")) == ["1 restored", "2 skipped"]


def test_a_checksum_that_is_damaged_proves_nothing(folder):
    row = json.loads(Path("done.jsonl").read_text().splitlines()[1])
    content = Path("done.jsonl").read_text().replace(row["target"], row["source"])
    Path("done.jsonl").write_text(content)
    assert statuses()[0] == 1


def test_another_file_is_no_manifest(folder):
    content = Path("in/a.wav").read_bytes()
    done = pdrn("restore", "in/b.wav", "-o", "b.wav", "--manifest", "in/a.wav", *QUICK)
    assert done.returncode == 1
    assert "in/a.wav is there already and no manifest; choose another name" in done.stderr
    assert Path("in/a.wav").read_bytes() == content
    assert not Path("b.wav").exists()


def test_two_runs_do_not_share_one(folder):
    with open_manifest("done.jsonl"), pytest.raises(LockedError), open_manifest("done.jsonl"):
        pass


def test_pipes_have_none(folder):
    done = pdrn("restore", "in/a.wav", "-o", "-", "--manifest", "new.jsonl")
    assert done.returncode == 2
    assert "--manifest is for files, and not for pipes" in " ".join(done.stderr.split())
    os.mkfifo("pipe")
    done = pdrn("restore", "pipe", "-o", "b.wav", "--manifest", "new.jsonl")
    assert "is no file that can be read twice; leave out the manifest" in done.stderr


def test_a_killed_run_goes_on_where_it_was(folder):
    expected = contents()
    shutil.rmtree("out")
    os.remove("done.jsonl")
    for number in range(20):
        os.link("in/a.wav", f"in/a{number:02}.wav")
    with started(*COMMAND, "--jobs", 2) as process:
        notes = Path("done.jsonl")
        wait_until(lambda: notes.exists() and notes.read_text().count("\n") > 3, 120)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    done = contents()
    assert all(content == expected.get(name, expected["a_restored.wav"]) for name, content in done.items())
    code, status = statuses()
    assert code == 0
    assert list(status.values()).count("skipped") >= 3
    assert len(contents()) == 23
