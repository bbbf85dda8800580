"""Blocks and their family: Chambolle-Pock at the start, in the cells for any weights."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.convex.laws import FUNCTIONALS, OFFSET, SIZE, cells, normal, seeds
from tests.nets.plans import ALL, CONVOLUTIONAL, DENSE, FAMILY, WIDE, cells_for, disturbed

from pdrn.convex import DCT, L1, Ball, Box, ChambollePock, Convolution, Dense, Problem, dequantization, solve
from pdrn.convex.operators import norm_on_long_signals
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual, primal_dual
from pdrn.nets.primal_dual import Block, State
from pdrn.nets.related import LearnedPrimalDual
from pdrn.nets.torch import NetworkModule

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
def test_memory_gain_0_and_1_are_pdrn_and_pdn(seed):
    W, V, b = normal(seed, SIZE, SIZE), normal(seed + 1, SIZE, SIZE), normal(seed + 2, SIZE)
    x, y = normal(seed + 3, SIZE), normal(seed + 4, SIZE, scale=0.3)
    maps, before = (lambda x: x @ W.T, lambda y: y @ V.T), State(x, y, x, L1(), Ball(np.inf, 2.0))
    for number, bias in ((1.0, 0 * b), (0.0, b)):
        mixed = Block(*maps, lambda y, number=number: number * y, bias, 0.7)(before)
        end = Block(*maps, number, bias, 0.7)(before)
        for name in ("x", "y", "x_bar"):
            assert np.allclose(getattr(mixed, name), getattr(end, name))


def test_blocks_do_not_change_their_inputs():
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


each_plan = pytest.mark.parametrize("plan", ALL.values(), ids=ALL)


@pytest.mark.parametrize("tying", ["untied", "half", "tied"])
@pytest.mark.parametrize("theta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(("map", "K"), [(DENSE, DCT(16)), (WIDE, Dense(WIDE.dictionary()[0]))])
@settings(max_examples=15)
@given(seeds)
def test_every_layer_is_an_iterate_of_the_solver_on_frames(tying, theta, map, K, seed):
    plan = PrimalDual(map, 6, tying=tying, theta=theta)
    lower, upper = cells(seed, 3, 16)
    problem = dequantization(lower, upper, K)
    for layer, x in enumerate(Network.started(plan, dtype=np.float64).by_layer(lower, upper), 1):
        iterate = solve(problem, ChambollePock(10.0, 0.1, theta), iterations=layer).x
        assert np.allclose(x, iterate, atol=1e-12, rtol=0)


@pytest.mark.parametrize("tying", ["untied", "half", "tied"])
@pytest.mark.parametrize("theta", [0.0, 0.4, 1.0])
@settings(max_examples=15)
@given(seeds, st.integers(1, 40))
def test_every_layer_is_an_iterate_of_the_solver_on_signals(tying, theta, seed, length):
    """Each signal of a batch is solved on its own, between zeros: no view sees two signals."""
    map = CONVOLUTIONAL
    plan = PrimalDual(map, 5, tying=tying, theta=theta)
    K, norm = map.dictionary()
    weights = primal_dual.chambolle_pock(plan, sigma=3.0)
    lower, upper = cells(seed, 2, length)
    layers = Network(plan, weights).by_layer(lower, upper)
    for row in range(2):
        after = -length % map.hop + map.edge
        padded = [np.pad(bound[row], (map.edge, after)) for bound in (lower, upper)]
        count = (len(padded[0]) - map.window) // map.hop + 1
        problem = dequantization(*padded, Convolution(K, map.hop, count))
        for layer, x in enumerate(layers, 1):
            steps = ChambollePock(3.0, 1 / (3.0 * norm**2), theta)
            iterate = solve(problem, steps, iterations=layer).x[map.edge : map.edge + length]
            assert np.allclose(x[row], iterate, atol=1e-12, rtol=0)


@given(seeds)
def test_weights_of_the_prior_are_those_of_the_solver(seed):
    """The network with weights by the spectrum starts at Chambolle-Pock on reweighted l1."""
    lower, upper = cells(seed, 3, 16)
    spectrum = np.abs(DCT(16).apply((lower + upper) / 2)) ** 2
    padded = np.pad(spectrum, [(0, 0), (2, 2)], "edge")
    smooth = sum(padded[:, i : i + 16] * share for i, share in enumerate((1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8)))
    problem = dequantization(lower, upper, DCT(16), 1 / (1 + np.exp(1.5) * np.sqrt(smooth + 1e-6)))
    plan = PrimalDual(DENSE, 4, theta=1.0, weighting="spectrum")
    for layer, x in enumerate(Network.started(plan, dtype=np.float64).by_layer(lower, upper), 1):
        iterate = solve(problem, ChambollePock(10.0, 0.1), iterations=layer).x
        assert np.allclose(x, iterate, atol=1e-12, rtol=0)


def any_cells(draw_seed, shape, dtype):
    """Bounded, half-open, unbounded and empty cells at every scale."""
    generator = np.random.default_rng(draw_seed)
    largest = 30 if dtype == np.float32 else 300
    centre = generator.standard_normal(shape) * 10.0 ** generator.integers(-largest, largest, shape)
    radius = np.abs(generator.standard_normal(shape)) * 10.0 ** generator.integers(-largest, largest, shape)
    radius[generator.random(shape) < 0.1] = 0
    lower, upper = (centre - radius).astype(dtype), (centre + radius).astype(dtype)
    lower[generator.random(shape) < 0.1] = -np.inf
    upper[generator.random(shape) < 0.1] = np.inf
    return lower, upper


@each_plan
@settings(max_examples=25)
@given(seeds, st.sampled_from([1e-3, 1.0, 1e6, 1e19, 1e38]), st.sampled_from([np.float32, np.float64]))
@example(0, 1e38, np.float32)
def test_result_is_in_its_cells_for_any_weights(plan, seed, scale, dtype):
    generator = np.random.default_rng(seed)
    shapes = plan.shapes()
    weights = {
        name: (scale * generator.uniform(-1, 1, shape)).astype(np.float32) for name, shape in shapes.items()
    }
    numpy_network = Network(plan, weights)
    lower, upper = any_cells(seed, (3, 16), dtype)
    with np.errstate(all="ignore"):
        restored = numpy_network(lower, upper)
    assert restored.dtype == dtype
    assert np.isfinite(restored).all()
    assert ((lower <= restored) & (restored <= upper)).all()
    with torch.no_grad():
        tensor = NetworkModule.of(numpy_network)(torch.tensor(lower), torch.tensor(upper)).numpy()
    assert tensor.dtype == dtype
    assert np.isfinite(tensor).all()
    assert ((lower <= tensor) & (tensor <= upper)).all()


@each_plan
@settings(max_examples=3)
@given(seeds)
def test_the_last_layer_is_the_result(plan, seed):
    numpy_network = disturbed(plan, seed)
    lower, upper = cells_for(plan, seed)
    layers = numpy_network.by_layer(lower, upper)
    assert len(layers) == plan.depth
    assert np.array_equal(layers[-1], numpy_network(lower, upper))


@each_plan
@settings(max_examples=5)
@given(seeds)
def test_signals_of_a_batch_do_not_see_each_other(plan, seed):
    numpy_network = disturbed(plan, seed)
    lower, upper = cells_for(plan, seed)
    together = numpy_network(lower, upper)
    for row in range(len(lower)):
        assert np.allclose(together[row], numpy_network(lower[row], upper[row]), atol=1e-12)
    stacked = numpy_network(lower[:, None], upper[:, None])
    assert stacked.shape == (3, 1, lower.shape[-1])
    assert np.allclose(stacked[:, 0], together, atol=1e-12)


@each_plan
def test_cells_in_double_precision_are_kept_by_single_precision_weights(plan):
    numpy_network = disturbed(plan, 1, dtype=np.float32)
    lower, upper = (bound / 3 for bound in cells_for(plan, 1))
    restored = numpy_network(lower, upper)
    assert restored.dtype == np.float64
    assert ((lower <= restored) & (restored <= upper)).all()


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 100])
def test_a_convolutional_network_takes_signals_of_any_length(length):
    numpy_network = disturbed(FAMILY["convolutional, mix, untied"], 2)
    lower, upper = cells(2, length)
    assert numpy_network(lower, upper).shape == (length,)


def test_a_convolutional_network_sees_no_frame_edges():
    """Moved by a hop, a signal between silence is restored to the same samples, moved by a hop."""
    plan = PrimalDual(CONVOLUTIONAL, 3, "mix")
    numpy_network = disturbed(plan, 3)
    lower, upper = cells(3, 40)
    here = [np.pad(bound, (40, 44)) for bound in (lower, upper)]
    there = [np.pad(bound, (44, 40)) for bound in (lower, upper)]
    assert np.allclose(numpy_network(*here)[40:80], numpy_network(*there)[44:84], atol=1e-12)


def test_parameter_counts_are_those_of_the_paper():
    for depth in (1, 2, 5, 10, 15):
        pdn = PrimalDual(DenseMap(1024), depth)
        pdrn = PrimalDual(DenseMap(1024), depth, "bias")
        assert pdn.parameter_count == depth * 2 * 1024**2
        assert pdrn.parameter_count == depth * (2 * 1024**2 + 1024)


@pytest.mark.parametrize(
    ("plan", "count"),
    [
        (PrimalDual(WIDE, 3, "dual", "tied"), 24 * 16 + 2),
        (PrimalDual(WIDE, 3, "bias", "half"), 3 * (24 * 16 + 24) + 3),
        (PrimalDual(WIDE, 3, "gain"), 3 * (2 * 24 * 16 + 24) + 2 * 24),
        (PrimalDual(WIDE, 3, "mix", learn_theta="once"), 3 * (2 * 24 * 16 + 24) + 2 * 24**2 + 1),
        (PrimalDual(ConvolutionalMap(256, 320, 160), 8, "mix"), 8 * (2 * 256 * 320 + 256) + 7 * 256**2),
    ],
)
def test_parameter_counts(plan, count):
    assert plan.parameter_count == count


@pytest.mark.parametrize(
    ("plan", "shape", "products"),
    [
        (PrimalDual(DENSE, 3), (5, 16), 3 * 2 * 5 * 16 * 16),
        (PrimalDual(WIDE, 3, "mix"), (5, 16), 3 * 2 * 5 * 16 * 24 + 2 * 5 * 24 * 24),
        (PrimalDual(CONVOLUTIONAL, 2), (3, 27), 2 * 2 * 3 * (7 + 1) * 10 * 8),
        (PrimalDual(CONVOLUTIONAL, 2, "mix"), (27,), 2 * 2 * 8 * 10 * 8 + 8 * 10 * 10),
        (PrimalDual(DENSE, 3, weighting="spectrum"), (5, 16), (3 * 2 + 1) * 5 * 16 * 16),
        (
            PrimalDual(CONVOLUTIONAL, 2, weighting="context", context=1),
            (27,),
            (2 * 2 + 1) * 10 * 10 * 8 + (3 + 2) * 10 * 10 * 10,
        ),
    ],
)
def test_multiplications_are_counted(plan, shape, products):
    assert plan.products(shape) == products


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrimalDual(DENSE, 0), "depth"),
        (lambda: PrimalDual(DENSE, 1.0), "depth"),
        (lambda: PrimalDual(DENSE, 2, "elephant"), "memory"),
        (lambda: PrimalDual(DENSE, 2, tying="knot"), "tying"),
        (lambda: PrimalDual(DENSE, 2, learn_theta=True), "learn_theta"),
        (lambda: PrimalDual(DENSE, 2, theta=float("nan")), "theta"),
        (lambda: PrimalDual(DENSE, 2, theta=True), "theta"),
        (lambda: PrimalDual(DENSE, 2, theta=np.array([0.5])), "theta"),
        (lambda: DenseMap(4, False), "coefficients"),
        (lambda: LearnedPrimalDual(ConvolutionalMap(4, 8, 8), 2), "window"),
        (lambda: PrimalDual(DENSE, 2).reach, "frame"),
        (lambda: PrimalDual(DENSE, 2, weighting="context", context=1), "context"),
        (lambda: PrimalDual(CONVOLUTIONAL, 2, weighting="context"), "context"),
        (lambda: PrimalDual(CONVOLUTIONAL, 2, weighting="spectrum", context=1), "context"),
        (lambda: PrimalDual(CONVOLUTIONAL, 3, weighting="spectrum", stages=2), "stages"),
        (lambda: PrimalDual(CONVOLUTIONAL, 2, stages=2), "stages"),
        (lambda: PrimalDual(CONVOLUTIONAL, 2, weighting="spectrum", causal=True), "causal"),
        (lambda: PrimalDual(16, 2), "DenseMap"),
        (lambda: DenseMap(0), "samples"),
        (lambda: ConvolutionalMap(4, 10, 4), "hop"),
    ],
)
def test_refuses_invalid_architectures(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(seeds)
def test_memory_follows_its_equation(seed):
    """W x + M y + b with a matrix that is not symmetric, and one number per channel; and W x + b."""
    lower, upper = cells(seed, 16)
    q = (lower + upper) / 2
    for memory in ("mix", "gain", "bias"):
        plan = PrimalDual(DENSE, 2, memory)
        weights = {name: normal(seed + i, *shape) for i, (name, shape) in enumerate(plan.shapes().items())}
        y = np.clip(weights["W.0"] @ q + weights["b.0"], -1, 1)
        x = np.clip(q + weights["V.0"].T @ y, lower, upper)
        M = weights.get("M.0", np.zeros(16))
        remembered = M @ y if memory == "mix" else M * y
        y = np.clip(weights["W.1"] @ x + remembered + weights["b.1"], -1, 1)
        x = np.clip(x + weights["V.1"].T @ y, lower, upper)
        assert np.allclose(Network(plan, weights)(lower, upper), x, atol=1e-12)


@pytest.mark.parametrize("sizes", [(10, 8, 4), (10, 8, 8), (16, 32, 2), (6, 16, 1), (64, 80, 40)])
def test_default_steps_converge_on_signals_of_any_length(sizes):
    map = ConvolutionalMap(*sizes)
    for kernel in (map.dictionary()[0], np.abs(map.dictionary()[0]), normal(1, *map.kernel_shape)):
        bound = norm_on_long_signals(kernel, map.hop)
        norms = [Convolution(kernel, map.hop, count).norm for count in (1, 10, 100)]
        assert max(norms) <= bound * (1 + 1e-9)
        assert bound <= 1.1 * norms[-1]


@pytest.mark.parametrize(
    "weighting",
    [
        {"weighting": "one"},
        {"weighting": "spectrum"},
        {"weighting": "spectrum", "stages": 2},
        {"weighting": "context", "context": 2},
        {"weighting": "context", "context": 3, "causal": True},
        {"weighting": "context", "context": 1, "stages": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("side", [-1, 1])
def test_samples_beyond_reach_have_no_influence(weighting, side):
    plan = PrimalDual(CONVOLUTIONAL, 2, "mix", **weighting)
    network = disturbed(plan, 5, scale=0.1)
    q, hop = normal(3, 200, scale=0.1), slice(100, 100 + CONVOLUTIONAL.hop)
    distance = 100 - np.arange(200) if side < 0 else np.arange(200) - (hop.stop - 1)
    reach = plan.reach[(side + 1) // 2]

    def restored(q):
        return network(q - 50, q + 50)[hop]  # wide cells: no clip hides what is seen

    beyond = np.where(distance > reach, 0.1, 0.0)
    within = np.where(distance > reach - CONVOLUTIONAL.hop, 0.1, 0.0)
    assert np.allclose(restored(q + beyond), restored(q), atol=1e-13, rtol=0)
    assert np.abs(restored(q + within) - restored(q)).max() > 1e-10


def test_context_has_no_initial_influence():
    lower, upper = cells(1, 3, 40)
    plain = Network.started(PrimalDual(CONVOLUTIONAL, 4, weighting="spectrum", stages=2))
    context = Network.started(PrimalDual(CONVOLUTIONAL, 4, weighting="context", stages=2, context=2))
    assert np.allclose(plain(lower, upper), context(lower, upper), atol=1e-6)


def test_silence_around_a_signal_is_what_a_context_assumes():
    network = disturbed(FAMILY["convolutional, past"], 5)
    lower, upper = cells(2, 40)
    silence = np.zeros(80)
    longer = [np.concatenate([silence, bound, silence]) for bound in (lower, upper)]
    assert np.allclose(network(*longer)[80:-80], network(lower, upper), atol=1e-13, rtol=0)


@given(seeds)
def test_context_follows_its_equations(seed):
    """Written out for one stage: w = 1 / (1 + exp(a - r) m), r from the views beside."""
    plan = PrimalDual(CONVOLUTIONAL, 1, "bias", weighting="context", context=2)
    network = disturbed(plan, seed)
    w, map = network.weights, plan.map
    lower, upper = cells(seed, 24)
    gap = map.edge + 2 * map.hop
    q = np.pad((lower + upper) / 2, gap)
    seen = np.lib.stride_tricks.sliding_window_view(q, 8)[::4]
    power = np.pad((seen @ w["A.0"].T) ** 2, [(0, 0), (2, 2)], "edge")
    power = sum(power[:, i : i + 10] * share for i, share in enumerate((1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8)))

    def hidden(h, layer):
        padded = np.pad(h, [(1, 1), (0, 0)])
        beside = np.concatenate([padded[:-2], padded[1:-1], padded[2:]], -1)
        return np.clip(beside @ w[f"C.{layer}"].T + w[f"c.{layer}"], -1, 1)

    h = hidden(np.log(1 + power) / 2, 0)
    h = h + hidden(h, 1)
    r = h @ w["H.0"].T + w["h.0"]
    weight = 1 / (1 + np.exp(w["a.0"] - r) * np.sqrt(power + 1e-6))
    y = np.clip(seen @ w["W.0"].T + w["b.0"], -weight, weight)
    x = q.copy()
    for place, part in enumerate(y @ w["V.0"]):
        x[4 * place : 4 * place + 8] += part
    assert np.allclose(network(lower, upper), np.clip(x[gap : gap + 24], lower, upper), atol=1e-12, rtol=0)


each_member = pytest.mark.parametrize("plan", FAMILY.values(), ids=FAMILY)


@each_member
def test_the_identity_start_changes_nothing_but_learns(plan):
    weights = primal_dual.identity(plan, np.random.default_rng(0))
    lower, upper = cells_for(plan, 1)
    centre = (lower + upper) / 2
    assert np.allclose(Network(plan, weights)(lower, upper), centre, atol=1e-12)
    module = NetworkModule(plan, weights, dtype=torch.float64)
    ((module(torch.tensor(lower), torch.tensor(upper)) - torch.tensor(upper)) ** 2).sum().backward()
    assert any(part.grad.abs().max() > 0 for part in module.parameters() if part.grad is not None)


@each_member
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


def test_learned_theta_starts_at_theta():
    weights = PrimalDual(DENSE, 3, theta=0.7, learn_theta="per layer").start(np.random.default_rng(0))
    assert weights["theta"].tolist() == [0.7, 0.7, 0.7]


def test_memory_starts_at_a_multiple_of_the_identity():
    weights = primal_dual.chambolle_pock(PrimalDual(CONVOLUTIONAL, 2, "mix"), memory_gain=0.5)
    assert np.array_equal(weights["M.0"], 0.5 * np.eye(10))
