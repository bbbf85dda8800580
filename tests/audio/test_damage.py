import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.quantizers import ALaw, Clipping, Gaps, MidRise, MidTread, MuLaw, Truncation

WAVE = np.sin(0.01 * np.arange(4000))


@given(st.floats(0.01, 10), st.lists(st.floats(-20, 20), min_size=1))
def test_clipping_knows_the_rest_exactly_and_the_peaks_by_one_side(threshold, values):
    samples, quantizer = np.array(values), Clipping(threshold)
    codes = quantizer.encode(samples)
    cells = quantizer.cells(codes)
    assert cells.violation(samples) == 0.0
    known = np.abs(samples) < min(threshold, np.float32(threshold))
    np.testing.assert_array_equal(cells.lo[known], samples[known])
    np.testing.assert_array_equal(cells.hi[known], samples[known])
    assert np.isinf(cells.radius[np.abs(samples) >= threshold]).all()
    np.testing.assert_array_equal(quantizer.centres(codes), np.clip(samples, -threshold, threshold))


@given(
    st.floats(0.05, 0.9),
    st.sampled_from(
        [MidTread(16), MidTread(8), MidRise(5), Truncation(8), MuLaw(), ALaw(), MidRise(6, full_scale=True)]
    ),
)
def test_what_was_clipped_and_then_quantized_is_open_ended(threshold, quantizer):
    stored = quantizer.quantize(np.clip(WAVE, -threshold, threshold))
    clipping = Clipping(threshold, quantizer)
    cells = clipping.cells(clipping.codes_of(stored))
    assert cells.violation(WAVE) == 0.0
    assert np.isinf(cells.hi[threshold <= WAVE]).all()
    assert np.isinf(cells.lo[-threshold >= WAVE]).all()
    code = quantizer.encode([threshold])
    step = quantizer.cells(code).hi - quantizer.cells(code).lo
    assert np.isfinite(cells.radius[np.abs(WAVE) < threshold - step]).all()


@pytest.mark.parametrize("step", [1 / 16, 0.7 / 16])
def test_a_threshold_at_full_scale_is_reached_by_the_outermost_codes(step):
    quantizer = MidRise(5, step, full_scale=True)
    cells = Clipping(quantizer.limit, quantizer).cells(np.array([-16, -15, 14, 15]))
    assert np.isinf(cells.radius).tolist() == [True, False, False, True]


def test_16_bit_samples_clipped_between_two_codes_are_open_ended():
    stored = np.rint(np.clip(WAVE, -0.65, 0.65) * 32768) / 32768
    clipping = Clipping(0.65, MidTread(16))
    opened = np.isinf(clipping.cells(clipping.codes_of(stored)).radius)
    assert np.count_nonzero(opened) == np.count_nonzero(np.abs(stored) == stored.max()) == 2230


@pytest.mark.parametrize("threshold", [0.65, np.float32(0.65), 0.7, np.float32(0.7)])
def test_samples_that_were_clipped_in_float32_are_open_ended(threshold):
    wave = WAVE.astype(np.float32)
    clipped = np.clip(wave, -np.float32(threshold), np.float32(threshold))
    cells = Clipping(threshold).cells(clipped)
    assert cells.violation(wave) == 0.0
    assert np.count_nonzero(np.isinf(cells.radius)) == np.count_nonzero(clipped.max() == np.abs(clipped))


def test_a_gap_may_hold_anything():
    quantizer = Gaps()
    cells = quantizer.cells(quantizer.encode([0.5, np.nan]))
    assert (cells.lo.tolist(), cells.hi.tolist()) == ([0.5, -np.inf], [0.5, np.inf])
    assert quantizer.quantize([0.5, np.nan]).tolist() == [0.5, 0.0]


def test_gaps_and_saturation_combine_with_any_quantizer_s_cells():
    cells = MidRise(3).cells(np.array([0, 1, 1])).opened([True, False, False], [True, True, False])
    assert cells.lo.tolist() == [-np.inf, 0.25, 0.25]
    assert cells.hi.tolist() == [np.inf, np.inf, 0.5]


@pytest.mark.parametrize("threshold", [0.0, -1.0, np.inf, np.nan])
def test_impossible_thresholds_are_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        Clipping(threshold)


def test_nan_is_not_clipped():
    with pytest.raises(ValueError, match="NaN"):
        Clipping(0.5).encode([0.0, np.nan])
