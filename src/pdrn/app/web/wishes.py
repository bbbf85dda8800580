"""What a client may ask for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pdrn.app.web.limits import Refusal, sentence
from pdrn.app.web.methods import AUTOMATIC, MOST_ITERATIONS, Choice
from pdrn.audio.quantizers import MidRise, Quantizer
from pdrn.restoring.description import Description
from pdrn.restoring.levels import LAWS, Levels
from pdrn.restoring.restorer import Restorer

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

    def quantizer(self) -> Quantizer | None:
        """Return what coarsens the sound, None where it is to be taken as it is."""
        if self.quantize_bits is not None and self.quantize_law is not None:
            raise Refusal(422, "A bit depth and a law say the same in different ways; choose one of them.")
        if self.quantize_law is not None:
            return LAWS[self.quantize_law]
        return None if self.quantize_bits is None else MidRise(self.quantize_bits, full_scale=True)

    def description(self) -> Description:
        """Return what is known about the sound after that."""
        return Description(bits=self.quantize_bits, law=self.quantize_law)


class FileWishes(Wishes):
    """How to coarsen a sound, restore it and store it."""

    subtype: Literal["float", "pcm24"] = Field("float", description="How samples are stored.")


class LiveWishes(Wishes):
    """What a microphone sends first: as wishes for a file, but that the levels have to be named."""

    sample_rate_hz: int = Field(ge=3000, le=192000)

    def known(self) -> tuple[Quantizer, Levels]:
        """Return what coarsens the sound, and its levels after that."""
        quantizer = self.quantizer()
        if quantizer is None:
            raise Refusal(422, "A stream does not tell its levels beforehand; choose a bit depth or a law.")
        return quantizer, self.description().levels()


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
