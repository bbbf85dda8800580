"""Quantize the signals of a corpus, restore them by methods, and measure the errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.corpus import Corpus
from pdrn.audio.metrics import check_pesq, mse, pesq, snr, snr_pooled, stoi, zimtohrli
from pdrn.audio.quantizers import MidRise
from pdrn.convex import DCT, ChambollePock, dequantization, solve
from pdrn.errors import InputError
from pdrn.nets import Network, SpectralPrimalDual
from pdrn.nets.files import Unit, describe, load, require_cells
from pdrn.restoration import registry
from pdrn.restoration.restorer import Restorer
from pdrn.training.config import from_complete_table
from pdrn.training.data import without_a_frame

Method = Callable[[Sequence[Cells]], list[FloatArray]]
"""Restores signals from their cells."""

FRAME_LENGTH = 1024
"""The n of the paper: samples of a frame."""

PAPER_STEPS = ChambollePock(sigma=10.0, tau=0.1, theta=1.0)
"""The steps that reproduce the Chambolle-Pock rows of Table 2."""

FRAMES_AT_ONCE = 1024
"""Restore this number of frames at a time, which bounds the memory."""


def method_named(name: str, frame_length: int = FRAME_LENGTH, sample_rate_hz: int = 16000) -> Method:
    """Return the method with a name.

    ``qu``
        The quantized signal.
    ``cp:N``
        N iterations of Chambolle-Pock on each frame, with the DCT and the steps of Table 2.
    ``overlapped``
        Chambolle-Pock on overlapping frames, as ``pdrn restore --method cp``.
    ``restore``
        The default of ``pdrn restore``.
    ``MODEL`` or ``MODEL:SHIFTS``
        A bundled model by its name, or any by its file: the network alone, on this number of shifted grids.

    >>> method_named("cp:0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pdrn.errors.InputError: no method is called 'cp:0', ...
    """
    kind, _, argument = name.partition(":")
    if name == "qu":
        return lambda signals: [cells.centre for cells in signals]
    if kind == "cp" and argument.isdecimal() and int(argument) > 0:
        return _by_frame(frame_length, partial(_chambolle_pock, iterations=int(argument)))
    if name in ("overlapped", "restore"):
        return _restorer_method(Restorer(method="cp" if name == "overlapped" else "auto"), sample_rate_hz)
    model, shifts = _model_and_shifts(name)
    is_bundled = model in registry.names()
    if not is_bundled and not os.path.isfile(model):
        raise InputError(
            f"no method is called {name!r}, and no file; try qu, cp:ITERATIONS, overlapped, restore, a model"
        )
    if not is_bundled:
        network, provenance = load(model)
        if (rate := provenance.sample_rate_hz) not in (None, sample_rate_hz):
            raise InputError(
                f"{model} is for {rate} Hz and this is {sample_rate_hz} Hz; resample the corpus to {rate} Hz"
            )
        takes_any_cells = isinstance(network.architecture, SpectralPrimalDual) or provenance.unit == "cell"
        if require_cells(network.architecture).frame_length is not None or not takes_any_cells:
            if shifts not in (None, 1):
                raise InputError(f"{model} can be run on one grid alone; leave :{shifts} out")
            return network_method(network, provenance.unit)
    return _restorer_method(Restorer(model, shifts=shifts, method="network"), sample_rate_hz)


def trained_depths(name: str) -> tuple[float, ...]:
    """Return the bit depth, or the ends of the range, for which a method was trained; () if any depth fits.

    Any depth fits networks in units of the cell, and methods that were not trained.
    """
    model, _ = _model_and_shifts(name)
    if model in registry.names() or not os.path.isfile(model):
        return ()
    _, provenance = describe(model)
    if provenance.unit == "cell":
        return ()
    try:
        return from_complete_table(provenance.training["config"]).data.bits
    except (KeyError, InputError):  # a file of another program, or version
        return ()


def _model_and_shifts(name: str) -> tuple[str, int | None]:
    """Split MODEL:SHIFTS."""
    model, _, shifts = name.partition(":")
    return (model, int(shifts)) if shifts.isdecimal() else (name, None)


def _restorer_method(restorer: Restorer, sample_rate_hz: int) -> Method:
    """Return the method of a restorer; refuse at once a sample rate that it cannot take."""
    restorer.method_for(sample_rate_hz, 1.0)
    return lambda signals: [restorer.restore_cells(cells, sample_rate_hz, _width(cells)) for cells in signals]


def network_method(network: Network, unit: Unit) -> Method:
    """Return a network as a method: frame by frame if it is dense, else over whole signals."""

    def restore(cells: Cells) -> FloatArray:
        scale = _width(cells) if unit == "cell" else 1.0
        lower, upper = ((ends / scale).astype(np.float32) for ends in (cells.lo, cells.hi))
        return cells.project(network(lower, upper).astype(np.float64) * scale)

    frame_length = require_cells(network.architecture).frame_length
    if frame_length is None:
        return lambda signals: [restore(cells) for cells in signals]
    return _by_frame(frame_length, restore)


def _width(cells: Cells) -> float:
    """Return the width of uniform cells; those at full scale may be wider."""
    widths = cells.hi - cells.lo
    return float(np.median(widths[widths > 0]))


def _by_frame(frame_length: int, restore: Callable[[Cells], FloatArray]) -> Method:
    """Return the method that cuts signals into frames, the last padded with zeros, and restores these."""

    def restore_all(signals: Sequence[Cells]) -> list[FloatArray]:
        padded = [[np.pad(x, (0, -len(x) % frame_length)) for x in (cells.lo, cells.hi)] for cells in signals]
        lower, upper = (np.concatenate(ends).reshape(-1, frame_length) for ends in zip(*padded, strict=True))
        pieces = [
            restore(Cells(lower[first : first + FRAMES_AT_ONCE], upper[first : first + FRAMES_AT_ONCE]))
            for first in range(0, len(lower), FRAMES_AT_ONCE)
        ]
        borders = np.cumsum([len(part) for part, _ in padded])[:-1]
        joined = np.split(np.concatenate(pieces).ravel(), borders)
        return [part[: len(cells)] for part, cells in zip(joined, signals, strict=True)]

    return restore_all


def _chambolle_pock(cells: Cells, iterations: int) -> FloatArray:
    problem = dequantization(cells.lo, cells.hi, DCT(cells.shape[-1]))
    restored: FloatArray = solve(problem, PAPER_STEPS, iterations=iterations).x
    return restored


PERCEPTUAL = {"pesq": "pesq", "stoi": "pystoi", "zimtohrli": "zimtohrli"}
"""Perceptual metric -> the package that computes it; all are slow."""


@dataclass(frozen=True)
class Row:
    """The errors of one method on one split of a corpus."""

    method: str
    mse: float
    """Mean squared error over all samples of all frames."""
    snr: float
    """Signal-to-noise ratio of a file's whole frames in dB, averaged over the files."""
    snr_pooled: float
    """Signal-to-noise ratio of all frames together in dB."""
    ratio: float
    """Mean squared error relative to that of the quantized signal."""
    bits: int
    split: str
    files: int
    frames: int
    corpus_sha256: str
    pesq: float | None = None
    """Averaged over the files, if requested; see `pdrn.audio.metrics.pesq`."""
    stoi: float | None = None
    zimtohrli: float | None = None


def check_metrics(metrics: Collection[str], sample_rate_hz: int) -> None:
    """Refuse perceptual metrics that cannot be computed here."""
    for name in metrics:
        if name not in PERCEPTUAL:
            raise InputError(f"no metric is called {name!r}; there are {', '.join(PERCEPTUAL)}")
        if find_spec(PERCEPTUAL[name]) is None:
            raise InputError(
                f"{name} needs {PERCEPTUAL[name]}, which is not installed: pip install 'pdrn[metrics]'"
            )
    if "pesq" in metrics:
        check_pesq(sample_rate_hz)


def whole_frames(corpus: Corpus, split: str, frame_length: int) -> list[FloatArray]:
    """Return the signals of a split, each cut to whole frames; shorter ones are left out.

    A split without a frame is refused, and so is a silent signal, which has no relative error.
    """
    signals = []
    for entry in corpus.split(split):
        signal = corpus.signal(entry)
        if len(whole := signal[: len(signal) // frame_length * frame_length]):
            if not whole.any():
                raise InputError(f"the whole frames of {corpus.folder / entry.path} are silent; leave it out")
            signals.append(whole)
    if not signals:
        raise without_a_frame(corpus, split, frame_length)
    return signals


def evaluate(
    corpus: Corpus,
    split: str,
    bits: int,
    methods: Sequence[str] | Mapping[str, Method],
    frame_length: int = FRAME_LENGTH,
    metrics: Collection[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Yield a row for each method, measured on the whole frames of every file, as in the paper.

    Parameters
    ----------
    corpus, split
        The signals, with a peak of 1.
    bits
        The bit depth of a mid-rise quantizer.
    methods
        Names for `method_named`, or methods by any name. An unknown one is refused before any work.
    frame_length
        In samples; shorter files are left out.
    metrics
        Perceptual metrics to measure too: ``pesq``, ``stoi``, ``zimtohrli``.
    note
        Called with a sentence if files are left out, or a network was trained for another bit depth.
    """
    if not methods:
        raise InputError("no method to measure; name some, for example qu,cp:25")
    sample_rate_hz = corpus.signal_rate_hz
    restorers = (
        methods
        if isinstance(methods, Mapping)
        else {name: method_named(name, frame_length, sample_rate_hz) for name in methods}
    )
    check_metrics(metrics, sample_rate_hz)
    quantizer = MidRise(bits, full_scale=True)
    signals = whole_frames(corpus, split, frame_length)
    if short := len(corpus.split(split)) - len(signals):
        note(f"left out {short} files shorter than a frame of {frame_length} samples")
    for name in () if isinstance(methods, Mapping) else restorers:
        depths = trained_depths(name)
        if depths and not depths[0] <= bits <= depths[-1]:
            trained = " to ".join(f"{depth:g}" for depth in depths)
            note(f"{name} was trained for {trained} bits, and this is {bits}")
    cells = [quantizer.cells(quantizer.encode(signal)) for signal in signals]
    quantized_mse = mse(signals, [each.centre for each in cells])
    for name, restore in restorers.items():
        restored = restore(cells)
        error = mse(signals, restored)
        yield Row(
            method=name,
            mse=error,
            snr=snr(signals, restored),
            snr_pooled=snr_pooled(signals, restored),
            ratio=error / quantized_mse,
            bits=bits,
            split=split,
            files=len(signals),
            frames=sum(len(signal) for signal in signals) // frame_length,
            corpus_sha256=corpus.checksum,
            pesq=pesq(signals, restored, sample_rate_hz) if "pesq" in metrics else None,
            stoi=stoi(signals, restored, sample_rate_hz) if "stoi" in metrics else None,
            zimtohrli=zimtohrli(signals, restored, sample_rate_hz) if "zimtohrli" in metrics else None,
        )
