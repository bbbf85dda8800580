"""``python -m pdrn``, for launchers such as torchrun that want a module."""

from pdrn.app.cli import main

if __name__ == "__main__":
    main()
