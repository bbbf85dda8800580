"""Restoring one of many files, in whatever process: it is done, or fails by itself and says why."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from json import dumps
from tempfile import TemporaryDirectory

from pdrn.app.batch import Job
from pdrn.app.manifest import Proof, checksum
from pdrn.audio.placing import make_folder
from pdrn.audio.system import AudioError
from pdrn.restoring import pretrained
from pdrn.restoring.blockwise import Progress
from pdrn.restoring.description import Description
from pdrn.restoring.method import in_words
from pdrn.restoring.recording import Report, restore_file
from pdrn.restoring.restorer import Restorer

_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EREMOTEIO}
"""What a shared file system may say at one moment and not at the next."""


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
    proves: bool = False
    """Whether checksums are taken of what is done, for a manifest."""

    def options(self) -> bytes:
        """Return a checksum of all that decides what becomes of an input, and whether it is verified."""
        restorer = self.restorer
        if restorer.model is not None and restorer.model not in pretrained.names():
            networks = [restorer.model]
        elif restorer.method == "cp":
            networks = []
        else:
            networks = [str(pretrained.path(name)) for name in pretrained.names()]
        facts = {
            "pdrn": version("pdrn"),
            "networks": [checksum(path).hex() for path in networks],
            "model": restorer.model and os.path.basename(restorer.model),
            "restorer": [restorer.method, restorer.iterations, restorer.mix, restorer.shifts],
            "samples": asdict(self.description),
            "subtype": self.subtype,
            "verify": self.verify,
            "gaps": self.gaps,
        }
        return hashlib.sha256(dumps(facts, sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Outcome:
    """What became of a file: a report, an error, or neither where the output was there already."""

    job: Job
    report: Report | None = None
    error: str | None = None
    proof: Proof | None = None
    passing: bool = False
    """Whether the error may be gone by itself soon."""

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
        times = self.report.times_real_time
        speed = f"{times:.2g}x real time" if times < 10 else f"{times:.0f}x real time"
        how = f"by {in_words(self.report.method, self.report.model)}"
        clipped = "" if self.report.clipped is None else f" ({self.report.clipped or 'no'} samples are)"
        missing = "" if self.report.missing is None else f", {self.report.missing or 'no'} samples missing"
        levels = f"{self.report.levels}{clipped}{missing}"
        return f"{self.job.source} -> {self.job.target}: {levels}, {how}{proof}, {speed}"


def do(job: Job, settings: Settings, options: bytes, progress: Progress | None = None) -> Outcome:
    """Do a job, unless it is proven to be done already."""
    try:
        source = checksum(job.source) if settings.proves else b""
        if settings.proves and _is_done(job, settings, options, source):
            return Outcome(job)
        if settings.skip_existing and os.path.exists(job.target):
            return Outcome(job)
        if job.makes_folder:
            make_folder(os.path.dirname(job.target) or ".")
        report = _restored(job, settings, progress)
        if not settings.proves:
            return Outcome(job, report)
        if checksum(job.source) != source:
            raise AudioError(f"{job.source} changed while it was restored; restore it again, by --overwrite")
        return Outcome(job, report, proof=Proof(source, options, checksum(job.target)))
    except (ValueError, OSError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        said = reason if job.source in reason else f"{job.source}: {reason}"
        return Outcome(job, error=said, passing=_may_pass(error))


def _is_done(job: Job, settings: Settings, options: bytes, source: bytes) -> bool:
    """Tell whether an output is what the input was restored to; refuse one that is not any more."""
    if job.proof is None or (job.proof.source, job.proof.options) != (source, options):
        return False
    if not os.path.lexists(job.target):
        return False
    if checksum(job.target) == job.proof.target:
        return True
    if settings.overwrite or settings.skip_existing:
        return False
    raise AudioError(f"{job.target} was changed since it was restored; remove it, or allow overwriting")


def _restored(job: Job, settings: Settings, progress: Progress | None) -> Report:
    restore = partial(
        restore_file,
        settings.restorer.blocks,
        job.source,
        description=settings.description,
        subtype=settings.subtype,
        verify=settings.verify,
        gaps=settings.gaps,
        progress=progress,
    )
    may_be_ours = settings.proves or job.again
    if settings.overwrite or not may_be_ours or not os.path.isfile(job.target):
        return restore(job.target, overwrite=settings.overwrite)
    if job.proof and checksum(job.target) == job.proof.target:
        raise AudioError(
            f"{job.target} was restored from another input, or by other settings; choose another name, or "
            "allow overwriting"
        )
    # Whoever made it was cut off before anyone noted it, or it is another's: doing it again tells.
    with TemporaryDirectory() as folder:
        other = os.path.join(folder, os.path.basename(job.target))
        report = restore(other)
        if checksum(other) != checksum(job.target):
            raise AudioError(
                f"{job.target} is there already, and not what {job.source} becomes; choose another name, or "
                "allow overwriting"
            )
    return replace(report, output=job.target)


def _may_pass(error: BaseException) -> bool:
    """Tell whether the system was asked in vain, and might not be the next time."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _PASSING:
            return True
        cause = cause.__cause__
    return False
