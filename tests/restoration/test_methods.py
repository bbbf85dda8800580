"""Chambolle-Pock on frames, a network, and their mean."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nets.plans import disturbed

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import speech
from pdrn.audio.files import read, write
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw
from pdrn.errors import InputError
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual, SpectralPrimalDual
from pdrn.nets.files import Provenance, save
from pdrn.nets.runtime import RunningNetwork
from pdrn.restoration import methods
from pdrn.restoration.methods import (
    LOUDNESS,
    PACE,
    ChambollePockMethod,
    NetworkMethod,
    SpectralMethod,
    require_spectral,
    tuned_pace,
)
from pdrn.restoration.restorer import Restorer
from pdrn.restoration.streaming import BlockRestorer


@pytest.fixture(scope="module")
def voice():
    samples, rate = speech()
    return samples[2 * rate : 5 * rate] / np.abs(samples[2 * rate : 5 * rate]).max(), rate


def ratio(signal, cells, rate):
    """Mean squared error of the restoration over that of the centres."""
    restored = Restorer(method="cp").restore_cells(cells, rate)
    assert cells.violation(restored) == 0
    return ((restored - signal) ** 2).mean() / ((cells.centre - signal) ** 2).mean()


@pytest.mark.parametrize("bits", range(2, 13))
@pytest.mark.parametrize(("kind", "most"), [(MidRise, (0.2, 0.3, 0.5)), (MidTread, (0.8, 0.75, 0.85))])
def test_improves_speech_at_every_bit_depth(voice, kind, bits, most):
    """Up to 4, 6 and 8 bits, and above; a mid-tread quantizer does no harm to silence, and leaves less."""
    samples, rate = voice
    quantizer = kind(bits)
    limit = most[0] if bits <= 4 else most[1] if bits <= 6 else most[2] if bits <= 8 else 1
    assert ratio(samples, quantizer.cells(quantizer.encode(samples)), rate) < limit


def test_hardly_harms_few_peaks_above_silence():
    samples, rate = speech()
    samples = 0.485 * samples[7 * rate : 8 * rate]
    cells = MidTread(2).cells(MidTread(2).encode(samples))
    assert np.count_nonzero(cells.centre) < 0.002 * len(samples)
    assert ratio(samples, cells, rate) < 1.005


@pytest.mark.parametrize("gain", [1.0, 0.1, 0.02])
@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
def test_improves_g711_speech_at_every_level(voice, law, gain):
    samples, rate = voice[0] * gain, voice[1]
    assert ratio(samples, law.cells(law.encode(samples)), rate) < 0.95


@pytest.mark.parametrize("rate", [8000, 11025, 44100])
def test_improves_any_sample_rate(voice, rate):
    samples = voice[0]  # speech at another speed is as good a signal
    quantizer = MidRise(5)
    assert ratio(samples, quantizer.cells(quantizer.encode(samples)), rate) < 0.5


def test_raises_clipped_peaks(voice):
    samples, rate = voice
    clipped = np.clip(samples, -0.4, 0.4)
    cut = np.abs(samples) > 0.4
    cells = Cells(clipped, clipped).opened(samples < -0.4, samples > 0.4)
    restored = Restorer(method="cp").restore_cells(cells, rate)
    assert cells.violation(restored) == 0
    before, after = (((each - samples)[cut] ** 2).sum() for each in (clipped, restored))
    assert after < 0.4 * before


def test_fills_short_gaps(voice):
    samples, rate = voice
    gaps = np.zeros(len(samples), bool)
    for start in range(1000, len(samples) - 1000, 1500):
        gaps[start : start + 32] = True
    known = np.where(gaps, 0.0, samples)
    cells = Cells(known, known).opened(gaps, gaps)
    restored = Restorer(method="cp").restore_cells(cells, rate)
    np.testing.assert_array_equal(restored[~gaps], samples[~gaps])
    assert ((restored - samples)[gaps] ** 2).sum() < 0.5 * (samples[gaps] ** 2).sum()


@pytest.mark.parametrize(
    "signal",
    [
        pytest.param(np.zeros(3000), id="silence"),
        pytest.param(np.sign(np.sin(np.arange(3000) / 10) + 1e-9), id="full-scale square wave"),
        pytest.param(np.full(3000, 0.3), id="constant"),
        pytest.param(np.full(3000, 1.0), id="constant at full scale"),
        pytest.param(np.array([0.3]), id="one sample"),
        pytest.param(np.eye(1, 700)[0], id="a click"),
    ],
)
@pytest.mark.parametrize("bits", [1, 5, 12])
@pytest.mark.parametrize("kind", [MidRise, MidTread])
def test_odd_signals_stay_in_cells(signal, bits, kind):
    quantizer = kind(bits)
    cells = quantizer.cells(quantizer.encode(signal))
    restored = Restorer(method="cp").restore_cells(cells, 16000)
    assert cells.violation(restored) == 0
    assert np.isfinite(restored).all()


@given(
    lo=st.lists(st.floats(-1, 1), min_size=1, max_size=50),
    width=st.sampled_from([0.0, 1e-40, 1e-9, 0.01, 2.0, np.inf]),
    infinite_below=st.booleans(),
)
def test_any_cells_are_respected(lo, width, infinite_below):
    lo = np.array(lo)
    cells = Cells(np.full_like(lo, -np.inf) if infinite_below else lo, lo + width)
    assert cells.violation(Restorer(method="cp").restore_cells(cells, 1000)) == 0


@pytest.mark.parametrize("radius", [1e-11, 1e-9, 2.0**-25, 2.0**-17])
def test_fine_cells_survive_float32(voice, radius):
    samples, rate = voice
    truth = samples + np.random.default_rng(0).uniform(-radius, radius, len(samples))
    assert ratio(truth, Cells(samples - radius, samples + radius), rate) < 1.01


@given(rate=st.integers(1, 10_000_000))
def test_frames_are_whole_hops(rate):
    method = ChambollePockMethod.at(rate)
    assert method.frame_length % method.hop == 0
    assert method.before == method.after == method.frame_length - method.hop
    assert 64 <= method.frame_length <= 16384


def test_pace_interpolates_table():
    np.testing.assert_allclose(tuned_pace(np.array(LOUDNESS)), PACE)
    np.testing.assert_allclose(tuned_pace(np.array([-50.0, 50.0])), [PACE[0], PACE[-1]])


def test_refuses_zero_iterations():
    with pytest.raises(ValueError, match="iterations"):
        Restorer(iterations=0)


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


def test_blocks_equal_network_on_whole(model):
    cells = QUANTIZER.cells(QUANTIZER.encode(QUANTIZED))
    whole = NETWORK(cells.lo / QUANTIZER.step, cells.hi / QUANTIZER.step) * QUANTIZER.step
    restored = Restorer(model, method="network", shifts=1).restore(QUANTIZED, RATE, bits=5)
    np.testing.assert_allclose(restored, cells.project(whole), atol=1e-6)
    assert np.abs(restored - QUANTIZED).max() > 0.1 * QUANTIZER.step
    assert cells.violation(restored) == 0


def test_digital_silence_stays_silent(either):
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
def test_stream_is_independent_of_chunks(either, lengths, length):
    samples = QUANTIZED[:length]

    def streamed(lengths):
        stream, pieces, start = Restorer(either, method="network").stream(RATE, bits=5), [], 0
        for size in lengths:
            pieces.append(stream.feed(samples[start : start + size]))
            start += size
        return np.concatenate([*pieces, stream.feed(samples[start:]), stream.flush()])

    np.testing.assert_array_equal(streamed(lengths), streamed([]))
    np.testing.assert_allclose(
        streamed([]), Restorer(either, method="network").restore(samples, RATE, bits=5), atol=1e-6
    )


@pytest.mark.parametrize("shifts", [2, 3, 8])
def test_shifts_average_shifted_grids(model, shifts):
    cells = QUANTIZER.cells(QUANTIZER.encode(QUANTIZED))
    lower, upper = cells.lo / QUANTIZER.step, cells.hi / QUANTIZER.step
    grids = []
    for shift in (8 * part // shifts for part in range(shifts)):
        early = (0, 0) if shift == 0 else (8 - shift, 0)
        grids.append(NETWORK(np.pad(lower, early), np.pad(upper, early))[early[0] :] * QUANTIZER.step)
    restored = Restorer(model, method="network", shifts=shifts).restore(QUANTIZED, RATE, bits=5)
    np.testing.assert_allclose(restored, cells.project(np.mean(grids, axis=0)), atol=1e-6)
    assert np.abs(grids[0] - grids[1]).max() > 1e-3


def test_reach_of_network_and_shifts():
    method = NetworkMethod(NETWORK, QUANTIZER.step, shifts=1)
    assert (method.hop, method.before, method.after) == (8, 3 * 16, 3 * 16)
    assert (method.stream_block, method.offline_block(None)) == (48, 800)
    method = NetworkMethod(NETWORK, QUANTIZER.step)
    assert (method.before, method.after) == (3 * 16 + 8, 3 * 16 + 4)
    with pytest.raises(ValueError, match="shifts"):
        NetworkMethod(NETWORK, QUANTIZER.step, shifts=9)


def test_causal_network_streams_hop_by_hop():
    method = NetworkMethod(CAUSAL, QUANTIZER.step)
    assert (method.before, method.after) == (2 * 8 + 4 * 8, 2 * 8)
    assert method.stream_block == 8


@pytest.fixture
def causal_stream(tmp_path):
    path = tmp_path / "net.safetensors"
    save(path, CAUSAL, Provenance(unit="cell", sample_rate_hz=RATE))
    return Restorer(str(path), method="network").stream(RATE, bits=5)


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


def test_causal_stream_computes_every_hop_once(causal_stream, pushed):
    for chunk in np.array_split(QUANTIZED, 50):
        causal_stream.feed(chunk)
    causal_stream.flush()
    before, signal, after = 6, 3000 // 8, 2
    assert pushed[0] == [8] * (before + signal + after)


def test_interrupted_stream_continues_with_same_samples(causal_stream, pushed):
    whole = np.concatenate([causal_stream.feed(QUANTIZED), causal_stream.flush()])
    pushed[1].append(len(pushed[0]) + 200)
    with pytest.raises(KeyboardInterrupt):
        causal_stream.feed(QUANTIZED)
    again = np.concatenate([causal_stream.feed(QUANTIZED[:0]), causal_stream.flush()])
    np.testing.assert_array_equal(again, whole)


def test_open_ended_cells_are_respected(model):
    samples = MidRise(5).quantize(1.5 * np.sin(np.arange(3000) / 11))
    stream = Restorer(model, method="network").stream(RATE, bits=5)
    restored = np.concatenate([stream.feed(samples), stream.flush()])
    assert np.isfinite(restored).all()
    known = np.abs(samples) < 31 / 32
    assert np.abs(restored - samples)[known].max() <= QUANTIZER.step / 2 + 1e-12
    assert (np.abs(restored)[np.abs(samples) == 31 / 32] >= 30 / 32).all()


def test_unbounded_cells_are_finite_for_network():
    missing = np.arange(3000) // 10 == 10
    cells = QUANTIZER.cells(QUANTIZER.encode(QUANTIZED)).opened(missing, missing)
    restored = NetworkMethod(NETWORK, QUANTIZER.step).restore(cells)
    assert np.isfinite(restored).all()


def test_changed_model_file_is_read_again(tmp_path):
    path, restored = tmp_path / "net.safetensors", []
    for network in (NETWORK, disturbed(PLAN, 5, scale=0.1, dtype=np.float32), NETWORK):
        save(path, network, Provenance(unit="cell", sample_rate_hz=RATE), overwrite=True)
        restored.append(Restorer(str(path)).restore(QUANTIZED, RATE, bits=5))
    assert np.abs(restored[0] - restored[1]).max() > 1e-3
    np.testing.assert_array_equal(restored[0], restored[2])


def test_model_refuses_other_rate_and_differing_widths(model):
    with pytest.raises(ValueError, match="8000"):
        Restorer(model).restore(QUANTIZED, 8000, bits=5)
    with pytest.raises(ValueError, match=r"net\.safetensors"):
        Restorer(model).stream(RATE, law="mulaw")
    with pytest.raises(ValueError, match="iterations"):
        Restorer(model, iterations=5, method="network")


def test_refuses_networks_unfit_for_sound(tmp_path):
    save(tmp_path / "scale", NETWORK, Provenance(unit="full scale"))
    with pytest.raises(ValueError, match="scale"):
        Restorer(str(tmp_path / "scale"))
    save(tmp_path / "dense", Network.started(PrimalDual(DenseMap(16), 1)), Provenance(unit="cell"))
    with pytest.raises(ValueError, match="convolutional"):
        Restorer(str(tmp_path / "dense"))
    with pytest.raises(ValueError, match="step"):
        NetworkMethod(NETWORK, 0.0)


SPECTRAL = SpectralPrimalDual((0.008, 0.004), 2, channels=4, blocks=1, hidden=3, causal=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rate", [8000, 22050])
@pytest.mark.parametrize("chunk", [1000, 7, 333])
def test_spectral_stream_equals_array_and_file(causal, rate, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "OFFLINE_SAMPLES", 1500)  # several blocks
    network = disturbed(replace(SPECTRAL, causal=causal), 2, dtype=np.float32)
    save(tmp_path / "net", network, Provenance())
    restorer = Restorer(str(tmp_path / "net"), method="network")
    samples = np.stack([MidRise(5).quantize(0.9 * np.sin(np.arange(5000) / speed)) for speed in (9, 31)])
    whole = restorer.restore(samples, rate, bits=5)
    stream = restorer.stream(rate, bits=5)
    pieces = [stream.feed(samples[:, start : start + chunk]) for start in range(0, 5000, chunk)]
    np.testing.assert_allclose(np.concatenate([*pieces, stream.flush()], -1), whole, atol=1e-6)
    np.testing.assert_allclose(replace(restorer, threads=2).restore(samples, rate, bits=5), whole, atol=0)
    write(tmp_path / "in.wav", samples, rate)
    restorer.restore_file(tmp_path / "in.wav", tmp_path / "out.wav", bits=5)
    np.testing.assert_allclose(read(tmp_path / "out.wav").samples, whole, atol=1e-6)
    assert (stream.latency_seconds < 0.03) == causal


@pytest.mark.parametrize("length", [1, 2, 50])
def test_spectral_network_restores_short_sounds(length):
    network = disturbed(SPECTRAL, 3, dtype=np.float32)
    cells = MidRise(4).observe(MidRise(4).quantize(np.linspace(-0.5, 0.5, length)))
    method = SpectralMethod(network)
    restored = BlockRestorer(method, method.offline_block(length)).run([cells[None]])
    (samples,) = [piece.samples for piece in restored]
    assert samples.shape == (1, length)
    assert cells.violation(samples[0]) == 0


@pytest.mark.parametrize(
    "sizes",
    [
        {"windows": (1.0,), "steps": 150, "channels": 1, "blocks": 0, "sample_rate_hz": 48000},
        {"windows": (1.0,), "steps": 1, "channels": 1, "blocks": 1000},
        {"windows": (0.001,), "steps": 1000, "channels": 1, "blocks": 0},
        {"windows": (0.03,), "steps": 1, "channels": 20000, "blocks": 1},
        {"windows": (0.03,), "steps": 1, "channels": 1, "blocks": 1, "hidden": 1 << 20},
    ],
)
def test_spectral_networks_beyond_reason_are_refused_by_arithmetic(sizes):
    with pytest.raises(InputError, match="beyond reason"):
        require_spectral(SpectralPrimalDual(**sizes))
