"""The problem, its dual and its certificates."""

import numpy as np
import pytest
import torch
from benchmarks.linear_program import optimum
from hypothesis import given
from tests.convex.laws import cells, normal, seeds

from pdrn.convex import (
    DCT,
    L1,
    L2,
    Ball,
    Box,
    ChambollePock,
    Dense,
    GaborFrame,
    GroupL21,
    Identity,
    LInf,
    Problem,
    RestartedHalpern,
    SquaredL2,
    Zero,
    dequantization,
    solve,
)


@given(seeds)
def test_certificate_encloses_the_optimum(seed):
    lower, upper = cells(seed, 12)
    problem = dequantization(lower, upper, DCT(12))
    best = optimum(lower, upper, DCT(12))
    certificate = problem.certificate(lower + 0.1, normal(seed + 1, 12))
    assert certificate.dual <= best + 1e-9 <= certificate.primal + 2e-9


@given(seeds)
def test_certificate_projects_infeasible_points(seed):
    lower, upper = cells(seed, 8)
    problem = dequantization(lower, upper, DCT(8))
    x, y = normal(seed + 1, 8, scale=9), normal(seed + 2, 8, scale=9)
    certificate = problem.certificate(x, y)
    inside = np.clip(x, lower, upper)
    assert certificate.primal == pytest.approx(np.abs(DCT(8).apply(inside)).sum())
    assert np.isfinite(certificate.dual)


def test_certificate_of_float32_is_float64():
    lower, upper = (a.astype(np.float32) for a in cells(0, 3, 64))
    solution = solve(dequantization(lower, upper, DCT(64)), iterations=50)
    assert solution.x.dtype == np.float32
    assert solution.certificate.primal.dtype == np.float64
    exact = np.abs(DCT(64).apply(solution.x.astype(np.float64))).sum(-1)
    assert np.array_equal(solution.certificate.primal, exact)


def test_bad_start_does_not_loosen_the_tolerance():
    """What is left must be small beside the value, however large the value was at the start."""
    noisy = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    K = Dense(np.diff(np.eye(64, dtype=np.float32), axis=0))
    problem = Problem(0.3 * L1(), SquaredL2().shifted(-noisy), K, 1e4 * np.ones(64, np.float32))
    solution = solve(problem, tolerance=1e-3, iterations=5000)
    assert bool(solution.converged)
    assert float(solution.certificate.relative_gap) <= 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm", [L1(), L2(), LInf(), 0.5 * L1()])
def test_certificate_is_finite_for_norms_as_G(norm, dtype):
    generator = np.random.default_rng(0)
    A = Dense(generator.standard_normal((20, 40)).astype(dtype))
    data = generator.standard_normal((3, 20)).astype(dtype)
    problem = Problem(SquaredL2().shifted(-data), norm, A, np.zeros((3, 40), dtype))
    gaps = [solve(problem, iterations=count).certificate for count in (10, 1000)]
    assert np.isfinite(gaps[0].gap).all()
    assert (gaps[1].relative_gap < 1e-2).all()
    exact = solve(problem, iterations=20_000).certificate.primal
    for certificate in gaps:
        assert (certificate.dual <= exact * (1 + 1e-6)).all()


@pytest.mark.parametrize("algorithm", [ChambollePock(), RestartedHalpern()])
def test_silence_converges(algorithm):
    touches_zero = normal(0, 3, 1024) < 0
    lower, upper = np.where(touches_zero, -0.125, 0.0), np.where(touches_zero, 0.0, 0.125)
    solution = solve(dequantization(lower, upper, DCT(1024)), algorithm, tolerance=1e-6)
    assert solution.converged.all()
    assert (solution.iterations <= 100).all()
    assert solution.certificate.primal == pytest.approx(0.0, abs=1e-6)


def test_relative_gap_bounds_nearly_silent_cells():
    lower, upper = np.full(64, -1.0), 1 + np.random.default_rng(0).random(64)
    lower[0] = 1e-5
    problem, best = dequantization(lower, upper, DCT(64)), optimum(lower, upper, DCT(64))
    assert best > 0
    for tolerance in (1e-1, 1e-2, 1e-4):
        solution = solve(problem, RestartedHalpern(), tolerance=tolerance, check_every=1)
        assert solution.converged
        assert 0 <= solution.certificate.primal / best - 1 + 1e-7 <= tolerance + 2e-7


def open_cells(kind):
    """Fine cells of two sines, of which some are clipped or missing."""
    t = np.arange(48)
    s = np.sin(0.4 * t) + 0.5 * np.sin(0.9 * t)
    lower, upper = np.floor(s * 8) / 8, np.floor(s * 8) / 8 + 0.125
    if kind == "clipped":
        return np.where(s > 0.9, 0.9, lower), np.where(s > 0.9, np.inf, upper)
    return np.where(abs(t - 20) < 4, -np.inf, lower), np.where(abs(t - 20) < 4, np.inf, upper)


DICTIONARIES = {
    "cosine transform": DCT(48),
    "scaled": 2 * DCT(48),
    "matrix": Dense(DCT(48).apply(np.eye(48)).T),
    "frame": GaborFrame(48, window_length=16, hop=4),
}


@pytest.mark.parametrize("K", DICTIONARIES.values(), ids=DICTIONARIES)
@pytest.mark.parametrize("kind", ["clipped", "gap"])
def test_unbounded_cells_reach_the_optimum(kind, K):
    lower, upper = open_cells(kind)
    assert np.isinf(lower).any() or np.isinf(upper).any()
    solution = solve(dequantization(lower, upper, K), RestartedHalpern(), tolerance=1e-6)
    assert solution.converged
    best = optimum(lower, upper, K)
    assert 0 <= solution.certificate.primal - best + 1e-8 <= solution.certificate.gap + 2e-8


@pytest.mark.parametrize("weight", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("kind", ["clipped", "gap"])
def test_certificate_of_unbounded_cells_at_every_stop(kind, weight):
    lower, upper = open_cells(kind)
    problem = dequantization(lower, upper, DCT(48), weight=weight)
    best = weight * optimum(lower, upper, DCT(48))
    for iterations in (1, 3, 10, 30, 100, 300):
        certificate = solve(problem, iterations=iterations).certificate
        assert -np.inf < certificate.dual <= best + 1e-8
        assert certificate.primal >= best - 1e-8


def test_coercivity_follows_weights_and_operator():
    lower, upper = open_cells("gap")
    assert dequantization(lower, upper, DCT(48), weight=0.25).coercivity == 4.0
    assert dequantization(lower, upper, 2 * DCT(48), weight=np.full(48, 0.25)).coercivity == 2.0
    assert dequantization(lower, upper, DCT(48), weight=0.0).coercivity is None


def test_steps_count_unbounded_cells():
    lower, upper = np.full(100, 0.3), np.full(100, 0.3 + 1e-5)
    upper[:10] = np.inf
    weight = dequantization(lower, upper, DCT(100)).weight
    assert 1 / weight == pytest.approx(0.03, rel=0.5)


def test_dual_value_without_coercivity_is_zero():
    lower, upper = np.array([-np.inf, 0.0]), np.array([np.inf, 1.0])
    problem = dequantization(lower, upper, Dense(np.array([[1.0, 2.0]])))
    assert problem.coercivity is None
    certificate = problem.certificate(np.array([0.0, 0.5]), np.array([0.5]))
    assert certificate.gap == certificate.primal == 1


def test_shifted_form_of_the_paper_has_the_same_iterates():
    step = 1 / 16
    q = step * (np.floor(np.sin(np.arange(64) / 3) / step) + 0.5)
    K = DCT(64)
    in_cells = dequantization(q - step / 2, q + step / 2, K)
    as_printed = Problem(L1().shifted(K.apply(q)), Ball(np.inf, step / 2), K, np.zeros(64))
    for iterations in (1, 2, 10, 50):
        algorithm = ChambollePock(sigma=10, tau=0.1)
        s = solve(in_cells, algorithm, iterations=iterations).x
        x = solve(as_printed, algorithm, iterations=iterations).x
        assert np.allclose(x + q, s, atol=1e-13)


def test_starts_at_the_centres():
    lower = np.array([0.0, -np.inf, 1.0, -np.inf])
    upper = np.array([0.5, 2.0, np.inf, np.inf])
    assert dequantization(lower, upper, DCT(4)).start.tolist() == [0.25, 2.0, 1.0, 0.0]


@pytest.mark.parametrize("step", [1e-4, 1 / 16, 0.7, 30.0])
def test_steps_follow_the_cell_width(step):
    lower, upper = cells(1, 5, 64, step=step)
    weight = dequantization(lower, upper, DCT(64)).weight
    assert isinstance(weight, float)
    assert step / 2 / 2**0.51 <= 1 / weight <= step / 2 * 2**0.51


def test_each_problem_has_its_own_steps():
    fine, coarse = cells(1, 64, step=0.01), cells(2, 64, step=1.0)
    lower, upper = (np.stack(pair) for pair in zip(fine, coarse, strict=True))
    together = dequantization(lower, upper, DCT(64))
    assert together.weight.shape == (2, 1)
    for row, alone in enumerate((fine, coarse)):
        for algorithm in (ChambollePock(), RestartedHalpern()):
            x = solve(dequantization(*alone, DCT(64)), algorithm, iterations=30).x
            assert np.allclose(solve(together, algorithm, iterations=30).x[row], x, atol=1e-12)


@pytest.mark.parametrize("G", [Zero(), 2.0 * Zero(), Zero().shifted(np.ones(8))], ids=str)
@pytest.mark.parametrize("algorithm", [ChambollePock(), ChambollePock(theta=0.5), RestartedHalpern()])
def test_unconstrained_least_squares(algorithm, G):
    target = np.arange(8.0)
    problem = Problem(SquaredL2().shifted(-DCT(8).apply(target)), G, DCT(8), np.zeros(8))
    assert solve(problem, algorithm, iterations=500).x == pytest.approx(target, abs=1e-6)


def test_float32_stays_float32_where_cells_differ_in_width():
    lower = np.zeros((2, 8), np.float32)
    problem = dequantization(lower, lower + np.array([[0.1], [1.0]], np.float32), DCT(8))
    assert problem.weight.dtype == np.float32
    for algorithm in (ChambollePock(), ChambollePock(np.float64(2), np.float64(0.5)), RestartedHalpern()):
        state = algorithm.init(problem, problem.start, np.zeros((2, 8), np.float32))
        state = algorithm.step(problem, algorithm.step(problem, state))
        assert state.x.dtype == state.y.dtype == np.float32


def test_steps_have_no_gradient():
    lower = torch.tensor([[-0.1, -0.1], [0.2, 0.7]], dtype=torch.float64, requires_grad=True)
    problem = dequantization(lower, lower + torch.tensor([[0.2], [0.5]], dtype=torch.float64), DCT(2))
    solve(problem, iterations=5).x.sum().backward()
    assert torch.isfinite(lower.grad).all()


def test_least_squares_in_a_ball():
    A = np.random.default_rng(3).standard_normal((20, 8))
    b = A @ np.full(8, 0.1) + 0.01 * normal(4, 20)
    problem = Problem(SquaredL2().shifted(-b), Ball(2, 10.0), Dense(A), np.zeros(8))
    solution = solve(problem, RestartedHalpern(), tolerance=1e-9)
    assert solution.x == pytest.approx(np.linalg.lstsq(A, b)[0], abs=1e-5)


def test_group_sparsity_of_a_gabor_frame():
    lower, upper = cells(5, 100)
    K = GaborFrame(100, window_length=16, hop=4)
    start = (lower + upper) / 2
    problem = Problem(GroupL21(2), Box(lower, upper), K, start, weight=8.0)
    solution = solve(problem, RestartedHalpern(), tolerance=1e-5)
    assert solution.converged
    assert solution.certificate.primal < problem.objective(start)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: dequantization(np.zeros(3), np.zeros(4), DCT(3)), r"\(4,\)"),
        (lambda: dequantization(np.zeros((0, 3)), np.zeros((0, 3)), DCT(3)), r"\(0, 3\)"),
        (lambda: dequantization(np.zeros(4), np.ones(4), DCT(3)), r"\(4,\)"),
        (lambda: dequantization(np.ones(3), np.zeros(3), DCT(3)), "lo <= hi"),
        (lambda: dequantization(np.array([np.nan]), np.ones(1), DCT(1)), "NaN"),
        (lambda: dequantization(np.zeros(3, int), np.ones(3, int), DCT(3)), "float64"),
        (lambda: dequantization([0.0], [1.0], DCT(1)), "float64"),
        (lambda: dequantization(np.zeros(3, ">f8"), np.ones(3, ">f8"), DCT(3)), "float64"),
        (lambda: dequantization(np.zeros(3, np.float32), np.ones(3), DCT(3)), "float64"),
        (lambda: dequantization(np.zeros(3), np.ones(3), DCT(3), weight=-1.0), "weight"),
        (lambda: dequantization(np.zeros(3), np.ones(3), DCT(3), weight=np.ones(4)), r"\(4,\)"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.full(3, np.nan)), "NaN"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.zeros((0, 3))), r"\(0, 3\)"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.zeros(3), weight=-1.0), "weight"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.zeros((4, 3)), weight=np.ones(3)), "weight"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.zeros((4, 3)), weight=np.ones((5, 1))), r"\(5, 1\)"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.zeros(3), weight=[1.0]), "weight"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.zeros(3), coercivity=-1.0), "coercivity"),
        (lambda: Problem(L1(), Zero(), np.eye(3), np.zeros(3)), "Dense"),
        (lambda: Problem(np.ones(3), Zero(), DCT(3), np.zeros(3)), "Functional"),
        (lambda: Problem(L1(), Zero(), DCT(3), np.zeros(3, np.float16)), "float64"),
        (lambda: Problem(L1(np.ones(3)), Zero(), DCT(3), np.zeros(3, np.float32)), "float64"),
        (lambda: Problem(L1(np.ones(3)), Zero(), DCT(3), torch.zeros(3).double()), "float64"),
        (lambda: Problem(L1(np.ones((2, 3))), Zero(), DCT(3), np.zeros(3)), r"\(2, 3\)"),
    ],
)
def test_refuses_invalid_arguments(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


def test_weight_may_be_a_0d_array():
    weighted = [Problem(L1(), Zero(), Identity(4), np.ones(4), weight=w) for w in (2.0, np.array(2.0))]
    one, other = (solve(problem, iterations=3).x for problem in weighted)
    np.testing.assert_array_equal(one, other)
