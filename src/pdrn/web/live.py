"""The microphone: chunks in, chunks out, over a WebSocket.

The client's first message is JSON (`LiveWishes`), answered by ``{"latency_samples": ..., "latency_seconds":
...}``, by how much the output is behind the input. Every binary message after it holds float32 samples and is
answered by one: as many quantized samples as are ready, and the same ones restored. The text ``end`` has the
rest sent, and the connection closed. What is refused is said as ``{"detail": ...}`` before closing.
"""

from __future__ import annotations

import asyncio

import numpy as np
from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from pdrn.audio.quantizers import Coder
from pdrn.restoration.streaming import Restored, Stream
from pdrn.web.schemas import Choice, LiveWishes, Refusal, said, sentence

LONGEST_CHUNK = 1 << 16
IDLE_SECONDS = 30.0
POLICY_VIOLATION = 1008


class Microphones:
    """Restores what microphones send, so many at once.

    Parameters
    ----------
    most : int
    choices : dict of Choice
        By name.
    """

    def __init__(self, most: int, choices: dict[str, Choice]) -> None:
        self._free, self._choices = most, choices

    async def serve(self, socket: WebSocket) -> None:
        """Talk to one until it ends."""
        await socket.accept()
        try:
            if not self._free:
                raise Refusal(429, "Others are speaking; try again in a moment.")
            self._free -= 1
            try:
                await self._converse(socket)
            finally:
                self._free += 1
            await socket.close()
        except (Refusal, ValueError) as reason:
            await _refuse(socket, reason)
        except WebSocketDisconnect:
            pass

    async def _converse(self, socket: WebSocket) -> None:
        wishes = _wishes(await _received(socket))
        quantizer, known = wishes.known()
        restorer = wishes.restorer(wishes.choice(self._choices))
        live = _Live(quantizer, restorer.stream_for(wishes.sample_rate_hz, known))
        await socket.send_json(live.latency)
        while (message := await _received(socket)) != "end":
            if isinstance(message, str):
                raise Refusal(422, "After the settings come samples, or the word end.")
            await socket.send_bytes(await asyncio.to_thread(live.feed, message))
        await socket.send_bytes(await asyncio.to_thread(live.flush))


class _Live:
    def __init__(self, quantizer: Coder, stream: Stream) -> None:
        self._quantizer, self._stream = quantizer, stream

    @property
    def latency(self) -> dict[str, float]:
        return {
            "latency_samples": self._stream.latency_samples,
            "latency_seconds": self._stream.latency_seconds,
        }

    def feed(self, message: bytes) -> bytes:
        if len(message) % 4 or len(message) > 4 * LONGEST_CHUNK:
            raise Refusal(422, f"A chunk holds float32 samples, {LONGEST_CHUNK} at most.")
        samples = np.frombuffer(message, "<f4").astype(np.float64)
        if not np.isfinite(samples).all():
            raise Refusal(422, "A sample is NaN or infinite.")
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
        raise Refusal(408, "Nothing was heard for too long.") from error
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    text: str | None = message.get("text")
    return message["bytes"] if text is None else text


def _wishes(message: str | bytes) -> LiveWishes:
    try:
        return LiveWishes.model_validate_json(message)
    except ValidationError as error:
        raise Refusal(422, f"The first message holds the settings: {said(error.errors()[0])}.") from error


async def _refuse(socket: WebSocket, reason: Exception) -> None:
    detail = reason.sentence if isinstance(reason, Refusal) else sentence(reason)
    try:
        await socket.send_json({"detail": detail})
        await socket.close(POLICY_VIOLATION)
    except (RuntimeError, WebSocketDisconnect):  # it has left
        pass
