"""The server behind ``pdrn serve``: routes and answers."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import FastAPI, Query, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

from pdrn.audio.corpus import speech
from pdrn.audio.files import write
from pdrn.errors import StorageError, system_reason
from pdrn.restoration.methods import ITERATIONS
from pdrn.web.jobs import SUBTYPES, Exploring, Layering, Restoring, Work
from pdrn.web.live import Microphones
from pdrn.web.schemas import MOST_ITERATIONS, Choice, FileWishes, Refusal, Stretch, Wishes, said
from pdrn.web.security import Guard
from pdrn.web.worker_pool import Task, Workshop

STATIC = Path(__file__).parent / "static"
SAMPLE_SECONDS = 6
LONGEST_STRETCH = 1 << 15
"""How many cells may be asked about at once, layer by layer."""


class Problem(BaseModel):
    """What went wrong, in a sentence."""

    detail: str


class Offered(BaseModel):
    """A method: the one that fits by itself, a network, or the solver; for one sample rate, or any."""

    name: str
    title: str
    kind: Literal["automatic", "network", "solver"]
    sample_rate_hz: int | None


class Offer(BaseModel):
    """What there is to choose from, and how much is taken."""

    methods: list[Offered]
    iterations: int
    """Of Chambolle-Pock, unless others are asked for."""
    most_iterations: int
    upload_bytes: int
    sound_seconds: float


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "The request is not one of HTTP.",
        403: "Another origin or host.",
        408: "The upload took too long.",
        413: "Too large or too long.",
        415: "A form, and not a sound.",
        422: "Not a sound, or nothing that can be restored so.",
        429: "Too many requests at once.",
        503: "It took too long, or its process was killed.",
    }.items()
}


def _body(description: str) -> dict[str, Any]:
    schema = {"type": "string", "format": "binary"}
    content = {"application/octet-stream": {"schema": schema}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def _answer(media_type: str, description: str) -> dict[int | str, dict[str, Any]]:
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {200: {"description": description, "content": content}, **REFUSALS}


def application(workshop: Workshop, choices: dict[str, Choice], host_names: Collection[str] = ()) -> FastAPI:
    """Return the server, which hands its work to a workshop that is open."""
    app = FastAPI(
        title="pdrn",
        description="Restore quantized sound inside its cells.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.add_middleware(Guard, names=host_names)
    limits = workshop.limits
    microphones = Microphones(limits.live, choices)
    sample = workshop.folder / "sample.wav"
    samples, sample_rate_hz = speech()
    write(sample, samples[: SAMPLE_SECONDS * sample_rate_hz], sample_rate_hz, subtype="PCM_16")

    @app.get("/api/models")
    def models() -> Offer:
        """Return the methods, and how much is taken."""
        return Offer(
            methods=[Offered.model_validate(each, from_attributes=True) for each in choices.values()],
            iterations=ITERATIONS,
            most_iterations=MOST_ITERATIONS,
            upload_bytes=limits.upload_bytes,
            sound_seconds=limits.sound_seconds,
        )

    @app.get("/api/sample", response_class=FileResponse, responses=_answer("audio/wav", "Some speech."))
    def sample_of_speech() -> FileResponse:
        """Return the speech that comes along, as a WAV file."""
        return FileResponse(sample, media_type="audio/wav")

    @app.post(
        "/api/restore",
        response_class=StreamingResponse,
        responses=_answer("audio/wav", "The restored sound."),
        openapi_extra=_body("A sound file: WAV, FLAC, AIFF, AU or Ogg."),
    )
    async def restore(request: Request, wishes: Annotated[FileWishes, Query()]) -> StreamingResponse:
        """Restore a sound, and return it as a WAV file."""
        choice = _checked(wishes, choices)

        def task(folder: Path) -> Task:
            return Restoring(folder, wishes, choice, limits, SUBTYPES[wishes.subtype])

        return await Work(request, workshop, limits.upload_bytes).file(task)

    @app.post(
        "/api/explore",
        response_class=StreamingResponse,
        responses=_answer(
            "application/octet-stream", "Lines of JSON, then the parts that the last one names."
        ),
        openapi_extra=_body("A sound file, as for /api/restore."),
    )
    async def explore(request: Request, wishes: Annotated[Wishes, Query()]) -> StreamingResponse:
        """Restore a sound, and return all there is to hear and see.

        The answer begins with lines of JSON: `{"progress": share}` as often as there is some, and at last
        `{"result": facts}`, or `{"detail": sentence}` where it came to nothing. After the result follow its
        `parts`, one after another, of so many bytes each: signals as float32, channel by channel, and files.
        """
        choice = _checked(wishes, choices)

        def task(folder: Path) -> Task:
            return Exploring(folder, wishes, choice, limits)

        return await Work(request, workshop, limits.upload_bytes).parts(task)

    @app.post(
        "/api/layers",
        response_class=StreamingResponse,
        responses=_answer(
            "application/octet-stream", "As of /api/explore; the one part holds all estimates."
        ),
        openapi_extra=_body("The lower ends of cells as float32, then as many upper ends."),
    )
    async def layers(request: Request, stretch: Annotated[Stretch, Query()]) -> StreamingResponse:
        """Return what each layer of a network, or each iteration of Chambolle-Pock, makes of a stretch."""
        choice = stretch.choice(choices)
        stretch.restorer(choice)

        def task(folder: Path) -> Task:
            return Layering(folder, stretch, choice)

        return await Work(request, workshop, 8 * LONGEST_STRETCH).parts(task)

    @app.websocket("/api/live")
    async def live(socket: WebSocket) -> None:
        await microphones.serve(socket)

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        return JSONResponse({"detail": refusal.sentence}, refusal.status)

    @app.exception_handler(RequestValidationError)
    async def misunderstood(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": f"This was not understood: {said(error.errors()[0])}."}, 422)

    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


def _checked(wishes: Wishes, choices: dict[str, Choice]) -> Choice:
    """Refuse at once what cannot be, before anything is uploaded."""
    choice = wishes.choice(choices)
    wishes.quantizer()
    wishes.restorer(choice)
    return choice


class Server(uvicorn.Server):
    """A server that ends quietly: requests that are cut off then are no errors."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """Open a socket, and yield it with the address that a browser finds it at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else system_reason(error)
        raise StorageError(f"{host} port {port} cannot be had: {reason}; choose another") from error
    with opened:
        everywhere = host in ("0.0.0.0", "::")  # where it listens, and no address of anything
        name = "localhost" if everywhere else f"[{host}]" if ":" in host else host
        yield opened, f"http://{name}:{opened.getsockname()[1]}"
