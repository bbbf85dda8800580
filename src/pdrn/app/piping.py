"""Raw samples from a pipe or file to another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from pdrn.audio.placing import refuse_same, standard_output, whole_or_gone
from pdrn.audio.raw import RawFormat
from pdrn.audio.system import AudioError, standard_input, why
from pdrn.restoring.levels import Levels
from pdrn.restoring.method import in_words
from pdrn.restoring.pipe import restored_bytes
from pdrn.restoring.recording import fitting, refuse_shallow
from pdrn.restoring.restorer import Restorer


def restore_raw(
    restorer: Restorer,
    levels: Levels,
    sample_rate_hz: int,
    formats: tuple[RawFormat, RawFormat],
    places: tuple[str, str],
    gaps: bool,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Restore raw samples: `formats` and `places` are those of input and output."""
    read_as, write_as = formats
    if not gaps:
        refuse_shallow(levels, write_as.subtype, "another --output-encoding")
    stream = restorer.stream_of(sample_rate_hz, fitting(levels, write_as.subtype), gaps=gaps)
    if not quiet:
        milliseconds = 1000 * stream.latency_seconds
        how = f"by {in_words(stream.method, stream.model)}"
        print(f"restoring {how}, at most {milliseconds:.0f} ms behind the input", file=sys.stderr)
    refuse_same(*places)
    with _opened(places[0]) as source:
        pieces = restored_bytes(stream, source, read_as, write_as)
        if places[1] != "-":
            with whole_or_gone(places[1], overwrite) as file:
                file.writelines(pieces)
            return
        with standard_output() as output:
            for piece in pieces:
                output.write(piece)
                output.flush()


@contextmanager
def _opened(place: str) -> Iterator[BinaryIO]:
    if place == "-":
        yield standard_input()
        return
    try:
        stream = open(place, "rb")  # noqa: SIM115 (closed below)
    except (OSError, ValueError) as error:
        raise AudioError(f"{place} cannot be opened: {why(error)}; check its name") from error
    with stream:
        yield stream
