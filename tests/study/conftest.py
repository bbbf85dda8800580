"""A small corpus for training: twelve pieces of the speech that the package carries."""

import pytest
import soundfile

from pdrn.audio.corpus import Corpus
from pdrn.audio.sample import speech


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
