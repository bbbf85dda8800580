"""The command ``pdrn``. Each command imports what it needs when it runs, so that help comes at once."""

from __future__ import annotations

import os
import signal
import sys

import typer

from pdrn.app.demo import demo
from pdrn.app.evaluate import evaluate
from pdrn.app.restore import restore

app = typer.Typer(
    help="Restore quantized sound inside its cells.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (restore, demo, evaluate):
    app.command()(command)


def main() -> None:
    """Run the command line: what a user did wrong is one sentence on stderr and an exit code."""
    for library in ("OMP", "OPENBLAS", "MKL"):  # more threads than free cores are slower than one
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (ValueError, OSError) as error:
        print(f"pdrn: {error}", file=sys.stderr)
        raise SystemExit(1) from None
