"""The mathematics of min F(Kx) + G(x): operators, functionals, problems and solvers.

Knows arrays, nothing of sound.
"""

from pdrn.convex.chambolle_pock import ChambollePock, step_sizes
from pdrn.convex.convolution import Convolution
from pdrn.convex.functionals import Functional, SquaredL2, Zero
from pdrn.convex.halpern import RestartedHalpern
from pdrn.convex.indicators import Ball, Box
from pdrn.convex.norms import L1, L2, GroupL21, LInf
from pdrn.convex.operators import Dense, Identity, Operator
from pdrn.convex.problem import Certificate, Problem, dequantization
from pdrn.convex.reweighting import reweighted
from pdrn.convex.solver import Check, History, Solution, solve
from pdrn.convex.transforms import DCT, DCT2D, GaborFrame

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
