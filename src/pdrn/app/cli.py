"""The command ``pdrn``. Each command imports what it needs when it runs, so that help comes at once."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from pdrn.app import (
    compare,
    demo,
    env,
    evaluate,
    inspect,
    models,
    quantize,
    report,
    reproduce,
    restore,
    search,
    serve,
    study,
    train,
)
from pdrn.app.ending import end_in_order, ending_code
from pdrn.audio.system import printable

app = typer.Typer(
    help="Restore quantized sound inside its cells.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"pdrn {version('pdrn')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Restore quantized sound inside its cells."""


app.command(epilog=restore.EXAMPLES)(restore.restore)
app.command(epilog=quantize.EXAMPLES)(quantize.quantize)
app.command(epilog=inspect.EXAMPLES)(inspect.inspect)
app.command(epilog=compare.EXAMPLES)(compare.compare)
app.add_typer(
    models.app,
    name="models",
    help="List, describe and verify the networks that come along.",
    epilog=models.EXAMPLES,
)
app.command()(demo.demo)
app.command(epilog=serve.EXAMPLES)(serve.serve)
app.command(epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=search.EXAMPLES)(search.search)
app.command(epilog=reproduce.EXAMPLES)(reproduce.reproduce)
app.command(epilog=study.EXAMPLES)(study.study)
app.command(epilog=report.EXAMPLES)(report.report)
app.command()(env.env)


def main() -> None:
    """Run the command line: what a user did wrong is one sentence on stderr and an exit code."""
    for library in ("OMP", "OPENBLAS", "MKL"):  # more threads than free cores are slower than one
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if sys.stderr is None:  # closed, by 2>&-; what is said goes nowhere, and what is done goes on
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    if isinstance(sys.stdout, TextIOWrapper):  # what a terminal cannot show is written out
        sys.stdout.reconfigure(errors="backslashreplace")
    end_in_order()
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        if (code := ending_code()) is not None:
            raise SystemExit(code) from None
        if not isinstance(error, ValueError | OSError):
            raise
        print(f"pdrn: {printable(error)}", file=sys.stderr)
        raise SystemExit(1) from None
