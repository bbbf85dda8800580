"""Where training starts."""

import numpy as np
import pytest
import torch
from tests.nets.plans import CONVOLUTIONAL, DENSE, FAMILY, cells_for

from pdrn.nets import Network, PrimalDual, primal_dual
from pdrn.nets.torch import NetworkModule

each_plan = pytest.mark.parametrize("plan", FAMILY.values(), ids=FAMILY)


@each_plan
def test_the_identity_start_changes_nothing_but_learns(plan):
    weights = primal_dual.identity(plan, np.random.default_rng(0))
    lower, upper = cells_for(plan, 1)
    centre = (lower + upper) / 2
    assert np.allclose(Network(plan, weights)(lower, upper), centre, atol=1e-12)
    module = NetworkModule(plan, weights, dtype=torch.float64)
    ((module(torch.tensor(lower), torch.tensor(upper)) - torch.tensor(upper)) ** 2).sum().backward()
    assert any(part.grad.abs().max() > 0 for part in module.parameters() if part.grad is not None)


@each_plan
def test_a_random_start_is_uniform_within_glorots_limits(plan):
    weights = primal_dual.glorot(plan, np.random.default_rng(0))
    limit = np.sqrt(6 / sum(plan.map.kernel_shape))
    kernels = np.concatenate([part.ravel() for name, part in weights.items() if name[0] in "WVK"])
    assert np.abs(kernels).max() <= limit
    assert np.abs(kernels).max() > 0.9 * limit
    assert abs(kernels.mean()) < 0.15 * limit
    assert kernels.std() == pytest.approx(limit / np.sqrt(3), rel=0.15)


def test_a_random_start_depends_on_the_generator_alone():
    plan = PrimalDual(DENSE, 2)
    first, again, other = (primal_dual.glorot(plan, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["W.0"], other["W.0"])


def test_learned_extrapolation_starts_where_it_is_told():
    weights = PrimalDual(DENSE, 3, theta=0.7, learn_theta="per layer").start(np.random.default_rng(0))
    assert weights["theta"].tolist() == [0.7, 0.7, 0.7]


def test_memory_starts_at_a_multiple_of_the_identity():
    weights = primal_dual.chambolle_pock(PrimalDual(CONVOLUTIONAL, 2, "mix"), memory_gain=0.5)
    assert np.array_equal(weights["M.0"], 0.5 * np.eye(10))


def test_the_convolutional_dictionary_has_unit_filters():
    K, norm = CONVOLUTIONAL.dictionary()
    assert np.allclose(np.linalg.norm(K, axis=1), 1)
    assert norm == pytest.approx(CONVOLUTIONAL.norm(K))


def test_a_dictionary_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(3, 3\)"):
        primal_dual.chambolle_pock(PrimalDual(DENSE, 2), dictionary=np.eye(3))
