"""The data of a training: batches of signals and their cells, the development error, and augmentation.

The batches of an epoch depend on the seed and the number of the epoch only, so training resumes exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import Corpus, segments
from pdrn.audio.frames import cut
from pdrn.audio.quantizers import ALaw, Clipping, MidTread, MuLaw
from pdrn.errors import InputError
from pdrn.training.config import Config, Data

Array = NDArray[np.float32]

Restore = Callable[[Array, Array], Array]
"""A method, ``(lo, hi) -> signal``, for signals in rows."""

FRAMES_AT_ONCE = 512
"""Frames that are restored in one call while the development error is measured."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Signals and their cells in rows, in the unit of the network."""

    signal: Array
    lo: Array
    hi: Array
    scale: NDArray[np.float64]
    """One unit of each row, in full scale."""
    sample_rate_hz: int | None = None
    """Rate that a spectral network takes the signals for; None: its architecture's."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The training part of a corpus."""

    config: Config
    signals: dict[int | None, list[Array]]
    """The files that have at least one frame, at every speed, by sample rate; None: that of the corpus."""
    frames: Array
    """All whole frames of the signals; empty if segments are drawn at random."""
    left_out: int
    """Number of files shorter than a frame."""

    @staticmethod
    def read(corpus: Corpus, config: Config) -> TrainingData:
        """Read the training split; raise InputError if it has no frame."""
        length, speeds = config.data.length, config.data.speeds
        signals: dict[int | None, list[Array]] = {}
        left_out = 0
        for rate in dict.fromkeys(config.data.training_rates_hz) or (None,):
            at_rate = corpus if rate is None else corpus.resampled(rate)
            long_enough, short = _long_enough(at_rate, "train", math.ceil(length * max(speeds)))
            signals[rate] = [change_speed(signal, speed) for speed in speeds for signal in long_enough]
            left_out = max(left_out, short)
        everything = [signal for part in signals.values() for signal in part]
        frames = [cut(signal, length) for signal in everything if config.data.placing == "cut"]
        frames.append(np.empty((0, length), np.float32))
        return TrainingData(config, signals, np.concatenate(frames), left_out)

    @property
    def steps_per_epoch(self) -> int:
        """Batches per epoch."""
        data = self.config.data
        samples = sum(len(signal) for part in self.signals.values() for signal in part)
        count = len(self.frames) or samples // data.length
        return data.batches or -(-count // self.config.optimiser.batch_size)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, counted from 0."""
        data, size = self.config.data, self.config.optimiser.batch_size
        seeds = np.random.SeedSequence(self.config.seed, spawn_key=(epoch,))
        generator = np.random.default_rng(seeds)
        order = generator.permutation(len(self.frames))
        for step in range(self.steps_per_epoch):
            rate = int(generator.choice(data.training_rates_hz)) if data.training_rates_hz else None
            if data.placing == "cut":
                batch = self.frames[order[step * size : (step + 1) * size]]
            else:
                batch = segments(self.signals[rate], data.length, size, generator)
            if rate is not None and data.rate_jitter:
                rate = round(rate * generator.uniform(1 - data.rate_jitter, 1 + data.rate_jitter))
            yield replace(quantized(batch, data, generator), sample_rate_hz=rate)


def quantized(signals: Array, data: Data, generator: np.random.Generator) -> Batch:
    """Augment signals in rows and quantize them, with bit depths and quantizers drawn per row."""
    rows = (len(signals), 1)
    if data.rumble:
        signals = add_rumble(signals, data.rumble, generator)
    if data.attenuation_db:
        signals = signals * (10 ** (-generator.uniform(0, data.attenuation_db, rows) / 20)).astype(np.float32)
    if data.flips:
        signals = signals * generator.choice(np.array([-1, 1], np.float32), rows)
    bits = generator.uniform(data.bits[0], data.bits[-1], rows) if len(data.bits) > 1 else data.bits[0]
    edges = {"mid-rise": [0.0], "mid-tread": [-0.5], "both": [0.0, -0.5]}[data.quantizer]
    edge = generator.choice(np.array(edges, np.float32), rows) if len(edges) > 1 else np.float32(edges[0])
    batch = _cells(signals, np.broadcast_to(bits, rows), edge, data)
    if data.companded or data.clipped:
        for row, drawn in enumerate(generator.random(len(signals))):
            if drawn < data.companded:
                law = MuLaw() if generator.random() < 0.5 else ALaw()
                cells = law.cells(law.encode(signals[row]))
            elif drawn < data.companded + data.clipped:
                cells = clipped_cells(signals[row], generator.uniform(*CLIPPED_SNR_DB))
            else:
                continue
            batch.lo[row], batch.hi[row] = cells.lo, cells.hi
    return batch


CLIPPED_SNR_DB = (3.0, 20.0)
"""Range of the signal-to-noise ratios of clipped segments."""

_STORED_BITS = 16


def clipped_cells(signal: Array, snr_db: float) -> Cells:
    """Clip a signal at the level that leaves this signal-to-noise ratio, and store it in 16 bits."""
    magnitudes = np.sort(np.abs(signal).astype(np.float64))[::-1]
    # The k loudest samples exceed a level c by (|s| - c)^2: sums over them are cumulative.
    counts = np.arange(1, len(magnitudes) + 1)
    errors = np.cumsum(magnitudes**2) - 2 * magnitudes * np.cumsum(magnitudes) + counts * magnitudes**2
    wanted = (magnitudes**2).sum() * 10 ** (-snr_db / 10)
    stored = MidTread(_STORED_BITS)
    level = float(magnitudes[min(int(np.searchsorted(errors, wanted)), len(magnitudes) - 1)])
    clipping = Clipping(max(level, 2 * stored.step), stored)
    return clipping.observe(stored.quantize(clipping.clip(signal)))


def _cells(signals: Array, bits: NDArray[np.float64], edge: Any, data: Data) -> Batch:
    """Quantize signals; in units of the step, cells begin at whole numbers plus ``edge``."""
    step = (2.0 / 2.0**bits).astype(np.float32)
    in_steps = signals / step
    lo = np.floor(in_steps - edge)
    # Where an edge is at 0, a sample at full scale belongs to the highest cell, which ends there.
    np.minimum(lo, np.where(edge == 0, np.ceil(1 / step) - 1, np.float32(np.inf)), out=lo)
    lo += edge
    hi = lo + np.float32(1)
    if data.unit == "cell":
        return Batch(in_steps, lo, hi, step[:, 0].astype(np.float64))
    lo *= step
    hi *= step
    return Batch(signals, lo, hi, np.ones(len(step)))


@dataclass(frozen=True, eq=False)
class Measured:
    """The development error at one bit depth."""

    bits: float
    mse: float
    """Mean squared error over all samples, in full scale."""
    snr: float
    """Signal-to-noise ratio in dB, the mean over the files."""
    ratio: float
    """Mean squared error relative to that of the quantized signal."""


@dataclass(frozen=True, eq=False)
class DevelopmentData:
    """The development part of a corpus, in groups of rows of one length."""

    data: Data
    groups: list[Array]
    files: list[NDArray[np.int64]]
    """For each group, the index of the file of each row."""

    @staticmethod
    def read(corpus: Corpus, data: Data) -> DevelopmentData:
        """Read the development split; raise InputError if it has no frame, or only silent ones."""
        on_frames = data.measured_on == "frames"
        signals, _ = _long_enough(corpus, "dev", data.length if on_frames else 1)
        if not on_frames:
            return DevelopmentData(
                data, [signal[None] for signal in signals], [np.array([i]) for i in range(len(signals))]
            )
        by_file = [cut(signal, data.length) for signal in signals]
        frames = np.concatenate(by_file)
        if not frames.any():
            raise InputError(
                f"all frames of the dev split of {corpus.folder} are silent, so no error can be measured; "
                "add other files"
            )
        files = np.repeat(np.arange(len(by_file)), [len(rows) for rows in by_file])
        starts = range(0, len(frames), FRAMES_AT_ONCE)
        return DevelopmentData(
            data,
            [frames[start : start + FRAMES_AT_ONCE] for start in starts],
            [files[start : start + FRAMES_AT_ONCE] for start in starts],
        )

    def measured(self, restore: Restore) -> list[Measured]:
        """Measure a method at every bit depth of the data."""
        return [self._at(bits, restore) for bits in self.data.depths_measured]

    def quantized(self, rows: Array, bits: float) -> Batch:
        """Quantize rows at a bit depth."""
        edge = np.float32(-0.5 if self.data.quantizer == "mid-tread" else 0.0)
        return _cells(rows, np.full((len(rows), 1), bits), edge, self.data)

    def _at(self, bits: float, restore: Restore) -> Measured:
        count = int(self.files[-1][-1]) + 1
        energy, noise, error = np.zeros((3, count))
        for rows, files in zip(self.groups, self.files, strict=True):
            batch = self.quantized(rows, bits)
            centre = (batch.lo + batch.hi) / 2
            restored = np.asarray(restore(batch.lo, batch.hi))
            for total, part in ((energy, 0), (noise, centre), (error, restored)):
                squares = np.square(batch.signal - part, dtype=np.float64).sum(-1) * batch.scale**2
                np.add.at(total, files, squares)
        samples = sum(rows.size for rows in self.groups)
        heard = energy > 0
        with np.errstate(divide="ignore"):
            snr = 10 * np.log10(energy[heard] / error[heard])
        return Measured(
            bits, float(error.sum() / samples), float(snr.mean()), float(error.sum() / noise.sum())
        )


def _long_enough(corpus: Corpus, split: str, length: int) -> tuple[list[Array], int]:
    """Return the signals of a split with at least this many samples, and the number of the others."""
    everything: Sequence[Any] = corpus.signals(split, np.float32)
    signals = [signal for signal in everything if len(signal) >= length]
    if not signals:
        raise without_a_frame(corpus, split, length)
    return signals, len(everything) - len(signals)


def without_a_frame(corpus: Corpus, split: str, length: int) -> InputError:
    """Return the error for a split that is empty, or whose files are all too short."""
    if not corpus.split(split):
        return InputError(f"the {split} split of {corpus.folder} is empty; add sound files")
    return InputError(
        f"the {split} split of {corpus.folder} has no file of {length} samples or more; add longer ones"
    )


OFFSETS = (1e-3, 1e-1)
WAVES = (1e-3, 5e-2)
"""Smallest and largest offset and slow wave, in full scale."""

WAVE_CYCLES = (2.5e-4, 7.5e-3)
"""Frequencies of slow waves in cycles per sample: 4 to 120 Hz at 16 kHz."""


def change_speed(signal: Array, speed: float) -> Array:
    """Play a signal faster by a factor, attenuated if its peak would exceed 1.

    >>> len(change_speed(np.zeros(1100, np.float32), 1.1))
    1000
    """
    if speed == 1:
        return signal
    played: Array = soxr.resample(signal, speed, 1.0, quality="VHQ")
    played /= np.maximum(np.abs(played).max(initial=0), np.float32(1))
    return played


def add_rumble(signals: Array, share: float, generator: np.random.Generator) -> Array:
    """Add an offset and a slow wave to a share of the rows, and attenuate rows whose peak exceeds 1."""
    rows = (len(signals), 1)
    time = np.arange(signals.shape[-1])
    offset = _log_uniform(OFFSETS, rows, generator) * generator.choice([-1, 1], rows)
    turns = _log_uniform(WAVE_CYCLES, rows, generator) * time + generator.random(rows)
    wave = _log_uniform(WAVES, rows, generator) * np.sin(2 * np.pi * turns)
    rumble = np.where(generator.random(rows) < share, offset + wave, 0)
    louder = signals + rumble.astype(np.float32)
    peaks = np.abs(louder).max(-1, keepdims=True)
    limited: Array = louder / np.maximum(peaks, np.float32(1))
    return limited


def _log_uniform(
    ends: tuple[float, float], shape: tuple[int, int], generator: np.random.Generator
) -> NDArray[np.float64]:
    least, most = (math.log(end) for end in ends)
    return np.exp(generator.uniform(least, most, shape))
