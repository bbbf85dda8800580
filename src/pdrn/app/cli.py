"""The command ``pdrn``. Each command imports what it needs when it runs, so that help comes at once."""

from __future__ import annotations

import sys

import typer

from pdrn.app import study_commands

app = typer.Typer(
    help="Restore quantized sound inside its cells.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def demo() -> None:
    """Quantize the speech that comes with the package, restore it, and show the gain."""
    from rich.console import Console
    from rich.table import Table

    from pdrn.app.demo import restorations

    table = Table(title="32 s of speech, restored by Chambolle-Pock over a Gabor frame")
    for heading in ("bits", "quantized", "restored", "gain", "outside its cells", "speed"):
        table.add_column(heading, justify="right")
    for row in restorations():
        table.add_row(
            str(row.bits),
            f"{row.quantized_snr:.2f} dB",
            f"{row.restored_snr:.2f} dB",
            f"{row.restored_snr - row.quantized_snr:+.2f} dB",
            f"by {row.violation:g}",
            f"{row.times_real_time:.0f}x real time",
        )
    Console().print(table)


for command in (
    study_commands.evaluate,
    study_commands.train,
    study_commands.reproduce,
    study_commands.report,
):
    app.command()(command)


def main() -> None:
    """Run the command line: what a user did wrong is one sentence on stderr and exit code 1."""
    try:
        app()
    except (ValueError, OSError) as error:
        print(f"pdrn: {error}", file=sys.stderr)
        raise SystemExit(1) from None
