"""Tables 1 and 2 from run folders."""

import dataclasses
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reproduction.conftest import SMALL, train_grid

from pdrn.errors import InputError
from pdrn.nets import files
from pdrn.reproduction.evaluate import evaluate
from pdrn.reproduction.grid import Grid
from pdrn.reproduction.tables import (
    DEPTHS,
    KINDS,
    PAPER_TABLE_1,
    PAPER_TABLE_2,
    Experiment,
    Result,
    Variant,
    best_results,
    by_experiment,
    grid_config,
    lambdas_tried,
    load_example,
    load_results,
    load_table_2,
    measure_table_2,
    table_1,
    variant_of,
)
from pdrn.training.config import Data, from_table
from pdrn.training.runs import Run, runs_in


def results_in(folder):
    return by_experiment(load_results(runs_in(folder)))


@given(
    kind=st.sampled_from(KINDS),
    depth=st.integers(1, 20),
    regularisation=st.sampled_from([0.0, 1e-8, 1e-3]),
    recipe=st.sampled_from(["paper", "modern"]),
    bits=st.integers(1, 16),
    length=st.sampled_from([32, 1024]),
    seed=st.integers(0, 9),
)
def test_variant_of_grid_networks(kind, depth, regularisation, recipe, bits, length, seed):
    config = grid_config(kind, depth, regularisation, recipe, bits, length)
    config = dataclasses.replace(config, seed=seed)
    assert variant_of(config) == Variant(kind, regularisation > 0, depth)


DENSE = {"kind": "DenseMap", "samples": 32}
FILTERS = {"kind": "ConvolutionalMap", "channels": 8, "window": 16, "hop": 8}
NETWORK = {"kind": "PrimalDual", "depth": 1, "map": DENSE}


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": ""},
        {"architecture": NETWORK | {"map": FILTERS}},
        {"architecture": NETWORK | {"memory": "mix"}},
        {"architecture": NETWORK | {"theta": 1.0}},
        {"architecture": NETWORK | {"tying": "tied"}},
        {"architecture": {"kind": "LISTA", "depth": 1, "map": DENSE}},
        {"data": {"length": 32, "placing": "random"}},
        {"data": {"length": 32, "quantizer": "mid-tread"}},
        {"data": {"length": 32, "unit": "cell"}},
        {"data": {"length": 32, "bits": [5, 8]}},
        {"data": {"length": 32, "bits": 5.5}},
        {"start": {"kind": "identity"}},
        {"optimiser": {"learning_rate": 1e-2}},
        {"loss": {"relative": True}},
    ],
    ids=str,
)
def test_variant_of_other_networks_is_none(change):
    table = {"recipe": "paper", "architecture": NETWORK, "data": {"length": 32}}
    assert variant_of(from_table(table)) == Variant("PDN", False, 1)
    assert variant_of(from_table(table | change)) is None


def test_table_1_has_the_better_lambda(finished, corpus):
    _, table = SMALL.table(corpus, finished)
    assert set(table) == {Variant(k, r, d) for k in KINDS for r in (False, True) for d in (1, 2)}
    for variant, result in table.items():
        assert result.config.loss.regularisation == (1e-8 if variant.regularised else 0)
        assert result.min_mse("dev") == result.log[0]["dev_mse"]
    best = best_results(table)["PDN"].min_mse("dev")
    assert best == min(r.min_mse("dev") for v, r in table.items() if v.kind == "PDN")


def test_lambdas_tried(finished, corpus):
    (results,) = results_in(finished).values()
    tried, errors = lambdas_tried(results), SMALL.dev_errors(corpus, finished)
    assert set(tried) == {Variant(kind, True, 2) for kind in KINDS}
    for variant, found in tried.items():
        assert {value: result.min_mse("dev") for value, result in found.items()} == errors[variant.kind]


def test_longest_training_counts(runs, corpus):
    train_grid(Grid(depths=(1,), epochs=2, frame_length=32, lambdas=()), corpus, runs)
    (results,) = results_in(runs).values()
    epochs = {variant: result.epochs for variant, result in table_1(results).items()}
    assert epochs[Variant("PDN", False, 1)] == 2
    assert epochs[Variant("PDN", True, 1)] == 1


def test_each_seed_has_its_own_table(runs, corpus):
    train_grid(Grid(depths=(1,), epochs=1, frame_length=32, lambdas=(), seed=5), corpus, runs)
    tables = {experiment: table_1(results) for experiment, results in results_in(runs).items()}
    assert {experiment.seed: len(table) for experiment, table in tables.items()} == {0: 8, 5: 2}
    assert len({experiment.name for experiment in tables}) == 2


@pytest.mark.parametrize(("rate", "resampled"), [(16000, 0), (16000, 16000), (8000, 0), (48000, 0)])
def test_matches_paper_only_at_its_sample_rate(rate, resampled):
    experiment = Experiment("paper", Data(sample_rate_hz=resampled), 0, "0" * 64, "any", rate)
    assert experiment.matches_paper == (rate == 16000)


def test_papers_experiment_sorts_first():
    wanted = [("paper", 5), ("modern", 5), ("paper", 4), ("modern", 4)]
    found = [
        Experiment(recipe, Data(bits=(bits,)), 0, "0" * 64, "any", 16000) for recipe, bits in sorted(wanted)
    ]
    assert [(e.recipe, e.bits) for e in sorted(found, key=lambda e: e.sort_key)] == wanted


def test_printed_values():
    assert len(PAPER_TABLE_1) == 2 * 2 * 2 * len(DEPTHS)
    assert PAPER_TABLE_1["PDRN", "dev", True, 10] == pytest.approx(1.81e-4)
    assert min(PAPER_TABLE_1, key=PAPER_TABLE_1.get) == ("PDN", "train", False, 10)


def test_roughness(tmp_path):
    def roughness(errors):
        log = [{"epoch": epoch + 1, "dev_mse": error} for epoch, error in enumerate(errors)]
        return Result(Run(tmp_path), None, log, None).roughness("dev")

    even = 0.9 ** np.arange(20)
    assert roughness(even) == pytest.approx(0, abs=1e-12)
    jumps = even * np.exp(0.05 * (-1.0) ** np.arange(20))
    assert roughness(jumps) == pytest.approx(0.1)
    wild_at_first = np.where(np.arange(20) < 10, 7 * jumps, even)
    assert roughness(wild_at_first) == pytest.approx(0, abs=1e-12)
    assert np.isnan(roughness(even[:4]))


def test_table_2_has_the_rows_of_the_paper(finished, corpus):
    (experiment,) = results_in(finished)
    table2 = load_table_2(finished, experiment)
    rows = {row["method"]: row for row in table2["rows"]}
    assert list(rows) == [*PAPER_TABLE_2, "CP overlapped"]
    assert rows["CP overlapped"]["ratio"] < rows["CP 50"]["ratio"] < 1
    (overlapped,) = evaluate(corpus, "test", SMALL.bits, ["overlapped"], SMALL.frame_length)
    assert rows["CP overlapped"]["mse"] == overlapped.mse
    assert rows["QU"]["ratio"] == 1.0
    network, _ = files.load(finished / table2["networks"]["PDRN"] / "best.safetensors")
    assert network.architecture.memory == "bias"


def test_table_2_refuses_wrong_or_missing_network(runs, corpus):
    experiment, table = SMALL.table(corpus, runs)
    best = {kind: result.run for kind, result in best_results(table).items()}
    shutil.copy(best["PDN"].best_path, best["PDRN"].best_path)
    with pytest.raises(InputError, match="another architecture"):
        measure_table_2(runs, experiment, table, corpus)
    best["PDN"].best_path.unlink()
    with pytest.raises(InputError, match="is missing"):
        measure_table_2(runs, experiment, table, corpus)


def test_example_lies_in_its_cells(finished):
    (experiment,) = results_in(finished)
    example, networks = load_example(finished, experiment)
    assert set(networks) == set(KINDS)
    assert set(example) == {"signal", "lower", "upper", "rate", "CP 25", "PDN", "PDRN"}
    for name in ("signal", "CP 25", "PDN", "PDRN"):
        assert np.all((example["lower"] - 1e-6 <= example[name]) & (example[name] <= example["upper"] + 1e-6))


@pytest.mark.parametrize(("suffix", "load"), [("json", load_table_2), ("safetensors", load_example)])
def test_refuses_damaged_files(runs, suffix, load):
    (experiment,) = results_in(runs)
    (path,) = runs.glob(f"*.{suffix}")
    whole = path.read_bytes()
    changed = whole.replace(b'"ratio": 1.0', b'"ratio": 1.1') if suffix == "json" else whole[:-1] + b"\x7f"
    assert changed != whole
    for contents in (b"", b"[]", b"[" * 100_000, b"\xff", whole[:-9], changed):
        path.write_bytes(contents)
        with pytest.raises(InputError, match="is damaged"):
            load(runs, experiment)
    path.unlink()
    assert load(runs, experiment) is None
