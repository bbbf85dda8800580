"""Comparisons: who enters, how long each is trained, and what is said of it."""

import dataclasses
import math
import shutil

import pytest
from tests.training.folders import reopen

from pdrn.reproduction import studies
from pdrn.reproduction.report import comparison_markdown, comparisons, write_report
from pdrn.reproduction.studies import Comparison, interval
from pdrn.reproduction.tables import known_steps, save_comparison
from pdrn.training.data import TrainingData
from pdrn.training.loop import train
from pdrn.training.runs import run_for, runs_in

FRAME = 32


@pytest.fixture(scope="module")
def extrapolation():
    networks = studies.extrapolation(FRAME, 5, (2,), batches=2)
    some = [entrant for entrant in networks if entrant.labels["map"] == "dense"][:4]
    return Comparison(tuple(some), (4,) * len(some), (1e-3, 1e-2), (0, 1))


@pytest.fixture(scope="module")
def done(extrapolation, corpus, tmp_path_factory):
    """A folder in which all runs of the comparison came to their end."""
    out = tmp_path_factory.mktemp("compared")
    for _, config in extrapolation.trials():
        train(config, corpus, out, threads=1)
    for _, config in extrapolation.repetitions(studies.best_rates(extrapolation, corpus, out)):
        train(config, corpus, out, threads=1)
    return out


def test_neighbours_have_as_many_weights_as_the_first_where_their_kind_allows():
    networks = studies.neighbours(1024, 5)
    counts = {each.labels["network"]: each.config.architecture.parameter_count for each in networks}
    unlike = {name for name, count in counts.items() if not 0.95 < count / counts["PDN"] < 1.05}
    assert unlike == {"PDN, tied", "learned primal-dual"}


def test_every_kind_of_extrapolation_meets_every_kind_of_network():
    networks = studies.extrapolation(256, 5, (2, 5), batches=7)
    assert len({each.name for each in networks}) == 4 * 2 * 2 * 2
    for each in networks:
        assert each.config.data.length * each.config.optimiser.batch_size == 256 * 128
        assert each.config.data.batches == 7


def test_steps_are_shared_out_by_the_time_that_they_take(corpus):
    small, large = studies.neighbours(16, 5)[0], studies.neighbours(512, 5)[0]
    steps = studies.in_equal_time([small, large], corpus, epochs=1, threads=1)
    assert steps[0] == TrainingData.read(corpus, small.config).steps_per_epoch
    assert steps[1] < steps[0] / 2


def test_a_network_counts_with_the_learning_rate_that_is_best_from_the_first_seed(
    extrapolation, done, corpus
):
    found = studies.outcomes(extrapolation, corpus, done)
    assert len(found) == len(extrapolation.entrants)
    for index, outcome in enumerate(found):

        def dev_ratio(rate, seed, index=index):
            run = run_for(extrapolation.config(index, rate, seed), corpus.checksum, done)
            return min(entry["dev_ratio"] for entry in run.log())

        assert list(outcome.dev_ratio) == [dev_ratio(outcome.learning_rate, seed) for seed in (0, 1)]
        assert outcome.dev_ratio[0] == min(dev_ratio(rate, 0) for rate in extrapolation.rates)
        assert len(outcome.test_ratio) == len(outcome.test_snr) == 2
        assert all(0 < ratio < 2 for ratio in outcome.test_ratio)


def test_a_learning_rate_that_could_not_be_trained_does_not_count(extrapolation, done, corpus, tmp_path):
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    runs = {
        rate: run_for(extrapolation.config(0, rate, 0), corpus.checksum, tmp_path)
        for rate in extrapolation.rates
    }
    best = studies.best_rates(extrapolation, corpus, tmp_path)[0]
    reopen(runs.pop(best))
    ((other, run),) = runs.items()
    assert studies.best_rates(extrapolation, corpus, tmp_path)[0] == other
    reopen(run)
    with pytest.raises(ValueError, match="theta 0 could be trained with none of the learning rates; name"):
        studies.best_rates(extrapolation, corpus, tmp_path)


def test_steps_are_measured_once(tmp_path):
    measured = iter([(3, 4), (5, 6)])
    for asked, expected in (({"a": 1}, (3, 4)), ({"a": 1}, (3, 4)), ({"a": 2}, (5, 6))):
        assert known_steps(tmp_path, asked, lambda: next(measured)) == expected


def test_what_was_learned_of_extrapolation_is_told(extrapolation, done, corpus):
    found = {each.labels["theta"]: each.theta for each in studies.outcomes(extrapolation, corpus, done)}
    assert found["0"] == found["1"] == ()
    assert [len(theta) for theta in found["learned"]] == [1, 1]
    assert [len(theta) for theta in found["per layer"]] == [2, 2]
    assert any(value != 1 for theta in found["learned"] for value in theta)


def test_a_report_has_the_means_and_their_intervals(extrapolation, done, corpus):
    found = studies.outcomes(extrapolation, corpus, done)
    asked = {"corpus": "speech", "corpus_sha256": corpus.checksum, "bits": 5, "frame_length": FRAME}
    known = {"task": asked | {"epochs": 2}, "steps": extrapolation.steps}
    save_comparison(done, "extrapolation", known)
    assert comparisons(done) == {}  # it did not come to its end yet
    outcomes = [dataclasses.asdict(each) for each in found]
    name = save_comparison(done, "extrapolation", known | {"results": outcomes})
    rows = [line for line in comparison_markdown(done, name).splitlines() if line.startswith("| dense")]
    assert len(rows) == len(found)
    mean, half = interval(found[0].dev_ratio)
    assert f"{mean:.4f} ± {half:.4f}" in rows[0]
    assert len(runs_in(done)) == extrapolation.run_count == 4 * 3


def test_a_report_draws_extrapolation_and_does_not_list_its_runs_again(extrapolation, done, corpus):
    found = [dataclasses.asdict(each) for each in studies.outcomes(extrapolation, corpus, done)]
    asked = {"corpus": "speech", "corpus_sha256": corpus.checksum, "bits": 5, "frame_length": FRAME}
    known = {"task": asked | {"epochs": 2}, "runs": [run.name for run in runs_in(done)], "results": found}
    name = save_comparison(done, "extrapolation", known)
    write_report(done, done / "report")
    text = (done / "report" / "report.md").read_text()
    assert f"({name}.png)" in text
    assert (done / "report" / f"{name}.png").stat().st_size > 10_000
    assert "Other networks" not in text


def test_a_single_value_has_no_interval():
    assert interval([3.0])[0] == 3.0
    assert math.isnan(interval([3.0])[1])


def test_networks_start_where_cells_of_their_bit_depth_want():
    sigmas = {
        bits: {
            entrant.config.start.sigma
            for entrant in studies.iterating(16, bits, (2,), batches=1)
            if entrant.config.start.kind == "chambolle pock"
        }
        for bits in (4, 5, 6)
    }
    assert sigmas == {4: {10.0}, 5: {20.0}, 6: {40.0}}
