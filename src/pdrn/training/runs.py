"""Run folders: configuration, log, checkpoint and networks of one training run.

    run.json            configuration, code version, corpus checksum, seed, threads, processes, steps
    log.jsonl           one line per epoch
    state.safetensors   the checkpoint to resume from
    best.safetensors    the network with the smallest development error
    last.safetensors    the network after the last epoch

A run is done when its record holds the length and the checksum of its log. Its record and log can be copied
without its networks: they are all that tables and curves need. Every file but the log is written atomically,
and every file has a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import pdrn
from pdrn.errors import InputError, StorageError, printable, system_reason
from pdrn.nets import Network
from pdrn.nets import files as network_files
from pdrn.nets.files import Provenance, decode, encode
from pdrn.storage import (
    atomic_write,
    content_sha256,
    exclusive_lock,
    make_folder,
    open_tensors,
    verify_checksum,
)
from pdrn.training.config import Config, run_name

Entry = dict[str, Any]
"""One line of a log: the measurements after an epoch."""

LOGGED = ("step", "train_mse", "dev_mse", "dev_snr", "dev_ratio", "best_epoch", "training_seconds")
"""The numbers that every line of a log has, besides its epoch."""


@dataclass(frozen=True)
class Finished:
    """The log of a run that is done."""

    epochs: int
    log_sha256: str


@dataclass(frozen=True)
class Record:
    """The contents of run.json."""

    name: str
    """The hash of configuration and corpus."""
    config: Config
    code: str
    """The version of this package that began the run."""
    corpus: str
    """The name of its folder."""
    corpus_sha256: str
    sample_rate_hz: int
    threads: int
    processes: int
    parameters: int
    steps_per_epoch: int
    total_steps: int
    files_too_short: int
    """Files shorter than a frame, which are left out."""
    resumed_from: str | None = None
    """The shorter run whose checkpoint this one began with."""
    finished: Finished | None = None


Tensors = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Run:
    """A run folder, which need not exist yet."""

    folder: Path

    @property
    def best_path(self) -> Path:
        """The file of the best network."""
        return self.folder / "best.safetensors"

    @property
    def name(self) -> str:
        """The hash that names the run, even if its folder was renamed."""
        record = self.record()
        return record.name if record else self.folder.name

    @property
    def is_done(self) -> bool:
        """Whether training has ended."""
        record = self.record()
        return record is not None and record.finished is not None

    @property
    def has_state(self) -> bool:
        """Whether the run has a checkpoint."""
        return (self.folder / "state.safetensors").is_file()

    def record(self) -> Record | None:
        """Return the contents of run.json, or None if the run has not begun."""
        path = self.folder / "run.json"
        with readable(path, f"remove {self.folder} to train it again"):
            try:
                table = load_json(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            record: Record = decode(Record, table, "the record")
        return record

    def config(self) -> Config:
        """Return the configuration of a run that has begun."""
        return self._existing_record().config

    def _existing_record(self) -> Record:
        record = self.record()
        if record is None:
            raise InputError(f"{self.folder} holds no run; train it first")
        return record

    def create(self, record: Record, resume_from: Run | None = None) -> None:
        """Create the folder, with the log and the checkpoint of another run to resume from.

        The record is written last: a process that is killed earlier starts from scratch.
        """
        make_folder(self.folder)
        for name in ("log.jsonl", "best.safetensors", "state.safetensors"):
            (self.folder / name).unlink(missing_ok=True)
            if resume_from and (resume_from.folder / name).exists():
                shutil.copyfile(resume_from.folder / name, self.folder / name)
        self.save_record(record)

    def save_record(self, record: Record) -> None:
        """Write run.json."""
        save_json(self.folder / "run.json", encode(record))

    def finish(self, network: Network, provenance: Provenance) -> None:
        """Write the last network, and record that training has ended."""
        self.save_network("last", network, provenance)
        epochs = len(self.log())
        finished = Finished(epochs, self._log_sha256(epochs))
        self.save_record(replace(self._existing_record(), finished=finished))

    @property
    def log_path(self) -> Path:
        """The file of the log."""
        return self.folder / "log.jsonl"

    @property
    def log_bytes(self) -> int:
        """The size of the log, which grows with every epoch."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log(self) -> list[Entry]:
        """Return the epochs in the log, up to the first line that is incomplete or damaged."""
        return [entry for entry in takewhile(bool, map(_entry, self._log_lines())) if entry]

    def complete_log(self) -> list[Entry]:
        """Return the log of a run that is done, verified."""
        entries, finished = self.log(), self._existing_record().finished
        remedy = "remove that folder to train it again"
        if finished is None:
            raise InputError(f"{self.folder} is not done; train it to its end")
        if not _has_epochs(entries, finished.epochs):
            raise InputError(
                f"the log of {self.folder} has {len(entries)} of {finished.epochs} epochs; {remedy}"
            )
        self._verify_log(finished.epochs, finished.log_sha256, remedy)
        return entries

    def smallest(self, name: str) -> float:
        """Return the smallest value over all epochs of a run that is done, such as ``dev_mse``."""
        return min(float(entry[name]) for entry in self.complete_log())

    def append(self, entry: Entry) -> None:
        """Add an epoch to the log."""
        with open(self.log_path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def truncate_log(self, epochs: int) -> None:
        """Cut the log to this number of epochs, refusing a shorter one."""
        kept = self.log()[:epochs]
        if not _has_epochs(kept, epochs):
            raise InputError(
                f"{self.folder} has a checkpoint after epoch {epochs}, but a log of {len(kept)} epochs; "
                "remove state.safetensors there to start this run again"
            )
        with atomic_write(self.log_path, overwrite=True) as stream:
            stream.write("".join(json.dumps(entry) + "\n" for entry in kept).encode())

    def _log_lines(self) -> list[bytes]:
        if not self.log_path.exists():
            return []
        with readable(self.log_path, f"remove {self.folder} to train it again"):
            return self.log_path.read_bytes().splitlines(keepends=True)

    def _log_sha256(self, epochs: int) -> str:
        return hashlib.sha256(b"".join(self._log_lines()[:epochs])).hexdigest()

    def _verify_log(self, epochs: int, sha256: str, remedy: str) -> None:
        if sha256 != self._log_sha256(epochs):
            raise InputError(f"some bits of the log of {self.folder} have changed; {remedy}")

    def copy_log(self, folder: Path) -> None:
        """Copy record and log, without the networks, to another folder."""
        self.complete_log()  # verified before it is copied
        if Run(folder).has_state or Run(folder).best_path.exists():
            raise InputError(f"{folder} has networks; choose another folder for the logs")
        make_folder(folder)
        with readable(self.folder, "check that folder"):
            for name in ("log.jsonl", "run.json"):
                with atomic_write(folder / name, overwrite=True) as stream:
                    stream.write((self.folder / name).read_bytes())

    def save_state(self, tensors: Tensors, facts: dict[str, Any]) -> None:
        """Write the checkpoint, which replaces the one before atomically."""
        with open(self.log_path, "ab") as stream:
            os.fsync(stream.fileno())  # the log is never behind the checkpoint
        facts = {"run": self.name, "log_sha256": self._log_sha256(facts["epoch"])} | facts
        save_tensors(self.folder / "state.safetensors", tensors, facts)

    def load_state(self, shapes: dict[str, tuple[int, ...]]) -> tuple[Tensors, dict[str, Any]] | None:
        """Return the checkpoint, None if the run has none; refuse that of another run or network."""
        path, remedy = self.folder / "state.safetensors", "remove it to start this run again"
        if not self.has_state:
            return None
        with readable(path, remedy):
            tensors, facts = load_tensors(path)
            wanted = ("run", "log_sha256", "step", "epoch", "seconds", "best")
            if missing := [name for name in wanted if name not in facts]:
                raise InputError(f"{missing[0]} is missing")
        if {name: part.shape for name, part in tensors.items()} != shapes:
            raise InputError(f"{path} is of another network; {remedy}")
        # A run that resumed another still has the checkpoint of that one until it writes its own.
        if facts["run"] not in (self.name, self._existing_record().resumed_from):
            raise InputError(f"{path} is of the run {facts['run']}; {remedy}")
        if len(self.log()) >= facts["epoch"]:  # a shorter one is refused when it is truncated
            remedy = "remove state.safetensors there to start this run again"
            self._verify_log(facts["epoch"], facts["log_sha256"], remedy)
        return tensors, facts

    def save_network(self, name: str, network: Network, provenance: Provenance) -> None:
        """Write the ``best`` or the ``last`` network."""
        network_files.save(self.folder / f"{name}.safetensors", network, provenance, overwrite=True)

    def best(self) -> Network:
        """Return the best network, refusing one of another architecture."""
        if not self.best_path.exists():
            raise InputError(f"{self.best_path} is missing; remove that folder to train it again")
        network, _ = network_files.load(self.best_path)
        if network.architecture != self.config().architecture:
            raise InputError(f"{self.best_path} is of another architecture than its run; remove that folder")
        return network

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; the lock of a killed process is released."""
        with exclusive_lock(
            self.folder / ".lock", f"another process is training in {self.folder}; wait for it"
        ):
            for left in self.folder.glob(".*.part"):  # of a process that was killed while it replaced a file
                left.unlink(missing_ok=True)
            yield


def _entry(line: bytes) -> Entry | None:
    """Return a line of a log, or None if it is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_complete = (
        isinstance(entry, dict)
        and type(entry.get("epoch")) is int
        and all(isinstance(entry.get(name), int | float) for name in LOGGED)
    )
    return entry if is_complete else None


def _has_epochs(entries: list[Entry], epochs: int) -> bool:
    return [entry["epoch"] for entry in entries] == list(range(1, epochs + 1))


def runs_in(folder: str | os.PathLike[str]) -> list[Run]:
    """Return the runs in a folder, sorted by folder name."""
    return [Run(path.parent) for path in sorted(Path(folder).glob("*/run.json"))]


def run_for(config: Config, corpus_sha256: str, out: str | os.PathLike[str]) -> Run:
    """Return the run of a configuration on a corpus, whether it has begun or not."""
    return Run(Path(out) / run_name(config, corpus_sha256))


def code_version() -> str:
    """Return the version of this package with a hash of its source."""
    root = Path(pdrn.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{version('pdrn')}+{digest.hexdigest()[:12]}"


# Files with checksums, for runs and measurements.

FACTS_KEY = "facts"


def save_json(path: Path, table: dict[str, Any]) -> None:
    """Write a table as JSON with its checksum, atomically."""
    table = json.loads(json.dumps(table))  # the checksum is that of the table as it is read
    with atomic_write(path, overwrite=True) as stream:
        stream.write(json.dumps(table | {"sha256": content_sha256(table)}, indent=1).encode())


def load_json(path: Path) -> dict[str, Any]:
    """Read a table, and verify its checksum."""
    table = json.loads(path.read_bytes())
    if not isinstance(table, dict):
        raise InputError("it is not a table")
    verify_checksum(table, always=True)
    del table["sha256"]
    return table


def save_tensors(path: Path, tensors: Tensors, facts: dict[str, Any]) -> None:
    """Write tensors with facts about them and a checksum of both, atomically."""
    facts = facts | {"sha256": content_sha256(facts, tensors)}
    with atomic_write(path, overwrite=True) as stream:
        stream.write(safetensors.numpy.save(tensors, {FACTS_KEY: json.dumps(facts)}))


def load_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read tensors and facts, and verify their checksum."""
    with open_tensors(path) as file:
        facts = json.loads((file.metadata() or {}).get(FACTS_KEY, "{}"))
        if {file.get_slice(name).get_dtype() for name in file.keys()} - {"F32"}:  # noqa: SIM118 (no mapping)
            raise InputError("its tensors are not float32")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        verify_checksum(facts, tensors, always=True)
    return tensors, facts


@contextmanager
def readable(path: Path, remedy: str) -> Iterator[None]:
    """Turn errors of reading a file into one that names the file and the remedy."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {system_reason(error)}; {remedy}") from error
    except (ValueError, TypeError, RecursionError) as error:  # of JSON too, with NumPy's for impossible types
        raise InputError(f"{path} is damaged ({printable(error)}); {remedy}") from error
