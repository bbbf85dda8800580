"""Remove the bands from pictures of 3 bits: a pixel gives a cell of an eighth.

    min |w Kx|_1  with x in its cells,  K the cosine transform, w growing with frequency; unrolled

python examples/deband.py [PICTURE.png]
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.ndimage import gaussian_filter

from pdrn.convex import DCT2D, dequantization, solve
from shared import compare, draw_images, has_torch, snr_db, train

SIZE, STEP = 48, 1 / 8


def picture(generator: np.random.Generator) -> np.ndarray:
    """Return a sky of smooth gradients with one sharp-edged disc, 8 bits deep."""
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    image = generator.uniform(-1, 1) * x + generator.uniform(-1, 1) * y
    for v, u, width, light in generator.uniform((0, 0, 0.15, -1), (1, 1, 0.5, 1), (4, 4)):
        image += light * np.exp(-((y - v) ** 2 + (x - u) ** 2) / (2 * width**2))
    image = (image - image.min()) / np.ptp(image)
    v, u, radius, light = generator.uniform((0.2, 0.2, 0.1, 0), (0.8, 0.8, 0.25, 1))
    disc = (y - v) ** 2 + (x - u) ** 2 < radius**2
    return np.round(255 * np.where(disc, light * (1 - image), image)).ravel() / 255


def main(path: str = "deband.png", pictures: int = 400, epochs: int = 10) -> dict[str, float]:
    """Quantize pictures to 3 bits, restore them and return the PSNR of each method."""
    generator, K = np.random.default_rng(0), DCT2D(SIZE, SIZE)
    clean, known = (np.stack([picture(generator) for _ in range(count)]) for count in (20, pictures))
    lo, seen = (STEP * np.minimum(np.floor(image / STEP), 7) for image in (clean, known))
    weight = np.hypot(*np.mgrid[:SIZE, :SIZE] / SIZE).ravel()
    problem = dequantization(lo, lo + STEP, K, weight)

    blurred = gaussian_filter(problem.start.reshape(-1, SIZE, SIZE), (0, 1.2, 1.2)).reshape(clean.shape)
    results = {"3 bits": problem.start, "Gaussian blur, in the cells": problem.G.project(blurred)}
    results["Chambolle-Pock, 5 iterations"] = solve(problem, iterations=5).x
    if has_torch():
        from pdrn.nets import unroll

        net = unroll(problem, depth=5).float()
        train(net, lambda lo: dequantization(lo, lo + STEP, K, weight), (seen,), known, epochs)
        results["unrolled, 5 layers, trained"] = net.network()(problem)
    figures = compare("8 -> 3 bits, 20 pictures, PSNR / dB", snr_db(clean, peak=True), results)
    shown = {"original": clean} | results
    draw_images(path, {name: images[1].reshape(SIZE, SIZE) for name, images in shown.items()})
    return figures


if __name__ == "__main__":
    main(*sys.argv[1:])
