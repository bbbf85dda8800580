"""The machine: its cores, how many threads are fastest, and computation that can be repeated to the bit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

_FILLING = (torch.utils.deterministic, "fill_uninitialized_memory")
"""Whether deterministic algorithms of torch fill new memory, which takes time and changes nothing here."""


def fastest_threads(processes: int = 1) -> int:
    """Return 1 or all that so many processes can have, whichever multiplies matrices faster just now.

    On a busy machine all cores together can be several times slower than one.
    """
    return max({1, max(1, usable_cores() // processes)}, key=multiplications_per_second)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def multiplications_per_second(threads: int) -> float:
    """Measure the products of 128 frames with a matrix of 1024 rows and columns, for 50 ms."""
    frames, matrix = torch.ones(128, 1024), torch.ones(1024, 1024)
    with _restored(torch.get_num_threads, torch.set_num_threads):
        torch.set_num_threads(threads)
        for seconds in (0.01, 0.05):  # the first is to warm up
            begin, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < seconds:
                frames @ matrix
                count += 1
        return count * frames.shape[0] * matrix.numel() / spent


@contextmanager
def repeatable(threads: int) -> Iterator[None]:
    """Compute with so many threads, the same numbers every time."""
    with (
        _restored(torch.get_num_threads, torch.set_num_threads),
        _restored(torch.are_deterministic_algorithms_enabled, _be_deterministic),
        _restored(partial(getattr, *_FILLING), partial(setattr, *_FILLING)),
    ):
        torch.set_num_threads(threads)
        _be_deterministic(True)
        setattr(*_FILLING, False)
        yield


def _be_deterministic(mode: bool) -> None:
    # What torch.use_deterministic_algorithms calls, which would import torch's compiler, for seconds.
    torch._C._set_deterministic_algorithms(mode, warn_only=False)


@contextmanager
def _restored(get: Callable[[], Any], put: Callable[[Any], Any]) -> Iterator[None]:
    before = get()
    try:
        yield
    finally:
        put(before)
