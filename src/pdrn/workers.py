"""Workers: processes of this machine, or tasks of a Ray cluster.

`run_jobs` yields each job with its result as it is done. A worker that is killed loses its own job and no
other. Workers end with the process that started them.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from pdrn.errors import InputError, MissingDependencyError
from pdrn.signals import exit_on_signals, ignore_signals

J = TypeVar("J")
R = TypeVar("R")

ATTEMPTS = 3
KILLED = "its worker was killed; is memory short? try fewer jobs"
"""The error of a job without a result."""
PAUSE_SECONDS = 2.0
"""Pause before the second attempt at a job; the pause before the third is twice as long."""

# Running jobs -----------------------------------------------------------------------------------------------


def run_jobs(
    work: Callable[[J], R],
    jobs: Iterable[J],
    workers: int,
    *,
    ray: Any = None,
    cpus: float = 1,
    fingerprint: Callable[[], object] | None = None,
    retry: Callable[[J, R | None], J | None] | None = None,
) -> Generator[tuple[J, R | None], None, None]:
    """Yield each job with its result as it is done, or with None if its worker was killed.

    Work, jobs and results are pickled. Closing the generator ends all workers.

    Parameters
    ----------
    work : callable
        Must not raise: an exception is a bug, and is raised here with the worker's traceback.
    jobs : iterable
        Consumed as workers become free.
    workers : int
        Number of jobs in progress at a time.
    ray : module, optional
        Ray, connected to a cluster (`connect_ray`), whose tasks are the workers. Default: processes of this
        machine.
    cpus : float
        CPUs that Ray reserves for each worker.
    fingerprint : callable, optional
        A worker of a cluster is refused if its value there differs from the value here.
    retry : callable, optional
        Given a job and its result, returns the job to run in its place, or None to accept the result. Called
        at most `ATTEMPTS` - 1 times per job.

    Raises
    ------
    InputError
        If a worker of the cluster cannot start, or has another fingerprint.
    """
    pool = _Processes(work) if ray is None else _RayTasks(ray, work, cpus, fingerprint)
    waiting = ((job, 1) for job in jobs)
    retries: deque[tuple[J, int]] = deque()
    running: dict[Any, tuple[J, int]] = {}

    def fill() -> None:
        while len(running) < workers:
            following = next(waiting, None) or (retries.popleft() if retries else None)
            if following is None:
                return
            job, attempt = following
            running[pool.submit(job, PAUSE_SECONDS * (attempt - 1))] = following

    try:
        fill()
        while running:
            handle, result = pool.next_done()
            job, attempt = running.pop(handle)
            if isinstance(result, _Bug):
                raise RuntimeError(f"a worker failed:\n{result.traceback}")
            replacement = retry(job, result) if retry and attempt < ATTEMPTS else None
            if replacement is not None:
                retries.append((replacement, attempt + 1))
            fill()
            if replacement is None:
                yield job, result
        pool.close()
    except BaseException:
        pool.kill()
        raise


@dataclass(frozen=True)
class _Bug:
    """The result of work that raised."""

    traceback: str


def _perform(work: Callable[[J], R], job: J, pause_seconds: float) -> R | _Bug:
    time.sleep(pause_seconds)
    try:
        return work(job)
    except Exception:
        return _Bug(traceback.format_exc())


# Processes of this machine ----------------------------------------------------------------------------------


class _Processes:
    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._serve = partial(_serve_jobs, work=work)
        self._processes: list[SpawnProcess] = []
        self._idle: list[Connection] = []
        self._busy: list[Connection] = []

    def submit(self, job: Any, pause_seconds: float) -> Connection:
        """Start a job after a pause; return a handle that `next_done` returns again."""
        if self._idle:
            connection = self._idle.pop()
        else:
            connection, process = spawn(self._serve)
            self._processes.append(process)
        self._busy.append(connection)
        with suppress(OSError):  # it was killed: `next_done` finds no result
            connection.send((job, pause_seconds))
        return connection

    def next_done(self) -> tuple[Connection, Any]:
        """Wait for a job; return its handle, and its result or None if its worker was killed."""
        ready = wait(self._busy)[0]
        assert isinstance(ready, Connection)
        self._busy.remove(ready)
        try:
            result = ready.recv()
        except (EOFError, OSError):
            ready.close()
            return ready, None
        self._idle.append(ready)
        return ready, result

    def close(self) -> None:
        """End all workers, which are idle."""
        for connection in self._idle:
            connection.close()
        for process in self._processes:
            process.join()

    def kill(self) -> None:
        """End all workers, idle or busy."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()


def _serve_jobs(connection: Connection, work: Callable[[J], R]) -> None:
    while True:
        connection.send(_perform(work, *connection.recv()))


def spawn(target: Callable[[Connection], None]) -> tuple[Connection, SpawnProcess]:
    """Start a process that runs `target` on its end of a connection.

    It ends when the connection is closed, or this process ends. A Ctrl-C at the terminal does not reach it.
    """
    # Not forked: threads of the libraries do not survive a fork.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(there, target), daemon=True)
    with interrupts_blocked(), there:
        process.start()
    return here, process


def _run(connection: Connection, target: Callable[[Connection], None]) -> None:
    exit_on_signals()
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the other end is closed
        target(connection)
    ignore_signals()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


# Tasks of a Ray cluster -------------------------------------------------------------------------------------


class _RayTasks:
    """The methods of `_Processes`, on a cluster."""

    def __init__(
        self, ray: Any, work: Callable[[Any], Any], cpus: float, fingerprint: Callable[[], object] | None
    ) -> None:
        largest = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if cpus > largest:
            raise InputError(f"no machine of the cluster has {cpus:g} CPUs; ask for fewer per worker")
        free = ray.available_resources()
        if free and free.get("CPU", 0) < cpus:
            print("pdrn: all CPUs of the cluster are taken; waiting for one", file=sys.stderr)
        self._ray, self._work = ray, work
        expected = fingerprint and fingerprint()
        self._session = secrets.token_hex(8), os.getcwd(), fingerprint, expected
        self._remote = ray.remote(num_cpus=cpus, max_retries=0)(_perform_remotely)
        self._running: set[Any] = set()
        self._done: SimpleQueue[tuple[Any, Future[Any]]] = SimpleQueue()

    def submit(self, job: Any, pause_seconds: float) -> Any:
        answer = self._remote.remote(*self._session, self._work, job, pause_seconds)
        self._running.add(answer)
        answer.future().add_done_callback(lambda future: self._done.put((answer, future)))
        return answer

    def next_done(self) -> tuple[Any, Any]:
        answer, future = self._done.get()
        self._running.discard(answer)
        error = future.exception()
        if isinstance(error, self._ray.exceptions.RayTaskError):  # work does not raise: this is the worker
            if isinstance(error.cause, InputError):
                raise error.cause
            reason = str(error).strip().splitlines()[-1]
            raise InputError(
                f"a worker cannot start ({reason}); install the same pdrn on all machines of the cluster"
            )
        return answer, None if error else future.result()

    def close(self) -> None:
        pass

    def kill(self) -> None:
        for answer in self._running:
            self._ray.cancel(answer, force=True)


_prepared_for = ""
"""Token of the call of `run_jobs` that this worker of a cluster is prepared for."""


def _perform_remotely(
    token: str,
    folder: str,
    fingerprint: Callable[[], object] | None,
    expected: object,
    work: Callable[[J], R],
    job: J,
    pause_seconds: float,
) -> R | _Bug:
    global _prepared_for
    if _prepared_for != token:
        machine = os.uname().nodename
        try:
            os.chdir(folder)
        except OSError as error:
            raise InputError(
                f"{machine} does not see {folder}; start in a folder that all machines share"
            ) from error
        if fingerprint is not None and fingerprint() != expected:
            raise InputError(
                f"{machine} has another pdrn, or other networks; install the same on all machines"
            )
        _prepared_for = token
    return _perform(work, job, pause_seconds)


STORE_BYTES = 128 << 20
"""Object store of a Ray that pdrn starts; it is small, as sound goes through files."""

CONNECT_SECONDS = 5.0
START_ATTEMPTS = 2
"""Ray gives its own processes 15 seconds to start, too few on a busy machine (ray#65983)."""

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",  # a busy machine needs more than the default of 30
    "RAY_worker_niceness": "0",  # the default lets workers give way to all other processes
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # silences a warning about later versions
}


@contextmanager
def connect_ray(address: str | None, cpus: int) -> Iterator[Any]:
    """Join a Ray cluster, or start one on this machine; yield the module, and disconnect at the end.

    Parameters
    ----------
    address : str, optional
        HOST:PORT of a cluster's head, or "auto" for the cluster of this machine. Default: start one.
    cpus : int
        Number of CPUs of a cluster that is started.
    """
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError("Ray is not installed: pip install 'pdrn[ray]'") from error
    if address is None:  # "local": not the cluster that RAY_ADDRESS may name
        options: dict[str, Any] = {
            "num_cpus": cpus,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        }
    else:
        _check_address(address)
        options = {}
    options |= {"address": address or "local", "log_to_driver": False, "logging_level": logging.CRITICAL}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _start_ray(ray, options)
        signal.signal(signal.SIGTERM, handler)  # Ray replaces it by one that skips cleaning up
        yield ray
    finally:
        ray.shutdown()


def _start_ray(ray: Any, options: dict[str, Any]) -> None:
    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray has no narrower class for a slow start
            ray.shutdown()
            if attempts_left and "timed out during startup" in str(error):
                continue
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"Ray ({options['address']}) cannot be started or joined: {reason}") from error


def _check_address(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InputError(f"a cluster's address is HOST:PORT, or auto; got {address}")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray answers at {address}; start one there by ray start --head") from error


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT: processes and threads that are started in this context never receive it.

    This thread receives it afterwards, if all other threads were started in such a context.
    """
    resource_tracker.ensure_running()  # starting it would unblock SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
