"""README.md and the pages in docs/ do what they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    page for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")) if "```python" in page.read_text()
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_runs(page):
    """The blocks of a page, one after another, as a reader would try them."""
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page.name, "exec"), names)


def test_the_tree_names_what_exists():
    tree = README.split("## What is where\n\n```\n")[1].split("```")[0]
    for line in tree.splitlines():
        name = line.split()[0]
        inside = ROOT / "src/pdrn" / name if line.startswith("  ") else ROOT / name
        assert inside.is_dir(), name


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
