"""The blocks are Chambolle-Pock, for any F and G, until they learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.convex.laws import FUNCTIONALS, OFFSET, SIZE, cells, normal, seeds

from pdrn.convex import L1, Ball, Box, ChambollePock, Dense, Problem, solve
from pdrn.nets.primal_dual import Block, State

MATRIX = np.random.default_rng(3).standard_normal((SIZE, SIZE))
SIGMA, TAU = 0.3, 0.1
PAIRS = [
    ("l1", "box"),
    ("weighted l1", "half-open box"),
    ("shifted l1", "linf ball"),
    ("l2", "l1 ball"),
    ("linf", "squared l2"),
    ("group l2,1", "shifted squared l2"),
    ("squared l2", "l1"),
    ("scaled l1", "l2 ball"),
    ("scaled and shifted l2", "zero"),
    ("l2 ball", "scaled box"),
]


def states(blocks, x, F, G):
    state = State.at(x, F, G)
    for block in blocks:
        state = block(state)
        yield state


def algorithm(theta):
    return Block(
        W=lambda x: SIGMA * (x @ MATRIX.T), V=lambda y: -TAU * (y @ MATRIX), theta=theta, sigma=SIGMA, tau=TAU
    )


@pytest.mark.parametrize(("f", "g"), PAIRS)
@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0])
@settings(max_examples=10)
@given(seeds)
def test_stacked_blocks_are_the_iterates_of_the_solver(f, g, theta, seed):
    F, G = FUNCTIONALS[f], FUNCTIONALS[g]
    start = normal(seed, 2, SIZE)
    problem = Problem(F, G, Dense(MATRIX), start)
    for layer, state in enumerate(states([algorithm(theta)] * 4, start, F, G), 1):
        iterate = solve(problem, ChambollePock(SIGMA, TAU, theta), iterations=layer)
        assert np.allclose(state.x, iterate.x, atol=1e-12, rtol=1e-12)
        assert np.allclose(state.y, iterate.y, atol=1e-12, rtol=1e-12)


@given(seeds)
def test_one_network_holds_a_dual_and_a_primal_residual_network(seed):
    """(2.3) and (2.4): either reading gives the activations of (2.1)."""
    W, V = normal(seed, 5, SIZE, SIZE), normal(seed + 1, 5, SIZE, SIZE)
    F, G = L1(), Ball(np.inf, 0.5)

    def dual(v):
        return F.prox_conjugate(v, 1.0)

    def primal(v):
        return G.prox(v, 1.0)

    blocks = [Block(lambda x, W=w: x @ W.T, lambda y, V=v: y @ V.T) for w, v in zip(W, V, strict=True)]
    x0 = normal(seed + 2, SIZE, scale=0.2)
    x, y = [x0], [np.zeros(SIZE), dual(x0 @ W[0].T)]
    for layer in range(5):
        x.append(primal(dual(x[layer] @ W[layer].T + y[layer]) @ V[layer].T + x[layer]))
        if layer:
            inner = primal(y[layer] @ V[layer - 1].T + x[layer - 1])
            y.append(dual(inner @ W[layer].T + y[layer]))
    for step, primal_reading, dual_reading in zip(states(blocks, x0, F, G), x[1:], y[1:], strict=True):
        assert np.allclose(step.x, primal_reading, atol=1e-12)
        assert np.allclose(step.y, dual_reading, atol=1e-12)


@given(seeds)
def test_the_residual_block_is_equation_3_4(seed):
    W, V, b = normal(seed, SIZE, SIZE), normal(seed + 1, SIZE, SIZE), normal(seed + 2, SIZE)
    lower, upper = cells(seed, SIZE)
    q = (lower + upper) / 2
    block = Block(lambda x: x @ W.T, lambda y: y @ V.T, M=0.0, b=b)
    after = block(State.at(q, L1(), Box(lower, upper)))
    y = np.clip(W @ (0 + q) + b, -1, 1)
    x = np.clip(V @ y + 0, -0.125, 0.125)
    assert np.allclose(after.y, y, atol=1e-12)
    assert np.allclose(after.x, x + q, atol=1e-12)


@given(seeds)
def test_a_map_of_the_memory_has_both_blocks_as_its_ends(seed):
    W, V, b = normal(seed, SIZE, SIZE), normal(seed + 1, SIZE, SIZE), normal(seed + 2, SIZE)
    x, y = normal(seed + 3, SIZE), normal(seed + 4, SIZE, scale=0.3)
    maps, before = (lambda x: x @ W.T, lambda y: y @ V.T), State(x, y, x, L1(), Ball(np.inf, 2.0))
    for number, bias in ((1.0, 0 * b), (0.0, b)):
        mixed = Block(*maps, lambda y, number=number: number * y, bias, 0.7)(before)
        end = Block(*maps, number, bias, 0.7)(before)
        for name in ("x", "y", "x_bar"):
            assert np.allclose(getattr(mixed, name), getattr(end, name))


def test_blocks_leave_what_they_are_given_alone():
    x, y = normal(1, SIZE), normal(2, SIZE)
    kept = x.copy(), y.copy()
    algorithm(0.5)(State(x, y, x, L1(), Ball(2, 1.0)))
    assert np.array_equal(x, kept[0])
    assert np.array_equal(y, kept[1])


@pytest.mark.parametrize("f", ["l1", "squared l2", "l2", "group l2,1"])
def test_gradients_reach_maps_steps_and_theta(f):
    def run(W, V, M, b, theta, sigma, tau):
        maps = (lambda x: x @ W.T, lambda y: y @ V.T)
        blocks = [
            Block(*maps, 1.0, 0.0, theta, sigma, tau),
            Block(*maps, lambda y: y @ M, b, theta, sigma, tau),
            Block(*maps, 0.0, b, theta, sigma, tau),
            Block(*maps, 1.0, 0.0, theta, sigma, tau),
        ]
        start = torch.tensor(OFFSET)
        return [step.x for step in states(blocks, start, FUNCTIONALS[f], FUNCTIONALS["squared l2"])][-1]

    matrices = [torch.tensor(0.3 * normal(seed, SIZE, SIZE), requires_grad=True) for seed in range(3)]
    b = torch.tensor(normal(4, SIZE), requires_grad=True)
    numbers = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.6, 0.4, 0.7)]
    assert torch.autograd.gradcheck(run, (*matrices, b, *numbers))
