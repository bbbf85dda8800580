"""Time per frame and iteration of Chambolle-Pock on problem (3.2): this solver, its floor, and the peers."""

import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
from rich.console import Console
from rich.table import Table

from benchmarks.cells_of_speech import FRAME_LENGTH, cells_of_frames
from benchmarks.peers import NOT_COMPARABLE, PEERS
from pdrn.convex import DCT, ChambollePock, dequantization, solve

BATCHES = (1, 16, 128, 4486)
ITERATIONS = 25
SIGMA, TAU = 10.0, 0.1
LEAST_SECONDS = 0.3
"""In each round every contender is called until it has run this long; its best call counts."""

SLOW_SECONDS = 5.0
"""A contender whose call takes longer is not called again."""


def floor(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Do nothing but the two cosine transforms of every iteration, in place."""
    x = x.copy()
    for _ in range(ITERATIONS):
        x = scipy.fft.dct(x, norm="ortho", overwrite_x=True)
        x = scipy.fft.idct(x, norm="ortho", overwrite_x=True)
    return x


def best_seconds(contenders: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Time the contenders in turn, round after round, and keep the best call of each."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, call in contenders.items():
            if best.get(name, 0.0) > SLOW_SECONDS:
                continue
            spent = 0.0
            while spent < LEAST_SECONDS:
                begin = time.perf_counter()
                call()
                seconds = time.perf_counter() - begin
                spent += seconds
                best[name] = min(best.get(name, np.inf), seconds)
    return best


def main() -> None:
    """Print microseconds per frame and iteration, and each as a multiple of the floor."""
    warnings.simplefilter("ignore")
    rows = []
    for dtype in (np.float32, np.float64):
        for batch in BATCHES:
            cells = cells_of_frames(batch, dtype)
            problem = dequantization(cells.lo, cells.hi, DCT(FRAME_LENGTH))
            algorithm = ChambollePock(SIGMA, TAU)
            contenders: dict[str, Callable[[], Any]] = {
                "floor": lambda problem=problem: floor(problem.start),
                "pdrn": lambda problem=problem, algorithm=algorithm: (
                    solve(problem, algorithm, iterations=ITERATIONS).x
                ),
            }
            for name, peer in PEERS.items():
                contenders[name] = lambda peer=peer, cells=cells, start=problem.start: peer(
                    cells.lo, cells.hi, start, SIGMA, TAU, ITERATIONS
                )
            expected = contenders["pdrn"]()
            for name in PEERS.keys() - NOT_COMPARABLE:
                if not np.allclose(contenders[name](), expected, atol=1e-5):
                    raise AssertionError(f"{name} does not compute the same iterate")
            for name, seconds in best_seconds(contenders).items():
                microseconds = 1e6 * seconds / (batch * ITERATIONS)
                rows.append({"dtype": dtype.__name__, "batch": batch, "who": name, "us": microseconds})
    show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table with one line per batch, and everything as JSON."""
    names = list(dict.fromkeys(row["who"] for row in rows))
    table = Table(title=f"microseconds per frame and iteration, n = {FRAME_LENGTH} (multiples of the floor)")
    for heading in ("type", "batch", *names):
        table.add_column(heading, justify="right")
    for dtype, batch in dict.fromkeys((row["dtype"], row["batch"]) for row in rows):
        us = {row["who"]: row["us"] for row in rows if (row["dtype"], row["batch"]) == (dtype, batch)}
        table.add_row(
            dtype, str(batch), *(f"{us[name]:.1f} ({us[name] / us['floor']:.2f})" for name in names)
        )
    Console(width=140).print(table)
    print(json.dumps({"benchmark": "speed", "iterations": ITERATIONS, "rows": rows}))
