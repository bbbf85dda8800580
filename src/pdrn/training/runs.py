"""Run folders: what a training run is, where it stands, and what came of it.

    run.json            configuration, version of the code, corpus, seed, threads, processes, length
    log.jsonl           one line per epoch
    state.safetensors   everything that is needed to go on
    best.safetensors    the network with the smallest development error so far
    last.safetensors    the network at the end; a run that has it is done

Every file but the log is written whole or not at all. Of a run that is done, record and log alone can be
published.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

import pdrn
from pdrn.errors import InputError, printable
from pdrn.nets import Network
from pdrn.nets import files as network_files
from pdrn.nets.files import Provenance
from pdrn.storage import atomic_write, content_sha256, exclusive_lock, open_tensors, verify_checksum
from pdrn.training.config import Config, from_complete_table, run_name

Entry = dict[str, Any]
"""One line of a log."""

LOGGED = (
    "step",
    "train_mse",
    "dev_mse",
    "dev_snr",
    "dev_ratio",
    "best_epoch",
    "training_seconds",
    "floor_fraction",
)
"""What a line of a log cannot be without, besides its epoch."""


@dataclass(frozen=True)
class Log:
    """A log; its file need not exist yet."""

    path: Path

    @property
    def size_bytes(self) -> int:
        """How long it is; 0 where there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def entries(self) -> list[Entry]:
        """Return the epochs that it has; a line that was cut off or damaged ends it."""
        return [entry for entry in takewhile(bool, map(_entry, self._lines())) if entry]

    def append(self, entry: Entry) -> None:
        """Add an epoch."""
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def replace(self, entries: list[Entry]) -> None:
        """Have these epochs, and no others."""
        with atomic_write(self.path, overwrite=True) as stream:
            stream.write("".join(json.dumps(entry) + "\n" for entry in entries).encode())

    def sync(self) -> None:
        """Have the disk hold all of it."""
        with open(self.path, "ab") as stream:
            os.fsync(stream.fileno())

    def sha256(self, epochs: int) -> str:
        """Return a checksum of so many epochs."""
        return hashlib.sha256(b"".join(self._lines()[:epochs])).hexdigest()

    def _lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []


def has_all(entries: list[Entry], epochs: int) -> bool:
    """Tell whether entries are those of so many epochs, from the first to the last."""
    return [entry["epoch"] for entry in entries] == list(range(1, epochs + 1))


def _entry(line: bytes) -> Entry | None:
    """Return a line of a log, or None if it is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_whole = (
        isinstance(entry, dict)
        and type(entry.get("epoch")) is int
        and all(isinstance(entry.get(name), int | float) for name in LOGGED)
    )
    return entry if is_whole else None


Tensors = dict[str, np.ndarray[Any, Any]]
STATE_KEY = "pdrn training"

PUBLISHED = "published"
"""Where a record says that networks were left out, and how long the log is."""

NOTED = (
    "code",
    "corpus",
    "corpus_sha256",
    "files_too_short",
    "parameters",
    "sample_rate_hz",
    "steps_per_epoch",
    "threads",
    "total_steps",
)
"""What a record cannot be without."""


@dataclass(frozen=True)
class Run:
    """A run folder; it need not exist yet."""

    folder: Path

    @property
    def best_path(self) -> Path:
        """Where the best network is."""
        return self.folder / "best.safetensors"

    @property
    def name(self) -> str:
        """What the run was called when it began, wherever its folder went since."""
        return str((self.record() or {}).get("name", self.folder.name))

    @property
    def is_done(self) -> bool:
        """Whether training came to its end."""
        return (self.folder / "last.safetensors").is_file()

    @property
    def is_published(self) -> bool:
        """Whether this is what another folder published of a run: its figures, but no networks."""
        return PUBLISHED in (self.record() or {})

    @property
    def has_figures(self) -> bool:
        """Whether all that a table says of a run is here."""
        return self.is_done or self.is_published

    def record(self) -> dict[str, Any] | None:
        """Return what was noted when the run began, or None if it did not."""
        try:
            contents = (self.folder / "run.json").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            record = json.loads(contents)
            from_complete_table(record["config"])
            if missing := [name for name in NOTED if name not in record]:
                raise InputError(f"{missing[0]} is missing")
            if PUBLISHED in record:
                _published(record)
            verify_checksum(record)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{self.folder / 'run.json'} cannot be read ({printable(error)}); "
                "remove that folder to start again"
            ) from error
        return dict(record)

    def config(self) -> Config:
        """Return the configuration of a run that began."""
        return from_complete_table((self.record() or {})["config"])

    def begin(self, record: dict[str, Any], going_on_from: Run | None = None) -> None:
        """Note what the run is, after it took over where another stands, to go on from there.

        The record is written last: a process that is killed here begins again.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("log.jsonl", "best.safetensors", "state.safetensors"):
            (self.folder / name).unlink(missing_ok=True)
            if going_on_from and (going_on_from.folder / name).exists():
                shutil.copyfile(going_on_from.folder / name, self.folder / name)
        self.note(record)

    def note(self, record: dict[str, Any]) -> None:
        """Write what the run is."""
        record["sha256"] = content_sha256(record)
        with atomic_write(self.folder / "run.json", overwrite=True) as stream:
            stream.write(json.dumps(record, indent=1).encode())

    @property
    def _log(self) -> Log:
        return Log(self.folder / "log.jsonl")

    @property
    def log_bytes(self) -> int:
        """How long the log is; 0 where there is none."""
        return self._log.size_bytes

    def log(self) -> list[Entry]:
        """Return the epochs that the log has; a line that was cut off or damaged ends it."""
        return self._log.entries()

    def whole_log(self) -> list[Entry]:
        """Return the log of a run that is done or published, refusing one that lacks epochs."""
        entries = self.log()
        epochs, sha256 = self._end()
        if not has_all(entries, epochs):
            raise InputError(
                f"the log of {self.folder} has {len(entries)} of {epochs} epochs; "
                "remove that folder to train it again"
            )
        if sha256 not in ("", self._log.sha256(epochs)):
            raise InputError(
                f"some bits of the log of {self.folder} have changed; remove that folder to train it again"
            )
        return entries

    def _end(self) -> tuple[int, str]:
        """Return how many epochs there were in the end, and the checksum of their log if that was noted."""
        if self.is_published:
            return _published(self.record() or {})
        last = network_files.describe(self.folder / "last.safetensors")[1]
        state, facts = self.folder / "state.safetensors", {}
        if state.exists():
            with open_tensors(state) as file:
                facts = json.loads((file.metadata() or {}).get(STATE_KEY, "{}"))
        return last.training["epoch"], facts.get("log_sha256", "")

    def publish(self, folder: Path) -> None:
        """Write the figures of a run that is done to another folder, without its networks."""
        entries, copy = self.whole_log(), Run(folder)
        if copy.record() is not None and not copy.is_published:
            raise InputError(f"{folder} is a run of its own; choose another place to publish at")
        folder.mkdir(parents=True, exist_ok=True)
        copy._log.replace(entries)
        published = {"epochs": len(entries), "log_sha256": copy._log.sha256(len(entries))}
        copy.note((self.record() or {}) | {PUBLISHED: published})

    def forget_after(self, epoch: int) -> None:
        """Cut the log off after an epoch, refusing one that does not have all epochs until then."""
        kept = [entry for entry in self.log() if entry["epoch"] <= epoch]
        if not has_all(kept, epoch):
            raise InputError(
                f"{self.folder} has a state after epoch {epoch}, but a log of {len(kept)} epochs; "
                "remove state.safetensors there to start this run again"
            )
        self._log.replace(kept)

    def append(self, entry: Entry) -> None:
        """Add an epoch to the log."""
        self._log.append(entry)

    def save_state(self, tensors: Tensors, facts: dict[str, Any]) -> None:
        """Write where training stands; what stood there before is replaced at once."""
        self._log.sync()  # it is never behind the state
        facts = {"run": self.name, "log_sha256": self._log.sha256(facts["epoch"])} | facts
        facts["sha256"] = content_sha256(facts, tensors)
        contents = safetensors.numpy.save(tensors, {STATE_KEY: json.dumps(facts)})
        with atomic_write(self.folder / "state.safetensors", overwrite=True) as stream:
            stream.write(contents)

    def load_state(self, wanted: dict[str, tuple[int, ...]]) -> tuple[Tensors, dict[str, Any]] | None:
        """Return where training stands, or None if nothing is there; refuse what is of another run."""
        path = self.folder / "state.safetensors"
        if not path.exists():
            return None
        try:
            with open_tensors(path) as file:
                facts = json.loads((file.metadata() or {})[STATE_KEY])
                parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
                if {part.get_dtype() for part in parts.values()} - {"F32"}:
                    raise InputError("its numbers are of another type")
                tensors = {name: file.get_tensor(name) for name in parts}
                if missing := [name for name in ("step", "epoch", "seconds", "best") if name not in facts]:
                    raise InputError(f"{missing[0]} is missing")
                verify_checksum(facts, tensors)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{path} is no training state ({printable(error)}); remove it to start this run again"
            ) from error
        if {name: part.shape for name, part in tensors.items()} != wanted:
            raise InputError(f"{path} is of another network; remove it to start this run again")
        begun_as = ((self.record() or {}).get("goes_on_from") or {}).get("run")
        # States from before they were named have no name; after a shorter run they may still have its name.
        if (name := facts.get("run")) not in (None, self.name, begun_as):
            raise InputError(f"{path} is of the run {name}; remove it to start this run again")
        log_sha256 = self._log.sha256(facts["epoch"])
        if len(self.log()) >= facts["epoch"] and facts.get("log_sha256", log_sha256) != log_sha256:
            raise InputError(
                f"some bits of the log of {self.folder} have changed; "
                "remove state.safetensors there to start this run again"
            )
        return tensors, facts

    def save_network(self, name: str, network: Network, provenance: Provenance) -> None:
        """Write the ``best`` or the ``last`` network."""
        network_files.save(self.folder / f"{name}.safetensors", network, provenance, overwrite=True)

    def best(self) -> Network:
        """Return the best network, refusing a file of another architecture."""
        if not self.best_path.exists():
            raise InputError(f"{self.best_path} is not there; remove that folder to train it again")
        network, _ = network_files.load(self.best_path)
        if network.architecture != self.config().architecture:
            raise InputError(f"{self.best_path} is of another architecture than its run; remove that folder")
        return network

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; a killed process lets go by itself."""
        with exclusive_lock(
            self.folder / ".lock", f"another process is training in {self.folder}; wait for it"
        ):
            for left in self.folder.glob(".*.part"):  # by a process that was killed while it replaced a file
                left.unlink(missing_ok=True)
            yield


def _published(record: dict[str, Any]) -> tuple[int, str]:
    """Return how many epochs the log of a published run has, and its checksum."""
    return int(record[PUBLISHED]["epochs"]), str(record[PUBLISHED]["log_sha256"])


def runs_in(folder: str | os.PathLike[str]) -> list[Run]:
    """Return the runs that began in a folder, in the order of their names."""
    return [Run(path.parent) for path in sorted(Path(folder).glob("*/run.json"))]


def run_for(config: Config, corpus_sha256: str, out: str | os.PathLike[str]) -> Run:
    """Return the run of a configuration on a corpus, whether it began or not.

    One that began before a field was added, and so has another name, is found by what it records.
    """
    named = Run(Path(out) / run_name(config, corpus_sha256))
    if (named.folder / "run.json").exists():
        return named
    alike = (run for run in runs_on(corpus_sha256, out) if run.config() == config)
    return next(alike, named)


def runs_on(corpus_sha256: str, out: str | os.PathLike[str]) -> Iterator[Run]:
    """Yield the runs that began in a folder with a corpus."""
    return (run for run in runs_in(out) if (run.record() or {})["corpus_sha256"] == corpus_sha256)


def processes_of(record: dict[str, Any]) -> int:
    """Return how many processes train a run; records from before there could be several do not say."""
    return int(record.get("processes", 1))


def code_version() -> str:
    """Return the version of this package with a hash of its source."""
    root = Path(pdrn.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{version('pdrn')}+{digest.hexdigest()[:12]}"
