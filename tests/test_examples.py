"""The examples do what they say."""

import importlib.util
from pathlib import Path

import pytest

from pdrn.restoration import registry

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

EXAMPLES = Path(__file__).parents[1] / "examples"
SHIPPED = registry.names()


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["speech-large", "speech-small"])
def test_onnxruntime_streams_as_the_stream_does(tiny_models, name):
    assert example("onnx_stream").main(name) <= 1e-5


@pytest.mark.skipif("speech-small" not in SHIPPED, reason="speech-small is not shipped")
def test_onnxruntime_streams_as_the_stream_does_with_a_shipped_network():
    assert example("onnx_stream").main("speech-small") <= 1e-5
