"""Memory that large arrays leave behind, kept for the next ones.

The C library of Linux hands memory back to the system as soon as there is much of it, and what is asked for
next is mapped and zeroed page by page. A training step, which makes a gradient for every weight and lets go
of them all, spends a tenth of its time on that.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of mallopt's parameters, from malloc.h
_MOST_FROM_THE_HEAP = 32 * 2**20  # bytes; the largest that mallopt takes
_MOST_KEPT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep memory that arrays of up to 32 MB leave, for this process; tell whether the system can do that."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(
        mallopt(_MMAP_THRESHOLD, _MOST_FROM_THE_HEAP) == 1 and mallopt(_TRIM_THRESHOLD, _MOST_KEPT) == 1
    )
