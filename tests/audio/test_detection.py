from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.corpus import speech
from pdrn.audio.detection import detect
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw, Truncation
from pdrn.errors import UndetectedError

SPEECH = speech()[0]
LOUD = SPEECH[:120000] / np.abs(SPEECH[:120000]).max()
# Speech is on a 16-bit grid itself; a little noise gives it values between the codes.
SMOOTH = 0.99 * LOUD + np.random.default_rng(9).uniform(-1, 1, len(LOUD)) / 32768
KINDS = {"mid-rise": MidRise, "mid-tread": MidTread}


def as_16_bit(samples):
    return np.clip(np.rint(samples * 32768), -32768, 32767) / 32768


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", range(2, 13))
def test_each_bit_depth_is_detected_exactly(kind, bits):
    quantizer = KINDS[kind](bits)
    observed = quantizer.quantize(LOUD)
    found = detect(observed)
    assert (found.kind, found.effective_bits) == (kind, bits)
    assert found.quantizer == quantizer
    assert found.confidence > 0.999
    codes = quantizer.encode(LOUD)
    inner = (codes > codes.min()) & (codes < codes.max())
    for cells in (found.cells(observed), detect(observed, full_scale=True).cells(observed)):
        assert cells.violation(LOUD) == 0.0
        assert cells[inner] == quantizer.cells(codes)[inner]
    assert cells.radius.max() <= 0.75 * quantizer.step


def bits_left_unclear(observed):
    """What was rounded again to almost the same grid is refused."""
    with pytest.raises(UndetectedError):
        detect(observed)


@pytest.mark.parametrize("stored", [as_16_bit, np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@given(
    bits=st.integers(2, 12),
    gain=st.floats(0.3, 0.97),
    shift=st.integers(-300, 300).map(lambda shift: shift / 9973),
)
def test_gain_and_offset_after_quantizing_are_found_and_the_truth_is_in_the_cells(
    kind, stored, bits, gain, shift
):
    quantizer = KINDS[kind](bits)
    observed = stored(gain * quantizer.quantize(LOUD) + shift).astype(np.float64)
    if stored is as_16_bit and gain * quantizer.step * 32768 < 8:
        bits_left_unclear(observed)
        return
    found = detect(observed)
    assert found.effective_bits == bits
    stored_step = 2**-15 if stored is as_16_bit else 1e-6
    assert found.quantizer.step == pytest.approx(gain * quantizer.step, abs=stored_step)
    cells = found.cells(observed)
    assert cells.violation(gain * LOUD + shift) == 0.0
    assert np.median(cells.radius) == pytest.approx(gain * quantizer.step / 2, abs=2.5 * stored_step)


@pytest.mark.parametrize("direct_current", [-0.2, 0.001, 0.1])
@pytest.mark.parametrize("bits", [4, 8, 12])
def test_an_offset_before_quantizing_changes_nothing(bits, direct_current):
    found = detect(MidTread(bits).quantize(0.5 * LOUD + direct_current))
    assert (found.kind, found.quantizer.step, found.quantizer.offset) == ("mid-tread", 2 / 2**bits, 0.0)


def test_an_8_bit_file_is_mid_tread_of_8_bits_however_quiet():
    found = detect(MidTread(8).quantize(0.1 * LOUD))
    assert found.quantizer == MidTread(8)
    assert found.effective_bits == 5


def test_a_16_bit_file_with_32_levels_has_5_bits():
    codes = MidRise(5).encode(LOUD) * 2048 + 1024
    found = detect(codes / 32768)
    assert (found.kind, found.effective_bits, found.quantizer.step) == ("mid-rise", 5, 1 / 16)


def test_a_plain_16_bit_file_has_16_bits():
    found = detect(SPEECH)
    assert found.quantizer == MidTread(16)


def test_16_bits_over_32767_are_found():
    found = detect(np.float32(np.rint(SMOOTH * 32767) / 32767))
    assert found.kind == "mid-tread"
    assert found.quantizer.step == pytest.approx(1 / 32767, rel=1e-6)


@pytest.mark.parametrize(("kind", "law"), [("mu-law", MuLaw()), ("A-law", ALaw())])
@pytest.mark.parametrize("gain", [1.0, 0.1])
def test_g711_expanded_to_16_bit_is_recognised(kind, law, gain):
    observed = law.quantize(gain * LOUD)
    found = detect(observed)
    assert (found.kind, found.effective_bits) == (kind, 8)
    assert found.cells(observed).violation(gain * LOUD) == 0.0


def as_24_bit(samples):
    return np.rint(samples * 2**23) / 2**23


@pytest.mark.parametrize(("kind", "law"), [("mu-law", MuLaw()), ("A-law", ALaw())])
@pytest.mark.parametrize(("gain", "shift"), [(32768 / 32767, 0.0), (0.8, 0.0), (1.0, 0.001), (0.3, -0.01)])
@pytest.mark.parametrize("stored", [as_24_bit, np.float32, np.float64])
@pytest.mark.parametrize("length", [4000, 120000])
def test_g711_with_gain_and_offset_is_recognised(kind, law, gain, shift, stored, length):
    truth = 0.9 * LOUD[:length]
    observed = stored(gain * law.quantize(truth) + shift).astype(np.float64)
    found = detect(observed)
    assert (found.kind, found.effective_bits) == (kind, 8)
    assert found.confidence > 0.999
    assert (found.gain, found.shift) == pytest.approx((gain, shift), abs=1e-5)
    cells = found.cells(observed)
    assert cells.violation(gain * truth + shift) == 0.0
    assert np.median(cells.radius) < 0.01
    with pytest.raises(ValueError, match=kind):
        found.cells(observed + gain / 30000)


@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_g711_times_a_power_of_two_has_its_tables_exactly(law, gain):
    found = detect(gain * law.quantize(0.4 * LOUD))
    assert (found.gain, found.shift) == (gain, 0.0)


def test_a_step_however_short_is_found():
    found = detect(np.rint(LOUD * 100) * 2.0**-33)
    assert (found.kind, found.quantizer.step, found.effective_bits) == ("mid-tread", 2.0**-33, 8)


def test_g711_whose_offset_is_not_clear_still_has_its_cells():
    """Quiet mu-law without the levels where segments meet: two offsets explain it."""
    places = [*range(-18, 26, 2), 33, 37, 41, 45]
    truth = np.repeat(places, 50) / 8192 + np.tile(np.linspace(-0.99, 0.99, 50), len(places)) / 8192
    observed = MuLaw().quantize(truth) + 0.0531
    assert detect(observed).cells(observed).violation(truth + 0.0531) == 0.0


def test_g711_that_was_rounded_again_is_refused():
    with pytest.raises(UndetectedError):
        detect(as_16_bit(0.1 * MuLaw().quantize(LOUD)))


@pytest.mark.parametrize("gain", [1.0, 0.7])
def test_channels_that_agree_are_detected_together(gain):
    found = detect(gain * MidTread(6).quantize(np.stack([LOUD[:50000], 0.5 * LOUD[50000:100000]])))
    assert (found.kind, found.quantizer.step) == ("mid-tread", pytest.approx(gain / 32))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (MidTread(6).quantize(LOUD), MidTread(8).quantize(LOUD)),
        (MidTread(6).quantize(LOUD), MidRise(6).quantize(LOUD)),
        (0.9 * MidTread(6).quantize(LOUD), 0.8 * MidTread(6).quantize(LOUD)),
        (MuLaw().quantize(LOUD), MidTread(13).quantize(LOUD)),
        (MuLaw().quantize(LOUD), ALaw().quantize(LOUD)),
    ],
)
def test_channels_that_differ_are_refused(left, right):
    with pytest.raises(UndetectedError, match="channels"):
        detect(np.stack([left, right]))


def test_a_silent_channel_is_named():
    with pytest.raises(UndetectedError, match="channel 1"):
        detect(np.stack([MidTread(6).quantize(LOUD), 0 * LOUD]))


def one_sample_off(samples, by=1 / 32768):
    samples = samples.copy()
    samples[5] += by
    return samples


def faded(samples, length):
    fade = np.ones(len(samples))
    fade[:length] = np.linspace(0, 1, length)
    return as_16_bit(fade * samples)


@pytest.mark.parametrize(
    "samples",
    [
        one_sample_off(MidTread(8).quantize(LOUD)),
        one_sample_off(MidTread(8).quantize(LOUD[:5000])),
        one_sample_off(MidTread(5).quantize(LOUD), by=1 / 32),
        one_sample_off(MidTread(5).quantize(LOUD), by=1 / 48),
        one_sample_off(as_16_bit(0.9 * MidTread(8).quantize(LOUD))),
        faded(MidTread(8).quantize(LOUD[20000:]), 2000),
        faded(MidTread(8).quantize(LOUD), 16000),
        as_16_bit(1.3 * MidTread(16).quantize(0.7 * SMOOTH)),
        as_16_bit(0.7 * MidTread(16).quantize(0.5 * SMOOTH)),
        (MidTread(8).quantize(LOUD) + MidTread(8).quantize(LOUD + 0.0005)) / 2,
    ],
)
def test_what_was_changed_since_and_stored_on_a_finer_grid_is_refused(samples):
    with pytest.raises(UndetectedError):
        detect(samples)


@pytest.mark.parametrize("bits", [8, 12, 14, 16])
@pytest.mark.parametrize("gain", [0.05, 0.5, 1.0, 3.0])
def test_what_was_rounded_once_is_not_refused(bits, gain):
    found = detect(MidTread(bits).quantize(gain * SMOOTH))
    assert found.quantizer == MidTread(bits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gain", [1.0, 0.7])
def test_what_the_start_of_a_recording_tells_serves_for_the_rest(kind, gain):
    observed = gain * KINDS[kind](8).quantize(LOUD)
    start = observed[:4000]
    assert np.abs(start).max() < np.abs(observed).max() / 2
    assert detect(start).cells(observed).violation(gain * LOUD) == 0.0


def test_full_scale_that_is_guessed_does_not_halve_the_outermost_cell():
    truth = -np.abs(np.sin(0.01 * np.arange(5000))) * 16.4 / 128
    truth[::2] *= -0.9
    observed = 0.9 * MidTread(8).quantize(truth)
    assert detect(observed, full_scale=True).cells(observed).violation(0.9 * truth) == 0.0


@pytest.mark.parametrize(("law", "radius"), [(MuLaw(), 1 / 8192), (ALaw(), 1 / 4096)])
def test_g711_so_quiet_that_it_is_uniform_has_the_same_cells(law, radius):
    truth = LOUD * 0.003
    found = detect(law.quantize(truth))
    cells = found.cells(law.quantize(truth))
    assert cells.violation(truth) == 0.0
    assert np.median(cells.radius) == radius


def test_levels_that_never_touch_still_have_their_step():
    found = detect(0.0123 * np.array([-9, -4, 0, 2, 5, 12, 31]))
    assert found.quantizer.step == pytest.approx(0.0123)
    assert found.effective_bits == 6


def test_truncated_samples_are_told_from_rounded_ones_by_their_user_only():
    observed = Truncation(6).quantize(LOUD)
    found = detect(observed)
    assert (found.kind, found.quantizer.step) == ("mid-tread", 1 / 32)
    dropped = Truncation(6, found.quantizer.step)
    assert dropped.cells(dropped.codes_of(observed)).violation(LOUD) == 0.0


def test_outermost_levels_may_have_been_cut_off_unless_full_scale_is_known():
    observed = 0.9 * MidRise(4).quantize(np.clip(3 * LOUD, -1, 1))
    radius = detect(observed).cells(observed).radius
    np.testing.assert_array_equal(np.isinf(radius), np.abs(observed) == np.abs(observed).max())
    assert np.isfinite(detect(observed, full_scale=True).cells(observed).radius).all()


@pytest.mark.parametrize(
    "samples",
    [
        LOUD + 1e-3 * np.random.default_rng(0).standard_normal(len(LOUD)),
        np.float32(LOUD * np.random.default_rng(1).uniform(0.9, 1, len(LOUD))),
        np.random.default_rng(2).standard_normal(300),
        np.float32(np.random.default_rng(2).uniform(-1, 1, 300)),
        np.sin(0.1 * np.arange(5000)),
        np.float32(np.sin(0.1 * np.arange(5000))),
        np.cumsum(np.random.default_rng(3).standard_normal(20)),
        0.7 * LOUD**3,
        MidRise(5).quantize(LOUD) + 1e-5 * np.random.default_rng(4).standard_normal(len(LOUD)),
    ],
)
def test_what_is_not_quantized_is_refused(samples):
    with pytest.raises(UndetectedError):
        detect(samples)


@given(st.integers(3, 200), st.integers(0, 10**6), st.sampled_from([np.float32, np.float64]))
def test_random_numbers_are_refused(count, seed, dtype):
    samples = np.random.default_rng(seed).uniform(-1, 1, count).astype(dtype)
    with pytest.raises(UndetectedError):
        detect(samples)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (np.zeros(1000), r"\b1\b"),
        (np.full(1000, 0.3), r"\b1\b"),
        (np.sign(LOUD[LOUD != 0]), r"\b2\b"),
        ([], r"\b0\b"),
        ([0.0, np.nan, 1.0], "NaN"),
        ([1e308, 0.0, 1.0], r"1e\+308"),
        ([-1.7e308, 0.0, 1.7e308], r"1\.7e\+308"),
        ([5e-324, 0.0, 1e-323], "e-324"),
        (0.5, r"\(\)"),
        (np.array([-300, -4, 0, 1, 77, 500]) / 32768, r"0\.500"),
        ([-2 / 32768, 0.0, 2 / 32768], r"0\.500"),
        (np.array([-500, 0, 7, 300, 1001]) / 32768, "16-bit"),
    ],
)
def test_silence_and_too_little_evidence_are_refused_with_the_reason(samples, reason):
    with pytest.raises(UndetectedError, match=reason):
        detect(samples)


@pytest.mark.parametrize("bits", range(2, 9))
def test_silence_that_was_put_into_a_mid_rise_signal_is_no_level(bits):
    quantizer = MidRise(bits, full_scale=True)
    heard = quantizer.quantize(LOUD)
    found = detect(np.concatenate([np.zeros(8000), heard]), full_scale=True)
    assert (found.kind, found.quantizer.step) == ("mid-rise", quantizer.step)
    cells = found.cells(np.concatenate([[0.0], heard]))
    assert (cells.lo[0], cells.hi[0]) == (-quantizer.step / 2, quantizer.step / 2)
    assert cells[1:].violation(LOUD) == 0
    assert (found.cells(heard).hi - found.cells(heard).lo <= quantizer.step).all()


@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
def test_cells_of_a_detected_law_are_its_own(law):
    codes = law.encode(LOUD)
    found = detect(law.levels(codes), full_scale=True)
    named, cells = law.cells(codes), found.cells(law.levels(codes))
    exact = replace(found, quantizer=replace(found.quantizer, any_encoder=False)).cells(law.levels(codes))
    np.testing.assert_array_equal(exact.lo, np.maximum(named.lo, -1))
    np.testing.assert_array_equal(exact.hi, np.minimum(named.hi, 1))
    assert (cells.lo <= exact.lo).all()
    assert (cells.hi >= exact.hi).all()


@pytest.mark.parametrize("gain", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("shift", [0.0, 0.003])
@pytest.mark.parametrize("kind", [MidTread, MidRise])
def test_no_cell_is_wider_than_a_step_but_at_full_scale(gain, shift, kind):
    quantizer = kind(7)
    loud = quantizer.quantize(0.499 * LOUD)
    found = detect(gain * loud + shift, full_scale=True)
    cells = found.cells(gain * loud + shift)
    np.testing.assert_allclose(cells.hi - cells.lo, gain * quantizer.step, rtol=1e-6)
    if (gain, shift, kind) == (1.0, 0.0, MidTread):
        top = found.cells([1 - quantizer.step])
        assert (top.lo[0], top.hi[0]) == (1 - 1.5 * quantizer.step, 1.0)


def test_levels_of_a_truncating_converter_are_lower_ends_at_full_scale_too():
    quantizer = Truncation(6)
    truth = np.clip(LOUD / np.abs(LOUD).max(), -1, 1 - 1e-9)
    observed = quantizer.quantize(truth)
    cells = detect(observed, full_scale=True).cells(observed, truncated=True)
    assert cells.violation(truth) == 0
    np.testing.assert_array_equal(cells.lo, observed)
    np.testing.assert_array_equal(cells.hi, observed + quantizer.step)


@pytest.mark.parametrize(("gain", "stored"), [(1.0, np.float64), (0.37, np.float64), (0.37, np.float32)])
def test_silence_that_was_put_into_a_law_signal_is_no_level(gain, stored):
    heard = (gain * ALaw().quantize(0.3 * LOUD)).astype(stored)
    found = detect(np.concatenate([np.zeros(8000), heard]))
    assert found.kind == "A-law"
    assert found.gain == pytest.approx(gain, rel=1e-6)
    cells = found.cells(np.concatenate([[0.0], heard]))
    assert (cells.lo[0], cells.hi[0]) == pytest.approx((-gain / 4096, gain / 4096), abs=2**-16)
    assert cells[1:].violation(gain * 0.3 * LOUD) == 0


def test_zero_that_was_moved_onto_no_level_is_refused():
    heard = 0.37 * ALaw().quantize(0.3 * LOUD) + 0.01
    with pytest.raises(ValueError, match="A-law"):
        detect(heard).cells([0.0])


SQUARE = 0.25 * np.sign(np.sin(np.arange(16000) * 0.05) + 1e-9)


@pytest.mark.parametrize(
    "samples",
    [
        np.concatenate([np.zeros(4000), SQUARE]),
        np.where(np.arange(16000) % 160 == 0, 0.5, 0.0) - np.where(np.arange(16000) % 160 == 80, 0.5, 0.0),
        np.concatenate([np.zeros(4000), SQUARE[:4000], 3 * SQUARE]),
    ],
    ids=["square", "impulses", "two loudnesses"],
)
def test_what_jumps_between_few_levels_is_no_rounded_wave(samples):
    with pytest.raises(UndetectedError, match=r"\b[35]\b"):
        detect(samples)


@pytest.mark.parametrize("bits", [8, 16])
def test_the_last_bits_of_quiet_pcm_may_jump(bits):
    found = detect(np.random.default_rng(0).integers(-4, 4, 8000) / 2 ** (bits - 1))
    assert (found.kind, found.quantizer.step) == ("mid-tread", 2.0 ** (1 - bits))


@pytest.mark.parametrize("places", [[-1, 0, 1], [-1, 0, 1, 2], [-3, -1, 0, 1]])
def test_zero_among_few_levels_is_a_level(places):
    observed = np.tile(np.repeat(np.array(places + places[::-1]) / 8, 3), 1000)
    found = detect(observed)
    assert (found.kind, found.quantizer.step) == ("mid-tread", 1 / 8)


@pytest.mark.parametrize("loudest", [0.1, 0.5, 0.99])
def test_only_levels_at_full_scale_have_wider_cells(loudest):
    quantizer = MidTread(8, full_scale=True)
    signal = np.concatenate([loudest * LOUD, LOUD])
    observed = quantizer.quantize(signal)
    found = detect(observed[: len(LOUD)], full_scale=True)
    cells, expected = found.cells(observed), quantizer.cells(quantizer.encode(signal))
    np.testing.assert_array_equal(cells.lo, expected.lo)
    np.testing.assert_array_equal(cells.hi, expected.hi)
