"""How many threads matrix products take.

On a machine that is busy with something else, a matrix product on all cores is slower than on one: every
thread waits for the one that was put aside. So one is the default, and more are a setting.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limited(threads: int | None) -> AbstractContextManager[Any]:
    """Limit NumPy's matrix products to so many threads while the context lasts; None leaves them alone."""
    if threads is None:
        return nullcontext()
    context: AbstractContextManager[Any] = _controller().limit(limits=threads, user_api="blas")
    return context
