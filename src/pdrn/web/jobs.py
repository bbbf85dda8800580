"""The jobs of the page (restore, explore, layers), and a request from upload to answer."""

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
from pdrn.web.schemas import Choice, ExploreRequest, LayersRequest, Limits, Refusal, RestoreRequest
from pdrn.web.worker_pool import Done, Job, Messages, Report, Result, WorkerPool, no_space

UPLOAD = "upload"
SUBTYPES = {"float": "FLOAT", "pcm24": "PCM_24"}

HEARD_SECONDS = 20
"""PESQ and STOI are slow: they are measured on this much of the beginning."""

MAX_ESTIMATES = 24

# Jobs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Restored:
    """All signals have the shape (channels, frames)."""

    original: FloatArray | None
    """The sound before quantization; None where it is taken as it is."""
    quantized: FloatArray
    cells: Cells
    restored: FloatArray
    levels: str
    step: float | None
    model: str | None
    """Name of the network, if one took part."""
    restored_by: str
    sample_rate_hz: int
    seconds: float


@dataclass(frozen=True)
class _SoundJob:
    """A sound in the folder of its request."""

    folder: Path
    request: ExploreRequest
    choice: Choice
    limits: Limits

    def restore(self, report: Report) -> _Restored:
        """Read, quantize and restore the sound."""
        samples, rate, subtype = self._read()
        quantizer = self.request.quantizer()
        if quantizer is not None:
            peak = float(np.abs(samples).max())
            if peak > 1:
                raise Refusal(422, f"The sound goes up to {peak:.3g}, beyond full scale of 1; turn it down.")
            quantized, subtype = np.asarray(quantizer.quantize(samples), np.float64), ""
        else:
            quantized = samples
        found = _detect(self.request.options(), quantized, subtype)
        cells, step = Observer(found).observe(quantized), found.step
        restorer = self.request.restorer(self.choice)
        method = restorer.method_for(rate, step)  # refuses the wrong rate or step before any answer
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
                self._check_length(frames, header.sample_rate_hz, header.channels)
                for sound in sounds:
                    blocks.append(np.atleast_2d(sound.samples))
                    if header.frames is None:
                        frames += blocks[-1].shape[-1]
                        self._check_length(frames, header.sample_rate_hz, header.channels)
        except AudioError as error:
            raise Refusal(422, f"{str(error).replace(str(path), 'This file')}.") from error
        return np.concatenate(blocks, axis=-1), header.sample_rate_hz, header.subtype

    def _check_length(self, frames: int, sample_rate_hz: int, channels: int) -> None:
        limits = self.limits
        if frames > limits.sound_seconds * sample_rate_hz:
            raise Refusal(413, f"The sound is longer than {limits.sound_seconds:g} s; send a stretch of it.")
        if frames * channels > limits.samples:
            seconds = limits.samples / channels / sample_rate_hz
            raise Refusal(
                413, f"With {channels} channels the limit is {seconds:.0f} s; send a shorter stretch of it."
            )


@dataclass(frozen=True)
class RestoreJob(_SoundJob):
    """Restore a sound into a file."""

    request: RestoreRequest

    def run(self, report: Report) -> Result:
        """Return the name of the file."""
        done, subtype = self.restore(report), SUBTYPES[self.request.subtype]
        name = "restored.wav"
        write(self.folder / name, done.restored, done.sample_rate_hz, done.cells, subtype=subtype)
        return {"file": name, "levels": done.levels}


@dataclass(frozen=True)
class ExploreJob(_SoundJob):
    """Restore a sound, measure it, and write all signals."""

    def run(self, report: Report) -> Result:
        """Return facts, figures, and the names of the files (parts)."""
        done = self.restore(report)
        signals = {
            "original": done.original,
            "quantized": done.quantized,
            "lower": done.cells.lo,
            "upper": done.cells.hi,
            "restored": done.restored,
        }
        parts = [
            _written(self.folder, name, signal) for name, signal in signals.items() if signal is not None
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
class LayersJob:
    """Estimate a stretch by each layer of a network, or by a number of iterations of Chambolle-Pock."""

    folder: Path
    request: LayersRequest
    choice: Choice

    def run(self, report: Report) -> Result:
        """Write all estimates, one after another; those of the network alone where methods are averaged."""
        bounds = np.fromfile(self.folder / UPLOAD, "<f4")
        if not bounds.size or bounds.size % 2 or not np.isfinite(bounds).all():
            raise Refusal(422, "Send the lower ends of all cells, then as many upper ends; all finite.")
        cells = Cells(*bounds.astype(np.float64).reshape(2, -1))
        report(0.0)
        rate, step = self.request.sample_rate_hz, self.request.step
        method = self.request.restorer(self.choice).method_for(rate, step)
        network = method.network if isinstance(method, MeanMethod) else method
        if isinstance(network, NetworkMethod):
            estimates = network.by_layer(cells)
            numbers = list(range(1, len(estimates) + 1))
        else:
            numbers = _numbers(self.request.iterations or ITERATIONS)
            estimates = []
            for number in numbers:
                estimates.append(Restorer(iterations=number, method="cp").restore_cells(cells, rate, step))
                report(len(estimates) / len(numbers))
        mixed = cells.centre + self.request.mix * (np.stack(estimates) - cells.centre)
        return {"numbers": numbers, "parts": [_written(self.folder, "estimates", mixed)]}


def _numbers(last: int) -> list[int]:
    """Return the iterations to show: all if they are few, geometrically spaced if they are many."""
    spaced = np.linspace if last <= MAX_ESTIMATES else np.geomspace
    return sorted({round(number) for number in spaced(1, last, min(last, MAX_ESTIMATES))})


def _written(folder: Path, name: str, signal: FloatArray) -> Result:
    content = signal.astype("<f4").tobytes()
    (folder / name).write_bytes(content)
    return {"name": name, "bytes": len(content)}


def _figures(done: _Restored) -> Result | None:
    """Measure the quantized and the restored signal against the original, if that is known."""
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
            f"the levels of this sound cannot be detected ({error.__cause__}); choose a bit depth or a law "
            "to quantize it first, or restore it on the command line, where levels can be described"
        ) from error


def _distance(reference: FloatArray, estimate: FloatArray, sample_rate_hz: int) -> Result:
    heard = slice(HEARD_SECONDS * sample_rate_hz)
    beginning = reference[:, heard], estimate[:, heard]
    measures = {
        "snr_db": or_none(lambda: metrics.snr_pooled(reference, estimate)),
        "mse": or_none(lambda: metrics.mse(reference, estimate)),
        "pesq": or_none(lambda: metrics.pesq(*beginning, sample_rate_hz)),
        "stoi": or_none(lambda: metrics.stoi(*beginning, sample_rate_hz)),
    }
    return {name: value if is_finite(value) else None for name, value in measures.items()}


# From upload to answer --------------------------------------------------------------------------------------

MakeJob = Callable[[Path], Job]
"""Makes the job of a folder that holds the upload."""

_CHUNK_BYTES = 1 << 18

T = TypeVar("T")


async def answer_file(
    request: Request, pool: WorkerPool, max_bytes: int, make_job: MakeJob
) -> StreamingResponse:
    """Answer a request of at most `max_bytes` with the file that its job makes."""
    deadline = _deadline(pool)
    with ExitStack() as reserved:
        folder, messages = await _start(request, pool, max_bytes, make_job, deadline, reserved)
        done = await _unless_gone(request, _last(messages))
        content = _chunks(folder / done.result["file"])
        return _Answer(content, messages, reserved.pop_all(), deadline, "audio/wav")


async def answer_parts(
    request: Request, pool: WorkerPool, max_bytes: int, make_job: MakeJob
) -> StreamingResponse:
    """Answer with lines of JSON as the job proceeds, then the parts of its result."""
    deadline = _deadline(pool)
    with ExitStack() as reserved:
        folder, messages = await _start(request, pool, max_bytes, make_job, deadline, reserved)
        first = await _unless_gone(request, anext(messages))
        content = _framed(folder, first, messages)
        return _Answer(content, messages, reserved.pop_all(), deadline, "application/octet-stream")


def _deadline(pool: WorkerPool) -> float:
    return asyncio.get_running_loop().time() + pool.limits.work_seconds


async def _start(
    request: Request,
    pool: WorkerPool,
    max_bytes: int,
    make_job: MakeJob,
    deadline: float,
    reserved: ExitStack,
) -> tuple[Path, Messages]:
    """Reserve a place, receive the upload, and return its folder and the messages of its job."""
    folder = reserved.enter_context(pool.reserve())
    try:
        async with asyncio.timeout_at(deadline):
            await _upload(request, folder / UPLOAD, max_bytes)
    except TimeoutError as error:
        raise Refusal(408, "The upload took too long; send a smaller file.") from error
    except ClientDisconnect as error:
        raise _gone() from error
    except OSError as error:
        raise no_space() from error
    return folder, pool.run(make_job(folder), deadline)


async def _upload(request: Request, path: Path, max_bytes: int) -> None:
    too_large = Refusal(413, f"The file is larger than {max_bytes >> 20} MB; send a shorter stretch of it.")
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise Refusal(415, "The body must be the sound, not a form; curl sends it by --data-binary.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise too_large
    size = 0
    with path.open("xb") as file:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise too_large
            file.write(chunk)
    if not size:
        raise Refusal(422, "The file is empty; choose another.")


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Wait for the work, or for the client to leave."""
    job, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise _gone()
        return job.result()
    finally:
        for each in (job, gone):
            each.cancel()
        with suppress(asyncio.CancelledError, Refusal):
            await job


def _gone() -> Refusal:
    return Refusal(499, "The client has left.")


class _Answer(StreamingResponse):
    """An answer that ends its job and its reservation when it is sent or the client has left."""

    def __init__(
        self,
        content: AsyncIterator[bytes] | Iterator[bytes],
        messages: Messages,
        reserved: AbstractContextManager[Any],
        deadline: float,
        media_type: str,
    ) -> None:
        super().__init__(content, media_type=media_type)
        self._messages, self._reserved, self._deadline = messages, reserved, deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._reserved, suppress(TimeoutError):
            async with aclosing(self._messages), asyncio.timeout_at(self._deadline):
                await super().__call__(scope, receive, send)


async def _last(messages: Messages) -> Done:
    async for message in messages:
        if isinstance(message, Done):
            return message
    raise AssertionError("a job ends with Done, or a Refusal")


async def _framed(folder: Path, message: float | Done, messages: Messages) -> AsyncIterator[bytes]:
    try:
        while not isinstance(message, Done):
            yield _line({"progress": message})
            message = await anext(messages)
    except Refusal as refusal:
        yield _line({"detail": refusal.sentence})
        return
    yield _line({"result": message.result})
    for part in message.result["parts"]:
        for chunk in _chunks(folder / part["name"]):
            yield chunk


def _line(value: object) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
