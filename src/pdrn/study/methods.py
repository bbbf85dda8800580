"""The methods that a study compares, each by its name: cells of signals in, restored signals out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from pdrn.audio.cells import Cells, FloatArray
from pdrn.convex import DCT, ChambollePock, dequantization, solve
from pdrn.nets import Network
from pdrn.nets.checkpoint import Unit, describe, load
from pdrn.restoring import pretrained
from pdrn.restoring.restorer import Restorer
from pdrn.study.config import from_complete_table
from pdrn.study.paper import FRAME_LENGTH

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

    >>> method_named("cp:0")
    Traceback (most recent call last):
    ...
    ValueError: no method is called 'cp:0', and no file; try qu, cp:ITERATIONS, overlapped, restore, a model
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
    if model in pretrained.names():
        return _restoring(Restorer.from_pretrained(model, shifts=shifts), sample_rate_hz)
    if os.path.isfile(model):
        network, provenance = load(model)
        if (rate := provenance.sample_rate_hz) not in (None, sample_rate_hz):
            raise ValueError(
                f"{model} is for {rate} Hz and this is {sample_rate_hz} Hz; resample the corpus to {rate} Hz"
            )
        if network.architecture.map.frame_length is None and provenance.unit == "cell":
            return _restoring(Restorer(model, shifts=shifts), sample_rate_hz)
        if shifts not in (None, 1):
            raise ValueError(f"{model} can be run on one grid alone; leave :{shifts} out")
        return network_method(network, provenance.unit)
    raise ValueError(
        f"no method is called {name!r}, and no file; try qu, cp:ITERATIONS, overlapped, restore, a model"
    )


def trained_depths(name: str) -> tuple[float, ...]:
    """Return the bit depth that a method named so was trained for, or the ends of a range; none for any.

    Networks in units of the cell are for any, and so is all that was not trained.
    """
    model, _ = _model_and_shifts(name)
    if model in pretrained.names() or not os.path.isfile(model):
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
