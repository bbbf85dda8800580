"""Live sessions: chunks of a microphone in, restored chunks out, over a WebSocket.

The client's first message is JSON (`LiveRequest`). The answer, ``{"latency_samples": ...,
"latency_seconds": ...}``, says how far the output is behind the input. Every binary message after it holds
float32 samples and is answered by one: the quantized samples that are ready, then the same samples restored.
The text ``end`` flushes the rest and closes the connection. A refusal is ``{"detail": ...}`` before closing.
"""

from __future__ import annotations

import asyncio

import numpy as np
from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from pdrn.audio.quantizers import Coder
from pdrn.errors import InputError
from pdrn.restoration.streaming import Restored, Stream
from pdrn.web.schemas import Choices, LiveRequest, Refusal, sentence, validation_message

MAX_CHUNK = 1 << 16
IDLE_SECONDS = 30.0
POLICY_VIOLATION = 1008


class LiveSessions:
    """All live sessions of the server.

    Parameters
    ----------
    limit : int
        Number of sessions at once.
    choices : dict of Choice
        The methods on offer.
    """

    def __init__(self, limit: int, choices: Choices) -> None:
        self._free, self._choices = limit, choices

    async def serve(self, socket: WebSocket) -> None:
        """Serve one session until it ends."""
        await socket.accept()
        try:
            if not self._free:
                raise Refusal(429, "Too many live sessions; try again shortly.")
            self._free -= 1
            try:
                await self._exchange(socket)
            finally:
                self._free += 1
            await socket.close()
        except (Refusal, InputError) as reason:
            await _refuse(socket, reason)
        except WebSocketDisconnect:
            pass

    async def _exchange(self, socket: WebSocket) -> None:
        request = _request(await _received(socket))
        coder, quantizer = request.known_quantizer()
        restorer = request.restorer(request.choice(self._choices))
        session = _Session(coder, restorer.stream_for(request.sample_rate_hz, quantizer))
        await socket.send_json(session.latency)
        while (message := await _received(socket)) != "end":
            if isinstance(message, str):
                raise Refusal(422, "After the settings come samples, or the word end.")
            await socket.send_bytes(await asyncio.to_thread(session.feed, message))
        await socket.send_bytes(await asyncio.to_thread(session.flush))


class _Session:
    def __init__(self, quantizer: Coder, stream: Stream) -> None:
        self._quantizer, self._stream = quantizer, stream

    @property
    def latency(self) -> dict[str, float]:
        return {
            "latency_samples": self._stream.latency_samples,
            "latency_seconds": self._stream.latency_seconds,
        }

    def feed(self, message: bytes) -> bytes:
        if len(message) % 4 or len(message) > 4 * MAX_CHUNK:
            raise Refusal(422, f"A chunk holds float32 samples, {MAX_CHUNK} at most.")
        samples = np.frombuffer(message, "<f4").astype(np.float64)
        if not np.isfinite(samples).all():
            raise Refusal(422, "A sample is NaN or infinite; send numbers.")
        quantized = self._quantizer.quantize(np.clip(samples, -1, 1))
        return _pair(self._stream.feed_cells(quantized))

    def flush(self) -> bytes:
        return _pair(self._stream.flush_cells())


def _pair(restored: Restored) -> bytes:
    both = np.concatenate([restored.cells.centre[0], restored.samples[0]])
    return both.astype("<f4").tobytes()


async def _received(socket: WebSocket) -> str | bytes:
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            message = await socket.receive()
    except TimeoutError as error:
        raise Refusal(408, f"No samples arrived for {IDLE_SECONDS:g} s; start again.") from error
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    text: str | None = message.get("text")
    return message["bytes"] if text is None else text


def _request(message: str | bytes) -> LiveRequest:
    try:
        return LiveRequest.model_validate_json(message)
    except ValidationError as error:
        problem = validation_message(error.errors()[0])
        raise Refusal(422, f"The first message holds the settings: {problem}.") from error


async def _refuse(socket: WebSocket, reason: Exception) -> None:
    detail = reason.sentence if isinstance(reason, Refusal) else sentence(reason)
    try:
        await socket.send_json({"detail": detail})
        await socket.close(POLICY_VIOLATION)
    except (RuntimeError, WebSocketDisconnect):  # the client has left
        pass
