"""The problem that is measured: frames of the package's own speech, quantized to 5 bits."""

import numpy as np

from pdrn.audio.cells import Cells
from pdrn.audio.frames import cut
from pdrn.audio.quantizers import MidRise
from pdrn.audio.sample import speech

FRAME_LENGTH = 1024
BITS = 5


def cells_of_frames(count: int, dtype: type[np.floating] = np.float64) -> Cells:
    """Return the cells of that many frames, drawn from the sample at random offsets, always the same."""
    samples, _ = speech()
    frames = cut(samples / np.abs(samples).max(), FRAME_LENGTH, hop=1)
    chosen = np.random.default_rng(0).integers(len(frames), size=count)
    quantizer = MidRise(BITS)
    return quantizer.cells(quantizer.encode(frames[chosen])).astype(dtype)
