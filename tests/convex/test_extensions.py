"""Functionals and operators that a user writes, in plain classes with public methods."""

import numpy as np
import pytest
import torch
from tests.convex.laws import normal

from pdrn.convex import (
    L1,
    ChambollePock,
    Dense,
    Functional,
    Identity,
    Operator,
    Problem,
    RestartedHalpern,
    SquaredL2,
    Zero,
    solve,
)
from pdrn.errors import InputError
from pdrn.nets import unroll


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


class Buffered(Differences):
    """The same, in an array that every call uses again."""

    buffer = np.empty((16, 15))

    def apply(self, x):
        result = self.buffer[: len(x)]
        result[...] = super().apply(x)
        return result


def problems(noisy, K):
    """The same problem by classes of the user and by those of the package."""
    m, n = K.shape
    own = Problem(Distance(np.zeros(m), 0.4), SquaredL2().shifted(-noisy), K, noisy)
    matrix = Dense(Differences(n, K.weights).apply(np.eye(n)).T.copy())
    return own, Problem(0.4 * L1(), SquaredL2().shifted(-noisy), matrix, noisy)


OPERATORS = [Differences(16), Differences(16, np.linspace(0.5, 1.5, 15)), Buffered(16)]


@pytest.mark.parametrize("K", OPERATORS, ids=["plain", "weighted", "buffered"])
@pytest.mark.parametrize("algorithm", [ChambollePock(1.0, 0.1), ChambollePock(theta=0.0), RestartedHalpern()])
def test_they_solve_as_built_in_ones_do(algorithm, K):
    own, same = problems(normal(0, 3, 16), K)
    found, expected = (solve(problem, algorithm, iterations=200).x for problem in (own, same))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "weights"), [("own", np.linspace(0.5, 1.5, 15)), ("gains", 1.0), ("matrix", 1.0)]
)
def test_they_unroll_as_built_in_ones_do(kernel, weights):
    own, same = problems(normal(1, 3, 16), Differences(16, weights))
    algorithm = ChambollePock(1.0, 0.1)
    expected = solve(same, algorithm, iterations=4).x
    net = unroll(own, 4, algorithm, kernel=kernel)
    np.testing.assert_allclose(net(own).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(net.network()(own), expected, atol=1e-12)
    if kernel == "own":
        assert net.architecture.kernel_shapes == ((15,),)


def test_their_arrays_follow_the_rows_of_a_batch():
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


def test_without_a_conjugate_there_are_iterations_but_no_certificate():
    own, _ = problems(normal(0, 3, 16), Differences(16))
    solution = solve(own, iterations=5)
    with pytest.raises(InputError, match="override conjugate"):
        solution.certificate  # noqa: B018


def test_a_functional_without_prox_says_what_to_override():
    class Nothing(Functional):
        def value(self, x):
            return x.sum(-1)

    with pytest.raises(InputError, match="override prox"):
        solve(Problem(Nothing(), Zero(), Identity(3), np.zeros(3)), iterations=1)


@pytest.mark.parametrize("algorithm", [ChambollePock(), RestartedHalpern()])
def test_what_a_prox_returns_is_not_overwritten(algorithm):
    point = normal(4, 6)
    before = point.copy()
    problem = Problem(L1(), Point(point), Identity(6), np.zeros(6))
    assert np.array_equal(solve(problem, algorithm, iterations=7).x, before)
    assert np.array_equal(point, before)


def test_overriding_a_method_that_hooks_bypass_is_refused():
    with pytest.raises(TypeError, match="derive it from Functional"):
        type("Mine", (L1,), {"prox": lambda self, v, step: v})
    with pytest.raises(TypeError, match="derive it from Operator"):
        type("Mine", (Identity,), {"apply": lambda self, x: x})
