"""Benchmarks and tools keep up with the package."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    f"{folder}.{path.stem}" for folder in ("benchmarks", "tools") for path in (ROOT / folder).glob("[!_]*.py")
)


def test_scripts_are_found():
    assert {"benchmarks.startup", "tools.guard"} <= set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_imports(name):
    assert importlib.import_module(name).__doc__
