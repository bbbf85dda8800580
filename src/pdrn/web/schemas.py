"""Request models, the methods on offer, the limits, and the refusal of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pdrn.audio.detection import QuantizerOptions, choose_quantizer
from pdrn.audio.quantizers import LAWS, Coder, MidRise, Quantizer
from pdrn.errors import InputError
from pdrn.restoration import registry
from pdrn.restoration.restorer import MethodName, Restorer


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of the number of requests."""

    upload_bytes: int = 64 << 20
    sound_seconds: float = 300.0
    samples_per_second: int = 53_333
    """Rate of all channels together, averaged over the longest sound: it bounds the memory."""
    work_seconds: float = 300.0
    """From the start of a request to the end of its answer, upload and waiting included."""
    jobs: int = 2
    """Worker processes."""
    waiting: int = 16
    """Requests that wait for a worker."""
    live: int = 2
    """Live sessions at a time."""

    @property
    def samples(self) -> int:
        """Number of samples of a sound, all channels together."""
        return round(self.sound_seconds * self.samples_per_second)


class Refusal(Exception):
    """A request that is not served: an HTTP status and a sentence for the user. It can be pickled."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(status, sentence)
        self.status, self.sentence = status, sentence


def sentence(error: Exception) -> str:
    """Return the message of an error as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def validation_message(problem: object) -> str:
    """Return an error of pydantic as a clause for the user."""
    assert isinstance(problem, dict)
    field = ".".join(str(part) for part in problem["loc"] if part not in ("query", "body"))
    return f"{field}: {problem['msg'].lower()}" if field else str(problem["msg"]).lower()


AUTOMATIC: MethodName = "auto"
LIVE_MODELS = {16000: "speech-small", 8000: "speech-small-8k"}
"""Bundled models of low latency, by sample rate."""

MAX_ITERATIONS = 500


class OfferedMethod(BaseModel):
    """A method, as the page offers it."""

    name: str
    title: str
    kind: Literal["automatic", "network", "solver"]
    sample_rate_hz: int | None = None
    """The rate that the method requires; None: any."""


class Choice(OfferedMethod):
    """An offered method, with what the server needs to run it."""

    method: MethodName
    model: str | None = None
    """Name or file of the network."""


Choices = dict[str, Choice]
"""The methods on offer, by name."""


def offer_methods(models: Sequence[Path]) -> Choices:
    """Return the methods on offer: automatic, the bundled models, network files, and the solver."""
    bundled = [_network(name, name) for name in registry.names()]
    own = [_network(path.stem, str(path)) for path in models]
    found: Choices = {}
    for choice in (
        Choice(name=AUTOMATIC, title="Automatic", kind="automatic", method=AUTOMATIC),
        *bundled,
        *own,
        Choice(name="cp", title="Chambolle-Pock", kind="solver", method="cp"),
    ):
        if choice.name in found:
            raise InputError(f"two methods would be called {choice.name}; rename the file")
        found[choice.name] = choice
    return found


def _network(name: str, model: str) -> Choice:
    rate = registry.read_model(model).provenance.sample_rate_hz
    title = f"Network {name}"
    return Choice(name=name, title=title, kind="network", sample_rate_hz=rate, method="network", model=model)


class MethodRequest(BaseModel):
    """The method of a request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str = Field(AUTOMATIC, max_length=100, description="A name from `GET /api/models`.")
    iterations: int | None = Field(
        None, ge=1, le=MAX_ITERATIONS, description="Iterations of Chambolle-Pock; default: tuned."
    )
    mix: float = Field(
        1.0, ge=0, le=1, description="From 0, the centres of the cells, to 1, the restoration."
    )

    def restorer(self, choices: Choices) -> Restorer:
        """Return the restorer of this request."""
        if self.method not in choices:
            raise Refusal(422, f"There is no such method; choose one of {', '.join(choices)}.")
        choice = choices[self.method]
        try:
            return Restorer(choice.model, self.iterations, self.mix, method=choice.method)
        except InputError as error:
            raise Refusal(422, sentence(error)) from error


class ExploreRequest(MethodRequest):
    """How to quantize a sound and to restore it."""

    quantize_bits: int | None = Field(
        None, ge=1, le=8, description="Quantize the sound to this bit depth first; default: take it as it is."
    )
    quantize_law: Literal["mulaw", "alaw"] | None = Field(
        None, description="Quantize the sound by this law of G.711 first, instead of to a bit depth."
    )

    def quantizer(self) -> Coder | None:
        """Return the quantizer to apply first, None to take the sound as it is."""
        if self.quantize_bits is not None and self.quantize_law is not None:
            raise Refusal(422, "A bit depth and a law contradict each other; choose one of them.")
        if self.quantize_law is not None:
            return LAWS[self.quantize_law]
        return None if self.quantize_bits is None else MidRise(self.quantize_bits, full_scale=True)

    def options(self) -> QuantizerOptions:
        """Return the description of the sound after quantization."""
        return QuantizerOptions(bits=self.quantize_bits, law=self.quantize_law)


class RestoreRequest(ExploreRequest):
    """How to quantize a sound, to restore it, and to store it."""

    subtype: Literal["float", "pcm24"] = Field("float", description="Type of the samples of the answer.")


class LiveRequest(ExploreRequest):
    """The first message of a live session; the quantizer is required."""

    sample_rate_hz: int = Field(ge=3000, le=192000)

    def restorer(self, choices: Choices) -> Restorer:
        """Return the restorer of this request; automatic is the method with the lowest latency."""
        restorer = super().restorer(choices)
        if restorer.method != AUTOMATIC:
            return restorer
        fast = LIVE_MODELS.get(self.sample_rate_hz)
        if fast not in registry.names() or self.quantize_law is not None:
            return replace(restorer, method="cp")
        return replace(restorer, model=fast, method="both" if self.iterations else "network")

    def known_quantizer(self) -> tuple[Coder, Quantizer]:
        """Return the quantizer to apply, and the one that its output is known to have."""
        quantizer = self.quantizer()
        if quantizer is None:
            raise Refusal(422, "The levels of a stream cannot be detected; choose a bit depth or a law.")
        return quantizer, choose_quantizer(None, self.options())


class LayersRequest(MethodRequest):
    """The method whose layers or iterations to return, and the facts of the cells."""

    sample_rate_hz: int = Field(ge=1, le=1_000_000)
    step: float | None = Field(
        None, gt=0, le=2, description="Width of all cells, for networks; default: widths differ."
    )
