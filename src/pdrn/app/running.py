"""Restoring many files: each is done or fails by itself, and what happened is said."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from json import dumps

from pdrn.app.batch import Job
from pdrn.app.workers import side_by_side
from pdrn.audio.placing import standard_output
from pdrn.audio.system import AudioError, printable, why
from pdrn.restoring.blockwise import Progress
from pdrn.restoring.description import Description
from pdrn.restoring.method import in_words
from pdrn.restoring.recording import Report, restore_file
from pdrn.restoring.restorer import Restorer

_CLEAR = "\r\x1b[K"
"""What empties the line that a terminal is at."""


@dataclass(frozen=True)
class Settings:
    """What is the same for all files."""

    restorer: Restorer
    description: Description
    subtype: str | None
    overwrite: bool
    skip_existing: bool
    verify: bool
    gaps: bool


@dataclass(frozen=True)
class Outcome:
    """What became of a file: a report, an error, or neither where the output was there already."""

    job: Job
    report: Report | None = None
    error: str | None = None

    @property
    def status(self) -> str:
        """One word for it."""
        return "restored" if self.report else "failed" if self.error else "skipped"

    def as_json(self) -> str:
        """Return all of it as a JSON object."""
        facts = {"input": self.job.source, "output": self.job.target, "status": self.status}
        if self.error:
            return dumps(facts | {"error": self.error})
        return dumps(facts | (asdict(self.report) if self.report else {}))

    def __str__(self) -> str:
        if self.report is None:
            return self.error or f"{self.job.target} is there already, {self.job.source} left out"
        proof = ", every sample in its cell" if self.report.verified else ""
        speed = f"{self.report.times_real_time:.0f}x real time"
        how = f"by {in_words(self.report.method, self.report.model)}"
        return f"{self.job.source} -> {self.job.target}: {self.report.levels}, {how}{proof}, {speed}"


def run_all(jobs: Sequence[Job], settings: Settings, processes: int, json: bool, quiet: bool) -> bool:
    """Do all jobs, say what became of each, and tell whether none failed."""
    counts: dict[str, int] = {}
    show = not quiet and sys.stderr.isatty()
    with closing(_outcomes(jobs, settings, processes, show)) as outcomes:
        for outcome in outcomes:
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
            if json:
                _print_json(outcome)
            if outcome.error:
                print(f"pdrn: {printable(outcome.error)}", file=sys.stderr)
            elif not quiet and not json:
                print(printable(outcome), file=sys.stderr)
    if len(jobs) > 1 and not quiet and not json:
        print(", ".join(f"{count} {status}" for status, count in counts.items()), file=sys.stderr)
    return "failed" not in counts


def _print_json(outcome: Outcome) -> None:
    """Print an outcome; where nobody reads any more, say so once and carry on."""
    try:
        with standard_output() as output:
            output.write(f"{outcome.as_json()}\n".encode())
    except AudioError as error:
        print(f"pdrn: {error}; the sounds are restored without a report", file=sys.stderr)


def _outcomes(
    jobs: Sequence[Job], settings: Settings, processes: int, show: bool
) -> Generator[Outcome, None, None]:
    processes = min(processes, len(jobs))
    if processes == 1:
        for job in jobs:
            outcome = _run(job, settings, _shown(job) if show else None)
            if show:
                print(_CLEAR, end="", file=sys.stderr)
            yield outcome
        return
    work = partial(_run, settings=settings, progress=None)
    with closing(side_by_side(work, jobs, processes)) as results:
        for job, result in results:
            yield result or Outcome(
                job, error=f"{job.source}: its process was killed; is memory short? try fewer jobs"
            )


def _run(job: Job, settings: Settings, progress: Progress | None) -> Outcome:
    try:
        if settings.skip_existing and os.path.exists(job.target):
            return Outcome(job)
        if job.makes_folder:
            _make_folder(os.path.dirname(job.target) or ".")
        report = restore_file(
            settings.restorer.blocks,
            job.source,
            job.target,
            settings.description,
            subtype=settings.subtype,
            overwrite=settings.overwrite,
            verify=settings.verify,
            gaps=settings.gaps,
            progress=progress,
        )
        return Outcome(job, report)
    except (ValueError, OSError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        return Outcome(job, error=reason if job.source in reason else f"{job.source}: {reason}")


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise AudioError(f"{folder} cannot be made: {why(error)}; choose another place") from error


def _shown(job: Job) -> Progress:
    """Return a callback that keeps a line of standard error up to date."""

    def show(done: int, frames: int | None) -> None:
        share = f"{done / frames:4.0%}" if frames else f"{done} frames"
        print(f"{_CLEAR}{printable(job.source)} {share}", end="", file=sys.stderr, flush=True)

    return show
