"""Evaluating methods on a corpus."""

import numpy as np
import pytest
import soundfile

from pdrn.audio.corpus import Corpus, speech
from pdrn.nets import Network, files
from pdrn.nets.files import encode
from pdrn.reproduction.evaluate import evaluate
from pdrn.training.config import from_table


@pytest.fixture
def corpus(tmp_path):
    """Six files of two seconds, two in each split, and one that is shorter than a frame."""
    samples, rate = speech()
    for split in ("train", "dev", "test"):
        (tmp_path / split).mkdir()
    for i, split in enumerate(("train", "train", "dev", "dev", "test", "test")):
        soundfile.write(tmp_path / split / f"{i}.flac", samples[2 * i * rate :][: 2 * rate], rate)
    soundfile.write(tmp_path / "test" / "short.flac", samples[rate : rate + 1000], rate)
    return Corpus.scan(tmp_path)


def test_rows_hold_the_figures_of_each_method(corpus):
    rows = {row.method: row for row in evaluate(corpus, "test", 5, ["qu", "cp:25"])}
    assert list(rows) == ["qu", "cp:25"]
    qu, cp = rows.values()
    assert (qu.files, qu.frames, qu.bits, qu.split) == (2, 62, 5, "test")
    assert qu.ratio == 1.0
    assert cp.ratio == cp.mse / qu.mse < 1
    assert cp.snr > qu.snr + 1
    gain = cp.snr_pooled - qu.snr_pooled
    assert gain == pytest.approx(-10 * np.log10(cp.ratio))


def test_snr_is_the_mean_over_files_and_not_over_frames(corpus):
    row = next(evaluate(corpus, "test", 5, ["qu"]))
    by_file = []
    for signal in corpus.signals("test"):
        s = signal[: len(signal) // 1024 * 1024]
        q = (np.floor(s * 16).clip(-16, 15) + 0.5) / 16
        if len(s):
            by_file.append(10 * np.log10((s @ s) / ((s - q) @ (s - q))))
    assert row.snr == pytest.approx(np.mean(by_file))


def test_unknown_methods_are_refused_before_anything_is_read(corpus, monkeypatch):
    monkeypatch.setattr(Corpus, "signal", lambda *_: pytest.fail("read the corpus first"))
    with pytest.raises(ValueError, match="no method is called 'cp:x'"):
        next(evaluate(corpus, "test", 5, ["qu", "cp:x"]))


def test_a_split_without_a_whole_frame_is_refused(corpus):
    with pytest.raises(ValueError, match="no file of 99999 samples"):
        next(evaluate(corpus, "dev", 5, ["qu"], frame_length=99999))


def test_files_shorter_than_a_frame_are_left_out_and_that_is_said(corpus):
    said = []
    (row,) = evaluate(corpus, "test", 5, ["qu"], note=said.append)
    assert row.files == 2
    assert said == ["files shorter than a frame of 1024 samples, which are left out: 1"]
    (row,) = evaluate(corpus, "test", 5, ["qu"], frame_length=1000, note=said.append)
    assert row.files == 3
    assert len(said) == 1


@pytest.mark.parametrize(
    ("unit", "trained", "bits", "told"),
    [
        ("full scale", [5], 8, "was trained for 5 bits, and this is 8"),
        ("full scale", [4, 6], 3, "was trained for 4 to 6 bits, and this is 3"),
        ("full scale", [4, 6], 5, None),
        ("full scale", [5], 5, None),
        ("cell", [5], 8, None),
    ],
)
def test_a_network_that_was_trained_for_another_bit_depth_is_noted(
    corpus, tmp_path, unit, trained, bits, told
):
    architecture = {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": 64}}
    config = from_table({"architecture": architecture, "data": {"bits": trained, "unit": unit, "length": 64}})
    provenance = files.Provenance(unit=unit, training={"config": encode(config)})
    path, said = str(tmp_path / "network"), []
    files.save(path, Network.started(config.architecture), provenance)
    rows = evaluate(corpus, "test", bits, ["qu", path, f"{path}:1"], frame_length=1000, note=said.append)
    assert [row.method for row in rows] == ["qu", path, f"{path}:1"]
    assert said == ([f"{path} {told}", f"{path}:1 {told}"] if told else [])


def test_the_chambolle_pock_row_of_table_2(ieee_folder):
    rows = evaluate(Corpus.scan(ieee_folder), "test", 5, ["qu", "cp:10", "cp:25", "cp:50"])
    snr = {row.method: row.snr for row in rows}
    assert snr["qu"] == pytest.approx(15.15, abs=0.01)
    assert snr["cp:10"] == pytest.approx(16.74, abs=0.02)
    assert snr["cp:25"] == pytest.approx(16.82, abs=0.02)
    assert snr["cp:50"] == pytest.approx(16.87, abs=0.02)


def test_hearing_is_measured_where_it_is_asked_for(corpus):
    pytest.importorskip("pesq")
    pytest.importorskip("pystoi")
    (row,) = evaluate(corpus, "test", 5, ["qu"], metrics=["pesq", "stoi"])
    assert 1 < row.pesq < 4.65
    assert 0.5 < row.stoi < 1
    (row,) = evaluate(corpus, "test", 5, ["qu"])
    assert row.pesq is row.stoi is None
    with pytest.raises(ValueError, match="no metric is called 'ears'"):
        next(evaluate(corpus, "test", 5, ["qu"], metrics=["ears"]))
