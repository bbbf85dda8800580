"""Restoring many files: which become which, a manifest of what is done, workers, raw pipes."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import version
from io import FileIO
from json import dumps
from pathlib import Path
from string import Formatter
from tempfile import TemporaryDirectory
from typing import BinaryIO

from pdrn.audio.files import FORMAT_OF_SUFFIX, SUFFIXES, RawFormat, format_of
from pdrn.audio.levels import Description, Levels
from pdrn.cli.options import TEMPLATE
from pdrn.errors import AudioError, InputError, StorageError, printable, system_reason
from pdrn.restoration import registry
from pdrn.restoration.methods import in_words
from pdrn.restoration.restorer import Report, Restorer, fitting, refuse_shallow, restore_file
from pdrn.restoration.streaming import Progress, restored_bytes
from pdrn.storage import atomic_write, make_folder, refuse_same, standard_input, standard_output
from pdrn.workers import ATTEMPTS, across, connected, side_by_side

HEAD = {"manifest": "pdrn restore", "version": 1}
SYNC_SECONDS = 1.0
"""A machine that fails forgets at most the lines of so long; a process that is killed forgets none."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Checksums (SHA-256) of an input, of what it was restored with, and of what became of it."""

    source: bytes
    options: bytes
    target: bytes


def checksum(path: str) -> bytes:
    """Return the checksum of a file's content."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise AudioError(f"{path} is no file that can be read twice; leave out the manifest")
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except (OSError, ValueError) as error:
        raise AudioError(f"{path} cannot be opened: {system_reason(error)}; check the name") from error


class Manifest:
    """A manifest that is open; `opened` opens one."""

    def __init__(self, path: str, stream: FileIO) -> None:
        self._path = path
        self._folder = os.path.dirname(os.path.realpath(path))
        self._stream = stream
        self._synced = time.monotonic()
        self._proofs: dict[str, Proof] = {}
        self.unreadable = 0
        """How many lines say nothing, but for one that was cut off at the end."""
        self._read()

    def known(self, target: str) -> Proof | None:
        """Return what was noted about an output, if anything; asked once, it is forgotten."""
        return self._proofs.pop(self._place(target), None)

    def note(self, source: str, target: str, proof: Proof) -> None:
        """Note that an output is done."""
        checksums = {"source": proof.source, "options": proof.options, "target": proof.target}
        row = {"input": source, "output": self._place(target)}
        self._append(_line(row | {name: content.hex() for name, content in checksums.items()}))
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Have the disk hold all that is noted."""
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def _place(self, target: str) -> str:
        """Return where an output is, seen from the manifest, so that both can move together."""
        folder, name = os.path.split(target)
        return os.path.join(_from(self._folder, folder or "."), name)

    def _append(self, line: bytes) -> None:
        try:
            written = self._stream.write(line)  # at once: there is no buffer
        except OSError as error:
            raise AudioError(
                f"{self._path} cannot be written: {system_reason(error)}; run the same again"
            ) from error
        if written != len(line):
            raise AudioError(f"{self._path} cannot be written; is the disk full? then run the same again")

    def _read(self) -> None:
        with open(self._path, "rb") as lines:
            head = line = lines.readline()
            if not head:
                self._append(_line(HEAD))
                return
            if _parsed(head) != HEAD:
                raise AudioError(f"{self._path} is there already and no manifest; choose another name")
            for line in lines:
                if line.endswith(b"\n"):
                    self._take(_parsed(line))
        if not line.endswith(b"\n"):
            self._append(b"\n")  # a line that was cut off ends here, so that the next one begins

    def _take(self, row: dict[str, str]) -> None:
        try:
            source, options, target = (bytes.fromhex(row[name]) for name in ("source", "options", "target"))
            self._proofs[row["output"]] = Proof(source, options, target)
        except (KeyError, TypeError, ValueError):
            self.unreadable += 1


@lru_cache
def _from(start: str, folder: str) -> str:
    return os.path.relpath(os.path.realpath(folder), start)


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, str]:
    with suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    return {}


@contextmanager
def opened(path: str) -> Iterator[Manifest]:
    """Open a manifest, or begin one; nobody else may have it open."""
    try:
        stream = open(path, "ab+", buffering=0)  # noqa: SIM115 (closed below)
    except (OSError, ValueError) as error:
        raise AudioError(f"{path} cannot be written: {system_reason(error)}; choose another place") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AudioError(f"{path} is in use by another run; wait for it, or name another") from error
        except OSError:  # no locks on this file system
            pass
        manifest = Manifest(path, stream)
        try:
            yield manifest
        finally:
            manifest.sync()


_ONLY_INTEGERS = {".flac": ("PCM_S8", "PCM_16", "PCM_24")}


class Mistake(InputError):
    """What a user asked for cannot be meant so."""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to be made from another; "-" stands for a pipe."""

    source: str
    target: str
    makes_folder: bool = False
    """Whether the target's folder is to be made where there is none."""
    proof: Proof | None = None
    """What was noted when it was done before, if it was."""
    again: bool = False
    """Whether it was begun before, and nobody heard how it ended."""


def plan(
    inputs: Sequence[str], output: str | None, template: str, recursive: bool, subtype: str | None
) -> list[Job]:
    """Return the jobs for inputs that may be files, folders, globs or "-", and outputs of a subtype, if any.

    Folders are mirrored below the output. Files found there, or by a glob, that are outputs of others are
    not inputs too.
    """
    if "-" in inputs:
        if len(inputs) > 1:
            raise Mistake("standard input is one sound; give files apart from it")
        return [Job("-", _writable(output or "-", subtype))]
    found = [pair for given in inputs for pair in _found(given, recursive)]
    single = len(inputs) == 1 and [(Path(inputs[0]), Path())] == found
    if output == "-" and not single:
        raise Mistake("only one file can go to standard output; name a folder for the others")
    if single and output is not None and not (output.endswith(os.sep) or os.path.isdir(output)):
        if template != TEMPLATE:
            raise Mistake(f"{output} is the output's name; leave out how it is named, or name a folder")
        is_there = found[0][0].exists()  # if not, that is what is wrong, whatever the output is called
        return [Job(str(found[0][0]), _writable(output, subtype) if is_there else output)]
    if output is not None and not os.path.isdir(output) and _is_file_name(output):
        raise Mistake(f"{output} is a file; name a folder for several outputs")
    jobs = {}
    for path, place in found:
        folder = path.parent if output is None else Path(output) / place
        jobs[path] = folder / _named(template, path, subtype)
    sources: dict[Path, Path] = {}
    own_work = {os.path.realpath(target): source for source, target in jobs.items()}
    for source, target in jobs.items():
        origin = own_work.get(os.path.realpath(source), source)
        if origin != source:
            if source in map(Path, inputs):
                raise Mistake(
                    f"{source} is an input, and what {origin} would become; name a folder for outputs"
                )
            continue
        if target in sources:
            raise Mistake(f"{sources[target]} and {source} would both become {target}; name them apart")
        sources[target] = source
    makes_folder = output is not None
    return [Job(str(source), str(target), makes_folder) for target, source in sources.items()]


def _writable(output: str, subtype: str | None) -> str:
    """Return the name of an output, if it tells a format, and one that holds the subtype."""
    try:
        format_of(output)
    except AudioError as error:
        raise Mistake(str(error)) from error
    if not _holds(Path(output).suffix, subtype):
        raise Mistake(
            f"{output} would have to hold {subtype} and cannot; end it in .wav, or choose another --subtype"
        )
    return output


def _holds(ext: str, subtype: str | None) -> bool:
    return subtype is None or subtype in _ONLY_INTEGERS.get(ext.lower(), (subtype,))


def _is_file_name(output: str) -> bool:
    return os.path.isfile(output) or Path(output).suffix.lower() in FORMAT_OF_SUFFIX


def _found(given: str, recursive: bool) -> Iterator[tuple[Path, Path]]:
    """Yield the sound files that an argument stands for, and each one's folder below it."""
    if os.path.isdir(given):
        pattern = "**/*" if recursive else "*"
        files = [path for path in sorted(Path(given).glob(pattern)) if _is_sound(path)]
        if not files:
            deeper = "" if recursive else "; --recursive looks into its folders too"
            raise Mistake(f"{given} holds no sound files{deeper}")
        yield from ((path, path.parent.relative_to(given)) for path in files)
    elif os.path.lexists(given) or not glob.has_magic(given):
        yield Path(given), Path()
    else:
        matches = sorted(glob.glob(given, recursive=recursive))
        if not matches:
            raise Mistake(f"{given} matches no file; check the pattern")
        yield from ((Path(match), Path()) for match in matches if not os.path.isdir(match))


def _is_sound(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _named(template: str, path: Path, subtype: str | None) -> str:
    ext = path.suffix if path.suffix.lower() in FORMAT_OF_SUFFIX else ".wav"
    if not _holds(ext, subtype):
        ext = ".wav"
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
        plain = all(field in ("stem", "ext") and not (spec or how) for _, field, spec, how in parts)
        name = template.format(stem=path.stem, ext=ext) if plain else ""
    except ValueError:
        name = ""
    if not name or os.sep in name:
        raise Mistake(f"a file name has the fields {{stem}} and {{ext}} and no folder, got {template}")
    return _writable(name, subtype)


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
        if restorer.model is not None and restorer.model not in registry.names():
            networks = [restorer.model]
        elif restorer.method == "cp":
            networks = []
        else:
            networks = [str(registry.path(name)) for name in registry.names()]
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
    except StorageError as error:
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


def restore_raw(
    restorer: Restorer,
    levels: Levels,
    sample_rate_hz: int,
    formats: tuple[RawFormat, RawFormat],
    places: tuple[str, str],
    gaps: bool,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Restore raw samples: `formats` and `places` are those of input and output."""
    read_as, write_as = formats
    if not gaps:
        refuse_shallow(levels, write_as.subtype, "another --output-encoding")
    stream = restorer.stream_of(sample_rate_hz, fitting(levels, write_as.subtype), gaps=gaps)
    if not quiet:
        milliseconds = 1000 * stream.latency_seconds
        how = f"by {in_words(stream.method, stream.model)}"
        print(f"restoring {how}, at most {milliseconds:.0f} ms behind the input", file=sys.stderr)
    refuse_same(*places)
    with _opened(places[0]) as source:
        pieces = restored_bytes(stream, source, read_as, write_as)
        if places[1] != "-":
            with atomic_write(places[1], overwrite) as file:
                file.writelines(pieces)
            return
        with standard_output() as output:
            for piece in pieces:
                output.write(piece)
                output.flush()


@contextmanager
def _opened(place: str) -> Iterator[BinaryIO]:
    if place == "-":
        yield standard_input()
        return
    try:
        stream = open(place, "rb")  # noqa: SIM115 (closed below)
    except (OSError, ValueError) as error:
        raise AudioError(f"{place} cannot be opened: {system_reason(error)}; check its name") from error
    with stream:
        yield stream
