"""Print docs/cli.md from the help of every command: ``python tools/make_cli_docs.py > docs/cli.md``."""

from typing import Any

import typer

from pdrn.cli.main import app

WIDTH = 100


def print_help(name: str, command: Any) -> None:
    """Print what a command says of itself, and the commands in it."""
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=WIDTH)
    context.info_name = name
    print(f"\n## {name}\n\n```\n{command.get_help(context).strip()}\n```")
    for part, inner in getattr(command, "commands", {}).items():
        print_help(f"{name} {part}", inner)


def main() -> None:
    """Print the page."""
    print("# The command line\n")
    print("What `--help` says, command by command. This page is made by `tools/make_cli_docs.py`.")
    for name, command in typer.main.get_command(app).commands.items():
        print_help(f"pdrn {name}", command)


if __name__ == "__main__":
    main()
