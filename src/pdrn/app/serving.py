"""Listening at an address, until that ends."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pdrn.audio.system import why


class Server(uvicorn.Server):
    """A server that ends quietly: requests that are cut off then are no errors."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """Open a socket, and yield it with the address that a browser finds it at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else why(error)
        raise OSError(f"{host} port {port} cannot be had: {reason}; choose another") from error
    with opened:
        everywhere = host in ("0.0.0.0", "::")  # where it listens, and no address of anything
        name = "localhost" if everywhere else f"[{host}]" if ":" in host else host
        yield opened, f"http://{name}:{opened.getsockname()[1]}"
