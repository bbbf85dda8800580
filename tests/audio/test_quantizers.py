import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.quantizers import Clipping, Gaps, MidRise, MidTread, Truncation

uniform = st.builds(
    lambda kind, bits, step, offset, full_scale: kind(bits, step, offset * (step or 1.0), full_scale),
    st.sampled_from([MidRise, MidTread, Truncation]),
    st.integers(1, 24),
    st.one_of(st.just(0.0), st.floats(1e-6, 1e3)),
    st.floats(-1e4, 1e4),
    st.booleans(),
)
companded = st.one_of(st.builds(MuLaw, st.booleans(), st.booleans()), st.builds(ALaw, st.booleans()))
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
def test_every_sample_lies_in_its_cell(quantizer, unit_samples):
    low, high = full_scale_of(quantizer)
    samples = (low + high) / 2 + np.array(unit_samples) * (high - low) / 2
    if quantizer.full_scale:
        samples = np.clip(samples, low, high)
    assert quantizer.cells(quantizer.encode(samples)).violation(samples) == 0.0


@given(quantizers, st.floats(0.01, 0.99))
def test_every_interior_point_of_a_cell_has_its_code(quantizer, place):
    codes = some_codes(quantizer)
    cells = quantizer.cells(codes)
    low, high = full_scale_of(quantizer)
    lo, hi = np.maximum(cells.lo, low - 1), np.minimum(cells.hi, high + 1)
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


@given(quantizers)
def test_decoding_gives_the_centre(quantizer):
    codes = some_codes(quantizer)
    np.testing.assert_array_equal(quantizer.decode(codes), quantizer.cells(codes).centre)


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
    known, unknown = MidTread(3).cells(codes), MidTread(3, full_scale=False).cells(codes)
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
        {"bits": 4, "step": -1.0},
        {"bits": 4, "step": np.nan},
        {"bits": 4, "offset": np.inf},
    ],
)
def test_impossible_quantizers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"bit depth|step and offset"):
        MidRise(**wrong)


def test_a_step_that_vanishes_beside_the_offset_is_refused():
    with pytest.raises(ValueError, match="beyond float64; remove the offset"):
        MidTread(8, step=1e-12, offset=1e6)


@pytest.mark.parametrize("quantizer", [MidRise(5), MuLaw(), ALaw(), Clipping(0.5)])
def test_nan_has_no_code(quantizer):
    with pytest.raises(ValueError, match="NaN; mark missing samples with Gaps"):
        quantizer.encode([0.0, np.nan])


@pytest.mark.parametrize("codes", [[16], [-17], [0.5]])
def test_codes_that_do_not_exist_have_no_cell(codes):
    with pytest.raises(ValueError, match="codes"):
        MidRise(5).cells(codes)


@pytest.mark.parametrize("levels", [[0.35], [5.0], [np.inf]])
def test_samples_off_the_grid_are_not_recognised(levels):
    with pytest.raises(ValueError, match="no level of MidTread"):
        MidTread(3).codes_of(levels)


@given(st.floats(0.01, 10), st.lists(st.floats(-20, 20), min_size=1))
def test_clipping_knows_the_rest_exactly_and_the_peaks_by_one_side(threshold, values):
    samples, quantizer = np.array(values), Clipping(threshold)
    codes = quantizer.encode(samples)
    cells = quantizer.cells(codes)
    assert cells.violation(samples) == 0.0
    known = np.abs(samples) < threshold
    np.testing.assert_array_equal(cells.lo[known], samples[known])
    np.testing.assert_array_equal(cells.hi[known], samples[known])
    assert np.isinf(cells.radius[~known]).all()
    np.testing.assert_array_equal(quantizer.decode(codes), np.clip(samples, -threshold, threshold))


def test_a_gap_may_hold_anything():
    quantizer = Gaps()
    cells = quantizer.cells(quantizer.encode([0.5, np.nan]))
    assert (cells.lo.tolist(), cells.hi.tolist()) == ([0.5, -np.inf], [0.5, np.inf])
    assert quantizer.quantize([0.5, np.nan]).tolist() == [0.5, 0.0]


def test_gaps_and_saturation_combine_with_any_quantizer_s_cells():
    cells = MidRise(2).cells(np.array([0, 1, 1])).opened([True, False, False], [True, True, False])
    assert cells.lo.tolist() == [-np.inf, 0.5, 0.5]
    assert cells.hi.tolist() == [np.inf, np.inf, 1.0]
