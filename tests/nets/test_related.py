"""The neighbours compute what their papers' equations say."""

import numpy as np
import pytest
from hypothesis import given, settings
from tests.convex.laws import cells, normal, seeds
from tests.nets.plans import CONVOLUTIONAL, DENSE, cells_for, disturbed

from pdrn.convex import DCT, Box
from pdrn.nets import Network, PrimalDual
from pdrn.nets.primal_dual import run
from pdrn.nets.related import LISTA, DeepPrimalDual, LearnedPrimalDual, ResidualNetwork, recurrent_proximal


def relu(x):
    return np.maximum(x, 0)


def soft(v, threshold):
    return np.sign(v) * relu(np.abs(v) - threshold)


def random_weights(plan, seed, scale=0.3):
    shapes = enumerate(plan.shapes().items())
    return {name: normal(seed + i, *shape, scale=scale) for i, (name, shape) in shapes}


@given(seeds)
def test_lista_follows_its_recursion(seed):
    plan = LISTA(DENSE, 4)
    weights = random_weights(plan, seed)
    lower, upper = cells(seed, 16)
    q = (lower + upper) / 2
    W, D, threshold = weights["W"], weights["D"], np.abs(weights["threshold"])
    S = np.eye(16) - weights["E"] @ D.T
    a = np.zeros(16)
    for estimate in Network(plan, weights).by_layer(lower, upper):
        a = soft(W @ q + S @ a, threshold)
        assert np.allclose(estimate, np.clip(D.T @ a, lower, upper), atol=1e-10)


@given(seeds)
def test_lista_starts_at_iterative_soft_thresholding(seed):
    """With an orthonormal transform that is one thresholding, and every further one the same."""
    lower, upper = cells(seed, 16)
    K = DCT(16)
    expected = K.adjoint(soft(K.apply((lower + upper) / 2), 0.01))
    for estimate in Network.started(LISTA(DENSE, 3), dtype=np.float64).by_layer(lower, upper):
        assert np.allclose(estimate, np.clip(expected, lower, upper), atol=1e-12)


@given(seeds)
def test_a_residual_network_is_equation_2_2(seed):
    plan = ResidualNetwork(DENSE, 2)
    weights = random_weights(plan, seed)
    lower, upper = cells(seed, 16)
    q = (lower + upper) / 2
    h = relu(weights["A"] @ q + weights["a"])
    for layer, estimate in enumerate(Network(plan, weights).by_layer(lower, upper)):
        inner = relu(weights[f"W1.{layer}"] @ h + weights[f"b1.{layer}"])
        h = relu(weights[f"W2.{layer}"] @ inner + weights[f"b2.{layer}"] + h)
        assert np.allclose(estimate, np.clip(q + weights["B"].T @ h, lower, upper), atol=1e-10)


@settings(max_examples=10)
@given(seeds)
def test_the_head_of_deep_primal_dual_solves_its_problem(seed):
    """Many steps reach the minimum of |Ks|_1 + |s - u|^2 / 2 over the cells, u being the body's guess."""
    plan = DeepPrimalDual(DENSE, 300, body_depth=1)
    weights = plan.start(np.random.default_rng(0)) | {"B": normal(seed, 16, 16, scale=0.05)}
    weights |= {"sigma": np.array([0.9]), "tau": np.array([0.9])}
    lower, upper = cells(seed, 16)
    q = (lower + upper) / 2
    h = relu(weights["A"] @ q + weights["a"])
    h = relu(weights["W2.0"] @ relu(weights["W1.0"] @ h + weights["b1.0"]) + weights["b2.0"] + h)
    u = q + weights["B"].T @ h

    def value(s):
        return np.abs(DCT(16).apply(s)).sum(-1) + ((s - u) ** 2).sum(-1) / 2

    best = Network(plan, weights)(lower, upper)
    nearby = np.clip(best + normal(seed + 1, 200, 16, scale=0.02), lower, upper)
    assert value(best) <= value(nearby).min() + 1e-6
    assert value(best) < value(np.clip(u, lower, upper))


def convolved(features, kernel, bias):
    """A convolution over three places, written out."""
    places, channels = features.shape
    padded = np.vstack([np.zeros((1, channels)), features, np.zeros((1, channels))])
    return np.array([kernel @ padded[i : i + 3].ravel() + bias for i in range(places)])


@settings(max_examples=10)
@given(seeds)
def test_learned_primal_dual_is_two_small_cnns_around_the_operator(seed):
    plan = LearnedPrimalDual(DENSE, 2, memory=2, width=3)
    weights = random_weights(plan, seed)
    lower, upper = cells(seed, 16)
    q, K = (lower + upper) / 2, weights["K"]

    def cnn(side, layer, features):
        for stage in range(3):
            kernel, bias = weights[f"{side}{stage}.{layer}"], weights[f"{side}{stage}_bias.{layer}"]
            features = convolved(features, kernel, bias)
            features = relu(features) if stage < 2 else features
        return features

    x, y = np.stack([q, q], -1), np.zeros((16, 2))
    for layer, estimate in enumerate(Network(plan, weights).by_layer(lower, upper)):
        y = y + cnn("dual", layer, np.column_stack([y, K @ x[:, 0], K @ q]))
        x = x + cnn("primal", layer, np.column_stack([x, K.T @ y[:, 0]]))
        assert np.allclose(estimate, np.clip(x[:, 0], lower, upper), atol=1e-10)


def test_the_recurrent_network_is_of_the_family():
    plan = recurrent_proximal(DENSE, 6)
    assert plan == PrimalDual(DENSE, 6, "dual", "tied", theta=1.0, learn_theta="once")
    assert plan.parameter_count == 16 * 16 + 3


class Watched(np.ndarray):
    """An array that notes the multiply-adds of every matrix product that it takes part in."""

    counted = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [part.view(np.ndarray) if isinstance(part, Watched) else part for part in inputs]
        if ufunc is np.matmul:
            Watched.counted += plain[0].size * plain[1].shape[-1]
        if "out" in options:
            options["out"] = tuple(np.asarray(part) for part in options["out"])
        return getattr(ufunc, method)(*plain, **options)


@pytest.mark.parametrize("map", [DENSE, CONVOLUTIONAL])
@pytest.mark.parametrize("kind", [LISTA, ResidualNetwork, LearnedPrimalDual, DeepPrimalDual])
def test_multiply_adds_are_counted_as_they_happen(kind, map):
    plan = kind(map, 3)
    weights = {name: part.view(Watched) for name, part in disturbed(plan, 1).weights.items()}
    lower, upper = cells_for(plan, 1)
    Watched.counted = 0
    run(plan, weights, Box(lower, upper))
    assert Watched.counted == plan.products(lower.shape)
