"""Reweighted l1 (Candes, Wakin and Boyd 2008): solve, spare what turned out large, solve again."""

from __future__ import annotations

from dataclasses import replace

from pdrn.convex.arrays import Array, namespace, norm, positive
from pdrn.convex.operators import Operator
from pdrn.convex.problem import dequantization
from pdrn.convex.solver import Solution, solve


def reweighted(
    lower: Array,
    upper: Array,
    K: Operator,
    faint: float,
    *,
    group: int = 1,
    move: float | None = None,
    rounds: int = 4,
    iterations: int = 60,
) -> Solution:
    """Find a signal in its cells with few large coefficients, by some dequantization problems in a row.

    The first has the weights 1, every other ``faint / (faint + |Kx|)`` for the x before it: what is large
    costs little, what is faint is pressed to zero. Where cells are half-open or unbounded, as for clipping
    and gaps, this fills in far more of what is missing than one problem does.

    Parameters
    ----------
    lower, upper, K
        As in ``dequantization``.
    faint
        A coefficient of this magnitude is between the two; a few times what the noise in the signal has.
    group
        So many consecutive coefficients share a magnitude: 2 for the cosines and sines of a ``GaborFrame``.
    move
        How far samples that are not known are from the centres of their cells; without it the cells tell, by
        their mean width, which is little where most of them are points.
    rounds, iterations
        How many problems are solved, by so many iterations of Chambolle-Pock each.

    Returns
    -------
    Solution
        Of the last problem.
    """
    if rounds < 1:
        raise ValueError(f"reweighting takes at least one round, got {rounds}")
    if group < 1 or K.shape[0] % group:
        raise ValueError(f"{K.shape[0]} coefficients do not divide into groups of {group}")
    positive(faint, "faint")
    solution = None
    for _ in range(rounds):
        weight = 1.0 if solution is None else faint / (faint + _magnitude(K.apply(solution.x), group))
        problem = dequantization(lower, upper, K, weight)
        if move is not None:
            problem = replace(problem, weight=1 / positive(move, "move"))
        solution = solve(problem, iterations=iterations, x0=None if solution is None else solution.x)
    assert solution is not None  # there is at least one round
    return solution


def _magnitude(y: Array, group: int) -> Array:
    """Return the magnitude of every coefficient's group."""
    groups = y.reshape(*y.shape[:-1], -1, group)
    return namespace(y).broadcast_to(norm(groups), groups.shape).reshape(y.shape)
