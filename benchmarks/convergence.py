"""Iterations and time to a certified gap on problem (3.2): fixed steps, restarts, and a linear program."""

import json
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cells_of_speech import BITS, FRAME_LENGTH, cells_of_frames
from benchmarks.linear_program import optimum
from pdrn.convex import DCT, Algorithm, ChambollePock, RestartedHalpern, dequantization, solve

FRAMES = 32
LINEAR_PROGRAMS = 2
TOLERANCES = (1e-2, 1e-4, 1e-6)
MOST_ITERATIONS = 100_000
ALGORITHMS: dict[str, Algorithm] = {
    **{f"Chambolle-Pock, tau = {tau:g}": ChambollePock(tau=tau) for tau in (0.1, 0.03, 0.01, 0.003, 0.001)},
    "Chambolle-Pock, steps by the cell": ChambollePock(),
    "restarted Halpern": RestartedHalpern(),
}


def main() -> None:
    """Print mean iterations and seconds per frame to each gap, then a linear program's answer."""
    cells = cells_of_frames(FRAMES)
    problem = dequantization(cells.lo, cells.hi, DCT(FRAME_LENGTH))
    rows: list[dict[str, Any]] = []
    for name, algorithm in ALGORITHMS.items():
        for tolerance in TOLERANCES:
            begin = time.perf_counter()
            solution = solve(
                problem, algorithm, tolerance=tolerance, iterations=MOST_ITERATIONS, check_every=10
            )
            rows.append(
                {
                    "who": name,
                    "gap": tolerance,
                    "mean": float(solution.iterations.mean()),
                    "median": float(np.median(solution.iterations)),
                    "unsolved": int((~solution.converged).sum()),
                    "seconds_per_frame": (time.perf_counter() - begin) / FRAMES,
                }
            )
    programs = [compare_with_linear_program(cells.lo[row], cells.hi[row]) for row in range(LINEAR_PROGRAMS)]
    show(rows, programs)


def compare_with_linear_program(lower: np.ndarray[Any, Any], upper: np.ndarray[Any, Any]) -> dict[str, float]:
    """Solve one frame by HiGHS and by restarts to a gap of 1e-6."""
    K = DCT(FRAME_LENGTH)
    begin = time.perf_counter()
    best = optimum(lower, upper, K)
    between = time.perf_counter()
    certificate = solve(dequantization(lower, upper, K), RestartedHalpern(), tolerance=1e-6).certificate
    return {
        "highs_seconds": between - begin,
        "our_seconds": time.perf_counter() - between,
        "suboptimality": float(certificate.primal / best - 1),
        "reported_gap": float(certificate.relative_gap),
    }


def show(rows: list[dict[str, Any]], programs: list[dict[str, float]]) -> None:
    """Print both tables, and everything as JSON."""
    table = Table(title=f"mean iterations (ms per frame) to a relative gap, {FRAMES} frames at {BITS} bits")
    table.add_column("algorithm")
    for tolerance in TOLERANCES:
        table.add_column(f"{tolerance:g}", justify="right")
    for name in ALGORITHMS:
        mine = [row for row in rows if row["who"] == name]
        table.add_row(name, *(_cell(row) for row in mine))
    console = Console(width=140)
    console.print(table)
    last = TOLERANCES[-1]
    fixed = min(r["mean"] for r in rows if r["gap"] == last and r["who"].startswith("Chambolle"))
    restarted = next(r["mean"] for r in rows if r["gap"] == last and r["who"] == "restarted Halpern")
    console.print(
        f"to {last:g}: restarts need {fixed / restarted:.1f} times fewer iterations than the best fixed steps"
        f" (unsolved frames count as {MOST_ITERATIONS})"
    )
    table = Table(title="the same problem as a linear program")
    for heading in ("HiGHS", "restarted Halpern to 1e-6", "true distance to the optimum", "reported gap"):
        table.add_column(heading, justify="right")
    for row in programs:
        table.add_row(
            f"{row['highs_seconds']:.1f} s",
            f"{row['our_seconds']:.2f} s",
            f"{row['suboptimality']:.1e}",
            f"{row['reported_gap']:.1e}",
        )
    console.print(table)
    print(json.dumps({"benchmark": "convergence", "rows": rows, "linear_programs": programs}))


def _cell(row: dict[str, Any]) -> str:
    unsolved = f", {row['unsolved']} unsolved" if row["unsolved"] else ""
    return f"{row['mean']:.0f} ({1e3 * row['seconds_per_frame']:.1f}{unsolved})"
