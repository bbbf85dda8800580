"""How many threads matrix products take.

On a machine that is busy with something else, a matrix product on all cores is slower than on one: every
thread waits for the one that was put aside. So one is the default, and more are a setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_lock = Lock()
_limits: list[int] = []
"""The limits that hold now, of all Python threads: NumPy's library has one setting for the whole process."""

_before: list[int] = []
"""How many threads each library took before the first of them."""


@contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """Limit NumPy's matrix products to so many threads while the context lasts; None leaves them alone.

    Where several limits hold at once, in several Python threads, the lowest counts.
    """
    if threads is None:
        yield
        return
    with _lock:
        if not _limits:
            _before[:] = [library.get_num_threads() for library in _libraries()]
        _limits.append(threads)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _limits.remove(threads)
            _apply()


@cache
def _libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _apply() -> None:
    for library, before in zip(_libraries(), _before, strict=True):
        wanted = min(_limits) if _limits else before
        if library.get_num_threads() != wanted:
            # One Python thread holds the right to set this; here the lock stands for it.
            release = getattr(library, "clear_controlling_thread", lambda force: None)
            release(force=True)
            library.set_num_threads(wanted)
            release(force=True)
