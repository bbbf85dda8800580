"""The methods that a study compares, each by its name: cells of frames in, restored frames out."""

from __future__ import annotations

from collections.abc import Callable

from pdrn.audio.cells import Cells, FloatArray
from pdrn.convex import DCT, ChambollePock, dequantization, solve

Method = Callable[[Cells], FloatArray]

PAPER_STEPS = ChambollePock(sigma=10.0, tau=0.1, theta=1.0)
"""The steps with which the Chambolle-Pock row of Table 2 comes out."""


def method_named(name: str) -> Method:
    """Return the method that a name stands for.

    ``qu`` leaves the quantized signal as it is; ``cp:N`` does N iterations of Chambolle-Pock on each frame,
    with the cosine transform and the steps of Table 2.

    >>> method_named("cp:0")
    Traceback (most recent call last):
    ...
    ValueError: no method is called 'cp:0'; there are qu and cp:N with N iterations, for example cp:25
    """
    kind, _, argument = name.partition(":")
    if name == "qu":
        return lambda cells: cells.centre
    if kind == "cp" and argument.isdecimal() and int(argument) > 0:
        iterations = int(argument)
        return lambda cells: _chambolle_pock(cells, iterations)
    raise ValueError(
        f"no method is called {name!r}; there are qu and cp:N with N iterations, for example cp:25"
    )


def _chambolle_pock(cells: Cells, iterations: int) -> FloatArray:
    problem = dequantization(cells.lo, cells.hi, DCT(cells.shape[-1]))
    restored: FloatArray = solve(problem, PAPER_STEPS, iterations=iterations).x
    return restored
