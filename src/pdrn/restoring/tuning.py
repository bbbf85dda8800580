"""How far Chambolle-Pock goes in a frame, by how loud the frame is against its cells.

Steps are measured in cells. In a loud frame the quantization error is small against everything in it, and
long steps towards sparsity would do more harm than good; in a quiet one, nearly all that is heard is error.
`python -m benchmarks.tuning` makes the table from speech; results/LOG.md has its figures.
"""

from __future__ import annotations

import numpy as np

from pdrn.audio.cells import FloatArray

LOUDNESS = (-3.0, -2.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Binary logarithm of a frame's root mean square over the mean radius of its cells."""

PACE = (0.1, 0.17, 0.3, 1.3, 0.33, 0.19, 0.11, 0.095, 0.077, 0.065, 0.054, 0.039, 0.032, 0.03)
"""Step tau of Chambolle-Pock in units of that radius."""


def tuned_pace(loudness: FloatArray) -> FloatArray:
    """Return the pace for each loudness, interpolated, constant beyond the ends of the table."""
    return np.exp(np.interp(loudness, LOUDNESS, np.log(PACE)))
