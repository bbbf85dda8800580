"""Methods by name, and their errors on a corpus."""

import numpy as np
import pytest
import soundfile

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import Corpus, speech
from pdrn.audio.quantizers import MidRise
from pdrn.convex import DCT
from pdrn.errors import InputError
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual, SpectralPrimalDual, files
from pdrn.nets.files import encode
from pdrn.reproduction.evaluate import evaluate, method_named, trained_depths
from pdrn.restoration.restorer import Restorer
from pdrn.training.config import from_table


def cells_of(signal) -> Cells:
    quantizer = MidRise(5, full_scale=True)
    return quantizer.cells(quantizer.encode(signal))


@pytest.fixture
def cells() -> Cells:
    return cells_of(0.6 * np.sin(np.arange(2 * 256).reshape(2, 256) / 9))


def test_qu_is_the_quantized_signal(cells):
    assert np.array_equal(method_named("qu")([cells[0]]), [cells[0].centre])


def test_cp_is_chambolle_pock_with_the_steps_of_table_2(cells):
    K = DCT(256)
    x = x_bar = cells.centre
    y = np.zeros_like(x)
    for _ in range(10):
        y = np.clip(y + 10 * K.apply(x_bar), -1, 1)
        new = np.clip(x - 0.1 * K.adjoint(y), cells.lo, cells.hi)
        x_bar, x = 2 * new - x, new
    restored = method_named("cp:10", frame_length=256)([cells[0], cells[1]])
    assert np.allclose(restored, x, atol=1e-12)


@pytest.mark.parametrize(("name", "method"), [("overlapped", "cp"), ("restore", "auto")])
def test_restore_equals_restorer(tiny_models, name, method):
    cells = cells_of(speech()[0][20000:30000])
    (restored,) = method_named(name)([cells])
    assert cells.violation(restored) == 0.0
    assert np.array_equal(restored, Restorer(method=method).restore(cells.centre, 16000, bits=5))


@pytest.mark.parametrize(("name", "shifts"), [("speech-large", None), ("speech-large:3", 3)])
def test_model_equals_restorer(tiny_models, name, shifts):
    cells = cells_of(speech()[0][20000:30000])
    (restored,) = method_named(name)([cells])
    restorer = Restorer.from_pretrained("speech-large", shifts=shifts, method="network")
    assert np.array_equal(restored, restorer.restore(cells.centre, 16000, bits=5))


@pytest.mark.parametrize(("name", "rate"), [("speech-large", 8000), ("speech-large:0", 16000)])
def test_refuses_model_at_another_rate_or_zero_shifts(tiny_models, name, rate):
    with pytest.raises(InputError, match=r"16000 Hz|shifts"):
        method_named(name, sample_rate_hz=rate)


@pytest.fixture(params=["full scale", "cell"])
def network_file(request, tmp_path):
    """A dense and a convolutional network, in either unit."""
    unit = request.param

    def file(architecture):
        files.save(tmp_path / "network", Network.started(architecture), files.Provenance(unit=unit))
        return str(tmp_path / "network"), 1 / 16 if unit == "cell" else 1.0

    return file


@pytest.mark.parametrize("length", [200, 64, 7])
def test_dense_network_restores_padded_frames(network_file, length):
    path, unit = network_file(PrimalDual(DenseMap(64), depth=3))
    whole = cells_of(np.concatenate([0.6 * np.sin(np.arange(length) / 9), np.zeros(-length % 64)]))
    (restored,) = method_named(path)([whole[:length]])
    assert restored.shape == (length,)
    assert whole[:length].violation(restored) == 0.0
    network, _ = files.load(path)
    lower, upper = (np.float32(ends[:64] / unit) for ends in (whole.lo, whole.hi))
    if length >= 64:
        assert np.allclose(restored[:64], unit * network(lower, upper), atol=1e-6)


def test_refuses_shifts_for_dense_network(network_file):
    path, _ = network_file(PrimalDual(DenseMap(64), depth=3))
    with pytest.raises(InputError, match="one grid"):
        method_named(f"{path}:2")


def test_convolutional_network_restores_whole_signals(network_file):
    path, unit = network_file(PrimalDual(ConvolutionalMap(16, 32, 16), depth=3, memory="mix"))
    signals = [cells_of(0.6 * np.sin(np.arange(length) / 9)) for length in (100, 333)]
    network, _ = files.load(path)
    for cells, restored in zip(signals, method_named(f"{path}:1")(signals), strict=True):
        assert cells.violation(restored) == 0.0
        lower, upper = (np.float32(ends / unit) for ends in (cells.lo, cells.hi))
        assert np.allclose(restored, unit * network(lower, upper), atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 44100])
def test_spectral_network_restores_at_the_rate_of_the_corpus(network_file, rate):
    path, _ = network_file(SpectralPrimalDual((0.004,), steps=2, channels=4, blocks=1))
    cells = cells_of(0.6 * np.sin(np.arange(700) / 9))
    (restored,) = method_named(path, sample_rate_hz=rate)([cells])
    expected = files.load(path)[0].at(rate)(cells.lo, cells.hi)
    assert np.allclose(restored, expected, atol=1e-6)


@pytest.mark.parametrize("unit", ["full scale", "cell"])
@pytest.mark.parametrize("map", [DenseMap(64), ConvolutionalMap(16, 32, 16)], ids=["dense", "convolutional"])
def test_refuses_network_file_at_another_rate(tmp_path, map, unit):
    path = str(tmp_path / "network")
    provenance = files.Provenance(unit=unit, sample_rate_hz=8000)
    files.save(path, Network.started(PrimalDual(map, depth=1)), provenance)
    with pytest.raises(InputError, match="8000 Hz"):
        method_named(path, sample_rate_hz=16000)
    method_named(path, sample_rate_hz=8000)


@pytest.mark.parametrize("training", [{}, {"config": "of another program"}, {"config": {"newer": 1}}])
def test_trained_depths_without_training_record(tmp_path, training):
    network = Network.started(PrimalDual(DenseMap(64), depth=1))
    files.save(tmp_path / "network", network, files.Provenance(training=training))
    assert trained_depths(str(tmp_path / "network")) == ()


def test_refuses_files_that_are_not_networks(tmp_path):
    (tmp_path / "file").write_bytes(b"no network")
    with pytest.raises(InputError, match="file"):
        method_named(str(tmp_path / "file"))


@pytest.mark.parametrize("name", ["", "cp", "cp:", "cp:0", "cp:-1", "cp:ten", "cp:1.5", "qu:3", "network"])
def test_refuses_unknown_names(name):
    with pytest.raises(InputError, match="method"):
        method_named(name)


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


def test_rows_of_evaluate(corpus):
    rows = {row.method: row for row in evaluate(corpus, "test", 5, ["qu", "cp:25"])}
    assert list(rows) == ["qu", "cp:25"]
    qu, cp = rows.values()
    assert (qu.files, qu.frames, qu.bits, qu.split) == (2, 62, 5, "test")
    assert qu.ratio == 1.0
    assert cp.ratio == cp.mse / qu.mse < 1
    assert cp.snr > qu.snr + 1
    gain = cp.snr_pooled - qu.snr_pooled
    assert gain == pytest.approx(-10 * np.log10(cp.ratio))


def test_snr_is_the_mean_over_files(corpus):
    row = next(evaluate(corpus, "test", 5, ["qu"]))
    by_file = []
    for signal in corpus.signals("test"):
        s = signal[: len(signal) // 1024 * 1024]
        q = (np.floor(s * 16).clip(-16, 15) + 0.5) / 16
        if len(s):
            by_file.append(10 * np.log10((s @ s) / ((s - q) @ (s - q))))
    assert row.snr == pytest.approx(np.mean(by_file))


def test_refuses_unknown_methods_before_reading(corpus, monkeypatch):
    monkeypatch.setattr(Corpus, "signal", lambda *_: pytest.fail("read the corpus first"))
    with pytest.raises(InputError, match="cp:x"):
        next(evaluate(corpus, "test", 5, ["qu", "cp:x"]))


def test_refuses_split_without_a_frame(corpus):
    with pytest.raises(InputError, match="99999"):
        next(evaluate(corpus, "dev", 5, ["qu"], frame_length=99999))


def test_notes_files_shorter_than_a_frame(corpus):
    said = []
    (row,) = evaluate(corpus, "test", 5, ["qu"], note=said.append)
    assert row.files == 2
    assert len(said) == 1
    assert "left out 1 files" in said[0]
    (row,) = evaluate(corpus, "test", 5, ["qu"], frame_length=1000, note=said.append)
    assert row.files == 3
    assert len(said) == 1


@pytest.mark.parametrize(
    ("unit", "trained", "bits", "is_noted"),
    [
        ("full scale", [5], 8, True),
        ("full scale", [4, 6], 3, True),
        ("full scale", [4, 6], 5, False),
        ("full scale", [5], 5, False),
        ("cell", [5], 8, False),
    ],
)
def test_notes_network_trained_for_another_bit_depth(corpus, tmp_path, unit, trained, bits, is_noted):
    architecture = {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": 64}}
    config = from_table({"architecture": architecture, "data": {"bits": trained, "unit": unit, "length": 64}})
    provenance = files.Provenance(unit=unit, training={"config": encode(config)})
    path, said = str(tmp_path / "network"), []
    files.save(path, Network.started(config.architecture), provenance)
    rows = evaluate(corpus, "test", bits, ["qu", path, f"{path}:1"], frame_length=1000, note=said.append)
    assert [row.method for row in rows] == ["qu", path, f"{path}:1"]
    assert [note.split()[0] for note in said] == ([path, f"{path}:1"] if is_noted else [])


def test_chambolle_pock_rows_of_table_2(ieee_folder):
    rows = evaluate(Corpus.scan(ieee_folder), "test", 5, ["qu", "cp:10", "cp:25", "cp:50"])
    snr = {row.method: row.snr for row in rows}
    assert snr["qu"] == pytest.approx(15.15, abs=0.01)
    assert snr["cp:10"] == pytest.approx(16.74, abs=0.02)
    assert snr["cp:25"] == pytest.approx(16.82, abs=0.02)
    assert snr["cp:50"] == pytest.approx(16.87, abs=0.02)


def test_perceptual_metrics(corpus):
    pytest.importorskip("pesq")
    pytest.importorskip("pystoi")
    (row,) = evaluate(corpus, "test", 5, ["qu"], metrics=["pesq", "stoi"])
    assert 1 < row.pesq < 4.65
    assert 0.5 < row.stoi < 1
    (row,) = evaluate(corpus, "test", 5, ["qu"])
    assert row.pesq is row.stoi is None
    with pytest.raises(InputError, match="ears"):
        next(evaluate(corpus, "test", 5, ["qu"], metrics=["ears"]))
