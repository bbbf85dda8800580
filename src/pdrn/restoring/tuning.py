"""How far Chambolle-Pock goes in a frame, by how loud the frame is against its cells.

Steps are measured in cells. In a quiet frame nearly all that is heard is quantization error, and long steps
towards sparsity help; in a loud one the error is small against everything, and they would do harm.
`python -m benchmarks.tuning` makes the table from speech; results/LOG.md has its figures. Below -1, where few
cells do not hold zero, paces are shorter than the least error over all speech wants them: peaks far into
their cells are not to be lost in any recording.
"""

from __future__ import annotations

import numpy as np

from pdrn.audio.cells import FloatArray

LOUDNESS = (-3.4, -3.0, -2.0, -1.5, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""Binary logarithm of a frame's root mean square over the mean radius of its cells."""

PACE = (0.01, 0.1, 0.18, 0.28, 0.67, 2.9, 1.0, 0.75, 0.68, 0.72, 0.73, 0.77, 0.9, 1.2, 2.0, 4.0)
"""Step tau of Chambolle-Pock in units of that radius, before `overlapped` shortens it in full spectra."""


def tuned_pace(loudness: FloatArray) -> FloatArray:
    """Return the pace for each loudness, interpolated, constant beyond the ends of the table."""
    return np.exp(np.interp(loudness, LOUDNESS, np.log(PACE)))
