"""The commands quantize, inspect, compare, models, demo and env."""

import json
import subprocess
import sys

import numpy as np
import pytest
from tests.cli.running import pdrn

from pdrn.audio.corpus import speech
from pdrn.audio.files import read, write
from pdrn.audio.quantizers import MidRise
from pdrn.cli import tools
from pdrn.restoration import registry

RATE = 16000


@pytest.fixture
def short_demo(monkeypatch):
    samples, rate = speech()
    monkeypatch.setattr("pdrn.audio.corpus.speech", lambda: (samples[190_000:230_000], rate))
    monkeypatch.setattr(tools, "_PICTURED", slice(3000, 3100))


def test_demo_gains_at_every_bit_depth(short_demo, no_models, tmp_path):
    result = pdrn("demo", "-o", tmp_path / "demo")
    assert result.returncode == 0
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [int(row[0]) for row in rows] == [4, 5, 6, 8]
    for row in rows:
        assert row[1].strip() == "cp"
        assert float(row[3]) > 2
        assert row[-2].strip() == "by 0"
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"speech.wav", "speech_5bits.wav", "speech_5bits_cp.wav", "cells.svg"} <= names
    assert (tmp_path / "demo" / "cells.svg").read_text().endswith("</svg>\n")
    assert "pdrn restore" in result.stdout


def test_demo_replaces_only_an_earlier_demo(short_demo, no_models, tmp_path):
    for _ in range(2):
        assert pdrn("demo", "-o", tmp_path / "demo").returncode == 0
    for content in (b"my precious", (tmp_path / "demo" / "speech_5bits.wav").read_bytes()):
        (tmp_path / "speech.wav").write_bytes(content)
        result = pdrn("demo", "-o", tmp_path)
        assert result.returncode == 1
        assert "speech.wav" in result.stderr
        assert (tmp_path / "speech.wav").read_bytes() == content


@pytest.mark.parametrize("name", ["speech_4bits.wav", "speech_8bits_cp.wav", "cells.svg"])
def test_demo_replaces_no_foreign_files(short_demo, no_models, tmp_path, name):
    (tmp_path / name).write_bytes(b"my precious")
    result = pdrn("demo", "-o", tmp_path)
    assert result.returncode == 1
    assert name in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"my precious"


def test_demo_names_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    said = pdrn("demo", "-o", tmp_path / "file").stderr
    assert said == f"pdrn: {tmp_path / 'file'} cannot be made: File exists; choose another place\n"


def test_demo_shows_network_and_solver(short_demo, tiny_models, tmp_path):
    result = pdrn("demo", "-o", tmp_path / "demo")
    assert result.returncode == 0
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [int(row[0]) for row in rows] == [4, 4, 5, 5, 6, 6, 8, 8]
    assert [row[1].strip() for row in rows] == 4 * ["speech-large", "cp"]
    assert {row[-2].strip() for row in rows} == {"by 0"}
    drawing = (tmp_path / "demo" / "cells.svg").read_text()
    assert drawing.count("<polyline") == 3
    assert "speech-large" in drawing


@pytest.mark.parametrize(
    "options", [["--bits", "5"], ["--bits", "20", "--kind", "mid-tread"], ["--law", "alaw"]]
)
def test_quantized_sound_can_be_restored(tmp_path, options):
    samples = speech()[0][: 3 * RATE]
    write(tmp_path / "a.wav", samples, RATE)
    assert pdrn("quantize", tmp_path / "a.wav", tmp_path / "b.wav", *options).returncode == 0
    assert pdrn("restore", tmp_path / "b.wav", *options[:2], "--verify").returncode == 0
    assert len(read(tmp_path / "b_restored.wav").samples) == 3 * RATE


def test_quantized_levels_are_exact(tmp_path):
    samples = np.random.default_rng(0).uniform(-1, 1, (2, 999))
    write(tmp_path / "a.wav", samples, RATE, subtype="DOUBLE")
    pdrn("quantize", tmp_path / "a.wav", tmp_path / "b.flac", "--bits", 15, "--clip-at", 0.5)
    quantized = MidRise(15).quantize(np.clip(samples, -0.5, 0.5))
    np.testing.assert_array_equal(read(tmp_path / "b.flac").samples, quantized)


def test_quantize_reports_samples_beyond_full_scale(tmp_path):
    write(tmp_path / "a.wav", np.array([0.5, 1.5, -1.0, -2.0]), RATE, subtype="FLOAT")
    for options, said in (((), "2 samples beyond full scale were cut off there\n"), (("--clip-at", 1), "")):
        done = pdrn("quantize", tmp_path / "a.wav", tmp_path / "b.wav", "--bits", 5, "--overwrite", *options)
        assert (done.returncode, done.stderr) == (0, said)


def test_inspect_describes_files(tiny_models, tmp_path):
    write(tmp_path / "a.wav", MidRise(5).quantize(0.5 * np.sin(np.arange(9999))), RATE, subtype="PCM_16")
    write(tmp_path / "b.wav", np.zeros(9), RATE, subtype="PCM_16")
    (tmp_path / "c.wav").touch()
    result = pdrn("inspect", "--json", *(tmp_path / f"{name}.wav" for name in "abc"))
    first, second = map(json.loads, result.stdout.splitlines())
    assert result.returncode == 1
    assert first["levels"] == "4 bits in use, mid-rise, a step of 0.0625"
    assert (first["peak"], first["frames"], first["advice"]) == (0.46875, 9999, None)
    assert (second["levels"], second["samples_at_peak"]) == ("16 bits", 9)
    assert (first["restored_by"], second["restored_by"]) == (
        "speech-large and Chambolle-Pock",
        "Chambolle-Pock",
    )
    assert "c.wav" in result.stderr
    assert "mid-rise" in pdrn("inspect", tmp_path / "a.wav").stdout


def test_compare_measures_against_the_reference(tmp_path, monkeypatch):
    samples = speech()[0][2 * RATE : 4 * RATE]
    for name, sound in (("a", samples), ("b", samples + 0.001), ("c", samples * 0.9)):
        write(tmp_path / f"{name}.wav", sound, RATE)
    files = [tmp_path / f"{name}.wav" for name in "abc"]
    rows = [json.loads(line) for line in pdrn("compare", "--json", files[0], *files).stdout.splitlines()]
    assert [row["file"] for row in rows] == [str(file) for file in files]
    assert rows[0]["snr_db"] is None
    assert rows[2]["snr_db"] == pytest.approx(20, abs=0.01)
    files[1] = files[1].rename(tmp_path / "[bold]b.wav")
    monkeypatch.chdir(tmp_path)
    table = pdrn("compare", "a.wav", "a.wav", files[1].name).stdout
    assert "inf" in table
    assert "[bold]b.wav" in table


def test_compare_refuses_other_lengths(tmp_path):
    write(tmp_path / "a.wav", np.zeros(10), RATE)
    write(tmp_path / "b.wav", np.zeros(11), RATE)
    result = pdrn("compare", tmp_path / "a.wav", tmp_path / "b.wav")
    assert result.returncode == 1
    assert "length" in result.stderr


def test_env_lists_versions():
    result = pdrn("env")
    assert {"pdrn", "numpy", "libsndfile", "cores"} <= {
        line.split()[0] for line in result.stdout.splitlines()
    }


def test_models_list_has_rate_size_and_latency(tiny_models):
    rows = [json.loads(line) for line in pdrn("models", "list", "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == ["speech-large", "speech-small", "universal"]
    assert [row["sample_rate_hz"] for row in rows] == [16000, 16000, None]
    assert rows[1]["stream_latency_ms"] == 1000 * 23 / 16000
    assert rows[1]["bytes"] == (tiny_models / "speech-small.safetensors").stat().st_size
    table = pdrn("models", "list").stdout
    assert "speech-large" in table
    assert "16000 Hz" in table
    assert "any" in table


def test_models_show_prints_the_card(tiny_models):
    assert pdrn("models", "show", "speech-large").stdout.startswith("# speech-large")
    other = pdrn("models", "show", "music")
    assert other.returncode == 1
    assert (
        other.stderr == "pdrn: no model is called 'music'; there are speech-large, speech-small, universal\n"
    )


def test_models_verify_finds_a_changed_file(tiny_models, tmp_path, monkeypatch):
    intact = "speech-large: intact\nspeech-small: intact\nuniversal: intact\n"
    assert pdrn("models", "verify").stdout == intact
    assert pdrn("models", "verify", "speech-small").stdout == "speech-small: intact\n"
    for file in tiny_models.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "speech-large.safetensors").write_bytes(b"other")
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    done = pdrn("models", "verify")
    assert (done.returncode, done.stdout) == (1, "speech-small: intact\nuniversal: intact\n")
    assert "install pdrn again" in done.stderr


@pytest.mark.parametrize("arguments", [["list"], ["verify"]])
def test_models_need_no_torch(arguments):
    program = "import sys\nsys.modules['torch'] = None\nfrom pdrn.cli.main import main\nmain()"
    subprocess.run([sys.executable, "-c", program, "models", *arguments], capture_output=True, check=True)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (["quantize", "a.wav", "b.wav"], 2, "pass either --bits or --law"),
        (
            ["quantize", "a.wav", "b.wav", "--law", "alaw", "--kind", "mid-rise"],
            2,
            "leave --kind or --law out",
        ),
        (["quantize", "a.wav", "b.wav", "--bits", "5", "--clip-at", "-1"], 2, "-1"),
        (["quantize", "a.wav", "b.wav", "--bits", "5"], 1, "a.wav cannot be opened"),
        (["compare", "a.wav"], 2, "FILE"),
        (["dance"], 2, "dance"),
    ],
)
def test_mistakes_get_one_sentence_and_no_traceback(arguments, exit_code, reason):
    result = pdrn(*arguments)
    assert result.returncode == exit_code
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
