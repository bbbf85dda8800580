"""NumPy arrays and torch tensors behind one set of functions."""

import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest
import torch
from hypothesis import given
from tests.convex.laws import normal, scales, seeds

from pdrn.convex import DCT, L1, Dense, Problem, SquaredL2
from pdrn.convex.backend import (
    ArrayHolder,
    all_true,
    convert,
    is_array,
    is_real,
    is_tensor,
    map_arrays,
    norm,
    numbers,
    plus,
    require_fits,
    subtracted_from,
    times,
)
from pdrn.errors import InputError


class Plain(ArrayHolder):
    """A class without fields, as users write them."""

    def __init__(self, array):
        self.array = array
        self.nested = {"parts": [array, (array, "text")]}

    @cached_property
    def total(self):
        return self.array.sum()


@dataclass(frozen=True)
class Pair:
    first: np.ndarray
    kept: np.ndarray = field(metadata={"shared": True})
    inner: Plain


def test_map_arrays_reaches_every_depth_and_drops_caches():
    array = np.arange(3.0)
    pair = Pair(array, array, Plain(array))
    assert pair.inner.total == 3
    mapped = map_arrays(pair, lambda found: found + 1)
    assert mapped.kept is array
    for found in (mapped.first, mapped.inner.array, *mapped.inner.nested["parts"][:1]):
        assert found.tolist() == [1.0, 2.0, 3.0]
    assert mapped.inner.nested["parts"][1][0].tolist() == [1.0, 2.0, 3.0]
    assert mapped.inner.nested["parts"][1][1] == "text"
    assert mapped.inner.total == 6


def test_map_arrays_with_identity_changes_nothing():
    problem = Problem(0.3 * L1(), SquaredL2().shifted(np.ones(4)), DCT(4), np.zeros(4))
    same = map_arrays(problem, lambda array: array)
    assert type(same) is Problem
    assert same.K is problem.K
    assert same.G.offset is problem.G.offset


@given(seeds, scales)
def test_tensors_equal_arrays_and_are_not_overwritten(seed, scale):
    x, other = normal(seed, 2, 5, scale=scale), normal(seed + 1, 2, 5)
    tensor = torch.tensor(x)
    for function in (times, plus, subtracted_from):
        expected = function(x.copy(), other)
        assert np.allclose(function(tensor, torch.tensor(other)), expected)
        given_away = x.copy()
        assert function(given_away, other) is given_away
    assert np.array_equal(tensor, x)
    assert np.allclose(norm(tensor), norm(x))
    assert np.allclose(norm(x)[..., 0], np.linalg.norm(x, axis=-1))


@pytest.mark.parametrize(
    ("x", "real", "tensor"),
    [
        (np.ones(2), True, False),
        (np.ones(2, np.float32), True, False),
        (np.ones(2, ">f8"), False, False),
        (np.ones(2, int), False, False),
        (torch.ones(2), True, True),
        (torch.ones(2, dtype=torch.float16), False, True),
    ],
)
def test_is_array_is_real_is_tensor(x, real, tensor):
    assert is_array(x)
    assert is_real(x) is real
    assert is_tensor(x) is tensor


def test_lists_and_numbers_are_not_arrays():
    assert not any(is_array(x) or is_real(x) for x in ([1.0], 1.0, np.float64(1), None))


def test_numbers_become_plain_floats():
    assert type(numbers(np.float64(2), "x")) is type(numbers(2, "x")) is float
    with pytest.raises(InputError, match="weight"):
        numbers("2", "weight")


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (3, 4), (1, 4)])
def test_require_fits_accepts_broadcastable_shapes(shape):
    array = np.ones(shape)
    assert require_fits(array, (3, 4), np.ones(4), "F") is array


@pytest.mark.parametrize(
    "array", [np.ones(3), np.ones((1, 3, 4)), np.ones(4, np.float32), torch.ones(4).double()]
)
def test_require_fits_refuses_other_shapes_and_types(array):
    with pytest.raises(InputError, match="F holds"):
        require_fits(array, (3, 4), np.ones(4), "F")


def test_all_true_on_meta_device():
    assert all_true(torch.ones(2, device="meta") > 5)
    assert not all_true(torch.ones(2) > 5)
    assert not all_true(np.array([True, False]))


def test_convert_copies_only_if_needed():
    x = np.ones(2)
    assert convert(x, x) is x
    assert convert(x, torch.ones(1)).dtype == torch.float32
    assert convert(torch.ones(2, requires_grad=True), x).dtype == np.float64


def test_solving_does_not_import_torch():
    code = """
import sys, numpy as np
from pdrn.convex import DCT, dequantization, solve
solve(dequantization(np.zeros(8), np.ones(8), DCT(8)), iterations=3).certificate
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dir_equals_all():
    import pdrn.convex

    assert dir(pdrn.convex) == sorted(pdrn.convex.__all__)
    assert Dense is pdrn.convex.Dense
