import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pdrn.audio.cells import Cells, concatenate

LENGTH = 5
ends = hnp.arrays(np.float64, LENGTH, elements=st.floats(allow_nan=False))
points = hnp.arrays(np.float64, LENGTH, elements=st.floats(allow_nan=False))


@st.composite
def boxes(draw, wide_ends=ends):
    a, b = draw(wide_ends), draw(wide_ends)
    lo, hi = np.minimum(a, b), np.maximum(a, b)
    assume((lo < np.inf).all() and (hi > -np.inf).all())
    return Cells(lo, hi)


@given(boxes())
def test_the_centre_is_a_finite_point_of_the_cell(cells):
    assert np.isfinite(cells.centre).all()
    assert cells.contains(cells.centre).all()


@given(boxes(), points)
def test_a_projected_point_is_in_its_cell_and_nearest(cells, x):
    projected = cells.project(x)
    assert cells.violation(projected) == 0.0
    np.testing.assert_array_equal(projected[cells.contains(x)], x[cells.contains(x)])
    for other in (cells.lo, cells.hi, cells.centre):
        with np.errstate(over="ignore", invalid="ignore"):
            nearer = np.abs(x - other) < np.abs(x - projected)
        assert not nearer.any()


@given(boxes(), points)
def test_violation_is_zero_exactly_inside(cells, x):
    assert (cells.violation(x) == 0.0) == cells.contains(x).all()


@given(boxes(), st.integers(0, LENGTH))
def test_slices_concatenate_to_the_whole_and_commute_with_the_centre(cells, at):
    assert concatenate([cells[:at], cells[at:]]) == cells
    np.testing.assert_array_equal(cells[at:].centre, cells.centre[at:])


@given(boxes(), points)
def test_what_is_in_the_float32_cell_is_in_the_float64_cell(cells, x):
    try:
        narrow = cells.astype(np.float32)
    except ValueError:
        with np.errstate(over="ignore"):
            near = np.stack([cells.lo.astype(np.float32), cells.hi.astype(np.float32)]).astype(np.float64)
        held = np.isfinite(near) & (cells.lo <= near) & (near <= cells.hi)
        assert not held.any(axis=0).all()
        return
    assert narrow.lo.dtype == narrow.hi.dtype == np.float32
    assert (narrow.lo.astype(np.float64) >= cells.lo).all()
    assert (narrow.hi.astype(np.float64) <= cells.hi).all()
    with np.errstate(over="ignore"):
        inside = narrow.project(x.astype(np.float32))
    assert inside.dtype == np.float32
    assert cells.contains(inside.astype(np.float64)).all()


def test_float32_rounds_each_end_inward():
    cells = Cells([0.1, -0.1], [0.7, -0.05]).astype(np.float32)
    assert float(cells.lo[0]) - 0.1 == pytest.approx(1.49e-9, rel=1e-2)
    assert 0.7 - float(cells.hi[0]) == pytest.approx(1.19e-8, rel=1e-1)


def test_float32_refuses_a_cell_without_a_float32():
    with pytest.raises(ValueError, match="float32"):
        Cells([0.1, 0.0], [0.1 + 1e-15, 1.0]).astype(np.float32)


def test_half_open_cells_have_their_finite_end_for_a_centre_and_unbounded_ones_zero():
    cells = Cells([-np.inf, 2.0, -np.inf, 1.0], [-3.0, np.inf, np.inf, 2.0])
    assert cells.centre.tolist() == [-3.0, 2.0, 0.0, 1.5]
    assert cells.radius.tolist() == [np.inf, np.inf, np.inf, 0.5]


def test_the_centre_of_the_smallest_number_is_not_rounded_to_zero():
    assert Cells([5e-324], [5e-324]).centre == [5e-324]


def test_violation_is_the_largest_distance_and_infinite_for_nan():
    cells = Cells([0.0, 0.0], [1.0, 1.0])
    assert cells.violation([1.5, -0.25]) == 0.5
    assert cells.violation([0.5, np.nan]) == np.inf
    assert cells.violation([0.5, np.inf]) == np.inf


def test_an_infinite_sample_is_inside_an_open_ended_cell():
    assert Cells([0.0], [np.inf]).violation([np.inf]) == 0.0


@pytest.mark.parametrize(
    ("lo", "hi"),
    [([1.0], [0.0]), ([np.nan], [0.0]), ([np.inf], [np.inf]), ([-np.inf], [-np.inf]), ([0.0], [1.0, 2.0])],
)
def test_cells_that_hold_no_number_are_refused(lo, hi):
    with pytest.raises(ValueError, match="lo"):
        Cells(lo, hi)


def test_cells_cannot_be_written_to():
    cells = Cells(np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match="read-only"):
        cells.lo[0] = 5.0


@pytest.mark.parametrize("kept", [lambda array: array, lambda array: np.broadcast_to(array, array.shape)])
def test_cells_do_not_follow_the_array_they_were_made_from(kept):
    ends = np.zeros(2)
    cells = Cells(kept(ends), kept(ends))
    ends[0] = 5.0
    assert cells.lo.tolist() == cells.hi.tolist() == [0.0, 0.0]
    assert ends.flags.writeable


@pytest.mark.parametrize("samples", [0.5, [0.5], [0.5, 0.5, 0.5], [[0.5, 0.5]]])
@pytest.mark.parametrize("method", [Cells.project, Cells.contains, Cells.violation])
def test_samples_of_another_shape_are_refused(method, samples):
    with pytest.raises(ValueError, match=r"\(2,\)"):
        method(Cells([0.0, 0.0], [1.0, 1.0]), samples)


def test_nan_is_not_projected():
    with pytest.raises(ValueError, match="NaN"):
        Cells([0.0, 0.0], [1.0, 1.0]).project([0.5, np.nan])


def test_opening_keeps_float32():
    assert (
        Cells(np.zeros(1, np.float32), np.ones(1, np.float32)).opened([True], [False]).lo.dtype == np.float32
    )


@given(boxes(), points)
def test_a_point_projected_inside_is_between_the_ends_wherever_there_is_something_between(cells, samples):
    inside_points = cells.project_inside(samples)
    assert cells.contains(inside_points).all()
    has_room = np.nextafter(cells.lo, cells.hi) < cells.hi
    assert ((cells.lo < inside_points) & (inside_points < cells.hi))[has_room].all()
    inside = (cells.lo < samples) & (samples < cells.hi)
    np.testing.assert_array_equal(inside_points[inside], samples[inside])


def test_a_point_projected_inside_beside_zero_is_no_tiny_number():
    assert Cells([0.0], [0.25]).project_inside([-1.0]) == 0.25 * 2.0**-20
