"""The demonstration: quantize and restore the bundled speech, measure and draw it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.corpus import speech
from pdrn.audio.files import read, write
from pdrn.audio.metrics import pesq, snr
from pdrn.audio.quantizers import MidRise
from pdrn.errors import AudioError
from pdrn.restoration.registry import for_rate
from pdrn.restoration.restorer import Restorer
from pdrn.storage import atomic_write, make_folder

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 50, 40
LEGEND = 108
"""Room for each name."""

CELL, QUANTIZED, ORIGINAL = "#e3e8ef", "#8a94a6", "#1d4ed8"
RESTORED = ("#c2410c", "#15803d")
"""One for each method."""


def picture(
    cells: Cells, original: FloatArray, restored: Mapping[str, FloatArray], sample_rate_hz: int, title: str
) -> str:
    """Return an SVG image of one stretch of sound: its cells as boxes, and the signals as curves.

    What was restored, by up to two methods, is given by their names.
    """
    count = len(original)
    low, high = float(cells.lo.min()), float(cells.hi.max())
    across = (WIDTH - LEFT - RIGHT) / count
    up = (HEIGHT - TOP - BOTTOM) / (high - low)

    def x(index: float) -> float:
        return LEFT + (index + 0.5) * across

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) * up

    def curve(samples: FloatArray, colour: str) -> str:
        points = " ".join(f"{x(index):.1f},{y(float(value)):.1f}" for index, value in enumerate(samples))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    boxes = [
        f'<rect x="{x(index) - across / 2:.1f}" y="{y(float(hi)):.1f}" width="{across:.1f}" '
        f'height="{(float(hi) - float(lo)) * up:.1f}" fill="{CELL}" stroke="white" stroke-width="0.5"/>'
        for index, (lo, hi) in enumerate(zip(cells.lo, cells.hi, strict=True))
    ]
    marks = [
        f'<rect x="{x(index) - across / 2:.1f}" y="{y(float(centre)) - 1:.1f}" width="{across:.1f}" '
        f'height="2" fill="{QUANTIZED}"/>'
        for index, centre in enumerate(cells.centre)
    ]
    by_method = list(zip(restored, RESTORED, strict=False))
    names = [("cell", CELL), ("quantized", QUANTIZED), ("original", ORIGINAL), *by_method]
    first = WIDTH - RIGHT - LEGEND * len(names)
    legend = [
        f'<rect x="{first + LEGEND * place}" y="18" width="14" height="10" fill="{colour}"/>'
        f'<text x="{first + 18 + LEGEND * place}" y="28" font-size="12">{name}</text>'
        for place, (name, colour) in enumerate(names)
    ]
    ticks = [
        f'<text x="{x(milliseconds * sample_rate_hz / 1000):.1f}" y="{HEIGHT - 15}" text-anchor="middle">'
        f"{milliseconds} ms</text>"
        for milliseconds in range(1000 * count // sample_rate_hz + 1)
    ] + [
        f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in (low, (low + high) / 2, high)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13" fill="#334155">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="28" font-size="16">{title}</text>',
            *boxes,
            *marks,
            curve(original, ORIGINAL),
            *(curve(restored[method], colour) for method, colour in by_method),
            *legend,
            *ticks,
            "</svg>\n",
        ]
    )


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
            with atomic_write(folder / "cells.svg", overwrite=True) as file:
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
