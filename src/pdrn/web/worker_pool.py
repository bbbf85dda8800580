"""The worker pool: processes that run jobs, a queue, and a private folder for each request."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from pdrn.web.schemas import Limits, Refusal, sentence, took_too_long
from pdrn.workers import spawn

Report = Callable[[float], None]
"""Told which share of the work is done; may raise to end it."""

Facts = dict[str, Any]

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


Messages = AsyncGenerator[float | Done, None]
"""What a task tells: the share that is done, now and then, and at last Done."""

_PATIENCE_SECONDS = 5.0
"""How long a process may take to hear that it is to stop."""


class Worker:
    """A process and the way to talk to it."""

    def __init__(self) -> None:
        self._connection, self._process = spawn(converse)
        self._is_awake = False
        self.is_busy = False

    async def awake(self) -> None:
        """Wait until the process has started, however long that takes."""
        if not self._is_awake:
            await _readable(self._connection)
            self._is_awake = self._connection.recv() == READY

    def do(self, task: Task) -> None:
        """Hand it a task; OSError tells that the process was killed meanwhile."""
        self.is_busy = True  # whether or not it hears: who does not is replaced
        self._connection.send(task)

    def stop(self) -> None:
        """Tell it that nobody wants its result any more."""
        self._connection.send(STOP)

    async def answer(self) -> float | Done | Failed:
        """Return the next message; EOFError or OSError tells that the process was killed."""
        await _readable(self._connection)
        message: float | Done | Failed = self._connection.recv()
        self.is_busy = isinstance(message, float)
        return message

    def end(self) -> None:
        """Kill the process: what it is at is of no use to anybody."""
        self._process.kill()
        self._process.join()
        self._connection.close()


class Workshop:
    """Takes tasks from the server; a context, which ends all processes and removes all files.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._taken = 0
        self._free: asyncio.Queue[Worker] = asyncio.Queue()
        self._workers: set[Worker] = set()
        self._settling: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Workshop:
        self.folder = Path(tempfile.mkdtemp(prefix="pdrn-serve-"))
        for _ in range(self.limits.jobs):
            self._employ()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Take a place, and yield a folder that is gone afterwards; refuse where all places are taken."""
        if self._taken >= self.limits.jobs + self.limits.waiting:
            raise Refusal(429, "The server is busy with others; try again in a moment.")
        self._taken += 1
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield folder
        finally:
            self._taken -= 1
            shutil.rmtree(folder, ignore_errors=True)

    async def messages(self, task: Task, deadline: float) -> Messages:
        """Do a task as soon as a process is free, until the deadline, by the loop's clock.

        Raises Refusal where that comes to nothing.
        """
        async with _until(deadline, self.limits):
            worker = await self._free.get()
        settled = False
        try:
            async with _until(deadline, self.limits):
                await worker.awake()
            worker.do(task)
            while not settled:
                async with _until(deadline, self.limits):
                    message = await worker.answer()
                if settled := not worker.is_busy:
                    self._free.put_nowait(worker)
                if isinstance(message, Failed):
                    raise Refusal(message.status, message.sentence)
                yield message
        except (EOFError, OSError) as error:
            raise Refusal(
                503, "The process at work was killed; is memory short? Try less at once."
            ) from error
        finally:
            if not settled:
                settling = asyncio.create_task(self._settle(worker, task))
                self._settling.add(settling)
                settling.add_done_callback(self._settling.discard)

    async def _settle(self, worker: Worker, task: Task) -> None:
        """Stop what a process is at; replace it where it does not hear."""
        try:
            await worker.awake()
            if worker.is_busy:
                worker.stop()
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while worker.is_busy:
                    await worker.answer()
            self._free.put_nowait(worker)
        except (EOFError, OSError, TimeoutError):
            self._workers.discard(worker)
            worker.end()
            self._employ()
        # Until now it may have written where its place had been removed.
        shutil.rmtree(task.folder, ignore_errors=True)

    def _employ(self) -> None:
        worker = Worker()
        self._workers.add(worker)
        self._free.put_nowait(worker)


@asynccontextmanager
async def _until(deadline: float, limits: Limits) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError as error:
        raise took_too_long(limits.work_seconds) from error


async def _readable(connection: Connection) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())
