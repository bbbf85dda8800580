"""The command line, as a user runs it."""

import json
import subprocess
import sys

import pytest
import soundfile

from pdrn.audio.sample import speech


def pdrn(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pdrn.app.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path):
    samples, rate = speech()
    for split, length in (("train", 3 * rate), ("dev", 1000), ("test", 3 * rate)):
        (tmp_path / split).mkdir()
        soundfile.write(tmp_path / split / "a.wav", samples[rate : rate + length], rate)
    return tmp_path


def test_help_names_the_commands():
    result = pdrn("--help")
    assert result.returncode == 0
    assert "demo" in result.stdout
    assert "evaluate" in result.stdout


def test_help_needs_none_of_the_heavy_modules():
    code = (
        "import sys\nfrom pdrn.app.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'torch', 'soundfile'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_the_demo_gains_at_every_bit_depth_and_stays_in_the_cells():
    result = pdrn("demo")
    assert result.returncode == 0
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [int(row[0]) for row in rows] == [4, 5, 6]
    for _, _, _, gain, outside, _ in rows:
        assert float(gain.removesuffix("dB ")) > 2
        assert outside.strip() == "by 0"


def test_evaluate_prints_one_json_object_per_method(folder):
    result = pdrn("evaluate", "--corpus", folder, "--methods", "qu,cp:5", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["method"] for row in rows] == ["qu", "cp:5"]
    assert rows[1]["ratio"] < rows[0]["ratio"] == 1.0


def test_evaluate_prints_a_table(folder):
    result = pdrn("evaluate", "--corpus", folder, "--methods", "qu")
    assert result.returncode == 0
    assert "SNR / dB" in result.stdout
    assert "1.000" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (["evaluate", "--corpus", "nowhere"], 1, "nowhere"),
        (["evaluate", "--corpus", "FOLDER", "--methods", "magic"], 1, "no method is called 'magic'"),
        (["evaluate", "--corpus", "FOLDER", "--split", "exam"], 1, "exam"),
        (["evaluate", "--corpus", "FOLDER", "--split", "dev"], 1, "dev split"),
        (["evaluate", "--corpus", "FOLDER", "--bits", "0"], 2, "--bits"),
        (["evaluate"], 2, "--corpus"),
        (["dance"], 2, "dance"),
    ],
)
def test_mistakes_get_one_sentence_and_no_traceback(folder, arguments, exit_code, reason):
    result = pdrn(*(folder if argument == "FOLDER" else argument for argument in arguments))
    assert result.returncode == exit_code
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
