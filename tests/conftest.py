"""What all tests share: steady examples, tiny networks, a small corpus, the paper's where it is."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import settings
from tests.nets.plans import disturbed
from tools.ship_model import ship

from pdrn.audio.corpus import Corpus, speech
from pdrn.nets import ConvolutionalMap, PrimalDual, SpectralPrimalDual
from pdrn.nets.files import Provenance, save
from pdrn.restoration import registry

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("quick", settings.get_profile("steady"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# What runs in the background ignores interrupts and hang-ups, and so would all that the tests start and end.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def ieee_folder():
    """The paper's corpus, which this project may use but not hand on."""
    beside = Path(__file__).parents[2] / "shared" / "data" / "ieee"
    folder = Path(os.environ.get("PDRN_IEEE", beside))
    if not folder.is_dir():
        pytest.skip("the IEEE corpus is not here; name its folder in PDRN_IEEE")
    return folder


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory):
    """Six files of 1.2 s to learn from, three to develop on, three to test on."""
    folder = tmp_path_factory.mktemp("speech")
    samples, rate = speech()
    length = rate * 6 // 5
    for i, split in enumerate(6 * ["train"] + 3 * ["dev"] + 3 * ["test"]):
        (folder / split).mkdir(exist_ok=True)
        soundfile.write(folder / split / f"{i:02}.flac", samples[2 * i * rate :][:length], rate)
    return folder


@pytest.fixture(scope="session")
def corpus(corpus_folder):
    return Corpus.scan(corpus_folder)


TINY = {
    "speech-large": PrimalDual(ConvolutionalMap(channels=40, window=32, hop=16), 3, "gain"),
    "speech-small": PrimalDual(
        ConvolutionalMap(channels=20, window=16, hop=8),
        2,
        "gain",
        weighting="context",
        context=2,
        causal=True,
    ),
    "universal": SpectralPrimalDual(windows=(0.008, 0.004), steps=2, channels=4, blocks=1),
}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """Networks like those that are shipped, but tiny and hardly trained."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, plan) in enumerate(TINY.items()):
        file = folder / f"{name}.run"
        any_rate = isinstance(plan, SpectralPrimalDual)
        provenance = Provenance() if any_rate else Provenance(unit="cell", sample_rate_hz=16000)
        save(file, disturbed(plan, seed, 0.02, np.float32), provenance)
        ship(file, name, f"# {name}\n", ["a test"], "MIT", 1_000_000, folder)
    return folder


@pytest.fixture
def tiny_models(tiny_folder, monkeypatch):
    """Have tiny networks in place of those that are shipped."""
    monkeypatch.setattr(registry, "FOLDER", tiny_folder)
    return tiny_folder


@pytest.fixture
def no_models(tmp_path, monkeypatch):
    """Have no networks at all."""
    monkeypatch.setattr(registry, "FOLDER", tmp_path / "no models")
