"""What is said between the server and a process that does its work, on the process's side."""

from __future__ import annotations

import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from pdrn.app.web.limits import Refusal, sentence
from pdrn.app.web.tasks import Facts, Report

READY = "ready"
"""What a process says first, when it has imported all that it needs."""

STOP = "stop"
"""Said to a process whose result nobody wants any more."""

_REPORT_SECONDS = 0.1


class Task(Protocol):
    """Work for a process: it travels there, and its facts travel back."""

    @property
    def folder(self) -> Path:
        """Where it finds and leaves what is large."""
        ...

    def run(self, report: Report) -> Facts:
        """Do it, and report which share is done."""
        ...


@dataclass(frozen=True)
class Done:
    """The end of a task that went well."""

    facts: Facts


@dataclass(frozen=True)
class Failed:
    """The end of a task that did not, with a status of HTTP and a sentence."""

    status: int
    sentence: str


class _Stopped(Exception):
    pass


def converse(connection: Connection) -> None:
    """Do task after task: shares of what is done go back, then Done or Failed."""
    connection.send(READY)
    while True:
        task = connection.recv()
        if task != STOP:  # which came when the task was done already
            connection.send(_outcome(task, connection))


def _outcome(task: Task, connection: Connection) -> Done | Failed:
    reported = -_REPORT_SECONDS

    def report(share: float) -> None:
        nonlocal reported
        if connection.poll():
            connection.recv()
            raise _Stopped
        if time.monotonic() - reported >= _REPORT_SECONDS:
            reported = time.monotonic()
            connection.send(share)

    try:
        return Done(task.run(report))
    except _Stopped:
        return Failed(503, "This was stopped.")
    except Refusal as refusal:
        return Failed(refusal.status, refusal.sentence)
    except ValueError as error:
        return Failed(422, sentence(error))
    except MemoryError:
        return Failed(413, "This sound takes more memory than there is; send a shorter stretch of it.")
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return Failed(500, "Something is wrong in the server; its terminal says what.")
