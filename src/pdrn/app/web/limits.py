"""How much the server takes on, and how it says no."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request may cost, and how many there may be."""

    upload_bytes: int = 64 << 20
    sound_seconds: float = 300.0
    samples_per_second: int = 53_333
    """Of all channels together, in the mean over the longest sound: memory grows with them."""
    work_seconds: float = 300.0
    """From a request's beginning to its answer, the upload and waiting included."""
    jobs: int = 2
    """Processes that restore side by side."""
    waiting: int = 16
    """Requests that wait for a process."""
    live: int = 2
    """Microphones at once."""

    @property
    def samples(self) -> int:
        """How many samples a sound may have, of all channels together."""
        return round(self.sound_seconds * self.samples_per_second)


class Refusal(Exception):
    """What is answered instead of a result: a status of HTTP and a sentence for people."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(status, sentence)
        self.status, self.sentence = status, sentence


def sentence(error: Exception) -> str:
    """Return what an error says as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def too_large(limit_bytes: int) -> Refusal:
    """Return the refusal of a body that is larger than this."""
    return Refusal(413, f"The file is larger than {limit_bytes >> 20} MB; send a shorter stretch of it.")


def took_too_long(limit_seconds: float) -> Refusal:
    """Return the refusal of work that took longer than this."""
    return Refusal(503, f"This took longer than {limit_seconds:g} s and was stopped; try a shorter sound.")
