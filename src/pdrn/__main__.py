"""The command ``pdrn``, also as ``python -m pdrn``: an interrupt is heard while the rest is imported."""


def main() -> None:
    """Run the command line."""
    try:
        from pdrn.cli.main import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
