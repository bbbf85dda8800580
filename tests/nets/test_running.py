"""Networks that are given a hop at a time do what they do to the whole signal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nets.plans import disturbed

from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual
from pdrn.nets.runtime import RunningNetwork

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


def cells(hops, hop, seed):
    signal = np.cumsum(np.random.default_rng(seed).normal(0, 1, hops * hop))
    return np.floor(signal), np.floor(signal) + 1


def hop_by_hop(network, lower, upper):
    running, hop = RunningNetwork(network), network.architecture.map.hop
    before, after = network.architecture.reach
    lower, upper = (np.pad(bound, (before, after)).reshape(-1, hop) for bound in (lower, upper))
    restored = np.concatenate([running.push(*each) for each in zip(lower, upper, strict=True)])
    return restored[before + running.latency :][: restored.size - before - after]


@given(plan=plans, hops=st.integers(1, 8), seed=st.integers(0, 9))
def test_hop_by_hop_is_the_whole(plan, hops, seed):
    network = disturbed(plan, seed, scale=0.1, dtype=np.float64)
    lower, upper = cells(hops, plan.map.hop, seed)
    np.testing.assert_allclose(hop_by_hop(network, lower, upper), network(lower, upper), rtol=0, atol=1e-10)


def test_a_result_has_the_type_of_the_cells_and_lies_in_them():
    network = disturbed(PrimalDual(MAP, 2), 1, scale=5.0, dtype=np.float32)
    lower, upper = cells(6, MAP.hop, 3)
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
def test_what_cannot_run_is_refused(plan, reason):
    with pytest.raises(ValueError, match=reason):
        RunningNetwork(Network.started(plan))


def test_a_hop_has_one_length():
    running = RunningNetwork(Network.started(PrimalDual(MAP, 2)))
    with pytest.raises(ValueError, match=r"\(5,\)"):
        running.push(np.zeros(5), np.ones(5))


@pytest.mark.parametrize("weights", [np.float32, np.float64])
@pytest.mark.parametrize("cells", [np.float32, np.float64])
def test_every_hop_has_the_type_of_the_cells(weights, cells):
    running = RunningNetwork(disturbed(PrimalDual(MAP, depth=2), 0, 0.1, weights))
    lower = np.zeros(4, cells)
    assert {running.push(lower, lower + cells(1)).dtype for _ in range(9)} == {np.dtype(cells)}
