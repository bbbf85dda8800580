import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.detection import Undetected, detect
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.quantizers import MidRise, MidTread, Truncation
from pdrn.audio.sample import speech

SPEECH = speech()[0]
LOUD = SPEECH[:120000] / np.abs(SPEECH[:120000]).max()
KINDS = {"mid-rise": MidRise, "mid-tread": MidTread}


def as_16_bit(samples):
    return np.clip(np.rint(samples * 32768), -32768, 32767) / 32768


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", range(2, 13))
def test_each_bit_depth_is_detected_exactly(kind, bits):
    quantizer = KINDS[kind](bits)
    found = detect(quantizer.quantize(LOUD))
    assert (found.kind, found.effective_bits) == (kind, bits)
    assert found.quantizer == KINDS[kind](bits, full_scale=False)
    assert found.confidence > 0.999
    known = detect(quantizer.quantize(LOUD), full_scale=True)
    cells = known.cells(quantizer.quantize(LOUD))
    assert cells == quantizer.cells(quantizer.encode(LOUD))


@pytest.mark.parametrize("stored", [as_16_bit, np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@given(
    bits=st.integers(2, 10),
    gain=st.floats(0.3, 0.97),
    shift=st.integers(-300, 300).map(lambda shift: shift / 9973),
)
def test_gain_and_offset_after_quantizing_are_found_and_the_truth_is_in_the_cells(
    kind, stored, bits, gain, shift
):
    quantizer = KINDS[kind](bits)
    observed = stored(gain * quantizer.quantize(LOUD) + shift).astype(np.float64)
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
    assert found.quantizer == MidTread(8, full_scale=False)
    assert found.effective_bits == 5


def test_a_16_bit_file_with_32_levels_has_5_bits():
    codes = MidRise(5).encode(LOUD) * 2048 + 1024
    found = detect(codes / 32768)
    assert (found.kind, found.effective_bits, found.quantizer.step) == ("mid-rise", 5, 1 / 16)


def test_a_plain_16_bit_file_has_16_bits():
    found = detect(SPEECH)
    assert found.quantizer == MidTread(16, full_scale=False)


def test_16_bits_over_32767_are_found():
    found = detect(np.float32(np.rint(LOUD * 32767) / 32767))
    assert found.kind == "mid-tread"
    assert found.quantizer.step == pytest.approx(1 / 32767, rel=1e-6)


@pytest.mark.parametrize(("kind", "law"), [("mu-law", MuLaw()), ("A-law", ALaw())])
@pytest.mark.parametrize("gain", [1.0, 0.1])
def test_g711_expanded_to_16_bit_is_recognised(kind, law, gain):
    observed = law.quantize(gain * LOUD)
    found = detect(observed)
    assert (found.kind, found.effective_bits) == (kind, 8)
    assert found.cells(observed).violation(gain * LOUD) == 0.0


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
    with pytest.raises(Undetected, match=r"not quantized"):
        detect(samples)


@given(st.integers(3, 200), st.integers(0, 10**6), st.sampled_from([np.float32, np.float64]))
def test_random_numbers_are_refused(count, seed, dtype):
    samples = np.random.default_rng(seed).uniform(-1, 1, count).astype(dtype)
    with pytest.raises(Undetected):
        detect(samples)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (np.zeros(1000), "1 different values, which fit any step; name the quantizer"),
        (np.full(1000, 0.3), "1 different values"),
        (np.sign(LOUD[LOUD != 0]), "2 different values"),
        ([], "0 different values"),
        ([0.0, np.nan, 1.0], "NaN or infinite"),
        ([-2 / 32768, 0.0, 2 / 32768], r"has a confidence of only 0\.500; use a longer recording"),
        (np.array([-500, 0, 7, 300, 1001]) / 32768, "codes are never neighbours but have no common step"),
    ],
)
def test_silence_and_too_little_evidence_are_refused_with_the_reason(samples, reason):
    with pytest.raises(Undetected, match=reason):
        detect(samples)
