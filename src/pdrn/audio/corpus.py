"""Corpora: folders of sound files, indexed with checksums and split into train, dev and test."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pdrn.audio.cells import FloatArray
from pdrn.audio.files import SUFFIXES, info, read, resample
from pdrn.errors import AudioError, InputError
from pdrn.storage import file_sha256

SPLITS = ("train", "dev", "test")
_SPLIT_OF_FOLDER = {name: name for name in SPLITS} | dict.fromkeys(("val", "valid", "validation"), "dev")

Progress = Callable[[int, int], None]

# File names with the speaker: LibriSpeech's 103-1240-0000 and VCTK's p225_001.
_SPEAKER_NAMES = re.compile(r"(\d+)-\d+-\d+|([ps]\d+)_\d+(?:_mic\d)?")


@dataclass(frozen=True)
class Entry:
    """One file of a corpus: its path within the folder, checksum, length, rate and split."""

    path: str
    sha256: str
    frames: int
    sample_rate_hz: int
    split: str


@dataclass(frozen=True)
class Corpus:
    """An indexed folder of sound files.

    Make one with `Corpus.scan`. Signals are mono (channels are averaged), resampled to `sample_rate_hz` if
    given, and divided by their peak, as in the paper.
    """

    folder: Path
    entries: tuple[Entry, ...]
    sample_rate_hz: int | None = None

    @staticmethod
    def scan(
        folder: str | Path, sample_rate_hz: int | None = None, seed: int = 0, progress: Progress | None = None
    ) -> Corpus:
        """Index the sound files of a folder and of all folders in it.

        Parameters
        ----------
        folder : path
            Subfolders train, dev (or val, valid, validation) and test are the split. Without them, files are
            split 70/15/15 at random. Files of one speaker stay together (by the file names of LibriSpeech and
            VCTK), and so do other files of one subfolder.
        sample_rate_hz : int, optional
            Resample all signals to this rate in Hz; required if the files differ.
        seed : int
            Seed of the random split.
        progress : callable, optional
            Called after each file with the files done and the files in all.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise AudioError(f"{folder} is no folder; name one that holds sound files")
        own = {name: split for name, split in _SPLIT_OF_FOLDER.items() if (folder / name).is_dir()}
        if own and set(own.values()) != set(SPLITS):
            raise AudioError(
                f"{folder} has {', '.join(own)} but not all of {', '.join(SPLITS)}; add the missing ones, or "
                "rename folders that are no split"
            )
        roots = [folder / name for name in own] if own else [folder]
        files = sorted(file for root in roots for file in root.rglob("*") if _is_sound(file, folder))
        if not files:
            raise AudioError(f"{folder} holds no sound files ({', '.join(SUFFIXES)}); name another folder")
        paths = [file.relative_to(folder).as_posix() for file in files]
        split_of = {p: own[p.split("/")[0]] for p in paths} if own else _random_split(paths, seed)
        entries = []
        for path, file in zip(paths, files, strict=True):
            header = info(file)
            frames = header.frames or read(file).samples.shape[-1]
            entries.append(Entry(path, file_sha256(file), frames, header.sample_rate_hz, split_of[path]))
            if progress:
                progress(len(entries), len(files))
        return Corpus(folder, tuple(entries), sample_rate_hz)

    @staticmethod
    def joined(corpora: Sequence[Corpus]) -> Corpus:
        """Join corpora into one that does not depend on their order; each keeps its split.

        They have one `sample_rate_hz`. The folder is the closest one that holds all of theirs.
        """
        first, *others = corpora
        if not others:
            return first
        folders = [corpus.folder.resolve() for corpus in corpora]
        common = Path(os.path.commonpath(folders))
        entries = [
            replace(entry, path=(folder / entry.path).relative_to(common).as_posix())
            for folder, corpus in zip(folders, corpora, strict=True)
            for entry in corpus.entries
        ]
        entries.sort(key=lambda entry: entry.path)
        for entry, following in pairwise(entries):
            if entry.path == following.path:
                raise AudioError(f"{common / entry.path} is in two of the folders; name each sound once")
        return Corpus(common, tuple(entries), first.sample_rate_hz)

    def __post_init__(self) -> None:
        rates = sorted({entry.sample_rate_hz for entry in self.entries})
        if len(rates) > 1 and self.sample_rate_hz is None:
            raise AudioError(f"{self.folder} holds sound at {rates} Hz; pass a sample rate to resample to")

    def resampled(self, sample_rate_hz: int) -> Corpus:
        """Return the corpus at another sample rate, without the files whose own rate is lower."""
        entries = tuple(entry for entry in self.entries if entry.sample_rate_hz >= sample_rate_hz)
        if not entries:
            raise AudioError(f"{self.folder} has no file of {sample_rate_hz} Hz or more; choose a lower rate")
        return replace(self, entries=entries, sample_rate_hz=sample_rate_hz)

    @property
    def checksum(self) -> str:
        """A checksum of the names, contents and splits of all files."""
        lines = [f"{entry.split} {entry.path} {entry.sha256}\n" for entry in self.entries]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def split(self, name: str) -> tuple[Entry, ...]:
        """Return the files of "train", "dev" or "test"."""
        if name not in SPLITS:
            raise InputError(f"the splits are {', '.join(SPLITS)}; there is no {name!r}")
        return tuple(entry for entry in self.entries if entry.split == name)

    @property
    def signal_rate_hz(self) -> int:
        """The sample rate of all signals in Hz."""
        return self.sample_rate_hz or self.entries[0].sample_rate_hz

    def length(self, entry: Entry) -> int:
        """Return the number of samples of a file's signal; of a resampled one, up to 1 off."""
        return round(entry.frames * self.signal_rate_hz / entry.sample_rate_hz)

    def signal(self, entry: Entry, dtype: DTypeLike = np.float64) -> FloatArray:
        """Read one file as a mono signal with a peak of 1; refuse a file that has changed."""
        file = self.folder / entry.path
        sound = read(file)
        if file_sha256(file) != entry.sha256:
            raise AudioError(f"{file} has changed since it was indexed; scan the folder again")
        if self.sample_rate_hz:
            sound = resample(sound, self.sample_rate_hz)
        samples = np.atleast_2d(sound.samples).mean(axis=0)
        peak = np.abs(samples).max()
        if peak == 0:
            raise AudioError(f"{file} is silent and cannot be normalised; leave it out")
        return np.asarray(samples / peak, dtype)

    def signals(self, split: str, dtype: DTypeLike = np.float64) -> list[FloatArray]:
        """Read all files of a split, in the order of `split(name)`."""
        return [self.signal(entry, dtype) for entry in self.split(split)]


def segments(
    signals: Sequence[FloatArray], segment_length: int, count: int, generator: np.random.Generator
) -> FloatArray:
    """Draw segments at random; every start in every signal is equally likely.

    Returns
    -------
    array, shape (count, segment_length)

    Examples
    --------
    >>> segments([np.arange(3.0), np.arange(8.0, 10.0)], 2, 4, np.random.default_rng(0))
    array([[8., 9.],
           [1., 2.],
           [1., 2.],
           [0., 1.]])
    """
    counts = np.array([max(len(signal) - segment_length + 1, 0) for signal in signals], dtype=np.int64)
    if segment_length < 1 or counts.sum() == 0:
        raise InputError(f"no signal has {segment_length} samples; shorten the segments")
    ends = counts.cumsum()
    drawn = generator.integers(ends[-1], size=count)
    which = np.searchsorted(ends, drawn, side="right")
    starts = drawn - (ends - counts)[which]
    return np.stack(
        [signals[index][start:][:segment_length] for index, start in zip(which, starts, strict=True)]
    )


def _is_sound(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and file.suffix.lower() in SUFFIXES and file.is_file()


def _random_split(paths: list[str], seed: int) -> dict[str, str]:
    """Return a split for each path: 70/15/15 of the files, with speakers and subfolders together."""
    in_one_folder = len({Path(path).parent for path in paths}) == 1
    by_group: dict[object, list[str]] = {}
    for path in paths:
        match, parent = _SPEAKER_NAMES.fullmatch(Path(path).stem), Path(path).parent
        alone = path if in_one_folder or parent == Path() else parent
        by_group.setdefault(match.group(match.lastindex or 0) if match else alone, []).append(path)
    groups = list(by_group.values())
    if len(groups) < len(SPLITS):
        raise AudioError(
            f"{len(groups)} speakers, subfolders or files cannot be split into {', '.join(SPLITS)}; "
            "add some, or make these folders"
        )
    order = np.random.default_rng(seed).permutation(len(groups))
    names, done = [], 0
    for index in order:
        share = (done + len(groups[index]) / 2) / len(paths)
        names.append(SPLITS[int(np.searchsorted([0.7, 0.85], share))])
        done += len(groups[index])
    if "train" not in names:
        names[0] = "train"
    if "test" not in names:
        names[-1] = "test"
    if "dev" not in names:
        first_test = names.index("test")
        names[first_test if first_test == 1 else first_test - 1] = "dev"
    return {path: name for index, name in zip(order, names, strict=True) for path in groups[index]}


def speech() -> tuple[NDArray[np.float64], int]:
    """Return 32 s of synthetic speech as samples in [-1, 1] and their rate, 16000 Hz.

    `data/README.md` beside the recording says how it was made; it is free for any use.

    Examples
    --------
    >>> samples, sample_rate_hz = speech()
    >>> samples.ndim, sample_rate_hz
    (1, 16000)
    """
    with as_file(files("pdrn.audio") / "data" / "speech.flac") as path:
        sound = read(path)
    return sound.samples, sound.sample_rate_hz
