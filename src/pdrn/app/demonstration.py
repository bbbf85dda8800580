"""The demonstration: quantize the speech that comes with the package, and restore it in its cells."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pdrn.app.picture import picture
from pdrn.audio.cells import FloatArray
from pdrn.audio.metrics import pesq_wb, snr
from pdrn.audio.placing import whole_or_gone
from pdrn.audio.quantizers import MidRise
from pdrn.audio.sample import speech
from pdrn.audio.writing import write
from pdrn.restoring.restorer import Restorer

BITS = (4, 5, 6, 8)

_PICTURED_BITS = 4
_PICTURED = slice(193043, 193043 + 100)


@dataclass(frozen=True)
class Restoration:
    """One bit depth: how good the sound was, how good it is now, and whether it kept to its cells."""

    bits: int
    quantized_snr: float
    restored_snr: float
    quantized_pesq: float | None
    restored_pesq: float | None
    violation: float
    times_real_time: float


def restorations(folder: Path) -> Iterator[Restoration]:
    """Restore the sample at each bit depth; leave all sounds and a picture in the folder."""
    samples, sample_rate_hz = speech()
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "speech.wav", samples, sample_rate_hz, overwrite=True)
    for bits in BITS:
        quantizer = MidRise(bits, full_scale=True)
        cells = quantizer.cells(quantizer.encode(samples))
        begin = time.perf_counter()
        restored = Restorer().restore_cells(cells, sample_rate_hz)
        seconds = time.perf_counter() - begin
        name = f"speech_{bits}bits"
        write(folder / f"{name}.wav", cells.centre, sample_rate_hz, cells, subtype="PCM_16", overwrite=True)
        write(folder / f"{name}_restored.wav", restored, sample_rate_hz, cells, overwrite=True)
        if bits == _PICTURED_BITS:
            here = _PICTURED
            title = f"{bits} bits: every cell holds the truth"
            drawing = picture(cells[here], samples[here], restored[here], sample_rate_hz, title)
            with whole_or_gone(folder / "cells.svg", overwrite=True) as file:
                file.write(drawing.encode())
        pesq = [_pesq(samples, signal, sample_rate_hz) for signal in (cells.centre, restored)]
        yield Restoration(
            bits=bits,
            quantized_snr=snr(samples, cells.centre),
            restored_snr=snr(samples, restored),
            quantized_pesq=pesq[0],
            restored_pesq=pesq[1],
            violation=cells.violation(restored),
            times_real_time=len(samples) / sample_rate_hz / seconds,
        )


def _pesq(samples: FloatArray, estimate: FloatArray, sample_rate_hz: int) -> float | None:
    try:
        return pesq_wb(samples, estimate, sample_rate_hz)
    except ImportError:
        return None
