"""The way of a newcomer: the commands of README.md, from a clone to Table 2, on a small corpus."""

import glob
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import pdrn

from pdrn.audio.corpus import speech
from pdrn.audio.files import write

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

ROOT = Path(__file__).parents[1]
SECTION = (
    (ROOT / "README.md").read_text().split("## From a clone to the paper's Table 2\n")[1].split("\n## ")[0]
)
COMMANDS = "".join(re.findall(r"^```bash\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)).splitlines()

TINY = """
[architecture]
kind = "PrimalDual"
depth = 1
map = { kind = "ConvolutionalMap", channels = 8, window = 16, hop = 8 }

[start]
kind = "chambolle pock"

[data]
unit = "cell"
length = 2048
placing = "random"
measured_on = "files"
batches = 2

[optimiser]
batch_size = 4

[budget]
epochs = 1
"""


@pytest.fixture
def here(tmp_path, monkeypatch, tiny_models):
    """Work where `make demo` has left the speech, beside a dozen recordings."""
    samples, rate = speech()
    (tmp_path / "pdrn-demo").mkdir()
    write(tmp_path / "pdrn-demo/speech.wav", samples[: 2 * rate], rate)
    (tmp_path / "mine").mkdir()
    for number, part in enumerate(np.array_split(samples[: 12 * rate], 12)):
        write(tmp_path / f"mine/{number:02}.wav", part, rate)
    (tmp_path / "tiny.toml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_small_form(command):
    """Return the words of a command of README.md, for a small network and short frames."""
    command = re.sub(r"\$\(echo (\S+)\)", r"\1", command).replace("DIR", "mine")
    command = command.replace("train minute", "train tiny.toml --threads 1")
    if "reproduce" in command:
        command += " --frame-length 64"
    for word in shlex.split(command)[1:]:
        *before, pattern = word.split(",")
        yield ",".join([*before, *glob.glob(pattern)]) if "*" in pattern else word


def test_the_commands_of_the_readme_lead_to_table_2(here):
    printed = {}
    for command in COMMANDS:
        if command.startswith("pdrn "):
            result = pdrn(*in_small_form(command))
            assert result.returncode == 0, (command, result.stderr)
            printed[" ".join(command.split()[1:3])] = result.stdout
        else:
            assert command.split()[0] in ("make", "source", "pip"), command
    assert {"coarse_restored.wav", "coarse_by_mine.wav", "runs", "study"} <= {
        path.name for path in here.iterdir()
    }
    assert "cp:50" in printed["evaluate --corpus"]
    assert "runs/" in printed["evaluate --corpus"]
    assert "PDRN" in printed["reproduce table2"]
