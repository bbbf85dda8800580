import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw, Quantizer, Truncation

uniform = st.builds(
    lambda kind, bits, step, offset, full_scale: kind(bits, step, offset * (step or 1.0), full_scale),
    st.sampled_from([MidRise, MidTread, Truncation]),
    st.integers(1, 24),
    st.one_of(st.just(0.0), st.floats(1e-6, 1e3)),
    st.floats(-1e4, 1e4),
    st.booleans(),
)
flags = st.booleans()
companded = st.one_of(
    st.builds(MuLaw, full_scale=flags, signed_zero=flags), st.builds(ALaw, full_scale=flags)
)
quantizers = st.one_of(uniform, companded)


def full_scale_of(quantizer):
    """Lower and upper end of what the levels are made for."""
    if isinstance(quantizer, MuLaw):
        return -8159 / 8192, 8159 / 8192
    if isinstance(quantizer, ALaw):
        return -1.0, 1.0
    return quantizer.offset - quantizer.limit, quantizer.offset + quantizer.limit


def some_codes(quantizer, count=65):
    """Codes from the whole range, the ends and their neighbours among them, by increasing level."""
    if isinstance(quantizer, MuLaw | ALaw):
        codes = np.arange(256).astype(np.uint8)
        return codes[np.argsort(quantizer.levels(codes), kind="stable")]
    ends = [quantizer.lowest + np.arange(2), quantizer.highest - np.arange(2)]
    codes = np.concatenate([np.linspace(quantizer.lowest, quantizer.highest, count).astype(np.int64), *ends])
    return np.unique(np.clip(codes, quantizer.lowest, quantizer.highest))


@given(quantizers, st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=50))
def test_every_sample_lies_in_its_cell_or_is_refused_beyond_full_scale(quantizer, unit_samples):
    low, high = full_scale_of(quantizer)
    samples = (low + high) / 2 + np.array(unit_samples) * (high - low) / 2
    if quantizer.full_scale and ((samples < low) | (samples > high)).any():
        with pytest.raises(ValueError, match="full_scale"):
            quantizer.encode(samples)
    else:
        assert quantizer.cells(quantizer.encode(samples)).violation(samples) == 0.0


@pytest.mark.parametrize("quantizer", [MidRise(5), MidTread(8), Truncation(3), MuLaw(), ALaw()])
def test_by_default_a_loud_sample_lies_in_its_cell(quantizer):
    loud = np.array([-3.0, -1.0, 1.0, 3.0])
    assert quantizer.cells(quantizer.encode(loud)).violation(loud) == 0.0


@given(quantizers, st.floats(0.01, 0.99))
def test_every_interior_point_of_a_cell_has_its_code(quantizer, place):
    codes = some_codes(quantizer)
    cells = quantizer.cells(codes)
    low, high = full_scale_of(quantizer)
    beyond = 0 if quantizer.full_scale else 1
    lo, hi = np.maximum(cells.lo, low - beyond), np.minimum(cells.hi, high + beyond)
    inside = lo + place * (hi - lo)
    again = quantizer.encode(inside)
    assert quantizer.cells(again) == cells
    if getattr(quantizer, "signed_zero", True):
        np.testing.assert_array_equal(again, codes)


@given(uniform)
def test_an_edge_belongs_to_the_cell_above_it_and_the_number_below_to_the_one_below(quantizer):
    codes = some_codes(quantizer)[1:]
    edges = quantizer.cells(codes).lo
    np.testing.assert_array_equal(quantizer.encode(edges), codes)
    np.testing.assert_array_equal(quantizer.encode(np.nextafter(edges, -np.inf)), codes - 1)


@given(uniform)
def test_uniform_neighbours_tile_the_line(quantizer):
    codes = some_codes(quantizer)
    codes = codes[codes < quantizer.highest]
    here, above = quantizer.cells(codes), quantizer.cells(codes + 1)
    np.testing.assert_array_equal(here.hi, above.lo)
    everything = quantizer.cells(np.array([quantizer.lowest, quantizer.highest]))
    low, high = full_scale_of(quantizer) if quantizer.full_scale else (-np.inf, np.inf)
    assert (everything.lo[0], everything.hi[1]) == (low, high)


@given(companded)
def test_companded_neighbours_tile_the_line(quantizer):
    cells = quantizer.cells(np.arange(256))
    order = np.unique(np.stack([cells.lo, cells.hi], axis=1), axis=0)
    assert len(order) == (256 if getattr(quantizer, "signed_zero", True) else 255)
    np.testing.assert_array_equal(order[1:, 0], order[:-1, 1])
    low, high = full_scale_of(quantizer) if quantizer.full_scale else (-np.inf, np.inf)
    assert (order[0, 0], order[-1, 1]) == (low, high)


@given(quantizers)
def test_levels_are_recognised_as_their_codes(quantizer):
    codes = some_codes(quantizer)
    levels = quantizer.levels(codes)
    assert quantizer.cells(codes).violation(levels) <= 1e-15 * np.abs(levels).max()
    np.testing.assert_array_equal(quantizer.levels(quantizer.codes_of(levels)), levels)


@given(uniform)
def test_centres_are_half_a_step_above_the_lower_edge(quantizer):
    codes = some_codes(quantizer)[1:-1]
    above = quantizer.centres(codes) - quantizer.cells(codes).lo
    assert above == pytest.approx(quantizer.step / 2, abs=1e-9 * quantizer.limit)


def test_centres_and_levels_differ_where_a_converter_truncates():
    dropped = Truncation(3)
    assert dropped.levels([0, 1]).tolist() == [0.0, 0.25]
    assert dropped.centres([0, 1]).tolist() == [0.125, 0.375]
    assert MuLaw().centres([0x8F]).tolist() == MuLaw().levels([0x8F]).tolist()


@pytest.mark.parametrize("bits", range(1, 25))
def test_the_paper_s_quantizer_is_floor_plus_a_half(bits):
    step = 2 / 2**bits
    samples = np.random.default_rng(bits).uniform(-1, 1, 1000)
    np.testing.assert_array_equal(MidRise(bits).quantize(samples), step * (np.floor(samples / step) + 0.5))


def test_mid_rise_saturates_at_the_outer_levels():
    assert MidRise(3).quantize([-9.0, -1.0, 1.0, 9.0]).tolist() == [-0.875, -0.875, 0.875, 0.875]


def test_mid_tread_has_zero_and_the_lowest_code_but_not_plus_one():
    assert MidTread(3).quantize([0.1, -0.1, 1.0, -1.0]).tolist() == [0.0, 0.0, 0.75, -1.0]


def test_truncation_rounds_down():
    assert Truncation(3).quantize([0.24, -0.01, 1.0]).tolist() == [0.0, -0.25, 0.75]


def test_knowing_full_scale_ends_the_outer_cells():
    codes = np.array([-4, 3])
    known, unknown = MidTread(3, full_scale=True).cells(codes), MidTread(3).cells(codes)
    assert (known.lo.tolist(), known.hi.tolist()) == ([-1.0, 0.625], [-0.875, 1.0])
    assert (unknown.lo.tolist(), unknown.hi.tolist()) == ([-np.inf, 0.625], [-0.875, np.inf])


def test_step_and_offset_move_edges_and_levels():
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
        {"bits": 4, "offset": np.inf},
    ],
)
def test_impossible_quantizers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"bit|step|offset"):
        MidRise(**wrong)


def test_a_step_that_vanishes_beside_the_offset_is_refused():
    with pytest.raises(ValueError, match="offset"):
        MidTread(8, step=1e-12, offset=1e6)


@pytest.mark.parametrize("quantizer", [MidRise(5), MuLaw(), ALaw()])
def test_nan_has_no_code(quantizer):
    with pytest.raises(ValueError, match="NaN"):
        quantizer.encode([0.0, np.nan])


@pytest.mark.parametrize("codes", [[16], [-17], [0.5]])
def test_codes_that_do_not_exist_have_no_cell(codes):
    with pytest.raises(ValueError, match="codes"):
        MidRise(5).cells(codes)


@pytest.mark.parametrize("levels", [[0.35], [5.0], [np.inf]])
def test_samples_off_the_grid_are_not_recognised(levels):
    with pytest.raises(ValueError, match="MidTread"):
        MidTread(3).codes_of(levels)


@pytest.mark.parametrize("law", [MuLaw(), ALaw()])
def test_codes_of_any_integer_type_have_their_cells(law):
    for dtype in (np.int8, np.uint8, np.int16, np.uint64):
        assert law.cells(np.array([3, 100], dtype)) == law.cells([3, 100])
    with pytest.raises(ValueError, match="-3"):
        law.cells(np.array([-3], np.int8))


def test_bits_from_numpy_are_bits():
    assert MidRise(np.int8(5)) == MidRise(5)


def test_every_kind_keeps_to_the_protocol():
    kinds: list[Quantizer] = [MidRise(3), MidTread(3), Truncation(3), MuLaw(), ALaw()]
    for quantizer in kinds:
        codes = quantizer.encode([0.3, -0.3])
        np.testing.assert_array_equal(quantizer.codes_of(quantizer.levels(codes)), codes)
        np.testing.assert_array_equal(quantizer.levels(codes), quantizer.quantize([0.3, -0.3]))
