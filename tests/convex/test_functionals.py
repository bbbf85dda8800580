"""Laws of the functionals: each holds for every functional, any vector and any step."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from tests.convex.laws import FUNCTIONALS, SEPARABLE, SIZE, normal, scales, seeds, steps

from pdrn.convex import L1, L2, Ball, Box, GroupL21, LInf, SquaredL2
from pdrn.convex.backend import map_arrays
from pdrn.errors import InputError

each_functional = pytest.mark.parametrize("F", FUNCTIONALS.values(), ids=FUNCTIONALS)
each_separable = pytest.mark.parametrize("name", SEPARABLE)


def close(a, b, scale=1.0):
    return np.allclose(a, b, rtol=1e-9, atol=1e-9 * scale)


def as_tensors(F):
    return map_arrays(F, torch.tensor)


@each_functional
@given(seeds, scales, steps)
def test_prox_is_optimal(F, seed, scale, step):
    v, z = normal(seed, SIZE, scale=scale), normal(seed + 1, 40, SIZE, scale=scale)
    p = F.prox(v, step)
    z = F.project(np.concatenate([z, p + 1e-3 * scale * normal(seed + 2, 40, SIZE)]))
    # p minimises step F(z) + |z - v|^2 / 2 exactly if v - p is a subgradient of step F at p.
    slack = step * (F.value(z) - F.value(p)) - (z - p) @ (v - p)
    assert (slack >= -1e-9 * (1 + step) * (1 + scale) ** 2).all()


@each_functional
@given(seeds, scales, steps)
def test_moreau_identity(F, seed, scale, step):
    v = normal(seed, SIZE, scale=scale)
    assert close(F.prox(v, step) + step * F.prox_conjugate(v / step, 1 / step), v, scale)
    assert close(F.prox(v, step) + F.residual(v, step), v, scale)


@each_functional
@given(seeds, scales, steps)
def test_fenchel_young_is_tight_at_the_prox(F, seed, scale, step):
    v = normal(seed, SIZE, scale=scale)
    p = F.prox(v, step)
    y = (v - p) / step
    total = F.value(p) + F.conjugate(F.project_dual(y))
    assert close(total, p @ y, (1 + scale) ** 2 * (1 + 1 / step))
    z, w = normal(seed + 1, 50, SIZE, scale=scale), normal(seed + 2, 50, SIZE, scale=scale)
    z, w = F.project(z), F.project_dual(w)
    products = (z * w).sum(-1)
    assert (F.value(z) + F.conjugate(w) >= products - 1e-9 * (1 + abs(products))).all()


@each_functional
@given(seeds, scales, steps)
def test_prox_is_firmly_non_expansive(F, seed, scale, step):
    v, w = normal(seed, SIZE, scale=scale), normal(seed + 1, SIZE, scale=scale)
    moved = F.prox(v, step) - F.prox(w, step)
    assert moved @ moved <= moved @ (v - w) + 1e-9 * scale**2


@each_functional
@given(seeds, scales)
def test_projections_are_idempotent_and_feasible(F, seed, scale):
    x = normal(seed, SIZE, scale=scale)
    inside, dual = F.project(x), F.project_dual(x)
    assert np.isfinite(F.value(inside))
    assert np.isfinite(F.conjugate(dual))
    assert close(F.project(inside), inside, scale)
    assert close(F.project_dual(dual), dual, scale)


@each_functional
@given(seeds, steps)
def test_batch_equals_rows(F, seed, step):
    v = normal(seed, 2, 3, SIZE)
    per_row = step * np.array([[[1.0], [2.0], [0.5]]]) * np.ones((2, 1, 1))
    whole = F.prox(v, per_row)
    for i in np.ndindex(2, 3):
        assert np.allclose(whole[i], F.prox(v[i], float(per_row[i][0])), rtol=1e-12, atol=1e-12)
        assert np.allclose(F.value(v)[i], F.value(v[i]))


@each_separable
@given(seeds)
def test_separable_functionals_take_a_step_per_coordinate(name, seed):
    F, v = FUNCTIONALS[name], normal(seed, SIZE)
    step = np.array([0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
    together = F.prox(v, step)
    for i in range(SIZE):
        assert together[i] == pytest.approx(F.prox(v, float(step[i]))[i], abs=1e-12)


@pytest.mark.parametrize("F", [L2(), LInf(), GroupL21(2)])
def test_other_functionals_refuse_a_step_per_coordinate(F):
    with pytest.raises(ValueError, match="step"):
        F.prox(np.ones(SIZE), np.ones(SIZE))


@each_functional
@given(seeds, steps)
def test_tensors_equal_arrays(F, seed, step):
    v, T = normal(seed, 4, SIZE), as_tensors(F)
    t = torch.tensor(v)
    assert np.allclose(T.prox(t, step), F.prox(v, step), atol=1e-12)
    assert np.allclose(T.prox_conjugate(t, step), F.prox_conjugate(v, step), atol=1e-12)
    assert np.array_equal(np.isfinite(F.value(v)), np.isfinite(T.value(t).numpy()))
    inside = F.project(v)
    assert np.allclose(T.value(torch.tensor(inside)), F.value(inside))
    dual = F.project_dual(v)
    assert np.allclose(T.conjugate(torch.tensor(dual)), F.conjugate(dual))


@each_functional
def test_gradients_flow_through_the_prox(F):
    v = torch.tensor(normal(3, 2, SIZE) + 0.01, requires_grad=True)
    step = torch.tensor(0.37, dtype=torch.float64, requires_grad=True)
    T = as_tensors(F)
    assert torch.autograd.gradcheck(T.prox, (v, step))
    assert torch.autograd.gradcheck(T.prox_conjugate, (v, step))
    assert torch.autograd.gradcheck(T.residual, (v, step))


@each_functional
def test_float32_stays_float32(F):
    single = map_arrays(F, lambda a: a.astype(np.float32))
    v = normal(1, SIZE).astype(np.float32)
    for result in (single.prox(v, 0.5), single.residual(v, 0.5), single.prox_conjugate(v, 0.5)):
        assert result.dtype == np.float32


@each_functional
def test_public_methods_copy_and_equal_hooks(F):
    v = normal(5, SIZE)
    before = v.copy()
    for public, hook in ((F.prox, F._prox), (F.residual, F._residual), (F.prox_conjugate, F._prox_conjugate)):
        result = public(v, 0.5)
        assert np.array_equal(v, before)
        assert not np.shares_memory(result, v)
        assert np.array_equal(hook(v.copy(), 0.5), result)


@pytest.mark.parametrize(
    ("F", "v", "step", "expected"),
    [
        (L1(), [3.0, -0.5, -2.0], 1.0, [2.0, 0.0, -1.0]),
        (L1(np.array([1.0, 0.0, 4.0])), [3.0, -0.5, -2.0], 1.0, [2.0, -0.5, 0.0]),
        (L2(), [3.0, 0.0, 4.0], 1.0, [2.4, 0.0, 3.2]),
        (SquaredL2(), [3.0, 0.0, 4.0], 1.0, [1.5, 0.0, 2.0]),
        (LInf(), [3.0, 1.0, -2.0], 1.0, [2.0, 1.0, -2.0]),
        (GroupL21(3), [3.0, 0.0, 4.0], 5.0, [0.0, 0.0, 0.0]),
        (Ball(1, 2.0), [3.0, -1.0, 0.0], 1.0, [2.0, 0.0, 0.0]),
        (Ball(math.inf, 1.0), [3.0, -1.5, 0.2], 1.0, [1.0, -1.0, 0.2]),
        (Box(np.array([0.0, -np.inf, 1.0]), np.array([1.0, 0.0, np.inf])), [3.0, -9.0, 0.2], 1.0, [1, -9, 1]),
    ],
)
def test_prox_by_hand(F, v, step, expected):
    assert F.prox(np.array(v), step) == pytest.approx(np.array(expected, float))


def test_box_conjugate_with_infinite_bounds():
    box = Box(np.array([-1.0, -np.inf, -np.inf]), np.array([2.0, 5.0, np.inf]))
    assert box.conjugate(np.array([3.0, 2.0, 0.0])) == 16.0
    assert box.conjugate(np.array([-3.0, 0.0, 0.0])) == 3.0
    assert box.conjugate(np.array([0.0, -1.0, 0.0])) == np.inf


def test_box_takes_numbers_and_arrays():
    v = np.array([-1.0, 2.0, 3.0])
    assert Box(np.zeros(3), math.inf).prox(v, 1.0).tolist() == [0.0, 2.0, 3.0]
    assert Box(-0.5, np.ones(3)).prox(v, 1.0).tolist() == [-0.5, 1.0, 1.0]
    assert Box(-0.7, 0.7).conjugate(v) == pytest.approx(4.2)
    assert Box(-0.7, 0.7).conjugate(torch.tensor(v)).item() == pytest.approx(4.2, abs=1e-15)


def test_array_times_functional_scales_each_vector():
    F = np.array([[1.0], [2.0]]) * L1()
    assert F.value(np.ones((2, 3))).tolist() == [3.0, 6.0]


def test_numpy_scalars_keep_float32():
    v = np.ones(3, np.float32)
    for F in (
        L1(np.float64(0.5)),
        np.float64(0.5) * L1(),
        Ball(2, np.float64(0.5)),
        Box(np.float64(0), np.float64(2)),
    ):
        assert F.prox(v, np.float64(1)).dtype == np.float32


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf, np.array([[1.0], [-1.0]])])
@each_functional
def test_refuses_invalid_steps(F, step):
    for operation in (F.prox, F.residual, F.prox_conjugate):
        with pytest.raises(ValueError, match="step"):
            operation(np.ones((2, SIZE)), step)


@pytest.mark.parametrize(
    "v",
    [[1.0] * SIZE, np.float64(1), np.ones(SIZE, int), np.ones(SIZE - 1), np.ones(SIZE, np.float32)],
    ids=["list", "number", "integers", "short", "float32"],
)
def test_refuses_vectors_that_do_not_fit(v):
    F = FUNCTIONALS["weighted l1"]
    for operation in (F.prox, F.residual, F.prox_conjugate):
        with pytest.raises(InputError):
            operation(v, 1.0)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: L1(-1.0), "weight"),
        (lambda: L1(np.array([1.0, np.nan])), "weight"),
        (lambda: L1([1.0]), "weight"),
        (lambda: Ball(2, 0.0), "radius"),
        (lambda: Ball(2, np.nan), "radius"),
        (lambda: Ball(3, 1.0), r"\b3\b"),
        (lambda: Ball(2, np.ones(3)), "radius"),
        (lambda: Box(np.array([1.0]), np.array([0.0])), "lo <= hi"),
        (lambda: Box(np.array([np.nan]), np.array([0.0])), "NaN"),
        (lambda: Box(np.array([np.inf]), np.array([np.inf])), "inf"),
        (lambda: Box([0.0], [1.0]), "lo must"),
        (lambda: Box(np.zeros(3, int), np.ones(3, int)), "int64"),
        (lambda: 0 * L1(), "scale"),
        (lambda: -1.0 * L1(), "scale"),
        (lambda: L1().shifted(np.array([np.inf])), "offset"),
        (lambda: L1().shifted([1.0]), "offset"),
        (lambda: GroupL21(0), "size"),
        (lambda: GroupL21(4).value(np.ones(6)), r"\b4\b"),
    ],
)
def test_refuses_invalid_parameters(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


@pytest.mark.parametrize(
    ("count", "dtype"), [(1000, np.float64), (100_000, np.float32), (1_000_000, np.float64)]
)
def test_projection_onto_large_l1_ball_is_feasible(count, dtype):
    x = np.random.default_rng(0).normal(5, 1, count).astype(dtype)
    ball = Ball(1, 3.0)
    assert float(ball.value(ball.project(x))) == 0
    assert np.isfinite(LInf().conjugate(LInf().project_dual(x)))
