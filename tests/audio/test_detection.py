"""The quantizer from samples alone, and the choice among named, stored and detected ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.corpus import speech
from pdrn.audio.detection import QuantizerOptions, choose_quantizer, detect
from pdrn.audio.quantizers import (
    ALaw,
    Bounded,
    Clipping,
    Exact,
    MidRise,
    MidTread,
    MuLaw,
    Truncation,
    Uniform,
)
from pdrn.errors import InputError, UndetectedError

SPEECH = speech()[0]
LOUD = SPEECH[:120000] / np.abs(SPEECH[:120000]).max()
# Speech is on a 16-bit grid itself; a little noise gives it values between the codes.
SMOOTH = 0.99 * LOUD + np.random.default_rng(9).uniform(-1, 1, len(LOUD)) / 32768
KINDS = {"mid-rise": MidRise, "mid-tread": MidTread}


def as_16_bit(samples):
    return np.clip(np.rint(samples * 32768), -32768, 32767) / 32768


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", range(2, 13))
def test_detects_bit_depth_exactly(kind, bits):
    quantizer = KINDS[kind](bits)
    observed = quantizer.quantize(LOUD)
    found = detect(observed)
    assert (found.kind, found.effective_bits) == (kind, bits)
    assert found.quantizer == quantizer
    assert found.confidence > 0.999
    codes = quantizer.encode(LOUD)
    inner = (codes > codes.min()) & (codes < codes.max())
    cells = found.observe(observed)
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
def test_detects_gain_and_offset(kind, stored, bits, gain, shift):
    quantizer = KINDS[kind](bits)
    observed = stored(gain * quantizer.quantize(LOUD) + shift).astype(np.float64)
    if stored is as_16_bit and gain * quantizer.step * 32768 < 8:
        bits_left_unclear(observed)
        return
    found = detect(observed)
    assert found.effective_bits == bits
    stored_step = 2**-15 if stored is as_16_bit else 1e-6
    assert found.quantizer.step == pytest.approx(gain * quantizer.step, abs=stored_step)
    cells = found.observe(observed)
    in_range = quantizer.decode(quantizer.highest) + quantizer.step / 2 >= LOUD
    assert cells[in_range].violation(gain * LOUD[in_range] + shift) <= found.slack + 1e-12
    assert np.median(cells.radius) == pytest.approx(gain * quantizer.step / 2, abs=2.5 * stored_step)


@pytest.mark.parametrize("direct_current", [-0.2, 0.001, 0.1])
@pytest.mark.parametrize("bits", [4, 8, 12])
def test_offset_before_quantizer_does_not_matter(bits, direct_current):
    found = detect(MidTread(bits).quantize(0.5 * LOUD + direct_current))
    assert (found.kind, found.quantizer.step, found.quantizer.offset) == ("mid-tread", 2 / 2**bits, 0.0)


def test_quiet_8_bit_file_is_8_bit_mid_tread():
    found = detect(MidTread(8).quantize(0.1 * LOUD))
    assert found.quantizer == MidTread(8)
    assert found.effective_bits == 5


def test_detects_5_bits_in_16_bit_file():
    codes = MidRise(5).encode(LOUD) * 2048 + 1024
    found = detect(codes / 32768)
    assert (found.kind, found.effective_bits, found.quantizer.step) == ("mid-rise", 5, 1 / 16)


def test_detects_plain_16_bits():
    found = detect(SPEECH)
    assert found.quantizer == MidTread(16)


def test_detects_16_bits_over_32767():
    found = detect(np.float32(np.rint(SMOOTH * 32767) / 32767))
    assert found.kind == "mid-tread"
    assert found.quantizer.step == pytest.approx(1 / 32767, rel=1e-6)


@pytest.mark.parametrize(("kind", "law"), [("mu-law", MuLaw()), ("A-law", ALaw())])
@pytest.mark.parametrize("gain", [1.0, 0.1])
def test_detects_g711(kind, law, gain):
    observed = law.quantize(gain * LOUD)
    found = detect(observed)
    assert (found.kind, found.effective_bits) == (kind, 8)
    assert found.observe(observed).violation(gain * LOUD) == 0.0


def as_24_bit(samples):
    return np.rint(samples * 2**23) / 2**23


@pytest.mark.parametrize(("kind", "law"), [("mu-law", MuLaw()), ("A-law", ALaw())])
@pytest.mark.parametrize(("gain", "shift"), [(32768 / 32767, 0.0), (0.8, 0.0), (1.0, 0.001), (0.3, -0.01)])
@pytest.mark.parametrize("stored", [as_24_bit, np.float32, np.float64])
@pytest.mark.parametrize("length", [4000, 120000])
def test_detects_g711_with_gain_and_offset(kind, law, gain, shift, stored, length):
    truth = 0.9 * LOUD[:length]
    observed = stored(gain * law.quantize(truth) + shift).astype(np.float64)
    found = detect(observed)
    assert (found.kind, found.effective_bits) == (kind, 8)
    assert found.confidence > 0.999
    assert (found.gain, found.shift) == pytest.approx((gain, shift), abs=1e-5)
    cells = found.observe(observed)
    assert cells.violation(gain * truth + shift) <= found.slack
    assert np.median(cells.radius) < 0.01
    with pytest.raises(ValueError, match=kind):
        found.observe(observed + gain / 30000)


@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_g711_times_power_of_two_has_exact_tables(law, gain):
    found = detect(gain * law.quantize(0.4 * LOUD))
    assert (found.gain, found.shift) == (gain, 0.0)


def test_detects_short_step():
    found = detect(np.rint(LOUD * 100) * 2.0**-33)
    assert (found.kind, found.quantizer.step, found.effective_bits) == ("mid-tread", 2.0**-33, 8)


def test_g711_with_ambiguous_offset_has_its_cells():
    """Quiet mu-law without the levels where segments meet: two offsets explain it."""
    places = [*range(-18, 26, 2), 33, 37, 41, 45]
    truth = np.repeat(places, 50) / 8192 + np.tile(np.linspace(-0.99, 0.99, 50), len(places)) / 8192
    observed = MuLaw().quantize(truth) + 0.0531
    found = detect(observed)
    assert found.observe(observed).violation(truth + 0.0531) <= found.slack


def test_refuses_requantized_g711():
    with pytest.raises(UndetectedError):
        detect(as_16_bit(0.1 * MuLaw().quantize(LOUD)))


@pytest.mark.parametrize("gain", [1.0, 0.7])
def test_detects_agreeing_channels_together(gain):
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
def test_refuses_differing_channels(left, right):
    with pytest.raises(UndetectedError, match="channels"):
        detect(np.stack([left, right]))


def test_names_silent_channel():
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
def test_refuses_processed_samples_on_finer_grid(samples):
    with pytest.raises(UndetectedError):
        detect(samples)


@pytest.mark.parametrize("bits", [8, 12, 14, 16])
@pytest.mark.parametrize("gain", [0.05, 0.5, 1.0, 3.0])
def test_accepts_samples_rounded_once(bits, gain):
    found = detect(MidTread(bits).quantize(gain * SMOOTH))
    assert found.quantizer == MidTread(bits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gain", [1.0, 0.7])
def test_start_of_recording_serves_for_the_rest(kind, gain):
    truth = 0.99 * LOUD
    observed = gain * KINDS[kind](8).quantize(truth)
    start = observed[:4000]
    assert np.abs(start).max() < np.abs(observed).max() / 2
    found = detect(start)
    assert found.observe(observed).violation(gain * truth) <= found.slack


def test_guessed_full_scale_keeps_outermost_cell():
    truth = -np.abs(np.sin(0.01 * np.arange(5000))) * 16.4 / 128
    truth[::2] *= -0.9
    observed = 0.9 * MidTread(8).quantize(truth)
    found = detect(observed)
    assert found.observe(observed).violation(0.9 * truth) <= found.slack


@pytest.mark.parametrize(("law", "radius"), [(MuLaw(), 1 / 8192), (ALaw(), 1 / 4096)])
def test_quiet_g711_has_uniform_cells(law, radius):
    truth = LOUD * 0.003
    found = detect(law.quantize(truth))
    cells = found.observe(law.quantize(truth))
    assert cells.violation(truth) == 0.0
    assert np.median(cells.radius) == radius


def test_detects_step_without_neighbouring_levels():
    found = detect(0.0123 * np.array([-9, -4, 0, 2, 5, 12, 31]))
    assert found.quantizer.step == pytest.approx(0.0123)
    assert found.effective_bits == 6


def test_truncation_has_to_be_named():
    observed = Truncation(6).quantize(LOUD)
    found = detect(observed)
    assert (found.kind, found.quantizer.step) == ("mid-tread", 1 / 32)
    assert replace(found, truncating=True).observe(observed).violation(LOUD) == 0.0


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
def test_refuses_unquantized_samples(samples):
    with pytest.raises(UndetectedError):
        detect(samples)


@given(st.integers(3, 200), st.integers(0, 10**6), st.sampled_from([np.float32, np.float64]))
def test_refuses_random_numbers(count, seed, dtype):
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
def test_refuses_silence_and_too_few_levels(samples, reason):
    with pytest.raises(UndetectedError, match=reason):
        detect(samples)


@pytest.mark.parametrize("bits", range(2, 9))
def test_silence_in_mid_rise_is_no_level(bits):
    quantizer = MidRise(bits, full_scale=True)
    heard = quantizer.quantize(LOUD)
    found = detect(np.concatenate([np.zeros(8000), heard]))
    assert (found.kind, found.quantizer.step) == ("mid-rise", quantizer.step)
    cells = found.observe(np.concatenate([[0.0], heard]))
    assert (cells.lo[0], cells.hi[0]) == (-quantizer.step / 2, quantizer.step / 2)
    assert cells[1:].violation(LOUD) == 0
    assert (found.observe(heard).radius <= quantizer.step / 2).all()


@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
def test_detected_law_has_cells_of_its_tables(law):
    codes = law.encode(LOUD)
    cells = detect(law.decode(codes)).observe(law.decode(codes))
    np.testing.assert_array_equal(cells.lo, np.maximum(law.cells(codes).lo, -1))
    np.testing.assert_array_equal(cells.hi, np.minimum(law.cells(codes).hi, 1))


@pytest.mark.parametrize(
    ("quantizer", "stored_bits"),
    [(MidTread(6), 16), (MidRise(6), 16), (MidTread(6), 24), (MuLaw(), 24), (ALaw(), 24)],
)
@pytest.mark.parametrize(("gain", "shift"), [(0.5, 0.0), (0.7311, 0.0), (0.7311, 0.01)])
def test_detected_cells_do_not_overlap(quantizer, stored_bits, gain, shift):
    levels = np.unique(quantizer.quantize(np.linspace(-0.9, 0.9, 9999)))
    observed = MidTread(stored_bits).quantize(gain * levels + shift)
    cells = detect(observed).observe(observed)
    assert (cells.hi[:-1] <= cells.lo[1:]).all()
    assert cells.contains(observed).all()


@pytest.mark.parametrize("gain", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("shift", [0.0, 0.003])
@pytest.mark.parametrize("kind", [MidTread, MidRise])
def test_only_cells_at_full_scale_are_wider_than_step(gain, shift, kind):
    quantizer = kind(7)
    loud = quantizer.quantize(0.499 * LOUD)
    found = detect(gain * loud + shift)
    cells = found.observe(gain * loud + shift)
    np.testing.assert_allclose(cells.hi - cells.lo, gain * quantizer.step, rtol=1e-6)
    if (gain, shift, kind) == (1.0, 0.0, MidTread):
        top = found.observe([1 - quantizer.step])
        assert (top.lo[0], top.hi[0]) == (1 - 1.5 * quantizer.step, 1.0)


def test_truncated_levels_are_lower_ends_at_full_scale():
    quantizer = Truncation(6)
    truth = np.clip(LOUD / np.abs(LOUD).max(), -1, 1 - 1e-9)
    observed = quantizer.quantize(truth)
    cells = replace(detect(observed), truncating=True).observe(observed)
    assert cells.violation(truth) == 0
    np.testing.assert_array_equal(cells.lo, observed)
    np.testing.assert_array_equal(cells.hi, observed + quantizer.step)


@pytest.mark.parametrize(("gain", "stored"), [(1.0, np.float64), (0.37, np.float64), (0.37, np.float32)])
def test_silence_in_a_law_is_no_level(gain, stored):
    heard = (gain * ALaw().quantize(0.3 * LOUD)).astype(stored)
    found = detect(np.concatenate([np.zeros(8000), heard]))
    assert found.kind == "A-law"
    assert found.gain == pytest.approx(gain, rel=1e-6)
    cells = found.observe(np.concatenate([[0.0], heard]))
    assert (cells.lo[0], cells.hi[0]) == pytest.approx((-gain / 4096, gain / 4096), abs=2**-16)
    assert cells[1:].violation(gain * 0.3 * LOUD) <= found.slack


def test_refuses_zero_off_levels():
    heard = 0.37 * ALaw().quantize(0.3 * LOUD) + 0.01
    with pytest.raises(ValueError, match="A-law"):
        detect(heard).observe([0.0])


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
def test_refuses_square_waves_and_clicks(samples):
    with pytest.raises(UndetectedError, match=r"\b[35]\b"):
        detect(samples)


@pytest.mark.parametrize("bits", [8, 16])
def test_accepts_jumps_of_last_bits_in_quiet_pcm(bits):
    found = detect(np.random.default_rng(0).integers(-4, 4, 8000) / 2 ** (bits - 1))
    assert (found.kind, found.quantizer.step) == ("mid-tread", 2.0 ** (1 - bits))


@pytest.mark.parametrize("places", [[-1, 0, 1], [-1, 0, 1, 2], [-3, -1, 0, 1]])
def test_zero_among_few_levels_is_level(places):
    observed = np.tile(np.repeat(np.array(places + places[::-1]) / 8, 3), 1000)
    found = detect(observed)
    assert (found.kind, found.quantizer.step) == ("mid-tread", 1 / 8)


@pytest.mark.parametrize("loudest", [0.1, 0.5, 0.99])
def test_only_full_scale_levels_have_wider_cells(loudest):
    quantizer = MidTread(8, full_scale=True)
    signal = np.concatenate([loudest * LOUD, LOUD])
    observed = quantizer.quantize(signal)
    found = detect(observed[: len(LOUD)])
    cells, expected = found.observe(observed), quantizer.cells(quantizer.encode(signal))
    np.testing.assert_array_equal(cells.lo, expected.lo)
    np.testing.assert_array_equal(cells.hi, expected.hi)


# --- The choice: named, stored or detected ---

TRUTH = np.random.default_rng(0).uniform(-1, 1, (2, 500))
SECOND = SPEECH[:16000]
QUIET = np.random.default_rng(1).integers(-1, 2, (2, 999))


def choose(samples, subtype=None, *, gaps=False, **named):
    return choose_quantizer(samples, QuantizerOptions(**named), subtype, gaps=gaps)


@given(st.integers(1, 24), st.sampled_from([MidRise, MidTread, Truncation]), st.integers(0, 99))
def test_named_bits_bound_cells_at_full_scale(bits, kind, seed):
    truth = np.random.default_rng(seed).uniform(-1, 1, (1, 200))
    coder = kind(bits, full_scale=True)
    codes = coder.encode(truth)
    observed = coder.decode(codes)
    cells = choose(observed, bits=bits, truncated=kind is Truncation).observe(observed)
    np.testing.assert_allclose(cells.lo, coder.cells(codes).lo, atol=1e-12)
    np.testing.assert_allclose(cells.hi, coder.cells(codes).hi, atol=1e-12)


@pytest.mark.parametrize(("name", "law"), [("mulaw", MuLaw()), ("alaw", ALaw())])
def test_named_law_has_cells_of_its_tables(name, law):
    cells = choose(None, law=name).observe(law.quantize(TRUTH))
    expected = law.cells(law.encode(TRUTH))
    np.testing.assert_array_equal(cells.lo, np.maximum(expected.lo, -1))
    np.testing.assert_array_equal(cells.hi, np.minimum(expected.hi, 1))


@pytest.mark.parametrize("named", [{"bits": 5}, {"step": 1 / 16}])
def test_named_step_at_offset_is_detected(named):
    observed = MidRise(5, offset=0.01).quantize(TRUTH * 0.9)
    assert choose(observed, **named).observe(observed).violation(TRUTH * 0.9) <= 1e-9


def test_unnamed_quantizer_is_detected():
    observed = MidTread(6).quantize(TRUTH)
    found = choose(observed)
    assert found == detect(observed)
    assert found.observe(observed).violation(TRUTH) == 0


def test_stored_law_is_used_and_refuses_truncation():
    for samples in (None, np.zeros((1, 1))):
        assert str(choose(samples, "ULAW")) == "mu-law"
        with pytest.raises(InputError, match=r"G\.711"):
            choose(samples, "ULAW", truncated=True)


def test_clipping_alone_keeps_samples_exact_or_as_stored():
    clipped = np.clip(TRUTH, -0.5, 0.5)
    stored = MidTread(16).quantize(clipped)
    for samples, subtype in ((clipped, None), (stored, "PCM_16")):
        cells = choose(samples, subtype, clip_at=0.5).observe(samples)
        assert cells.violation(TRUTH) == 0
        np.testing.assert_array_equal(np.isinf(cells.hi), TRUTH >= 0.5)


@pytest.mark.parametrize("coder", [MidTread(8), MidRise(6), MuLaw()])
@pytest.mark.parametrize("threshold", [0.5, 0.99, 1.0])
def test_clipped_samples_are_open_ended(coder, threshold):
    stored = coder.quantize(np.clip(2 * TRUTH, -threshold, threshold))
    cells = choose(stored, "PCM_16", clip_at=threshold).observe(stored)
    expected = Clipping(threshold, coder).observe(stored)
    np.testing.assert_array_equal(np.isinf(cells.hi), np.isinf(expected.hi))
    np.testing.assert_array_equal(np.isinf(cells.lo), np.isinf(expected.lo))
    assert np.isinf(cells.hi[threshold <= 2 * TRUTH]).all()


@pytest.mark.parametrize("clipped_first", [True, False])
def test_detects_levels_below_clipping(clipped_first):
    coder = MidTread(6)
    if clipped_first:
        stored = coder.quantize(np.clip(TRUTH, -0.5, 0.5))
    else:
        stored = np.clip(coder.quantize(TRUTH), -0.5, 0.5)
    quantizer = choose(stored, "PCM_16", clip_at=0.5)
    assert (quantizer.threshold, quantizer.quantizer.step) == (0.5, coder.step)
    cells = quantizer.observe(stored)
    assert cells.violation(TRUTH) == 0
    inside = np.abs(TRUTH) < 0.45
    np.testing.assert_allclose((cells.hi - cells.lo)[inside], coder.step)


@given(threshold=st.floats(0.05, 0.95), bits=st.integers(2, 12), kind=st.sampled_from([MidRise, MidTread]))
def test_clipping_before_named_bits_keeps_truth_in_cells(threshold, bits, kind):
    stored = kind(bits).quantize(np.clip(TRUTH, -threshold, threshold))
    assert choose(stored, bits=bits, clip_at=threshold).observe(stored).violation(TRUTH) == 0


@pytest.mark.parametrize("subtype", ["ULAW", "ALAW", "PCM_U8", "PCM_16", "FLOAT"])
@pytest.mark.parametrize("named", [{}, {"bits": 5}, {"clip_at": 0.9}, {"law": "mulaw", "clip_at": 0.9}])
def test_stream_has_quantizer_of_equal_file(subtype, named):
    if named or subtype in ("ULAW", "ALAW"):
        assert choose(None, subtype, **named) == choose(np.zeros((1, 0)), subtype, **named)
    else:
        with pytest.raises(InputError, match="bits"):
            choose(None, subtype)


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((2, 99)),
        np.full((2, 99), 32),
        QUIET,
        np.rint(3.2 * TRUTH),
        np.resize([0, 1], (1, 99)),
        np.stack([QUIET[0], 0 * QUIET[0]]),
    ],
    ids=["silence", "constant", "last bit", "quiet", "toggling", "one channel"],
)
@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize(("subtype", "bits"), [("PCM_U8", 8), ("PCM_16", 16)])
def test_neighbouring_codes_have_stored_cells(codes, subtype, bits, truncated):
    samples = codes * 2.0 ** (1 - bits)
    stored = Bounded(Uniform(bits, truncating=truncated))
    assert choose(samples, subtype, truncated=truncated) == stored
    for unknown in (None, "FLOAT"):
        with pytest.raises(UndetectedError):
            choose(samples, unknown)


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        ([[0, 256, 512, 513]], r"0\.500"),
        ([[-300, 300] * 99], r"\b2\b"),
        ([[-1, 0, 1] * 99, [-256, 0, 256] * 99], "channel 0"),
        ([[-1, 0, 1] * 999, [0, 256, 512] * 998 + [0, 256, 513]], "channel 1"),
    ],
    ids=["one off", "square", "coarser channel", "changed channel"],
)
def test_refuses_sparse_codes(codes, reason):
    with pytest.raises(UndetectedError, match=reason):
        choose(np.array(codes) / 32768, "PCM_16")


def test_accepts_peak_rounded_beyond_full_scale():
    peak = 0.9 * np.sin(np.arange(400) / 9)
    peak[7] = 1.0
    rounded = (np.floor(16 * peak) + 0.5) / 16
    assert rounded.max() == 1.03125
    cells = choose(rounded[None], bits=5).observe(rounded)
    assert cells.violation(peak) == 0
    assert cells.hi.max() == 1.0


@pytest.mark.parametrize(
    ("named", "samples", "reason"),
    [
        ({"bits": 5}, [0.03125, 0.04], r"0\.04"),
        ({"bits": 5}, [0.03125, 0.0625], r"0\.0625"),
        ({"bits": 5}, [1.09375], r"1\.09375"),
        ({"step": 0.1}, [0.1, 0.25], r"0\.1\b"),
        ({"law": "mulaw"}, [0.123456], "mu-law"),
        ({}, [0.1, 0.2], r"\b2\b"),
    ],
)
def test_refuses_samples_off_named_levels(named, samples, reason):
    with pytest.raises(InputError, match=reason):
        choose(np.array([samples]), **named)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"bits": 5, "step": 0.1}, "step"),
        ({"bits": 0}, "bit"),
        ({"bits": 5.5}, "bit"),
        ({"step": -1.0}, "step"),
        ({"step": np.nan}, "step"),
        ({"law": "blaw"}, "blaw"),
        ({"clip_at": 0.0}, "clip"),
        ({"law": "alaw", "truncated": True}, r"G\.711"),
    ],
)
def test_refuses_contradictory_options(named, reason):
    with pytest.raises(InputError, match=reason):
        QuantizerOptions(**named)


def test_refuses_truncated_g711():
    with pytest.raises(UndetectedError, match="mu-law"):
        choose(MuLaw().quantize(TRUTH), "PCM_16", truncated=True)


def test_gap_does_not_hide_differing_channel():
    channels = np.stack([MidRise(5).quantize(SECOND), MidTread(5).quantize(SECOND)])
    channels[0, 100] = np.nan
    with pytest.raises(UndetectedError, match="channels"):
        choose(channels)


def test_gap_does_not_change_detection():
    samples = MidRise(5).quantize(SECOND)[None]
    whole = choose(samples)
    samples[0, 100:110] = np.nan
    assert choose(samples) == whole


@pytest.mark.parametrize("dead", [[0], [-1], [-1, 0]], ids=["silent", "still", "toggling"])
@pytest.mark.parametrize("coder", [MidTread(8), MidRise(8)])
def test_dead_channel_has_quantizer_of_other(coder, dead):
    samples = coder.quantize(SECOND)
    still = np.resize(coder.quantize(np.array(dead) / 128), len(samples))
    found = choose(np.stack([samples, still]))
    assert found == choose(samples[None])
    assert found.observe(still).contains(still).all()
    assert found.observe(0 * still).contains(0 * still).all()


def test_refuses_only_missing_samples():
    with pytest.raises(UndetectedError):
        choose(np.full((2, 10), np.nan))


@pytest.mark.parametrize("sound", [TRUTH, np.sign(TRUTH), 0 * TRUTH], ids=["noise", "square", "silence"])
def test_unquantized_sound_with_gaps_is_exact(sound):
    samples = sound.copy()
    samples[0, 3] = np.nan
    assert choose(samples, "FLOAT") == choose(sound, "FLOAT", gaps=True) == Exact()
    with pytest.raises(UndetectedError):
        choose(sound, "FLOAT")


def test_gap_does_not_hide_unquantized_channel():
    channels = np.stack([MidRise(5).quantize(SECOND), np.sin(np.arange(16000))])
    with pytest.raises(UndetectedError, match="channel 1"):
        choose(channels, "FLOAT", gaps=True)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_S8"])
def test_sound_in_8_bits_has_8_bits_whatever_was_done_to_it(subtype):
    faded = MidTread(8).quantize(MidTread(5).quantize(SECOND) * np.linspace(0.3, 0.9, len(SECOND)))[None]
    with pytest.raises(UndetectedError):
        choose(faded)
    found = choose(faded, subtype)
    assert str(found) == "8 bits"
    assert found.step == 2 / 2**8
    assert found.observe(faded).contains(faded).all()
