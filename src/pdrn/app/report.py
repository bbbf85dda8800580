"""The command ``pdrn report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.studying import require

EXAMPLES = """\b
For example:
  pdrn report runs --out results
  pdrn report runs --out results --logs && pdrn report results"""


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of run folders.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; RUNS/report unless given.")] = None,
    logs: Annotated[
        bool,
        typer.Option(
            "--logs",
            help="Put records, logs and tables there too, without networks and sound: "
            "what can be published, and reported on again.",
        ),
    ] = False,
) -> None:
    """Render tables and figures of all runs in a folder, as Markdown and as a page."""
    require("matplotlib", "report")
    from pdrn.study.findings import publish
    from pdrn.study.report import write_report

    out = out or runs / "report"
    page = write_report(runs, out)
    if logs:
        publish(runs, out)
    print(page)
