"""The restorer: arrays, cells and files in, restored arrays and files out.

A sample passes through `choose_quantizer` (which levels), `Observer` (its cell), `Restorer.method_for` (the
method for this rate and step) and `BlockRestorer` (the method, block by block).
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Literal, Unpack, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.detection import QuantizerKeywords, QuantizerOptions, choose_quantizer
from pdrn.audio.files import Sound, Source, blocks, format_of, open_audio, writer
from pdrn.audio.quantizers import PCM_BITS, Bounded, Clipping, Gaps, Observer, Quantizer, pcm_subtype
from pdrn.errors import AudioError, InputError
from pdrn.restoration import registry
from pdrn.restoration.methods import ITERATIONS, ChambollePockMethod, MeanMethod, Method
from pdrn.restoration.streaming import BlockRestorer, Progress, Stream, as_channels
from pdrn.storage import Target, refuse_same

MethodName = Literal["auto", "both", "network", "cp"]

Rows = NDArray[np.float64]
"""Samples of all channels, shape (channels, frames)."""

BLOCK_LENGTH = 1 << 15
"""Frames that are read and observed at a time."""

DETECTION_SAMPLES = 1 << 20
"""Number of samples, after silence, that a file's quantizer is detected from."""


@dataclass(frozen=True)
class Report:
    """How a file was restored."""

    input: str
    output: str
    levels: str
    """The quantizer, in words."""
    method: str
    """network, cp (Chambolle-Pock) or both."""
    model: str | None
    """The name of the model; None for Chambolle-Pock alone."""
    sample_rate_hz: int
    channels: int
    frames: int
    subtype: str
    seconds: float
    verified: bool | None
    clipped: int | None = None
    """Number of clipped samples, where clipping was named."""
    missing: int | None = None
    """Number of missing samples, where gaps were allowed."""

    @property
    def times_real_time(self) -> float:
        """Duration of the sound over the time taken."""
        return self.frames / self.sample_rate_hz / self.seconds


@dataclass(frozen=True)
class Restorer:
    """Restores quantized sound inside its cells.

    Parameters
    ----------
    model : str or path, optional
        The name of a bundled model, or a file written by `pdrn train`. Default: the one for the sample
        rate, `universal` where there is none.
    iterations : int, optional
        Iterations of Chambolle-Pock, alone or in the mean; default: the tuned number.
    mix : float
        From 0, the centres of the cells, to 1, the full restoration.
    threads : int
        Number of blocks computed in parallel.
    method : str
        "network": the model alone. "cp": Chambolle-Pock alone. "both": their mean. "auto": both, if a model
        is named or the levels are uniform and no finer than 9 bits; else Chambolle-Pock.
    shifts : int, optional
        Number of shifted grids on which a network runs and whose results are averaged; see `NetworkMethod`.

    Examples
    --------
    >>> from pdrn.audio.corpus import speech
    >>> samples, sample_rate_hz = speech()
    >>> samples = samples[: 2 * sample_rate_hz]
    >>> quantized = (np.floor(samples * 16) + 0.5) / 16
    >>> restored = Restorer().restore(quantized, sample_rate_hz, bits=5)
    >>> bool((np.abs(restored - quantized) <= 1 / 32).all())
    True
    >>> bool(((restored - samples) ** 2).mean() < 0.4 * ((quantized - samples) ** 2).mean())
    True
    """

    model: str | None = None
    iterations: int | None = None
    mix: float = 1.0
    threads: int = 1
    method: MethodName = "auto"
    shifts: int | None = None

    def __post_init__(self) -> None:
        if self.method not in get_args(MethodName):
            raise InputError(
                f"there is no method {self.method!r}; choose one of {', '.join(get_args(MethodName))}"
            )
        if self.iterations is not None and self.method == "network":
            raise InputError("method network takes no iterations; leave one of the two out")
        if self.model is not None and self.method == "cp":
            raise InputError("method cp takes no model; leave one of the two out")
        if self.shifts is not None and (
            self.method == "cp" or not isinstance(self.shifts, int) or self.shifts < 1
        ):
            raise InputError(
                f"shifts are for networks, one or more, got {self.shifts} for method {self.method}"
            )
        iterations = ITERATIONS if self.iterations is None else self.iterations
        for name, count in (("iterations", iterations), ("threads", self.threads)):
            if not isinstance(count, int | np.integer) or count < 1:
                raise InputError(f"{name} need a whole number, one or more, got {count}")
        if not 0 <= self.mix <= 1:
            raise InputError(f"the mix is a number from 0 (centres of the cells) to 1, got {self.mix}")
        if self.model is not None:
            registry.read_model(self.model)

    @classmethod
    def from_pretrained(cls, name: str, **settings: Any) -> Restorer:
        """Return a restorer with a bundled model; `settings` are the other parameters.

        By default it takes the mean of the network and Chambolle-Pock, as `Restorer()` does; pass
        `method="network"` for the network alone. `pdrn.restoration.registry.names` lists the models.
        """
        registry.path(name)  # refuses other names, and files
        return cls(name, **settings)

    def method_for(self, sample_rate_hz: int, step: float | None, *, gaps: bool = False) -> Method:
        """Return the method for this sample rate and cells of this width; None: widths differ.

        With `gaps`, samples may be missing, which Chambolle-Pock alone restores.
        """
        if (
            isinstance(sample_rate_hz, bool)
            or not isinstance(sample_rate_hz, int | np.integer)
            or sample_rate_hz < 1
        ):
            raise InputError(f"the sample rate is a whole number of hertz, got {sample_rate_hz!r}")
        rate = int(sample_rate_hz)
        solver = ChambollePockMethod.at(rate, self.iterations)
        if self.method == "cp":
            return solver
        if self.model is not None:
            model: registry.Model | None = registry.read_model(self.model)
        elif self.method == "auto":
            model = None if gaps else registry.automatic(rate, step)
            if model is None:
                return solver
        else:
            model = registry.best(rate)
        if model is None:
            raise InputError(f"no bundled model is for {rate} Hz; choose method cp")
        if gaps:
            raise InputError("networks do not fill gaps; choose method cp")
        network = model.method(rate, step, self.shifts)
        return network if self.method == "network" else MeanMethod(network, solver)

    def restore(
        self,
        samples: ArrayLike,
        sample_rate_hz: int,
        *,
        progress: Progress | None = None,
        **known: Unpack[QuantizerKeywords],
    ) -> FloatArray:
        """Return the samples restored, of the same shape, in float64.

        Parameters
        ----------
        samples : array_like, shape (frames,) or (channels, frames)
            Floats with full scale [-1, 1], where NaN marks missing samples; or integers, as PCM stores them.
            Channels do not influence each other.
        sample_rate_hz : int
        progress : callable, optional
            Called with the frames done and the frames in all.
        **known
            `bits`, `step`, `law`, `clip_at` and `truncated` as in `QuantizerOptions`; default: detected.
        """
        rows = as_channels(samples, most_channels=8)
        quantizer = choose_quantizer(rows, QuantizerOptions(**known), pcm_subtype(samples))
        if np.isnan(rows).any():
            quantizer = Gaps(quantizer)
        cells = Observer(quantizer).observe(rows)
        restored = self.restore_cells(cells, sample_rate_hz, quantizer.step, progress)
        return restored.reshape(np.shape(samples))

    def restore_cells(
        self,
        cells: Cells,
        sample_rate_hz: int,
        step: float | None = None,
        progress: Progress | None = None,
    ) -> FloatArray:
        """Return samples restored from any cells, shape (frames,) or (channels, frames).

        `step` is the width of all cells but open-ended ones. Without it, method "auto" is Chambolle-Pock.
        """
        rows = cells if len(cells.shape) == 2 else cells[None]
        frames = rows.shape[-1]
        gaps = bool((np.isneginf(cells.lo) & np.isposinf(cells.hi)).any())
        method = self.method_for(sample_rate_hz, step, gaps=gaps)
        pieces = (rows[:, start : start + BLOCK_LENGTH] for start in range(0, frames, BLOCK_LENGTH))
        block_restorer = BlockRestorer(method, method.offline_block(frames), self.mix, self.threads)
        restored = [piece.samples for piece in block_restorer.run(pieces, frames, progress)]
        return np.concatenate([np.empty((len(rows), 0)), *restored], axis=-1).reshape(cells.shape)

    def restore_file(
        self,
        source: Source,
        target: Target,
        *,
        subtype: str | None = None,
        overwrite: bool = False,
        verify: bool = False,
        gaps: bool = False,
        progress: Progress | None = None,
        **known: Unpack[QuantizerKeywords],
    ) -> Report:
        """Restore a sound file into another, atomically and in constant memory.

        Parameters
        ----------
        source : str, path or binary file
            "-" stands for standard input.
        target : str or path
            "-" stands for standard output.
        subtype : str, optional
            How each sample is stored, such as PCM_24 or FLOAT; default: deeper than the input.
        overwrite : bool
            Replace an existing file instead of refusing.
        verify : bool
            Read both files again, and check that every sample is in its cell.
        gaps : bool
            Take NaN in files of floats for missing samples, instead of refusing it.
        progress : callable, optional
            Called with the frames done and the frames in all (None if unknown).
        **known
            As in `restore`.

        Raises
        ------
        AudioError
            If a file cannot be read or written, or the samples do not lie on the named levels.
        """
        began = time.perf_counter()
        options = QuantizerOptions(**known)
        if verify and (_is_pipe(source) or _is_pipe(target)):
            raise AudioError("a pipe cannot be read again; verify files on disk")
        refuse_same(source, target)
        name = str(source) if isinstance(source, str | os.PathLike) else "the sound"
        frames = 0
        try:
            with open_audio(source, BLOCK_LENGTH, gaps=gaps) as (header, sounds):
                pieces = map(_rows, sounds)
                head, telling = read_beginning(pieces)
                subtype = subtype or output_subtype(header.subtype, format_of(target))
                quantizer = choose_quantizer(telling, options, header.subtype, gaps=gaps)
                quantizer = fit_output(quantizer, subtype, gaps=gaps)
                method = self.method_for(header.sample_rate_hz, quantizer.step, gaps=gaps)
                block = method.offline_block(header.frames)
                block_restorer = BlockRestorer(method, block, self.mix, self.threads)
                observer = Observer(quantizer)
                cells = map(observer.observe, itertools.chain(head, pieces))
                with writer(
                    target,
                    header.sample_rate_hz,
                    header.channels,
                    header.frames,
                    subtype=subtype,
                    overwrite=overwrite,
                    check=partial(_verify, source, target, quantizer, gaps) if verify else None,
                ) as put:
                    for restored in block_restorer.run(cells, header.frames, progress):
                        put(restored.samples, restored.cells)
                        frames += restored.samples.shape[-1]
        except AudioError:
            raise
        except InputError as error:
            raise AudioError(f"{name}: {error}") from error
        return Report(
            input=name,
            output=str(target),
            levels=str(quantizer),
            method=method.name,
            model=method.model,
            sample_rate_hz=header.sample_rate_hz,
            channels=header.channels,
            frames=frames,
            subtype=subtype,
            seconds=time.perf_counter() - began,
            verified=verify or None,
            clipped=None if options.clip_at is None else observer.clipped,
            missing=observer.missing if gaps else None,
        )

    def stream(
        self, sample_rate_hz: int, *, gaps: bool = False, **known: Unpack[QuantizerKeywords]
    ) -> Stream:
        """Open a stream for sound of this rate; name its quantizer by `bits`, `step`, `law` or `clip_at`.

        With `gaps`, NaN marks missing samples instead of being refused.
        """
        quantizer = choose_quantizer(None, QuantizerOptions(**known))
        return self.stream_for(sample_rate_hz, Gaps(quantizer) if gaps else quantizer)

    def stream_for(self, sample_rate_hz: int, quantizer: Quantizer) -> Stream:
        """Open a stream for sound of this rate and this quantizer."""
        method = self.method_for(sample_rate_hz, quantizer.step, gaps=isinstance(quantizer, Gaps))
        return Stream(method, quantizer, sample_rate_hz, self.mix, self.threads)


def restore(
    samples: ArrayLike,
    sample_rate_hz: int,
    *,
    method: MethodName = "auto",
    progress: Progress | None = None,
    **known: Unpack[QuantizerKeywords],
) -> FloatArray:
    """Restore samples as `Restorer(method=method).restore` does.

    Examples
    --------
    >>> import pdrn
    >>> quantized = np.array([0.125, 0.375, 0.125])
    >>> restored = pdrn.restore(quantized, 16000, bits=3)
    >>> bool((np.abs(restored - quantized) <= 0.125).all())
    True
    """
    return Restorer(method=method).restore(samples, sample_rate_hz, progress=progress, **known)


def read_beginning(pieces: Iterator[Rows]) -> tuple[list[Rows], Rows]:
    """Read the pieces that detection needs; return them, and their samples after the silence at the start.

    The silence takes no memory, whatever its length.
    """
    taken, telling = list[Rows](), list[Rows]()
    seen = 0
    for rows in pieces:
        first = rows[:, :1].copy()
        if not telling and (rows == first).all():
            taken.append(np.broadcast_to(first, rows.shape))
            continue
        taken.append(rows)
        telling.append(rows)
        seen += rows.size
        if seen >= DETECTION_SAMPLES:
            break
    return taken, np.concatenate(telling or taken[-1:], axis=-1)


def output_subtype(subtype: str, format: str) -> str:
    """Return a subtype for restored sound: finer than the input's and, except in FLAC, without full scale.

    >>> output_subtype("PCM_16", "WAV"), output_subtype("PCM_24", "WAV"), output_subtype("PCM_16", "FLAC")
    ('FLOAT', 'DOUBLE', 'PCM_24')
    """
    if format == "FLAC":
        return "PCM_24"
    return "DOUBLE" if subtype in ("PCM_24", "PCM_32", "DOUBLE") else "FLOAT"


def fit_output(
    quantizer: Quantizer,
    subtype: str,
    *,
    gaps: bool = False,
    remedy: str = "a deeper subtype, or a name that ends in .wav",
) -> Quantizer:
    """Return the quantizer with cells that output of this subtype can hold.

    PCM ends at full scale, so its cells do; those of clipped peaks stay open-ended, to be restored. A subtype
    without values between the levels is refused.
    """
    if subtype in PCM_BITS and not isinstance(quantizer, Clipping):
        quantizer = Bounded(quantizer)
    if gaps:
        return Gaps(quantizer)
    if (
        subtype in PCM_BITS
        and quantizer.step is not None
        and quantizer.step <= 2.0 ** (1 - PCM_BITS[subtype])
    ):
        raise AudioError(
            f"{subtype} has no values between the levels ({quantizer}), so nothing can be restored; "
            f"choose {remedy}"
        )
    return quantizer


def _is_pipe(place: Source | Target) -> bool:
    if not isinstance(place, str | os.PathLike) or os.fspath(place) == "-":
        return True
    return os.path.exists(place) and not os.path.isfile(place)


def _rows(sound: Sound) -> Rows:
    return np.atleast_2d(sound.samples)


def _verify(source: Source, target: Target, quantizer: Quantizer, gaps: bool, written: BinaryIO) -> None:
    """Read input and output again; refuse samples outside their cells and another length."""
    written.seek(0)
    observer = Observer(quantizer)
    inputs = (observer.observe(_rows(sound)) for sound in blocks(source, BLOCK_LENGTH, gaps=gaps))
    outputs = map(_rows, blocks(written, BLOCK_LENGTH))
    for cells, samples in itertools.zip_longest(inputs, outputs):
        if cells is None or samples is None or cells.shape != samples.shape:
            raise AudioError(f"{target} is not as long as the input; write it again")
        if violation := cells.violation(samples):
            raise AudioError(f"{target} is outside a cell by {violation:g}; write it again")
