"""Quantize the signals of a corpus, restore them by every method, and measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.corpus import Corpus
from pdrn.audio.metrics import check_pesq, mse, pesq, snr, snr_pooled, stoi
from pdrn.audio.quantizers import MidRise
from pdrn.convex import DCT, ChambollePock, dequantization, solve
from pdrn.errors import InputError
from pdrn.nets import Network
from pdrn.nets.files import Unit, describe, load
from pdrn.reproduction.paper import FRAME_LENGTH
from pdrn.restoration import registry
from pdrn.restoration.restorer import Restorer
from pdrn.training.config import from_complete_table
from pdrn.training.data import without_a_frame

Method = Callable[[Sequence[Cells]], list[FloatArray]]

PAPER_STEPS = ChambollePock(sigma=10.0, tau=0.1, theta=1.0)
"""The steps with which the Chambolle-Pock row of Table 2 comes out."""

FRAMES_AT_ONCE = 1024


def method_named(name: str, frame_length: int = FRAME_LENGTH, sample_rate_hz: int = 16000) -> Method:
    """Return the method that a name stands for.

    ``qu`` leaves the quantized signal as it is; ``cp:N`` does N iterations of Chambolle-Pock on each frame,
    with the cosine transform and the steps of Table 2; ``overlapped`` is Chambolle-Pock as ``pdrn restore``
    does it, and ``restore`` what that does unless told otherwise. Anything else is the name of a network that
    comes along or the path of another; a number behind a colon says on how many shifted grids it is run.

    >>> method_named("cp:0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pdrn.errors.InputError: no method is called 'cp:0', ...
    """
    kind, _, argument = name.partition(":")
    if name == "qu":
        return lambda signals: [cells.centre for cells in signals]
    if kind == "cp" and argument.isdecimal() and int(argument) > 0:
        iterations = int(argument)
        return lambda signals: _by_frame(
            signals, frame_length, lambda cells: _chambolle_pock(cells, iterations)
        )
    if name in ("overlapped", "restore"):
        return _restoring(Restorer(method="cp" if name == "overlapped" else "auto"), sample_rate_hz)
    model, shifts = _model_and_shifts(name)
    if model in registry.names():
        return _restoring(Restorer.from_pretrained(model, shifts=shifts), sample_rate_hz)
    if os.path.isfile(model):
        network, provenance = load(model)
        if (rate := provenance.sample_rate_hz) not in (None, sample_rate_hz):
            raise InputError(
                f"{model} is for {rate} Hz and this is {sample_rate_hz} Hz; resample the corpus to {rate} Hz"
            )
        if network.architecture.map.frame_length is None and provenance.unit == "cell":
            return _restoring(Restorer(model, shifts=shifts), sample_rate_hz)
        if shifts not in (None, 1):
            raise InputError(f"{model} can be run on one grid alone; leave :{shifts} out")
        return network_method(network, provenance.unit)
    raise InputError(
        f"no method is called {name!r}, and no file; try qu, cp:ITERATIONS, overlapped, restore, a model"
    )


def trained_depths(name: str) -> tuple[float, ...]:
    """Return the bit depth that a method named so was trained for, or the ends of a range; none for any.

    Networks in units of the cell are for any, and so is all that was not trained.
    """
    model, _ = _model_and_shifts(name)
    if model in registry.names() or not os.path.isfile(model):
        return ()
    _, provenance = describe(model)
    if provenance.unit == "cell":
        return ()
    try:
        return from_complete_table(provenance.training["config"]).data.bits
    except (KeyError, ValueError):  # it does not say, or not in words of this version
        return ()


def _model_and_shifts(name: str) -> tuple[str, int | None]:
    """Return the name or path of a network, and on how many shifted grids it is run, if that is said."""
    model, _, shifts = name.partition(":")
    return (model, int(shifts)) if shifts.isdecimal() else (name, None)


def _restoring(restorer: Restorer, sample_rate_hz: int) -> Method:
    """Return what users get as a method, refusing a rate or shifts that it is not for before any work."""
    restorer.method_for(sample_rate_hz, 1.0)
    return lambda signals: [restorer.restore_cells(cells, sample_rate_hz, _width(cells)) for cells in signals]


def network_method(network: Network, unit: Unit) -> Method:
    """Return a network as a method: frame by frame if it is dense, else over whole signals."""

    def restore(cells: Cells) -> FloatArray:
        scale = _width(cells) if unit == "cell" else 1.0
        lower, upper = ((ends / scale).astype(np.float32) for ends in (cells.lo, cells.hi))
        return cells.project(network(lower, upper).astype(np.float64) * scale)

    frame_length = network.architecture.map.frame_length
    if frame_length is None:
        return lambda signals: [restore(cells) for cells in signals]
    return lambda signals: _by_frame(signals, frame_length, restore)


def _width(cells: Cells) -> float:
    """Return how wide cells are that all have one width, but for a few at the ends."""
    widths = cells.hi - cells.lo
    return float(np.median(widths[widths > 0]))


def _by_frame(
    signals: Sequence[Cells], frame_length: int, restore: Callable[[Cells], FloatArray]
) -> list[FloatArray]:
    """Cut all signals into frames, the last filled up with zeros, restore these, and put them together."""
    padded = [
        [np.pad(part, (0, -len(part) % frame_length)) for part in (cells.lo, cells.hi)] for cells in signals
    ]
    lower, upper = (np.concatenate(ends).reshape(-1, frame_length) for ends in zip(*padded, strict=True))
    pieces = [
        restore(Cells(lower[first : first + FRAMES_AT_ONCE], upper[first : first + FRAMES_AT_ONCE]))
        for first in range(0, len(lower), FRAMES_AT_ONCE)
    ]
    borders = np.cumsum([len(part) for part, _ in padded])[:-1]
    joined = np.split(np.concatenate(pieces).ravel(), borders)
    return [part[: len(cells)] for part, cells in zip(joined, signals, strict=True)]


def _chambolle_pock(cells: Cells, iterations: int) -> FloatArray:
    problem = dequantization(cells.lo, cells.hi, DCT(cells.shape[-1]))
    restored: FloatArray = solve(problem, PAPER_STEPS, iterations=iterations).x
    return restored


PERCEPTUAL = {"pesq": "pesq", "stoi": "pystoi"}
"""Perceptual metric -> the package that computes it; both are slow."""


@dataclass(frozen=True)
class Row:
    """What one method reaches on one split of a corpus."""

    method: str
    mse: float
    """Mean squared error over all samples of all frames."""
    snr: float
    """Signal-to-noise ratio in dB of each file's whole frames, the mean over the files."""
    snr_pooled: float
    """Signal-to-noise ratio in dB of all frames together."""
    ratio: float
    """Mean squared error in units of the quantized signal's."""
    bits: int
    split: str
    files: int
    frames: int
    corpus_sha256: str
    pesq: float | None = None
    """Of the files' whole frames, their mean, where that was asked for; see `pdrn.audio.metrics.pesq`."""
    stoi: float | None = None


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
    """Return the signals of a split, each as far as it has whole frames, but for those that have none.

    A split in which nothing, or a signal in which silence is left, is refused: there is nothing to compare
    errors with.
    """
    signals = []
    for entry in corpus.split(split):
        signal = corpus.signal(entry)
        if len(whole := signal[: len(signal) // frame_length * frame_length]):
            if not whole.any():
                raise InputError(
                    f"the whole frames of {corpus.folder / entry.path} are silent, and errors cannot be "
                    "compared with silence; leave it out"
                )
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
    """Yield a row for each method, on the whole frames of every file, as in the paper.

    Methods are given by name, or as a mapping from names of one's own. Files shorter than a frame do not
    count. Unknown methods and measures are refused before any work. ``note`` is told how many files are too
    short, and which networks were trained for another bit depth.
    """
    if not methods:
        raise InputError("there is no method to measure; name some, for example qu,cp:25")
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
        note(f"files shorter than a frame of {frame_length} samples, which are left out: {short}")
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
        )
