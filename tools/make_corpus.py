"""Make the corpus of the universal models: speech of many speakers, and phrases of an orchestra.

    python tools/make_corpus.py FOLDER --librispeech DIR --digits DIR --orchestra DIR

writes FOLDER/train, dev and test, the same files every time. LibriSpeech (16 kHz) and the spoken digits of
AudioMNIST (48 kHz) are linked as they are, split by speaker. The notes of the Versilian Studios Chamber
Orchestra (44.1 kHz) are played at random as phrases and chords; dev and test have instruments of their own.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

RATE = 44100
SECONDS = 6
PHRASES = {"train": 300, "dev": 5, "test": 30}

DEV_SPEAKERS = {"librispeech": 5, "digits": 0}
"""Few: development error is measured after every epoch, at every bit depth."""

UNHEARD = {"dev": ("Tuba", "Marimba", "NT"), "test": ("Oboe", "KSHarp", "Timpani", "ViolaEns", "Violas")}
"""Instruments, by the names of their files, that only one split has."""

SEMITONES = 5
"""Notes are transposed by up to this much, by resampling."""

Signal = NDArray[np.float64]


def link_speech(source: Path, target: Path, corpus: str) -> None:
    """Link the files of one corpus of speech into the splits, by speaker.

    Of ten speakers in order, the first is for test and the sixth for dev.
    """
    by_speaker: dict[str, list[Path]] = {}
    for file in sorted(source.rglob("*.flac")):
        speaker = file.stem if corpus == "digits" else file.stem.partition("-")[0]
        by_speaker.setdefault(speaker, []).append(file)
    dev_speakers = DEV_SPEAKERS[corpus]
    for index, files in enumerate(by_speaker.values()):
        split = {0: "test", 5: "dev"}.get(index % 10, "train")
        if split == "dev":
            dev_speakers -= 1
            if dev_speakers < 0:
                continue
        folder = target / split / corpus
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            (folder / file.name).symlink_to(file.resolve())


def instrument(file: Path) -> str:
    """Return the instrument in the name of a note such as 000-MOHorn-mute-A2-v1-1.flac."""
    return file.stem.split("-")[1].rstrip("0123456789")


def played(note: Signal, semitones: float) -> Signal:
    """Transpose a note."""
    return np.asarray(soxr.resample(note, 2 ** (semitones / 12), 1.0))


def phrase(instruments: list[list[Signal]], generator: np.random.Generator) -> Signal:
    """Let one to five voices play notes of one instrument each, apart or overlapping."""
    sound = np.zeros((SECONDS + 6) * RATE)
    for _ in range(generator.integers(1, 6)):
        notes = instruments[generator.integers(len(instruments))]
        pulse, level = generator.choice([0.15, 0.3, 0.6, 1.2, 2.4]), 10 ** generator.uniform(-1, 0)
        start = generator.uniform(0, 1)
        while start < SECONDS:
            note = played(
                notes[generator.integers(len(notes))], generator.integers(-SEMITONES, SEMITONES + 1)
            )
            loudness = level * generator.uniform(0.4, 1) / np.abs(note).max()
            first = int(start * RATE)
            part = note[: len(sound) - first] * loudness
            sound[first : first + len(part)] += part
            start += pulse * generator.choice([1, 1, 1, 2, 3])
    sound = sound[: SECONDS * RATE]
    return sound / np.abs(sound).max() * 0.99


def write_phrases(source: Path, target: Path) -> None:
    """Write the phrases of every split."""
    by_instrument: dict[str, list[Signal]] = {}
    for file in sorted(source.rglob("*.flac")):
        note = soundfile.read(file)[0]
        if np.abs(note).max() > 0:
            by_instrument.setdefault(instrument(file), []).append(note)
    unheard = {name for names in UNHEARD.values() for name in names}
    for number, (split, count) in enumerate(PHRASES.items()):
        allowed = UNHEARD.get(split, by_instrument.keys() - unheard)
        chosen = [notes for name, notes in by_instrument.items() if name in allowed]
        folder = target / split / "orchestra"
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(count):
            sound = phrase(chosen, np.random.default_rng([20261117, number, index]))
            soundfile.write(folder / f"phrase-{index:04}.flac", sound, RATE, subtype="PCM_16")


def main(arguments: list[str]) -> None:
    """Read the command line and write the folders."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name in ("librispeech", "digits", "orchestra"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    asked = parser.parse_args(arguments)
    if asked.folder.exists():
        parser.error(f"{asked.folder} exists; name a new folder")
    link_speech(asked.librispeech, asked.folder, "librispeech")
    link_speech(asked.digits, asked.folder, "digits")
    write_phrases(asked.orchestra, asked.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
