"""Jobs of the page: restore, explore, layer by layer; and one request from upload to answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from fastapi.responses import StreamingResponse
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from pdrn.audio import metrics
from pdrn.audio.cells import Cells, FloatArray
from pdrn.audio.detection import QuantizerOptions, choose_quantizer
from pdrn.audio.files import open_audio, write
from pdrn.audio.metrics import is_finite, or_none
from pdrn.audio.quantizers import Observer, Quantizer
from pdrn.errors import AudioError, InputError, UndetectedError
from pdrn.restoration.methods import ITERATIONS, MeanMethod, NetworkMethod, describe_method
from pdrn.restoration.restorer import Restorer
from pdrn.web.schemas import Choice, Limits, Refusal, Stretch, Wishes, too_large
from pdrn.web.worker_pool import Done, Facts, Messages, Report, Task, Workshop

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
        found = _detect(self.wishes.options(), quantized, subtype)
        cells, step = Observer(found).observe(quantized), found.step
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
            str(found),
            step,
            method.model,
            describe_method(method.name, method.model),
            rate,
            seconds,
        )

    def _read(self) -> tuple[NDArray[np.float64], int, str]:
        path = self.folder / UPLOAD
        try:
            with open_audio(path) as (header, sounds):
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
        network = method.network if isinstance(method, MeanMethod) else method
        if isinstance(network, NetworkMethod):
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


def _detect(options: QuantizerOptions, samples: NDArray[np.float64], subtype: str) -> Quantizer:
    try:
        return choose_quantizer(samples, options, subtype)
    except UndetectedError as error:
        raise InputError(
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


TaskIn = Callable[[Path], Task]
"""What makes the task of a folder that holds the upload."""

_PIECE = 1 << 18
_GONE = Refusal(499, "The client has left.")

T = TypeVar("T")


class Work:
    """What is done for one request.

    Parameters
    ----------
    request : Request
    workshop : Workshop
    most_bytes : int
        How large the upload may be.
    """

    def __init__(self, request: Request, workshop: Workshop, most_bytes: int) -> None:
        self._request, self._workshop, self._most_bytes = request, workshop, most_bytes
        self._deadline = asyncio.get_running_loop().time() + workshop.limits.work_seconds

    async def parts(self, task_in: TaskIn) -> StreamingResponse:
        """Answer with lines of JSON as the task goes on, then the parts of its result."""
        with ExitStack() as place:
            folder, messages = await self._begin(task_in, place)
            first = await self._unless_gone(anext(messages))
            content = _framed(folder, first, messages)
            return _Answer(content, messages, place.pop_all(), self._deadline, "application/octet-stream")

    async def file(self, task_in: TaskIn) -> StreamingResponse:
        """Answer with the file that the task makes."""
        with ExitStack() as place:
            folder, messages = await self._begin(task_in, place)
            done = await self._unless_gone(_last(messages))
            content = _pieces(folder / done.facts["file"])
            return _Answer(content, messages, place.pop_all(), self._deadline, "audio/wav")

    async def _begin(self, task_in: TaskIn, place: ExitStack) -> tuple[Path, Messages]:
        folder = place.enter_context(self._workshop.place())
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._upload(folder / UPLOAD)
        except TimeoutError as error:
            raise Refusal(408, "The upload took too long; send a smaller file.") from error
        except ClientDisconnect as error:
            raise _GONE from error
        return folder, self._workshop.messages(task_in(folder), self._deadline)

    async def _upload(self, path: Path) -> None:
        if self._request.headers.get("content-type", "").startswith("multipart/"):
            raise Refusal(415, "The body is to be the sound, not a form; curl sends it by --data-binary.")
        declared = self._request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._most_bytes:
            raise too_large(self._most_bytes)
        size = 0
        with path.open("xb") as file:
            async for chunk in self._request.stream():
                size += len(chunk)
                if size > self._most_bytes:
                    raise too_large(self._most_bytes)
                file.write(chunk)
        if not size:
            raise Refusal(422, "The file is empty; choose another.")

    async def _unless_gone(self, work: Awaitable[T]) -> T:
        job, gone = asyncio.ensure_future(work), asyncio.ensure_future(self._request.receive())
        try:
            await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                raise _GONE
            return job.result()
        finally:
            for each in (job, gone):
                each.cancel()
            with suppress(asyncio.CancelledError, Refusal):
                await job


class _Answer(StreamingResponse):
    """An answer that gives its place back, and stops its task, when it is sent or the client has left."""

    def __init__(
        self,
        content: AsyncIterator[bytes] | Iterator[bytes],
        messages: Messages,
        place: AbstractContextManager[Any],
        deadline: float,
        media_type: str,
    ) -> None:
        super().__init__(content, media_type=media_type)
        self._messages, self._place, self._deadline = messages, place, deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._place, suppress(TimeoutError):
            async with aclosing(self._messages), asyncio.timeout_at(self._deadline):
                await super().__call__(scope, receive, send)


async def _last(messages: Messages) -> Done:
    async for message in messages:
        if isinstance(message, Done):
            return message
    raise AssertionError("a task ends with Done, or a Refusal")


async def _framed(folder: Path, message: float | Done, messages: Messages) -> AsyncIterator[bytes]:
    try:
        while not isinstance(message, Done):
            yield _line({"progress": message})
            message = await anext(messages)
    except Refusal as refusal:
        yield _line({"detail": refusal.sentence})
        return
    yield _line({"result": message.facts})
    for part in message.facts["parts"]:
        for piece in _pieces(folder / part["name"]):
            yield piece


def _line(value: object) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
