"""Studies: candidates, how long each is trained, and the report of their errors."""

import dataclasses
import math
import shutil

import numpy as np
import pytest
from tests.training.folders import reopen

from pdrn.errors import InputError
from pdrn.nets import Network
from pdrn.reproduction.report import comparison_section, markdown, write_report
from pdrn.reproduction.studies import (
    Comparison,
    add_curve,
    candidates,
    confidence_interval,
    equal_time_steps,
    iterate,
    load_comparisons,
    save_comparison,
    saved_steps,
)
from pdrn.training.config import Budget, from_table
from pdrn.training.data import TrainingData
from pdrn.training.loop import train
from pdrn.training.runs import run_for, runs_in

FRAME = 32


def study(name, frame_length=FRAME, bits=5, depths=(2,), batches=2):
    return candidates(name, frame_length, bits, depths, batches, sample_rate_hz=0)


@pytest.fixture(scope="module")
def comparison():
    some = [each for each in study("extrapolation") if each.labels["map"] == "dense"][:4]
    return Comparison(tuple(each.trained_for(4) for each in some), (1e-3, 1e-2), (0, 1))


@pytest.fixture(scope="module")
def done(comparison, corpus, tmp_path_factory):
    """A folder with all runs of the comparison."""
    out = tmp_path_factory.mktemp("compared")
    for _, config in comparison.trials():
        train(config, corpus, out, threads=1)
    for _, config in comparison.repetitions(comparison.best_rates(corpus, out)):
        train(config, corpus, out, threads=1)
    return out


def saved(corpus, measured, **more):
    task = {"corpus": "speech", "corpus_sha256": corpus.checksum, "bits": 5, "frame_length": FRAME}
    results = [dataclasses.asdict(each) for each in measured]
    return {"task": task | {"epochs": 2}, "runs": [], "results": results} | more


def test_neighbours_have_similar_sizes():
    networks = study("neighbours", 1024)
    counts = {each.labels["network"]: each.config.architecture.parameter_count for each in networks}
    unlike = {name for name, count in counts.items() if not 0.95 < count / counts["PDN"] < 1.05}
    assert unlike == {"PDN, tied", "learned primal-dual"}


def test_extrapolation_crosses_all_kinds():
    networks = study("extrapolation", 256, depths=(2, 5), batches=7)
    assert len({each.name for each in networks}) == 4 * 2 * 2 * 2
    for each in networks:
        assert each.config.data.length * each.config.optimiser.batch_size == 256 * 128
        assert each.config.data.batches == 7


def test_sigma_is_inversely_proportional_to_cell_width():
    sigmas = {
        bits: {
            each.config.start.sigma
            for each in study("iterating", 16, bits)
            if each.config.start.kind == "chambolle pock"
        }
        for bits in (4, 5, 6)
    }
    assert sigmas == {4: {10.0}, 5: {20.0}, 6: {40.0}}


def test_slower_networks_get_fewer_steps(corpus):
    small, large = study("neighbours", 16)[0], study("neighbours", 512)[0]
    steps = equal_time_steps([small, large], corpus, epochs=1, threads=1)
    assert steps[0] == TrainingData.read(corpus, small.config).steps_per_epoch
    assert steps[1] < steps[0] / 2


def test_steps_are_measured_once(tmp_path):
    measured = iter([(3, 4), (5, 6)])
    for task, expected in (({"a": 1}, (3, 4)), ({"a": 1}, (3, 4)), ({"a": 2}, (5, 6))):
        assert saved_steps(tmp_path, task, lambda: next(measured)) == expected


def test_measures_the_best_rate_of_the_first_seed(comparison, done, corpus):
    assert len(runs_in(done)) == comparison.run_count == 4 * 3
    found = comparison.measure(corpus, done)
    for candidate, result in zip(comparison.candidates, found, strict=True):

        def dev_ratio(rate, seed, candidate=candidate):
            run = run_for(candidate.run_config(rate, seed), corpus.checksum, done)
            return min(entry["dev_ratio"] for entry in run.log())

        assert list(result.dev_ratio) == [dev_ratio(result.learning_rate, seed) for seed in (0, 1)]
        assert result.dev_ratio[0] == min(dev_ratio(rate, 0) for rate in comparison.rates)
        assert len(result.test_ratio) == len(result.test_snr) == 2
        assert all(0 < ratio < 2 for ratio in result.test_ratio)


def test_measures_learned_theta(comparison, done, corpus):
    found = {each.labels["theta"]: each.theta for each in comparison.measure(corpus, done)}
    assert found["0"] == found["1"] == ()
    assert [len(theta) for theta in found["learned"]] == [1, 1]
    assert [len(theta) for theta in found["per layer"]] == [2, 2]
    assert any(value != 1 for theta in found["learned"] for value in theta)


def test_diverged_rates_do_not_count(comparison, done, corpus, tmp_path):
    out = shutil.copytree(done, tmp_path / "runs")
    first = comparison.candidates[0]
    runs = {rate: run_for(first.run_config(rate, 0), corpus.checksum, out) for rate in comparison.rates}
    reopen(runs.pop(comparison.best_rates(corpus, out)[0]))
    ((other, run),) = runs.items()
    assert comparison.best_rates(corpus, out)[0] == other
    reopen(run)
    with pytest.raises(InputError, match="theta 0"):
        comparison.best_rates(corpus, out)


def test_comparison_shows_confidence_intervals(comparison, done, corpus):
    found = comparison.measure(corpus, done)
    text = comparison_section("extrapolation-any", saved(corpus, found))
    rows = [line for line in text.splitlines() if line.startswith("| dense")]
    assert len(rows) == len(found)
    mean, half = confidence_interval(found[0].dev_ratio)
    assert f"{mean:.4f} ± {half:.4f}" in rows[0]


def test_report_of_extrapolation(comparison, done, corpus, tmp_path):
    out = shutil.copytree(done, tmp_path / "runs")
    assert "Other networks" in markdown(out)
    names = [run.name for run in runs_in(out)]
    name = save_comparison(out, "extrapolation", saved(corpus, comparison.measure(corpus, out), runs=names))
    text = write_report(out, out / "report").read_text()
    assert f"({name}.png)" in text
    assert (out / "report" / f"{name}.png").stat().st_size > 10_000
    assert "Other networks" not in text


def test_refuses_damaged_comparison(corpus, tmp_path):
    name = save_comparison(tmp_path, "neighbours", saved(corpus, []))
    assert list(load_comparisons(tmp_path)) == [name]
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace("speech", "music"))
    with pytest.raises(InputError, match="is damaged"):
        load_comparisons(tmp_path)


def test_single_value_has_no_interval():
    assert confidence_interval([3.0])[0] == 3.0
    assert math.isnan(confidence_interval([3.0])[1])


def tied(depth, last_layers=0, **network):
    plan = {"kind": "PrimalDual", "depth": depth, "tying": "tied", "theta": 1.0}
    plan |= {"map": {"kind": "DenseMap", "samples": 32}} | network
    data, loss = {"length": 32, "placing": "random", "batches": 2}, {"last_layers": last_layers}
    return from_table({"recipe": "modern", "architecture": plan, "data": data, "loss": loss})


def test_untrained_tied_network_closes_the_gap(corpus):
    config = tied(3)
    curve = iterate(Network.started(config.architecture), config, corpus, 60)
    assert len(curve.ratio) == len(curve.gap) == 60
    assert curve.gap[-1] < curve.gap[2] / 5
    assert all(np.isfinite(curve.ratio))


def test_untied_network_has_no_gap(corpus):
    config = tied(2, tying="untied")
    curve = iterate(Network.started(config.architecture), config, corpus, 5)
    assert len(curve.ratio) == 5
    assert curve.gap == ()


def test_curve_at_trained_depth_equals_log(corpus, tmp_path):
    config = dataclasses.replace(tied(3), budget=Budget(epochs=1))
    run = train(config, corpus, tmp_path, threads=1)
    curve = iterate(run.best(), config, corpus, 6)
    assert curve.ratio[2] == pytest.approx(run.log()[-1]["dev_ratio"], rel=1e-5)


def test_truncated_gradients_store_fewer_activations(corpus):
    stored = []
    for last in (0, 4, 1):
        config = tied(8, last)
        stored.append(iterate(Network.started(config.architecture), config, corpus, 8).activation_bytes)
    assert stored[0] > 1.5 * stored[1] > 2 * stored[2] > 0


def test_report_of_iterating(corpus, tmp_path):
    some = study("iterating", 16, depths=(4,), batches=1)[:3]
    comparison = Comparison(tuple(each.trained_for(2) for each in some), (1e-3,), (0,))
    for _, config in comparison.trials():
        train(config, corpus, tmp_path, threads=1)
    measured = [add_curve(each, corpus, tmp_path) for each in comparison.measure(corpus, tmp_path)]
    name = save_comparison(tmp_path, "iterating", saved(corpus, measured))
    assert "activations / MB" in write_report(tmp_path, tmp_path / "report").read_text()
    assert (tmp_path / "report" / f"{name}.png").stat().st_size > 10_000
