"""Draw the picture of the README: one frame, its cells, what was quantized, restored and there before.

``python tools/make_picture.py docs/images/cells.svg``
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.corpus import speech
from pdrn.audio.metrics import snr
from pdrn.audio.quantizers import MidRise
from pdrn.restoration.restorer import Restorer

BITS = 4
FRAME = slice(192832, 192832 + 512)
LOOKED_AT = slice(193040, 193040 + 72)

WIDTH, HEIGHT = 960, 600
LEFT, RIGHT = 64, 24
CELL, LEVEL, ORIGINAL, RESTORED, WORDS = "#dbe3ef", "#7c889b", "#1d4ed8", "#d9480f", "#334155"


@dataclass(frozen=True)
class Panel:
    """A rectangle in which a stretch of sound is drawn, as high as its cells reach."""

    stretch: slice
    top: float
    height: float
    low: float
    high: float

    def x(self, index: float) -> float:
        """Return where a sample is, from left to right."""
        count = self.stretch.stop - self.stretch.start
        return LEFT + (index - self.stretch.start + 0.5) * (WIDTH - LEFT - RIGHT) / count

    def y(self, value: float) -> float:
        """Return where a value is, from the top down."""
        return self.top + (self.high - value) / (self.high - self.low) * self.height

    @property
    def indices(self) -> range:
        """The samples of the stretch."""
        return range(self.stretch.start, self.stretch.stop)

    def curve(self, samples: FloatArray, colour: str, width: float) -> str:
        """Return a signal as a line."""
        points = " ".join(f"{self.x(index):.1f},{self.y(samples[index]):.1f}" for index in self.indices)
        return (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
            'stroke-linejoin="round"/>'
        )

    def stairs(self, samples: FloatArray) -> str:
        """Return a quantized signal as stairs."""
        half = (self.x(1) - self.x(0)) / 2
        points = " ".join(
            f"{self.x(index) + side:.1f},{self.y(samples[index]):.1f}"
            for index in self.indices
            for side in (-half, half)
        )
        return f'<polyline points="{points}" fill="none" stroke="{LEVEL}" stroke-width="1.6"/>'

    def boxes(self, cells: Cells, border: float) -> Iterator[str]:
        """Yield the cells as boxes; without a border, equal neighbours are one box."""
        half = (self.x(1) - self.x(0)) / 2
        for _, run in groupby(self.indices, lambda index: cells.lo[index] if border == 0 else index):
            first, *_, last = (*run,) * 2
            left, right = self.x(first) - half, self.x(last) + half
            top, bottom = self.y(cells.hi[first]), self.y(cells.lo[first])
            yield (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
                f'fill="{CELL}" stroke="white" stroke-width="{border}"/>'
            )


def drawing() -> str:
    """Return the picture as SVG."""
    samples, rate = speech()
    quantizer = MidRise(BITS, full_scale=True)
    cells = quantizer.cells(quantizer.encode(samples))
    restored = Restorer().restore_cells(cells, rate, quantizer.step)

    def panel(stretch: slice, top: float, height: float) -> Panel:
        return Panel(stretch, top, height, float(cells.lo[stretch].min()), float(cells.hi[stretch].max()))

    frame, near = panel(FRAME, 56, 190), panel(LOOKED_AT, 306, 250)
    left, right = frame.x(LOOKED_AT.start), frame.x(LOOKED_AT.stop)
    lens = [
        f'<rect x="{left:.1f}" y="{frame.top - 4}" width="{right - left:.1f}" height="{frame.height + 8}" '
        'fill="none" stroke="#94a3b8" stroke-dasharray="4 3"/>',
        f'<path d="M{left:.1f} {frame.top + frame.height + 4} L{LEFT} {near.top - 6} M{right:.1f} '
        f'{frame.top + frame.height + 4} L{WIDTH - RIGHT} {near.top - 6}" stroke="#94a3b8" '
        'stroke-dasharray="4 3"/>',
    ]
    gain = f"{snr(samples, cells.centre):.1f} dB before, {snr(samples, restored):.1f} dB after"
    legend = []
    place = WIDTH - RIGHT - 396.0
    for name, colour, room in (
        ("cell", CELL, 62),
        ("quantized", LEVEL, 102),
        ("restored", RESTORED, 96),
        ("original (unknown)", ORIGINAL, 0),
    ):
        legend.append(f'<rect x="{place}" y="20" width="14" height="11" rx="2" fill="{colour}"/>')
        legend.append(f'<text x="{place + 20}" y="30">{name}</text>')
        place += room
    milliseconds = 1000 * (FRAME.stop - FRAME.start) / rate
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="system-ui, sans-serif" font-size="13" fill="{WORDS}">',
            f"<title>{BITS}-bit speech, restored inside its cells</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="white"/>',
            f'<text x="{LEFT}" y="30" font-size="16" font-weight="600">{BITS}-bit speech, restored '
            "inside its cells</text>",
            *frame.boxes(cells, border=0),
            frame.stairs(cells.centre),
            frame.curve(samples, ORIGINAL, 1.6),
            frame.curve(restored, RESTORED, 1.6),
            *lens,
            *near.boxes(cells, border=0.8),
            near.stairs(cells.centre),
            near.curve(samples, ORIGINAL, 2.4),
            near.curve(restored, RESTORED, 2.4),
            *(
                f'<text x="{LEFT - 8}" y="{part.y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
                for part in (frame, near)
                for value in np.linspace(part.low, part.high, 3)
            ),
            f'<text x="{WIDTH - RIGHT}" y="{frame.top + frame.height + 22}" text-anchor="end">'
            f"{milliseconds:g} ms</text>",
            f'<text x="{LEFT}" y="{HEIGHT - 16}">'
            f"A cell is where the sample may have been. Whole recording: {gain}.</text>",
            *legend,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawing())
