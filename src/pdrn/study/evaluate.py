"""Evaluate: quantize the frames of a corpus, restore them by every method, and measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pdrn.audio.cells import FloatArray
from pdrn.audio.corpus import Corpus
from pdrn.audio.frames import cut
from pdrn.audio.metrics import mse, snr, snr_pooled
from pdrn.audio.quantizers import MidRise
from pdrn.study.methods import method_named

FRAME_LENGTH = 1024


@dataclass(frozen=True)
class Row:
    """What one method reaches on one split of a corpus."""

    method: str
    mse: float
    """Mean squared error over all samples of all frames."""
    snr: float
    """Signal-to-noise ratio in dB of each file's whole frames, the mean over the files."""
    snr_pooled: float
    """Signal-to-noise ratio in dB of all frames together."""
    ratio: float
    """Mean squared error in units of the quantized signal's."""
    bits: int
    split: str
    files: int
    frames: int
    corpus_sha256: str


def evaluate(
    corpus: Corpus, split: str, bits: int, methods: Sequence[str], frame_length: int = FRAME_LENGTH
) -> Iterator[Row]:
    """Yield a row for each method, on the whole frames of every file, as in the paper.

    Files shorter than a frame have none and do not count. Unknown methods are refused before any work.
    """
    restorers = {name: method_named(name) for name in methods}
    quantizer = MidRise(bits, full_scale=True)
    files = [cut(signal, frame_length) for signal in corpus.signals(split)]
    files = [frames for frames in files if len(frames)]
    if not files:
        raise ValueError(
            f"the {split} split of {corpus.folder} has no file of {frame_length} samples or more; add some"
        )
    frames = np.concatenate(files)
    cells = quantizer.cells(quantizer.encode(frames))
    ends = np.cumsum([len(each) for each in files])[:-1]

    def by_file(rows: FloatArray) -> list[FloatArray]:
        return [each.ravel() for each in np.split(rows, ends)]

    signals = by_file(frames)
    quantized_mse = mse(signals, by_file(cells.centre))
    for name, restore in restorers.items():
        restored = by_file(restore(cells))
        error = mse(signals, restored)
        yield Row(
            method=name,
            mse=error,
            snr=snr(signals, restored),
            snr_pooled=snr_pooled(signals, restored),
            ratio=error / quantized_mse,
            bits=bits,
            split=split,
            files=len(files),
            frames=len(frames),
            corpus_sha256=corpus.checksum,
        )
