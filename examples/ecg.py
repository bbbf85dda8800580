"""Restore an electrocardiogram in steps of 0.2 mV, by a network trained on hearts of the same kind.

    min |Kx|_1  with x in its cells,  K the cosine transform of half a second, unrolled and trained

python examples/ecg.py [PICTURE.png]
"""

import sys

import numpy as np

from pdrn.convex import DCT, dequantization, solve
from shared import compare, draw, has_torch, snr_db, train

RATE_HZ, FRAME, STEP = 250, 128, 0.2
WAVES = np.array(  # P, Q, R, S, T: seconds after the R peak, millivolts, width in seconds
    [(-0.2, 0.15, 0.025), (-0.035, -0.12, 0.01), (0, 1.1, 0.012), (0.03, -0.25, 0.01), (0.25, 0.3, 0.045)]
)


def heart(generator: np.random.Generator, samples: int) -> np.ndarray:
    """Return beats of five Gaussian waves each, of one heart, 60 to 92 a minute, on a breathing baseline."""
    seconds = np.arange(samples) / RATE_HZ
    period, breath = generator.uniform(0.65, 1.0), generator.uniform(0.15, 0.3)
    after, height, width = WAVES.T * generator.uniform(0.8, 1.25, (3, 5))
    beats = period * (generator.uniform(-2, -1) + np.cumsum(generator.normal(1, 0.03, samples // 100 + 9)))
    distance = seconds[:, None, None] - beats[:, None] - after
    baseline = 0.08 * np.sin(2 * np.pi * breath * seconds + generator.uniform(0, 6))
    return baseline + (height * np.exp(-((distance / width) ** 2) / 2)).sum((1, 2))


def main(path: str = "ecg.png", hearts: int = 2000, epochs: int = 6) -> dict[str, float]:
    """Quantize hearts, restore them and return the SNR of each method."""
    generator, K = np.random.default_rng(0), DCT(FRAME)
    frames = np.stack([heart(generator, FRAME) for _ in range(hearts)])
    clean = np.stack([heart(generator, 10 * FRAME) for _ in range(10)]).reshape(-1, FRAME)
    lo, seen = (STEP * np.floor(signal / STEP) for signal in (clean, frames))
    problem = dequantization(lo, lo + STEP, K)
    steps = problem.start.ravel()
    edges = np.flatnonzero(np.diff(steps))  # where one step ends and the next begins
    lines = np.interp(np.arange(steps.size), edges + 0.5, (steps[edges] + steps[edges + 1]) / 2)
    results = {"centres": problem.start, "straight lines": lines.reshape(clean.shape)}
    results["Chambolle-Pock, 5 iterations"] = solve(problem, iterations=5).x
    if has_torch():
        from pdrn.nets import unroll

        net = unroll(problem, depth=5, kernel="gains").float()
        train(net, lambda lo: dequantization(lo, lo + STEP, K), (seen,), frames, epochs)
        results["unrolled, 5 layers, trained"] = net.network()(problem)
    figures = compare(f"ECG in steps of {STEP} mV, SNR / dB", snr_db(clean), results)
    shown = {name: curve[:4].ravel() for name, curve in ({"true": clean} | results).items()}
    cells = tuple(end[:4].ravel() for end in (lo, lo + STEP))
    draw(path, "an ECG in coarse steps", np.arange(4 * FRAME) / RATE_HZ, shown, cells, "mV")
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
