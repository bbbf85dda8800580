"""The worker pool: processes that run jobs, a queue, and a private folder for each request.

A job is a picklable function of the request's folder and a `Report`. Everything large goes through files in
the folder; the result is pickled back.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pdrn.errors import PdrnError
from pdrn.storage import temporary_folder
from pdrn.web.schemas import Limits, Refusal, sentence
from pdrn.workers import spawn

Report = Callable[[float], None]
"""Called with the share of the work that is done; raises Refusal when the client has left."""

Result = dict[str, Any]

Job = Callable[[Path, Report], Result]


Messages = AsyncGenerator[float | Result, None]
"""The messages of a job: the share that is done, several times, then the result."""


def no_space() -> Refusal:
    """Return the refusal for a temporary folder that cannot be written."""
    return Refusal(503, "The server has no temporary space; make room, or try again later.")


# In the worker ----------------------------------------------------------------------------------------------

READY = "ready"
"""First message of a worker, after its imports."""

STOP = "stop"
"""Message to a worker whose client has left."""

_REPORT_SECONDS = 0.1


def serve_jobs(connection: Connection) -> None:
    """Run job after job: send the share that is done as it grows, then the result or a Refusal."""
    connection.send(READY)
    while True:
        message: Any = connection.recv()
        if message != STOP:  # it may arrive after the end of its job
            job, folder = message
            connection.send(_run(job, folder, connection))


def _run(job: Job, folder: Path, connection: Connection) -> Result | Refusal:
    reported = -_REPORT_SECONDS

    def report(share: float) -> None:
        nonlocal reported
        if connection.poll():
            connection.recv()
            raise Refusal(503, "The job was stopped.")
        if time.monotonic() - reported >= _REPORT_SECONDS:
            reported = time.monotonic()
            connection.send(share)

    try:
        return job(folder, report)
    except Refusal as refusal:
        return refusal
    except OSError:  # in the request's folder, whose path stays private
        traceback.print_exc(file=sys.stderr)
        return no_space()
    except PdrnError as error:
        return Refusal(422, sentence(error))
    except MemoryError:
        return Refusal(413, "This sound needs more memory than the server has; send a shorter stretch of it.")
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return Refusal(500, "This is a bug of the server; its terminal shows the traceback.")


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
        """Wait until the process has started: on a busy machine its imports take long."""
        if not self._is_ready:
            await _readable(self._connection)
            self._is_ready = self._connection.recv() == READY

    def start(self, job: Job, folder: Path) -> None:
        """Send a job; raises OSError if the process was killed."""
        self.is_busy = True  # even if sending fails: then the worker is replaced
        self._connection.send((job, folder))

    def stop(self) -> None:
        """Ask the job to stop at its next report."""
        self._connection.send(STOP)

    async def receive(self) -> float | Result | Refusal:
        """Return the next message; raises EOFError or OSError if the process was killed."""
        await _readable(self._connection)
        message: float | Result | Refusal = self._connection.recv()
        self.is_busy = isinstance(message, float)
        return message

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def open_pool(limits: Limits) -> Iterator[WorkerPool]:
    """Open a worker pool; at the end its processes are killed and its folder is removed."""
    with temporary_folder() as folder:
        pool = WorkerPool(limits, Path(folder))
        try:
            for _ in range(limits.jobs):
                pool.spawn()
            yield pool
        finally:
            pool.kill()


class WorkerPool:
    """Worker processes, and a folder that holds the folders of all requests."""

    def __init__(self, limits: Limits, folder: Path) -> None:
        self.limits, self.folder = limits, folder
        self._reserved = 0
        self._free: asyncio.Queue[Worker] = asyncio.Queue()
        self._workers: set[Worker] = set()
        self._reclaiming: set[asyncio.Task[None]] = set()

    def spawn(self) -> None:
        """Add a worker."""
        worker = Worker()
        self._workers.add(worker)
        self._free.put_nowait(worker)

    def kill(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            worker.kill()

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

    async def run(self, job: Job, folder: Path, deadline: float) -> Messages:
        """Run a job in its reserved folder on the next free worker, and yield its messages.

        The deadline is in seconds of the event loop's clock.

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
            worker.start(job, folder)
            while not is_over:
                async with self._until(deadline):
                    message = await worker.receive()
                if is_over := not worker.is_busy:
                    self._free.put_nowait(worker)
                if isinstance(message, Refusal):
                    raise message
                yield message
        except (EOFError, OSError) as error:
            raise Refusal(
                503, "The worker process was killed; is memory short? Send a shorter stretch."
            ) from error
        finally:
            if not is_over:
                reclaiming = asyncio.create_task(self._reclaim(worker, folder))
                self._reclaiming.add(reclaiming)
                reclaiming.add_done_callback(self._reclaiming.discard)

    async def _reclaim(self, worker: Worker, folder: Path) -> None:
        """Stop a worker's job, or replace the worker if it does not react."""
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
            self.spawn()
        # The job may have written after its folder was removed.
        shutil.rmtree(folder, ignore_errors=True)

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
