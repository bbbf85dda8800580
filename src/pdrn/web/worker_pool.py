"""The worker pool: processes that run jobs, a queue, and a private folder for each request."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from pdrn.errors import PdrnError, StorageError
from pdrn.storage import temporary_folder
from pdrn.web.schemas import Limits, Refusal, sentence
from pdrn.workers import spawn

Report = Callable[[float], None]
"""Called with the share of the work that is done; raises where nobody wants the result any more."""

Result = dict[str, Any]


def no_space() -> Refusal:
    """Return the refusal where the temporary folder cannot be written."""
    return Refusal(503, "The server has no temporary space; make room, or try again later.")


class Job(Protocol):
    """A job: it is pickled to a worker, and its result is pickled back."""

    @property
    def folder(self) -> Path:
        """The folder of the request, for everything large."""
        ...

    def run(self, report: Report) -> Result:
        """Do the job."""
        ...


@dataclass(frozen=True)
class Done:
    """The last message of a job that succeeded."""

    result: Result


@dataclass(frozen=True)
class Failed:
    """The last message of a job that failed: an HTTP status and a sentence."""

    status: int
    sentence: str


Messages = AsyncGenerator[float | Done, None]
"""The messages of a job: the share that is done, now and then, and at last Done."""

# In the worker ----------------------------------------------------------------------------------------------

READY = "ready"
"""First message of a worker, when it has imported everything."""

STOP = "stop"
"""Message to a worker whose result nobody wants any more."""

_REPORT_SECONDS = 0.1


class _Stopped(Exception):
    pass


def serve_jobs(connection: Connection) -> None:
    """Run job after job: send the share that is done as it grows, then Done or Failed."""
    connection.send(READY)
    while True:
        job = connection.recv()
        if job != STOP:  # which may arrive when the job is done already
            connection.send(_outcome(job, connection))


def _outcome(job: Job, connection: Connection) -> Done | Failed:
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
        return Done(job.run(report))
    except _Stopped:
        return Failed(503, "The job was stopped.")
    except Refusal as refusal:
        return Failed(refusal.status, refusal.sentence)
    except (StorageError, OSError):  # of the request's folder, whose path stays private
        traceback.print_exc(file=sys.stderr)
        return Failed(no_space().status, no_space().sentence)
    except PdrnError as error:
        return Failed(422, sentence(error))
    except MemoryError:
        return Failed(413, "This sound takes more memory than there is; send a shorter stretch of it.")
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return Failed(500, "This is a bug of the server; its terminal shows the traceback.")


# In the server ----------------------------------------------------------------------------------------------

_STOP_SECONDS = 5.0
"""Time for a worker to react to STOP, before it is killed."""


class Worker:
    """A worker process and the connection to it."""

    def __init__(self) -> None:
        self._connection, self._process = spawn(serve_jobs)
        self._is_ready = False
        self.is_busy = False

    async def ready(self) -> None:
        """Wait until the process has started, however long that takes."""
        if not self._is_ready:
            await _readable(self._connection)
            self._is_ready = self._connection.recv() == READY

    def start(self, job: Job) -> None:
        """Send it a job; OSError tells that the process was killed meanwhile."""
        self.is_busy = True  # even if sending fails: then the worker is replaced
        self._connection.send(job)

    def stop(self) -> None:
        """Tell it that nobody wants its result any more."""
        self._connection.send(STOP)

    async def receive(self) -> float | Done | Failed:
        """Return the next message; EOFError or OSError tells that the process was killed."""
        await _readable(self._connection)
        message: float | Done | Failed = self._connection.recv()
        self.is_busy = isinstance(message, float)
        return message

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()


class WorkerPool:
    """A context with worker processes and a temporary folder; both are gone at its end."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._reserved = 0
        self._free: asyncio.Queue[Worker] = asyncio.Queue()
        self._workers: set[Worker] = set()
        self._reclaiming: set[asyncio.Task[None]] = set()

    def __enter__(self) -> WorkerPool:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(temporary_folder()))
            stack.callback(self._kill_all)
            for _ in range(self.limits.jobs):
                self._spawn()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def reserve(self) -> Iterator[Path]:
        """Reserve a place in the queue, and yield a folder that is removed afterwards."""
        if self._reserved >= self.limits.jobs + self.limits.waiting:
            raise Refusal(429, "The server is busy; try again shortly.")
        try:
            folder = Path(tempfile.mkdtemp(dir=self.folder))
        except OSError as error:
            raise no_space() from error
        self._reserved += 1
        try:
            yield folder
        finally:
            self._reserved -= 1
            shutil.rmtree(folder, ignore_errors=True)

    async def run(self, job: Job, deadline: float) -> Messages:
        """Run a job on the next free worker, and yield its messages.

        Parameters
        ----------
        job : Job
        deadline : float
            In seconds of the event loop's clock.

        Raises
        ------
        Refusal
            If the job fails, takes too long, or its worker is killed.
        """
        async with self._until(deadline):
            worker = await self._free.get()
        is_over = False
        try:
            async with self._until(deadline):
                await worker.ready()
            worker.start(job)
            while not is_over:
                async with self._until(deadline):
                    message = await worker.receive()
                if is_over := not worker.is_busy:
                    self._free.put_nowait(worker)
                if isinstance(message, Failed):
                    raise Refusal(message.status, message.sentence)
                yield message
        except (EOFError, OSError) as error:
            raise Refusal(
                503, "The worker process was killed; is memory short? Send a shorter stretch."
            ) from error
        finally:
            if not is_over:
                reclaiming = asyncio.create_task(self._reclaim(worker, job))
                self._reclaiming.add(reclaiming)
                reclaiming.add_done_callback(self._reclaiming.discard)

    async def _reclaim(self, worker: Worker, job: Job) -> None:
        """Stop a worker's job, or replace the worker where it does not react."""
        try:
            await worker.ready()
            if worker.is_busy:
                worker.stop()
            async with asyncio.timeout(_STOP_SECONDS):
                while worker.is_busy:
                    await worker.receive()
            self._free.put_nowait(worker)
        except (EOFError, OSError, TimeoutError):
            self._workers.discard(worker)
            worker.kill()
            self._spawn()
        # The job may have written after the folder of its request was removed.
        shutil.rmtree(job.folder, ignore_errors=True)

    def _spawn(self) -> None:
        worker = Worker()
        self._workers.add(worker)
        self._free.put_nowait(worker)

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()

    @asynccontextmanager
    async def _until(self, deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except TimeoutError as error:
            limit = self.limits.work_seconds
            raise Refusal(
                503, f"This took longer than {limit:g} s and was stopped; send a shorter stretch."
            ) from error


async def _readable(connection: Connection) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection.fileno())
