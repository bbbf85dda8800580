"""One request: its upload, its task, and the answer, until it is sent or the client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from pdrn.app.web.conversing import Done, Task
from pdrn.app.web.limits import Refusal, too_large
from pdrn.app.web.tasks import UPLOAD
from pdrn.app.web.workshop import Messages, Workshop

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
