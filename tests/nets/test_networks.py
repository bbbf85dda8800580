"""The networks: Chambolle-Pock at the start, inside the cells always, the same in both backends."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.convex.laws import cells, normal, seeds
from tests.nets.plans import ALL, CONVOLUTIONAL, DENSE, FAMILY, WIDE, cells_for, disturbed
from threadpoolctl import threadpool_info

from pdrn.convex import DCT, ChambollePock, Convolution, Dense, dequantization, solve
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual, primal_dual
from pdrn.nets.related import LearnedPrimalDual
from pdrn.nets.runtime import limited
from pdrn.nets.torch import NetworkModule

each_plan = pytest.mark.parametrize("plan", ALL.values(), ids=ALL)


@pytest.mark.parametrize("tying", ["untied", "half", "tied"])
@pytest.mark.parametrize("theta", [0.0, 0.4, 1.0])
@settings(max_examples=15)
@given(seeds)
def test_every_layer_is_an_iterate_of_the_solver_on_frames(tying, theta, seed):
    plan = PrimalDual(DENSE, 6, tying=tying, theta=theta)
    lower, upper = cells(seed, 3, 16)
    problem = dequantization(lower, upper, DCT(16))
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
def test_the_result_is_in_its_cells_whatever_the_weights_are(plan, seed, scale, dtype):
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


@pytest.mark.parametrize("map", [DENSE, CONVOLUTIONAL])
def test_no_training_leads_out_of_the_cells(map):
    """Trained to go as far away as they can, networks reach the bounds and no further."""
    module = NetworkModule(PrimalDual(map, 3, "mix"))
    lower, upper = (torch.tensor(bound) for bound in cells_for(module.architecture, 5, np.float32))
    optimizer = torch.optim.SGD(module.parameters(), lr=100.0)
    for _ in range(20):
        optimizer.zero_grad()
        (-((module(lower, upper) - (lower + upper) / 2) ** 2).sum()).backward()
        optimizer.step()
    restored = module(lower, upper).detach()
    at_a_bound = (restored == lower) | (restored == upper)
    assert ((lower <= restored) & (restored <= upper)).all()
    assert at_a_bound.float().mean() > 0.9


@each_plan
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
@settings(max_examples=5)
@given(seeds)
def test_numpy_and_torch_agree(plan, dtype, tolerance, seed):
    numpy_network = disturbed(plan, seed, dtype=dtype)
    lower, upper = cells_for(plan, seed, dtype)
    module = NetworkModule.of(numpy_network)
    tensors = module.by_layer(torch.tensor(lower), torch.tensor(upper))
    for array, tensor in zip(numpy_network.by_layer(lower, upper), tensors, strict=True):
        assert array.dtype == dtype
        scale = np.abs(array).max()
        assert np.abs(array - tensor.detach().numpy()).max() <= tolerance * scale


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
def test_plans_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_weights_that_do_not_fit_are_refused():
    plan = PrimalDual(DENSE, 2)
    weights = plan.start(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"W\.0"):
        Network(plan, {name: part for name, part in weights.items() if name != "W.0"})
    with pytest.raises(ValueError, match=r"b\.0"):
        Network(plan, weights | {"b.0": np.zeros(16)})
    with pytest.raises(ValueError, match=r"V\.1"):
        Network(plan, weights | {"V.1": np.zeros((16, 15))})
    with pytest.raises(ValueError, match="float64"):
        Network(plan, weights | {"V.1": np.zeros((16, 16), np.float32)})
    with pytest.raises(ValueError, match="NaN"):
        Network(plan, weights | {"V.1": np.full((16, 16), np.inf)})


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (np.zeros(15), np.ones(15), r"\(15,\)"),
        (np.zeros((2, 0)), np.zeros((2, 0)), r"\(2, 0\)"),
        (np.ones(16), np.zeros(16), "lo <= hi"),
        (np.zeros(16), np.ones(17), r"\(17,\)"),
        (np.zeros(16, int), np.ones(16, int), "float64"),
        (np.full(16, np.nan), np.ones(16), "lo <= hi"),
    ],
)
def test_cells_that_make_no_sense_are_refused(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        Network.started(PrimalDual(DENSE, 2))(lower, upper)


def test_the_batch_is_laid_out_with_zeros_between():
    map = ConvolutionalMap(4, window=6, hop=2)
    signals = np.array([[1.0, 2, 3], [4, 5, 6]])
    flat = map.lay_out(signals)
    assert flat.tolist() == [0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]
    assert np.array_equal(map.gather(flat, signals.shape), signals)


def test_a_wide_network_starts_at_the_dictionary_that_it_is_given():
    K = normal(4, 24, 16)
    plan = PrimalDual(WIDE, 4, theta=1.0)
    weights = primal_dual.chambolle_pock(plan, sigma=2.0, dictionary=K)
    lower, upper = cells(4, 16)
    tau = 1 / (2 * np.linalg.norm(K, 2) ** 2)
    iterate = solve(dequantization(lower, upper, Dense(K)), ChambollePock(2.0, tau), iterations=4).x
    assert np.allclose(Network(plan, weights)(lower, upper), iterate, atol=1e-12)


@given(seeds)
def test_memory_is_what_the_docs_say(seed):
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
        bound = map.norm(kernel)
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
def test_what_lies_beyond_its_reach_does_not_change_a_hop(weighting, side):
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


def test_a_context_has_no_say_at_the_start():
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
def test_a_context_is_what_its_equations_say(seed):
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


def blas_threads():
    """Threads of NumPy's own library; SciPy brings another."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {pool["num_threads"] for pool in pools if "numpy" in pool["filepath"] or len(pools) == 1}


@pytest.mark.parametrize("threads", [1, 2, None])
def test_matrix_products_take_as_many_threads_as_they_are_told(threads, monkeypatch):
    seen = []
    plan = PrimalDual(DENSE, 1)
    numpy_network = Network(plan, plan.start(np.random.default_rng(0)), threads)
    monkeypatch.setattr(DenseMap, "analyse", lambda self, x, W: seen.append(blas_threads()) or x @ W.T)
    before = blas_threads()
    numpy_network(*cells(1, 16))
    assert seen == [before if threads is None else {threads}]
    assert blas_threads() == before


def test_one_thread_is_the_default():
    plan = PrimalDual(DENSE, 1)
    assert Network.started(plan).threads == 1
    with pytest.raises(ValueError, match="threads"):
        Network(plan, plan.start(np.random.default_rng(0)), threads=0)


def test_limits_of_several_threads_do_not_disturb_each_other():
    """The first to come is the first to go: the other keeps its limit, and in the end all is as before."""
    before = blas_threads()
    entered, left = threading.Event(), threading.Event()
    seen = []

    def second():
        with limited(1):
            entered.set()
            left.wait()
            seen.append(blas_threads())

    with limited(1):
        other = threading.Thread(target=second)
        other.start()
        entered.wait()
    left.set()
    other.join()
    assert seen == [{1}]
    assert blas_threads() == before
    with pytest.raises(KeyError), limited(1):
        raise KeyError
    assert blas_threads() == before


@pytest.mark.parametrize("coefficients", [5, 8, 12, 32])
def test_a_cosine_transform_of_any_size_has_norm_one(coefficients):
    K, norm = DenseMap(8, coefficients).dictionary()
    assert K.shape == (coefficients, 8)
    assert norm == 1.0
    gram = K.T @ K if coefficients >= 8 else K @ K.T
    np.testing.assert_allclose(gram, np.eye(min(8, coefficients)), atol=1e-12)
