"""Ending in order: a process that is asked to end cleans up first."""

from __future__ import annotations

import signal
import sys
from types import FrameType

_REQUESTS = (signal.SIGTERM, signal.SIGHUP)

_heard: list[int] = []
"""Exit codes of the requests that came; an interrupt is one of them."""


def end_in_order() -> None:
    """Let a request to end, or the terminal that hangs up, end this process as an error would.

    What is ignored already, as hanging up is under nohup, stays so.
    """
    for request in _REQUESTS:
        if signal.getsignal(request) is not signal.SIG_IGN:
            signal.signal(request, _end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def ending_code() -> int | None:
    """Return the exit code of the first request to end that came, None if none did.

    A request in the midst of an import, or of cleaning up, may come out as quite another error.
    """
    return _heard[0] if _heard else None


def end_undisturbed() -> None:
    """Hear no more requests: this process ends already, and they would disturb its cleaning up."""
    for request in _REQUESTS:
        signal.signal(request, lambda *_: None)


def _end(number: int, _: FrameType | None) -> None:
    end_undisturbed()
    _heard.append(128 + number)
    sys.exit(128 + number)


def _interrupt(number: int, _: FrameType | None) -> None:
    _heard.append(128 + number)
    raise KeyboardInterrupt
