"""Print docs/cli.md from the help of every command: ``python tools/make_cli_docs.py > docs/cli.md``."""

import typer

from pdrn.app.cli import app

WIDTH = 100


def main() -> None:
    """Print the page."""
    group = typer.main.get_command(app)
    print("# The command line\n")
    print("What `--help` says, command by command. This page is made by `tools/make_cli_docs.py`.")
    for name, command in group.commands.items():
        context = command.make_context(name, [], resilient_parsing=True, terminal_width=WIDTH)
        context.info_name = f"pdrn {name}"
        print(f"\n## pdrn {name}\n\n```\n{command.get_help(context).strip()}\n```")


if __name__ == "__main__":
    main()
