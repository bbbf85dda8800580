"""Live sessions: chunks of a microphone in, restored chunks out, over a WebSocket.

The client's first message is JSON (`LiveRequest`). The answer, ``{"latency_samples": ...,
"latency_seconds": ...}``, says how far the output is behind the input. Every binary message after it holds
float32 samples and is answered by one: the quantized samples that are ready, then the same samples restored.
The text ``end`` flushes the rest and closes the connection. A refusal is ``{"detail": ...}`` before closing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np
from fastapi import WebSocket, WebSocketDisconnect
from numpy.typing import NDArray
from pydantic import ValidationError

from pdrn.errors import InputError
from pdrn.restoration.streaming import Restored
from pdrn.web.schemas import Choices, LiveRequest, Refusal, sentence, validation_message

MAX_CHUNK = 1 << 16
IDLE_SECONDS = 30.0
POLICY_VIOLATION = 1008


async def serve_live(socket: WebSocket, places: asyncio.Semaphore, choices: Choices) -> None:
    """Serve one session until it ends; refuse it if all places are taken."""
    await socket.accept()
    try:
        if places.locked():
            raise Refusal(429, "Too many live sessions; try again shortly.")
        async with places:
            await _exchange(socket, choices)
        await socket.close()
    except (Refusal, InputError) as reason:
        detail = reason.sentence if isinstance(reason, Refusal) else sentence(reason)
        with suppress(RuntimeError, WebSocketDisconnect):  # the client has left
            await socket.send_json({"detail": detail})
            await socket.close(POLICY_VIOLATION)
    except WebSocketDisconnect:
        pass


async def _exchange(socket: WebSocket, choices: Choices) -> None:
    try:
        request = LiveRequest.model_validate_json(await _received(socket))
    except ValidationError as error:
        problem = validation_message(error.errors()[0])
        raise Refusal(422, f"The first message holds the settings: {problem}.") from error
    coder, quantizer = request.known_quantizer()
    stream = request.restorer(choices).stream_for(request.sample_rate_hz, quantizer)

    def feed(message: bytes) -> bytes:
        return _pair(stream.feed_cells(coder.quantize(_samples(message))))

    def flush() -> bytes:
        return _pair(stream.flush_cells())

    latency = {"latency_samples": stream.latency_samples, "latency_seconds": stream.latency_seconds}
    await socket.send_json(latency)
    while (message := await _received(socket)) != "end":
        if isinstance(message, str):
            raise Refusal(422, "After the settings come samples, or the word end.")
        await socket.send_bytes(await asyncio.to_thread(feed, message))
    await socket.send_bytes(await asyncio.to_thread(flush))


def _samples(message: bytes) -> NDArray[np.float64]:
    if len(message) % 4 or len(message) > 4 * MAX_CHUNK:
        raise Refusal(422, f"A chunk holds float32 samples, {MAX_CHUNK} at most.")
    samples = np.frombuffer(message, "<f4").astype(np.float64)
    if not np.isfinite(samples).all():
        raise Refusal(422, "A sample is NaN or infinite; send numbers.")
    return np.clip(samples, -1, 1)


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
