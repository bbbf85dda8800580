"""The machine: its cores, the fastest number of threads, and bit-for-bit repeatable computation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fastest_threads(processes: int = 1) -> int:
    """Return 1 or this process's share of the cores: the number that multiplies matrices faster now.

    On a busy machine all cores together can be several times slower than one.
    """
    return max({1, max(1, usable_cores() // processes)}, key=multiplications_per_second)


def multiplications_per_second(threads: int) -> float:
    """Measure products of 128 frames with a matrix of 1024 rows and columns, for 50 ms."""
    frames, matrix = torch.ones(128, 1024), torch.ones(1024, 1024)
    with _threads(threads):
        for seconds in (0.01, 0.05):  # the first warms up
            begin, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < seconds:
                frames @ matrix
                count += 1
        return count * frames.shape[0] * matrix.numel() / spent


@contextmanager
def repeatable(threads: int) -> Iterator[None]:
    """Compute with this many threads and deterministic algorithms while the context lasts."""
    settings: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), settings.fill_uninitialized_memory
    with _threads(threads):
        try:
            torch.use_deterministic_algorithms(True)
            settings.fill_uninitialized_memory = False  # it takes time, and such memory is not read here
            yield
        finally:
            torch.use_deterministic_algorithms(before[0])
            settings.fill_uninitialized_memory = before[1]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
