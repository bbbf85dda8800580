"""Listening at an address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pdrn.audio.files import why


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """Open a socket, and yield it with the address that a browser finds it at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family)
    except OSError as error:
        raise OSError(f"{host} port {port} cannot be had: {why(error)}; choose another --port") from error
    with opened:
        name = f"[{host}]" if ":" in host else host
        yield opened, f"http://{name}:{opened.getsockname()[1]}"
