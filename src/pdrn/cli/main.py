"""The command ``pdrn``. Each command imports what it needs when it runs, so that help comes at once."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from pdrn.cli import restore, serve, study, tools
from pdrn.errors import PdrnError, printable
from pdrn.workers import end_in_order, ending_code

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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Restore quantized sound inside its cells."""


app.command(epilog=restore.EXAMPLES)(restore.restore)
app.command(epilog=tools.QUANTIZE_EXAMPLES)(tools.quantize)
app.command(epilog=tools.INSPECT_EXAMPLES)(tools.inspect)
app.command(epilog=tools.COMPARE_EXAMPLES)(tools.compare)
app.add_typer(
    tools.models,
    name="models",
    help="List, describe and verify the bundled models.",
    epilog=tools.MODELS_EXAMPLES,
)
app.command()(tools.demo)
app.command(epilog=serve.EXAMPLES)(serve.serve)
app.command(epilog=study.EVALUATE_EXAMPLES)(study.evaluate)
app.command(epilog=study.TRAIN_EXAMPLES)(study.train)
app.command(epilog=study.SEARCH_EXAMPLES)(study.search)
app.command(epilog=study.REPRODUCE_EXAMPLES)(study.reproduce)
app.command(epilog=study.STUDY_EXAMPLES)(study.study)
app.command(epilog=study.REPORT_EXAMPLES)(study.report)
app.command()(tools.env)


def main() -> None:
    """Run the command line: a `PdrnError` is one sentence on stderr and exit code 1."""
    for library in ("OMP", "OPENBLAS", "MKL"):  # more threads than free cores are slower than one
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if sys.stderr is None:  # closed by 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    if isinstance(sys.stdout, TextIOWrapper):  # escape what a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    end_in_order()
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        if (code := ending_code()) is not None:
            raise SystemExit(code) from None
        if not isinstance(error, PdrnError):
            raise
        print(f"pdrn: {printable(error)}", file=sys.stderr)
        raise SystemExit(1) from None
