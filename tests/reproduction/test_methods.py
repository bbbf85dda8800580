"""The methods of the study, by name."""

import numpy as np
import pytest

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import MidRise
from pdrn.convex import DCT
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual, files
from pdrn.reproduction.evaluate import method_named, trained_depths
from pdrn.restoration.restorer import Restorer


def cells_of(signal) -> Cells:
    quantizer = MidRise(5, full_scale=True)
    return quantizer.cells(quantizer.encode(signal))


@pytest.fixture
def cells() -> Cells:
    return cells_of(0.6 * np.sin(np.arange(2 * 256).reshape(2, 256) / 9))


def test_qu_is_the_quantized_signal(cells):
    assert np.array_equal(method_named("qu")([cells[0]]), [cells[0].centre])


def test_cp_is_the_algorithm_with_the_steps_of_table_2(cells):
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
def test_restore_is_what_the_command_does(tiny_models, name, method):
    cells = cells_of(speech()[0][20000:30000])
    (restored,) = method_named(name)([cells])
    assert cells.violation(restored) == 0.0
    assert np.array_equal(restored, Restorer(method=method).restore(cells.centre, 16000, bits=5))


@pytest.mark.parametrize(("name", "shifts"), [("speech-large", None), ("speech-large:3", 3)])
def test_a_model_is_what_the_command_does_with_it(tiny_models, name, shifts):
    cells = cells_of(speech()[0][20000:30000])
    (restored,) = method_named(name)([cells])
    restorer = Restorer.from_pretrained("speech-large", shifts=shifts)
    assert np.array_equal(restored, restorer.restore(cells.centre, 16000, bits=5))


@pytest.mark.parametrize(("name", "rate"), [("speech-large", 8000), ("speech-large:0", 16000)])
def test_a_model_that_cannot_be_run_so_is_refused_before_any_work(tiny_models, name, rate):
    with pytest.raises(ValueError, match=r"is for 16000 Hz|shifts are for networks, one or more"):
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
def test_a_dense_network_restores_frame_by_frame_the_last_filled_up_with_zeros(network_file, length):
    path, unit = network_file(PrimalDual(DenseMap(64), depth=3))
    whole = cells_of(np.concatenate([0.6 * np.sin(np.arange(length) / 9), np.zeros(-length % 64)]))
    (restored,) = method_named(path)([whole[:length]])
    assert restored.shape == (length,)
    assert whole[:length].violation(restored) == 0.0
    network, _ = files.load(path)
    lower, upper = (np.float32(ends[:64] / unit) for ends in (whole.lo, whole.hi))
    if length >= 64:
        assert np.allclose(restored[:64], unit * network(lower, upper), atol=1e-6)


def test_frames_are_on_one_grid(network_file):
    path, _ = network_file(PrimalDual(DenseMap(64), depth=3))
    with pytest.raises(ValueError, match="can be run on one grid alone; leave :2 out"):
        method_named(f"{path}:2")


def test_a_convolutional_network_restores_whole_signals_of_any_length(network_file):
    path, unit = network_file(PrimalDual(ConvolutionalMap(16, 32, 16), depth=3, memory="mix"))
    signals = [cells_of(0.6 * np.sin(np.arange(length) / 9)) for length in (100, 333)]
    network, _ = files.load(path)
    for cells, restored in zip(signals, method_named(f"{path}:1")(signals), strict=True):
        assert cells.violation(restored) == 0.0
        lower, upper = (np.float32(ends / unit) for ends in (cells.lo, cells.hi))
        assert np.allclose(restored, unit * network(lower, upper), atol=1e-6)


@pytest.mark.parametrize("unit", ["full scale", "cell"])
@pytest.mark.parametrize("map", [DenseMap(64), ConvolutionalMap(16, 32, 16)], ids=["dense", "convolutional"])
def test_a_file_is_for_the_rate_that_it_was_trained_at(tmp_path, map, unit):
    path = str(tmp_path / "network")
    provenance = files.Provenance(unit=unit, sample_rate_hz=8000)
    files.save(path, Network.started(PrimalDual(map, depth=1)), provenance)
    with pytest.raises(
        ValueError, match="is for 8000 Hz and this is 16000 Hz; resample the corpus to 8000 Hz"
    ):
        method_named(path, sample_rate_hz=16000)
    method_named(path, sample_rate_hz=8000)


@pytest.mark.parametrize("training", [{}, {"config": "of another program"}, {"config": {"newer": 1}}])
def test_a_file_need_not_say_how_it_was_trained(tmp_path, training):
    network = Network.started(PrimalDual(DenseMap(64), depth=1))
    files.save(tmp_path / "network", network, files.Provenance(training=training))
    assert trained_depths(str(tmp_path / "network")) == ()


def test_files_that_are_no_networks_are_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"no network")
    with pytest.raises(ValueError, match="is not a network that can be used"):
        method_named(str(tmp_path / "file"))


@pytest.mark.parametrize("name", ["", "cp", "cp:", "cp:0", "cp:-1", "cp:ten", "cp:1.5", "qu:3", "network"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="no method is called"):
        method_named(name)
