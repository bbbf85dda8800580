"""The problem that is measured: frames of the package's own speech, quantized to 5 bits."""

import numpy as np

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import speech
from pdrn.audio.frames import cut
from pdrn.audio.quantizers import MidRise

FRAME_LENGTH = 1024
BITS = 5


def cells_of_frames(count: int, dtype: type[np.floating] = np.float64) -> Cells:
    """Return the cells of that many frames, drawn from the sample at random offsets, always the same.

    Silent frames, all of whose samples lie in the two cells that touch zero, are left out: their solution
    is zero.
    """
    samples, _ = speech()
    frames = cut(samples / np.abs(samples).max(), FRAME_LENGTH, hop=16)
    quantizer = MidRise(BITS, full_scale=True)
    loud = frames[np.abs(frames).max(-1) > 2 / 2**BITS]
    chosen = np.random.default_rng(0).integers(len(loud), size=count)
    return quantizer.cells(quantizer.encode(loud[chosen])).astype(dtype)
