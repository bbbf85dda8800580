"""Jobs done side by side, by processes of their own.

A pipe leads to each worker, so that it is known which job a killed one had; the others go on. Workers do not
hear an interrupt, which a terminal sends to all processes: whoever started them ends them, and if it is gone
they end by themselves. Either way they leave no unfinished file.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from typing import TypeVar

from pdrn.app.ending import end_in_order, end_undisturbed

J = TypeVar("J")
R = TypeVar("R")


def side_by_side(
    work: Callable[[J], R], jobs: Iterable[J], processes: int
) -> Generator[tuple[J, R | None], None, None]:
    """Yield each job and its result as they come, None where the process that had it was killed.

    The work, jobs and results travel between processes. Closing the iterator ends all of them.
    """
    waiting = iter(jobs)
    workers: list[SpawnProcess] = []
    busy: dict[Connection, J] = {}

    def employ(connection: Connection | None = None) -> None:
        for job in waiting:
            if connection is None:
                connection, worker = start(partial(_work_off, work=work))
                workers.append(worker)
            busy[connection] = job
            with suppress(OSError):  # killed meanwhile, as its result will tell
                connection.send(job)
            return
        if connection is not None:
            connection.close()

    try:
        for _ in range(processes):
            employ()
        while busy:
            ready = wait(list(busy))
            for connection in [each for each in busy if each in ready]:
                job, result = busy.pop(connection), None
                try:
                    result = connection.recv()
                except (EOFError, OSError):
                    employ()
                else:
                    employ(connection)
                yield job, result
    except BaseException:
        for worker in workers:
            worker.terminate()
        raise
    finally:
        for worker in workers:
            worker.join()


def start(converse: Callable[[Connection], None]) -> tuple[Connection, SpawnProcess]:
    """Start a process that talks through the connection until it is closed, and ends with this one."""
    # Processes that are not forked: threads of the libraries do not survive a fork.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=_run, args=(there, converse), daemon=True)
    with deaf(), there:
        worker.start()
    return here, worker


@contextmanager
def deaf() -> Iterator[None]:
    """Hold interrupts back: processes and threads that are started meanwhile never hear one.

    This one does later, unless it has other threads, which would hear it now: start those in here too.
    """
    resource_tracker.ensure_running()  # starting it would end what follows
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(connection: Connection, converse: Callable[[Connection], None]) -> None:
    end_in_order()
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # nobody talks any more
        converse(connection)
    end_undisturbed()


def _work_off(connection: Connection, work: Callable[[J], R]) -> None:
    while True:
        connection.send(work(connection.recv()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
