"""Configurations: read from TOML, complete, and strict."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from pdrn.audio.corpus import Corpus
from pdrn.errors import InputError
from pdrn.nets import ConvolutionalMap, DenseMap, PrimalDual
from pdrn.nets.files import encode
from pdrn.nets.related import LISTA
from pdrn.training.config import Budget, from_table, load, names, run_name
from pdrn.training.loop import train

DENSE = {"kind": "PrimalDual", "depth": 2, "map": {"kind": "DenseMap", "samples": 64}}
DOCUMENTED = re.findall(
    r"```toml\n(.*?)```", (Path(__file__).parents[2] / "docs/training.md").read_text(), re.DOTALL
)


def test_the_paper_recipe_is_section_4_1():
    config = from_table({"recipe": "paper", "architecture": DENSE})
    adam = config.optimiser
    assert (adam.learning_rate, adam.batch_size, adam.schedule) == (1e-4, 128, "constant")
    assert (adam.beta1, adam.beta2, adam.epsilon) == (0.9, 0.999, 1e-8)
    assert (adam.clip_norm, adam.averaging) == (0, 0)
    assert (config.data.bits, config.data.length, config.data.placing) == ((5.0,), 1024, "cut")
    assert config.start.kind == "glorot"
    assert config.budget.epochs == 1000


def test_what_a_configuration_says_goes_before_its_recipe():
    config = from_table(
        {
            "recipe": "modern",
            "architecture": DENSE,
            "optimiser": {"learning_rate": 1.0},
            "budget": {"seconds": 9.0},
        }
    )
    assert config.optimiser.learning_rate == 1.0
    assert config.optimiser.schedule == "cosine"
    assert (config.budget.seconds, config.budget.epochs) == (9.0, 0)


def test_every_architecture_can_be_named():
    assert from_table({"architecture": DENSE}).architecture == PrimalDual(DenseMap(64), 2)
    filters = {"kind": "ConvolutionalMap", "channels": 8, "window": 16, "hop": 8}
    config = from_table({"architecture": {"kind": "LISTA", "depth": 3, "map": filters}})
    assert config.architecture == LISTA(ConvolutionalMap(8, 16, 8), 3)


def test_tables_and_configurations_are_the_same_thing():
    config = from_table({"recipe": "modern", "architecture": DENSE, "data": {"bits": [2.5, 8], "length": 64}})
    assert config.data.bits == (2.5, 8.0)
    assert from_table(encode(config)) == config


def test_a_run_is_named_by_all_that_it_is():
    config = from_table({"architecture": DENSE})
    names = {
        run_name(from_table({"architecture": DENSE} | change), corpus)
        for change in (
            {},
            {"seed": 1},
            {"recipe": "paper"},
            {"data": {"bits": 4}},
            {"architecture": DENSE | {"memory": "bias"}},
            {"budget": {"epochs": 999}},
        )
        for corpus in ("a", "b")
    }
    assert len(names) == 12
    assert run_name(config, "a") == run_name(from_table(encode(config)), "a")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"optimizer": {}}, "has no 'optimizer'; there are architecture, recipe"),
        ({"optimiser": {"learning_rat": 1}}, "optimiser has no 'learning_rat'"),
        ({"architecture": DENSE | {"dept": 1}}, "architecture has no 'dept'"),
        ({"architecture": {"kind": "PrimalDual"}}, "architecture needs map, depth"),
        ({"architecture": DENSE | {"kind": "Transformer"}}, "architecture.kind must be one of"),
        ({"architecture": DENSE | {"depth": 0}}, "depth must be a whole number from 1"),
        ({"architecture": 3}, "architecture must be a table"),
        ({"recipe": "cake"}, "no recipe is called 'cake'; there are paper, modern"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"data": {"flips": 1}}, "data.flips must be true or false"),
        ({"data": {"bits": [6, 5]}}, "bits must be one bit depth"),
        ({"data": {"bits": []}}, "bits must be one bit depth"),
        ({"data": {"bits": 99}}, "bits must be one bit depth"),
        ({"data": {"unit": "volt"}}, "data.unit must be one of full scale, cell"),
        ({"data": {"batches": 5}}, "random placing"),
        ({"loss": {"regularisation": -1.0}}, "regularisation must be"),
        ({"optimiser": {"learning_rate": "fast"}}, "optimiser.learning_rate must be a number"),
        ({"optimiser": {"averaging": 1.0}}, "averaging must be at least 0 and below 1"),
        ({"budget": {"epochs": 1, "steps": 1}}, "budget needs one of"),
        ({"budget": {"epochs": 0}}, "budget needs one of"),
        ({"start": {"sigma": 0.0}}, "sigma > 0"),
        ({"start": {"sigma": float("inf")}}, "sigma > 0"),
        ({"start": {"memory_gain": float("inf")}}, "memory_gain must be a number"),
        ({"start": {"sigma": 4.0}}, "start.sigma is for a start at Chambolle-Pock; set start.kind"),
        ({"start": {"kind": "glorot", "memory_gain": 0.5}}, "start.memory_gain is for a start at"),
        ({"start": {"kind": "network"}}, "start.network names what"),
        ({"start": {"network": "speech-large"}}, "start.network names what"),
        ({"loss": {"spectral": -1.0}}, "spectral must be"),
    ],
)
def test_mistakes_fail_at_load(change, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        from_table({"architecture": DENSE} | change)


def test_files_that_are_no_configuration_are_named(tmp_path):
    (tmp_path / "a.toml").write_text("architecture = ")
    with pytest.raises(ValueError, match=r"a\.toml is no configuration"):
        load(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"b\.toml is no configuration"):
        load(tmp_path / "b.toml")


@pytest.mark.parametrize("text", DOCUMENTED)
def test_documented_configurations_load(text, tmp_path):
    (tmp_path / "a.toml").write_text(text)
    config = load(tmp_path / "a.toml")
    assert config.architecture.parameter_count > 0


def test_there_are_documented_configurations():
    assert len(DOCUMENTED) >= 4


@pytest.mark.parametrize(("recipe", "epochs"), [("", 1000), ("paper", 1000), ("modern", 60)])
def test_patience_alone_leaves_the_length_to_the_recipe(recipe, epochs):
    network = {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": 8}}
    table = {"recipe": recipe, "architecture": network, "budget": {"patience": 3}}
    assert from_table(table).budget == Budget(epochs=epochs, patience=3)


def scaled_down(config):
    """The same kind of network and training, for two steps."""
    plan = config.architecture
    if config.start.kind != "network":
        plan = replace(plan, depth=2 * plan.stages, map=ConvolutionalMap(8, 16, 8))
    return replace(
        config,
        architecture=plan,
        data=replace(config.data, length=1024, batches=2),
        optimiser=replace(config.optimiser, batch_size=2, warmup_steps=0),
        budget=Budget(steps=2),
    )


@pytest.mark.parametrize("name", names())
def test_configurations_that_come_along_train(name, corpus_folder, tmp_path):
    config = load(name)
    corpus = Corpus.scan(corpus_folder, config.data.sample_rate_hz)
    assert config.data.unit == "cell"
    assert isinstance(config.architecture.map, ConvolutionalMap)
    run = train(scaled_down(config), corpus, tmp_path, threads=1)
    assert run.is_done


@pytest.mark.parametrize(("rate", "suffix"), [(16000, ""), (8000, "-8k")])
def test_they_are_for_recordings_and_for_streams(rate, suffix):
    large, small = load("speech-large" + suffix), load("speech-small" + suffix)
    assert large.data.sample_rate_hz == small.data.sample_rate_hz == rate
    assert not large.architecture.causal
    assert small.architecture.causal
    assert small.architecture.reach[1] <= 0.032 * rate


def test_the_documented_network_is_the_one_that_comes_along():
    assert load("speech-large") in [from_table(tomllib.loads(text)) for text in DOCUMENTED]


@pytest.mark.parametrize(
    "network",
    [
        {"tying": "untied"},
        {"depth": 2},
        {"memory": "bias"},
        {"memory": "gain"},
        {"weighting": "spectrum"},
        {"learn_theta": "per layer"},
    ],
    ids=str,
)
def test_truncated_gradients_are_for_tied_networks_with_more_layers(network):
    tied = DENSE | {"depth": 4, "tying": "tied"}
    assert from_table({"architecture": tied, "loss": {"last_layers": 3}}).loss.last_layers == 3
    with pytest.raises(InputError, match="last_layers"):
        from_table({"architecture": tied | network, "loss": {"last_layers": 3}})


def test_a_shared_theta_needs_two_layers_of_gradients():
    tied = DENSE | {"depth": 4, "tying": "tied", "learn_theta": "once"}
    with pytest.raises(InputError, match="last_layers"):
        from_table({"architecture": tied, "loss": {"last_layers": 1}})
