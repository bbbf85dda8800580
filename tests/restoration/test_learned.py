"""Networks restore sound of any length, however it arrives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nets.plans import disturbed

from pdrn.audio.quantizers import MidRise, MidTread
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual
from pdrn.nets.files import Provenance, save
from pdrn.nets.runtime import RunningNetwork
from pdrn.restoration.methods import LearnedMethod
from pdrn.restoration.restorer import Restorer

RATE = 16000
PLAN = PrimalDual(ConvolutionalMap(channels=20, window=24, hop=8), 3, "mix")
NETWORK = disturbed(PLAN, 1, scale=0.02, dtype=np.float32)
CAUSAL = disturbed(
    PrimalDual(
        ConvolutionalMap(channels=20, window=16, hop=8),
        2,
        "gain",
        weighting="context",
        context=2,
        causal=True,
    ),
    2,
    scale=0.02,
    dtype=np.float32,
)
QUANTIZER = MidRise(5, full_scale=True)
QUANTIZED = QUANTIZER.quantize(0.7 * np.sin(np.arange(3000) / 11) * np.sin(np.arange(3000) / 400))


@pytest.fixture(scope="module", params=[NETWORK, CAUSAL], ids=["both ways", "causal"])
def either(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "net.safetensors"
    save(path, request.param, Provenance(unit="cell", sample_rate_hz=RATE))
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "net.safetensors"
    save(path, NETWORK, Provenance(unit="cell", sample_rate_hz=RATE))
    return str(path)


def test_blocks_make_what_the_network_makes_of_the_whole(model):
    cells = QUANTIZER.cells(QUANTIZER.encode(QUANTIZED))
    whole = NETWORK(cells.lo / QUANTIZER.step, cells.hi / QUANTIZER.step) * QUANTIZER.step
    restored = Restorer(model, shifts=1).restore(QUANTIZED, RATE, bits=5)
    np.testing.assert_allclose(restored, cells.project(whole), atol=1e-6)
    assert np.abs(restored - QUANTIZED).max() > 0.1 * QUANTIZER.step
    assert cells.violation(restored) == 0


def test_digital_silence_stays_silent_however_it_arrives(either):
    sound = MidTread(5).quantize(0.7 * np.sin(np.arange(900) / 11))
    quantized = np.concatenate([sound, np.zeros(1500), sound, np.zeros(700)])
    restorer = Restorer(either, method="network")
    restored = restorer.restore(quantized, RATE, bits=5)
    assert np.abs(restored[:900] - quantized[:900]).max() > 0.01 * MidTread(5).step
    assert (restored[1200:2100] == 0).all()
    assert (restored[-300:] == 0).all()
    for size in (1, 77, 4000):
        stream = restorer.stream(RATE, bits=5)
        chunks = [stream.feed(quantized[start : start + size]) for start in range(0, len(quantized), size)]
        np.testing.assert_allclose(np.concatenate([*chunks, stream.flush()]), restored, atol=1e-6)


@settings(max_examples=10)
@given(lengths=st.lists(st.integers(1, 700), max_size=6), length=st.integers(1, 3000))
def test_a_stream_does_not_depend_on_its_chunks(either, lengths, length):
    samples = QUANTIZED[:length]

    def streamed(lengths):
        stream, pieces, start = Restorer(either).stream(RATE, bits=5), [], 0
        for size in lengths:
            pieces.append(stream.feed(samples[start : start + size]))
            start += size
        return np.concatenate([*pieces, stream.feed(samples[start:]), stream.flush()])

    np.testing.assert_array_equal(streamed(lengths), streamed([]))
    np.testing.assert_allclose(streamed([]), Restorer(either).restore(samples, RATE, bits=5), atol=1e-6)


@pytest.mark.parametrize("shifts", [2, 3, 8])
def test_shifts_are_the_mean_of_what_the_network_makes_on_each_grid(model, shifts):
    cells = QUANTIZER.cells(QUANTIZER.encode(QUANTIZED))
    lower, upper = cells.lo / QUANTIZER.step, cells.hi / QUANTIZER.step
    grids = []
    for shift in (8 * part // shifts for part in range(shifts)):
        early = (0, 0) if shift == 0 else (8 - shift, 0)
        grids.append(NETWORK(np.pad(lower, early), np.pad(upper, early))[early[0] :] * QUANTIZER.step)
    restored = Restorer(model, shifts=shifts).restore(QUANTIZED, RATE, bits=5)
    np.testing.assert_allclose(restored, cells.project(np.mean(grids, axis=0)), atol=1e-6)
    assert np.abs(grids[0] - grids[1]).max() > 1e-3


def test_it_looks_as_far_as_it_reaches_and_its_shifts_a_little_farther():
    method = LearnedMethod(NETWORK, QUANTIZER.step, shifts=1)
    assert (method.hop, method.before, method.after) == (8, 3 * 16, 3 * 16)
    assert (method.stream_block, method.offline_block) == (48, 800)
    method = LearnedMethod(NETWORK, QUANTIZER.step)
    assert (method.before, method.after) == (3 * 16 + 8, 3 * 16 + 4)
    with pytest.raises(ValueError, match="shifts"):
        LearnedMethod(NETWORK, QUANTIZER.step, shifts=9)


def test_a_causal_network_looks_back_and_comes_out_hop_by_hop():
    method = LearnedMethod(CAUSAL, QUANTIZER.step)
    assert (method.before, method.after) == (2 * 8 + 4 * 8, 2 * 8)
    assert method.stream_block == 8


@pytest.fixture
def causal_stream(tmp_path):
    path = tmp_path / "net.safetensors"
    save(path, CAUSAL, Provenance(unit="cell", sample_rate_hz=RATE))
    return Restorer(str(path)).stream(RATE, bits=5)


@pytest.fixture
def pushed(monkeypatch):
    """How many hops went into networks; raises where the list of where to do so says."""
    hops, breaks, push = [], [], RunningNetwork.push

    def counted(network, lower, upper):
        hops.append(len(lower))
        if len(hops) in breaks:
            raise KeyboardInterrupt
        return push(network, lower, upper)

    monkeypatch.setattr(RunningNetwork, "push", counted)
    return hops, breaks


def test_a_causal_stream_computes_every_hop_once(causal_stream, pushed):
    for chunk in np.array_split(QUANTIZED, 50):
        causal_stream.feed(chunk)
    causal_stream.flush()
    before, signal, after = 6, 3000 // 8, 2
    assert pushed[0] == [8] * (before + signal + after)


def test_a_stream_that_was_interrupted_goes_on_to_the_same_samples(causal_stream, pushed):
    whole = np.concatenate([causal_stream.feed(QUANTIZED), causal_stream.flush()])
    pushed[1].append(len(pushed[0]) + 200)
    with pytest.raises(KeyboardInterrupt):
        causal_stream.feed(QUANTIZED)
    again = np.concatenate([causal_stream.feed(QUANTIZED[:0]), causal_stream.flush()])
    np.testing.assert_array_equal(again, whole)


def test_open_ended_cells_are_kept(model):
    samples = MidRise(5).quantize(1.5 * np.sin(np.arange(3000) / 11))
    stream = Restorer(model).stream(RATE, bits=5)
    restored = np.concatenate([stream.feed(samples), stream.flush()])
    assert np.isfinite(restored).all()
    known = np.abs(samples) < 31 / 32
    assert np.abs(restored - samples)[known].max() <= QUANTIZER.step / 2 + 1e-12
    assert (np.abs(restored)[np.abs(samples) == 31 / 32] >= 30 / 32).all()


def test_unbounded_cells_may_hold_anything():
    missing = np.arange(3000) // 10 == 10
    cells = QUANTIZER.cells(QUANTIZER.encode(QUANTIZED)).opened(missing, missing)
    restored = LearnedMethod(NETWORK, QUANTIZER.step).restore(cells)
    assert np.isfinite(restored).all()


def test_a_model_file_that_changes_is_read_again(tmp_path):
    path, restored = tmp_path / "net.safetensors", []
    for network in (NETWORK, disturbed(PLAN, 5, scale=0.1, dtype=np.float32), NETWORK):
        save(path, network, Provenance(unit="cell", sample_rate_hz=RATE), overwrite=True)
        restored.append(Restorer(str(path)).restore(QUANTIZED, RATE, bits=5))
    assert np.abs(restored[0] - restored[1]).max() > 1e-3
    np.testing.assert_array_equal(restored[0], restored[2])


def test_sound_that_it_is_not_for_is_refused(model):
    with pytest.raises(ValueError, match="8000"):
        Restorer(model).restore(QUANTIZED, 8000, bits=5)
    with pytest.raises(ValueError, match=r"net\.safetensors"):
        Restorer(model).stream(RATE, law="mulaw")
    with pytest.raises(ValueError, match="iterations"):
        Restorer(model, iterations=5)


def test_networks_that_are_not_for_sound_at_large_are_refused(tmp_path):
    save(tmp_path / "scale", NETWORK, Provenance(unit="full scale"))
    with pytest.raises(ValueError, match="scale"):
        Restorer(str(tmp_path / "scale"))
    save(tmp_path / "dense", Network.started(PrimalDual(DenseMap(16), 1)), Provenance(unit="cell"))
    with pytest.raises(ValueError, match="convolutional"):
        Restorer(str(tmp_path / "dense"))
    with pytest.raises(ValueError, match="step"):
        LearnedMethod(NETWORK, 0.0)
