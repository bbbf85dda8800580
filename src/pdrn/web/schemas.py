"""What a client may ask for, the methods on offer, the limits, and how requests are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pdrn.audio.detection import QuantizerOptions, choose_quantizer
from pdrn.audio.quantizers import LAWS, Coder, MidRise, Quantizer
from pdrn.errors import InputError
from pdrn.restoration import registry
from pdrn.restoration.restorer import MethodName, Restorer


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


AUTOMATIC: MethodName = "auto"
MOST_ITERATIONS = 500


@dataclass(frozen=True)
class Choice:
    """A way to restore, as the page offers it."""

    name: str
    title: str
    kind: Literal["automatic", "network", "solver"]
    sample_rate_hz: int | None = None
    """The only rate that it is for, if any."""
    method: MethodName = AUTOMATIC
    model: str | None = None
    """The network's name, or its file."""

    def restorer(self, iterations: int | None = None, mix: float = 1.0) -> Restorer:
        """Return what restores in this way; an InputError says what cannot be."""
        return Restorer(self.model, iterations, mix, method=self.method)


def choices(models: Sequence[Path]) -> dict[str, Choice]:
    """Return the choices by name, with networks that come along, and others from files."""
    automatic = Choice(AUTOMATIC, "Automatic", "automatic")
    solver = Choice("cp", "Chambolle-Pock", "solver", method="cp")
    shipped = [_network(name, name) for name in registry.names()]
    own = [_network(path.stem, str(path)) for path in models]
    found: dict[str, Choice] = {}
    for choice in (automatic, *shipped, *own, solver):
        if choice.name in found:
            raise InputError(f"two methods would be called {choice.name}; rename the file")
        found[choice.name] = choice
    return found


def _network(name: str, model: str) -> Choice:
    rate = registry.read_model(model).provenance.sample_rate_hz
    return Choice(name, f"Network {name}", "network", rate, "network", model)


Iterations = Annotated[
    int | None,
    Field(ge=1, le=MOST_ITERATIONS, description="Of Chambolle-Pock, instead of what is tuned."),
]
Method = Annotated[str, Field(max_length=100, description="A name from `GET /api/models`.")]


class How(BaseModel):
    """How to restore."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Method = AUTOMATIC
    iterations: Iterations = None
    mix: float = Field(1.0, ge=0, le=1, description="From 0, the centres of the cells, to 1, all of it.")

    def choice(self, choices: dict[str, Choice]) -> Choice:
        """Return the method that is meant."""
        if self.method not in choices:
            raise Refusal(422, f"There is no such method; there are {', '.join(choices)}.")
        return choices[self.method]

    def restorer(self, choice: Choice) -> Restorer:
        """Return what restores so."""
        try:
            return choice.restorer(self.iterations, self.mix)
        except ValueError as error:
            raise Refusal(422, sentence(error)) from error


class Wishes(How):
    """How to coarsen a sound and to restore it."""

    quantize_bits: int | None = Field(
        None, ge=1, le=8, description="Quantize the sound first, to so many bits; as it is unless given."
    )
    quantize_law: Literal["mulaw", "alaw"] | None = Field(
        None, description="Quantize the sound first, by a law of G.711 instead of a bit depth."
    )

    def quantizer(self) -> Coder | None:
        """Return what coarsens the sound, None where it is to be taken as it is."""
        if self.quantize_bits is not None and self.quantize_law is not None:
            raise Refusal(422, "A bit depth and a law say the same in different ways; choose one of them.")
        if self.quantize_law is not None:
            return LAWS[self.quantize_law]
        return None if self.quantize_bits is None else MidRise(self.quantize_bits, full_scale=True)

    def options(self) -> QuantizerOptions:
        """Return what is known about the sound after that."""
        return QuantizerOptions(bits=self.quantize_bits, law=self.quantize_law)


class FileWishes(Wishes):
    """How to coarsen a sound, restore it and store it."""

    subtype: Literal["float", "pcm24"] = Field("float", description="How samples are stored.")


class LiveWishes(Wishes):
    """What a microphone sends first: as wishes for a file, but that the levels have to be named."""

    sample_rate_hz: int = Field(ge=3000, le=192000)

    def known(self) -> tuple[Coder, Quantizer]:
        """Return what coarsens the sound, and its levels after that."""
        quantizer = self.quantizer()
        if quantizer is None:
            raise Refusal(422, "A stream does not tell its levels beforehand; choose a bit depth or a law.")
        return quantizer, choose_quantizer(None, self.options())


class Stretch(How):
    """A stretch of cells, whose way through the layers is asked for."""

    sample_rate_hz: int = Field(ge=1, le=1_000_000)
    step: float | None = Field(
        None, gt=0, le=2, description="How wide all cells are, for networks; left out where they differ."
    )


def said(problem: object) -> str:
    """Return a problem that pydantic found as a clause for people."""
    assert isinstance(problem, dict)
    place = ".".join(str(part) for part in problem["loc"] if part not in ("query", "body"))
    return f"{place}: {problem['msg'].lower()}" if place else str(problem["msg"]).lower()
