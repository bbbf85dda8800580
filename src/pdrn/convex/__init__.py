"""The mathematics of min F(Kx) + G(x): operators, functionals, problems and solvers.

Knows arrays, nothing of sound.
"""

from pdrn.convex.functionals import L1, L2, Ball, Box, Functional, GroupL21, LInf, SquaredL2, Zero
from pdrn.convex.operators import DCT, DCT2D, Convolution, Dense, GaborFrame, Identity, Operator
from pdrn.convex.problem import Certificate, Problem, dequantization
from pdrn.convex.solvers import (
    ChambollePock,
    Check,
    History,
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
    "History",
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
