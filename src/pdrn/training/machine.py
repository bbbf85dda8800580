"""The machine: how many threads are fastest, and how fast its matrix products alone would be.

The *floor* of a training step is the time of its matrix products alone, one after another on the same
operands: what would be left if everything else were free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm)

_FILLING = (torch.utils.deterministic, "fill_uninitialized_memory")
"""Whether deterministic algorithms of torch fill new memory, which takes time and changes nothing here."""


class MatrixProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the matrix products that are computed in its context, to compute them again by themselves."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[tuple[Any, list[Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in _PRODUCTS:
            self._calls.append((func, [part.detach() if isinstance(part, Tensor) else part for part in args]))
        return func(*args, **(kwargs or {}))

    def seconds(self, at_least: float = 0.0) -> float:
        """Compute all products again, for so many seconds or once, and return the mean time of a pass."""
        begin, passes, spent = time.perf_counter(), 0, 0.0
        with torch.no_grad():
            while passes == 0 or spent < at_least:
                results = [product(*operands) for product, operands in self._calls]  # kept, as a step does
                passes, spent = passes + 1, time.perf_counter() - begin
                del results
        return spent / passes


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
        products = MatrixProducts()
        with products:
            frames @ matrix
        products.seconds(0.01)
        return frames.shape[0] * matrix.numel() / products.seconds(0.05)


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
