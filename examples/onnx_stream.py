"""Stream sound through a network in onnxruntime, and get what `Restorer.stream` gives.

pip install -c constraints.txt '.[train,onnx]'; python examples/onnx_stream.py speech-small
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from pdrn import Restorer
from pdrn.audio.corpus import speech
from pdrn.audio.detection import QuantizerOptions, choose_quantizer
from pdrn.nets.files import export_block
from pdrn.restoration import registry

BITS = 5
STEP = 2 / 2**BITS


def main(name: str = "speech-small") -> float:
    """Restore two seconds of speech both ways; return by how much they differ."""
    model, sample_rate_hz = registry.read_model(name), registry.sample_rate_of(name)
    method = model.method(sample_rate_hz, STEP, shifts=1)
    hop, after = method.hop, method.after

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        export_block(path, model.network, method.before, hop, after)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    samples = speech()[0][32000:64000]
    quantized = (np.floor(samples / STEP) + 0.5) * STEP
    cells = choose_quantizer(None, QuantizerOptions(bits=BITS)).observe(quantized)
    ends = np.stack([cells.lo, cells.hi]).astype(np.float32) / np.float32(
        STEP
    )  # the network measures in cells

    window = np.zeros((2, method.before + hop + after), np.float32)  # silence before the signal
    pieces = []
    for start in range(0, len(samples) + after, hop):
        new = ends[:, start : start + hop]
        new = np.pad(new, [(0, 0), (0, hop - new.shape[1])])  # and silence after it
        window = np.concatenate([window[:, hop:], new], axis=1)
        (restored,) = session.run(["restored"], {"lower": window[:1], "upper": window[1:]})
        pieces.append(restored[0] * STEP)
    streamed = np.concatenate(pieces)[after : after + len(samples)]  # the first ones are of the silence

    stream = Restorer.from_pretrained(name, method="network", shifts=1).stream(sample_rate_hz, bits=BITS)
    expected = np.concatenate([stream.feed(quantized), stream.flush()])
    difference = float(np.abs(streamed - expected).max())
    print(f"{name}: {hop} samples at a time, {hop + after - 1} late, differs by at most {difference:.1e}")
    return difference


if __name__ == "__main__":
    assert main(*sys.argv[1:]) <= 1e-5
