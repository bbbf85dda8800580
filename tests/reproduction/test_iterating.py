"""Iterating beyond training."""

import dataclasses

import numpy as np
import pytest
import torch

from pdrn.convex import L1, Box
from pdrn.nets import DenseMap, Network, PrimalDual
from pdrn.reproduction import studies
from pdrn.reproduction.report import write_report
from pdrn.reproduction.studies import Comparison, course, iterated
from pdrn.reproduction.tables import save_comparison
from pdrn.training.config import from_table
from pdrn.training.data import Examples
from pdrn.training.loop import Learner, train

DATA = {"length": 32, "placing": "random", "batches": 2}


def settings(depth, last_layers=0, **network):
    plan = {"kind": "PrimalDual", "depth": depth, "tying": "tied", "theta": 1.0}
    plan |= {"map": {"kind": "DenseMap", "samples": 32}} | network
    loss = {"last_layers": last_layers}
    return from_table({"recipe": "modern", "architecture": plan, "data": DATA, "loss": loss})


def test_a_tied_network_at_its_start_closes_the_gap_of_its_problem(corpus):
    config = settings(3)
    found = course(Network.started(config.architecture), config, corpus, 60)
    assert len(found.ratio) == len(found.gap) == 60
    assert found.gap[-1] < found.gap[2] / 5
    assert all(np.isfinite(found.ratio))


def test_the_course_of_an_untied_network_has_errors_alone(corpus):
    config = settings(2, tying="untied")
    found = course(Network.started(config.architecture), config, corpus, 5)
    assert len(found.ratio) == 5
    assert found.gap == ()


def test_the_error_at_the_trained_depth_is_that_of_the_log(corpus, tmp_path):
    config = dataclasses.replace(settings(3), budget=dataclasses.replace(settings(3).budget, epochs=1))
    run = train(config, corpus, tmp_path, threads=1)
    found = course(run.best(), config, corpus, 6)
    assert found.ratio[2] == pytest.approx(run.log()[-1]["dev_ratio"], rel=1e-5)


def test_gradients_through_fewer_layers_keep_less_in_memory(corpus):
    kept = []
    for last in (0, 4, 1):
        config = settings(8, last)
        kept.append(course(Network.started(config.architecture), config, corpus, 8).activation_bytes)
    assert kept[0] > 1.5 * kept[1] > 2 * kept[2] > 0


def test_a_report_draws_what_happens_beyond_training(corpus, tmp_path):
    networks = studies.iterating(16, 5, (4,), batches=1)[:3]
    contest = Comparison(networks, (2, 2, 2), (1e-3,), (0,))
    for _, config in contest.trials():
        train(config, corpus, tmp_path, threads=1)
    found = [iterated(each, corpus, tmp_path) for each in studies.outcomes(contest, corpus, tmp_path)]
    asked = {"corpus": "speech", "corpus_sha256": corpus.checksum, "bits": 5, "frame_length": 16, "epochs": 2}
    outcomes = [dataclasses.asdict(each) for each in found]
    name = save_comparison(tmp_path, "iterating", {"task": asked, "results": outcomes})
    write_report(tmp_path, tmp_path / "report")
    assert "activations / MB" in (tmp_path / "report" / "report.md").read_text()
    assert (tmp_path / "report" / f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "network",
    [
        {"tying": "untied"},
        {"depth": 2},
        {"memory": "bias"},
        {"memory": "gain"},
        {"weighting": "spectrum"},
        {"learn_theta": "per layer"},
        {"learn_theta": "once", "last_layers": 1},
    ],
    ids=str,
)
def test_truncation_is_for_tied_networks_that_have_so_many_layers(network):
    with pytest.raises(ValueError, match=r"loss\.last_layers is for tied"):
        settings(**({"depth": 4, "last_layers": 3} | network))


def test_truncated_gradients_are_those_of_the_last_layers_alone():
    """With one layer learned, the gradient is that of one block from where the others ended."""
    config = settings(3, last_layers=1)
    learner = Learner(config, 1)
    generator = np.random.default_rng(0)
    signal = generator.normal(0, 0.2, (4, 32)).astype(np.float32)
    lower = np.floor(16 * signal) / np.float32(16)
    examples = Examples(signal, lower, lower + np.float32(1 / 16), np.ones(4))
    learner.products(examples)
    weights = {name: part.detach().clone().requires_grad_() for name, part in learner.weights.items()}
    plan = PrimalDual(DenseMap(32), 3, tying="tied", theta=1.0)
    cells = Box(torch.tensor(lower), torch.tensor(examples.upper))
    activations = plan.activations(weights, cells)
    next(activations)
    before = next(activations)
    detached = type(before)(*(getattr(before, name).detach() for name in ("x", "y", "x_bar")))
    block = plan.block(2, weights, plan.map)
    loss = (block(L1(), cells, detached).x - torch.tensor(signal)).square().mean()
    loss.backward()
    for name, part in learner.weights.items():
        torch.testing.assert_close(part.grad, weights[name].grad)
