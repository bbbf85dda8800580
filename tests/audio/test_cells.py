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
def test_centre_is_finite_and_inside(cells):
    assert np.isfinite(cells.centre).all()
    assert cells.contains(cells.centre).all()


@given(boxes(), points)
def test_projection_is_nearest_point_of_cell(cells, x):
    projected = cells.project(x)
    assert cells.violation(projected) == 0.0
    np.testing.assert_array_equal(projected[cells.contains(x)], x[cells.contains(x)])
    for other in (cells.lo, cells.hi, cells.centre):
        with np.errstate(over="ignore", invalid="ignore"):
            nearer = np.abs(x - other) < np.abs(x - projected)
        assert not nearer.any()


@given(boxes(), points)
def test_violation_is_zero_iff_inside(cells, x):
    assert (cells.violation(x) == 0.0) == cells.contains(x).all()


@given(boxes(), st.integers(0, LENGTH))
def test_slicing_commutes_with_concatenate_and_centre(cells, at):
    assert concatenate([cells[:at], cells[at:]]) == cells
    np.testing.assert_array_equal(cells[at:].centre, cells.centre[at:])


@given(boxes(), points)
def test_float32_cells_lie_inside_float64_cells(cells, x):
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


def test_refuses_cell_without_float32():
    with pytest.raises(ValueError, match="float32"):
        Cells([0.1, 0.0], [0.1 + 1e-15, 1.0]).astype(np.float32)


def test_centre_of_open_ended_and_unbounded_cells():
    cells = Cells([-np.inf, 2.0, -np.inf, 1.0], [-3.0, np.inf, np.inf, 2.0])
    assert cells.centre.tolist() == [-3.0, 2.0, 0.0, 1.5]
    assert cells.radius.tolist() == [np.inf, np.inf, np.inf, 0.5]


def test_centre_of_subnormal_is_not_zero():
    assert Cells([5e-324], [5e-324]).centre == [5e-324]


def test_violation_is_largest_distance_and_inf_for_nan():
    cells = Cells([0.0, 0.0], [1.0, 1.0])
    assert cells.violation([1.5, -0.25]) == 0.5
    assert cells.violation([0.5, np.nan]) == np.inf
    assert cells.violation([0.5, np.inf]) == np.inf


def test_open_ended_cell_contains_infinity():
    assert Cells([0.0], [np.inf]).violation([np.inf]) == 0.0


@pytest.mark.parametrize(
    ("lo", "hi"),
    [([1.0], [0.0]), ([np.nan], [0.0]), ([np.inf], [np.inf]), ([-np.inf], [-np.inf]), ([0.0], [1.0, 2.0])],
)
def test_refuses_empty_cells(lo, hi):
    with pytest.raises(ValueError, match="lo"):
        Cells(lo, hi)


def test_cells_are_read_only():
    cells = Cells(np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match="read-only"):
        cells.lo[0] = 5.0


@pytest.mark.parametrize("kept", [lambda array: array, lambda array: np.broadcast_to(array, array.shape)])
def test_cells_copy_writable_arrays(kept):
    ends = np.zeros(2)
    cells = Cells(kept(ends), kept(ends))
    ends[0] = 5.0
    assert cells.lo.tolist() == cells.hi.tolist() == [0.0, 0.0]
    assert ends.flags.writeable


@pytest.mark.parametrize("samples", [0.5, [0.5], [0.5, 0.5, 0.5], [[0.5, 0.5]]])
@pytest.mark.parametrize("method", [Cells.project, Cells.contains, Cells.violation])
def test_refuses_samples_of_other_shape(method, samples):
    with pytest.raises(ValueError, match=r"\(2,\)"):
        method(Cells([0.0, 0.0], [1.0, 1.0]), samples)


def test_project_refuses_nan():
    with pytest.raises(ValueError, match="NaN"):
        Cells([0.0, 0.0], [1.0, 1.0]).project([0.5, np.nan])


def test_opening_keeps_float32():
    assert (
        Cells(np.zeros(1, np.float32), np.ones(1, np.float32)).opened([True], [False]).lo.dtype == np.float32
    )


@given(boxes(), points)
def test_project_inside_is_strictly_inside(cells, samples):
    inside_points = cells.project_inside(samples)
    assert cells.contains(inside_points).all()
    has_room = np.nextafter(cells.lo, cells.hi) < cells.hi
    assert ((cells.lo < inside_points) & (inside_points < cells.hi))[has_room].all()
    inside = (cells.lo < samples) & (samples < cells.hi)
    np.testing.assert_array_equal(inside_points[inside], samples[inside])


def test_project_inside_avoids_subnormals():
    assert Cells([0.0], [0.25]).project_inside([-1.0]) == 0.25 * 2.0**-20
