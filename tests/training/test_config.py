"""Configurations: read from TOML, complete, and strict."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.corpus import Corpus
from pdrn.errors import InputError, StorageError
from pdrn.nets import ConvolutionalMap, DenseMap, PrimalDual, SpectralPrimalDual
from pdrn.nets.files import encode
from pdrn.nets.related import LISTA
from pdrn.training.config import (
    RECIPES,
    Budget,
    Config,
    Data,
    Loss,
    Optimiser,
    Start,
    as_toml,
    from_complete_table,
    from_table,
    load,
    names,
    run_name,
)
from pdrn.training.loop import train

DENSE = {"kind": "PrimalDual", "depth": 2, "map": {"kind": "DenseMap", "samples": 64}}
DOCUMENTED = re.findall(
    r"```toml\n(.*?)```", (Path(__file__).parents[2] / "docs/training.md").read_text(), re.DOTALL
)


def test_paper_recipe_is_section_4_1():
    config = from_table({"recipe": "paper", "architecture": DENSE})
    adam = config.optimiser
    assert (adam.learning_rate, adam.batch_size, adam.schedule) == (1e-4, 128, "constant")
    assert (adam.beta1, adam.beta2, adam.epsilon) == (0.9, 0.999, 1e-8)
    assert (adam.clip_norm, adam.averaging) == (0, 0)
    assert (config.data.bits, config.data.length, config.data.placing) == ((5.0,), 1024, "cut")
    assert config.start.kind == "glorot"
    assert config.budget.epochs == 1000


def test_configuration_overrides_recipe():
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


def test_architecture_by_kind():
    assert from_table({"architecture": DENSE}).architecture == PrimalDual(DenseMap(64), 2)
    filters = {"kind": "ConvolutionalMap", "channels": 8, "window": 16, "hop": 8}
    config = from_table({"architecture": {"kind": "LISTA", "depth": 3, "map": filters}})
    assert config.architecture == LISTA(ConvolutionalMap(8, 16, 8), 3)


positive = st.floats(1e-6, 1e6)
share = st.floats(0, 0.99)
budgets = st.one_of(
    st.builds(Budget, epochs=st.integers(1, 99), patience=st.integers(0, 9)),
    st.builds(Budget, steps=st.integers(1, 99)),
    st.builds(Budget, seconds=positive),
)
maps = st.sampled_from([DenseMap(64), DenseMap(8, 32), ConvolutionalMap(8, 16, 8)])
configs = st.builds(
    Config,
    architecture=st.one_of(
        st.builds(
            PrimalDual,
            maps,
            st.integers(1, 20),
            st.sampled_from(["dual", "bias", "gain", "mix"]),
            theta=share,
            learn_theta=st.sampled_from(["no", "once", "per layer"]),
        ),
        st.builds(LISTA, maps, st.integers(1, 20)),
    ),
    recipe=st.sampled_from(["", *RECIPES]),
    seed=st.integers(0, 99),
    start=st.one_of(
        st.builds(Start, st.sampled_from(["own", "glorot", "identity"])),
        st.builds(Start, st.just("chambolle pock"), sigma=positive, tau=share, memory_gain=share),
    ),
    data=st.builds(
        Data,
        bits=st.sampled_from([(5.0,), (2.5, 8.0)]),
        quantizer=st.sampled_from(["mid-rise", "mid-tread", "both"]),
        unit=st.sampled_from(["full scale", "cell"]),
        length=st.integers(1, 9999),
        flips=st.booleans(),
        rumble=share,
        speeds=st.lists(st.floats(0.25, 4), min_size=1).map(tuple),
    ),
    loss=st.builds(Loss, relative=st.booleans(), spectral=positive, regularisation=positive),
    optimiser=st.builds(Optimiser, learning_rate=positive, schedule=st.sampled_from(["constant", "cosine"])),
    budget=budgets,
)


@given(configs)
def test_round_trip_through_table_and_toml(config):
    assert from_complete_table(encode(config)) == config
    assert from_table(encode(config)) == config
    assert from_table(tomllib.loads(as_toml(config))) == config


@pytest.mark.parametrize("name", names())
def test_bundled_configurations_round_trip(name, tmp_path):
    (tmp_path / "a.toml").write_text(as_toml(load(name)))
    assert load(tmp_path / "a.toml") == load(name)


@given(configs, st.data())
def test_refuses_misspelt_keys(config, data):
    table = encode(config)
    part = data.draw(st.sampled_from([table, *(part for part in table.values() if isinstance(part, dict))]))
    key = data.draw(st.sampled_from([key for key in part if key != "kind"]))
    part[key + "x"] = part.pop(key)
    with pytest.raises(InputError):
        from_table(table)


@given(configs, configs, st.sampled_from(["a", "b"]), st.sampled_from(["a", "b"]))
def test_run_name_identifies_configuration_and_corpus(first, second, corpus, other):
    same = (first, corpus) == (second, other)
    assert (run_name(first, corpus) == run_name(second, other)) == same
    assert run_name(first, corpus) == run_name(from_table(encode(first)), corpus)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"optimizer": {}}, "optimizer"),
        ({"architecture": {"kind": "PrimalDual"}}, "architecture"),
        ({"architecture": DENSE | {"kind": "Transformer"}}, "architecture.kind"),
        ({"architecture": DENSE | {"depth": 0}}, "depth"),
        ({"architecture": 3}, "architecture"),
        ({"recipe": "cake"}, "cake"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"data": {"flips": 1}}, "data.flips"),
        ({"data": {"bits": [6, 5]}}, "bits"),
        ({"data": {"bits": []}}, "bits"),
        ({"data": {"bits": 99}}, "bits"),
        ({"data": {"unit": "volt"}}, "data.unit"),
        ({"data": {"batches": 5}}, "random placing"),
        ({"data": {"clipped": 1.5}}, "clipped"),
        ({"data": {"clipped": 0.6, "companded": 0.6}}, "companded"),
        ({"data": {"companded": 0.1, "unit": "cell"}}, "unit"),
        ({"data": {"attenuation_db": -1.0}}, "attenuation_db"),
        ({"data": {"training_rates_hz": [16000]}}, "training_rates_hz"),
        ({"data": {"training_rates_hz": [10]}}, "training_rates_hz"),
        ({"data": {"rate_jitter": 0.1}}, "rate_jitter"),
        ({"loss": {"logarithmic": True}}, "logarithmic"),
        ({"optimiser": {"precision": "float8"}}, "precision"),
        ({"loss": {"regularisation": -1.0}}, "regularisation"),
        ({"loss": {"spectral": -1.0}}, "spectral"),
        ({"optimiser": {"learning_rate": "fast"}}, "optimiser.learning_rate"),
        ({"optimiser": {"averaging": 1.0}}, "averaging"),
        ({"budget": {"epochs": 1, "steps": 1}}, "budget"),
        ({"budget": {"epochs": 0}}, "budget"),
        ({"start": {"sigma": 0.0}}, "sigma"),
        ({"start": {"sigma": float("inf")}}, "sigma"),
        ({"start": {"memory_gain": float("inf")}}, "memory_gain"),
        ({"start": {"sigma": 4.0}}, "start.sigma"),
        ({"start": {"kind": "glorot", "memory_gain": 0.5}}, "start.memory_gain"),
        ({"start": {"kind": "network"}}, "start.network"),
        ({"start": {"network": "speech-large"}}, "start.network"),
    ],
    ids=str,
)
def test_refuses_mistakes_and_names_their_place(change, place):
    with pytest.raises(InputError, match=re.escape(place)):
        from_table({"architecture": DENSE} | change)


@pytest.mark.parametrize("contents", [b"architecture = ", b"\xff\xfe", b"a = " + b"[" * 10_000, b"seed = 1"])
def test_refuses_files_that_are_not_configurations(tmp_path, contents):
    (tmp_path / "a.toml").write_bytes(contents)
    with pytest.raises(InputError, match=r"a\.toml"):
        load(tmp_path / "a.toml")


def test_refuses_folder(tmp_path):
    with pytest.raises(StorageError, match=tmp_path.name):
        load(tmp_path)


def test_documented_configurations_load():
    assert len(DOCUMENTED) >= 4
    for text in DOCUMENTED:
        assert from_table(tomllib.loads(text)).architecture.parameter_count > 0


@pytest.mark.parametrize(("recipe", "epochs"), [("", 1000), ("paper", 1000), ("modern", 60)])
def test_patience_keeps_the_epochs_of_the_recipe(recipe, epochs):
    network = {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": 8}}
    table = {"recipe": recipe, "architecture": network, "budget": {"patience": 3}}
    assert from_table(table).budget == Budget(epochs=epochs, patience=3)


def scaled_down(config):
    """The same kind of network and training, for two steps."""
    plan = config.architecture
    if isinstance(plan, SpectralPrimalDual):
        plan = replace(plan, windows=(0.004,), channels=4, hidden=4)
    elif config.start.kind != "network":
        plan = replace(plan, depth=2 * plan.stages, map=ConvolutionalMap(8, 16, 8))
    rates = tuple(rate for rate in config.data.training_rates_hz if rate <= 16000)
    return replace(
        config,
        architecture=plan,
        data=replace(config.data, length=1024, batches=2, training_rates_hz=rates),
        optimiser=replace(config.optimiser, batch_size=2, warmup_steps=0),
        budget=Budget(steps=2),
    )


@pytest.mark.parametrize("name", names())
def test_bundled_configurations_train(name, corpus_folder, tmp_path):
    config = load(name)
    corpus = Corpus.scan(corpus_folder, config.data.sample_rate_hz)
    assert config.architecture.frame_length is None
    assert isinstance(config.architecture, SpectralPrimalDual) or config.data.unit == "cell"
    run = train(scaled_down(config), corpus, tmp_path, threads=1)
    assert run.is_done


@pytest.mark.parametrize(("rate", "suffix"), [(16000, ""), (8000, "-8k")])
def test_small_models_are_causal(rate, suffix):
    large, small = load("speech-large" + suffix), load("speech-small" + suffix)
    assert large.data.sample_rate_hz == small.data.sample_rate_hz == rate
    assert not large.architecture.causal
    assert small.architecture.causal
    assert small.architecture.reach[1] <= 0.032 * rate


def test_documented_network_is_bundled():
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
def test_last_layers_need_a_tied_deeper_network(network):
    tied = DENSE | {"depth": 4, "tying": "tied"}
    assert from_table({"architecture": tied, "loss": {"last_layers": 3}}).loss.last_layers == 3
    with pytest.raises(InputError, match="last_layers"):
        from_table({"architecture": tied | network, "loss": {"last_layers": 3}})


def test_shared_theta_needs_two_last_layers():
    tied = DENSE | {"depth": 4, "tying": "tied", "learn_theta": "once"}
    with pytest.raises(InputError, match="last_layers"):
        from_table({"architecture": tied, "loss": {"last_layers": 1}})
