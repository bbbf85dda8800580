"""The grid of the paper, on a small scale."""

import dataclasses
import shutil

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from tests.reproduction.conftest import SMALL

from pdrn.audio.corpus import Corpus
from pdrn.errors import InputError
from pdrn.reproduction.grid import Grid, default_lambdas, train_network
from pdrn.reproduction.tables import DEPTHS, KINDS, Variant, variant_of
from pdrn.training.runs import run_for, runs_in


def test_grid_is_that_of_table_1():
    grid = Grid()
    configs = grid.configs_before_lambda() + grid.configs_after_lambda({"PDN": 1e-8, "PDRN": 1e-9})
    variants = [variant_of(config) for config in configs]
    assert set(variants) == {Variant(k, r, d) for k in KINDS for r in (False, True) for d in DEPTHS}
    assert len(configs) == 20 + 2 * 2  # two more lambdas at one depth
    assert {config.data.length for config in configs} == {1024}
    assert {config.budget.epochs for config in configs} == {1000}
    assert grid.config("PDRN", 10).architecture.parameter_count == 10 * (2 * 1024**2 + 1024)


def test_grid_trains_each_run_once(finished):
    assert len(runs_in(finished)) == 4 + 2 * 2 + 2


def test_lambda_is_chosen_at_depth_two_by_default():
    assert Grid().depth_for_lambda == 2
    assert Grid(depths=(5, 10)).depth_for_lambda == 5
    grid = Grid(lambda_depth=10, lambdas=(1e-8,))
    regularised = [c for c in grid.configs_before_lambda() if c.loss.regularisation]
    assert {c.architecture.depth for c in regularised} == {10}
    assert {c.architecture.depth for c in grid.configs_after_lambda({"PDN": 1e-8})} == {1, 2, 5, 15}


def test_lambda_is_chosen_on_the_development_set(finished, corpus):
    errors = SMALL.dev_errors(corpus, finished)
    for kind, value in SMALL.choose_lambdas(corpus, finished).items():
        assert errors[kind][value] == min(errors[kind].values())
        run = run_for(SMALL.config(kind, 2, value), corpus.checksum, finished)
        assert errors[kind][value] == min(entry["dev_mse"] for entry in run.log())


def test_lambda_is_chosen_among_trained_candidates(runs, corpus):
    for kind, values in (("PDN", (1e-8,)), ("PDRN", (1e-8, 1e-2))):
        for value in values:
            shutil.rmtree(run_for(SMALL.config(kind, 2, value), corpus.checksum, runs).folder)
    assert SMALL.choose_lambdas(corpus, runs) == {}
    assert SMALL.choose_lambdas(corpus, runs, partial=True) == {"PDN": 1e-2}


@given(st.sets(st.sampled_from([1e-9, 1e-8, 1e-7, 1e-6])), st.data())
def test_warns_of_lambda_at_an_end(lambdas, data):
    grid = Grid(lambdas=tuple(lambdas))
    chosen = {kind: data.draw(st.sampled_from(sorted(lambdas))) for kind in KINDS} if lambdas else {}
    at_end = [v for v in chosen.values() if len(lambdas) > 1 and v in (min(lambdas), max(lambdas))]
    assert len(grid.lambda_warnings(chosen)) == len(at_end)
    assert len(grid.lambda_warnings({})) == (2 if lambdas else 0)


def test_lambda_is_proportional_to_squared_cell_width():
    assert default_lambdas(5) == (1e-8, 1e-7, 1e-6)
    assert default_lambdas(6) == pytest.approx((2.5e-9, 2.5e-8, 2.5e-7))


def test_table_has_only_networks_of_the_grid(finished, corpus):
    _, table = dataclasses.replace(SMALL, depths=(2,), lambdas=()).table(corpus, finished)
    assert set(table) == {Variant(kind, False, 2) for kind in KINDS}
    _, table = dataclasses.replace(SMALL, depths=(2,), lambdas=(1e-2,)).table(corpus, finished)
    assert {r.config.loss.regularisation for r in table.values()} == {0, 1e-2}  # though 1e-8 is better


def test_corpus_is_identified_by_checksum(finished, corpus, tmp_path):
    (tmp_path / "link").symlink_to(corpus.folder)
    shutil.copytree(corpus.folder, tmp_path / "copy")
    experiment, table = SMALL.table(corpus, finished)
    for name, resolved in (("link", corpus.folder.name), ("copy", "copy")):
        again, same = SMALL.table(Corpus.scan(tmp_path / name), finished)
        assert same == table
        assert (again, again.corpus) == (experiment, resolved)


def test_failed_training_returns_its_error(corpus, tmp_path):
    config = Grid(epochs=1, frame_length=10**6).config("PDN", 1)
    result = train_network(config, corpus, tmp_path, threads=1)
    assert result.run is None
    assert "1000000 samples" in result.error


def test_plan_counts_remaining_multiplications(finished, corpus, tmp_path):
    frames = {split: sum(len(s) // 32 for s in corpus.signals(split)) for split in ("train", "dev")}
    per_frame = 2 * 2 * 32 * 32
    plan = {each.name: each for each in SMALL.plan(corpus, tmp_path, threads=0)}
    assert len(plan) == 4 + 2 * 2 + 2
    expected = per_frame * (3 * frames["train"] + frames["dev"])
    assert plan["PDN L=2 lambda=0"].multiplications == expected
    assert plan["PDN L=1 lambda as chosen"].epochs_done == 0
    assert {each.multiplications for each in SMALL.plan(corpus, finished, threads=0)} == {0}
    longer = dataclasses.replace(SMALL, epochs=4).plan(corpus, finished, threads=1)
    assert {each.epochs_done for each in longer if each.name.endswith("lambda=0")} == {1}


def test_refuses_unusable_corpus_or_metric_before_training(corpus):
    SMALL.check(corpus, [])
    entries = [dataclasses.replace(e, frames=31 if e.split == "test" else e.frames) for e in corpus.entries]
    with pytest.raises(InputError, match="test split"):
        SMALL.check(dataclasses.replace(corpus, entries=tuple(entries)), [])
    pytest.importorskip("pesq")
    with pytest.raises(InputError, match="44100"):
        SMALL.check(dataclasses.replace(corpus, sample_rate_hz=44100), ["pesq"])


@pytest.mark.parametrize("samples", [None, np.zeros(400), np.r_[np.zeros(320), np.ones(20)]])
def test_refuses_empty_or_silent_test_set_before_training(tmp_path, samples):
    for split in ("train", "dev", "test"):
        (tmp_path / split).mkdir()
        if split != "test":
            soundfile.write(tmp_path / split / "a.wav", np.sin(np.arange(320)), 16000)
    if samples is not None:
        soundfile.write(tmp_path / "test" / "a.wav", samples, 16000)
    with pytest.raises(InputError, match="test split" if samples is None else r"a\.wav"):
        SMALL.check(Corpus.scan(tmp_path), [])


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": "cake"},
        {"lambdas": (), "lambda_depth": 2},
        {"depths": ()},
        {"depths": (0,)},
        {"depths": (1, 1)},
        {"lambdas": (1e-8, 1e-8)},
        {"lambdas": (0.0,)},
        {"depths": (1, 2), "lambda_depth": 5},
    ],
    ids=str,
)
def test_refuses_invalid_grids(change):
    with pytest.raises(InputError):
        Grid(**change)
