"""Convex problems min F(Kx) + G(x): functionals, operators, problems, certificates and solvers.

Knows arrays, nothing of sound. ``Functional``, ``Operator`` and ``Algorithm`` are there to be derived from.
"""

from pdrn.convex.functionals import L1, L2, Ball, Box, Functional, GroupL21, LInf, SquaredL2, Zero
from pdrn.convex.operators import DCT, DCT2D, Convolution, Dense, GaborFrame, Identity, Operator
from pdrn.convex.problem import Certificate, Problem, dequantization
from pdrn.convex.solvers import (
    Algorithm,
    ChambollePock,
    Check,
    RestartedHalpern,
    Solution,
    reweighted,
    solve,
    step_sizes,
)

__all__ = [
    "DCT",
    "DCT2D",
    "L1",
    "L2",
    "Algorithm",
    "Ball",
    "Box",
    "Certificate",
    "ChambollePock",
    "Check",
    "Convolution",
    "Dense",
    "Functional",
    "GaborFrame",
    "GroupL21",
    "Identity",
    "LInf",
    "Operator",
    "Problem",
    "RestartedHalpern",
    "Solution",
    "SquaredL2",
    "Zero",
    "dequantization",
    "reweighted",
    "solve",
    "step_sizes",
]


def __dir__() -> list[str]:
    return __all__
