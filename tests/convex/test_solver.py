"""Solving: both algorithms, their certificates, and each problem of a batch on its own."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from benchmarks.linear_program import optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.convex.laws import OPERATORS, cells, seeds

import pdrn.convex.solvers as solver
from pdrn.convex import (
    DCT,
    Ball,
    ChambollePock,
    Dense,
    GaborFrame,
    Problem,
    RestartedHalpern,
    SquaredL2,
    Zero,
    dequantization,
    solve,
    step_sizes,
)
from pdrn.convex.solvers import steps_of_weight

ALGORITHMS = {
    "Chambolle-Pock": ChambollePock(),
    "other steps": ChambollePock(sigma=10, tau=0.1),
    "restarted Halpern": RestartedHalpern(),
}
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


@each_algorithm
@settings(max_examples=8)
@given(seeds)
def test_reaches_the_optimum_of_the_linear_program(algorithm, seed):
    lower, upper = cells(seed, 32)
    solution = solve(dequantization(lower, upper, DCT(32)), algorithm, tolerance=1e-7)
    best = optimum(lower, upper, DCT(32))
    assert solution.converged
    assert abs(solution.certificate.primal - best) <= 1e-6 * best + 1e-9
    assert (lower <= solution.x).all()
    assert (solution.x <= upper).all()


@each_algorithm
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_gap_bounds_the_true_distance_at_every_stop(algorithm, dtype):
    lower, upper = cells(3, 24)
    lower, upper = lower.astype(dtype), upper.astype(dtype)
    best = optimum(lower.astype(float), upper.astype(float), DCT(24))
    problem = dequantization(lower, upper, DCT(24))
    for iterations in (1, 2, 5, 10, 30, 100, 1000):
        certificate = solve(problem, algorithm, iterations=iterations).certificate
        assert certificate.dual <= best + 1e-9
        assert -1e-9 <= certificate.primal - best <= certificate.gap + 1e-9
    history = solve(problem, algorithm, iterations=200, check_every=7, keep_history=True).history
    assert (history.dual <= best + 1e-9).all()
    assert (history.primal >= best - 1e-9).all()


@each_algorithm
def test_a_frame_over_the_whole_signal_works_as_well(algorithm):
    lower, upper = cells(8, 150)
    K = GaborFrame(150, window_length=32, hop=8)
    solution = solve(dequantization(lower, upper, K), algorithm, tolerance=1e-4)
    assert solution.converged
    assert solution.certificate.relative_gap <= 1e-4


def test_restarts_need_several_times_fewer_iterations():
    lower, upper = cells(11, 6, 128)
    problem = dequantization(lower, upper, DCT(128))
    plain = solve(problem, ChambollePock(), tolerance=1e-6)
    restarted = solve(problem, RestartedHalpern(), tolerance=1e-6)
    assert plain.converged.all()
    assert restarted.converged.all()
    # At n = 1024 the benchmark shows a factor of more than 5; small problems are easier for both.
    assert plain.iterations.mean() > 3 * restarted.iterations.mean()


def test_iterates_are_those_of_the_printed_algorithm():
    lower, upper = cells(4, 3, 40)
    K, sigma, tau = DCT(40), 4.0, 0.2
    for theta in (0.0, 0.5, 1.0):
        x = x_bar = (lower + upper) / 2
        y = np.zeros_like(x)
        for k in range(1, 8):
            y = np.clip(y + sigma * K.apply(x_bar), -1, 1)
            new = np.clip(x - tau * K.adjoint(y), lower, upper)
            x_bar, x = new + theta * (new - x), new
            solution = solve(dequantization(lower, upper, K), ChambollePock(sigma, tau, theta), iterations=k)
            assert np.allclose(solution.x, x, atol=1e-13)
            assert np.allclose(solution.y, y, atol=1e-13)


@each_algorithm
def test_stepping_by_hand_is_solving(algorithm):
    lower, upper = cells(4, 3, 40)
    problem = dequantization(lower, upper, DCT(40))
    state = algorithm.init(problem, problem.start, np.zeros((3, 40)))
    states = [state := algorithm.step(problem, state) for _ in range(12)]
    for k, kept in enumerate(states, start=1):
        assert np.array_equal(kept.x, solve(problem, algorithm, iterations=k).x)


@each_algorithm
def test_problems_stop_one_by_one_and_as_they_would_alone(algorithm):
    lower, upper = cells(2, 5, 64)
    together = solve(dequantization(lower, upper, DCT(64)), algorithm, tolerance=1e-3, check_every=5)
    assert len(set(together.iterations.tolist())) > 1
    for row in range(5):
        problem = dequantization(lower[row], upper[row], DCT(64))
        alone = solve(problem, algorithm, tolerance=1e-3, check_every=5)
        assert alone.iterations == together.iterations[row]
        assert np.allclose(alone.x, together.x[row], atol=1e-12)


@each_algorithm
def test_blocks_do_not_show(algorithm, monkeypatch):
    lower, upper = cells(6, 2, 7, 64)
    problem = dequantization(lower, upper, DCT(64))
    options = {"tolerance": 1e-3, "keep_history": True, "check_every": 10}
    whole = solve(problem, algorithm, **options)
    monkeypatch.setattr(solver, "BLOCK_BYTES", 3 * 64 * 8)
    blocks = solve(problem, algorithm, **options)
    assert whole.x.shape == (2, 7, 64)
    assert np.allclose(whole.x, blocks.x, atol=1e-13)
    assert np.array_equal(whole.iterations, blocks.iterations)
    assert np.allclose(whole.history.primal, blocks.history.primal)
    assert np.array_equal(whole.history.iterations, blocks.history.iterations)


@each_algorithm
def test_a_warm_start_saves_iterations(algorithm):
    lower, upper = cells(9, 64)
    problem = dequantization(lower, upper, DCT(64))
    cold = solve(problem, algorithm, tolerance=1e-4, check_every=1)
    warm = solve(problem, algorithm, tolerance=1e-4, check_every=1, x0=cold.x, y0=cold.y)
    only_x = solve(problem, algorithm, tolerance=1e-4, check_every=1, x0=cold.x)
    assert warm.iterations < cold.iterations / 5
    assert warm.iterations < only_x.iterations


def test_with_a_tolerance_the_best_of_all_checks_is_returned():
    lower, upper = cells(9, 4, 64)
    problem = dequantization(lower, upper, DCT(64))
    seen = []
    solution = solve(
        problem, ChambollePock(10, 0.1), tolerance=1e-9, iterations=60, check_every=1, callback=seen.append
    )
    primal = np.array([check.certificate.primal for check in seen])
    dual = np.array([check.certificate.dual for check in seen])
    assert (primal.argmin(0) < len(seen) - 1).any()
    assert np.array_equal(solution.certificate.primal, primal.min(0))
    assert np.array_equal(solution.certificate.dual, dual.max(0))


@pytest.mark.filterwarnings("ignore:sigma tau", "ignore:overflow", "ignore:invalid")
def test_a_run_that_diverges_returns_the_best_it_saw():
    problem = Problem(
        SquaredL2().shifted(-np.ones(2)), Zero(), Dense(np.diag([3.0, 1.0])), np.array([0.3, 1.1])
    )
    seen = []
    solution = solve(
        problem, ChambollePock(10, 10), tolerance=1e-6, iterations=4000, check_every=1, callback=seen.append
    )
    assert np.isnan(seen[-1].x).any()
    assert np.isfinite(solution.x).all()
    assert solution.certificate.primal == min(c.certificate.primal for c in seen if np.isfinite(c.x).all())


@pytest.mark.parametrize("off_by", [1e-3, 1e3])
def test_restarts_find_the_ratio_of_the_steps(off_by):
    lower, upper = cells(11, 4, 64)
    problem = dequantization(lower, upper, DCT(64))
    wrong = dataclasses.replace(problem, weight=problem.weight * off_by)
    right = solve(problem, RestartedHalpern(), tolerance=1e-6).iterations.mean()
    found = solve(wrong, RestartedHalpern(), tolerance=1e-6).iterations.mean()
    fixed = solve(wrong, ChambollePock(), tolerance=1e-6, iterations=20 * int(right)).iterations.mean()
    assert found < 3 * right
    assert fixed > 5 * found


@each_algorithm
def test_inputs_are_left_as_they_were(algorithm):
    lower, upper = cells(9, 2, 64)
    problem = dequantization(lower, upper, DCT(64))
    x0, y0 = problem.start + 0.01, np.full((2, 64), 0.5)
    arrays = (lower, upper, problem.start, x0, y0)
    before = [a.copy() for a in arrays]
    solve(problem, algorithm, iterations=9)
    solve(problem, algorithm, iterations=9, x0=x0, y0=y0)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


def test_callbacks_see_every_check_of_every_problem():
    lower, upper = cells(6, 4, 16)
    problem = dequantization(lower, upper, DCT(16))
    seen = []
    solution = solve(problem, iterations=25, check_every=10, callback=seen.append)
    assert [check.iteration for check in seen] == [10, 20, 25]
    assert seen[0].rows.tolist() == [0, 1, 2, 3]
    assert np.array_equal(seen[-1].x, solution.x)
    assert np.array_equal(seen[0].x, solve(problem, iterations=10).x)


def test_history_holds_the_last_certificate_of_problems_that_stopped():
    lower, upper = cells(2, 5, 64)
    solution = solve(dequantization(lower, upper, DCT(64)), tolerance=1e-2, keep_history=True, check_every=5)
    last = solution.history.primal[-1] - solution.history.dual[-1]
    assert np.allclose(last, solution.certificate.gap)
    assert (solution.history.primal.shape) == (len(solution.history.iterations), 5)


def test_a_problem_without_a_finite_value_still_returns_its_iterates():
    far_away = Ball(2, 0.1).shifted(np.full(8, 5.0))
    problem = Problem(far_away, Ball(2, 1.0), DCT(8), np.full(8, 0.2))
    with_tolerance = solve(problem, tolerance=1e-6, iterations=40)
    assert not with_tolerance.converged
    assert np.linalg.norm(with_tolerance.x) <= 1 + 1e-9
    assert np.isfinite(with_tolerance.y).all()


def test_what_does_not_converge_in_time_says_so():
    lower, upper = cells(2, 5, 64)
    solution = solve(dequantization(lower, upper, DCT(64)), tolerance=1e-9, iterations=15)
    assert not solution.converged.any()
    assert (solution.iterations == 15).all()
    assert (solution.certificate.relative_gap > 1e-9).all()


@pytest.mark.parametrize("K", OPERATORS.values(), ids=OPERATORS)
@given(st.floats(1e-6, 1e6))
def test_default_steps_satisfy_the_condition_of_convergence(K, ratio):
    sigma, tau = step_sizes(K, ratio)
    assert sigma * tau * K.norm**2 <= 1
    assert sigma * tau * K.norm**2 > 1 - 1e-6
    assert sigma / tau == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("weight", [np.nan, np.inf, 1e-45])
@pytest.mark.filterwarnings("ignore:divide", "ignore:invalid", "ignore:overflow")
def test_a_weight_that_ran_out_of_range_does_not_hang_the_steps(weight):
    sigma, tau = steps_of_weight(DCT(4), np.array([[weight]], np.float32))
    assert sigma.shape == tau.shape == (1, 1)


def test_steps_that_may_diverge_are_warned_of_and_others_are_not():
    lower, upper = cells(2, 8)
    problem = dequantization(lower, upper, Dense(2 * np.eye(8)))
    with pytest.warns(UserWarning, match="sigma"):
        solve(problem, ChambollePock(sigma=10, tau=0.1), iterations=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(problem, ChambollePock(sigma=10), iterations=2)
        solve(problem, ChambollePock(tau=0.1), iterations=2)
        solve(problem, ChambollePock(sigma=2.5, tau=0.1), iterations=2)


@each_algorithm
def test_tensors_give_what_arrays_give(algorithm):
    lower, upper = cells(6, 4, 32)
    tensors = torch.tensor(lower), torch.tensor(upper)
    options = {"tolerance": 1e-3, "check_every": 10}
    arrays = solve(dequantization(lower, upper, DCT(32)), algorithm, **options)
    solution = solve(dequantization(*tensors, DCT(32)), algorithm, **options)
    assert isinstance(solution.x, torch.Tensor)
    assert np.array_equal(arrays.iterations, solution.iterations)
    assert np.allclose(arrays.x, solution.x, atol=1e-10)
    assert np.allclose(arrays.certificate.gap, solution.certificate.gap, atol=1e-9)


def test_gradients_flow_through_the_unrolled_solver():
    lower, upper = (torch.tensor(a) for a in cells(6, 10))
    weight = torch.linspace(0.5, 2.0, 10, dtype=torch.float64, requires_grad=True)

    def restored(weight):
        problem = dequantization(lower, upper, DCT(10), weight=weight)
        return solve(problem, ChambollePock(sigma=2, tau=0.5), iterations=4).x

    assert torch.autograd.gradcheck(restored, weight)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda p: solve(p), "iterations"),
        (lambda p: solve(p, iterations=0), "iterations"),
        (lambda p: solve(p, iterations=2.5), "iterations"),
        (lambda p: solve(p, iterations=True), "iterations"),
        (lambda p: solve(p, tolerance=-1.0), "tolerance"),
        (lambda p: solve(p, tolerance=float("nan")), "tolerance"),
        (lambda p: solve(p, iterations=1, check_every=0), "check_every"),
        (lambda p: solve(p, iterations=1, x0=np.zeros(3)), "x0"),
        (lambda p: solve(p, iterations=1, x0=np.full((2, 8), np.nan)), "x0"),
        (lambda p: solve(p, iterations=1, y0=np.zeros((2, 8), np.float32)), "y0"),
        (lambda p: ChambollePock(sigma=-1.0), "sigma"),
        (lambda p: ChambollePock(tau=float("nan")), "tau"),
        (lambda p: ChambollePock(sigma=np.ones((2, 1))), "sigma"),
        (lambda p: ChambollePock(theta=1.5), "theta"),
        (lambda p: RestartedHalpern(period=0), "period"),
        (lambda p: step_sizes(DCT(4), ratio=0.0), "ratio"),
    ],
)
def test_nonsense_is_refused_before_any_work(call, reason):
    lower, upper = cells(2, 2, 8)
    with pytest.raises(ValueError, match=reason):
        call(dequantization(lower, upper, DCT(8)))


def test_numbers_of_iterations_may_be_numpys():
    lower = np.zeros((2, 8))
    problem = dequantization(lower, lower + 1, DCT(8))
    one = solve(problem, iterations=np.int64(5), check_every=np.int32(2), keep_history=True)
    np.testing.assert_array_equal(one.x, solve(problem, iterations=5).x)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_restarts_do_not_depend_on_how_loud_a_signal_is(scale):
    lower = (scale * np.floor(16 * np.sin(np.arange(64) / 5)) / 16).astype(np.float32)
    upper = (lower + np.float32(scale / 16)).astype(np.float32)
    solution = solve(
        dequantization(lower, upper, DCT(64)), RestartedHalpern(), tolerance=1e-4, iterations=5000
    )
    assert bool(solution.converged)
    assert float(solution.certificate.relative_gap) <= 1e-4
