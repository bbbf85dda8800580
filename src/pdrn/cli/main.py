"""The command ``pdrn``. Each command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from pdrn.cli import restore, serve, study, tools
from pdrn.cli.options import Command
from pdrn.errors import PdrnError, UsageError, printable
from pdrn.signals import exit_on_signals, signal_exit_code

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


for command, examples in (
    (restore.restore, restore.EXAMPLES),
    (tools.quantize, tools.QUANTIZE_EXAMPLES),
    (tools.inspect, tools.INSPECT_EXAMPLES),
    (tools.compare, tools.COMPARE_EXAMPLES),
    (tools.demo, None),
    (serve.serve, serve.EXAMPLES),
    (study.evaluate, study.EVALUATE_EXAMPLES),
    (study.train, study.TRAIN_EXAMPLES),
    (study.search, study.SEARCH_EXAMPLES),
    (study.reproduce, study.REPRODUCE_EXAMPLES),
    (study.study, study.STUDY_EXAMPLES),
    (study.report, study.REPORT_EXAMPLES),
    (tools.env, None),
):
    app.command(cls=Command, epilog=examples)(command)
app.add_typer(
    tools.models,
    name="models",
    help="List, describe and verify the bundled models.",
    epilog=tools.MODELS_EXAMPLES,
)


def main() -> None:
    """Run the command line.

    A `PdrnError` is one sentence on standard error and exit code 1, a `UsageError` exit code 2; anything else
    is a bug and shows its traceback.
    """
    for library in ("OMP", "OPENBLAS", "MKL"):  # more threads than free cores are slower than one
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    if sys.stderr is None:  # closed by 2>&-
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)
    if isinstance(sys.stdout, TextIOWrapper):  # escape what a terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    exit_on_signals()
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:
        if (code := signal_exit_code()) is not None:
            raise SystemExit(code) from None
        if not isinstance(error, PdrnError):
            raise
        print(f"pdrn: {printable(error)}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from None
