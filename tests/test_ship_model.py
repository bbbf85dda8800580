"""The tool that puts networks into the package."""

import numpy as np
import pytest
from tests.conftest import TINY
from tests.nets.plans import disturbed
from tools.ship_model import main

from pdrn.nets.files import Provenance, load, save
from pdrn.restoration import registry


@pytest.fixture
def checkpoint(tmp_path):
    network = disturbed(TINY["speech-small"], 1, 0.02, np.float32)
    training = {"config": {"seed": 3}, "epoch": 4}
    save(tmp_path / "best", network, Provenance("cell", 16000, data="speech", seed=3, training=training))
    (tmp_path / "card.md").write_text("# A card\n")
    return tmp_path / "best"


def shipped(checkpoint, *options):
    folder = checkpoint.parent / "models"
    card = checkpoint.parent / "card.md"
    given = ["--card", str(card), "--folder", str(folder), "--licence", "CC BY 4.0"]
    main([str(checkpoint), "tiny", *given, *options])
    return folder


def test_it_writes_half_precision_and_card(checkpoint, monkeypatch):
    folder = shipped(checkpoint, "--data", "LibriSpeech, CC BY 4.0", "--data", "festvox-ru")
    assert {file.name for file in folder.iterdir()} == {"tiny.safetensors", "tiny.md"}
    network, provenance = load(folder / "tiny.safetensors")
    assert provenance.data == "LibriSpeech, CC BY 4.0; festvox-ru"
    assert (provenance.licence, provenance.seed, provenance.training["epoch"]) == ("CC BY 4.0", 3, 4)
    for name, part in load(checkpoint)[0].weights.items():
        np.testing.assert_array_equal(network.weights[name], part.astype(np.float16))
    monkeypatch.setattr(registry, "FOLDER", folder)
    assert registry.names() == ["tiny"]
    assert registry.card("tiny") == "# A card\n"
    registry.verify("tiny")


def test_shipping_again_replaces(checkpoint, monkeypatch):
    shipped(checkpoint)
    folder = shipped(checkpoint, "--data", "other")
    assert load(folder / "tiny.safetensors")[1].data == "other"
    assert len(list(folder.iterdir())) == 2


def test_what_is_too_large_is_refused_and_nothing_left(checkpoint, capsys):
    with pytest.raises(SystemExit):
        shipped(checkpoint, "--most-bytes", "100")
    assert "100" in capsys.readouterr().err
    assert list((checkpoint.parent / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("provenance", "reason"),
    [
        (Provenance("full scale", 16000, data="speech"), "units of the cell"),
        (Provenance("cell", data="speech"), "does not say what sample rate"),
        (Provenance("cell", 16000), "has to be named; pass --data"),
    ],
)
def test_what_cannot_be_used_is_refused(checkpoint, capsys, provenance, reason):
    save(checkpoint, load(checkpoint)[0], provenance, overwrite=True)
    with pytest.raises(SystemExit):
        shipped(checkpoint)
    assert reason in capsys.readouterr().err
