"""The command ``pdrn inspect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from pdrn.app.options import Files, Json

EXAMPLES = """\b
For example:
  pdrn inspect recording.wav
  pdrn inspect --json *.flac"""


def inspect(files: Files, json: Json = False) -> None:
    """Say what files hold, and how their samples were quantized.

    The levels are told from the beginning of each file, the peak from all of it.
    """
    from json import dumps

    from pdrn.audio.system import AudioError, printable

    failed = False
    for file in files:
        try:
            facts = _facts(file)
        except AudioError as error:
            failed = True
            print(f"pdrn: {printable(error)}", file=sys.stderr)
            continue
        if json:
            print(dumps(facts), flush=True)
            continue
        print(printable(facts.pop("file")))
        for name, value in facts.items():
            print(f"  {name.replace('_', ' '):16} {'-' if value is None else value}", flush=True)
    if failed:
        raise typer.Exit(1)


def _facts(file: Path) -> dict[str, Any]:
    from itertools import chain

    import numpy as np

    from pdrn.audio.detection import Undetected
    from pdrn.audio.files import opened
    from pdrn.restoring.description import Description
    from pdrn.restoring.levels import step_of
    from pdrn.restoring.method import in_words
    from pdrn.restoring.recording import beginning_of
    from pdrn.restoring.restorer import Restorer

    frames, peak, at_peak = 0, 0.0, 0
    with opened(file) as (header, sounds):
        pieces = (np.atleast_2d(sound.samples) for sound in sounds)
        head, telling = beginning_of(pieces)
        for rows in chain(head, pieces):
            frames += rows.shape[-1]
            highest = float(np.abs(rows).max())
            if highest > peak:
                peak, at_peak = highest, 0
            at_peak += int(np.count_nonzero(np.abs(rows) == peak))
    levels = advice = restored_by = None
    try:
        found = Description().levels_of(telling, header.subtype)
        method = Restorer().method_for(header.sample_rate_hz, step_of(found))
        levels, restored_by = str(found), in_words(method.name, method.model)
    except Undetected as reason:
        advice = str(reason)
    return {
        "file": str(file),
        "format": header.format,
        "subtype": header.subtype,
        "sample_rate_hz": header.sample_rate_hz,
        "channels": header.channels,
        "frames": frames,
        "seconds": round(frames / header.sample_rate_hz, 6),
        "peak": peak,
        "samples_at_peak": at_peak,
        "levels": levels,
        "restored_by": restored_by,
        "advice": advice,
    }
