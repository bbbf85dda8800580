"""The jobs of the page (restore, explore, layers), and a request from upload to answer.

A job runs in a worker process. It reads the upload from the folder of its request, writes everything large
there, and returns a small result.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
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
from pdrn.audio.detection import choose_quantizer
from pdrn.audio.files import open_audio, write
from pdrn.audio.metrics import is_finite, or_none
from pdrn.audio.quantizers import Observer, Quantizer
from pdrn.errors import AudioError, InputError, UndetectedError
from pdrn.restoration.methods import (
    ITERATIONS,
    MeanMethod,
    Method,
    NetworkMethod,
    SpectralMethod,
    describe_method,
)
from pdrn.restoration.restorer import Restorer
from pdrn.web.schemas import ExploreRequest, LayersRequest, Limits, Refusal, RestoreRequest
from pdrn.web.worker_pool import Job, Messages, Report, Result, WorkerPool, no_space

UPLOAD = "upload"
SUBTYPES = {"float": "FLOAT", "pcm24": "PCM_24"}

PERCEPTUAL_SECONDS = 20
"""PESQ and STOI are slow: they are measured on this much of the beginning."""

MAX_ESTIMATES = 24

# Jobs -------------------------------------------------------------------------------------------------------


def restore_sound(
    folder: Path, report: Report, *, request: RestoreRequest, restorer: Restorer, limits: Limits
) -> Result:
    """Restore the uploaded sound into a WAV file, and return its name."""
    done = _restore(folder, report, request, restorer, limits)
    subtype = SUBTYPES[request.subtype]
    write(folder / "restored.wav", done.restored, done.sample_rate_hz, done.cells, subtype=subtype)
    return {"file": "restored.wav"}


def explore_sound(
    folder: Path, report: Report, *, request: ExploreRequest, restorer: Restorer, limits: Limits
) -> Result:
    """Restore the uploaded sound; write all signals, and return facts, figures and the names of the files."""
    done = _restore(folder, report, request, restorer, limits)
    signals = {
        "quantized": done.quantized,
        "lower": done.cells.lo,
        "upper": done.cells.hi,
        "restored": done.restored,
    }
    if done.original is not None:
        signals["original"] = done.original
    parts = [_write_part(folder, name, signal) for name, signal in signals.items()]
    for name, subtype in SUBTYPES.items():
        target = folder / f"{name}.wav"
        try:
            write(target, done.restored, done.sample_rate_hz, done.cells, subtype=subtype)
        except AudioError:  # the cells are too narrow for it
            continue
        parts.append({"name": target.name, "bytes": target.stat().st_size})
    report(0.95)
    channels, frames = done.quantized.shape
    return {
        "sample_rate_hz": done.sample_rate_hz,
        "channels": channels,
        "frames": frames,
        "levels": str(done.quantizer),
        "step": done.quantizer.step,
        "model": done.method.model,
        "restored_by": describe_method(done.method.name, done.method.model),
        "times_real_time": frames / done.sample_rate_hz / done.seconds,
        "violation": done.cells.violation(done.restored),
        "figures": None if done.original is None else _figures(done.original, done),
        "parts": parts,
    }


def show_layers(folder: Path, report: Report, *, request: LayersRequest, restorer: Restorer) -> Result:
    """Estimate a stretch by each layer of a network, or by numbers of iterations of Chambolle-Pock.

    All estimates go into one file. Where network and solver are averaged, they are the network's.
    """
    bounds = np.fromfile(folder / UPLOAD, "<f4")
    if not bounds.size or bounds.size % 2 or not np.isfinite(bounds).all():
        raise Refusal(422, "Send the lower ends of all cells, then as many upper ends; all finite.")
    cells = Cells(*bounds.astype(np.float64).reshape(2, -1))
    report(0.0)
    rate, step = request.sample_rate_hz, request.step
    method = restorer.method_for(rate, step)
    network = method.network if isinstance(method, MeanMethod) else method
    if isinstance(network, NetworkMethod | SpectralMethod):
        estimates = network.by_layer(cells)
        numbers = list(range(1, len(estimates) + 1))
    else:
        numbers = _iterations_to_show(request.iterations or ITERATIONS)
        estimates = []
        for number in numbers:
            estimates.append(Restorer(iterations=number, method="cp").restore_cells(cells, rate, step))
            report(len(estimates) / len(numbers))
    mixed = cells.centre + request.mix * (np.stack(estimates) - cells.centre)
    return {"numbers": numbers, "parts": [_write_part(folder, "estimates", mixed)]}


def _iterations_to_show(last: int) -> list[int]:
    """Return all numbers up to the last if they are few, otherwise geometrically spaced ones."""
    spaced = np.linspace if last <= MAX_ESTIMATES else np.geomspace
    return sorted({round(number) for number in spaced(1, last, min(last, MAX_ESTIMATES))})


@dataclass(frozen=True, eq=False)
class _Restoration:
    """All signals have the shape (channels, frames)."""

    original: FloatArray | None
    """The sound before quantization; None if it came quantized."""
    quantized: FloatArray
    quantizer: Quantizer
    cells: Cells
    restored: FloatArray
    method: Method
    sample_rate_hz: int
    seconds: float


def _restore(
    folder: Path, report: Report, request: ExploreRequest, restorer: Restorer, limits: Limits
) -> _Restoration:
    """Read, quantize and restore the uploaded sound."""
    samples, rate, subtype = _read(folder / UPLOAD, limits)
    coder = request.quantizer()
    if coder is None:
        quantized = samples
    else:
        peak = float(np.abs(samples).max())
        if peak > 1:
            raise Refusal(422, f"The sound goes up to {peak:.3g}, beyond full scale of 1; turn it down.")
        quantized, subtype = np.asarray(coder.quantize(samples), np.float64), ""
    try:
        quantizer = choose_quantizer(quantized, request.options(), subtype)
    except UndetectedError as error:
        raise InputError(
            f"the levels of this sound cannot be detected ({error.__cause__}); choose a bit depth or a law "
            "to quantize it first, or restore it on the command line, where levels can be described"
        ) from error
    cells = Observer(quantizer).observe(quantized)
    method = restorer.method_for(rate, quantizer.step)  # refuses the wrong rate or step before any answer
    report(0.0)
    began = time.perf_counter()
    restored = restorer.restore_cells(
        cells, rate, quantizer.step, lambda done, _: report(0.9 * done / quantized.shape[-1])
    )
    seconds = time.perf_counter() - began
    original = None if coder is None else samples
    return _Restoration(original, quantized, quantizer, cells, restored, method, rate, seconds)


def _read(path: Path, limits: Limits) -> tuple[NDArray[np.float64], int, str]:
    """Return samples, sample rate and subtype of a sound; refuse one that is too long, as soon as it is."""
    try:
        with open_audio(path) as (header, sounds):
            blocks, frames = [], 0
            _check_length(header.frames or 0, header.sample_rate_hz, header.channels, limits)
            for sound in sounds:
                blocks.append(np.atleast_2d(sound.samples))
                frames += blocks[-1].shape[-1]
                _check_length(frames, header.sample_rate_hz, header.channels, limits)
    except AudioError as error:
        raise Refusal(422, f"{str(error).replace(str(path), 'This file')}.") from error
    return np.concatenate(blocks, axis=-1), header.sample_rate_hz, header.subtype


def _check_length(frames: int, sample_rate_hz: int, channels: int, limits: Limits) -> None:
    if frames > limits.sound_seconds * sample_rate_hz:
        raise Refusal(413, f"The sound is longer than {limits.sound_seconds:g} s; send a stretch of it.")
    if frames * channels > limits.samples:
        seconds = limits.samples / channels / sample_rate_hz
        raise Refusal(
            413, f"With {channels} channels the limit is {seconds:.0f} s; send a shorter stretch of it."
        )


def _write_part(folder: Path, name: str, signal: FloatArray) -> Result:
    content = signal.astype("<f4").tobytes()
    (folder / name).write_bytes(content)
    return {"name": name, "bytes": len(content)}


def _figures(original: FloatArray, done: _Restoration) -> Result:
    """Measure the quantized and the restored signal against the original."""
    beginning = np.s_[:, : PERCEPTUAL_SECONDS * done.sample_rate_hz]

    def measure(estimate: FloatArray) -> Result:
        excerpt = original[beginning], estimate[beginning], done.sample_rate_hz
        figures = {
            "snr_db": or_none(lambda: metrics.snr_pooled(original, estimate)),
            "mse": metrics.mse(original, estimate),
            "pesq": or_none(lambda: metrics.pesq(*excerpt)),
            "stoi": or_none(lambda: metrics.stoi(*excerpt)),
        }
        return {name: value if is_finite(value) else None for name, value in figures.items()}

    return {
        "heard_seconds": PERCEPTUAL_SECONDS,
        "quantized": measure(done.quantized),
        "restored": measure(done.restored),
    }


# From upload to answer --------------------------------------------------------------------------------------

_CHUNK_BYTES = 1 << 18

T = TypeVar("T")


async def answer(
    request: Request, pool: WorkerPool, max_bytes: int, job: Job, media_type: str
) -> StreamingResponse:
    """Receive an upload of at most `max_bytes`, run the job on it, and stream its answer.

    The answer "audio/wav" is the file of the result. Any other is lines of JSON while the job runs, then the
    parts of the result.
    """
    deadline = asyncio.get_running_loop().time() + pool.limits.work_seconds
    with ExitStack() as reserved:
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
        messages = pool.run(job, folder, deadline)
        content: AsyncIterator[bytes] | Iterator[bytes]
        if media_type == "audio/wav":
            result = await _unless_gone(request, _result(messages))
            content = _chunks(folder / result["file"])
        else:
            first = await _unless_gone(request, anext(messages))
            content = _framed(folder, first, messages)
        return _Answer(content, messages, reserved.pop_all(), deadline, media_type)


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


async def _result(messages: Messages) -> Result:
    *_, result = [message async for message in messages]
    assert isinstance(result, dict)
    return result


async def _framed(folder: Path, message: float | Result, messages: Messages) -> AsyncIterator[bytes]:
    try:
        while not isinstance(message, dict):
            yield _line({"progress": message})
            message = await anext(messages)
    except Refusal as refusal:
        yield _line({"detail": refusal.sentence})
        return
    yield _line({"result": message})
    for part in message["parts"]:
        for chunk in _chunks(folder / part["name"]):
            yield chunk


def _line(value: object) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
