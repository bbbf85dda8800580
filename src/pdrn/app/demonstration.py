"""The demonstration: quantize the speech that comes with the package, and restore it in its cells."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdrn.app.picture import picture
from pdrn.audio.cells import FloatArray
from pdrn.audio.files import read
from pdrn.audio.metrics import pesq, snr
from pdrn.audio.placing import make_folder, whole_or_gone
from pdrn.audio.quantizers import MidRise
from pdrn.audio.sample import speech
from pdrn.audio.system import AudioError
from pdrn.audio.writing import write
from pdrn.restoring.pretrained import for_rate
from pdrn.restoring.restorer import Restorer

BITS = (4, 5, 6, 8)

_PICTURED_BITS = 4
_PICTURED = slice(193043, 193043 + 100)


@dataclass(frozen=True)
class Restoration:
    """One bit depth and method: how good the sound was and is now, and whether it kept to its cells."""

    bits: int
    method: str
    quantized_snr: float
    restored_snr: float
    quantized_pesq: float | None
    restored_pesq: float | None
    violation: float
    times_real_time: float


def restorations(folder: Path) -> Iterator[Restoration]:
    """Restore the sample at each bit depth, by a network where there is one and by Chambolle-Pock.

    All sounds and a picture are left in the folder.
    """
    samples, sample_rate_hz = speech()
    restorers = {"cp": Restorer(method="cp")}
    if fitting := for_rate(sample_rate_hz):
        restorers = {fitting[0]: Restorer.from_pretrained(fitting[0])} | restorers
    make_folder(folder)
    _refuse_others(folder, samples, restorers)
    write(folder / "speech.wav", samples, sample_rate_hz, overwrite=True)
    for bits in BITS:
        quantizer = MidRise(bits, full_scale=True)
        cells = quantizer.cells(quantizer.encode(samples))
        name = f"speech_{bits}bits"
        write(folder / f"{name}.wav", cells.centre, sample_rate_hz, cells, subtype="PCM_16", overwrite=True)
        quantized_pesq = _pesq(samples, cells.centre, sample_rate_hz)
        curves = {}
        for method, restorer in restorers.items():
            begin = time.perf_counter()
            restored = restorer.restore_cells(cells, sample_rate_hz, quantizer.step)
            seconds = time.perf_counter() - begin
            write(folder / f"{name}_{method}.wav", restored, sample_rate_hz, cells, overwrite=True)
            curves[method] = restored[_PICTURED]
            yield Restoration(
                bits=bits,
                method=method,
                quantized_snr=snr(samples, cells.centre),
                restored_snr=snr(samples, restored),
                quantized_pesq=quantized_pesq,
                restored_pesq=_pesq(samples, restored, sample_rate_hz),
                violation=cells.violation(restored),
                times_real_time=len(samples) / sample_rate_hz / seconds,
            )
        if bits == _PICTURED_BITS:
            title = f"{bits} bits: every cell holds the truth"
            drawing = picture(cells[_PICTURED], samples[_PICTURED], curves, sample_rate_hz, title)
            with whole_or_gone(folder / "cells.svg", overwrite=True) as file:
                file.write(drawing.encode())


def _refuse_others(folder: Path, samples: FloatArray, methods: Iterable[str]) -> None:
    """Refuse to replace what is not this demonstration's own: all is its own beside its own speech."""
    endings = ("", *(f"_{method}" for method in methods))
    names = ["speech.wav", "cells.svg", *(f"speech_{bits}bits{end}.wav" for bits in BITS for end in endings)]
    there = [folder / name for name in names if (folder / name).exists()]
    try:
        is_ours = np.array_equal(read(folder / "speech.wav").samples, samples.astype(np.float32))
    except AudioError:
        is_ours = False
    if there and not is_ours:
        raise AudioError(f"{there[0]} is not of the demonstration; choose another folder for that")


def _pesq(samples: FloatArray, estimate: FloatArray, sample_rate_hz: int) -> float | None:
    try:
        return pesq(samples, estimate, sample_rate_hz)
    except ImportError:
        return None
