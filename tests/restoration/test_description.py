"""What is said about samples, and the cells that follow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.corpus import speech
from pdrn.audio.levels import Description
from pdrn.audio.quantizers import ALaw, Clipping, MidRise, MidTread, MuLaw, Truncation
from pdrn.errors import UndetectedError

TRUTH = np.random.default_rng(0).uniform(-1, 1, (2, 500))


@given(
    bits=st.integers(1, 24), kind=st.sampled_from([MidRise, MidTread, Truncation]), seed=st.integers(0, 99)
)
def test_a_bit_depth_gives_the_cells_of_whichever_quantizer_it_was(bits, kind, seed):
    truth = np.random.default_rng(seed).uniform(-1, 1, (1, 200))
    quantizer = kind(bits, full_scale=True)
    codes = quantizer.encode(truth)
    description = Description(bits=bits, truncated=kind is Truncation)
    cells = description.levels_of(quantizer.levels(codes)).cells(quantizer.levels(codes))
    expected = quantizer.cells(codes)
    np.testing.assert_allclose(cells.lo, expected.lo, atol=1e-12)
    np.testing.assert_allclose(cells.hi, expected.hi, atol=1e-12)
    assert cells.violation(truth) <= 1e-12


@given(step=st.floats(1e-4, 0.5), kind=st.sampled_from([MidRise, MidTread]))
def test_a_step_gives_cells_without_an_end_of_scale(step, kind):
    quantizer = kind(32, step)
    levels = quantizer.quantize(TRUTH)
    cells = Description(step=step).levels_of(levels).cells(levels)
    np.testing.assert_allclose(cells.radius, step / 2)
    assert cells.violation(TRUTH) <= 1e-9


@pytest.mark.parametrize(("name", "law"), [("mulaw", MuLaw()), ("alaw", ALaw())])
def test_a_law_gives_the_cells_of_its_tables(name, law):
    heard = law.quantize(TRUTH)
    cells = Description(law=name).levels().cells(heard)
    expected = law.cells(law.encode(TRUTH))
    np.testing.assert_array_equal(cells.lo, np.maximum(expected.lo, -1))
    np.testing.assert_array_equal(cells.hi, np.minimum(expected.hi, 1))


def test_a_bit_depth_at_an_offset_is_found():
    quantizer = MidRise(5, offset=0.01)
    levels = quantizer.quantize(TRUTH * 0.9)
    cells = Description(bits=5).levels_of(levels).cells(levels)
    assert cells.violation(TRUTH * 0.9) <= 1e-9


def test_nothing_said_means_detected():
    levels = MidTread(6).quantize(TRUTH)
    found = Description().levels_of(levels)
    assert "0.03125" in str(found)
    assert found.cells(levels).violation(TRUTH) == 0


def test_a_stored_law_needs_no_detection():
    assert str(Description().levels_of(np.zeros((1, 1)), "ULAW")) == "mu-law"


def test_clipping_alone_leaves_samples_exact_or_as_they_are_stored():
    clipped = np.clip(TRUTH, -0.5, 0.5)
    exact = Description(clip_at=0.5).levels_of(clipped).cells(clipped)
    stored = MidTread(16).quantize(clipped)
    of_file = Description(clip_at=0.5).levels_of(stored, "PCM_16").cells(stored)
    for cells in (exact, of_file):
        assert cells.violation(TRUTH) == 0
        np.testing.assert_array_equal(np.isinf(cells.hi), TRUTH >= 0.5)


@pytest.mark.parametrize("quantizer", [MidTread(8), MidRise(6), MuLaw()])
@pytest.mark.parametrize("threshold", [0.5, 0.99, 1.0])
def test_samples_that_were_cut_off_are_those_of_clipping(quantizer, threshold):
    codes = quantizer.encode(np.clip(2 * TRUTH, -threshold, threshold))
    stored = quantizer.levels(codes)
    cells = Description(clip_at=threshold).levels_of(stored, "PCM_16").cells(stored)
    expected = Clipping(threshold, quantizer).cells(codes)
    np.testing.assert_array_equal(np.isinf(cells.hi), np.isinf(expected.hi))
    np.testing.assert_array_equal(np.isinf(cells.lo), np.isinf(expected.lo))
    assert np.isinf(cells.hi[threshold <= 2 * TRUTH]).all()


@pytest.mark.parametrize("clipped_first", [True, False])
def test_levels_below_the_clip_are_detected(clipped_first):
    quantizer = MidTread(6)
    if clipped_first:
        stored = quantizer.quantize(np.clip(TRUTH, -0.5, 0.5))
    else:
        stored = np.clip(quantizer.quantize(TRUTH), -0.5, 0.5)
    levels = Description(clip_at=0.5).levels_of(stored, "PCM_16")
    assert "0.03125" in str(levels)
    assert "0.5" in str(levels)
    cells = levels.cells(stored)
    assert cells.violation(TRUTH) == 0
    inside = np.abs(TRUTH) < 0.45
    np.testing.assert_allclose((cells.hi - cells.lo)[inside], quantizer.step)


@pytest.mark.parametrize("subtype", ["ULAW", "ALAW", "PCM_U8", "PCM_16", "FLOAT"])
@pytest.mark.parametrize("options", [{}, {"bits": 5}, {"clip_at": 0.9}, {"law": "mulaw", "clip_at": 0.9}])
def test_a_stream_has_the_levels_of_a_file_that_is_stored_alike(subtype, options):
    description = Description(**options)
    if options or subtype in ("ULAW", "ALAW"):
        assert description.levels(subtype) == description.levels_of(np.zeros((1, 0)), subtype)
    else:
        with pytest.raises(ValueError, match="bits"):
            description.levels(subtype)


@pytest.mark.parametrize("value", [0.0, 0.25])
def test_samples_that_are_all_alike_have_the_cells_they_are_stored_in(value):
    same = np.full((2, 99), value)
    assert Description().levels_of(same, "PCM_16") == Description(bits=16).levels()
    truncated = Description(truncated=True).levels_of(same, "PCM_16")
    assert truncated == Description(bits=16, truncated=True).levels()
    for subtype in (None, "FLOAT"):
        with pytest.raises(UndetectedError, match=r"\b1\b"):
            Description().levels_of(same, subtype)


QUIET = np.random.default_rng(1).integers(-1, 2, (2, 999))


@pytest.mark.parametrize(
    "codes",
    [QUIET, np.rint(3.2 * TRUTH), np.resize([0, 1], (1, 99)), np.stack([QUIET[0], 0 * QUIET[0]])],
    ids=["last bit", "quiet", "toggling", "one channel"],
)
@pytest.mark.parametrize(("subtype", "bits"), [("PCM_U8", 8), ("PCM_16", 16)])
def test_neighbouring_codes_have_the_cells_they_are_stored_in(codes, subtype, bits):
    samples = codes * 2.0 ** (1 - bits)
    assert Description().levels_of(samples, subtype) == Description(bits=bits).levels()
    with pytest.raises(UndetectedError):
        Description().levels_of(samples, "FLOAT")


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
def test_codes_of_which_few_are_neighbours_may_have_a_longer_step(codes, reason):
    with pytest.raises(UndetectedError, match=reason):
        Description().levels_of(np.array(codes) / 32768, "PCM_16")


def test_a_stored_law_is_not_made_by_truncation():
    for levels in (
        Description(truncated=True).levels,
        lambda law: Description(truncated=True).levels_of(TRUTH, law),
    ):
        with pytest.raises(ValueError, match=r"G\.711"):
            levels("ULAW")


@given(threshold=st.floats(0.05, 0.95), bits=st.integers(2, 12), kind=st.sampled_from([MidRise, MidTread]))
def test_clipping_before_a_quantizer_keeps_the_truth_in_its_cells(threshold, bits, kind):
    stored = kind(bits).quantize(np.clip(TRUTH, -threshold, threshold))
    cells = Description(bits=bits, clip_at=threshold).levels_of(stored).cells(stored)
    assert cells.violation(TRUTH) == 0


def test_a_peak_that_was_rounded_beyond_full_scale_is_a_level_too():
    peak = 0.9 * np.sin(np.arange(400) / 9)
    peak[7] = 1.0
    rounded = (np.floor(16 * peak) + 0.5) / 16
    assert rounded.max() == 1.03125
    cells = Description(bits=5).levels_of(rounded[None]).cells(rounded)
    assert cells.violation(peak) == 0
    assert cells.hi.max() == 1.0


@pytest.mark.parametrize(
    ("said", "samples", "reason"),
    [
        ({"bits": 5}, [0.03125, 0.04], r"0\.04"),
        ({"bits": 5}, [0.03125, 0.0625], r"0\.0625"),
        ({"bits": 5}, [1.09375], r"1\.09375"),
        ({"step": 0.1}, [0.1, 0.25], r"0\.1\b"),
        ({"law": "mulaw"}, [0.123456], "MuLaw"),
        ({}, [0.1, 0.2], r"\b2\b"),
    ],
)
def test_samples_that_are_not_as_said_are_refused(said, samples, reason):
    with pytest.raises(ValueError, match=reason):
        Description(**said).levels_of(np.array([samples]))


@pytest.mark.parametrize(
    ("said", "reason"),
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
def test_what_cannot_be_is_refused_at_once(said, reason):
    with pytest.raises(ValueError, match=reason):
        Description(**said)


def test_truncated_g711_is_refused_when_it_is_found():
    with pytest.raises(UndetectedError, match="mu-law"):
        Description(truncated=True).levels_of(MuLaw().quantize(TRUTH), "PCM_16")


def test_a_stream_has_to_be_told():
    with pytest.raises(ValueError, match="bits"):
        Description().levels()


SPEECH = speech()[0][:16000]


def test_a_missing_sample_hides_no_channel_that_is_quantized_otherwise():
    channels = np.stack([MidRise(5).quantize(SPEECH), MidTread(5).quantize(SPEECH)])
    channels[0, 100] = np.nan
    with pytest.raises(UndetectedError, match="channels"):
        Description().levels_of(channels)


def test_a_missing_sample_does_not_matter():
    samples = MidRise(5).quantize(SPEECH)[None]
    whole = Description().levels_of(samples)
    samples[0, 100:110] = np.nan
    assert Description().levels_of(samples) == whole


@pytest.mark.parametrize("kind", [MidRise, MidTread])
def test_a_silent_channel_has_the_levels_of_the_other(kind):
    samples = kind(5).quantize(SPEECH)
    found = Description().levels_of(np.stack([samples, 0 * samples]))
    assert found == Description().levels_of(samples[None])
    assert found.cells(np.zeros(1)).contains(np.zeros(1)).all()


@pytest.mark.parametrize("dead", [[-1], [-1, 0]], ids=["still", "toggling"])
def test_a_dead_channel_has_the_levels_of_the_other(dead):
    samples = MidTread(8).quantize(SPEECH)
    still = np.resize(np.array(dead) / 128, len(samples))
    found = Description().levels_of(np.stack([samples, still]))
    assert found == Description().levels_of(samples[None])
    assert found.cells(still).contains(still).all()


def test_nothing_but_missing_samples_tells_nothing():
    with pytest.raises(UndetectedError):
        Description().levels_of(np.full((2, 10), np.nan))


@pytest.mark.parametrize("sound", [TRUTH, np.sign(TRUTH), 0 * TRUTH], ids=["noise", "square", "silence"])
def test_sound_with_gaps_that_was_never_quantized_is_exact(sound):
    samples = sound.copy()
    samples[0, 3] = np.nan
    for levels in (
        Description().levels_of(samples, "FLOAT"),
        Description().levels_of(sound, "FLOAT", gaps=True),
    ):
        assert "exact" in str(levels)
    with pytest.raises(UndetectedError):
        Description().levels_of(sound, "FLOAT")


def test_a_gap_hides_no_channel_that_was_never_quantized():
    channels = np.stack([MidRise(5).quantize(SPEECH), np.sin(np.arange(16000))])
    with pytest.raises(UndetectedError, match="channel 1"):
        Description().levels_of(channels, "FLOAT", gaps=True)
