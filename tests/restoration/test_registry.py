"""Bundled models, your own, and when they are used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pdrn
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw
from pdrn.errors import InputError
from pdrn.nets.files import describe
from pdrn.restoration import registry
from pdrn.restoration.methods import NETWORK_SHARE
from pdrn.restoration.registry import FINEST_STEP, automatic
from pdrn.restoration.restorer import Restorer

RATE = 16000
SIGNAL = 0.9 * np.sin(np.arange(3000) / 11) * np.sin(np.arange(3000) / 400)
QUANTIZED = MidRise(5).quantize(SIGNAL)


def used(restorer, rate=RATE, step=1 / 16):
    return restorer.method_for(rate, step).model


def test_lists_and_describes_models(tiny_models):
    assert registry.names() == ["speech-large", "speech-small", "universal"]
    assert registry.path("speech-small") == tiny_models / "speech-small.safetensors"
    assert registry.card("speech-small") == "# speech-small\n"
    large, small, universal = map(registry.facts, registry.names())
    assert (large.sample_rate_hz, universal.sample_rate_hz) == (RATE, None)
    assert small.stream_latency_ms == 1000 * (8 + 2 * 8 - 1) / RATE
    assert large.weights > small.weights
    assert registry.for_rate(RATE) == ["speech-large", "speech-small", "universal"]
    assert registry.for_rate(44100) == ["universal"]


def test_verify_refuses_changed_file(tiny_models, tmp_path, monkeypatch):
    for file in tiny_models.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    registry.verify("speech-large")
    content = bytearray(registry.path("speech-large").read_bytes())
    content[-1] ^= 1
    registry.path("speech-large").write_bytes(content)
    registry.path("speech-small").write_bytes(b"")
    registry.verify("universal")
    for name in ("speech-large", "speech-small"):
        with pytest.raises(InputError, match="install pdrn again"):
            registry.verify(name)


def test_from_pretrained_uses_named_model(tiny_models):
    restorer = Restorer.from_pretrained("speech-small", mix=0.5)
    assert (used(restorer), restorer.mix) == ("speech-small", 0.5)
    restored = restorer.restore(QUANTIZED, RATE, bits=5)
    assert np.abs(restored - QUANTIZED).max() <= 1 / 32
    assert restorer.stream(RATE, bits=5).model == "speech-small"


def test_refuses_unknown_names(tiny_models, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="music"):
        Restorer.from_pretrained("music")
    with pytest.raises(ValueError, match="music"):
        Restorer("music")
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match="speech-large"):
        Restorer.from_pretrained("speech-large")


def test_auto_uses_the_model_for_the_rate_or_for_any(tiny_models):
    assert used(Restorer()) == "speech-large"
    assert used(Restorer(method="network")) == "speech-large"
    assert used(Restorer(method="cp")) is None
    assert used(Restorer(iterations=3)) == "speech-large"
    assert used(Restorer(), rate=44100) == "universal"
    assert used(Restorer(), step=None) is None
    assert used(Restorer(), rate=44100, step=None) is None
    assert used(Restorer(), step=FINEST_STEP) == "speech-large"
    assert used(Restorer(), step=FINEST_STEP / 2) is None
    assert used(Restorer(method="network"), step=FINEST_STEP / 2) == "speech-large"


@given(step=st.floats(2.0**-16, 1.0), rate=st.sampled_from([8000, RATE, 44100]))
@settings(suppress_health_check=["function_scoped_fixture"])
def test_auto_uses_models_for_coarse_steps(tiny_models, step, rate):
    found = automatic(rate, step)
    assert (found is not None) == (step * (1 + 1e-3) >= FINEST_STEP)
    assert found is None or found.name == ("speech-large" if rate == RATE else "universal")


def test_auto_without_models_is_chambolle_pock(no_models):
    assert used(Restorer()) is None
    with pytest.raises(ValueError, match="16000"):
        used(Restorer(method="network"))


def test_refuses_network_that_does_not_fit(tiny_models):
    with pytest.raises(ValueError, match="8000"):
        used(Restorer("speech-large"), rate=8000)
    with pytest.raises(ValueError, match="shift"):
        used(Restorer("universal", shifts=2))
    with pytest.raises(ValueError, match="speech-large"):
        Restorer(method="network").stream(RATE, law="alaw")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "magic"}, "magic"),
        ({"method": "network", "iterations": 3}, "iterations"),
        ({"method": "cp", "model": "speech-large"}, "model"),
        ({"method": "cp", "shifts": 2}, "shifts"),
        ({"shifts": 0}, "shifts"),
    ],
)
def test_refuses_contradictory_settings(tiny_models, settings, reason):
    with pytest.raises(ValueError, match=reason):
        Restorer(**settings)


def test_restore_takes_a_method(tiny_models):
    names = ("auto", "both", "network", "cp")
    auto, both, network, solver = (pdrn.restore(QUANTIZED, RATE, bits=5, method=name) for name in names)
    np.testing.assert_array_equal(auto, both)
    assert min(np.abs(both - network).max(), np.abs(both - solver).max()) > 1e-3


@pytest.mark.parametrize("name", ["speech-large", "speech-small", "universal"])
def test_stream_equals_array_for_every_method(tiny_models, name):
    for restorer in (Restorer(), Restorer.from_pretrained(name), Restorer(name, method="network")):
        stream = restorer.stream(RATE, bits=5)
        pieces = [stream.feed(chunk) for chunk in np.array_split(QUANTIZED, 99)] + [stream.flush()]
        np.testing.assert_allclose(
            np.concatenate(pieces), restorer.restore(QUANTIZED, RATE, bits=5), atol=1e-6
        )


def test_gaps_use_chambolle_pock(tiny_models):
    samples = QUANTIZED.copy()
    samples[50:60] = np.nan
    assert np.isfinite(pdrn.restore(samples, RATE, bits=5)).all()
    assert Restorer().stream(RATE, bits=5, gaps=True).model is None
    with pytest.raises(InputError, match="gaps"):
        Restorer("universal").restore(samples, RATE, bits=5)


@pytest.mark.parametrize("known", [{"law": "mulaw"}, {"law": "alaw"}, {"bits": 8, "clip_at": 0.5}])
def test_universal_model_takes_cells_of_several_widths(tiny_models, known):
    law = {"mulaw": MuLaw(), "alaw": ALaw()}.get(known.get("law"), MidTread(8))
    samples = law.quantize(np.clip(SIGNAL, -0.5, 0.5))
    restored = Restorer("universal", method="network").restore(samples, 44100, **known)
    np.testing.assert_array_equal(law.quantize(np.clip(restored, -0.5, 0.5)), samples)
    assert (restored > 0.55).any() == ("clip_at" in known)


def test_spectral_network_and_chambolle_pock_are_averaged_by_halves(tiny_models):
    both, network, solver = (
        Restorer(method=name).restore(QUANTIZED, 44100, bits=5) for name in ("auto", "network", "cp")
    )
    np.testing.assert_allclose(both, (network + solver) / 2, atol=1e-6)


SHIPPED = registry.names()


@pytest.mark.parametrize(
    "name", SHIPPED or [pytest.param("", marks=pytest.mark.skip(reason="none is shipped"))]
)
def test_bundled_model_is_complete(name):
    registry.verify(name)
    assert registry.card(name).startswith("# ")
    provenance = describe(registry.path(name))[1]
    rate = None if name == "universal" else 8000 if "8k" in name else 16000
    assert (provenance.unit, provenance.sample_rate_hz) == ("full scale" if rate is None else "cell", rate)
    assert provenance.data
    assert provenance.licence
    assert provenance.training
    assert registry.path(name).stat().st_size <= (2_000_000 if "small" in name else 12_000_000)
    if "small" in name:
        rate = provenance.sample_rate_hz
        assert registry.read_model(name).method(rate, 1 / 16).after <= 0.032 * rate


def test_auto_is_mean_of_network_and_chambolle_pock(tiny_models):
    network, solver = (Restorer(method=name).restore(QUANTIZED, RATE, bits=5) for name in ("network", "cp"))
    mean = NETWORK_SHARE * network + (1 - NETWORK_SHARE) * solver
    named = Restorer.from_pretrained("speech-large")
    np.testing.assert_array_equal(
        named.restore(QUANTIZED, RATE, bits=5), Restorer().restore(QUANTIZED, RATE, bits=5)
    )
    for restorer in (Restorer(), Restorer(method="both"), named, Restorer("speech-large", method="both")):
        assert restorer.method_for(RATE, 1 / 16).name == "both"
        assert np.allclose(restorer.restore(QUANTIZED, RATE, bits=5), mean, atol=1e-6)


def test_iterations_apply_to_chambolle_pock_in_mean(tiny_models):
    network = Restorer(method="network").restore(QUANTIZED, RATE, bits=5)
    solver = Restorer(method="cp", iterations=3).restore(QUANTIZED, RATE, bits=5)
    mean = NETWORK_SHARE * network + (1 - NETWORK_SHARE) * solver
    for method in ("auto", "both"):
        restored = Restorer(method=method, iterations=3).restore(QUANTIZED, RATE, bits=5)
        np.testing.assert_allclose(restored, mean, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 97, 3000])
def test_mean_as_stream_equals_array(tiny_models, chunk):
    restorer = Restorer(method="both")
    stream = restorer.stream(RATE, bits=5)
    pieces = [stream.feed(QUANTIZED[start : start + chunk]) for start in range(0, 3000, chunk)]
    streamed = np.concatenate([*pieces, stream.flush()])
    assert np.allclose(streamed, restorer.restore(QUANTIZED, RATE, bits=5), atol=1e-6)
    assert stream.method == "both"
