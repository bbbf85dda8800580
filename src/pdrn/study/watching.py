"""Watching: what a run tells whoever wants to hear how it goes."""

from __future__ import annotations

from typing import Any

from pdrn.study.log import Entry
from pdrn.study.runs import Run


class Watcher:
    """What a caller may want to hear of a run; this one does not listen."""

    def begin(self, run: Run, record: dict[str, Any], first_epoch: int) -> None:
        """Hear that training begins, or goes on, with an epoch counted from 1."""

    def note(self, sentence: str) -> None:
        """Hear what is not as it might be expected."""

    def advance(self, step: int) -> None:
        """Hear that so many steps are done."""

    def epoch(self, entry: Entry) -> None:
        """Hear what is written to the log."""


class Relay(Watcher):
    """Hands everything on to another."""

    def __init__(self, other: Watcher) -> None:
        self.other = other

    def begin(self, run: Run, record: dict[str, Any], first_epoch: int) -> None:
        self.other.begin(run, record, first_epoch)

    def note(self, sentence: str) -> None:
        self.other.note(sentence)

    def advance(self, step: int) -> None:
        self.other.advance(step)

    def epoch(self, entry: Entry) -> None:
        self.other.epoch(entry)
