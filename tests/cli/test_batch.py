"""Many files: the plan, the manifest, one file of a batch."""

import errno
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import get_args
from unittest import mock

import pytest
from tests.cli.running import pdrn, run, started, wait_until
from tests.cli.test_restore import QUANTIZED, RATE

from pdrn.audio.detection import QuantizerOptions
from pdrn.audio.files import _BYTES, write
from pdrn.audio.quantizers import LAWS
from pdrn.cli import batch
from pdrn.cli.batch import Job, Settings, open_manifest, plan, restore_one
from pdrn.cli.options import TEMPLATE, Law, Subtype
from pdrn.errors import AudioError, LockedError, UsageError
from pdrn.restoration.restorer import Restorer

QUICK = ("--bits", 5, "--method", "cp", "--iterations", 1)
COMMAND = ("restore", "in", "-o", "out", "--manifest", "done.jsonl", *QUICK)
SETTINGS = Settings(Restorer(method="cp", iterations=1), QuantizerOptions(bits=5))


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.wav", "b.flac", "c.ogg", "notes.txt", "deep/d.wav", "deep/deeper/e.aiff"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    return tmp_path


def planned(*inputs, output=None, template=TEMPLATE, recursive=False, subtype=None):
    return {job.source: job.target for job in plan(inputs, output, template, recursive, subtype)}


def test_default_output_is_beside_the_input(tree):
    assert planned("deep/d.wav") == {"deep/d.wav": "deep/d_restored.wav"}


def test_output_is_a_file_for_one_input_and_a_folder_for_several(tree):
    assert planned("a.wav", output="x.wav") == {"a.wav": "x.wav"}
    assert planned("a.wav", output="deep") == {"a.wav": "deep/a_restored.wav"}
    assert planned("a.wav", output="new/") == {"a.wav": "new/a_restored.wav"}
    assert planned("a.wav", "b.flac", output="new") == {
        "a.wav": "new/a_restored.wav",
        "b.flac": "new/b_restored.flac",
    }
    assert planned("missing.wav", output="x.wav") == {"missing.wav": "x.wav"}


def test_folders_are_mirrored(tree):
    assert planned(".", output="new") == {
        "a.wav": "new/a_restored.wav",
        "b.flac": "new/b_restored.flac",
        "c.ogg": "new/c_restored.wav",
    }
    assert (
        planned(".", output="new", recursive=True)["deep/deeper/e.aiff"] == "new/deep/deeper/e_restored.aiff"
    )
    assert planned("deep", output="new", recursive=True)["deep/d.wav"] == "new/d_restored.wav"


def test_globs_are_expanded(tree):
    assert list(planned("*.*a*")) == ["a.wav", "b.flac"]
    assert list(planned("**/*.wav", recursive=True)) == ["a.wav", "deep/d.wav"]


def test_existing_name_with_brackets_is_no_glob(tree):
    Path("a[1].wav").touch()
    assert list(planned("a[1].wav")) == ["a[1].wav"]


def test_folder_skips_outputs_of_an_earlier_run(tree):
    Path("a_restored.wav").touch()
    assert "a_restored.wav" not in planned(".")


@pytest.mark.parametrize("second", ["a_restored.wav", "./a_restored.wav", "deep/../a_restored.wav"])
def test_refuses_named_input_that_is_an_output(tree, second):
    Path("a_restored.wav").touch()
    with pytest.raises(UsageError, match=r"a\.wav"):
        planned("a.wav", second)
    assert len(planned("a.wav", second, output="new")) == 2


def test_template_names_outputs(tree):
    assert planned("a.wav", template="{stem}.new{ext}") == {"a.wav": "a.new.wav"}


def test_wav_replaces_flac_if_it_cannot_hold_the_subtype(tree):
    assert planned("b.flac", subtype="FLOAT") == {"b.flac": "b_restored.wav"}
    assert planned("b.flac", subtype="PCM_16") == {"b.flac": "b_restored.flac"}


def test_pipes(tree):
    assert plan(["-"], None, TEMPLATE, False, None) == [Job("-", "-")]
    assert planned("-", output="x.wav") == {"-": "x.wav"}
    assert planned("a.wav", output="-") == {"a.wav": "-"}


@pytest.mark.parametrize(
    ("inputs", "options", "error", "reason"),
    [
        (["-", "a.wav"], {}, UsageError, "standard input is one sound"),
        (["a.wav", "b.flac"], {"output": "a.wav"}, UsageError, "a.wav is a file; name a folder"),
        (["a.wav", "b.flac"], {"output": "many.wav"}, UsageError, "many.wav is a file; name a folder"),
        (["a.wav"], {"output": "b.mp3"}, UsageError, "no suffix that can be written"),
        (["-"], {"output": "b.mp3"}, UsageError, "no suffix that can be written"),
        (["a.wav"], {"template": "{stem}.mp3"}, UsageError, "no suffix that can be written"),
        (["a.wav"], {"template": "{stem.__class__}{ext}"}, UsageError, "has the fields"),
        (["a.wav", "b.flac"], {"output": "-"}, UsageError, "only one file can go to standard output"),
        (
            ["a.wav", "deep/../a.wav", "b.flac"],
            {"output": "n", "template": "x{ext}"},
            UsageError,
            "would both become",
        ),
        (["a.wav"], {"template": "{name}"}, UsageError, "has the fields {stem} and {ext}"),
        (["a.wav"], {"template": "{stem"}, UsageError, "has the fields"),
        (["a.wav"], {"template": "{stem:{name}}{ext}"}, UsageError, "has the fields"),
        (["a.wav"], {"template": "{stem:>2000000000}{ext}"}, UsageError, "has the fields"),
        (["a.wav"], {"template": "{stem!r}{ext}"}, UsageError, "has the fields"),
        (["a.wav"], {"template": f"..{os.sep}{{stem}}"}, UsageError, "no folder"),
        (["*.mp3"], {}, UsageError, "matches no file"),
        (["empty"], {}, UsageError, "holds no sound files; --recursive looks into its folders too"),
    ],
)
def test_refuses_impossible_plans(tree, inputs, options, error, reason):
    Path("empty").mkdir()
    with pytest.raises(error, match=reason):
        planned(*inputs, **options)


def test_literals_match_the_audio_package():
    assert set(get_args(Subtype)) == set(_BYTES)
    assert set(get_args(Law)) == set(LAWS)


@pytest.fixture
def job(tmp_path):
    write(tmp_path / "a.wav", QUANTIZED, RATE, subtype="PCM_16")
    return Job(str(tmp_path / "a.wav"), str(tmp_path / "b.wav"))


@pytest.mark.parametrize(
    ("number", "transient"),
    [(errno.EIO, True), (errno.ESTALE, True), (errno.ENOSPC, False), (errno.ENOENT, False)],
)
def test_only_transient_errors_are_retried(job, monkeypatch, number, transient):
    def fails(*_, **__):
        try:
            raise OSError(number, "no")
        except OSError as error:
            raise AudioError("it cannot be read") from error

    monkeypatch.setattr(batch.Restorer, "restore_file", fails)
    outcome = restore_one(job, SETTINGS)
    assert (outcome.status, outcome.transient) == ("failed", transient)


def test_bad_file_is_not_transient(job):
    with open(job.source, "wb") as file:
        file.write(b"RIFFrubbish")
    outcome = restore_one(job, SETTINGS)
    assert (outcome.status, outcome.transient) == ("failed", False)


def test_retry_accepts_a_correct_output_of_a_killed_worker(job):
    again = Job(job.source, job.target, is_retry=True)
    assert restore_one(job, SETTINGS).status == "restored"
    assert restore_one(job, SETTINGS).status == "failed"
    outcome = restore_one(again, SETTINGS)
    assert (outcome.status, outcome.report.output) == ("restored", job.target)
    with open(job.target, "ab") as file:
        file.write(b"more")
    assert "is there already, and not what" in restore_one(again, SETTINGS).error


@pytest.fixture
def manifested(tmp_path, monkeypatch):
    """Three short sounds, restored once with a manifest."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("in")
    for number, name in enumerate("abc"):
        write(f"in/{name}.wav", QUANTIZED[1000 * number :], RATE, subtype="PCM_16")
    assert pdrn(*COMMAND).returncode == 0
    return tmp_path


def statuses(*options):
    """Run the command again; return the exit code and the status of each input."""
    done = pdrn(*COMMAND, "--json", *options)
    rows = map(json.loads, done.stdout.splitlines())
    return done.returncode, {Path(row["input"]).stem: row["status"] for row in rows}


def contents():
    return {path.name: path.read_bytes() for path in Path("out").iterdir()}


def test_proven_outputs_are_skipped(manifested):
    before, lines = os.stat("out/a_restored.wav"), Path("done.jsonl").read_text()
    assert statuses() == (0, {"a": "skipped", "b": "skipped", "c": "skipped"})
    assert os.stat("out/a_restored.wav") == before
    assert Path("done.jsonl").read_text() == lines


def test_proven_outputs_are_skipped_despite_overwrite(manifested):
    assert statuses("--overwrite") == (0, {"a": "skipped", "b": "skipped", "c": "skipped"})


def test_manifest_moves_with_the_outputs(manifested, tmp_path):
    os.mkdir("elsewhere")
    shutil.move("out", "elsewhere/out")
    shutil.move("done.jsonl", "elsewhere/done.jsonl")
    moved = ("restore", "in", "-o", "elsewhere/out", "--manifest", "elsewhere/done.jsonl")
    assert pdrn(*moved, *QUICK).stderr.endswith("3 skipped\n")


def test_missing_output_is_restored_again(manifested):
    before = contents()
    os.remove("out/b_restored.wav")
    assert statuses() == (0, {"a": "skipped", "b": "restored", "c": "skipped"})
    assert contents() == before


def test_changed_output_is_refused_or_overwritten(manifested):
    before = contents()
    Path("out/b_restored.wav").write_bytes(b"mine")
    done = pdrn(*COMMAND)
    assert done.returncode == 1
    assert "out/b_restored.wav" in done.stderr
    assert Path("out/b_restored.wav").read_bytes() == b"mine"
    assert statuses("--overwrite") == (0, {"a": "skipped", "b": "restored", "c": "skipped"})
    assert contents() == before


def test_changed_input_is_refused_or_overwritten(manifested):
    shutil.copy("in/a.wav", "in/b.wav")
    code, status = statuses()
    assert (code, status["b"]) == (1, "failed")
    assert statuses("--overwrite") == (0, {"a": "skipped", "b": "restored", "c": "skipped"})
    assert contents()["b_restored.wav"] == contents()["a_restored.wav"]


@pytest.mark.parametrize("options", [("--mix", 0.5), ("--iterations", 2), ("--subtype", "PCM_24")])
def test_output_of_other_options_is_refused_without_restoring(manifested, options):
    before = contents()
    with mock.patch("pdrn.cli.batch.Restorer.restore_file") as restore_file:
        assert set(statuses(*options)[1].values()) == {"failed"}
    restore_file.assert_not_called()
    assert contents() == before
    assert set(statuses(*options, "--overwrite")[1].values()) == {"restored"}
    assert set(statuses(*options)[1].values()) == {"skipped"}


def test_output_of_other_weights_is_refused(manifested, tiny_folder):
    learned = ("restore", "in", "-o", "new", "--manifest", "new.jsonl", "--bits", 5, "--model", "net")
    shutil.copy(tiny_folder / "speech-large.safetensors", "net")
    assert pdrn(*learned).returncode == 0
    assert pdrn(*learned).stderr.endswith("3 skipped\n")
    shutil.copy(tiny_folder / "speech-small.safetensors", "other")
    os.replace("other", "net")
    assert run(*learned).returncode == 1  # a new process, which has not cached the weights


def test_unnoted_output_is_compared_with_a_new_one(manifested):
    """As if the process was killed between writing the output and noting it."""
    lines = Path("done.jsonl").read_text().splitlines(keepends=True)
    Path("done.jsonl").write_text("".join(lines[:2]))
    Path("out/c_restored.wav").write_bytes(b"mine")
    assert statuses() == (1, {"a": "skipped", "b": "restored", "c": "failed"})
    assert Path("out/c_restored.wav").read_bytes() == b"mine"
    assert len(Path("done.jsonl").read_text().splitlines()) == 3
    assert statuses("--skip-existing") == (0, {"a": "skipped", "b": "skipped", "c": "skipped"})


def test_truncated_last_line_is_ignored(manifested):
    content = Path("done.jsonl").read_bytes()
    Path("done.jsonl").write_bytes(content[:-20])
    assert pdrn(*COMMAND, "--overwrite").stderr.endswith("2 skipped, 1 restored\n")
    done = pdrn(*COMMAND)
    assert done.stderr.splitlines()[0] == "pdrn: done.jsonl: 1 unreadable lines are ignored"
    assert done.stderr.endswith("3 skipped\n")


@pytest.mark.parametrize(
    "damage", [b"\x00" * 90, b'{"output": 3}', b'{"output": "a"', b"[1]", b"[" * 200_000]
)
def test_damaged_lines_prove_nothing(manifested, damage):
    head, first, *others = Path("done.jsonl").read_bytes().splitlines()
    assert b"in/a.wav" in first
    Path("done.jsonl").write_bytes(b"\n".join([head, damage, *others, b""]))
    os.remove("out/a_restored.wav")
    done = pdrn(*COMMAND)
    assert "1 unreadable lines" in done.stderr
    assert sorted(done.stderr.splitlines()[-1].split(", ")) == ["1 restored", "2 skipped"]


def test_damaged_checksum_proves_nothing(manifested):
    row = json.loads(Path("done.jsonl").read_text().splitlines()[1])
    content = Path("done.jsonl").read_text().replace(row["target"], row["source"])
    Path("done.jsonl").write_text(content)
    assert statuses()[0] == 1


def test_refuses_a_file_that_is_no_manifest(manifested):
    content = Path("in/a.wav").read_bytes()
    done = pdrn("restore", "in/b.wav", "-o", "b.wav", "--manifest", "in/a.wav", *QUICK)
    assert done.returncode == 1
    assert "in/a.wav" in done.stderr
    assert Path("in/a.wav").read_bytes() == content
    assert not Path("b.wav").exists()


def test_manifest_is_locked(manifested):
    with open_manifest("done.jsonl"), pytest.raises(LockedError), open_manifest("done.jsonl"):
        pass


def test_refuses_a_manifest_of_pipes(manifested):
    done = pdrn("restore", "in/a.wav", "-o", "-", "--manifest", "new.jsonl")
    assert done.returncode == 2
    assert "--manifest" in " ".join(done.stderr.split())
    os.mkfifo("pipe")
    done = pdrn("restore", "pipe", "-o", "b.wav", "--manifest", "new.jsonl")
    assert "manifest" in done.stderr


def test_killed_run_resumes(manifested):
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


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (
            ("--engine", "ray", "--address", "127.0.0.1:1"),
            1,
            "no Ray answers at 127.0.0.1:1; start one there",
        ),
        (("--engine", "ray", "--address", "nonsense"), 1, "a cluster's address is HOST:PORT, or auto"),
        (("--address", "auto"), 2, "--address is for a Ray cluster; add --engine ray"),
        (("--engine", "ray", "-o", "-"), 2, "--engine is for files, and not for pipes; leave it out"),
        (("--engine", "ray", "--raw", "--rate", 8000), 2, "--engine is for files; leave it or --raw out"),
    ],
)
def test_refuses_bad_cluster_options(manifested, options, code, reason):
    done = pdrn("restore", "in/a.wav", *options)
    assert done.returncode == code
    assert reason in " ".join(done.stderr.split())


def test_names_the_extra_if_ray_is_missing(manifested, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = pdrn("restore", "in/a.wav", "--engine", "ray")
    assert (done.returncode, done.stderr) == (1, "pdrn: Ray is not installed: pip install 'pdrn[ray]'\n")


def test_bug_in_one_file_shows_its_traceback_and_stops_no_other(manifested, monkeypatch):
    original = batch.Restorer.restore_file

    def fails_once(restorer, source, *arguments, **options):
        if source == "in/b.wav":
            raise ZeroDivisionError("a bug")
        return original(restorer, source, *arguments, **options)

    monkeypatch.setattr(batch.Restorer, "restore_file", fails_once)
    done = pdrn("restore", "in", "-o", "other", *QUICK)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError: a bug" in done.stderr
    assert sorted(os.listdir("other")) == ["a_restored.wav", "c_restored.wav"]
    assert sorted(done.stderr.splitlines()[-1].split(", ")) == ["1 failed", "2 restored"]
