"""One step of learning: the loss (4.2), Adam, clipping and averaging."""

import re

import numpy as np
import pytest
import torch
from tests.conftest import TINY
from tests.nets.plans import disturbed

from pdrn.convex import L1, Box
from pdrn.nets import DenseMap, PrimalDual
from pdrn.nets.files import Provenance, encode, save
from pdrn.nets.torch import NetworkModule, State
from pdrn.training.config import from_table, run_name
from pdrn.training.data import Batch
from pdrn.training.loop import STEPS_PER_AVERAGE, Trainer, initial_weights, learning_rate, train
from pdrn.training.losses import regularisation

NETWORK = {"kind": "PrimalDual", "depth": 2, "memory": "bias", "map": {"kind": "DenseMap", "samples": 32}}


def config(**parts):
    return from_table({"recipe": "paper", "architecture": NETWORK, **parts})


def examples(seed=0, rows=8):
    signal = np.random.default_rng(seed).normal(0, 0.2, (rows, 32)).astype(np.float32)
    lower = np.floor(16 * signal) / np.float32(16)
    return Batch(signal, lower, lower + np.float32(1 / 16), np.ones(rows))


@pytest.mark.parametrize("regularised", ["kernels", "all"])
def test_a_step_is_that_of_adam_on_the_loss_of_the_paper(regularised):
    settings = config(
        loss={"regularisation": 0.01, "regularised": regularised}, optimiser={"learning_rate": 1e-3}
    )
    trainer = Trainer(settings, 100)
    net = NetworkModule(settings.architecture, initial_weights(settings))
    adam = torch.optim.Adam(net.parameters(), lr=1e-3)
    for seed in range(5):
        these = examples(seed)
        restored = net(torch.tensor(these.lo), torch.tensor(these.hi))
        mse = (restored - torch.tensor(these.signal)).square().mean()
        squares = sum(p.square().sum() for p in net.parameters() if regularised == "all" or p.ndim == 2)
        adam.zero_grad()
        (mse + 0.01 * squares).backward()
        loss, reported = trainer.step(these)
        assert loss == reported == pytest.approx(mse.item(), rel=1e-5)
        if seed == 0:
            assert regularisation(settings.loss, trainer.module) != 0
        adam.step()
    for name, part in net.named_parameters():
        assert torch.allclose(part, trainer.module.get_parameter(name), atol=2e-6), name


def test_a_weight_without_a_say_stays_where_it_is():
    """One layer has nothing to extrapolate to."""
    one_layer = NETWORK | {"depth": 1, "theta": 0.5, "learn_theta": "per layer"}
    trainer = Trainer(from_table({"recipe": "paper", "architecture": one_layer}), 100)
    before = trainer.module.get_parameter("W.0").detach().clone()
    trainer.step(examples())
    assert trainer.module.get_parameter("theta").tolist() == [0.5]
    assert not torch.equal(trainer.module.get_parameter("W.0"), before)


def test_the_relative_loss_is_the_mean_of_the_ratios():
    settings = config(loss={"relative": True})
    these = examples()
    trainer = Trainer(settings, 100)
    restored = trainer.restore(these.lo, these.hi)
    error = np.square(restored - these.signal).mean(-1)
    noise = np.square((these.lo + these.hi) / 2 - these.signal).mean(-1)
    loss, mse = trainer.step(these)
    assert loss == pytest.approx(np.mean(error / noise), rel=1e-4)
    assert mse == pytest.approx(error.mean(), rel=1e-4)


def test_errors_are_reported_in_full_scale_whatever_the_unit():
    settings = config(data={"unit": "cell", "bits": [3, 8]})
    these = examples()
    scale = np.linspace(0.1, 1, 8)
    trainer = Trainer(settings, 100)
    restored = trainer.restore(these.lo, these.hi)
    errors = np.square(restored - these.signal).mean(-1)
    loss, mse = trainer.step(Batch(these.signal, these.lo, these.hi, scale))
    assert loss == pytest.approx(errors.mean(), rel=1e-4)
    assert mse == pytest.approx((errors * scale**2).mean(), rel=1e-4)


def test_a_segment_without_any_error_does_not_spoil_the_relative_loss():
    trainer = Trainer(config(loss={"relative": True}), 100)
    zero = np.zeros((2, 32), np.float32)
    loss, _ = trainer.step(Batch(zero, zero - np.float32(0.5), zero + np.float32(0.5), np.ones(2)))
    assert np.isfinite(loss)
    assert all(torch.isfinite(part).all() for part in trainer.module.parameters())


def test_long_gradients_are_cut_and_short_ones_left():
    def gradient(longest):
        trainer = Trainer(config(optimiser={"clip_norm": longest}), 100)
        trainer.step(examples())
        return np.concatenate([part.grad.numpy().ravel() for part in trainer.module.parameters()])

    free = gradient(0.0)
    norm = np.linalg.norm(free)
    assert np.array_equal(gradient(2 * float(norm)), free)
    assert np.allclose(gradient(float(norm) / 4), free / 4, rtol=5e-3)


def test_the_network_is_the_average_where_there_is_one():
    trainer = Trainer(config(optimiser={"averaging": 0.5, "learning_rate": 0.1}), 100)

    def moved(steps, seen):
        """Learn, and tell what is left of the former average."""
        before = trainer.averaged.network().weights["W.0"].copy()
        for seed in range(steps):
            assert np.array_equal(trainer.averaged.network().weights["W.0"], before)
            trainer.step(examples(seed))
        if seen:
            trainer.update_average()
        after, average = (
            trainer.module.get_parameter("W.0").detach().numpy(),
            trainer.averaged.network().weights["W.0"],
        )
        return np.linalg.norm(average - after) / np.linalg.norm(before - after)

    for step in range(1, STEPS_PER_AVERAGE + 1):
        assert moved(1, seen=False) == pytest.approx(min(0.5, (1 + step) / (10 + step)), abs=1e-4)
    assert moved(STEPS_PER_AVERAGE, seen=False) == pytest.approx(0.5**STEPS_PER_AVERAGE, abs=1e-4)
    assert moved(3, seen=True) == pytest.approx(0.5**3, abs=1e-4)
    assert moved(STEPS_PER_AVERAGE, seen=False) == pytest.approx(0.5**STEPS_PER_AVERAGE, abs=1e-4)


def test_the_learning_rate_rises_and_falls_as_it_should():
    shape = {"learning_rate": 2.0, "schedule": "cosine", "final_share": 0.1, "warmup_steps": 9}
    optimiser = config(optimiser=shape).optimiser
    rates = [learning_rate(optimiser, step, 1000) for step in (0, 4, 9, 500, 1000)]
    assert rates == pytest.approx([0.2, 1.0, 2.0, 1.1, 0.2], rel=1e-3)
    constant = config(optimiser={"learning_rate": 2.0}).optimiser
    assert {learning_rate(constant, step, 10) for step in range(10)} == {2.0}


@pytest.mark.parametrize("kind", ["own", "chambolle pock", "glorot", "identity"])
def test_networks_start_where_the_configuration_says(kind):
    steps = {"sigma": 3.0, "tau": 0.2} if kind == "chambolle pock" else {}
    settings = config(start={"kind": kind} | steps)
    weights = initial_weights(settings)
    if kind == "chambolle pock":
        assert np.allclose(weights["W.0"] @ weights["V.1"].T, -0.6 * np.eye(32), atol=1e-9)
    elif kind == "own":
        assert np.allclose(weights["W.0"] @ weights["V.1"].T, -1.0 * np.eye(32), atol=1e-9)
    else:
        assert weights["W.0"].max() == pytest.approx(np.sqrt(6 / 64), rel=0.01)
        assert (weights["V.0"] == 0).all() == (kind == "identity")


@pytest.fixture
def learned(tmp_path):
    """The file of a network that has learned something, in units of the cell."""
    network = disturbed(TINY["speech-large"], 5, 0.1, np.float32)
    save(tmp_path / "learned.safetensors", network, Provenance("cell", 16000))
    return tmp_path / "learned.safetensors", network


def adapting(path, **changes):
    start = {"kind": "network", "network": str(path)}
    data = {"unit": "cell", "length": 1024, "placing": "random", "measured_on": "files"}
    return from_table({"start": start, "data": data, "optimiser": {"batch_size": 4}} | changes)


def test_training_starts_at_a_network_that_was_learned(learned, corpus, tmp_path):
    path, network = learned
    settings = adapting(path, budget={"steps": 1}, optimiser={"batch_size": 4, "learning_rate": 1e-12})
    assert settings.architecture == network.architecture
    run = train(settings, corpus, tmp_path / "runs", threads=1)
    for name, part in run.best().weights.items():
        np.testing.assert_allclose(part, network.weights[name], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architecture": encode(TINY["speech-small"])}, "has another architecture; leave the arch"),
        ({"data": {"unit": "full scale", "length": 1024}}, 'another unit; set data.unit = "cell"'),
    ],
    ids=["architecture", "unit"],
)
def test_a_start_at_a_network_that_does_not_fit_is_refused(learned, changes, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        Trainer(adapting(learned[0], **changes), 1)


def test_a_run_does_not_outlast_the_network_that_it_started_at(learned):
    path, network = learned
    before = adapting(path)
    save(path, disturbed(network.architecture, 6, 0.1, np.float32), Provenance("cell", 16000), overwrite=True)
    after = adapting(path)
    assert run_name(before, "") != run_name(after, "")
    Trainer(after, 1)
    with pytest.raises(ValueError, match="changed"):
        Trainer(before, 1)
    with pytest.raises(ValueError, match="changed"):
        Trainer(adapting(path, start={**encode(after.start), "network_sha256": "0" * 64}), 1)


def test_a_start_at_no_network_is_refused():
    with pytest.raises(ValueError, match="no model is called 'nowhere', and no file"):
        adapting("nowhere")


def test_truncated_gradients_are_those_of_the_last_layers_alone():
    """With one layer learned, the gradient is that of one block from where the others ended."""
    plan = PrimalDual(DenseMap(32), 3, tying="tied", theta=1.0)
    tied = {"architecture": encode(plan), "loss": {"last_layers": 1}}
    trainer, batch = Trainer(from_table(tied), 1), examples(rows=4)
    trainer.gradient(batch)
    weights = {
        name: part.detach().clone().requires_grad_() for name, part in trainer.module.named_parameters()
    }
    cells = Box(torch.tensor(batch.lo), torch.tensor(batch.hi))
    states = plan.states(weights, cells)
    next(states)
    before = next(states)
    detached = State(before.x.detach(), before.y.detach(), before.x_bar.detach(), L1(), cells)
    block = plan.block(2, weights, plan.map)
    loss = (block(detached).x - torch.tensor(batch.signal)).square().mean()
    loss.backward()
    for name, part in trainer.module.named_parameters():
        torch.testing.assert_close(part.grad, weights[name].grad)
