"""Chambolle-Pock on overlapping frames: better than it came, whatever the cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw
from pdrn.restoration.methods import LOUDNESS, PACE, OverlappedChambollePock, tuned_pace
from pdrn.restoration.restorer import Restorer


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
def test_speech_is_better_than_it_came_at_every_depth(voice, kind, bits, most):
    """Up to 4, 6 and 8 bits, and above; a mid-tread quantizer does no harm to silence, and leaves less."""
    samples, rate = voice
    quantizer = kind(bits)
    limit = most[0] if bits <= 4 else most[1] if bits <= 6 else most[2] if bits <= 8 else 1
    assert ratio(samples, quantizer.cells(quantizer.encode(samples)), rate) < limit


def test_a_few_peaks_above_silence_are_hardly_harmed():
    samples, rate = speech()
    samples = 0.485 * samples[7 * rate : 8 * rate]
    cells = MidTread(2).cells(MidTread(2).encode(samples))
    assert np.count_nonzero(cells.centre) < 0.002 * len(samples)
    assert ratio(samples, cells, rate) < 1.005


@pytest.mark.parametrize("gain", [1.0, 0.1, 0.02])
@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
def test_telephone_speech_is_better_than_it_came_at_every_level(voice, law, gain):
    samples, rate = voice[0] * gain, voice[1]
    assert ratio(samples, law.cells(law.encode(samples)), rate) < 0.95


@pytest.mark.parametrize("rate", [8000, 11025, 44100])
def test_any_sample_rate_will_do(voice, rate):
    samples = voice[0]  # speech at another speed is as good a signal
    quantizer = MidRise(5)
    assert ratio(samples, quantizer.cells(quantizer.encode(samples)), rate) < 0.5


def test_clipped_peaks_rise_towards_where_they_were(voice):
    samples, rate = voice
    clipped = np.clip(samples, -0.4, 0.4)
    cut = np.abs(samples) > 0.4
    cells = Cells(clipped, clipped).opened(samples < -0.4, samples > 0.4)
    restored = Restorer(method="cp").restore_cells(cells, rate)
    assert cells.violation(restored) == 0
    before, after = (((each - samples)[cut] ** 2).sum() for each in (clipped, restored))
    assert after < 0.4 * before


def test_short_gaps_are_filled(voice):
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
def test_odd_signals_stay_in_their_cells(signal, bits, kind):
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
def test_any_cells_are_kept(lo, width, infinite_below):
    lo = np.array(lo)
    cells = Cells(np.full_like(lo, -np.inf) if infinite_below else lo, lo + width)
    assert cells.violation(Restorer(method="cp").restore_cells(cells, 1000)) == 0


@pytest.mark.parametrize("radius", [1e-11, 1e-9, 2.0**-25, 2.0**-17])
def test_fine_cells_are_not_spoilt_by_rounding(voice, radius):
    samples, rate = voice
    truth = samples + np.random.default_rng(0).uniform(-radius, radius, len(samples))
    assert ratio(truth, Cells(samples - radius, samples + radius), rate) < 1.01


@given(rate=st.integers(1, 10_000_000))
def test_frames_are_whole_hops_at_any_rate(rate):
    method = OverlappedChambollePock.at(rate)
    assert method.frame_length % method.hop == 0
    assert method.before == method.after == method.frame_length - method.hop
    assert 64 <= method.frame_length <= 16384


def test_the_pace_is_that_of_the_table_and_constant_beyond():
    np.testing.assert_allclose(tuned_pace(np.array(LOUDNESS)), PACE)
    np.testing.assert_allclose(tuned_pace(np.array([-50.0, 50.0])), [PACE[0], PACE[-1]])


def test_no_iterations_are_refused():
    with pytest.raises(ValueError, match="iterations"):
        Restorer(iterations=0)
