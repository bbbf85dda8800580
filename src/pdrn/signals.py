"""Signals that end a process: it cleans up first, and exits with the code of the signal."""

from __future__ import annotations

import signal
import sys
from types import FrameType

_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)

_exit_codes: list[int] = []
"""Exit codes of the signals received so far, SIGINT included."""


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit, so that contexts clean up.

    A signal that is ignored, as SIGHUP under nohup, stays ignored.
    """
    for number in _TERMINATIONS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def signal_exit_code() -> int | None:
    """Return the exit code of the first signal received, or None.

    A signal during an import, or while cleaning up, may surface as a different error.
    """
    return _exit_codes[0] if _exit_codes else None


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGHUP: this process ends already."""
    for number in _TERMINATIONS:
        signal.signal(number, lambda *_: None)


def _exit(number: int, _: FrameType | None) -> None:
    ignore_signals()
    _exit_codes.append(128 + number)
    sys.exit(128 + number)


def _interrupt(number: int, _: FrameType | None) -> None:
    _exit_codes.append(128 + number)
    raise KeyboardInterrupt
