"""Laws of the solvers: both algorithms, their certificates, and each problem of a batch on its own."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from benchmarks.linear_program import optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.convex.laws import OPERATORS, cells, normal, seeds

from pdrn.convex import (
    DCT,
    L1,
    Ball,
    ChambollePock,
    Dense,
    Functional,
    GaborFrame,
    Identity,
    Operator,
    Problem,
    RestartedHalpern,
    SquaredL2,
    Zero,
    dequantization,
    reweighted,
    solve,
    solvers,
    step_sizes,
)
from pdrn.convex.solvers import steps_of_weight
from pdrn.errors import InputError
from pdrn.nets import unroll

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
def test_gap_bounds_the_distance_at_every_stop(algorithm, dtype):
    lower, upper = cells(3, 24)
    lower, upper = lower.astype(dtype), upper.astype(dtype)
    best = optimum(lower.astype(float), upper.astype(float), DCT(24))
    problem = dequantization(lower, upper, DCT(24))
    for iterations in (1, 2, 5, 10, 30, 100, 1000):
        certificate = solve(problem, algorithm, iterations=iterations).certificate
        assert certificate.dual <= best + 1e-9
        assert -1e-9 <= certificate.primal - best <= certificate.gap + 1e-9
    checks = []
    solve(problem, algorithm, iterations=200, check_every=7, callback=checks.append)
    assert len(checks) == 29
    for check in checks:
        assert check.certificate.dual <= best + 1e-9
        assert check.certificate.primal >= best - 1e-9


@each_algorithm
def test_gabor_frame_over_the_whole_signal(algorithm):
    lower, upper = cells(8, 150)
    K = GaborFrame(150, window_length=32, hop=8)
    solution = solve(dequantization(lower, upper, K), algorithm, tolerance=1e-4)
    assert solution.converged
    assert solution.certificate.relative_gap <= 1e-4


def test_restarts_need_fewer_iterations():
    lower, upper = cells(11, 6, 128)
    problem = dequantization(lower, upper, DCT(128))
    plain = solve(problem, ChambollePock(), tolerance=1e-6)
    restarted = solve(problem, RestartedHalpern(), tolerance=1e-6)
    assert plain.converged.all()
    assert restarted.converged.all()
    # At n = 1024 the benchmark shows a factor of more than 5; small problems are easier for both.
    assert plain.iterations.mean() > 3 * restarted.iterations.mean()


def test_iterates_equal_the_printed_algorithm():
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
def test_steps_equal_solve(algorithm):
    lower, upper = cells(4, 3, 40)
    problem = dequantization(lower, upper, DCT(40))
    state = algorithm.init(problem, problem.start, np.zeros((3, 40)))
    states = [state := algorithm.step(problem, state) for _ in range(12)]
    for k, kept in enumerate(states, start=1):
        assert np.array_equal(kept.x, solve(problem, algorithm, iterations=k).x)


@each_algorithm
def test_problems_stop_independently(algorithm):
    lower, upper = cells(2, 5, 64)
    together = solve(dequantization(lower, upper, DCT(64)), algorithm, tolerance=1e-3, check_every=5)
    assert len(set(together.iterations.tolist())) > 1
    for row in range(5):
        problem = dequantization(lower[row], upper[row], DCT(64))
        alone = solve(problem, algorithm, tolerance=1e-3, check_every=5)
        assert alone.iterations == together.iterations[row]
        assert np.allclose(alone.x, together.x[row], atol=1e-12)


@each_algorithm
def test_blocks_equal_whole_batch(algorithm, monkeypatch):
    lower, upper = cells(6, 2, 7, 64)
    problem = dequantization(lower, upper, DCT(64))
    options = {"tolerance": 1e-3, "check_every": 10}
    whole = solve(problem, algorithm, **options)
    monkeypatch.setattr(solvers, "BLOCK_BYTES", 3 * 64 * 8)
    blocks = solve(problem, algorithm, **options)
    assert whole.x.shape == (2, 7, 64)
    assert np.allclose(whole.x, blocks.x, atol=1e-13)
    assert np.array_equal(whole.iterations, blocks.iterations)


@each_algorithm
def test_warm_start_saves_iterations(algorithm):
    lower, upper = cells(9, 64)
    problem = dequantization(lower, upper, DCT(64))
    cold = solve(problem, algorithm, tolerance=1e-4, check_every=1)
    warm = solve(problem, algorithm, tolerance=1e-4, check_every=1, x0=cold.x, y0=cold.y)
    only_x = solve(problem, algorithm, tolerance=1e-4, check_every=1, x0=cold.x)
    assert warm.iterations < cold.iterations / 5
    assert warm.iterations < only_x.iterations


def test_tolerance_returns_the_best_check():
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
def test_divergence_returns_the_best_check():
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
def test_restarts_adapt_the_step_ratio(off_by):
    lower, upper = cells(11, 4, 64)
    problem = dequantization(lower, upper, DCT(64))
    wrong = dataclasses.replace(problem, weight=problem.weight * off_by)
    right = solve(problem, RestartedHalpern(), tolerance=1e-6).iterations.mean()
    found = solve(wrong, RestartedHalpern(), tolerance=1e-6).iterations.mean()
    fixed = solve(wrong, ChambollePock(), tolerance=1e-6, iterations=20 * int(right)).iterations.mean()
    assert found < 3 * right
    assert fixed > 5 * found


@each_algorithm
def test_inputs_are_not_changed(algorithm):
    lower, upper = cells(9, 2, 64)
    problem = dequantization(lower, upper, DCT(64))
    x0, y0 = problem.start + 0.01, np.full((2, 64), 0.5)
    arrays = (lower, upper, problem.start, x0, y0)
    before = [a.copy() for a in arrays]
    solve(problem, algorithm, iterations=9)
    solve(problem, algorithm, iterations=9, x0=x0, y0=y0)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


def test_callback_gets_every_check():
    lower, upper = cells(6, 4, 16)
    problem = dequantization(lower, upper, DCT(16))
    seen = []
    solution = solve(problem, iterations=25, check_every=10, callback=seen.append)
    assert [check.iteration for check in seen] == [10, 20, 25]
    assert seen[0].rows.tolist() == [0, 1, 2, 3]
    assert np.array_equal(seen[-1].x, solution.x)
    assert np.array_equal(seen[0].x, solve(problem, iterations=10).x)


def test_infeasible_problem_returns_finite_iterates():
    far_away = Ball(2, 0.1).shifted(np.full(8, 5.0))
    problem = Problem(far_away, Ball(2, 1.0), DCT(8), np.full(8, 0.2))
    with_tolerance = solve(problem, tolerance=1e-6, iterations=40)
    assert not with_tolerance.converged
    assert np.linalg.norm(with_tolerance.x) <= 1 + 1e-9
    assert np.isfinite(with_tolerance.y).all()


def test_converged_is_false_at_the_limit():
    lower, upper = cells(2, 5, 64)
    solution = solve(dequantization(lower, upper, DCT(64)), tolerance=1e-9, iterations=15)
    assert not solution.converged.any()
    assert (solution.iterations == 15).all()
    assert (solution.certificate.relative_gap > 1e-9).all()


@pytest.mark.parametrize("K", OPERATORS.values(), ids=OPERATORS)
@given(st.floats(1e-6, 1e6))
def test_default_steps_satisfy_convergence_condition(K, ratio):
    sigma, tau = step_sizes(K, ratio)
    assert sigma * tau * K.norm**2 <= 1
    assert sigma * tau * K.norm**2 > 1 - 1e-6
    assert sigma / tau == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("weight", [np.nan, np.inf, 1e-45])
@pytest.mark.filterwarnings("ignore:divide", "ignore:invalid", "ignore:overflow")
def test_overflowing_weight_terminates(weight):
    sigma, tau = steps_of_weight(DCT(4), np.array([[weight]], np.float32))
    assert sigma.shape == tau.shape == (1, 1)


def test_warns_of_steps_that_may_diverge():
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
def test_tensors_equal_arrays(algorithm):
    lower, upper = cells(6, 4, 32)
    tensors = torch.tensor(lower), torch.tensor(upper)
    options = {"tolerance": 1e-3, "check_every": 10}
    arrays = solve(dequantization(lower, upper, DCT(32)), algorithm, **options)
    solution = solve(dequantization(*tensors, DCT(32)), algorithm, **options)
    assert isinstance(solution.x, torch.Tensor)
    assert np.array_equal(arrays.iterations, solution.iterations)
    assert np.allclose(arrays.x, solution.x, atol=1e-10)
    assert np.allclose(arrays.certificate.gap, solution.certificate.gap, atol=1e-9)


def test_gradients_through_the_unrolled_solver():
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
        (lambda p: reweighted(p.G.lo, p.G.hi, p.K, 0.1, rounds=0), "round"),
        (lambda p: reweighted(p.G.lo, p.G.hi, p.K, 0.1, group=5), r"\b5\b"),
        (lambda p: reweighted(p.G.lo, p.G.hi, p.K, 0.0), "faint"),
        (lambda p: reweighted(p.G.lo, p.G.hi, p.K, 0.1, move=-1.0), "move"),
    ],
)
def test_refuses_invalid_arguments(call, reason):
    lower, upper = cells(2, 2, 8)
    with pytest.raises(ValueError, match=reason):
        call(dequantization(lower, upper, DCT(8)))


def test_iterations_may_be_numpy_integers():
    lower = np.zeros((2, 8))
    problem = dequantization(lower, lower + 1, DCT(8))
    one = solve(problem, iterations=np.int64(5), check_every=np.int32(2), callback=lambda check: None)
    np.testing.assert_array_equal(one.x, solve(problem, iterations=5).x)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_restarts_are_scale_invariant(scale):
    lower = (scale * np.floor(16 * np.sin(np.arange(64) / 5)) / 16).astype(np.float32)
    upper = (lower + np.float32(scale / 16)).astype(np.float32)
    solution = solve(
        dequantization(lower, upper, DCT(64)), RestartedHalpern(), tolerance=1e-4, iterations=5000
    )
    assert bool(solution.converged)
    assert float(solution.certificate.relative_gap) <= 1e-4


def sparse_with_gaps(seed, length=256, coefficients=35):
    """Cells that are points or, for six samples in ten, unbounded: too few for l1 to find the signal."""
    generator = np.random.default_rng(seed)
    spectrum = np.zeros(length)
    spectrum[generator.choice(length, coefficients, replace=False)] = generator.normal(size=coefficients)
    signal = DCT(length).adjoint(spectrum)
    missing = generator.random(length) < 0.6
    return signal, np.where(missing, -np.inf, signal), np.where(missing, np.inf, signal)


def test_reweighting_beats_one_problem():
    errors = []
    for signal, lower, upper in map(sparse_with_gaps, range(5)):
        found = [
            reweighted(lower, upper, DCT(256), faint=0.1, rounds=rounds, iterations=iterations, move=0.1).x
            for rounds, iterations in ((1, 200), (4, 50))
        ]
        errors.append([np.sum((x - signal) ** 2) for x in found])
    once, again = np.sum(errors, axis=0)
    assert again < 0.1 * once


@given(seeds)
@settings(max_examples=10)
def test_reweighting_stays_in_cells_and_one_round_is_solve(seed):
    lower, upper = cells(seed, 2, 32)
    K = GaborFrame(32, window_length=8, hop=4)
    x = reweighted(lower, upper, K, faint=0.1, group=2, rounds=3, iterations=5).x
    assert ((lower <= x) & (x <= upper)).all()
    once = reweighted(lower, upper, K, faint=0.1, rounds=1, iterations=5).x
    assert np.array_equal(once, solve(dequantization(lower, upper, K), iterations=5).x)


def test_reweighting_tensors_equals_arrays():
    lower, upper = cells(1, 2, 16)
    expected = reweighted(lower, upper, DCT(16), faint=0.1, group=2, iterations=5).x
    found = reweighted(torch.tensor(lower), torch.tensor(upper), DCT(16), faint=0.1, group=2, iterations=5).x
    assert np.allclose(found, expected, atol=1e-12)


class Distance(Functional):
    """``weight |x - target|_1``, by its prox."""

    def __init__(self, target, weight):
        self.target = target
        self.settings = {"weight": [weight]}

    def value(self, x):
        return (self.settings["weight"][0] * abs(x - self.target)).sum(-1)

    def prox(self, v, step):
        bound = step * self.settings["weight"][0]
        moved = v - self.target
        return v - (moved.clip(-bound, bound) if isinstance(v, np.ndarray) else moved.clamp(-bound, bound))


class CertifiedDistance(Distance):
    def conjugate(self, y):
        return (self.target * y).sum(-1)

    def project_dual(self, y):
        return np.clip(y, -self.settings["weight"][0], self.settings["weight"][0])


class Point(Functional):
    """The indicator of one point, whose prox is an array that nobody may overwrite."""

    def __init__(self, point):
        self.point = point

    def value(self, x):
        return 0 * x[..., 0]

    def residual(self, v, step):
        return v - self.point

    def prox(self, v, step):
        return self.point


class Differences(Operator):
    """Differences of neighbours, weighted by numbers or by arrays that may be learned."""

    def __init__(self, size, weights=1.0):
        self.size = size
        self.weights = weights

    @property
    def shape(self):
        return self.size - 1, self.size

    def apply(self, x):
        return self.weights * (x[..., 1:] - x[..., :-1])

    def adjoint(self, y):
        concatenate = torch.cat if isinstance(y, torch.Tensor) else np.concatenate
        y, nothing = self.weights * y, 0 * y[..., :1]
        return concatenate([nothing, y], -1) - concatenate([y, nothing], -1)


class Flipped(Operator):
    """Samples in reverse, which NumPy returns as a view of the argument."""

    shape = (16, 16)

    def apply(self, x):
        return x[..., ::-1]

    adjoint = apply


class Buffered(Differences):
    """The same, in an array that every call uses again."""

    buffer = np.empty((16, 15))

    def apply(self, x):
        result = self.buffer[: len(x)]
        result[...] = super().apply(x)
        return result


def own_and_built_in(noisy, K):
    """The same problem by classes of the user and by those of the package."""
    m, n = K.shape
    own = Problem(Distance(np.zeros(m), 0.4), SquaredL2().shifted(-noisy), K, noisy)
    matrix = Dense(np.array(K.apply(np.eye(n))).T.copy())
    return own, Problem(0.4 * L1(), SquaredL2().shifted(-noisy), matrix, noisy)


OWN_OPERATORS = {
    "plain": Differences(16),
    "weighted": Differences(16, np.linspace(0.5, 1.5, 15)),
    "buffered": Buffered(16),
    "view": Flipped(),
    "scaled view": 0.5 * Flipped(),
    "composed": Differences(16) @ Flipped(),
}


@pytest.mark.parametrize("K", OWN_OPERATORS.values(), ids=OWN_OPERATORS)
@pytest.mark.parametrize("algorithm", [ChambollePock(1.0, 0.1), ChambollePock(theta=0.0), RestartedHalpern()])
def test_user_classes_solve_like_built_in_ones(algorithm, K):
    noisy = normal(0, 3, 16)
    before = noisy.copy()
    own, same = own_and_built_in(noisy, K)
    found, expected = (solve(problem, algorithm, iterations=200).x for problem in (own, same))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.array_equal(noisy, before)


@pytest.mark.parametrize(
    ("kernel", "weights"), [("own", np.linspace(0.5, 1.5, 15)), ("gains", 1.0), ("matrix", 1.0)]
)
def test_user_classes_unroll_like_built_in_ones(kernel, weights):
    own, same = own_and_built_in(normal(1, 3, 16), Differences(16, weights))
    algorithm = ChambollePock(1.0, 0.1)
    expected = solve(same, algorithm, iterations=4).x
    net = unroll(own, 4, algorithm, kernel=kernel)
    np.testing.assert_allclose(net(own).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(net.network()(own), expected, atol=1e-12)
    if kernel == "own":
        assert net.architecture.kernel_shapes == ((15,),)


def test_user_arrays_follow_the_batch():
    noisy, target = normal(2, 5, 8), normal(3, 5, 8)
    F = CertifiedDistance(target, np.linspace(0.1, 2.0, 5)[:, None])
    together = solve(
        Problem(F, SquaredL2().shifted(-noisy), Identity(8), noisy), tolerance=1e-6, check_every=1
    )
    assert together.converged.all()
    assert len(set(together.iterations.tolist())) > 1
    for row in range(5):
        alone = CertifiedDistance(target[row], float(np.linspace(0.1, 2.0, 5)[row]))
        expected = alone.prox(noisy[row], 1.0)
        np.testing.assert_allclose(together.x[row], expected, atol=1e-2)


def test_certificate_needs_a_conjugate():
    own, _ = own_and_built_in(normal(0, 3, 16), Differences(16))
    solution = solve(own, iterations=5)
    with pytest.raises(InputError, match="override conjugate"):
        solution.certificate  # noqa: B018


def test_refuses_functional_without_prox():
    class Nothing(Functional):
        def value(self, x):
            return x.sum(-1)

    with pytest.raises(InputError, match="override prox"):
        solve(Problem(Nothing(), Zero(), Identity(3), np.zeros(3)), iterations=1)


@pytest.mark.parametrize("algorithm", [ChambollePock(), RestartedHalpern()])
def test_user_prox_result_is_not_overwritten(algorithm):
    point = normal(4, 6)
    before = point.copy()
    problem = Problem(L1(), Point(point), Identity(6), np.zeros(6))
    assert np.array_equal(solve(problem, algorithm, iterations=7).x, before)
    assert np.array_equal(point, before)


def test_refuses_overrides_that_hooks_bypass():
    with pytest.raises(TypeError, match="derive it from Functional"):
        type("Mine", (L1,), {"prox": lambda self, v, step: v})
    with pytest.raises(TypeError, match="derive it from Operator"):
        type("Mine", (Identity,), {"apply": lambda self, x: x})


@pytest.mark.parametrize(
    ("returned", "reason"),
    [(lambda x: x[..., :2], "Wrong.apply must return shape"), (lambda x: x.tolist(), "got a list")],
)
def test_refuses_wrong_results_of_user_operators(returned, reason):
    class Wrong(Operator):
        shape = (3, 3)
        norm = 1.0

        def apply(self, x):
            return returned(x)

        adjoint = apply

    with pytest.raises(InputError, match=reason):
        solve(Problem(L1(), Zero(), Wrong(), np.ones(3)), iterations=1)
