"""Jobs restore as the Python API does; a request is refused with a sentence, and leaves nothing."""

import io
from contextlib import closing

import numpy as np
import pytest
import requests
import soundfile
from tests.cli.running import wait_until
from tests.web.serving import RATE, begun, floats, framed, samples_of, tone, wav

import pdrn
from pdrn.audio.detection import QuantizerOptions, choose_quantizer
from pdrn.audio.files import round_to_subtype
from pdrn.audio.quantizers import MidRise, MuLaw


def quantized_to(bits, samples):
    return MidRise(bits, full_scale=True).quantize(samples)


@pytest.mark.parametrize("subtype", ["float", "pcm24"])
@pytest.mark.parametrize("channels", [1, 2])
def test_restore_equals_python(server, subtype, channels):
    samples = tone(channels=channels)
    answer = server.post("restore", wav(samples), quantize_bits=4, subtype=subtype)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
    quantized = quantized_to(4, samples)
    cells = choose_quantizer(None, QuantizerOptions(bits=4)).observe(np.atleast_2d(quantized))
    restored = pdrn.restore(quantized, RATE, bits=4)
    expected = round_to_subtype(
        np.atleast_2d(restored), cells, {"float": "FLOAT", "pcm24": "PCM_24"}[subtype]
    )
    np.testing.assert_array_equal(np.atleast_2d(samples_of(answer.content)), expected)


def test_restore_takes_a_law_and_a_mix(server):
    answer = server.post("restore", wav(tone()), quantize_law="mulaw", mix=0.5, method="cp", iterations=7)
    restorer = pdrn.Restorer(iterations=7, mix=0.5)
    expected = restorer.restore(MuLaw().quantize(tone()), RATE, law="mulaw")
    np.testing.assert_allclose(samples_of(answer.content), expected, atol=1e-7)


def test_restore_detects_the_quantizer(server):
    quantized = quantized_to(5, tone())
    answer = server.post("restore", wav(quantized, "PCM_16"))
    np.testing.assert_allclose(samples_of(answer.content), pdrn.restore(quantized, RATE), atol=1e-7)


def test_network_restores_and_shows_its_layers(server, network):
    assert server.post("restore", wav(tone()), quantize_bits=5, method="tiny").status_code == 200
    message, parts = framed(server.post("explore", wav(tone()), quantize_bits=5, method="tiny").content)
    restored = pdrn.Restorer(str(network), method="network").restore(quantized_to(5, tone()), RATE, bits=5)
    np.testing.assert_allclose(floats(parts["restored"]), restored, atol=1e-7)
    cells = parts["lower"] + parts["upper"]
    asked = {"method": "tiny", "sample_rate_hz": RATE, "step": message["result"]["step"]}
    message, parts = framed(server.post("layers", cells, **asked).content)
    assert message["result"]["numbers"] == [1, 2, 3]
    on_one_grid = pdrn.Restorer(str(network), method="network", shifts=1).restore(
        quantized_to(5, tone()), RATE, bits=5
    )
    np.testing.assert_allclose(floats(parts["estimates"], 3)[-1], on_one_grid, atol=1e-5)


def test_explore_returns_signals_and_figures(server):
    message, parts = framed(server.post("explore", wav(tone()), quantize_bits=4).content)
    signals = {name: floats(part) for name, part in parts.items() if not name.endswith(".wav")}
    quantized = quantized_to(4, tone())
    np.testing.assert_allclose(signals["original"], tone(), atol=1e-7)
    np.testing.assert_array_equal(signals["quantized"], quantized)
    np.testing.assert_array_equal(signals["upper"] - signals["lower"], np.full(len(quantized), 1 / 8))
    assert ((signals["lower"] <= signals["restored"]) & (signals["restored"] <= signals["upper"])).all()
    np.testing.assert_array_equal(samples_of(parts["float.wav"]), signals["restored"])
    facts = message["result"]
    assert facts["violation"] == 0
    assert (facts["levels"], facts["step"], facts["channels"], facts["frames"]) == ("4 bits", 1 / 8, 1, 8000)
    assert facts["figures"]["restored"]["snr_db"] > facts["figures"]["quantized"]["snr_db"] + 3
    assert facts["figures"]["restored"]["mse"] < facts["figures"]["quantized"]["mse"] / 2
    assert facts["times_real_time"] > 0


def test_explore_without_original_has_no_figures(server):
    message, parts = framed(server.post("explore", wav(quantized_to(5, tone()), "PCM_16")).content)
    assert "original" not in parts
    assert message["result"]["figures"] is None
    assert message["result"]["levels"].startswith("5 bits")


def test_last_iteration_is_the_result(server):
    _, parts = framed(server.post("explore", wav(tone()), quantize_bits=4, method="cp", iterations=9).content)
    cells = parts["lower"] + parts["upper"]
    asked = {"sample_rate_hz": RATE, "method": "cp", "iterations": 9, "step": 1 / 8}
    message, layers = framed(server.post("layers", cells, **asked).content)
    assert message["result"]["numbers"] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    np.testing.assert_allclose(
        floats(layers["estimates"], 9)[-1], floats(parts["restored"]), rtol=0, atol=1e-6
    )
    centre = (floats(parts["lower"]) + floats(parts["upper"])) / 2
    _, mixed = framed(server.post("layers", cells, mix=0.25, **asked).content)
    expected = centre + (floats(parts["restored"]) - centre) / 4
    np.testing.assert_allclose(floats(mixed["estimates"], 9)[-1], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("path", "body", "settings", "sentence"),
    [
        ("restore", b"no sound at all", {}, "This file is no WAV, AIFF, AU, FLAC or Ogg file"),
        ("explore", b"", {}, "The file is empty"),
        ("explore", wav(tone())[:3000], {}, "This file"),
        ("explore", wav(tone() * 2), {"quantize_bits": 4}, "The sound goes up to 1.2, beyond full scale"),
        ("explore", wav(tone()), {}, "The levels of this sound cannot be detected"),
        ("explore", wav(tone()), {"quantize_bits": 9}, "quantize_bits: input should be less than or"),
        ("explore", wav(tone()), {"bits": 4}, "bits: extra inputs are not permitted"),
        ("explore", wav(tone()), {"quantize_bits": 4, "quantize_law": "alaw"}, "choose one of them"),
        ("explore", wav(tone()), {"method": "../x"}, "There is no such method"),
        ("restore", wav(tone()), {"method": "tiny", "iterations": 3}, "no iterations"),
        ("explore", wav(tone()), {"method": "tiny", "quantize_law": "alaw"}, "cells of one width"),
        ("layers", b"123", {"sample_rate_hz": RATE}, "as many upper ends"),
        ("layers", np.float32([1, 0]).tobytes(), {"sample_rate_hz": RATE}, "."),
    ],
)  # fmt: skip
def test_refuses_with_a_sentence(server, path, body, settings, sentence):
    answer = server.post(path, body, **settings)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]
    assert str(server.folder) not in answer.text
    assert answer.json()["detail"].endswith(".")


def test_no_files_are_left(server):
    server.post("restore", wav(tone()), quantize_bits=4)
    server.post("restore", b"no sound")
    wait_until(
        lambda: server.files() == [], what=server.files
    )  # an answer is there before its files are gone
    assert [path.stat().st_mode & 0o777 for path in server.folder.iterdir()] == [0o700]


def test_refuses_declared_size_before_reading(small):
    answer = small.post("restore", bytes((1 << 20) + 1))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The file is larger than 1 MB; send a shorter stretch of it."


def test_refuses_undeclared_size_while_reading(small):
    answer = small.post("restore", (bytes(1 << 16) for _ in range(17)))
    assert answer.status_code == 413


def test_refuses_many_claims_of_gigabytes(small):
    connections = [begun(small, length=8 << 30) for _ in range(30)]
    for connection in connections:
        with closing(connection):
            connection.settimeout(20)
            assert connection.recv(1000).startswith(b"HTTP/1.1 413")
    assert small.files() == []


def test_refuses_an_hour_of_silence_in_a_small_file(small):
    stream = io.BytesIO()
    soundfile.write(stream, np.zeros(3600 * 8000, np.int16), 8000, format="FLAC", subtype="PCM_16")
    assert len(stream.getvalue()) < 1 << 18
    answer = small.post("explore", stream.getvalue())
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The sound is longer than 2 s; send a stretch of it."


def test_refuses_long_sound(small):
    answer = small.post("explore", wav(np.zeros(2 * 16000 + 1), "PCM_16"))
    assert answer.status_code == 413
    assert answer.json()["detail"] == "The sound is longer than 2 s; send a stretch of it."


def test_refuses_forms(small):
    answer = requests.post(f"{small.url}/api/restore", files={"file": wav(tone())}, timeout=60)
    assert answer.status_code == 415
    assert "--data-binary" in answer.json()["detail"]
    assert small.files() == []


def test_refuses_endless_uploads(small):
    with closing(begun(small)) as connection:
        connection.settimeout(10)
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")
    assert small.files() == []
