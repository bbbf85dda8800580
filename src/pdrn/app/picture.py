"""A picture of cells and the curves through them, as SVG."""

from __future__ import annotations

from collections.abc import Mapping

from pdrn.audio.cells import Cells, FloatArray

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
