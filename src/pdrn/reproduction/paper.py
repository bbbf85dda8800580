"""The paper's own figures: Table 1 and Table 2, mean squared errors as such and not in multiples of 1e-4."""

from __future__ import annotations

from typing import Literal

Kind = Literal["PDN", "PDRN"]

KINDS: tuple[Kind, ...] = ("PDN", "PDRN")

MEMORY: dict[str, Literal["dual", "bias"]] = {"PDN": "dual", "PDRN": "bias"}
"""What the paper calls a network -> what its dual step remembers."""

DEPTHS = (1, 2, 5, 10, 15)

BITS, FRAME_LENGTH, SAMPLE_RATE_HZ = 5, 1024, 16000
"""The bit depth, the n, and the sample rate of its experiments."""

_TABLE_1 = {
    ("PDN", "train", False): (2.08, 1.28, 0.48, 0.28, 1.51),
    ("PDRN", "train", False): (2.05, 1.28, 0.53, 0.40, 0.57),
    ("PDN", "train", True): (3.29, 2.96, 2.06, 1.62, 1.69),
    ("PDRN", "train", True): (2.09, 1.57, 1.06, 1.01, 1.06),
    ("PDN", "dev", False): (2.43, 2.36, 2.31, 2.37, 2.48),
    ("PDRN", "dev", False): (2.38, 2.32, 2.00, 1.92, 2.03),
    ("PDN", "dev", True): (3.46, 3.20, 2.49, 2.07, 2.13),
    ("PDRN", "dev", True): (2.40, 2.24, 1.84, 1.81, 1.88),
}

TABLE_1 = {
    (kind, split, regularised, depth): 1e-4 * value
    for (kind, split, regularised), values in _TABLE_1.items()
    for depth, value in zip(DEPTHS, values, strict=True)
}
"""(kind, split, regularised, depth) -> the smallest mean squared error over 1000 epochs."""

TABLE_2 = {
    "QU": (4.47e-4, 15.06),
    "PDN": (2.13e-4, 18.27),
    "PDRN": (1.85e-4, 18.90),
    "CP 10": (3.05e-4, 16.71),
    "CP 25": (3.00e-4, 16.81),
    "CP 50": (3.00e-4, 16.85),
}
"""Method -> mean squared error and signal-to-noise ratio in dB on the test set."""
