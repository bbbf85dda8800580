"""``pdrn restore`` as a user runs it, and what happens when things go wrong."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from tests.cli.running import pdrn, run, started, wait_until

from pdrn.audio.corpus import speech
from pdrn.audio.files import RawFormat, read, write
from pdrn.audio.quantizers import MidRise
from pdrn.restoration.methods import describe_method
from pdrn.restoration.restorer import Restorer

RATE = 16000
SIGNAL = speech()[0][2 * RATE : 3 * RATE]
QUANTIZED = MidRise(5).quantize(SIGNAL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("a.wav", QUANTIZED, RATE, subtype="PCM_16")
    return tmp_path


@pytest.fixture
def long_folder(tmp_path, monkeypatch):
    """A file that takes some seconds."""
    monkeypatch.chdir(tmp_path)
    write("long.wav", np.tile(QUANTIZED, 60), RATE, subtype="PCM_16")
    return tmp_path


def expected():
    return Restorer().restore(QUANTIZED, RATE, bits=5)


def test_restores_one_file(folder):
    done = pdrn("restore", "a.wav", "--bits", 5)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("a.wav -> a_restored.wav: 5 bits, ")
    np.testing.assert_allclose(read("a_restored.wav").samples, expected(), atol=1e-7)


@pytest.mark.parametrize(
    ("source", "stored", "target", "options"),
    [
        ("b.wav", "PCM_U8", "c.wav", ("--subtype", "PCM_U8")),
        ("b.wav", "PCM_16", "c.wav", ("--subtype", "PCM_16")),
        ("b.flac", "PCM_24", "c.flac", ()),
    ],
)
def test_refuses_output_without_room_between_the_levels(folder, source, stored, target, options):
    noise = np.random.default_rng(0).normal(0, 1e-4, len(SIGNAL))
    write(source, SIGNAL + noise, RATE, subtype=stored)
    done = pdrn("restore", source, "-o", target, *options)
    assert done.returncode == 1
    assert "between the levels" in done.stderr
    assert ".wav" in done.stderr
    assert not os.path.exists(target)


def test_reports_clipped_samples(folder):
    write("b.wav", np.clip(SIGNAL, -0.1, 0.1), RATE, subtype="PCM_16")
    count = int((np.abs(read("b.wav").samples) >= 0.1 - 2**-15).sum())
    for threshold, said in ((0.1, f"({count} samples are)"), (0.2, "(no samples are)")):
        done = pdrn("restore", "b.wav", "-o", "c.wav", "--clip-at", threshold, "--overwrite")
        assert f"clipped at {threshold} {said}" in done.stderr
    assert json.loads(pdrn("restore", "b.wav", "--clip-at", 0.1, "--json").stdout)["clipped"] == count


def test_refuses_filename_beside_a_named_output(folder):
    done = pdrn("restore", "a.wav", "-o", "b.wav", "--filename", "{stem}-x{ext}")
    assert done.returncode == 2
    assert "b.wav" in done.stderr


@pytest.mark.parametrize(
    ("options", "method", "model"),
    [
        ([], "both", "speech-large"),
        (["--method", "network"], "network", "speech-large"),
        (["--model", "speech-small"], "both", "speech-small"),
        (["--model", "speech-small", "--method", "network"], "network", "speech-small"),
        (["--method", "cp"], "cp", None),
        (["--iterations", 2], "both", "speech-large"),
    ],
)
def test_reports_method_and_model(folder, tiny_models, options, method, model):
    done = pdrn("restore", "a.wav", "--json", *options)
    row = json.loads(done.stdout)
    assert (row["method"], row["model"]) == (method, model)
    done = pdrn("restore", "a.wav", "-o", "b.wav", *options)
    assert f"by {describe_method(method, model)}, " in done.stderr
    raw = pdrn("restore", "--raw", "--rate", RATE, "--bits", 5, "-", "-", *options)
    assert raw.stderr.startswith(f"restoring by {describe_method(method, model)}, at most ")
    assert pdrn("restore", "a.wav", "-o", "c.wav", "--quiet", *options).stderr == ""


@pytest.mark.parametrize(
    ("options", "exit_code", "reason"),
    [
        (["--model", "music"], 2, "there is no model or file 'music'; there are speech-large"),
        (["--method", "cp", "--model", "speech-large"], 2, "method cp takes no model"),
        (["--method", "network", "--iterations", 3], 2, "no iterations"),
        (["--method", "network", "--clip-at", 0.9], 1, "one width, and these differ; choose method cp"),
    ],
)
def test_refuses_models_that_do_not_fit(folder, tiny_models, options, exit_code, reason):
    done = pdrn("restore", "a.wav", *options)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert reason in " ".join(done.stderr.split())
    assert not (folder / "a_restored.wav").exists()


def test_json_report_with_verification(folder):
    done = pdrn("restore", "a.wav", "--json", "--verify")
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["status"], row["verified"], row["frames"], row["subtype"]) == (
        "restored",
        True,
        RATE,
        "FLOAT",
    )
    assert row["levels"] == "5 bits in use, mid-rise, a step of 0.0625"
    assert done.stderr == ""


def test_quiet_prints_nothing(folder):
    done = pdrn("restore", "a.wav", "--quiet")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("jobs", [1, 2])
def test_bad_file_stops_no_other(folder, jobs):
    for name in ("b.wav", "c.wav"):
        shutil.copy("a.wav", name)
    (folder / "b.wav").write_bytes(b"RIFFrubbish")
    done = run("restore", "a.wav", "b.wav", "c.wav", "-o", "new", "--bits", 5, "--jobs", jobs)
    assert done.returncode == 1
    assert sorted(os.listdir("new")) == ["a_restored.wav", "c_restored.wav"]
    assert "pdrn: b.wav" in done.stderr
    assert "Traceback" not in done.stderr
    counts = done.stderr.splitlines()[-1].split(", ")
    assert sorted(counts) == ["1 failed", "2 restored"]


def test_existing_output_needs_overwrite(folder):
    (folder / "a_restored.wav").write_text("mine")
    done = pdrn("restore", "a.wav", "--bits", 5)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert pdrn("restore", "a.wav", "--bits", 5, "--skip-existing").returncode == 0
    assert (folder / "a_restored.wav").read_text() == "mine"
    assert pdrn("restore", "a.wav", "--bits", 5, "--overwrite").returncode == 0
    assert len(read("a_restored.wav").samples) == RATE


@pytest.mark.parametrize("mix", [0, 1])
def test_mix_leads_from_input_to_restoration(folder, mix):
    pdrn("restore", "a.wav", "-o", "b.wav", "--bits", 5, "--mix", mix, "--subtype", "DOUBLE")
    np.testing.assert_array_equal(read("b.wav").samples, expected() if mix else QUANTIZED)


def test_restores_through_pipes(folder):
    content = (folder / "a.wav").read_bytes()
    done = run("restore", "-", "--bits", 5, "--quiet", input=content, text=False)
    assert (done.returncode, done.stderr) == (0, b"")
    (folder / "b.wav").write_bytes(done.stdout)
    np.testing.assert_allclose(read("b.wav").samples, expected(), atol=1e-7)


def test_raw_samples_are_restored_as_they_arrive(folder):
    raw, out = RawFormat("s16le"), RawFormat("f64le")
    settings = ("--rate", RATE, "--bits", 5, "--method", "cp", "--output-encoding", "f64le")
    with started("restore", "--raw", *settings, "-", "-", stdin=subprocess.PIPE) as process:
        process.stdin.write(raw.encode(QUANTIZED[None, :4000]))
        process.stdin.flush()
        early = process.stdout.read(8 * 1024)  # before the end of the input
        late, error = process.communicate(raw.encode(QUANTIZED[None, 4000:]))
    assert error == b"restoring by Chambolle-Pock, at most 92 ms behind the input\n"
    offline = Restorer(method="cp").restore(QUANTIZED, RATE, bits=5)
    np.testing.assert_allclose(out.decode(early + late)[0], offline, atol=1e-6)


def test_restores_raw_mulaw_files(folder):
    (folder / "in.raw").write_bytes(bytes(range(256)) * 4)
    arguments = (
        "restore",
        "--raw",
        "--rate",
        8000,
        "--encoding",
        "mulaw",
        "--channels",
        2,
        "in.raw",
        "out.raw",
    )
    assert pdrn(*arguments, "--quiet").returncode == 0
    assert len((folder / "out.raw").read_bytes()) == 1024 * 4
    again = pdrn(*arguments)
    assert again.returncode == 1
    assert "is there already" in again.stderr


def test_closed_standard_error_stops_nothing(folder):
    command = '"$0" -c "from pdrn.cli.main import main; main()" restore a.wav --bits 5 2>&-'
    assert subprocess.run(["bash", "-c", command, sys.executable], check=False).returncode == 0
    np.testing.assert_allclose(read("a_restored.wav").samples, expected(), atol=1e-7)


@pytest.fixture
def fifo(folder):
    """A named pipe that yields a.wav once."""
    os.mkfifo("pipe")
    with subprocess.Popen(["sh", "-c", "cat a.wav > pipe"]) as feeder:
        yield "pipe"
        feeder.kill()


def test_named_pipe_is_read_once(fifo):
    assert pdrn("restore", fifo, "-o", "b.wav", "--bits", 5).returncode == 0
    np.testing.assert_allclose(read("b.wav").samples, expected(), atol=1e-7)


def test_named_pipe_can_be_inspected(fifo):
    facts = json.loads(pdrn("inspect", "--json", fifo).stdout)
    assert (facts["frames"], facts["levels"]) == (RATE, "5 bits in use, mid-rise, a step of 0.0625")


def test_refuses_to_verify_a_named_pipe(fifo):
    done = pdrn("restore", fifo, "-o", "b.wav", "--bits", 5, "--verify")
    assert done.returncode == 1
    assert "verify" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["restore", "a.wav", "-o", "a.wav", "--bits", 5],
        ["restore", "--raw", "--rate", RATE, "--bits", 5, "a.wav", "a.wav"],
        ["restore", "--raw", "--rate", RATE, "--bits", 5, "a.wav", "link.wav"],
        ["quantize", "a.wav", "a.wav", "--bits", 3],
    ],
)
def test_input_is_never_replaced(folder, arguments):
    content = (folder / "a.wav").read_bytes()
    os.symlink("a.wav", "link.wav")
    done = pdrn(*arguments, "--overwrite")
    assert done.returncode == 1
    assert "input" in done.stderr
    assert (folder / "a.wav").read_bytes() == content


def test_input_by_standard_input_is_never_replaced(folder):
    content = (folder / "a.wav").read_bytes()
    with open("a.wav", "rb") as stdin:
        done = run("restore", "-", "-o", "a.wav", "--bits", 5, "--overwrite", stdin=stdin)
    assert done.returncode == 1
    assert (folder / "a.wav").read_bytes() == content


def test_wav_replaces_flac_for_clipped_sound(folder):
    write("c.flac", np.clip(9 * SIGNAL, -1, 1), RATE, subtype="PCM_16")
    refused = pdrn("restore", "c.flac", "-o", "d.flac", "--clip-at", 0.999)
    assert refused.returncode == 2
    assert "d.flac" in " ".join(refused.stderr.split())
    assert pdrn("restore", "c.flac", "--clip-at", 0.999).returncode == 0
    assert np.abs(read("c_restored.wav").samples).max() > 1


def test_gaps_are_filled_with_the_option(folder):
    damaged = QUANTIZED.copy()
    damaged[11000:11032] = np.nan
    soundfile.write("g.wav", damaged, RATE, subtype="FLOAT")
    refused = pdrn("restore", "g.wav", "--bits", 5)
    assert refused.returncode == 1
    assert "frame 11000 of channel 0 is NaN" in refused.stderr
    assert pdrn("restore", "g.wav", "--bits", 5, "--gaps", "--verify").returncode == 0
    gap = slice(11000, 11032)
    error = read("g_restored.wav").samples[gap] - SIGNAL[gap]
    assert (error**2).mean() < 0.2 * (SIGNAL[gap] ** 2).mean()
    damaged.astype("<f4").tofile("g.raw")
    raw = ("--raw", "--rate", RATE, "--bits", 5, "--encoding", "f32le", "g.raw", "h.raw")
    refused = pdrn("restore", *raw)
    assert refused.returncode == 1
    assert "a sample is NaN" in refused.stderr
    assert pdrn("restore", *raw, "--gaps", "--overwrite").returncode == 0
    error = np.fromfile("h.raw", "<f4")[gap] - SIGNAL[gap]
    assert (error**2).mean() < 0.2 * (SIGNAL[gap] ** 2).mean()


def test_names_a_missing_input_first(folder):
    done = pdrn("restore", "nothere/", "-o", "new")
    assert done.returncode == 1
    assert "nothere" in done.stderr
    assert "format" not in done.stderr


def test_raw_samples_have_the_cells_of_a_file(folder):
    clipped = np.clip(3 * SIGNAL / np.abs(SIGNAL).max(), -0.9, 0.9)
    write("c.wav", clipped, RATE, subtype="PCM_16")
    (folder / "c.raw").write_bytes(RawFormat("s16le").encode(read("c.wav").samples[None]))
    assert pdrn("restore", "c.wav", "-o", "d.wav", "--clip-at", 0.9).returncode == 0
    assert pdrn("restore", "--raw", "--rate", RATE, "--clip-at", 0.9, "c.raw", "d.raw").returncode == 0
    restored = RawFormat("f32le").decode((folder / "d.raw").read_bytes())
    np.testing.assert_allclose(restored[0], read("d.wav").samples, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (["a.wav", "--bits", 5, "--step", 0.1], 2, "bits and step exclude each other"),
        (["a.wav", "--bits", 0], 2, "--bits"),
        (["a.wav", "--mix", 1.5], 2, "--mix"),
        (["a.wav", "--law", "blaw"], 2, "--law"),
        (["a.wav", "--overwrite", "--skip-existing"], 2, "contradicts --skip-existing"),
        (["a.wav", "--rate", 8000], 2, "--rate is for raw samples; add --raw"),
        (["a.wav", "-o", "-", "--json"], 2, "standard output carries the sound"),
        (["a.wav", "-", "--bits", 5], 2, "standard input is one sound"),
        (["--raw", "-"], 2, "pass --rate"),
        (["--raw", "--rate", 8000, "--verify", "-"], 2, "--verify is for files; leave it or --raw out"),
        (["--raw", "--rate", 8000, "--output-encoding", "alaw", "-"], 2, "G.711 is too coarse"),
        (
            ["--raw", "--rate", 8000, "--bits", 16, "--output-encoding", "s16le", "-"],
            1,
            "nothing can be restored; choose another --output-encoding",
        ),
        (["--raw", "--rate", 8000, "a", "b", "c"], 2, "takes INPUT and OUTPUT"),
        (["a.wav", "--channels", 1], 2, "--channels is for raw samples; add --raw"),
        (["a.wav", "--output-encoding", "f32le"], 2, "--output-encoding is for raw samples; add --raw"),
        (["a.wav", "-o", "-", "--verify"], 2, "--verify is for files, and not for pipes; leave it out"),
        (["--raw", "--rate", 8000, "-"], 2, "a stream cannot be detected"),
        (["--raw", "--rate", 8000, "--bits", 5, "absent.raw"], 1, "absent.raw cannot be opened"),
        (["a.wav/b.wav"], 1, "a.wav/b.wav cannot be opened: Not a directory"),
        (["absent.wav"], 1, "absent.wav cannot be opened"),
        (["a.wav", "--bits", 4], 1, "is no level of 4 bits"),
        (["a.wav", "--bits", 5, "-o", "absent/b.wav"], 1, "No such file or directory"),
        (["a.wav", "--bits", 5, "-o", "b.mp3"], 2, "has no suffix that can be written"),
        (["a.wav", "--bits", 5, "-o", "b.flac", "--subtype", "FLOAT"], 2, "hold FLOAT and cannot"),
    ],
)
def test_mistakes_get_one_sentence(folder, arguments, exit_code, reason):
    done = pdrn("restore", *arguments)
    assert done.returncode == exit_code
    assert reason in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert os.listdir(folder) == ["a.wav"]


def is_writing(process):
    """Return whether a process has an output open, which has no name yet."""
    with suppress(OSError):  # the process is gone
        for name in os.listdir(f"/proc/{process.pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                if "(deleted)" in os.readlink(f"/proc/{process.pid}/fd/{name}"):
                    return True
    return False


@pytest.mark.parametrize(
    ("sign", "exit_code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_signals_leave_no_files(long_folder, sign, exit_code):
    with started("restore", "long.wav", "--bits", 5) as process:
        wait_until(lambda: is_writing(process))
        process.send_signal(sign)
        _, error = process.communicate(timeout=20)
    assert process.returncode == exit_code
    assert b"Traceback" not in error
    assert os.listdir(long_folder) == ["long.wav"]


@pytest.fixture
def batch(long_folder):
    """A command with more files than processes."""
    names = ["long.wav", *(f"long{number}.wav" for number in range(2, 5))]
    for name in names[1:]:
        os.link("long.wav", name)
    return ("restore", *names, "-o", "new", "--bits", 5, "--jobs", 2)


def children(process):
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as pids:
        return [SimpleNamespace(pid=int(pid)) for pid in pids.read().split()]


def working(process):
    """Return the busy children."""
    return [child for child in children(process) if is_writing(child)]


@pytest.mark.parametrize(("sign", "exit_code"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_signal_to_the_group_stops_all_jobs(batch, sign, exit_code):
    with started(*batch, start_new_session=True) as process:
        wait_until(lambda: len(working(process)) == 2)
        os.killpg(process.pid, sign)
        output, error = process.communicate(timeout=20)
    assert process.returncode == exit_code
    assert (output, error) == (b"", b"")
    assert os.listdir("new") == []


def test_sigint_stops_starting_jobs(batch):
    with started(*batch, start_new_session=True) as process:
        wait_until(lambda: len(children(process)) == 3)  # with the resource tracker
        os.killpg(process.pid, signal.SIGINT)
        output, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (output, error) == (b"", b"")


def test_jobs_end_with_their_parent(batch):
    with started(*batch) as process:
        wait_until(lambda: len(working(process)) == 2)
        process.kill()
        process.communicate(timeout=60)  # until the last of them has closed standard error
    assert os.listdir("new") == []


@pytest.mark.slow
def test_killed_job_is_named_and_stops_no_other(batch):
    with started(*batch, "--method", "cp", "--iterations", 1) as process:
        wait_until(lambda: working(process))
        os.kill(working(process)[0].pid, signal.SIGKILL)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.count(b"its worker was killed; is memory short? try fewer jobs") == 1
    assert b"Traceback" not in error
    assert len(os.listdir("new")) == 3


def test_closed_report_pipe_stops_no_file(folder):
    shutil.copy("a.wav", "b.wav")
    reading, writing = os.pipe()
    os.close(reading)
    arguments = ("restore", "a.wav", "b.wav", "--bits", 5, "--json")
    done = run(*arguments, stdout=writing, stderr=subprocess.PIPE, capture_output=False)
    os.close(writing)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "Broken pipe" in done.stderr
    assert sorted(os.listdir(folder)) == ["a.wav", "a_restored.wav", "b.wav", "b_restored.wav"]


def test_full_disk_is_named_and_leaves_nothing(folder):
    limited = "ulimit -f 8; exec \"$0\" -c 'from pdrn.cli.main import main; main()' restore a.wav --bits 5"
    done = subprocess.run(
        ["bash", "-c", limited, os.sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "disk" in done.stderr
    assert done.stderr.count("\n") == 1
    assert os.listdir(folder) == ["a.wav"]


@pytest.mark.parametrize("room", [8000, 63000])  # of 64000 bytes; the last 8192 are in Python's own buffer
def test_full_disk_leaves_no_raw_samples(folder, room):
    (folder / "in.raw").write_bytes(RawFormat("s16le").encode(QUANTIZED[None]))
    done = run(
        *("restore", "--raw", "--rate", RATE, "--bits", 5, "--quiet", "in.raw", "out.raw"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    assert done.returncode == 1
    assert done.stderr == "pdrn: out.raw cannot be written: File too large; choose another place\n"
    assert sorted(os.listdir(folder)) == ["a.wav", "in.raw"]


@pytest.mark.slow
def test_vanished_folder_is_named(long_folder):
    os.mkdir("new")
    with started("restore", "long.wav", "-o", "new/b.wav", "--bits", 5) as process:
        wait_until(lambda: is_writing(process))
        os.rmdir("new")
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"No such file or directory" in error
    assert error.count(b"\n") == 1
    assert os.listdir(long_folder) == ["long.wav"]


def test_two_simultaneous_runs_lose_nothing(long_folder):
    arguments = ("restore", "long.wav", "-o", "b.wav", "--bits", 5, "--method", "cp", "--iterations", 1)
    with started(*arguments) as one, started(*arguments) as other:
        codes = sorted((one.wait(60), other.wait(60)))
    assert codes == [0, 1]
    assert len(read("b.wav").samples) == 60 * RATE
    assert sorted(os.listdir(long_folder)) == ["b.wav", "long.wav"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may read anything")
def test_unreadable_file_is_named(folder):
    os.chmod("a.wav", 0)
    done = pdrn("restore", "a.wav", "--bits", 5)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr


def test_closed_output_pipe_is_named(folder):
    reading, writing = os.pipe()
    os.close(reading)
    (folder / "in.raw").write_bytes(bytes(99999))
    arguments = ("restore", "--raw", "--rate", 8000, "--bits", 5, "--quiet", "in.raw", "-")
    done = run(*arguments, stdout=writing, stderr=subprocess.PIPE, capture_output=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == "pdrn: standard output cannot be written: Broken pipe; name a file\n"


def test_control_characters_in_names_are_escaped(tmp_path):
    for i in range(21):
        (tmp_path / f"{i}\x1b[31m.wav").write_bytes(b"no sound")
    result = pdrn("restore", tmp_path, "-o", tmp_path / "new", "--recursive")
    assert result.returncode == 1
    assert "failed: " in result.stderr
    assert "\x1b" not in result.stderr
