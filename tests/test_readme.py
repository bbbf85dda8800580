"""README.md and the pages in docs/ do what they say."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from pdrn.cli.main import app
from pdrn.reproduction.report import markdown

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "results/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = typer.main.get_command(app).commands


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def having(language):
    return [page for page in PAGES if blocks(page, language)]


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", having("python"), ids=name_of)
def test_code_runs(page):
    """The blocks of a page, one after another, as a reader would try them."""
    names = {}
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)


def test_the_published_tables_are_what_their_logs_say():
    published = ROOT / "results/reproduced"
    assert set(markdown(published).splitlines()) <= set((published / "report.md").read_text().splitlines())


def commands_of(page):
    """Yield the words of each command of pdrn on a page, in a pipe too."""
    for block in blocks(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r" [|] | && ", line):
                words = shlex.split(part, comments=True)
                if words[:1] == ["pdrn"]:
                    yield words[1:]


@pytest.mark.parametrize("page", having("bash"), ids=name_of)
def test_commands_exist_with_their_options(page):
    for words in commands_of(page):
        command = COMMANDS[words[0]]
        if inner := getattr(command, "commands", {}):
            command = inner[words[1]]
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word for word in words if re.match("--?[a-z]", word)} <= known, words


def test_the_tree_names_what_exists():
    tree = README.split("## What is where\n\n```\n")[1].split("```")[0]
    for line in tree.splitlines():
        name = line.split()[0]
        inside = ROOT / "src/pdrn" / name if line.startswith("  ") else ROOT / name
        assert inside.is_dir(), name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (page.parent / target).exists(), target
