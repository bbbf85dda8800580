"""Ending in order: a process that is asked to end cleans up first."""

from __future__ import annotations

import signal
import sys
from types import FrameType

_REQUESTS = (signal.SIGTERM, signal.SIGHUP)


def end_in_order() -> None:
    """Let a request to end, or the terminal that hangs up, end this process as an error would.

    What is ignored already, as hanging up is under nohup, stays so.
    """
    for request in _REQUESTS:
        if signal.getsignal(request) is not signal.SIG_IGN:
            signal.signal(request, _end)


def end_undisturbed() -> None:
    """Hear no more requests: this process ends already, and they would disturb its cleaning up."""
    for request in _REQUESTS:
        signal.signal(request, lambda *_: None)


def _end(number: int, _: FrameType | None) -> None:
    end_undisturbed()
    sys.exit(128 + number)
