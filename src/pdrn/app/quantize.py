"""The command ``pdrn quantize``."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pdrn.app.options import Law, Overwrite

if TYPE_CHECKING:
    from pdrn.audio.quantizers import Quantizer

EXAMPLES = """\b
For example:
  pdrn quantize speech.wav speech5.wav --bits 5
  pdrn quantize speech.wav call.wav --law mulaw"""


class Kind(StrEnum):
    """Where the levels of a uniform quantizer are."""

    mid_rise = "mid-rise"
    mid_tread = "mid-tread"
    truncation = "truncation"


def quantize(
    source: Annotated[str, typer.Argument(help="Sound file; - for standard input.", metavar="INPUT")],
    target: Annotated[str, typer.Argument(help="Sound file; - for standard output.", metavar="OUTPUT")],
    bits: Annotated[int | None, typer.Option(min=1, max=24, help="Bit depth.")] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="Zero is an edge (mid-rise, as in the paper, unless given), a level (mid-tread, as in PCM), "
            "or a level that stands for all up to the next (truncation)."
        ),
    ] = None,
    law: Annotated[Law | None, typer.Option(help="The law of G.711, instead of a bit depth.")] = None,
    clip_at: Annotated[
        float | None, typer.Option(help="Cut samples off here first, on both sides of zero.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Quantize sound, to have something to restore.

    The output holds the levels exactly, in 16 bits or, where these are too few, in 24 or 32.
    """
    if (bits is None) == (law is None):
        raise typer.BadParameter("say how coarse it shall be: pass either --bits or --law")
    if law is not None and kind is not None:
        raise typer.BadParameter("G.711 is of one kind; leave --kind or --law out")
    import numpy as np

    from pdrn.audio.files import opened
    from pdrn.audio.placing import refuse_same
    from pdrn.audio.writing import writer

    try:
        quantizer = _quantizer(bits, kind or Kind.mid_rise, law, clip_at)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    # A level half-way between two of as many bits takes one bit more.
    subtype = "PCM_16" if (bits or 0) < 16 else "PCM_24" if (bits or 0) < 24 else "PCM_32"
    refuse_same(source, target)
    with opened(source) as (header, sounds):
        shape = header.sample_rate_hz, header.channels, header.frames
        with writer(target, *shape, subtype=subtype, overwrite=overwrite) as put:
            beyond = 0
            for sound in sounds:
                beyond += int(np.count_nonzero(np.abs(sound.samples) > 1))
                put(quantizer.quantize(sound.samples))
    if beyond and clip_at is None:
        print(f"{beyond} samples beyond full scale were cut off there", file=sys.stderr)


def _quantizer(bits: int | None, kind: Kind, law: Law | None, clip_at: float | None) -> Quantizer:
    from pdrn.audio.damage import Clipping
    from pdrn.audio.g711 import ALaw, MuLaw
    from pdrn.audio.quantizers import MidRise, MidTread, Truncation

    if bits is None:
        quantizer: Quantizer = MuLaw() if law is Law.mulaw else ALaw()
    else:
        kinds = {Kind.mid_rise: MidRise, Kind.mid_tread: MidTread, Kind.truncation: Truncation}
        quantizer = kinds[kind](bits)
    return quantizer if clip_at is None else Clipping(clip_at, quantizer)
