"""Samples, codes, levels and cells of every quantizer."""

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.quantizers import (
    ALaw,
    Bounded,
    Clipping,
    Coder,
    Exact,
    Gaps,
    MidRise,
    MidTread,
    MuLaw,
    Observer,
    Quantizer,
    Truncation,
    Uniform,
)
from pdrn.errors import InputError

ALL_BYTES = np.arange(256, dtype=np.uint8)
ALL_LINEAR = np.arange(-32768, 32768)
WAVE = np.sin(0.01 * np.arange(4000))

uniform = st.builds(
    lambda kind, bits, step, offset, full_scale: kind(bits, step, offset * (step or 1.0), full_scale),
    st.sampled_from([MidRise, MidTread, Truncation]),
    st.integers(1, 24),
    st.one_of(st.just(0.0), st.floats(1e-6, 1e3)),
    st.floats(-1e4, 1e4),
    st.booleans(),
)
coders = st.one_of(uniform, st.sampled_from([MuLaw(), ALaw()]))


def ends_at_full_scale(coder):
    return getattr(coder, "full_scale", False)


def full_scale_of(coder):
    """Lower and upper end of what the levels are made for."""
    centre = getattr(coder, "offset", 0.0)
    return centre - coder.limit, centre + coder.limit


def some_codes(coder, count=65):
    """Codes from the whole range, the ends and their neighbours among them, by increasing level."""
    if isinstance(coder, MuLaw | ALaw):
        codes = coder.codes_of(np.unique(coder.decode(ALL_BYTES)))
        return codes[np.argsort(coder.decode(codes))]
    ends = [coder.lowest + np.arange(2), coder.highest - np.arange(2)]
    codes = np.concatenate([np.linspace(coder.lowest, coder.highest, count).astype(np.int64), *ends])
    return np.unique(np.clip(codes, coder.lowest, coder.highest))


# --- Laws of every coder ---


@given(coders, st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=50))
def test_sample_lies_in_its_cell_or_is_refused_beyond_full_scale(coder, unit_samples):
    low, high = full_scale_of(coder)
    samples = (low + high) / 2 + np.array(unit_samples) * (high - low) / 2
    if ends_at_full_scale(coder) and ((samples < low) | (samples > high)).any():
        with pytest.raises(InputError, match="beyond full scale"):
            coder.encode(samples)
    else:
        codes = coder.encode(samples)
        assert coder.cells(codes).violation(samples) == 0.0


@given(coders, st.lists(st.floats(-1, 1), min_size=1, max_size=50))
def test_quantize_is_idempotent(coder, unit_samples):
    low, high = full_scale_of(coder)
    levels = coder.quantize(np.clip((low + high) / 2 + np.array(unit_samples) * (high - low) / 2, low, high))
    again = coder.codes_of(levels)
    np.testing.assert_array_equal(coder.decode(again), levels)
    if isinstance(coder, MuLaw | ALaw):
        np.testing.assert_array_equal(coder.quantize(levels), levels)


@given(coders)
def test_observe_returns_cell_of_level(coder):
    codes = some_codes(coder)
    levels = coder.decode(codes)
    np.testing.assert_array_equal(coder.codes_of(levels), codes)
    assert coder.observe(levels) == coder.cells(codes)
    assert coder.cells(codes).violation(levels) <= 1e-15 * np.abs(levels).max()


@given(coders, st.floats(0.01, 0.99))
def test_interior_of_cell_has_its_code(coder, place):
    codes = some_codes(coder)
    cells = coder.cells(codes)
    low, high = full_scale_of(coder)
    beyond = 0 if ends_at_full_scale(coder) else 1
    lo, hi = np.maximum(cells.lo, low - beyond), np.minimum(cells.hi, high + beyond)
    np.testing.assert_array_equal(coder.encode(lo + place * (hi - lo)), codes)


@given(coders)
def test_neighbouring_cells_tile_the_line(coder):
    codes = some_codes(coder) if isinstance(coder, MuLaw | ALaw) else np.arange(coder.lowest, coder.highest)
    if len(codes) > 1000:
        codes = np.concatenate([codes[:500], codes[-500:]])
        cut = 499
    else:
        cut = None
    cells = coder.cells(codes)
    meets = cells.hi[:-1] == cells.lo[1:]
    assert meets[np.arange(len(meets)) != cut].all()
    low, high = full_scale_of(coder) if ends_at_full_scale(coder) else (-np.inf, np.inf)
    outermost = coder.cells(some_codes(coder)[[0, -1]])
    assert (outermost.lo[0], outermost.hi[1]) == (low, high)


@given(uniform)
def test_edge_belongs_to_cell_above(coder):
    codes = some_codes(coder)[1:]
    edges = coder.cells(codes).lo
    np.testing.assert_array_equal(coder.encode(edges), codes)
    np.testing.assert_array_equal(coder.encode(np.nextafter(edges, -np.inf)), codes - 1)


def test_quantizers_follow_protocol():
    coders: list[Coder] = [MidRise(3), MidTread(3), Truncation(3), MuLaw(), ALaw()]
    others: list[Quantizer] = [Uniform(3), Exact(), Clipping(0.5), Gaps(), Bounded(Uniform(3))]
    for quantizer in (*coders, *others):
        samples = quantizer.quantize([0.3, -0.3]) if quantizer in coders else np.array([0.25, -0.25])
        assert quantizer.observe(samples).contains(samples).all()
        assert str(quantizer)
        assert quantizer.step is None or quantizer.step == 0.25
        assert hash(quantizer) == hash(quantizer)


# --- Uniform coders ---


@pytest.mark.parametrize("bits", range(1, 25))
def test_mid_rise_is_quantizer_of_paper(bits):
    step = 2 / 2**bits
    samples = np.random.default_rng(bits).uniform(-1, 1, 1000)
    np.testing.assert_array_equal(MidRise(bits).quantize(samples), step * (np.floor(samples / step) + 0.5))


def test_kinds_have_their_levels_and_saturate():
    assert MidRise(3).quantize([-9.0, -1.0, 1.0, 9.0]).tolist() == [-0.875, -0.875, 0.875, 0.875]
    assert MidTread(3).quantize([0.1, -0.1, 1.0, -1.0]).tolist() == [0.0, 0.0, 0.75, -1.0]
    assert Truncation(3).quantize([0.24, -0.01, 1.0]).tolist() == [0.0, -0.25, 0.75]


def test_truncated_level_is_lower_end_of_cell():
    assert Truncation(3).decode([0, 1]).tolist() == [0.0, 0.25]
    assert Truncation(3).cells([0, 1]).centre.tolist() == [0.125, 0.375]


def test_full_scale_bounds_outermost_cells():
    codes = np.array([-4, 3])
    known, unknown = MidTread(3, full_scale=True).cells(codes), MidTread(3).cells(codes)
    assert (known.lo.tolist(), known.hi.tolist()) == ([-1.0, 0.625], [-0.875, 1.0])
    assert (unknown.lo.tolist(), unknown.hi.tolist()) == ([-np.inf, 0.625], [-0.875, np.inf])


def test_step_and_offset_scale_and_shift_levels():
    quantizer = MidRise(2, step=0.3, offset=10.0)
    assert quantizer.quantize([9.95, 10.2, 99.0]).tolist() == pytest.approx([9.85, 10.15, 10.45])


@pytest.mark.parametrize(
    "wrong",
    [
        {"bits": 0},
        {"bits": 33},
        {"bits": 5.0},
        {"bits": True},
        {"bits": "5"},
        {"bits": 4, "step": -1.0},
        {"bits": 4, "step": np.nan},
    ],
)
@pytest.mark.parametrize("kind", [MidRise, Uniform])
def test_refuses_impossible_quantizers(kind, wrong):
    with pytest.raises(InputError, match=r"bit depth|step"):
        kind(**wrong)


@pytest.mark.parametrize("offset", [np.inf, 1e6])
def test_refuses_offset_beyond_float64_resolution(offset):
    with pytest.raises(InputError, match="offset"):
        MidTread(8, step=1e-12, offset=offset)


def test_accepts_numpy_integers_as_bits():
    assert MidRise(np.int8(5)) == MidRise(5)
    assert str(Uniform(np.int8(5))) == "5 bits"


@pytest.mark.parametrize("quantizer", [MidRise(5), MuLaw(), ALaw(), Uniform(5), Exact(), Clipping(0.5)])
def test_observe_refuses_nan_without_gaps(quantizer):
    known = quantizer.quantize([0.3]) if hasattr(quantizer, "quantize") else np.array([0.25])
    samples = np.append(known, np.nan)
    with pytest.raises(InputError, match="NaN"):
        quantizer.observe(samples)
    cells = Gaps(quantizer).observe(samples)
    assert cells[:1] == quantizer.observe(known)
    assert (cells.lo[1], cells.hi[1]) == (-np.inf, np.inf)


@pytest.mark.parametrize("codes", [[16], [-17], [0.5]])
def test_refuses_codes_out_of_range(codes):
    with pytest.raises(InputError, match="codes"):
        MidRise(5).cells(codes)


@pytest.mark.parametrize("levels", [[0.35], [5.0]])
@pytest.mark.parametrize("quantizer", [MidTread(3), Uniform(3), MuLaw()])
def test_observe_refuses_samples_off_levels(quantizer, levels):
    with pytest.raises(InputError, match="level"):
        quantizer.observe(levels)


# --- G.711 against libsndfile's tables and against the algorithm in integers ---


def mu_law_byte(linear):
    """The mu-law byte of a 16-bit sample, by shifting bits; +0 for -0."""
    negative = linear < 0
    magnitude = min(((~linear if negative else linear) >> 2) + 33, 0x1FFF)
    segment = magnitude.bit_length() - 6
    code = segment << 4 | (magnitude >> (segment + 1)) & 15
    return 0xFF if code == 0 else code ^ (0x7F if negative else 0xFF)


def a_law_byte(linear):
    """The A-law byte of a 16-bit sample, by shifting bits."""
    negative = linear < 0
    magnitude = (~linear if negative else linear) >> 4
    segment = max(magnitude.bit_length() - 4, 0)
    code = segment << 4 | (magnitude >> max(segment - 1, 0)) & 15
    return code ^ (0x55 if negative else 0xD5)


@pytest.mark.parametrize(("law", "subtype"), [(MuLaw(), "ULAW"), (ALaw(), "ALAW")])
def test_g711_levels_equal_libsndfile(law, subtype):
    raw = io.BytesIO(ALL_BYTES.tobytes())
    expanded, _ = soundfile.read(
        raw, dtype="int16", format="RAW", subtype=subtype, channels=1, samplerate=8000
    )
    np.testing.assert_array_equal(law.decode(ALL_BYTES) * 32768, expanded)


@pytest.mark.parametrize(("law", "reference"), [(MuLaw(), mu_law_byte), (ALaw(), a_law_byte)])
def test_g711_encodes_all_16_bit_samples_exactly(law, reference):
    expected = [reference(int(linear)) for linear in ALL_LINEAR]
    np.testing.assert_array_equal(law.encode(ALL_LINEAR / 32768), expected)


def test_g711_decision_values_follow_recommendation():
    mu, a = MuLaw().cells(ALL_BYTES[128:]), ALaw().cells(ALL_BYTES[128:])
    assert sorted(mu.hi * 8192)[:3] == [1, 3, 5]
    assert sorted(mu.hi * 8192)[-3:] == [7647, 7903, np.inf]
    assert sorted(a.hi * 4096)[:3] == [2, 4, 6]
    assert sorted(a.hi * 4096)[-3:] == [3840, 3968, np.inf]


def test_mu_law_zeros_share_a_cell():
    cells = MuLaw().cells(np.array([0x7F, 0xFF]))
    assert (cells.lo * 8192).tolist() == [-1, -1]
    assert (cells.hi * 8192).tolist() == [1, 1]


def test_a_law_silence_reaches_to_least_levels():
    cells = ALaw().observe([0.0, 8 / 32768])
    assert cells.lo.tolist() == [-1 / 4096, 0.0]
    assert cells.hi.tolist() == [1 / 4096, 2 / 4096]


@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
def test_accepts_codes_of_any_integer_type(law):
    for dtype in (np.int8, np.uint8, np.int16, np.uint64):
        assert law.cells(np.array([3, 100], dtype)) == law.cells([3, 100])
    with pytest.raises(InputError, match=r"0\.\.255"):
        law.cells(np.array([-3], np.int8))


# --- A step of which the samples tell the kind ---


@given(
    bits=st.integers(1, 24), kind=st.sampled_from([MidRise, MidTread, Truncation]), seed=st.integers(0, 99)
)
def test_uniform_has_cells_of_actual_kind(bits, kind, seed):
    truth = np.random.default_rng(seed).uniform(-1, 1, 200)
    coder = kind(bits)
    codes = coder.encode(truth)
    cells = Uniform(bits, truncating=kind is Truncation).observe(coder.decode(codes))
    np.testing.assert_allclose(cells.lo, coder.cells(codes).lo, atol=1e-12)
    np.testing.assert_allclose(cells.hi, coder.cells(codes).hi, atol=1e-12)
    assert cells.violation(truth) <= 1e-12


@given(step=st.floats(1e-4, 0.5), kind=st.sampled_from([MidRise, MidTread]))
def test_uniform_by_step_has_no_full_scale(step, kind):
    cells = Uniform(step=step).observe(kind(32, step).quantize(WAVE))
    np.testing.assert_allclose(cells.radius, step / 2)
    assert cells.violation(WAVE) <= 1e-9


def test_uniform_refuses_mixed_kinds_but_accepts_zero():
    assert Uniform(3).observe([0.0, 0.125]).lo.tolist() == [-0.125, 0.0]
    with pytest.raises(InputError, match="like the others"):
        Uniform(3).observe([0.25, 0.125])


@pytest.mark.parametrize("peak", [0.69, 0.004, 2**-15, 1e-6])
@pytest.mark.parametrize("quantizer", [Uniform(step=2048.0), Uniform(2)])
def test_uniform_refuses_quiet_sound_between_levels(peak, quantizer):
    with pytest.raises(InputError, match=f"is no level of {quantizer}"):
        quantizer.observe(peak * np.array([0.0, 1.0, -0.8]))


@pytest.mark.parametrize("step", [0.1, 0.01, 0.003])
@pytest.mark.parametrize(
    "stored",
    [
        lambda levels: np.rint(levels * 32768) / 32768,
        lambda levels: np.floor(levels * 32768) / 32768,
        lambda levels: np.rint(levels * 32767) / 32768,
        np.float32,
    ],
    ids=["rounded", "dropped", "32767", "float32"],
)
def test_uniform_tolerates_rounding_of_storage(stored, step):
    levels = step * np.rint(np.linspace(-0.9, 0.9, 999) / step)
    assert Uniform(step=step).observe(stored(levels)) == Uniform(step=step).observe(levels)


def test_uniform_accepts_peak_rounded_beyond_full_scale():
    cells = Bounded(Uniform(5)).observe([1.0, -1.0, 0.5])
    assert cells.lo.tolist() == [31 / 32, -1.0, 15 / 32]
    assert cells.hi.tolist() == [1.0, -31 / 32, 17 / 32]


@given(bits=st.integers(1, 12), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_observer_of_pieces_equals_whole(bits, cuts):
    samples = np.concatenate([np.zeros(9), MidRise(bits).quantize(WAVE[:31])])[None]
    observer, pieces = Observer(Uniform(bits)), np.split(samples, sorted(cuts), axis=-1)
    whole = Uniform(bits).observe(samples)
    lo = np.concatenate([observer.observe(piece).lo for piece in pieces], axis=-1)
    np.testing.assert_array_equal(lo, whole.lo)
    with pytest.raises(InputError, match="like the others"):
        observer.observe(np.full((1, 1), 2 / 2**bits))


def test_observer_refuses_absurd_samples():
    with pytest.raises(InputError, match="is beyond"):
        Observer(Exact()).observe(np.array([[1e30]]))


# --- Clipping, gaps and full scale ---


@given(st.floats(0.01, 10), st.lists(st.floats(-20, 20), min_size=1))
def test_clipping_opens_peaks_and_keeps_the_rest(threshold, values):
    samples, clipping = np.array(values), Clipping(threshold)
    clipped = clipping.clip(samples)
    cells = clipping.observe(clipped)
    assert cells.violation(samples) == 0.0
    known = np.abs(samples) < min(threshold, np.float32(threshold))
    np.testing.assert_array_equal(cells.lo[known], samples[known])
    np.testing.assert_array_equal(cells.hi[known], samples[known])
    assert np.isinf(cells.radius[np.abs(samples) >= threshold]).all()
    np.testing.assert_array_equal(cells.centre, clipped)


@given(
    st.floats(0.05, 0.9),
    st.sampled_from(
        [MidTread(16), MidTread(8), MidRise(5), Truncation(8), MuLaw(), ALaw(), MidRise(6, full_scale=True)]
    ),
)
def test_clipped_then_quantized_is_open_ended(threshold, coder):
    clipping = Clipping(threshold, coder)
    cells = clipping.observe(coder.quantize(clipping.clip(WAVE)))
    assert cells.violation(WAVE) == 0.0
    assert np.isinf(cells.hi[threshold <= WAVE]).all()
    assert np.isinf(cells.lo[-threshold >= WAVE]).all()
    own = coder.cells(coder.encode([threshold]))
    assert np.isfinite(cells.radius[np.abs(WAVE) < threshold - (own.hi - own.lo)]).all()


@pytest.mark.parametrize("step", [1 / 16, 0.7 / 16])
def test_clipping_at_full_scale_opens_outermost_codes(step):
    coder = MidRise(5, step, full_scale=True)
    cells = Clipping(coder.limit, coder).observe(coder.decode(np.array([-16, -15, 14, 15])))
    assert np.isinf(cells.radius).tolist() == [True, False, False, True]


def test_clipping_between_16_bit_codes():
    stored = np.rint(np.clip(WAVE, -0.65, 0.65) * 32768) / 32768
    opened = np.isinf(Clipping(0.65, MidTread(16)).observe(stored).radius)
    assert np.count_nonzero(opened) == np.count_nonzero(np.abs(stored) == stored.max()) == 2230


@pytest.mark.parametrize("threshold", [0.65, np.float32(0.65), 0.7, np.float32(0.7)])
def test_clipping_in_float32(threshold):
    wave = WAVE.astype(np.float32)
    clipped = np.clip(wave, -np.float32(threshold), np.float32(threshold))
    cells = Clipping(threshold).observe(clipped)
    assert cells.violation(wave) == 0.0
    assert np.count_nonzero(np.isinf(cells.radius)) == np.count_nonzero(clipped.max() == np.abs(clipped))


@pytest.mark.parametrize("threshold", [0.0, -1.0, np.inf, np.nan])
def test_refuses_impossible_thresholds(threshold):
    with pytest.raises(InputError, match="positive finite number"):
        Clipping(threshold)


def test_bounded_ends_cells_at_full_scale():
    cells = Bounded(Uniform(3)).observe([-0.875, 0.875])
    assert (cells.lo[0], cells.hi[1]) == (-1, 1)


def test_step_is_none_with_gaps_and_clipping():
    assert (Uniform(3).step, Bounded(Uniform(3)).step) == (0.25, 0.25)
    assert Gaps(Uniform(3)).step is Clipping(0.5, Uniform(3)).step is MuLaw().step is None
