"""The server behind ``pdrn serve``: routes, and which hosts and origins may use them."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Query, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pdrn.audio.corpus import speech
from pdrn.audio.files import write
from pdrn.errors import InputError, system_reason
from pdrn.restoration.methods import ITERATIONS
from pdrn.web.jobs import answer, explore_sound, restore_sound, show_layers
from pdrn.web.live import serve_live
from pdrn.web.schemas import (
    MAX_ITERATIONS,
    Choices,
    ExploreRequest,
    LayersRequest,
    OfferedMethod,
    Refusal,
    RestoreRequest,
    validation_message,
)
from pdrn.web.worker_pool import WorkerPool

STATIC = Path(__file__).parent / "static"
SAMPLE_SECONDS = 6
MAX_CELLS = 1 << 15
"""Limit of cells of a request for layers."""

# Routes -----------------------------------------------------------------------------------------------------


class Problem(BaseModel):
    """The body of a refusal: a sentence."""

    detail: str


class Offer(BaseModel):
    """The methods on offer, and the limits."""

    methods: list[OfferedMethod]
    iterations: int
    """Default number of iterations of Chambolle-Pock."""
    max_iterations: int
    upload_bytes: int
    sound_seconds: float


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "The request is not HTTP.",
        403: "Another origin or host.",
        408: "The upload took too long.",
        413: "Too large or too long.",
        415: "A form instead of a sound.",
        422: "Not a sound, or it cannot be restored by these settings.",
        429: "Too many requests at once.",
        503: "It took too long, its worker was killed, or there is no temporary space.",
    }.items()
}

WAV, PARTS = "audio/wav", "application/octet-stream"


def _route(media_type: str, answer: str, body: str) -> dict[str, Any]:
    """Return the OpenAPI description of a route that takes bytes and answers with bytes."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = {"application/octet-stream": binary}
    return {
        "response_class": StreamingResponse,
        "responses": {200: {"description": answer, "content": {media_type: binary}}, **REFUSALS},
        "openapi_extra": {"requestBody": {"required": True, "description": body, "content": content}},
    }


def application(pool: WorkerPool, choices: Choices, host_names: Collection[str] = ()) -> FastAPI:
    """Return the application, whose jobs run in an open worker pool."""
    app = FastAPI(
        title="pdrn",
        description="Restore quantized sound inside its cells.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.add_middleware(Guard, names=host_names)
    limits = pool.limits
    live_places = asyncio.Semaphore(limits.live)
    sample = pool.folder / "sample.wav"
    samples, sample_rate_hz = speech()
    write(sample, samples[: SAMPLE_SECONDS * sample_rate_hz], sample_rate_hz, subtype="PCM_16")

    @app.get("/api/models")
    def models() -> Offer:
        """Return the methods on offer, and the limits."""
        return Offer(
            methods=list(choices.values()),
            iterations=ITERATIONS,
            max_iterations=MAX_ITERATIONS,
            upload_bytes=limits.upload_bytes,
            sound_seconds=limits.sound_seconds,
        )

    @app.get(
        "/api/sample",
        response_class=FileResponse,
        responses={200: {"description": "Some speech.", "content": {WAV: {}}}, **REFUSALS},
    )
    def sample_of_speech() -> FileResponse:
        """Return the bundled speech, as a WAV file."""
        return FileResponse(sample, media_type=WAV)

    @app.post(
        "/api/restore", **_route(WAV, "The restored sound.", "A sound file: WAV, FLAC, AIFF, AU or Ogg.")
    )
    async def restore(request: Request, options: Annotated[RestoreRequest, Query()]) -> StreamingResponse:
        """Restore a sound, and return it as a WAV file."""
        options.quantizer()  # refuses settings that contradict each other before the upload
        restorer = options.restorer(choices)
        job = partial(restore_sound, request=options, restorer=restorer, limits=limits)
        return await answer(request, pool, limits.upload_bytes, job, WAV)

    @app.post(
        "/api/explore",
        **_route(
            PARTS,
            "Lines of JSON, then the parts that the last one names.",
            "A sound file, as for /api/restore.",
        ),
    )
    async def explore(request: Request, options: Annotated[ExploreRequest, Query()]) -> StreamingResponse:
        """Restore a sound, and return all signals, cells, figures and files.

        The answer begins with lines of JSON: `{"progress": share}` several times, then `{"result": facts}`,
        or `{"detail": sentence}` if it failed. The `parts` of the result follow in their order, each with its
        number of bytes: signals as float32, channel by channel, and files.
        """
        options.quantizer()
        restorer = options.restorer(choices)
        job = partial(explore_sound, request=options, restorer=restorer, limits=limits)
        return await answer(request, pool, limits.upload_bytes, job, PARTS)

    @app.post(
        "/api/layers",
        **_route(
            PARTS,
            "As of /api/explore; the one part holds all estimates.",
            "The lower ends of cells as float32, then as many upper ends.",
        ),
    )
    async def layers(request: Request, options: Annotated[LayersRequest, Query()]) -> StreamingResponse:
        """Return the estimate of each layer of a network, or of iterations of Chambolle-Pock."""
        job = partial(show_layers, request=options, restorer=options.restorer(choices))
        return await answer(request, pool, 8 * MAX_CELLS, job, PARTS)

    @app.websocket("/api/live")
    async def live(socket: WebSocket) -> None:
        await serve_live(socket, live_places, choices)

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        return JSONResponse({"detail": refusal.sentence}, refusal.status)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        problem = validation_message(error.errors()[0])
        return JSONResponse({"detail": f"A setting is not valid: {problem}."}, 422)

    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return app


# Security ---------------------------------------------------------------------------------------------------

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware that refuses foreign hosts and origins, and adds security headers to every answer.

    A page on the web can let its own host name point to this machine (DNS rebinding). Its requests carry that
    name as Host. So only known names are served, and IP addresses, which no page can claim as its name.

    Parameters
    ----------
    app : ASGI application
    names : collection of str
        Host names of this server, beside localhost.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, {name.lower() for name in ("localhost", *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        reason = self._refusal(Headers(scope=scope), scope["path"])
        if scope["type"] == "websocket":
            if reason:
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        app = JSONResponse({"detail": reason}, 403) if reason else self._app
        await app(scope, receive, send_guarded)

    def _refusal(self, headers: Headers, path: str) -> str | None:
        host = headers.get("host", "")
        if not self._is_known(host):
            return "This server does not know that host name; start it with --allow-host, or use its address."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "Pages of other origins may not use this server."
        if path.startswith("/api/") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return "Pages of other origins may not use this server."
        return None

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True


# Listening --------------------------------------------------------------------------------------------------


class Server(uvicorn.Server):
    """A server that logs no errors of requests that are cut off when it ends."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """Open a socket, and yield it with its address for browsers."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"{host} port {port} cannot be used: {system_reason(error)}; choose another"
        ) from error
    with opened:
        everywhere = host in ("0.0.0.0", "::")  # which a browser cannot open
        name = "localhost" if everywhere else f"[{host}]" if ":" in host else host
        yield opened, f"http://{name}:{opened.getsockname()[1]}"
