"""Smooth a thermometer of whole degrees, with noise before rounding.

    min  a |Kx|_1 + |x - reading|^2 / 2,   K the second difference: few bends, straight lines between

python examples/sensor.py [PICTURE.png]
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.ndimage import uniform_filter1d

from pdrn.convex import L1, Convolution, Problem, RestartedHalpern, SquaredL2, solve
from shared import compare, draw

MINUTES = 200


def temperatures(generator: np.random.Generator, days: int) -> np.ndarray:
    """Return temperatures, one per minute, that rise and fall evenly between three to seven bends."""
    rows = []
    for _ in range(days):
        bends = np.sort(generator.uniform(0, MINUTES, generator.integers(3, 8)))
        times = np.concatenate([[-1], bends, [MINUTES]])
        rows.append(np.interp(np.arange(MINUTES), times, generator.normal(20, 2.5, len(times))))
    return np.stack(rows)


def main(path: str = "sensor.png", days: int = 50) -> dict[str, float]:
    """Simulate readings, smooth them and return the RMS error of each method."""
    generator = np.random.default_rng(1)
    clean = temperatures(generator, days)
    readings = np.round(clean + generator.normal(0, 0.5, clean.shape))

    bends = Convolution(np.array([[1.0, -2.0, 1.0]]), hop=1, count=MINUTES - 2)
    problem = Problem(3.0 * L1(), SquaredL2().shifted(-readings), bends, start=readings, weight=10.0)
    averages = {f"moving average of {width}": uniform_filter1d(readings, width) for width in (5, 9, 13)}
    results = {"as read": readings} | averages
    results["second differences, 100 iterations"] = solve(problem, iterations=100).x
    results["second differences, solved"] = solve(problem, RestartedHalpern(), tolerance=1e-3).x
    figures = compare(
        f"whole degrees with noise of half a degree, {days} days, RMS error / degree",
        lambda result: np.sqrt(np.mean((result - clean) ** 2)),
        results,
    )
    shown = ("as read", "moving average of 9", "second differences, solved")
    curves = {"true": clean[0]} | {name: results[name][0] for name in shown}
    draw(path, "a thermometer of whole degrees", np.arange(MINUTES), curves, None, "degrees", "minutes")
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
