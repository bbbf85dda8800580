"""Speed of the networks, each beside its floor in the same run: matrix products, or reading the weights.

The aims of training hold with MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_MMAP_THRESHOLD_=33554432, by which
glibc keeps freed memory.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.cells_of_speech import FRAME_LENGTH, cells_of_frames
from benchmarks.speed import best_seconds
from pdrn.nets import ConvolutionalMap, DenseMap, Network, PrimalDual
from pdrn.nets.torch import NetworkModule

DEPTH, BATCH = 10, 128
SQUARE = 1024
"""The rate of matrix products is that of two square matrices of this size."""

FLAGSHIP = PrimalDual(ConvolutionalMap(256, 320, 160), 8, "mix")
SEGMENTS, SEGMENT_LENGTH = 16, 16384
SPIN = "while True: pass"


def cells(shape: tuple[int, ...]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Cells of speech in float32, of any shape."""
    count = -(-int(np.prod(shape)) // FRAME_LENGTH)
    of_frames = cells_of_frames(count, np.float32)
    lower, upper = (bound.ravel()[: np.prod(shape)].reshape(shape) for bound in (of_frames.lo, of_frames.hi))
    return lower, upper


def step_of(module: NetworkModule, shape: tuple[int, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return a forward and backward pass, and the same followed by a step of Adam."""
    lower, upper = (torch.from_numpy(bound.copy()) for bound in cells(shape))
    target = lower + 0.3 * (upper - lower)
    adam = torch.optim.Adam(module.parameters(), 1e-6, fused=True)

    def forward_and_backward() -> None:
        adam.zero_grad()
        ((module(lower, upper) - target) ** 2).mean().backward()

    def whole_step() -> None:
        forward_and_backward()
        adam.step()

    return forward_and_backward, whole_step


def dense_floor() -> Callable[[], Any]:
    """Return the matrix products of a dense forward and backward pass, each on arrays of its own."""
    n, count = FRAME_LENGTH, 2 * DEPTH
    activations, results = torch.randn(count, BATCH, n), torch.empty(count, BATCH, n)
    kernels, gradients = torch.randn(count, n, n), torch.empty(count, n, n)

    def products() -> None:
        for x, kernel, y in zip(activations, kernels, results, strict=True):
            torch.mm(x, kernel, out=y)
        for index in reversed(range(count)):
            torch.mm(activations[index].T, results[index], out=gradients[index])
            if index:  # the input of the network has no gradient
                torch.mm(results[index], kernels[index].T, out=results[index - 1])

    return products


def dense_training() -> list[dict[str, Any]]:
    """Time a training step of the paper's network of depth 10."""
    module = NetworkModule(PrimalDual(DenseMap(FRAME_LENGTH), DEPTH, "bias"))
    forward_and_backward, whole_step = step_of(module, (BATCH, FRAME_LENGTH))
    contenders = {"floor": dense_floor(), "both": forward_and_backward, "step": whole_step}
    best = best_seconds(contenders, rounds=15)
    case = f"dense PDRN, L = {DEPTH}, n = {FRAME_LENGTH}, batch {BATCH}, torch"
    return [
        row(case, "products / forward and backward", best["floor"] / best["both"], ">= 0.85"),
        row(case, "products / whole step with Adam", best["floor"] / best["step"], ">= 0.70"),
    ]


def one_frame() -> list[dict[str, Any]]:
    """Time one frame through the paper's network, which has to read every weight once."""
    network = Network.started(PrimalDual(DenseMap(FRAME_LENGTH), DEPTH, "bias"))
    lower, upper = (bound[0] for bound in cells((1, FRAME_LENGTH)))
    weights = list(network.weights.values())
    contenders: dict[str, Callable[[], Any]] = {
        "maximum": lambda: [part.max() for part in weights],
        "sum": lambda: [part.sum() for part in weights],
        "product": lambda: [lower @ part for part in weights if part.ndim == 2],
        "network": lambda: network(lower, upper),
    }
    best = best_seconds(contenders)
    ratio = best["network"] / min(best["maximum"], best["sum"], best["product"])
    case = f"dense PDRN, L = {DEPTH}, n = {FRAME_LENGTH}, one frame, NumPy"
    return [row(case, "time / reading the weights", ratio, "<= 1.3")]


def convolutional() -> list[dict[str, Any]]:
    """Compare the rate of a convolutional network with that of a square matrix product."""
    shape = (SEGMENTS, SEGMENT_LENGTH)
    flops = 2 * FLAGSHIP.products(shape)
    network = Network.started(FLAGSHIP)
    lower, upper = cells(shape)
    forward_and_backward, _ = step_of(NetworkModule(FLAGSHIP), shape)
    array = np.random.default_rng(0).standard_normal((SQUARE, SQUARE)).astype(np.float32)
    tensor = torch.from_numpy(array)
    contenders: dict[str, Callable[[], Any]] = {
        "numpy": lambda: array @ array,
        "torch": lambda: tensor @ tensor,
        "forward": lambda: network(lower, upper),
        "both": forward_and_backward,
    }
    best = best_seconds(contenders)
    numpy_rate, torch_rate = (2 * SQUARE**3 / best[name] for name in ("numpy", "torch"))
    seconds = SEGMENTS * SEGMENT_LENGTH / 16000
    case = f"convolutional, L = 8, 256 filters of 320, hop 160, {SEGMENTS} x {SEGMENT_LENGTH} samples"
    return [
        row(case, "rate of forward, NumPy / product", flops / best["forward"] / numpy_rate, ">= 0.6"),
        row(case, "rate of both, torch / product", 3 * flops / best["both"] / torch_rate, ">= 0.6"),
        row(case, "times real time at 16 kHz, NumPy", seconds / best["forward"], ""),
    ]


def busy_machine() -> list[dict[str, Any]]:
    """Time a network while other processes keep every core busy, by the default and with all threads."""
    cores = os.cpu_count() or 1
    default = Network.started(PrimalDual(DenseMap(FRAME_LENGTH), DEPTH))
    all_threads = dataclasses.replace(default, threads=cores)
    lower, upper = cells((BATCH, FRAME_LENGTH))
    contenders: dict[str, Callable[[], Any]] = {
        "default": lambda: default(lower, upper),
        "all": lambda: all_threads(lower, upper),
    }
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(cores - 1)]
    try:
        best = best_seconds(contenders)
    finally:
        for other in others:
            other.kill()
    case = f"dense PDN, L = {DEPTH}, batch {BATCH}, NumPy, {cores - 1} of {cores} cores busy elsewhere"
    return [row(case, f"{cores} threads / one thread", best["all"] / best["default"], "")]


def row(case: str, measure: str, ratio: float, target: str) -> dict[str, Any]:
    """Return one line of the table."""
    return {"case": case, "measure": measure, "ratio": ratio, "target": target}


def main() -> None:
    """Print one table, and everything as JSON."""
    rows = dense_training() + one_frame() + convolutional() + busy_machine()
    table = Table(title=f"ratios within one run, torch on {torch.get_num_threads()} thread(s), NumPy on one")
    for heading in ("case", "measure", "ratio", "target"):
        table.add_column(heading, justify="right" if heading in ("ratio", "target") else "left")
    for each in rows:
        table.add_row(each["case"], each["measure"], f"{each['ratio']:.2f}", each["target"])
    Console(width=150).print(table)
    print(json.dumps({"benchmark": "networks", "threads": torch.get_num_threads(), "rows": rows}))
