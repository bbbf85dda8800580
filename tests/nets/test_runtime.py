"""Networks on NumPy: threads, repeated blocks, and hop by hop what the whole signal gives."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.convex.laws import cells
from tests.nets.plans import CONVOLUTIONAL, DENSE, FAMILY, cells_for, disturbed
from threadpoolctl import threadpool_info

from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual
from pdrn.nets.related import LISTA
from pdrn.nets.runtime import RunningNetwork, limited, repeated


def test_refuses_wrong_weights():
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
def test_refuses_invalid_cells(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        Network.started(PrimalDual(DENSE, 2))(lower, upper)


def blas_threads():
    """Threads of NumPy's own library; SciPy brings another."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {pool["num_threads"] for pool in pools if "numpy" in pool["filepath"] or len(pools) == 1}


@pytest.mark.parametrize("threads", [1, 2, None])
def test_matrix_products_use_the_given_threads(threads, monkeypatch):
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


def test_overlapping_limits_are_restored_once():
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


ONE_STAGE = {name: plan for name, plan in FAMILY.items() if plan.stages == 1}


@pytest.mark.parametrize("name", ONE_STAGE)
def test_last_layer_is_repeated(name):
    plan = ONE_STAGE[name]
    network, cells = disturbed(plan, seed=1), cells_for(plan, seed=2)
    longer = repeated(network, 7)
    trained, going_on = network.by_layer(*cells), longer.by_layer(*cells)
    assert len(going_on) == 7
    for before, after in zip(trained, going_on, strict=False):
        np.testing.assert_array_equal(before, after)
    assert longer.architecture.depth == 7
    if plan.tying == "untied":
        for layer in range(3, 7):
            np.testing.assert_array_equal(longer.weights[f"W.{layer}"], network.weights["W.2"])


def test_last_theta_is_that_of_the_layer_before():
    network = disturbed(PrimalDual(DENSE, 3, learn_theta="per layer"), seed=3)
    theta = network.weights["theta"]
    np.testing.assert_array_equal(repeated(network, 6).weights["theta"], [*theta[:2], *4 * [theta[1]]])


def test_repeated_initial_network_is_the_solver():
    shallow, deep = (PrimalDual(DENSE, depth, tying="tied", theta=1.0) for depth in (2, 9))
    cells = cells_for(shallow, seed=4)
    np.testing.assert_array_equal(
        repeated(Network.started(shallow, dtype=np.float64), 9)(*cells),
        Network.started(deep, dtype=np.float64)(*cells),
    )


@pytest.mark.parametrize(
    ("plan", "depth", "message"),
    [
        (LISTA(DENSE, 3), 5, "LISTA"),
        (PrimalDual(DENSE, 3), 2, r"\b2\b"),
        (PrimalDual(CONVOLUTIONAL, 2, weighting="spectrum", stages=2), 4, "stages"),
        (PrimalDual(DENSE, 1, "gain"), 4, "layer"),
    ],
)
def test_refuses_networks_without_a_block_to_repeat(plan, depth, message):
    with pytest.raises(ValueError, match=message):
        repeated(Network.started(plan), depth)


MAP = ConvolutionalMap(channels=6, window=12, hop=4)


plans = st.builds(
    PrimalDual,
    map=st.sampled_from([MAP, ConvolutionalMap(5, 4, 4), ConvolutionalMap(4, 6, 3)]),
    depth=st.sampled_from([2, 4]),
    memory=st.sampled_from(["dual", "bias", "gain", "mix"]),
    tying=st.sampled_from(["untied", "half", "tied"]),
    theta=st.sampled_from([0.0, 0.7]),
    learn_theta=st.sampled_from(["no", "once", "per layer"]),
) | st.builds(
    PrimalDual,
    map=st.just(MAP),
    depth=st.sampled_from([2, 4]),
    memory=st.sampled_from(["dual", "gain"]),
    theta=st.just(1.0),
    weighting=st.just("context"),
    stages=st.sampled_from([1, 2]),
    context=st.sampled_from([1, 2]),
    causal=st.just(True),
)


def walk(hops, hop, seed):
    signal = np.cumsum(np.random.default_rng(seed).normal(0, 1, hops * hop))
    return np.floor(signal), np.floor(signal) + 1


def hop_by_hop(network, lower, upper):
    running, hop = RunningNetwork(network), network.architecture.map.hop
    before, after = network.architecture.reach
    lower, upper = (np.pad(bound, (before, after)).reshape(-1, hop) for bound in (lower, upper))
    restored = np.concatenate([running.push(*each) for each in zip(lower, upper, strict=True)])
    return restored[before + running.latency :][: restored.size - before - after]


@given(plan=plans, hops=st.integers(1, 8), seed=st.integers(0, 9))
def test_stream_equals_offline(plan, hops, seed):
    network = disturbed(plan, seed, scale=0.1, dtype=np.float64)
    lower, upper = walk(hops, plan.map.hop, seed)
    np.testing.assert_allclose(hop_by_hop(network, lower, upper), network(lower, upper), rtol=0, atol=1e-10)


def test_a_result_has_the_type_of_the_cells_and_lies_in_them():
    network = disturbed(PrimalDual(MAP, 2), 1, scale=5.0, dtype=np.float32)
    lower, upper = walk(6, MAP.hop, 3)
    restored = hop_by_hop(network, lower, upper)
    assert restored.dtype == np.float64
    assert np.all((lower <= restored) & (restored <= upper))
    assert not np.allclose(restored, (lower + upper) / 2)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (PrimalDual(DenseMap(8), 2), "convolutional"),
        (PrimalDual(MAP, 2, weighting="context", context=1), "context"),
    ],
)
def test_refuses_networks_that_cannot_stream(plan, reason):
    with pytest.raises(ValueError, match=reason):
        RunningNetwork(Network.started(plan))


def test_refuses_hops_of_another_length():
    running = RunningNetwork(Network.started(PrimalDual(MAP, 2)))
    with pytest.raises(ValueError, match=r"\(5,\)"):
        running.push(np.zeros(5), np.ones(5))


@pytest.mark.parametrize("weights", [np.float32, np.float64])
@pytest.mark.parametrize("cells", [np.float32, np.float64])
def test_every_hop_has_the_type_of_the_cells(weights, cells):
    running = RunningNetwork(disturbed(PrimalDual(MAP, depth=2), 0, 0.1, weights))
    lower = np.zeros(4, cells)
    assert {running.push(lower, lower + cells(1)).dtype for _ in range(9)} == {np.dtype(cells)}
