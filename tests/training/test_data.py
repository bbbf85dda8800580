"""Batches and their cells, the development error, and augmentation."""

import numpy as np
import pytest
import soundfile

from pdrn.audio.corpus import Corpus
from pdrn.audio.metrics import mse, snr
from pdrn.audio.quantizers import MidRise, MidTread
from pdrn.errors import AudioError
from pdrn.nets import DenseMap, PrimalDual
from pdrn.nets.files import encode
from pdrn.training.config import Data, from_table
from pdrn.training.data import (
    OFFSETS,
    WAVES,
    DevelopmentData,
    TrainingData,
    add_rumble,
    change_speed,
    clipped_cells,
    quantized,
)

DENSE = {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": 64}}


def training_data(corpus, **data):
    settings = {"length": 64} | data
    return TrainingData.read(corpus, from_table({"architecture": DENSE, "data": settings, "seed": 3}))


def signals(rows=50, length=40):
    return np.random.default_rng(0).uniform(-1, 1, (rows, length)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "kind", "bits"),
    [("mid-rise", MidRise, bits) for bits in (1, 5, 8)]
    + [("mid-tread", MidTread, bits) for bits in (2, 5, 8)],
)
def test_cells_are_those_of_the_quantizers(name, kind, bits):
    s = 0.9 * signals()
    examples = quantized(s, Data(bits=(bits,), quantizer=name), np.random.default_rng(0))
    quantizer = kind(bits, full_scale=True)
    cells = quantizer.cells(quantizer.encode(np.clip(examples.signal, -1, 1)))
    inner = cells.hi - cells.lo == quantizer.step  # the outermost of a mid-tread quantizer are of another
    assert inner.mean() > (0.99 if name == "mid-rise" else 0.5)
    assert np.array_equal(examples.lo[inner], cells.lo[inner])
    assert np.array_equal(examples.hi[inner], cells.hi[inner])
    assert np.allclose(examples.signal, s)


def test_a_sample_at_full_scale_is_in_the_highest_cell():
    examples = quantized(np.float32([[1.0, -1.0]]), Data(bits=(5,)), np.random.default_rng(0))
    assert examples.hi.tolist() == [[1.0, -15 / 16]]
    assert examples.lo.tolist() == [[15 / 16, -1.0]]


def test_unit_cell_has_width_one():
    s = signals()
    examples = quantized(s, Data(bits=(2.5, 8.5), unit="cell", quantizer="both"), np.random.default_rng(0))
    assert (examples.hi - examples.lo == 1).all()
    assert np.allclose(examples.signal * examples.scale[:, None], s, atol=1e-6)
    bits = 1 - np.log2(examples.scale)
    assert 2.5 <= bits.min() < 3.5 < 7.5 < bits.max() <= 8.5
    assert len(np.unique(bits)) == 50
    edges = np.mod(examples.lo, 1).max(-1)
    assert set(edges) == {0.0, 0.5}


@pytest.mark.parametrize("unit", ["full scale", "cell"])
@pytest.mark.parametrize("quantizer", ["mid-rise", "mid-tread"])
def test_signals_lie_in_their_cells(unit, quantizer):
    data = Data(bits=(2.0, 9.0), unit=unit, quantizer=quantizer, flips=True)
    examples = quantized(signals(), data, np.random.default_rng(0))
    assert (examples.lo <= examples.signal + 1e-5).all()
    assert (examples.signal <= examples.hi + 1e-5).all()


def test_flips_change_the_sign_of_whole_segments():
    s = signals()
    flipped = quantized(s, Data(flips=True), np.random.default_rng(0)).signal
    sign = flipped[:, :1] / s[:, :1]
    assert set(np.sign(sign).ravel()) == {-1.0, 1.0}
    assert np.allclose(flipped, np.sign(sign) * s)


def test_an_epoch_of_cut_frames_has_each_once_in_another_order(corpus):
    data = training_data(corpus)
    epochs = [np.concatenate([batch.signal for batch in data.batches(epoch)]) for epoch in (0, 1, 0)]
    assert [len(epoch) for epoch in epochs] == 3 * [1800]
    assert np.array_equal(epochs[0], epochs[2])
    assert not np.array_equal(epochs[0], epochs[1])
    assert np.array_equal(np.unique(epochs[0], axis=0), np.unique(epochs[1], axis=0))
    assert data.steps_per_epoch == 15


def test_random_frames_lie_anywhere_and_follow_from_seed_and_epoch(corpus):
    data = training_data(corpus, placing="random")
    first, again = (np.concatenate([batch.signal for batch in data.batches(4)]) for _ in range(2))
    assert np.array_equal(first, again)
    assert len(first) == data.steps_per_epoch * 128 >= 1800
    starts = {row.tobytes() for row in training_data(corpus).frames}
    assert sum(row.tobytes() in starts for row in first) < 0.1 * len(first)
    assert training_data(corpus, placing="random", batches=3).steps_per_epoch == 3


@pytest.mark.parametrize("measured_on", ["frames", "files"])
@pytest.mark.parametrize("unit", ["full scale", "cell"])
def test_development_error_equals_the_metrics(corpus, measured_on, unit):
    data = Data(length=64, measured_on=measured_on, unit=unit)
    (measured,) = DevelopmentData.read(corpus, data).measured(
        lambda lower, upper: lower + 0.25 * (upper - lower)
    )
    wanted = corpus.signals("dev")
    if measured_on == "frames":
        wanted = [s[: len(s) // 64 * 64] for s in wanted]
    cells = [MidRise(5).cells(MidRise(5, full_scale=True).encode(s)).lo for s in wanted]
    lower = [np.maximum(lo, -1) for lo in cells]
    assert measured.mse == pytest.approx(mse(wanted, [lo + 1 / 64 for lo in lower]), rel=1e-4)
    assert measured.snr == pytest.approx(snr(wanted, [lo + 1 / 64 for lo in lower]), rel=1e-4)
    quantized_mse = mse(wanted, [lo + 1 / 32 for lo in lower])
    assert measured.ratio == pytest.approx(measured.mse / quantized_mse, rel=1e-4)


def test_a_range_of_bit_depths_is_measured_at_the_whole_ones(corpus):
    data = Data(length=64, bits=(2.5, 5.5))
    measured = DevelopmentData.read(corpus, data).measured(lambda lower, upper: (lower + upper) / 2)
    assert [each.bits for each in measured] == [3.0, 4.0, 5.0]
    assert [round(each.ratio, 6) for each in measured] == [1.0, 1.0, 1.0]
    assert measured[0].snr < measured[1].snr - 4
    assert Data(bits=(4.2, 4.8)).depths_measured == (4.2, 4.8)


def test_full_scale_is_in_the_highest_cell_of_every_row_that_has_an_edge_at_zero():
    signal = np.float32([[1.0, -1.0]] * 16)
    made = quantized(signal, Data(bits=(5.0,), quantizer="both"), np.random.default_rng(0))
    ends = set(zip(made.lo[:, 0].tolist(), made.hi[:, 0].tolist(), strict=True))
    assert ends == {(0.9375, 1.0), (0.96875, 1.03125)}


def test_development_on_silence_alone_is_refused(tmp_path):
    for split, heard in (("train", slice(None)), ("dev", slice(130, 135)), ("test", slice(None))):
        (tmp_path / split).mkdir()
        samples = np.zeros(140)
        samples[heard] = 0.5
        soundfile.write(tmp_path / split / "a.wav", samples, 16000)
    corpus = Corpus.scan(tmp_path)
    with pytest.raises(ValueError, match=r"dev.*silent"):
        DevelopmentData.read(corpus, Data(length=64))
    on_files = DevelopmentData.read(corpus, Data(length=64, measured_on="files"))
    assert np.isfinite(on_files.measured(lambda lower, upper: lower)[0].snr)


RATE = 16000


def tone(hertz, seconds=1.0):
    return np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE).astype(np.float32)


def peak_hertz(signal):
    return np.argmax(np.abs(np.fft.rfft(signal * np.hanning(len(signal))))) * RATE / len(signal)


@pytest.mark.parametrize("speed", [0.8, 1.0, 1.25])
def test_faster_is_higher_and_shorter(speed):
    played = change_speed(tone(1000), speed)
    assert len(played) == pytest.approx(RATE / speed, abs=1)
    assert peak_hertz(played) == pytest.approx(1000 * speed, abs=2)
    assert played.dtype == np.float32


def test_a_share_of_the_segments_rumbles_slowly():
    signals = np.zeros((2000, 512), np.float32)
    changed = add_rumble(signals, 0.25, np.random.default_rng(0))
    rumbling = np.ptp(changed, axis=-1) > 0
    assert rumbling.mean() == pytest.approx(0.25, abs=0.03)
    assert np.abs(changed).max() <= OFFSETS[1] + WAVES[1]
    assert np.abs(np.diff(changed)).max() < WAVES[1] * 2 * np.pi * 7.5e-3
    assert (changed[rumbling].mean(-1) > 0).mean() == pytest.approx(0.5, abs=0.1)


def test_peaks_beyond_full_scale_are_attenuated():
    loud = np.stack([tone(500), 0.5 * tone(500)])
    changed = add_rumble(loud, 1.0, np.random.default_rng(1))
    assert np.abs(changed).max(-1)[0] == 1
    assert np.abs(changed).max(-1)[1] < 0.7


def test_rumbling_segments_lie_in_their_cells():
    data = Data(bits=(2.0, 9.0), unit="cell", quantizer="both", flips=True, rumble=1.0)
    examples = quantized(np.stack([tone(300), tone(70)]), data, np.random.default_rng(0))
    assert (examples.lo <= examples.signal + 1e-4).all()
    assert (examples.signal <= examples.hi + 1e-4).all()


def test_training_signals_have_every_speed(corpus):
    def signals(speeds):
        table = {"recipe": "modern", "architecture": encode(PrimalDual(DenseMap(64), 1))}
        return TrainingData.read(
            corpus, from_table(table | {"data": {"speeds": speeds, "length": 64}})
        ).signals[None]

    once, thrice = signals([1.0]), signals([0.9, 1.0, 1.1])
    assert len(thrice) == 3 * len(once)
    np.testing.assert_array_equal(thrice[len(once)], once[0])
    assert len(thrice[0]) > len(once[0]) > len(thrice[-len(once)])


def test_speed_changes_stay_in_full_scale():
    square = np.sign(np.sin(np.arange(4000) / 9)).astype(np.float32)
    for speed in (0.9, 1.1):
        assert np.abs(change_speed(square, speed)).max() <= 1


SPECTRAL = {
    "kind": "SpectralPrimalDual",
    "windows": [0.008],
    "steps": 2,
    "channels": 4,
    "blocks": 1,
    "hidden": 4,
}
SEVERAL_RATES = {"length": 512, "placing": "random", "sample_rate_hz": 16000, "batches": 40}


def several_rates(folder, **data):
    config = from_table({"architecture": SPECTRAL, "data": SEVERAL_RATES | data, "budget": {"epochs": 1}})
    return TrainingData.read(Corpus.scan(folder, 16000), config)


def test_every_batch_has_one_of_the_training_rates(corpus_folder):
    data = several_rates(corpus_folder, training_rates_hz=[8000, 16000])
    assert {batch.sample_rate_hz for batch in data.batches(0)} == {8000, 16000}
    lengths = {rate: sum(map(len, signals)) for rate, signals in data.signals.items()}
    assert lengths[16000] == pytest.approx(2 * lengths[8000], rel=1e-3)


def test_files_are_not_resampled_to_higher_rates(corpus_folder, tmp_path):
    for folder in ("train", "dev", "test"):
        (tmp_path / folder).mkdir()
        for file in (corpus_folder / folder).iterdir():
            (tmp_path / folder / file.name).symlink_to(file)
        soundfile.write(tmp_path / folder / "high.flac", signals(1, 9600)[0], 48000)
    data = several_rates(tmp_path, training_rates_hz=[16000, 44100])
    assert len(data.signals[16000]) == 7
    assert len(data.signals[44100]) == 1
    with pytest.raises(AudioError, match="96000"):
        several_rates(tmp_path, training_rates_hz=[96000])


def test_jitter_changes_the_rate_that_a_batch_is_taken_for(corpus_folder):
    data = several_rates(corpus_folder, training_rates_hz=[8000], rate_jitter=0.1)
    rates = {batch.sample_rate_hz for batch in data.batches(0)}
    assert len(rates) > 20
    assert 7200 <= min(rates) < 7600
    assert 8400 < max(rates) <= 8800


def test_a_share_of_segments_is_companded_or_clipped():
    s = 0.9 * signals(rows=200, length=400)
    data = Data(bits=(5,), companded=0.4, clipped=0.4)
    examples = quantized(s, data, np.random.default_rng(0))
    widths = examples.hi - examples.lo
    clipped = np.isinf(widths).any(-1)
    uniform = (widths == 1 / 16).all(-1)
    assert clipped.mean() == pytest.approx(0.4, abs=0.1)
    assert uniform.mean() == pytest.approx(0.2, abs=0.1)
    assert (examples.lo <= s + 1e-6).all()
    assert (s <= examples.hi + 1e-6).all()


@pytest.mark.parametrize("amplitude", [2e-4, 3e-5])
def test_cells_of_quiet_clipped_sound_hold_the_truth(amplitude):
    s = amplitude * tone(300)
    assert clipped_cells(s, 5.0).violation(s) < 2.0**-30


@pytest.mark.parametrize("snr_db", [3.0, 10.0, 20.0])
def test_clipped_cells_have_the_wanted_ratio(snr_db):
    s = (tone(300) * np.linspace(0, 1, RATE)).astype(np.float32)
    cells = clipped_cells(s, snr_db)
    assert cells.violation(s) < 2.0**-16
    assert snr(s, cells.centre) == pytest.approx(snr_db, abs=0.1)


def test_segments_are_attenuated_by_up_to_the_given_decibels():
    s = signals(rows=300)
    attenuated = quantized(s, Data(attenuation_db=20.0), np.random.default_rng(0)).signal
    decibels = -20 * np.log10(np.abs(attenuated).max(-1) / np.abs(s).max(-1))
    assert 0 <= decibels.min() < 1
    assert 19 < decibels.max() <= 20
