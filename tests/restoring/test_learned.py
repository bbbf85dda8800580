"""Networks restore sound of any length, however it arrives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nets.plans import disturbed

from pdrn.audio.quantizers import MidRise
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual
from pdrn.nets.checkpoint import Provenance, save
from pdrn.restoring.learned import LearnedMethod
from pdrn.restoring.restorer import Restorer

RATE = 16000
PLAN = PrimalDual(ConvolutionalMap(channels=20, window=24, hop=8), 3, "mix")
NETWORK = disturbed(PLAN, 1, scale=0.02, dtype=np.float32)
QUANTIZER = MidRise(5, full_scale=True)
QUANTIZED = QUANTIZER.quantize(0.7 * np.sin(np.arange(3000) / 11) * np.sin(np.arange(3000) / 400))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "net.safetensors"
    save(path, NETWORK, Provenance(unit="cell", sample_rate_hz=RATE))
    return str(path)


def test_blocks_make_what_the_network_makes_of_the_whole(model):
    cells = QUANTIZER.cells(QUANTIZER.encode(QUANTIZED))
    whole = NETWORK(cells.lo / QUANTIZER.step, cells.hi / QUANTIZER.step) * QUANTIZER.step
    restored = Restorer(model).restore(QUANTIZED, RATE, bits=5)
    np.testing.assert_allclose(restored, cells.project(whole), atol=1e-6)
    assert np.abs(restored - QUANTIZED).max() > 0.1 * QUANTIZER.step
    assert cells.violation(restored) == 0


@settings(max_examples=10)
@given(lengths=st.lists(st.integers(1, 700), max_size=6), length=st.integers(1, 3000))
def test_a_stream_does_not_depend_on_its_chunks(model, lengths, length):
    samples = QUANTIZED[:length]

    def streamed(lengths):
        stream, pieces, start = Restorer(model).stream(RATE, bits=5), [], 0
        for size in lengths:
            pieces.append(stream.feed(samples[start : start + size]))
            start += size
        return np.concatenate([*pieces, stream.feed(samples[start:]), stream.flush()])

    np.testing.assert_array_equal(streamed(lengths), streamed([]))
    np.testing.assert_allclose(streamed([]), Restorer(model).restore(samples, RATE, bits=5), atol=1e-6)


def test_it_looks_ahead_as_far_as_it_reaches():
    method = LearnedMethod(NETWORK, QUANTIZER.step)
    assert (method.hop, method.frame_length, method.context) == (8, 24, 3 * 16)


def test_open_ended_and_unbounded_cells_are_kept(model):
    samples = MidRise(5).quantize(1.5 * np.sin(np.arange(3000) / 11))
    samples[100:110] = np.nan
    stream = Restorer(model).stream(RATE, bits=5)
    restored = np.concatenate([stream.feed(samples), stream.flush()])
    assert np.isfinite(restored).all()
    known = np.abs(samples) < 31 / 32
    assert np.abs(restored - samples)[known].max() <= QUANTIZER.step / 2 + 1e-12
    assert (np.abs(restored)[np.abs(samples) == 31 / 32] >= 30 / 32).all()


def test_sound_that_it_is_not_for_is_refused(model):
    with pytest.raises(ValueError, match="for 16000 Hz and this is 8000 Hz; restore this without a model"):
        Restorer(model).restore(QUANTIZED, 8000, bits=5)
    with pytest.raises(ValueError, match="for cells of one width"):
        Restorer(model).stream(RATE, law="mulaw")
    with pytest.raises(ValueError, match="no iterations"):
        Restorer(model, iterations=5)


def test_networks_that_are_not_for_sound_at_large_are_refused(tmp_path):
    save(tmp_path / "scale", NETWORK, Provenance(unit="full scale"))
    with pytest.raises(ValueError, match="measures in full scale"):
        Restorer(str(tmp_path / "scale"))
    save(tmp_path / "dense", Network.started(PrimalDual(DenseMap(16), 1)), Provenance(unit="cell"))
    with pytest.raises(ValueError, match="takes a convolutional"):
        Restorer(str(tmp_path / "dense"))
    with pytest.raises(ValueError, match="a positive finite number"):
        LearnedMethod(NETWORK, 0.0)
