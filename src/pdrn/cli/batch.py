"""Restore many files, or a raw pipe.

`plan` pairs inputs with outputs. `restore_all` restores the pairs, in this process or by workers; a manifest
proves what earlier runs have done. `restore_raw` restores samples without a header as they arrive.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import Any

from pdrn.audio.detection import QuantizerOptions
from pdrn.audio.files import FORMAT_OF_SUFFIX, SUFFIXES, RawFormat, format_of
from pdrn.cli.options import TEMPLATE, usage_errors
from pdrn.errors import PdrnError, StorageError, UsageError, printable, system_error
from pdrn.restoration import registry
from pdrn.restoration.methods import describe_method
from pdrn.restoration.restorer import Report, Restorer
from pdrn.restoration.streaming import Progress, Stream, restore_bytes
from pdrn.storage import (
    NAME_ERRORS,
    atomic_write,
    file_sha256,
    lock,
    make_folder,
    open_file,
    refuse_same,
    standard_input,
    standard_output,
    storage_errors,
    temporary_folder,
)
from pdrn.workers import KILLED, run_jobs

# The plan ---------------------------------------------------------------------------------------------------

_FLAC_SUBTYPES = ("PCM_S8", "PCM_16", "PCM_24")


@dataclass(frozen=True, slots=True)
class Job:
    """An input and its output; "-" stands for a pipe."""

    source: str
    target: str
    makes_folder: bool = False
    """Whether to make the target's folder if it is missing."""
    proof: Proof | None = None
    """The manifest's proof of an earlier run, if any."""
    is_retry: bool = False
    """Whether an earlier attempt may have written the target."""


def plan(
    inputs: Sequence[str], output: str | None, template: str, recursive: bool, subtype: str | None
) -> list[Job]:
    """Return the jobs for inputs that may be files, folders, globs or "-".

    Folders are mirrored below the output. Outputs of other jobs that a folder or glob finds are left out.
    """
    if "-" in inputs:
        if len(inputs) > 1:
            raise UsageError("standard input is one sound; give files apart from it")
        return [Job("-", _check_output(output or "-", subtype))]
    found = [pair for given in inputs for pair in _find_inputs(given, recursive)]
    single = len(inputs) == 1 and [(Path(inputs[0]), Path())] == found
    if output == "-" and not single:
        raise UsageError("only one file can go to standard output; name a folder for the others")
    if single and output is not None and not (output.endswith(os.sep) or os.path.isdir(output)):
        if template != TEMPLATE:
            raise UsageError(f"{output} is the output's name; leave --filename out, or name a folder")
        exists = found[0][0].exists()  # if not, reading it fails, and says so
        return [Job(str(found[0][0]), _check_output(output, subtype) if exists else output)]
    has_format = Path(output or "").suffix.lower() in FORMAT_OF_SUFFIX
    if output and not os.path.isdir(output) and (has_format or os.path.isfile(output)):
        raise UsageError(f"{output} is a file; name a folder for several outputs")
    targets = {}
    for path, place in found:
        folder = path.parent if output is None else Path(output) / place
        targets[path] = folder / _output_name(template, path, subtype)
    sources: dict[Path, Path] = {}
    source_of = {os.path.realpath(target): source for source, target in targets.items()}
    for source, target in targets.items():
        origin = source_of.get(os.path.realpath(source), source)
        if origin != source:
            if source in map(Path, inputs):
                raise UsageError(
                    f"{source} is an input, and what {origin} would become; name a folder for outputs"
                )
            continue
        if target in sources:
            raise UsageError(f"{sources[target]} and {source} would both become {target}; name them apart")
        sources[target] = source
    makes_folder = output is not None
    return [Job(str(source), str(target), makes_folder) for target, source in sources.items()]


def _check_output(output: str, subtype: str | None) -> str:
    """Return the name of an output; refuse a format that cannot hold the subtype."""
    with usage_errors():
        format_of(output)
    if not _holds(Path(output).suffix, subtype):
        raise UsageError(
            f"{output} would have to hold {subtype} and cannot; end it in .wav, or choose another --subtype"
        )
    return output


def _holds(suffix: str, subtype: str | None) -> bool:
    return suffix.lower() != ".flac" or subtype is None or subtype in _FLAC_SUBTYPES


def _find_inputs(given: str, recursive: bool) -> Iterator[tuple[Path, Path]]:
    """Yield the sound files that an argument names, each with its folder below the argument."""
    if os.path.isdir(given):
        paths = sorted(Path(given).glob("**/*" if recursive else "*"))
        files = [path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()]
        if not files:
            deeper = "" if recursive else "; --recursive looks into its folders too"
            raise UsageError(f"{given} holds no sound files{deeper}")
        yield from ((path, path.parent.relative_to(given)) for path in files)
    elif os.path.lexists(given) or not glob.has_magic(given):
        yield Path(given), Path()
    else:
        matches = sorted(glob.glob(given, recursive=recursive))
        if not matches:
            raise UsageError(f"{given} matches no file; check the pattern")
        yield from ((Path(match), Path()) for match in matches if not os.path.isdir(match))


def _output_name(template: str, path: Path, subtype: str | None) -> str:
    literal = template.replace("{stem}", "").replace("{ext}", "")
    if not template or any(mark in literal for mark in ("{", "}", os.sep)):
        raise UsageError(f"a file name has the fields {{stem}} and {{ext}} and no folder, got {template}")
    keeps_format = path.suffix.lower() in FORMAT_OF_SUFFIX and _holds(path.suffix, subtype)
    name = template.replace("{ext}", path.suffix if keeps_format else ".wav").replace("{stem}", path.stem)
    return _check_output(name, subtype)


# The manifest -----------------------------------------------------------------------------------------------

HEAD = {"manifest": "pdrn restore", "version": 1}
SYNC_SECONDS = 1.0
"""Interval of fsync: a power failure loses the lines of this time, a killed process loses none."""


@dataclass(frozen=True, slots=True)
class Proof:
    """SHA-256 of an input, of the settings that it was restored with, and of the output."""

    source: bytes
    options: bytes
    target: bytes


@contextmanager
def open_manifest(path: str) -> Iterator[Manifest]:
    """Open a manifest, or create one, and lock it."""
    with storage_errors(f"{path} cannot be written", "choose another place", NAME_ERRORS):
        stream = open(path, "ab+", buffering=0)  # noqa: SIM115 (closed below)
    with stream:
        lock(stream, f"{path} is in use by another run; wait for it, or name another")
        manifest = Manifest(path, stream)
        try:
            yield manifest
        finally:
            manifest.sync()


class Manifest:
    """An open manifest: one line of JSON per output, appended when it is done."""

    def __init__(self, path: str, stream: FileIO) -> None:
        self._path = path
        self._folder = os.path.dirname(os.path.realpath(path))
        self._stream = stream
        self._synced = time.monotonic()
        self._proofs: dict[str, Proof] = {}
        self.unreadable = 0
        """Number of unreadable lines, without a last line that was cut off."""
        self._read()

    def pop(self, target: str) -> Proof | None:
        """Return the proof of an output, if any, and forget it."""
        return self._proofs.pop(self._relative(target), None)

    def note(self, source: str, target: str, proof: Proof) -> None:
        """Note that an output is done."""
        checksums = {name: checksum.hex() for name, checksum in asdict(proof).items()}
        self._append(_line({"input": source, "output": self._relative(target)} | checksums))
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Write all lines to the disk."""
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def _relative(self, target: str) -> str:
        """Return an output's path from the manifest's folder, so that both can move together."""
        folder, name = os.path.split(target)
        return os.path.join(_relative_folder(self._folder, folder or "."), name)

    def _append(self, line: bytes) -> None:
        with storage_errors(f"{self._path} cannot be written", "run the same command again"):
            if self._stream.write(line) != len(line):  # unbuffered
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _read(self) -> None:
        with open_file(self._path) as lines:
            head = line = lines.readline()
            if not head:
                self._append(_line(HEAD))
                return
            if _parsed(head) != HEAD:
                raise StorageError(f"{self._path} is there already and no manifest; choose another name")
            for line in lines:
                if line.endswith(b"\n"):
                    self._read_row(_parsed(line))
        if not line.endswith(b"\n"):
            self._append(b"\n")  # ends a line that was cut off

    def _read_row(self, row: dict[str, str]) -> None:
        try:
            source, options, target = (bytes.fromhex(row[name]) for name in ("source", "options", "target"))
            self._proofs[row["output"]] = Proof(source, options, target)
        except (KeyError, TypeError, ValueError):
            self.unreadable += 1


@lru_cache
def _relative_folder(start: str, folder: str) -> str:
    return os.path.relpath(os.path.realpath(folder), start)


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, str]:
    with suppress(ValueError, RecursionError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    return {}


# One file ---------------------------------------------------------------------------------------------------

_TRANSIENT = frozenset(
    (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EREMOTEIO)
)
"""Errors of a shared file system that may not occur at the next attempt."""


@dataclass(frozen=True)
class Settings:
    """The settings that all files share."""

    restorer: Restorer
    quantizer: QuantizerOptions
    subtype: str | None = None
    overwrite: bool = False
    skip_existing: bool = False
    verify: bool = False
    gaps: bool = False
    fingerprint: bytes = b""
    """`settings_sha256` if there is a manifest, which needs the checksums of all files."""

    def settings_sha256(self) -> bytes:
        """Return the checksum of everything that an output depends on besides its input."""
        restorer = self.restorer
        if restorer.model is not None and restorer.model not in registry.names():
            networks = [restorer.model]
        elif restorer.method == "cp":
            networks = []
        else:
            networks = [str(registry.path(name)) for name in registry.names()]
        facts = {
            "pdrn": version("pdrn"),
            "networks": [_checksum(path).hex() for path in networks],
            "model": restorer.model and os.path.basename(restorer.model),
            "restorer": [restorer.method, restorer.iterations, restorer.mix, restorer.shifts],
            "samples": asdict(self.quantizer),
            "subtype": self.subtype,
            "verify": self.verify,
            "gaps": self.gaps,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: a report, an error, or neither if it was skipped."""

    job: Job
    report: Report | None = None
    error: str | None = None
    proof: Proof | None = None
    transient: bool = False
    """Whether the error may not occur at the next attempt."""
    traceback: str = ""
    """Of a bug."""

    @property
    def status(self) -> str:
        """One word: restored, failed or skipped."""
        return "restored" if self.report else "failed" if self.error else "skipped"

    def as_json(self) -> str:
        """Return the outcome as a JSON object."""
        facts = {"input": self.job.source, "output": self.job.target, "status": self.status}
        if self.error:
            return json.dumps(facts | {"error": self.error})
        return json.dumps(facts | (asdict(self.report) if self.report else {}))

    def __str__(self) -> str:
        if self.report is None:
            return self.error or f"{self.job.target} is there already, {self.job.source} left out"
        proof = ", every sample in its cell" if self.report.verified else ""
        times = self.report.times_real_time
        speed = f"{times:.2g}x real time" if times < 10 else f"{times:.0f}x real time"
        how = f"by {describe_method(self.report.method, self.report.model)}"
        clipped = "" if self.report.clipped is None else f" ({self.report.clipped or 'no'} samples are)"
        missing = "" if self.report.missing is None else f", {self.report.missing or 'no'} samples missing"
        levels = f"{self.report.levels}{clipped}{missing}"
        return f"{self.job.source} -> {self.job.target}: {levels}, {how}{proof}, {speed}"


def restore_one(job: Job, settings: Settings, progress: Progress | None = None) -> Outcome:
    """Restore one file, unless the manifest proves that it is done; errors become the outcome."""
    try:
        return _restore_or_skip(job, settings, progress)
    except (PdrnError, MemoryError) as error:
        reason = str(error) or "memory is short; try fewer jobs"
        message = reason if job.source in reason else f"{job.source}: {reason}"
        cause = system_error(error)
        return Outcome(job, error=message, transient=cause is not None and cause.errno in _TRANSIENT)
    except Exception as error:
        message = f"{job.source}: this is a bug of pdrn ({type(error).__name__}); please report its traceback"
        return Outcome(job, error=message, traceback=traceback.format_exc())


def _restore_or_skip(job: Job, settings: Settings, progress: Progress | None) -> Outcome:
    """Follow the table of outputs and manifest in docs/scaling.md."""
    has_manifest, proof = bool(settings.fingerprint), job.proof
    source = _checksum(job.source) if has_manifest else b""
    may_be_ours = (has_manifest or job.is_retry) and os.path.isfile(job.target)
    existing = _checksum(job.target) if may_be_ours else b""
    is_same_job = proof is not None and (proof.source, proof.options) == (source, settings.fingerprint)
    is_unchanged = proof is not None and proof.target == existing
    if (is_same_job and is_unchanged) or (settings.skip_existing and os.path.exists(job.target)):
        return Outcome(job)
    if job.makes_folder:
        make_folder(os.path.dirname(job.target) or ".")

    def restore(target: str) -> Report:
        return settings.restorer.restore_file(
            job.source,
            target,
            subtype=settings.subtype,
            overwrite=settings.overwrite,
            verify=settings.verify,
            gaps=settings.gaps,
            progress=progress,
            **asdict(settings.quantizer),
        )

    if settings.overwrite or not existing:
        report = restore(job.target)
    elif is_same_job:
        raise StorageError(f"{job.target} was changed since it was restored; remove it, or allow overwriting")
    elif is_unchanged:
        raise StorageError(f"{job.target} was restored from another input, or by other settings; {_ADVICE}")
    else:  # the process may have been killed between writing the output and noting it
        with temporary_folder() as folder:
            copy = os.path.join(folder, os.path.basename(job.target))
            report = replace(restore(copy), output=job.target)
            if _checksum(copy) != existing:
                raise StorageError(
                    f"{job.target} is there already, and not what {job.source} becomes; {_ADVICE}"
                )
    if not has_manifest:
        return Outcome(job, report)
    if _checksum(job.source) != source:
        raise StorageError(f"{job.source} changed while it was restored; restore it again, by --overwrite")
    return Outcome(job, report, proof=Proof(source, settings.fingerprint, _checksum(job.target)))


_ADVICE = "choose another name, or allow overwriting"


def _checksum(path: str) -> bytes:
    if os.path.exists(path) and not os.path.isfile(path):
        raise StorageError(f"{path} is no file that can be read twice; leave out the manifest")
    return bytes.fromhex(file_sha256(path))


# Many files -------------------------------------------------------------------------------------------------

_MANY = 20
"""After more files than this, failures have scrolled away and are listed again."""


def restore_all(
    jobs: Sequence[Job],
    settings: Settings,
    workers: int,
    ray: Any = None,
    manifest: str | None = None,
    *,
    json: bool = False,
    quiet: bool = False,
) -> bool:
    """Restore all files, print the outcome of each, and return whether none failed.

    The workers are processes of this machine, or tasks of the cluster that Ray is connected to.
    """
    counts: dict[str, int] = {}
    failed = []
    show = not quiet and sys.stderr.isatty()
    with ExitStack() as stack:
        record = stack.enter_context(open_manifest(manifest)) if manifest is not None else None
        todo = iter(jobs)
        if record:
            if record.unreadable:
                print(f"pdrn: {manifest}: {record.unreadable} unreadable lines are ignored", file=sys.stderr)
            settings = replace(settings, fingerprint=settings.settings_sha256())
            todo = (replace(job, proof=record.pop(job.target)) for job in jobs)
        for outcome in stack.enter_context(closing(_outcomes(todo, settings, workers, ray, show))):
            if record and outcome.proof:
                record.note(outcome.job.source, outcome.job.target, outcome.proof)
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
            if json:
                _print_json(outcome)
            if outcome.error:
                failed.append(outcome.job.source)
                print(f"{outcome.traceback}pdrn: {printable(outcome.error)}", file=sys.stderr)
            elif not quiet and not json:
                print(printable(outcome), file=sys.stderr)
    if len(jobs) > 1 and not quiet and not json:
        if len(jobs) > _MANY and failed:
            print(f"failed: {printable(', '.join(failed))}", file=sys.stderr)
        print(", ".join(f"{count} {status}" for status, count in counts.items()), file=sys.stderr)
    return not failed


def _print_json(outcome: Outcome) -> None:
    """Print an outcome; if the pipe is closed, say so once and go on restoring."""
    try:
        with standard_output() as output:
            output.write(f"{outcome.as_json()}\n".encode())
    except StorageError as error:
        print(f"pdrn: {error}; restoring goes on without reports", file=sys.stderr)


def _outcomes(
    jobs: Iterator[Job], settings: Settings, workers: int, ray: Any, show: bool
) -> Generator[Outcome, None, None]:
    if workers == 1 and ray is None:
        for job in jobs:
            with _progress(job.source) if show else nullcontext() as progress:
                done = restore_one(job, settings, progress)
            yield done
        return
    results = run_jobs(
        partial(restore_one, settings=settings),
        jobs,
        workers,
        ray=ray,
        cpus=settings.restorer.threads,
        fingerprint=settings.settings_sha256,
        retry=_retry if ray else None,
    )
    with closing(results):
        for job, outcome in results:
            yield outcome or Outcome(job, error=f"{job.source}: {KILLED}")


def _retry(job: Job, outcome: Outcome | None) -> Job | None:
    return replace(job, is_retry=True) if outcome is None or outcome.transient else None


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """Show a progress bar on standard error; yield the callback that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn()
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(name), total=None)
        yield lambda done, frames: bar.update(task, completed=done, total=frames)


# Raw pipes --------------------------------------------------------------------------------------------------


def restore_raw(
    stream: Stream, source: str, read_as: RawFormat, target: str, write_as: RawFormat, overwrite: bool
) -> None:
    """Restore raw samples as they arrive; "-" stands for a standard stream."""
    refuse_same(source, target)
    with nullcontext(standard_input()) if source == "-" else open_file(source) as opened:
        pieces = restore_bytes(stream, opened, read_as, write_as)
        if target != "-":
            with atomic_write(target, overwrite) as file:
                file.writelines(pieces)
            return
        with standard_output() as output:
            for piece in pieces:
                output.write(piece)
                output.flush()
