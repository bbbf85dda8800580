"""README.md does what it says."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_code_runs(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out) < 0.1


def test_the_tree_names_what_exists():
    tree = README.split("## What is where\n\n```\n")[1].split("```")[0]
    root = Path(__file__).parents[1]
    for line in tree.splitlines():
        name = line.split()[0]
        inside = root / "src/pdrn" / name if line.startswith("  ") else root / name
        assert inside.is_dir(), name


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists(), target
