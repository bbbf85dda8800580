"""How far Chambolle-Pock should go in a frame: makes the table of `pdrn.restoration.methods`.

    python -m benchmarks.tuning FOLDER...

Every recording in the folders (or the package's speech, without any) is quantized by mid-rise and mid-tread
quantizers of 2 to 12 bits and restored at one pace after the other. Around every hop the squared error is
noted together with the loudness; for every loudness the pace with the least error goes into the table.
Errors are counted in cells, so that every depth counts alike.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.audio.cells import FloatArray
from pdrn.audio.corpus import speech
from pdrn.audio.files import read, resample
from pdrn.audio.frames import split
from pdrn.audio.quantizers import MidRise, MidTread
from pdrn.restoration.methods import LOUDNESS, ChambollePockMethod
from pdrn.restoration.streaming import BlockRestorer

BITS = (2, 3, 4, 5, 6, 7, 8, 10, 12)
PACES = 0.08 * 2.0 ** np.arange(9)
SECONDS = 2.0
"""So much is taken out of the middle of each recording."""

RATE = 16000


def signals(
    folders: list[str], count: int, seconds: float = SECONDS, rate: int = RATE
) -> Iterator[FloatArray]:
    """Yield the middles of `count` recordings of each folder, at one rate, their peaks at full scale."""
    for folder in folders:
        files = sorted(path for path in Path(folder).rglob("*") if path.suffix in (".flac", ".wav"))
        for file in files[:: max(len(files) // count, 1)][:count]:
            samples = resample(read(file), rate).samples
            length = int(min(len(samples), seconds * rate))
            start = (len(samples) - length) // 2
            yield samples[start : start + length] / np.abs(samples).max()
    if not folders:
        samples, _ = speech()
        yield samples / np.abs(samples).max()


def measure(signal: FloatArray, quantizer: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return, hop by hop, the loudness, the squared error before, and after for each pace, in cells."""
    cells = quantizer.cells(quantizer.encode(signal))
    radius = quantizer.step / 2
    method = ChambollePockMethod()
    frames = split(cells.centre, method.frame_length, method.hop)
    loudness = np.log2(np.maximum(np.sqrt((frames**2).mean(-1)), 1e-9) / radius)

    def by_hop(samples: FloatArray) -> FloatArray:
        return (split((samples - signal) / radius, method.hop, method.hop) ** 2).sum(-1)

    after = []
    for pace in PACES:
        paced = ChambollePockMethod(pace=lambda at, p=pace: np.full_like(at, p))
        blocks = BlockRestorer(paced, paced.offline_block(None))
        pieces = blocks.feed(cells[None]).samples[0], blocks.flush().samples[0]
        after.append(by_hop(np.concatenate(pieces)))
    middle = method.frame_length // method.hop // 2  # the frame whose middle the hop is
    return loudness[middle:][: len(after[0])], by_hop(cells.centre), np.array(after)


def main(folders: list[str]) -> None:
    """Print the table."""
    nodes = np.array(LOUDNESS)
    before, after = np.zeros(len(nodes)), np.zeros((len(PACES), len(nodes)))
    for signal in signals(folders, count=12):
        for bits in BITS:
            for kind in (MidRise, MidTread):
                loudness, old, new = measure(signal, kind(bits))
                place = np.abs(loudness[:, None] - nodes).argmin(-1)
                before += np.bincount(place, old, len(nodes))
                after += [np.bincount(place, row, len(nodes)) for row in new]
    ratios = after / np.maximum(before, 1e-9)
    print("| loudness | pace | ratio | " + " | ".join(f"{pace:g}" for pace in PACES) + " |")
    print("|---" * (3 + len(PACES)) + "|")
    paces = []
    for node, column in zip(nodes, ratios.T, strict=True):
        paces.append(float(f"{vertex(column):.2g}"))
        figures = " | ".join(f"{ratio:.3f}" for ratio in column)
        print(f"| {node:g} | {paces[-1]:g} | {column.min():.3f} | {figures} |")
    print(json.dumps({"benchmark": "tuning", "loudness": list(LOUDNESS), "pace": paces}))


def vertex(ratios: FloatArray) -> float:
    """Return the pace at the lowest point of the parabola through the best one and its neighbours."""
    best = int(np.clip(ratios.argmin(), 1, len(PACES) - 2))
    left, middle, right = ratios[best - 1 : best + 2]
    bend = left - 2 * middle + right
    shift = (left - right) / (2 * bend) if bend > 0 else 0.0
    return float(PACES[best] * 2.0 ** np.clip(shift, -1, 1))


if __name__ == "__main__":
    main(sys.argv[1:])
