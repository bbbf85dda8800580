"""What the tests of the mathematics share: the functionals and operators under test, and random vectors."""

import math

import numpy as np
from hypothesis import strategies as st

from pdrn.convex import (
    DCT,
    DCT2D,
    L1,
    L2,
    Ball,
    Box,
    Convolution,
    Dense,
    GaborFrame,
    GroupL21,
    Identity,
    LInf,
    SquaredL2,
    Zero,
)

SIZE = 6
WEIGHTS = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
OFFSET = np.array([1.0, -2.0, 0.0, 0.5, 3.0, -0.25])
HALF_OPEN = Box(
    np.array([-1.0, -np.inf, -np.inf, 0.0, 2.0, -3.0]),
    np.array([1.0, 0.5, np.inf, np.inf, 2.0, -2.5]),
)

FUNCTIONALS = {
    "zero": Zero(),
    "l1": L1(),
    "weighted l1": L1(WEIGHTS),
    "shifted l1": L1().shifted(OFFSET),
    "l2": L2(),
    "squared l2": SquaredL2(),
    "shifted squared l2": SquaredL2().shifted(OFFSET),
    "linf": LInf(),
    "group l2,1": GroupL21(2),
    "weighted group l2,1": GroupL21(2, np.array([0.5, 1.0, 3.0])),
    "l1 ball": Ball(1, 1.5),
    "l2 ball": Ball(2, 0.7),
    "linf ball": Ball(math.inf, 0.5),
    "box": Box(np.full(SIZE, -0.5), np.full(SIZE, 1.0)),
    "half-open box": HALF_OPEN,
    "scaled l1": 2.5 * L1(),
    "scaled and shifted l2": (0.3 * L2()).shifted(OFFSET),
    "scaled box": 3.0 * HALF_OPEN,
    "shifted ball": Ball(2, 0.7).shifted(OFFSET),
}
SEPARABLE = ["zero", "l1", "weighted l1", "shifted l1", "squared l2", "box", "half-open box"]

_MATRIX = np.random.default_rng(7).standard_normal((9, 12))
OPERATORS = {
    "identity": Identity(12),
    "matrix": Dense(_MATRIX),
    "cosine transform": DCT(12),
    "odd cosine transform": DCT(13),
    "cosine transform of images": DCT2D(3, 4),
    "frame": GaborFrame(50, window_length=8, hop=2),
    "frame with ragged hop": GaborFrame(41, window_length=10, hop=3, fft_length=13),
    "frame without overlap": GaborFrame(17, window_length=5, hop=5),
    "frame longer than the signal": GaborFrame(3, window_length=16, hop=4),
    "convolution": Convolution(_MATRIX[:5, :6], hop=2, count=4),
    "convolution without overlap": Convolution(_MATRIX[:3, :4], hop=4, count=3),
    "convolution of one view": Convolution(_MATRIX[:, :8], hop=2, count=1),
    "scaled": -2.5 * DCT(12),
    "composed": Dense(_MATRIX) @ DCT(12),
    "frame after scaling": GaborFrame(12, window_length=6, hop=2) @ (0.5 * Identity(12)),
}

seeds = st.integers(0, 2**32 - 1)
scales = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3])
steps = st.sampled_from([0.01, 0.3, 1.0, 7.0, 100.0])


def normal(seed, *shape, scale=1.0):
    """Random vectors, with a few exact zeros among them."""
    generator = np.random.default_rng(seed)
    x = scale * generator.standard_normal(shape)
    x[generator.random(shape) < 0.1] = 0.0
    return x


def cells(seed, *shape, step=0.25):
    """Quantization cells around a smooth random signal."""
    s = np.cumsum(normal(seed, *shape, scale=0.3), -1)
    lower = step * np.floor(s / step)
    return lower, lower + step
