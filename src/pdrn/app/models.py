"""The commands ``pdrn models``: the networks that come along."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pdrn.app.options import Json

EXAMPLES = """\b
For example:
  pdrn models list
  pdrn models show speech-large
  pdrn models verify"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A name of `pdrn models list`.", metavar="NAME")]


@app.command("list")
def list_models(json: Json = False) -> None:
    """Say what networks there are."""
    from dataclasses import asdict
    from json import dumps

    from rich.console import Console
    from rich.table import Table

    from pdrn.restoring.pretrained import facts, names

    rows = [facts(name) for name in names()]
    if json:
        for row in rows:
            print(dumps(asdict(row)), flush=True)
        return
    table = Table()
    for heading in ("name", "sample rate", "weights", "file", "stream is late by"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    for row in rows:
        latency = 1000 * row.stream_latency_samples / row.sample_rate_hz
        table.add_row(
            row.name,
            f"{row.sample_rate_hz} Hz",
            f"{row.weights:,}",
            f"{row.bytes / 1e6:.1f} MB",
            f"{latency:.0f} ms",
        )
    Console().print(table)


@app.command()
def show(name: Name) -> None:
    """Print the card of a network: what it is for, how it was made, how good it is."""
    from pdrn.restoring.pretrained import card

    print(card(name))


@app.command()
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names; all networks unless given.", metavar="NAME")
    ] = None,
) -> None:
    """Prove that the files of networks are those that were shipped, by their checksums."""
    from pdrn.restoring import pretrained

    failed = False
    for name in names or pretrained.names():
        try:
            pretrained.verify(name)
            print(f"{name}: as shipped")
        except ValueError as error:
            failed = True
            print(f"pdrn: {error}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)
