"""The public surface: what `pdrn` and its packages offer, and what importing them costs."""

import importlib
import subprocess
import sys

import pytest

import pdrn
from pdrn.errors import MissingDependencyError


def test_the_package_offers_exactly_these_names():
    offered = "restore Restorer Cells read write solve PDN PDRN unroll load __version__"
    assert set(dir(pdrn)) == set(pdrn.__all__) == set(offered.split())


def test_every_name_can_be_imported():
    for name in pdrn.__all__:
        assert getattr(pdrn, name) is not None
    with pytest.raises(AttributeError, match="destroy"):
        _ = pdrn.destroy


@pytest.mark.parametrize("name", ["audio", "convex", "nets", "restoration"])
def test_packages_export_their_nouns(name):
    package = importlib.import_module(f"pdrn.{name}")
    assert len(package.__all__) > 5
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, noun) is not None for noun in package.__all__)


def test_importing_pdrn_imports_nothing_heavy():
    code = "import sys, pdrn; print({'numpy', 'scipy', 'torch', 'typer', 'soundfile'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_restoring_needs_no_torch():
    code = (
        "import sys, numpy, pdrn; pdrn.restore(numpy.zeros(9), 8000, bits=5); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", ["PDN", "PDRN", "unroll"])
def test_without_torch_its_names_say_what_to_install(monkeypatch, name):
    monkeypatch.setattr(pdrn, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=r"pdrn\[train\]"):
        getattr(pdrn, name)


def test_a_network_file_is_read_and_a_sound_written(tiny_models, tmp_path):
    network, provenance = pdrn.load(tiny_models / "speech-large.safetensors")
    assert provenance.unit == "cell"
    assert len(network.weights) > 0
    pdrn.write(tmp_path / "a.wav", [0.5, 0.25], 8000)
    assert pdrn.read(tmp_path / "a.wav").samples.tolist() == [0.5, 0.25]
