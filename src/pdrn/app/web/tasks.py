"""What the processes of the workshop do. What is large is left in the request's folder, as files."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdrn.app.measuring import is_finite, or_none
from pdrn.app.web.limits import Limits, Refusal
from pdrn.app.web.methods import Choice
from pdrn.app.web.wishes import Stretch, Wishes
from pdrn.audio import metrics
from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.detection import Undetected
from pdrn.audio.files import opened
from pdrn.audio.system import AudioError
from pdrn.audio.writing import write
from pdrn.restoring.averaged import Averaged
from pdrn.restoring.description import Description
from pdrn.restoring.learned import LearnedMethod
from pdrn.restoring.levels import Levels, cells_of, step_of
from pdrn.restoring.method import in_words
from pdrn.restoring.overlapped import ITERATIONS
from pdrn.restoring.restorer import Restorer

Report = Callable[[float], None]
"""Told which share of the work is done; may raise to end it."""

Facts = dict[str, Any]
UPLOAD = "upload"
SUBTYPES = {"float": "FLOAT", "pcm24": "PCM_24"}

HEARD_SECONDS = 20
"""Measures of hearing are slow: they take so much of the beginning."""

MOST_ESTIMATES = 24


@dataclass(frozen=True, eq=False)
class _Restored:
    original: FloatArray | None
    """What was quantized; None where the sound is taken as it is. All signals are (channels, frames)."""
    quantized: FloatArray
    cells: Cells
    restored: FloatArray
    levels: str
    step: float | None
    model: str | None
    """The network that took part, if one did."""
    restored_by: str
    sample_rate_hz: int
    seconds: float


@dataclass(frozen=True)
class SoundTask:
    """A sound in a folder of its own, and what is to be done with it."""

    folder: Path
    wishes: Wishes
    choice: Choice
    limits: Limits

    def restored(self, report: Report) -> _Restored:
        """Read, coarsen and restore the sound."""
        samples, rate, subtype = self._read()
        quantizer = self.wishes.quantizer()
        if quantizer is not None:
            peak = float(np.abs(samples).max())
            if peak > 1:
                raise Refusal(422, f"The sound goes up to {peak:.3g}, and full scale is 1; turn it down.")
            quantized, subtype = np.asarray(quantizer.quantize(samples), np.float64), ""
        else:
            quantized = samples
        levels = _levels(self.wishes.description(), quantized, subtype)
        cells, step = cells_of(quantized, levels), step_of(levels)
        restorer = self.wishes.restorer(self.choice)
        method = restorer.method_for(rate, step)  # refuses what it is not for, before any answer
        report(0.0)
        began = time.perf_counter()
        restored = restorer.restore_cells(
            cells, rate, step, lambda done, _: report(0.9 * done / quantized.shape[-1])
        )
        seconds = time.perf_counter() - began
        original = None if quantizer is None else samples
        return _Restored(
            original,
            quantized,
            cells,
            restored,
            str(levels),
            step,
            method.model,
            in_words(method.name, method.model),
            rate,
            seconds,
        )

    def _read(self) -> tuple[NDArray[np.float64], int, str]:
        path = self.folder / UPLOAD
        try:
            with opened(path) as (header, sounds):
                blocks, frames = [], header.frames or 0
                self._refuse_long(frames, header.sample_rate_hz, header.channels)
                for sound in sounds:
                    blocks.append(np.atleast_2d(sound.samples))
                    if header.frames is None:
                        frames += blocks[-1].shape[-1]
                        self._refuse_long(frames, header.sample_rate_hz, header.channels)
        except AudioError as error:
            raise Refusal(422, f"{str(error).replace(str(path), 'This file')}.") from error
        return np.concatenate(blocks, axis=-1), header.sample_rate_hz, header.subtype

    def _refuse_long(self, frames: int, sample_rate_hz: int, channels: int) -> None:
        limits = self.limits
        if frames > limits.sound_seconds * sample_rate_hz:
            raise Refusal(413, f"The sound is longer than {limits.sound_seconds:g} s; send a stretch of it.")
        if frames * channels > limits.samples:
            seconds = limits.samples / channels / sample_rate_hz
            raise Refusal(413, f"Of sound like this {seconds:.0f} s are taken at most; send a stretch of it.")


@dataclass(frozen=True)
class Restoring(SoundTask):
    """Restore a sound into a file."""

    subtype: str

    def run(self, report: Report) -> Facts:
        """Do it, and say what the file is called."""
        done = self.restored(report)
        name = "restored.wav"
        write(self.folder / name, done.restored, done.sample_rate_hz, done.cells, subtype=self.subtype)
        return {"file": name, "levels": done.levels}


@dataclass(frozen=True)
class Exploring(SoundTask):
    """Restore a sound, measure it, and lay out all signals."""

    def run(self, report: Report) -> Facts:
        """Do it; the facts name the parts, of which each is a file."""
        done = self.restored(report)
        signals = {
            "original": done.original,
            "quantized": done.quantized,
            "lower": done.cells.lo,
            "upper": done.cells.hi,
            "restored": done.restored,
        }
        parts = [
            _laid_out(self.folder, name, signal) for name, signal in signals.items() if signal is not None
        ]
        for name, subtype in SUBTYPES.items():
            target = self.folder / f"{name}.wav"
            try:
                write(target, done.restored, done.sample_rate_hz, done.cells, subtype=subtype)
            except AudioError:  # cells too narrow for it
                continue
            parts.append({"name": target.name, "bytes": target.stat().st_size})
        report(0.95)
        channels, frames = done.quantized.shape
        return {
            "sample_rate_hz": done.sample_rate_hz,
            "channels": channels,
            "frames": frames,
            "levels": done.levels,
            "step": done.step,
            "model": done.model,
            "restored_by": done.restored_by,
            "times_real_time": frames / done.sample_rate_hz / done.seconds,
            "violation": done.cells.violation(done.restored),
            "figures": _figures(done),
            "parts": parts,
        }


@dataclass(frozen=True, eq=False)
class Layering:
    """The way of a stretch through the layers of a network, or the iterations of Chambolle-Pock."""

    folder: Path
    stretch: Stretch
    choice: Choice

    def run(self, report: Report) -> Facts:
        """Lay out all estimates, one after another: of the network alone where it is averaged with others."""
        bounds = np.fromfile(self.folder / UPLOAD, "<f4")
        if not bounds.size or bounds.size % 2 or not np.isfinite(bounds).all():
            raise Refusal(422, "Send as many upper as lower ends of cells, finite ones.")
        cells = Cells(*bounds.astype(np.float64).reshape(2, -1))
        report(0.0)
        rate, step = self.stretch.sample_rate_hz, self.stretch.step
        method = self.stretch.restorer(self.choice).method_for(rate, step)
        network = method.network if isinstance(method, Averaged) else method
        if isinstance(network, LearnedMethod):
            estimates = network.by_layer(cells)
            numbers = list(range(1, len(estimates) + 1))
        else:
            numbers = _numbers(self.stretch.iterations or ITERATIONS)
            estimates = []
            for number in numbers:
                estimates.append(Restorer(iterations=number, method="cp").restore_cells(cells, rate, step))
                report(len(estimates) / len(numbers))
        mixed = cells.centre + self.stretch.mix * (np.stack(estimates) - cells.centre)
        return {"numbers": numbers, "parts": [_laid_out(self.folder, "estimates", mixed)]}


def _numbers(last: int) -> list[int]:
    """Return which iterations are shown: all of a few, ever fewer of many."""
    spaced = np.linspace if last <= MOST_ESTIMATES else np.geomspace
    return sorted({round(number) for number in spaced(1, last, min(last, MOST_ESTIMATES))})


def _laid_out(folder: Path, name: str, signal: FloatArray) -> Facts:
    content = signal.astype("<f4").tobytes()
    (folder / name).write_bytes(content)
    return {"name": name, "bytes": len(content)}


def _figures(done: _Restored) -> Facts | None:
    """Return how far the quantized and the restored signal are from the original, where that is known."""
    if done.original is None:
        return None
    figures = {
        "quantized": _distance(done.original, done.quantized, done.sample_rate_hz),
        "restored": _distance(done.original, done.restored, done.sample_rate_hz),
    }
    return {"heard_seconds": HEARD_SECONDS, **figures}


def _levels(description: Description, samples: NDArray[np.float64], subtype: str) -> Levels:
    try:
        return description.levels_of(samples, subtype)
    except Undetected as error:
        raise ValueError(
            f"the levels of this sound cannot be told ({error.__cause__}); choose a bit depth or a law to "
            "quantize it first, or restore it on the command line, where levels can be named"
        ) from error


def _distance(reference: FloatArray, estimate: FloatArray, sample_rate_hz: int) -> Facts:
    heard = slice(HEARD_SECONDS * sample_rate_hz)
    beginning = reference[:, heard], estimate[:, heard]
    measures = {
        "snr_db": or_none(lambda: metrics.snr_pooled(reference, estimate)),
        "mse": or_none(lambda: metrics.mse(reference, estimate)),
        "pesq": or_none(lambda: metrics.pesq(*beginning, sample_rate_hz)),
        "stoi": or_none(lambda: metrics.stoi(*beginning, sample_rate_hz)),
    }
    return {name: value if is_finite(value) else None for name, value in measures.items()}
