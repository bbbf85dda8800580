"""The command ``pdrn report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.studying import require

EXAMPLES = """\b
For example:
  pdrn report runs --out results"""


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of run folders.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; RUNS/report unless given.")] = None,
) -> None:
    """Render tables and figures of all runs in a folder, as Markdown and as a page."""
    require("matplotlib", "report")
    from pdrn.study.report import write_report

    print(write_report(runs, out or runs / "report"))
