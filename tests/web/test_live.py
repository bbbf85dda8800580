"""Live sessions return what a stream in Python returns."""

import json

import numpy as np
import pytest
from tests.web.serving import RATE, floats, tone
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import pdrn
from pdrn.audio.quantizers import MidRise


@pytest.fixture
def socket(server):
    with connect(server.url.replace("http", "ws") + "/api/live", origin=server.url) as each:
        yield each


def test_live_equals_python_stream(socket):
    socket.send(json.dumps({"sample_rate_hz": RATE, "quantize_bits": 4}))
    stream = pdrn.Restorer("speech-small", method="network").stream(RATE, bits=4)  # the one of low latency
    assert json.loads(socket.recv())["latency_samples"] == stream.latency_samples
    samples = tone().astype(np.float32)
    answers = []
    for chunk in np.array_split(samples, 16):
        socket.send(chunk.tobytes())
        answers.append(floats(socket.recv(), 2))
    socket.send("end")
    answers.append(floats(socket.recv(), 2))
    quantized, restored = np.concatenate(answers, axis=-1)
    expected = MidRise(4, full_scale=True).quantize(samples.astype(np.float64))
    np.testing.assert_array_equal(quantized, expected)
    wanted = np.concatenate([stream.feed(expected), stream.flush()])
    np.testing.assert_allclose(restored, wanted, atol=1e-7)


@pytest.mark.parametrize(
    ("first", "chunk", "sentence"),
    [
        ("{}", None, "sample_rate_hz: field required"),
        ("nonsense", None, "invalid json"),
        (json.dumps({"sample_rate_hz": RATE}), None, "choose a bit depth or a law"),
        (json.dumps({"sample_rate_hz": RATE, "quantize_bits": 4}), b"123", "float32 samples"),
        (json.dumps({"sample_rate_hz": RATE, "quantize_bits": 4}), "hello", "samples, or the word end"),
        (json.dumps({"sample_rate_hz": RATE, "quantize_bits": 4}), b"\0\0\xc0\x7f", "NaN or infinite"),
    ],
)
def test_refuses_bad_messages(socket, first, chunk, sentence):
    socket.send(first)
    message = json.loads(socket.recv())
    if chunk is not None:
        assert "latency_seconds" in message
        socket.send(chunk)
        message = json.loads(socket.recv())
    assert sentence in message["detail"]
    with pytest.raises(ConnectionClosed):
        socket.recv()


def test_refuses_sessions_beyond_the_limit(server):
    address = server.url.replace("http", "ws") + "/api/live"
    settings = json.dumps({"sample_rate_hz": RATE, "quantize_bits": 4})
    with connect(address) as one, connect(address) as two:
        for socket in (one, two):
            socket.send(settings)
            socket.recv()
        with connect(address) as three:
            assert "sessions" in json.loads(three.recv())["detail"]
