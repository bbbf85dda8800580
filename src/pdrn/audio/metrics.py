"""Metrics: signal-to-noise ratios, spectral distance, PESQ, STOI and Zimtohrli.

References and estimates are each one signal, a 2-D array with signals in rows, or a sequence of signals of
different lengths. Several signals give the mean over the signals, except in `mse` and `snr_pooled`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdrn.audio.cells import FloatArray
from pdrn.audio.frames import cut
from pdrn.errors import InputError, MissingDependencyError, UndefinedError

Signals = FloatArray | Sequence[FloatArray]
Signal64 = NDArray[np.float64]

_PESQ_BANDS = {8000: "nb", 16000: "wb"}


def _pairs(references: Signals, estimates: Signals) -> list[tuple[Signal64, Signal64]]:
    """Pair references and estimates; refuse unequal lengths and empty signals."""
    rows = [
        [np.asarray(row, dtype=np.float64) for row in ([signals] if np.ndim(signals[0]) == 0 else signals)]
        if len(signals)
        else []
        for signals in (references, estimates)
    ]
    pairs = list(zip(*rows, strict=False))
    if not pairs or len(rows[0]) != len(rows[1]) or any(r.shape != e.shape or r.size == 0 for r, e in pairs):
        raise InputError(
            "references and estimates need the same number of signals, each pair of one length > 0"
        )
    return pairs


def _energy(signal: Signal64) -> float:
    return float(np.vdot(signal, signal))


def _decibels(wanted: float, unwanted: float) -> float:
    """Return the ratio of two energies in dB; inf if `unwanted` is 0."""
    if wanted == 0:
        raise UndefinedError("the reference is silent, so there is no ratio to it; leave such signals out")
    return float(10 * np.log10(wanted / unwanted)) if unwanted else float("inf")


def _mean(measure: Callable[[Signal64, Signal64], float], references: Signals, estimates: Signals) -> float:
    return float(np.mean([measure(*pair) for pair in _pairs(references, estimates)]))


def mse(references: Signals, estimates: Signals) -> float:
    """Return the mean squared error over all samples of all signals.

    Examples
    --------
    >>> mse(np.array([1.0, 0.0]), np.array([1.0, 0.5]))
    0.125
    """
    errors = [estimate - reference for reference, estimate in _pairs(references, estimates)]
    return sum(_energy(error) for error in errors) / sum(error.size for error in errors)


def snr(references: Signals, estimates: Signals) -> float:
    """Return the signal-to-noise ratio in dB, the mean over the signals.

    Examples
    --------
    >>> snr(np.array([1.0, 0.0]), np.array([1.0, 0.1]))
    20.0
    """
    return _mean(lambda s, e: _decibels(_energy(s), _energy(s - e)), references, estimates)


def snr_pooled(references: Signals, estimates: Signals) -> float:
    """Return the signal-to-noise ratio in dB of all signals together.

    Examples
    --------
    >>> snr_pooled([np.array([1.0]), np.array([0.0])], [np.array([1.0]), np.array([0.1])])
    20.0
    """
    pairs = _pairs(references, estimates)
    return _decibels(sum(_energy(s) for s, _ in pairs), sum(_energy(s - e) for s, e in pairs))


def segmental_snr(
    references: Signals,
    estimates: Signals,
    frame_length: int = 512,
    hop: int = 256,
) -> float:
    """Return the segmental signal-to-noise ratio: the mean over frames, each limited to -10 ... 35 dB.

    Silent frames are left out. The mean is taken over the frames of each signal, then over the signals.
    """

    def measure(reference: Signal64, estimate: Signal64) -> float:
        wanted = (cut(reference, frame_length, hop) ** 2).sum(-1)
        unwanted = (cut(reference - estimate, frame_length, hop) ** 2).sum(-1)
        heard = wanted > 0
        if not heard.any():
            raise UndefinedError(
                f"a reference has no frame of {frame_length} samples with sound; shorten the frames"
            )
        with np.errstate(divide="ignore"):
            ratios = 10 * (np.log10(wanted[heard]) - np.log10(unwanted[heard]))
        return float(np.clip(ratios, -10, 35).mean())

    return _mean(measure, references, estimates)


def si_sdr(references: Signals, estimates: Signals) -> float:
    """Return the scale-invariant signal-to-distortion ratio in dB, the mean over the signals.

    The target is the projection of the estimate onto the reference; no mean is subtracted. An estimate
    orthogonal to the reference, such as silence, has -inf.

    Examples
    --------
    >>> round(si_sdr(np.array([1.0, 0.0]), np.array([7.0, 0.7])), 9)
    20.0
    """

    def measure(reference: Signal64, estimate: Signal64) -> float:
        energy = _energy(reference)
        target = reference * (np.vdot(reference, estimate) / energy) if energy else reference
        if energy and not target.any():
            return float("-inf")
        return _decibels(_energy(target), _energy(estimate - target))

    return _mean(measure, references, estimates)


def log_spectral_distance(
    references: Signals, estimates: Signals, frame_length: int = 512, hop: int = 256, floor_db: float = -80.0
) -> float:
    """Return the log-spectral distance in dB: the rms over frequency of the log power ratio of each frame.

    Frames have Hann windows. Powers below the reference's largest by more than `floor_db` are raised to that
    floor. The mean is taken over frames, then over signals.
    """

    def measure(reference: Signal64, estimate: Signal64) -> float:
        window = np.hanning(frame_length + 1)[:-1]
        powers = [
            np.abs(np.fft.rfft(cut(signal, frame_length, hop) * window)) ** 2
            for signal in (reference, estimate)
        ]
        if not powers[0].any():
            raise UndefinedError(
                f"a reference has no frame of {frame_length} samples with sound; shorten the frames"
            )
        floor = powers[0].max() * 10 ** (floor_db / 10)
        ratio = 10 * np.log10(np.maximum(powers[0], floor) / np.maximum(powers[1], floor))
        return float(np.sqrt((ratio**2).mean(-1)).mean())

    return _mean(measure, references, estimates)


def pesq(references: Signals, estimates: Signals, sample_rate_hz: int) -> float:
    """Return PESQ, the mean over the signals.

    At 16 kHz it is wide-band (ITU-T P.862.2, at most 4.64), at 8 kHz narrow-band (P.862.1, at most 4.55);
    the two cannot be compared.
    """
    check_pesq(sample_rate_hz)
    package = _import("pesq")

    def measure(reference: Signal64, estimate: Signal64) -> float:
        try:
            return float(package.pesq(sample_rate_hz, reference, estimate, _PESQ_BANDS[sample_rate_hz]))
        except (RuntimeError, ValueError) as error:
            raise UndefinedError(
                "PESQ needs a quarter of a second or more with speech in both signals; leave such signals out"
            ) from error

    return _mean(measure, references, estimates)


def check_pesq(sample_rate_hz: int) -> None:
    """Refuse sample rates other than 8 and 16 kHz."""
    if sample_rate_hz not in _PESQ_BANDS:
        raise UndefinedError(
            f"PESQ is defined at 8000 and 16000 Hz, not at {sample_rate_hz} Hz; leave it out or resample"
        )


def stoi(references: Signals, estimates: Signals, sample_rate_hz: int) -> float:
    """Return the short-time objective intelligibility, 0 to 1, the mean over the signals."""
    package = _import("pystoi")

    def measure(reference: Signal64, estimate: Signal64) -> float:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                return float(package.stoi(reference, estimate, sample_rate_hz))
        except (RuntimeWarning, ValueError, IndexError) as error:
            raise UndefinedError(
                "STOI needs 0.4 s or more with sound in the reference; leave such signals out"
            ) from error

    return _mean(measure, references, estimates)


ZIMTOHRLI_HZ = 48000
ZIMTOHRLI_SECONDS = 0.5
"""Shortest signal: the package aborts the process for much shorter ones."""


def zimtohrli(references: Signals, estimates: Signals, sample_rate_hz: int) -> float:
    """Return the opinion score, 1 to 5, by the hearing model Zimtohrli, the mean over the signals.

    Signals are resampled to 48 kHz.
    """
    package, resample = _import("zimtohrli"), _import("soxr").resample
    model = package.Pyohrli()

    def measure(reference: Signal64, estimate: Signal64) -> float:
        if len(reference) < ZIMTOHRLI_SECONDS * sample_rate_hz:
            raise UndefinedError(f"Zimtohrli needs {ZIMTOHRLI_SECONDS} s or more; leave such signals out")
        resampled = (
            resample(signal, sample_rate_hz, ZIMTOHRLI_HZ).astype(np.float32)
            for signal in (reference, estimate)
        )
        return float(package.mos_from_zimtohrli(model.distance(*resampled)))

    return _mean(measure, references, estimates)


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingDependencyError(f"{package} is missing: pip install 'pdrn[metrics]'") from error


def or_none(measure: Callable[[], float]) -> float | None:
    """Return the measure, None if it is not defined or its package is missing."""
    try:
        return measure()
    except (UndefinedError, MissingDependencyError):
        return None


def is_finite(value: object) -> bool:
    """Tell whether JSON can represent the value: no infinite or NaN float."""
    return not isinstance(value, float) or math.isfinite(value)
