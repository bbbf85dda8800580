"""Jobs done by the workers of a Ray cluster: actors, one job each at a time.

What travels is small: jobs name files, and results say what became of them. A worker loads what it needs once
and keeps it. Nothing is asked of a worker that has something to do, so that nothing piles up anywhere, and it
is known which job a dead one had. A job whose worker died, or that may pass the next time, is done again.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

J = TypeVar("J")
R = TypeVar("R")

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
    ValueError
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
            raise ValueError(obstacle)
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
            raise ValueError(
                f"no worker can start ({self._reason}); install the same pdrn on all machines of the cluster"
            )

    def end(self) -> None:
        """Let all workers go."""
        for worker in list(self.members):
            self.dismiss(worker)

    def _listen(self, worker: Any, task: _Task[J] | None, answer: Any) -> None:
        # Nothing else refers to the answer until it comes.
        answer.future().add_done_callback(lambda future, _=answer: self._heard.put((worker, task, future)))
