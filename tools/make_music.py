"""Make music that nobody owns: notes, chords and beats drawn at random, to train networks beside speech.

    python tools/make_music.py FOLDER [COUNT]

writes COUNT (100) files of eight seconds, 16 kHz, 16 bit, the same ones every time.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy.signal import butter, fftconvolve, sosfilt

RATE = 16000
SECONDS = 8
SCALES = ((0, 2, 4, 5, 7, 9, 11), (0, 2, 3, 5, 7, 8, 10), (0, 2, 4, 7, 9))

Signal = NDArray[np.float64]


def envelope(t: Signal, length: float, generator: np.random.Generator) -> Signal:
    """Rise, then decay like a string or hold like a wind, and stop."""
    attack, decay = generator.choice([0.003, 0.02, 0.08]), generator.choice([0.2, 0.6, 3.0])
    return np.minimum(t / attack, 1) * np.exp(-t / decay) * np.clip((length - t) / 0.05, 0, 1)


def note(frequency: float, length: float, slope: float, generator: np.random.Generator) -> Signal:
    """Add up partials, a little out of tune, with vibrato."""
    t = np.arange(int(length * RATE)) / RATE
    phase = frequency * t + generator.uniform(0, 0.004) * frequency / 5 * np.sin(2 * np.pi * 5 * t)
    stiffness = generator.choice([0.0, 1e-4, 4e-4])
    sound = np.zeros(len(t))
    for partial in range(1, int(7600 / frequency) + 1):
        stretched = partial * np.sqrt(1 + stiffness * partial**2)
        if stretched * frequency > 0.48 * RATE:
            break
        level = partial**-slope * generator.uniform(0.2, 1)
        fading = np.exp(-t * partial * generator.uniform(0, 0.6))
        sound += level * fading * np.sin(2 * np.pi * (stretched * phase + generator.uniform()))
    return sound * envelope(t, length, generator)


def beat(generator: np.random.Generator) -> Signal:
    """Noise in a band, dying away."""
    t = np.arange(int(0.25 * RATE)) / RATE
    low = generator.uniform(50, 4000)
    band = butter(2, [low, min(low * generator.uniform(1.5, 6), 7900)], "bandpass", fs=RATE, output="sos")
    return sosfilt(band, generator.standard_normal(len(t))) * np.exp(-t / generator.uniform(0.01, 0.1))


def piece(generator: np.random.Generator) -> Signal:
    """Play voices in one scale over a beat, in a room."""
    sound = np.zeros((SECONDS + 2) * RATE)

    def place(what: Signal, start: float, level: float) -> None:
        first = int(start * RATE)
        part = what[: max(len(sound) - first, 0)]
        sound[first : first + len(part)] += level * part

    pulse = generator.uniform(0.12, 0.5)
    scale, root = np.array(generator.choice(np.array(SCALES, object))), generator.uniform(40, 110)
    for _ in range(generator.integers(1, 5)):
        octave, slope = generator.integers(0, 4), generator.uniform(0.7, 2.2)
        level = generator.uniform(0.2, 1)
        start = 0.0
        while start < SECONDS:
            length = pulse * generator.choice([1, 1, 2, 4])
            if generator.random() < 0.8:
                pitch = root * 2 ** (octave + generator.choice(scale) / 12)
                place(note(pitch, length * generator.uniform(0.7, 1.5), slope, generator), start, level)
            start += length
    if generator.random() < 0.6:
        strokes, level = [beat(generator) for _ in range(3)], generator.uniform(0.1, 1)
        for step in range(int(SECONDS / pulse)):
            if generator.random() < 0.7:
                place(strokes[generator.integers(3)], step * pulse, level)
    if generator.random() < 0.7:
        tail = generator.standard_normal(RATE // 2) * np.exp(-np.arange(RATE // 2) / RATE * 12)
        sound = sound + generator.uniform(0.01, 0.06) * fftconvolve(sound, tail)[: len(sound)]
    sound = sound[: SECONDS * RATE]
    return sound / np.abs(sound).max() * generator.uniform(0.3, 0.99)


def main(arguments: list[str]) -> None:
    """Read the command line and write the files."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int, nargs="?", default=100)
    asked = parser.parse_args(arguments)
    folder, count = asked.folder, asked.count
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        samples: Any = piece(np.random.default_rng([20261116, index]))
        soundfile.write(folder / f"music-{index:04}.wav", samples, RATE, subtype="PCM_16")


if __name__ == "__main__":
    main(sys.argv[1:])
