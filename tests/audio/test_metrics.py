import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio import metrics
from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import MidRise

GENERATOR = np.random.default_rng(0)
SPEECHLIKE = GENERATOR.standard_normal(32000) * np.abs(np.sin(np.arange(32000) / 2000))
NOISE = GENERATOR.standard_normal(32000)
IN_DECIBELS = [metrics.snr, metrics.snr_pooled, metrics.segmental_snr, metrics.si_sdr]


@pytest.mark.parametrize("measure", [metrics.snr, metrics.snr_pooled])
@given(level_db=st.floats(-20, 60))
def test_ratios_of_known_noise(measure, level_db):
    noise = NOISE * np.linalg.norm(SPEECHLIKE) / np.linalg.norm(NOISE) / 10 ** (level_db / 20)
    assert measure(SPEECHLIKE, SPEECHLIKE + noise) == pytest.approx(level_db)


def test_snr_averages_ratios_and_pooled_snr_energies():
    references = [np.array([1.0, 0.0]), np.array([10.0])]
    estimates = [np.array([1.0, 0.1]), np.array([11.0])]
    assert metrics.snr(references, estimates) == pytest.approx(20.0)
    assert metrics.snr([references[0]], [estimates[0]]) == pytest.approx(20.0)
    assert metrics.snr_pooled(references, estimates) == pytest.approx(10 * np.log10(101 / 1.01))
    assert metrics.mse(references, estimates) == pytest.approx(1.01 / 3)


def test_rows_are_signals():
    rows = np.array([[1.0, 0.0], [0.0, 2.0]])
    assert metrics.snr(rows, rows + np.diag([0.1, 0.02])) == pytest.approx((20 + 40) / 2)


@given(st.floats(0.01, 100), st.floats(-20, 40))
def test_si_sdr_is_scale_invariant(gain, level_db):
    orthogonal = NOISE - SPEECHLIKE * (NOISE @ SPEECHLIKE) / (SPEECHLIKE @ SPEECHLIKE)
    noise = orthogonal * np.linalg.norm(SPEECHLIKE) / np.linalg.norm(orthogonal) / 10 ** (level_db / 20)
    assert metrics.si_sdr(SPEECHLIKE, gain * (SPEECHLIKE + noise)) == pytest.approx(level_db, abs=1e-6)


def test_segmental_snr_limits_each_frame_and_skips_silence():
    reference = np.concatenate([np.ones(512), np.ones(512), np.zeros(512)])
    estimate = np.concatenate([np.full(512, 1.1), np.ones(512), np.ones(512)])
    assert metrics.segmental_snr(reference, estimate, 512, 512) == pytest.approx((20 + 35) / 2)


def test_log_spectral_distance_of_a_gain_is_the_gain():
    assert metrics.log_spectral_distance(SPEECHLIKE, 2 * SPEECHLIKE, floor_db=-200) == pytest.approx(
        6.0206, abs=1e-3
    )
    assert metrics.log_spectral_distance(SPEECHLIKE, SPEECHLIKE) == 0.0


@pytest.mark.parametrize("measure", IN_DECIBELS)
def test_perfect_estimate_has_best_scores(measure):
    assert measure(SPEECHLIKE, SPEECHLIKE) == (35.0 if measure is metrics.segmental_snr else np.inf)


@pytest.mark.parametrize("measure", [*IN_DECIBELS, metrics.log_spectral_distance])
def test_refuses_silent_reference(measure):
    with pytest.raises(ValueError, match="reference"):
        measure(np.zeros(1000), np.ones(1000))


@pytest.mark.parametrize(
    ("references", "estimates"),
    [
        (np.ones(3), np.ones(4)),
        ([], []),
        ([np.ones(3)], [np.ones(3), np.ones(3)]),
        ([np.ones(0)], [np.ones(0)]),
    ],
)
def test_refuses_unequal_or_empty_signals(references, estimates):
    with pytest.raises(ValueError, match="estimates"):
        metrics.mse(references, estimates)


@pytest.mark.parametrize(("measure", "package"), [(metrics.pesq, "pesq"), (metrics.stoi, "pystoi")])
def test_missing_package_names_extra(monkeypatch, measure, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pdrn\[metrics\]"):
        measure(SPEECHLIKE, SPEECHLIKE, 16000)


def test_pesq_refuses_other_rates():
    with pytest.raises(ValueError, match="44100"):
        metrics.pesq(SPEECHLIKE, SPEECHLIKE, 44100)


@pytest.mark.parametrize(("sample_rate_hz", "best"), [(16000, 4.64), (8000, 4.55)])
def test_pesq_of_5_bits_by_band(sample_rate_hz, best):
    pytest.importorskip("pesq")
    samples = speech()[0][:96000][:: 16000 // sample_rate_hz]
    assert metrics.pesq(samples, samples, sample_rate_hz) == pytest.approx(best, abs=0.01)
    assert 1.0 < metrics.pesq(samples, MidRise(5).quantize(samples), sample_rate_hz) < 2.5


def test_stoi_falls_with_noise():
    pytest.importorskip("pystoi")
    scores = [metrics.stoi(SPEECHLIKE, SPEECHLIKE + gain * NOISE, 16000) for gain in (0.0, 1.0)]
    assert scores[0] == pytest.approx(1.0)
    assert scores[1] < 0.9


@pytest.mark.parametrize("sample_rate_hz", [8000, 16000, 44100])
def test_zimtohrli_falls_with_noise(sample_rate_hz):
    pytest.importorskip("zimtohrli")
    scores = [
        metrics.zimtohrli(SPEECHLIKE, SPEECHLIKE + gain * NOISE, sample_rate_hz) for gain in (0.0, 0.01, 1.0)
    ]
    assert scores[0] == pytest.approx(5.0)
    assert 5 > scores[1] > scores[2] >= 1


def test_zimtohrli_refuses_short_signals():
    pytest.importorskip("zimtohrli")
    with pytest.raises(ValueError, match="Zimtohrli"):
        metrics.zimtohrli(NOISE[:5000], NOISE[:5000], 16000)


@pytest.mark.parametrize("estimate", [[0.0, 0.0], [0.0, 3.0]])
def test_si_sdr_of_orthogonal_estimate_is_minus_inf(estimate):
    assert metrics.si_sdr(np.array([2.0, 0.0]), np.array(estimate)) == -np.inf


@pytest.mark.parametrize(
    ("reference", "estimate"),
    [(np.zeros(16000), NOISE[:16000]), (NOISE[:16000], np.zeros(16000)), (NOISE[:100], NOISE[:100])],
)
def test_pesq_refuses_signals_without_speech(reference, estimate):
    pytest.importorskip("pesq")
    with pytest.raises(ValueError, match="PESQ"):
        metrics.pesq(reference, estimate, 16000)


@pytest.mark.parametrize("length", [100, 5000])
def test_stoi_refuses_short_signals(length):
    pytest.importorskip("pystoi")
    with pytest.raises(ValueError, match="STOI"):
        metrics.stoi(NOISE[:length], NOISE[:length], 16000)
