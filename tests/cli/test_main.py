"""The command line as a whole: help, versions, exit codes, signals."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.cli.running import COMMAND, pdrn

from pdrn.audio.corpus import speech
from pdrn.audio.files import write
from pdrn.audio.quantizers import MidRise
from pdrn.cli import main as cli
from pdrn.errors import InputError, MissingDependencyError, StorageError, UsageError

ROOT = Path(__file__).parents[2]
RATE = 16000


def test_help_lists_the_commands():
    result = pdrn("--help")
    assert result.returncode == 0
    for command in (
        "restore",
        "quantize",
        "inspect",
        "compare",
        "models",
        "demo",
        "evaluate",
        "train",
        "reproduce",
        "report",
        "env",
    ):
        assert f"  {command} " in result.stdout


def test_help_imports_no_heavy_modules():
    code = (
        "import sys\nfrom pdrn.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'torch', 'soundfile'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_reference_equals_help():
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_cli_docs.py"], capture_output=True, text=True, check=True
    )
    assert made.stdout == (ROOT / "docs" / "cli.md").read_text(), "run: make docs"


def test_version_is_printed():
    result = pdrn("--version")
    assert result.returncode == 0
    assert result.stdout == f"pdrn {version('pdrn')}\n"


def test_unencodable_names_are_escaped(tmp_path):
    write(tmp_path / "\u00fc.wav", MidRise(5).quantize(speech()[0][:RATE]), RATE)
    command = [*COMMAND, "inspect", tmp_path / "\u00fc.wav"]
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xfc.wav" in done.stdout


@pytest.mark.parametrize(("sign", "exit_code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_signal_that_surfaces_as_another_error_ends_the_command(sign, exit_code):
    code = (
        "import os, signal\nfrom pdrn.cli import main as cli\n"
        "def work():\n"
        f"    try: os.kill(os.getpid(), signal.{sign}); signal.pause()\n"
        "    finally: raise AttributeError('in the midst of an import')\n"
        "cli.app = work\ncli.main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (exit_code, "")


def test_sigint_during_import_ends_the_command():
    code = (
        "import sys\nclass Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\nfrom pdrn.__main__ import main\nmain()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "")


def test_help_has_sections_and_uncut_summaries():
    text = pdrn("restore", "--help").stdout
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Arguments:", "Options:", "Levels:", "Many files:", "Workers:", "Raw samples:"]
    everyday, levels = text.partition("Options:")[2].split("Many files:")[0].split("Levels:")
    assert "--output" in everyday
    assert "--step" in levels
    assert "..." not in pdrn("--help").stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (InputError("a cause; a remedy"), 1),
        (StorageError("a cause; a remedy"), 1),
        (MissingDependencyError("a cause; a remedy"), 1),
        (UsageError("a cause; a remedy"), 2),
    ],
)
def test_pdrn_errors_are_one_sentence_and_an_exit_code(monkeypatch, error, exit_code):
    def fail():
        raise error

    monkeypatch.setattr(cli, "app", fail)
    result = pdrn()
    assert (result.returncode, result.stderr) == (exit_code, "pdrn: a cause; a remedy\n")


@pytest.mark.parametrize("error", [ValueError, OSError, KeyError, ImportError])
def test_other_errors_are_raised(monkeypatch, error):
    def fail():
        raise error("a bug")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(error, match="a bug"):
        pdrn()
