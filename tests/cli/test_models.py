"""``pdrn models`` as a user runs it."""

import json
import subprocess
import sys

import pytest
from tests.cli.running import pdrn

from pdrn.restoration import registry


def test_the_list_names_rate_size_and_latency(tiny_models):
    rows = [json.loads(line) for line in pdrn("models", "list", "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == ["speech-large", "speech-small"]
    assert rows[1]["sample_rate_hz"] == 16000
    assert rows[1]["stream_latency_samples"] == 23
    assert rows[1]["bytes"] == (tiny_models / "speech-small.safetensors").stat().st_size
    table = pdrn("models", "list").stdout
    assert "speech-large" in table
    assert "16000 Hz" in table


def test_a_card_is_shown(tiny_models):
    assert pdrn("models", "show", "speech-large").stdout.startswith("# speech-large")
    other = pdrn("models", "show", "music")
    assert other.returncode == 1
    assert other.stderr == "pdrn: no model is called 'music'; there are speech-large, speech-small\n"


def test_files_are_verified(tiny_models, tmp_path, monkeypatch):
    assert pdrn("models", "verify").stdout == "speech-large: as shipped\nspeech-small: as shipped\n"
    assert pdrn("models", "verify", "speech-small").stdout == "speech-small: as shipped\n"
    for file in tiny_models.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "speech-large.safetensors").write_bytes(b"other")
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    done = pdrn("models", "verify")
    assert (done.returncode, done.stdout) == (1, "speech-small: as shipped\n")
    assert "install pdrn again" in done.stderr


@pytest.mark.parametrize("arguments", [["list"], ["verify"]])
def test_it_needs_no_torch(arguments):
    program = "import sys\nsys.modules['torch'] = None\nfrom pdrn.cli.main import main\nmain()"
    subprocess.run([sys.executable, "-c", program, "models", *arguments], capture_output=True, check=True)
