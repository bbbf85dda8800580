"""Problem (3.2) as a linear program, for an optimum that owes nothing to this project's solvers."""

import numpy as np
import scipy.optimize

from pdrn.convex import Operator


def optimum(lower: np.ndarray, upper: np.ndarray, K: Operator) -> float:
    """Return min |Kx|_1 with lower <= x <= upper, by HiGHS.

    With t >= |Kx| the objective is the sum of t.
    """
    m, n = K.shape
    matrix = K.apply(np.eye(n)).T
    bounds = np.concatenate([np.stack([lower, upper], 1), np.tile([0.0, np.inf], (m, 1))])
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(n), np.ones(m)]),
        A_ub=np.block([[matrix, -np.eye(m)], [-matrix, -np.eye(m)]]),
        b_ub=np.zeros(2 * m),
        bounds=bounds,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not result.success:
        raise RuntimeError(f"HiGHS did not solve the linear program: {result.message}")
    return float(result.fun)
