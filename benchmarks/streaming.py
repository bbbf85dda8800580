"""How fast streams are, in multiples of real time: a causal network that follows, and one that does not.

    python -m benchmarks.streaming

One thread. All ways take their turns, round after round; the best of each counts.
"""

import json
import time
from collections.abc import Callable

import numpy as np

from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import MidRise
from pdrn.restoration.methods import NetworkMethod
from pdrn.restoration.registry import read_model
from pdrn.restoration.restorer import Restorer
from pdrn.restoration.streaming import BlockRestorer

MODEL = "speech-small"
ROUNDS = 5
SECONDS = 5
CHUNK = 128


def main() -> None:
    """Print one table and one JSON line."""
    samples, rate = speech()
    quantizer = MidRise(5, full_scale=True)
    quantized = quantizer.quantize(samples[: SECONDS * rate])
    cells = quantizer.cells(quantizer.encode(quantized))[None]
    starts = range(0, len(quantized), CHUNK)
    restorer = Restorer.from_pretrained(MODEL, method="network")
    method = NetworkMethod(read_model(MODEL).network, quantizer.step)

    def in_chunks() -> np.ndarray:
        stream = restorer.stream(rate, bits=5)
        return np.concatenate([*(stream.feed(quantized[i : i + CHUNK]) for i in starts), stream.flush()])

    def at_once() -> np.ndarray:
        stream = restorer.stream(rate, bits=5)
        return np.concatenate([stream.feed(quantized), stream.flush()])

    def each_by_itself() -> np.ndarray:
        blocks = BlockRestorer(method, method.stream_block)
        pieces = [*(blocks.feed(cells[:, i : i + CHUNK]) for i in starts), blocks.flush()]
        return np.concatenate([piece.samples[0] for piece in pieces])

    ways: dict[str, Callable[[], np.ndarray]] = {
        f"stream, chunks of {CHUNK} samples": in_chunks,
        "stream, all at once": at_once,
        f"every block from its surroundings, chunks of {CHUNK}": each_by_itself,
        "no stream": lambda: restorer.restore(quantized, rate, bits=5),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - began)
    speeds = {name: SECONDS / seconds for name, seconds in best.items()}
    print(f"{MODEL}, times real time")
    for name, speed in speeds.items():
        print(f"{name:55} {speed:6.1f}")
    print(json.dumps({"benchmark": "streaming", "model": MODEL, "times_real_time": speeds}))


if __name__ == "__main__":
    main()
