"""What is handed on: a wheel that runs alone, and a source distribution that it can be built from."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest
from tests.test_readme import ROOT

pytest.importorskip("hatchling", reason="hatchling is not installed")

LARGEST_WHEEL = 15_000_000


def build(target, root, out):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder / "made")) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.glob("pdrn-*")
    return root


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """The wheel, built from nothing but the source distribution."""
    return build("wheel", source, tmp_path_factory.mktemp("wheel") / "made")


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return archive.read(name).decode()


def test_the_source_has_what_tests_and_pages_need(source):
    for name in (
        "tests/conftest.py",
        "tools/ship_model.py",
        "docs/conf.py",
        "constraints.txt",
        "Makefile",
        "LICENSE",
    ):
        assert (source / name).is_file(), name


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert all(re.match(r"pdrn/|pdrn-[\d.]+\.dist-info/", name) for name in names)
    package = ROOT / "src/pdrn"
    for pattern in (
        "py.typed",
        "**/*.safetensors",
        "**/*.md",
        "**/*.flac",
        "**/*.toml",
        "**/static/*",
    ):
        for path in package.glob(pattern):
            assert f"pdrn/{path.relative_to(package)}" in names
    assert wheel.stat().st_size < LARGEST_WHEEL


def test_the_wheel_restores_alone(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    code = (
        "import pdrn, pdrn.restoration.registry as p; from pdrn.audio.corpus import speech; "
        "s, r = speech(); p.verify(p.names()[0]); print(pdrn.__file__, pdrn.restore(s[:r], r, bits=16).shape)"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path) in ended.stdout


def test_the_page_of_the_package_leads_nowhere_that_is_not_there(metadata):
    description = metadata.split("\n\n", 1)[1]
    assert "## Limits" in description
    assert not re.search(r"\]\((?!https?:)", description)
    assert "<!--" not in description


def test_every_extra_is_described(metadata):
    described = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    assert re.findall(r"^Provides-Extra: (\w+)", metadata, re.MULTILINE)
    assert set(re.findall(r"^Provides-Extra: (\w+)", metadata, re.MULTILINE)) == set(described)
