"""Jobs side by side: processes of this machine, or workers of a Ray cluster; and how they end."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any, Generic, TypeVar

from pdrn.errors import InputError

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


ATTEMPTS = 3
PAUSE_SECONDS = 2.0
"""Before a job is done again, and twice as long before the third attempt."""

PATIENCE_SECONDS = 30.0
"""After so long without any worker it is said what is waited for."""


class Worker:
    """What runs in a process of the cluster."""

    def prepare(self, work: Callable[[Any], Any], check: Callable[[], bool], folder: str) -> str | None:
        """Get ready to work as the driver would; return what is in the way, if anything."""
        where = os.uname().nodename
        try:
            os.chdir(folder)
        except OSError:
            return f"{where} does not see {folder}; start in a folder that all machines of the cluster share"
        if not check():
            return f"{where} has another pdrn, or other networks; install the same on all machines"
        self._work = work
        return None

    def run(self, job: Any, pause: float) -> Any:
        """Do a job, after a pause."""
        time.sleep(pause)
        return self._work(job)


@dataclass(eq=False)
class _Task(Generic[J]):
    job: J
    attempts: int = 1


def across(
    ray: Any,
    work: Callable[[J], R],
    jobs: Iterable[J],
    workers: int,
    *,
    cpus: int,
    check: Callable[[], bool],
    passing: Callable[[R], bool],
    again: Callable[[J], J],
) -> Generator[tuple[J, R | None], None, None]:
    """Yield each job and its result as they come, None where worker after worker died of it.

    Parameters
    ----------
    ray : module
        Connected to a cluster.
    work, jobs, workers
        As in `workers.side_by_side`, which does the same on one machine. Workers that find no place in the
        cluster get no jobs until they do.
    cpus : int
        How many each of them takes.
    check : callable
        Tells in a worker whether its results would be those of this process.
    passing : callable
        Tells from a result whether the job is worth another attempt.
    again : callable
        Makes of a job the one that is done when it was begun before.

    Raises
    ------
    InputError
        If a worker would not do what this process does, or none can be started.
    """
    team = _Team(ray, work, jobs, workers, cpus, check)
    try:
        for _ in range(workers):
            team.employ()
        while team.members:
            worker, task, future = team.hear()
            error = future.exception()
            if task is None:
                team.welcome(worker, future.result() if error is None else None, error)
            elif error is None:
                result = future.result()
                if passing(result) and task.attempts < ATTEMPTS:
                    team.repeated.append(_Task(again(task.job), task.attempts + 1))
                    team.occupy(worker)
                else:
                    team.occupy(worker)
                    yield task.job, result
            elif not isinstance(error, ray.exceptions.RayError) or isinstance(
                error, ray.exceptions.RayTaskError
            ):
                raise error
            else:
                team.dismiss(worker)
                team.employ()
                if task.attempts < ATTEMPTS:
                    team.repeated.append(_Task(again(task.job), task.attempts + 1))
                else:
                    yield task.job, None
        team.check_all_is_done()
    finally:
        team.end()


class _Team(Generic[J]):
    """The workers, and what there is to do for them."""

    def __init__(
        self,
        ray: Any,
        work: Callable[[J], Any],
        jobs: Iterable[J],
        most: int,
        cpus: int,
        check: Callable[[], bool],
    ) -> None:
        self.members: set[Any] = set()
        self.repeated: deque[_Task[J]] = deque()
        self._ray = ray
        self._fresh = (_Task(job) for job in jobs)
        self._heard: SimpleQueue[tuple[Any, _Task[J] | None, Future[Any]]] = SimpleQueue()
        self._remote = ray.remote(Worker).options(num_cpus=cpus, max_restarts=0, max_task_retries=0)
        self._manner = work, check, os.getcwd()
        self._most_lost = most
        self._lost, self._reason = 0, ""
        self._said = False

    def employ(self) -> None:
        """Ask for a worker, wherever the cluster has a place, now or later."""
        worker = self._remote.remote()
        self.members.add(worker)
        self._listen(worker, None, worker.prepare.remote(*self._manner))

    def welcome(self, worker: Any, obstacle: str | None, error: BaseException | None) -> None:
        """Give a worker that began its first task, or look for another where it could not begin."""
        self._said = True
        if obstacle is not None:
            raise InputError(obstacle)
        if error is None:
            self.occupy(worker)
            return
        self.dismiss(worker)
        self._lost += 1
        self._reason = str(error).strip().splitlines()[-1]
        if self._lost <= self._most_lost:
            self.employ()

    def occupy(self, worker: Any) -> None:
        """Give a worker something to do, or let it go."""
        task = next(self._fresh, None) or (self.repeated.popleft() if self.repeated else None)
        if task is None:
            self.dismiss(worker)
        else:
            pause = PAUSE_SECONDS * (task.attempts - 1)
            self._listen(worker, task, worker.run.remote(task.job, pause))

    def hear(self) -> tuple[Any, _Task[J] | None, Future[Any]]:
        """Wait for the next answer."""
        while True:
            try:
                return self._heard.get(timeout=None if self._said else PATIENCE_SECONDS)
            except Empty:
                self._said = True
                print("pdrn: the cluster has no place for a worker yet; waiting", file=sys.stderr)

    def dismiss(self, worker: Any) -> None:
        """Let a worker go, dead or alive."""
        self.members.discard(worker)
        self._ray.kill(worker)

    def check_all_is_done(self) -> None:
        """Refuse to end with something left to do."""
        if self.repeated or next(self._fresh, None) is not None:
            raise InputError(
                f"no worker can start ({self._reason}); install the same pdrn on all machines of the cluster"
            )

    def end(self) -> None:
        """Let all workers go."""
        for worker in list(self.members):
            self.dismiss(worker)

    def _listen(self, worker: Any, task: _Task[J] | None, answer: Any) -> None:
        # Nothing else refers to the answer until it comes.
        answer.future().add_done_callback(lambda future, _=answer: self._heard.put((worker, task, future)))


STORE_BYTES = 128 << 20
"""What a Ray of our own keeps for objects: sound goes through files, so that little is enough."""

ANSWER_SECONDS = 5.0
STARTS = 2
"""Ray gives its own processes 15 seconds to start, which on a busy machine is too little (ray#65983)."""

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # says nothing about anyone to anyone
    "RAY_raylet_start_wait_time_s": "120",  # a busy machine needs more than its half a minute
    "RAY_worker_niceness": "0",  # else workers give way to everything else on the machine
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of what a later version will do
}


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Join the Ray at an address, or start one with so many CPUs; give the module, and leave in the end.

    Parameters
    ----------
    address : str, optional
        HOST:PORT of a cluster's head, or "auto" for the one that this machine belongs to.
    cpus : int
        How many CPUs a Ray of our own has; a cluster has what it has.

    Raises
    ------
    InputError
        If Ray is not installed, or no cluster answers.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed: pip install 'pdrn[ray]'") from error
    wishes: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        # Whatever cluster RAY_ADDRESS names is not meant.
        wishes |= {"address": "local", "num_cpus": cpus, "object_store_memory": STORE_BYTES}
        wishes |= {"include_dashboard": False}
    else:
        _check_answer(address)
        wishes |= {"address": address}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _begin(ray, wishes)
        signal.signal(signal.SIGTERM, handler)  # Ray puts its own there, which ends less orderly
        yield ray
    finally:
        ray.shutdown()


def _begin(ray: Any, wishes: dict[str, Any]) -> None:
    for left in reversed(range(STARTS)):
        try:
            ray.init(**wishes)
            return
        except Exception as error:  # of no narrower class where it starts too slowly
            ray.shutdown()
            if left and "timed out during startup" in str(error):
                continue
            reason = (str(error) or type(error).__name__).splitlines()[0]
            where = wishes["address"]
            what = "Ray cannot be started" if where == "local" else f"the Ray at {where} cannot be joined"
            raise InputError(f"{what}: {reason}") from error


def _check_answer(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InputError(f"a cluster's address is HOST:PORT, or auto; got {address}")
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"no Ray answers at {address}; start one there by ray start --head") from error
