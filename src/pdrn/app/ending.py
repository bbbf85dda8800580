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


def _end(number: int, _: FrameType | None) -> None:
    for request in _REQUESTS:
        signal.signal(request, _end_already)
    sys.exit(128 + number)


def _end_already(number: int, _: FrameType | None) -> None:
    """Do nothing: another request would only disturb the cleaning up."""
