"""The demonstration: quantize the speech that comes with the package, and restore it in its cells."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pdrn.audio.metrics import snr
from pdrn.audio.quantizers import MidRise
from pdrn.audio.sample import speech
from pdrn.convex import ChambollePock, GaborFrame, dequantization, solve

BITS = (4, 5, 6)
ITERATIONS = 25


@dataclass(frozen=True)
class Restoration:
    """One bit depth: how good the sound was, how good it is now, and whether it kept to its cells."""

    bits: int
    quantized_snr: float
    restored_snr: float
    violation: float
    times_real_time: float


def restorations() -> Iterator[Restoration]:
    """Restore the sample at each bit depth: the sparsest signal of a Gabor frame inside its cells."""
    samples, sample_rate_hz = speech()
    frame = GaborFrame(len(samples), window_length=1024, hop=128)
    for bits in BITS:
        quantizer = MidRise(bits, full_scale=True)
        cells = quantizer.cells(quantizer.encode(samples)).astype(np.float32)
        begin = time.perf_counter()
        restored = solve(dequantization(cells.lo, cells.hi, frame), ChambollePock(), iterations=ITERATIONS).x
        seconds = time.perf_counter() - begin
        yield Restoration(
            bits=bits,
            quantized_snr=snr(samples, cells.centre),
            restored_snr=snr(samples, restored),
            violation=cells.violation(restored),
            times_real_time=len(samples) / sample_rate_hz / seconds,
        )
