"""ONNX files compute what the network computes."""

import numpy as np
import pytest
from tests.nets.plans import ALL, cells_for, disturbed

from pdrn.errors import PdrnError
from pdrn.nets.files import export

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.mark.parametrize(
    "name",
    ["dense, bias, untied", "convolutional, mix, untied", "LISTA, ConvolutionalMap"],
)
def test_onnx_runtime_agrees_for_any_batch_and_length(name, tmp_path):
    plan = ALL[name]
    network = disturbed(plan, 1, scale=0.02, dtype=np.float32)
    path = tmp_path / "net.onnx"
    export(path, network)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    lower, upper = cells_for(plan, 2, np.float32)
    some = slice(None) if plan.map.frame_length else slice(0, 13)
    for rows, columns in ((slice(0, 3), slice(None)), (slice(0, 1), some)):
        a, b = lower[rows, columns], upper[rows, columns]
        restored = session.run(["restored"], {"lower": a, "upper": b})[0]
        expected = network(a, b)
        inside = (expected > a) & (expected < b)
        assert inside.mean() > 0.1
        assert np.abs(restored - expected).max() <= 1e-5 * np.abs(expected).max()
        assert ((a <= restored) & (restored <= b)).all()


def test_an_existing_file_is_not_overwritten(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_text("mine")
    with pytest.raises(PdrnError, match=r"net\.onnx"):
        export(path, disturbed(ALL["dense, bias, untied"], 1))
    assert path.read_text() == "mine"
