"""Restoring many files: each is done or fails by itself, and what happened is said."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

from pdrn.app.batch import Job
from pdrn.app.cluster import ATTEMPTS, across
from pdrn.app.doing import Outcome, Settings, do
from pdrn.app.manifest import opened
from pdrn.app.on_ray import connected
from pdrn.app.workers import side_by_side
from pdrn.audio.placing import standard_output
from pdrn.audio.system import AudioError, printable
from pdrn.restoring.blockwise import Progress

_CLEAR = "\r\x1b[K"
"""What empties the line that a terminal is at."""

_MANY = 20
"""After more files than this, failures have gone out of sight, and are named again."""


@dataclass(frozen=True)
class Engine:
    """What does the work: processes of this machine, or the workers of a Ray."""

    jobs: int | None = None
    """How many files at once: one, or as many as a cluster has CPUs for, unless given."""
    ray: bool = False
    address: str | None = None
    """Of the cluster; a Ray is started for the time being where there is none."""


def run_all(
    jobs: Sequence[Job],
    settings: Settings,
    engine: Engine,
    manifest: str | None = None,
    *,
    json: bool = False,
    quiet: bool = False,
) -> bool:
    """Do all jobs, say what became of each, and tell whether none failed.

    What the manifest proves to be done is left out, and what is done is noted there.
    """
    counts: dict[str, int] = {}
    failed = []
    show = not quiet and sys.stderr.isatty()
    with ExitStack() as stack:
        notes = stack.enter_context(opened(manifest)) if manifest is not None else None
        if notes and notes.unreadable:
            print(f"pdrn: {manifest}: {notes.unreadable} lines say nothing and are ignored", file=sys.stderr)
        known = (replace(job, proof=notes.known(job.target)) for job in jobs) if notes else iter(jobs)
        for outcome in stack.enter_context(closing(_outcomes(known, len(jobs), settings, engine, show))):
            if notes and outcome.proof:
                notes.note(outcome.job.source, outcome.job.target, outcome.proof)
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
            if json:
                _print_json(outcome)
            if outcome.error:
                failed.append(outcome.job.source)
                print(f"pdrn: {printable(outcome.error)}", file=sys.stderr)
            elif not quiet and not json:
                print(printable(outcome), file=sys.stderr)
    if len(jobs) > 1 and not quiet and not json:
        if len(jobs) > _MANY and failed:
            print(f"failed: {printable(', '.join(failed))}", file=sys.stderr)
        print(", ".join(f"{count} {status}" for status, count in counts.items()), file=sys.stderr)
    return not failed


def _print_json(outcome: Outcome) -> None:
    """Print an outcome; where nobody reads any more, say so once and carry on."""
    try:
        with standard_output() as output:
            output.write(f"{outcome.as_json()}\n".encode())
    except AudioError as error:
        print(f"pdrn: {error}; the sounds are restored without a report", file=sys.stderr)


def _outcomes(
    jobs: Iterator[Job], count: int, settings: Settings, engine: Engine, show: bool
) -> Generator[Outcome, None, None]:
    if engine.ray:
        yield from _by_ray(jobs, count, settings, engine)
        return
    work = partial(do, settings=settings, options=settings.options() if settings.proves else b"")
    processes = min(engine.jobs or 1, count)
    if processes == 1:
        for job in jobs:
            outcome = work(job, progress=_shown(job) if show else None)
            if show:
                print(_CLEAR, end="", file=sys.stderr)
            yield outcome
        return
    with closing(side_by_side(work, jobs, processes)) as results:
        for job, result in results:
            yield result or Outcome(
                job, error=f"{job.source}: its process was killed; is memory short? try fewer jobs"
            )


def _by_ray(
    jobs: Iterator[Job], count: int, settings: Settings, engine: Engine
) -> Generator[Outcome, None, None]:
    options, cpus = settings.options(), settings.restorer.threads
    with connected(engine.address, cpus * min(engine.jobs or 1, count)) as ray:
        most = 1 if engine.address is None else int(ray.cluster_resources().get("CPU", 1)) // cpus
        results = across(
            ray,
            partial(do, settings=settings, options=options),
            jobs,
            min(engine.jobs or max(most, 1), count),
            cpus=cpus,
            check=partial(_does_the_same, settings, options),
            passing=_is_passing,
            again=_again,
        )
        with closing(results):
            for job, result in results:
                yield result or Outcome(
                    job,
                    error=f"{job.source}: {ATTEMPTS} workers died of it; is memory short? try fewer jobs",
                )


def _does_the_same(settings: Settings, options: bytes) -> bool:
    return settings.options() == options


def _is_passing(outcome: Outcome) -> bool:
    return outcome.passing


def _again(job: Job) -> Job:
    return replace(job, again=True)


def _shown(job: Job) -> Progress:
    """Return a callback that keeps a line of standard error up to date."""

    def show(done: int, frames: int | None) -> None:
        share = f"{done / frames:4.0%}" if frames else f"{done} frames"
        print(f"{_CLEAR}{printable(job.source)} {share}", end="", file=sys.stderr, flush=True)

    return show
