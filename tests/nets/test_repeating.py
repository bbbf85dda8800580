"""Networks that go on after their last layer."""

import numpy as np
import pytest
from tests.nets.plans import CONVOLUTIONAL, DENSE, FAMILY, cells_for, disturbed

from pdrn.nets import Network, PrimalDual
from pdrn.nets.related import LISTA
from pdrn.nets.runtime import repeated

ONE_STAGE = {name: plan for name, plan in FAMILY.items() if plan.stages == 1}


@pytest.mark.parametrize("name", ONE_STAGE)
def test_the_layers_that_were_trained_stay_and_the_last_comes_again(name):
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


def test_the_extrapolation_after_the_last_layer_is_that_of_the_one_before():
    network = disturbed(PrimalDual(DENSE, 3, learn_theta="per layer"), seed=3)
    theta = network.weights["theta"]
    np.testing.assert_array_equal(repeated(network, 6).weights["theta"], [*theta[:2], *4 * [theta[1]]])


def test_a_tied_network_at_its_start_goes_on_as_the_solver_does():
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
def test_what_has_no_block_to_repeat_is_refused(plan, depth, message):
    with pytest.raises(ValueError, match=message):
        repeated(Network.started(plan), depth)
