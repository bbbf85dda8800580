"""Ray: one of this machine's own while it is needed, or a cluster that is there already."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STORE_BYTES = 128 << 20
"""What a Ray of our own keeps for objects: sound goes through files, so that little is enough."""

ANSWER_SECONDS = 5.0

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # says nothing about anyone to anyone
    "RAY_raylet_start_wait_time_s": "180",  # a busy machine needs more than its half a minute
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of what a later version will do
}


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Join the Ray at an address, or start one with so many CPUs; give the module, and leave in the end.

    Parameters
    ----------
    address : str, optional
        HOST:PORT of a cluster's head, or "auto" for the one that this machine belongs to.
    cpus : int
        How many CPUs a Ray of our own has; a cluster has what it has.

    Raises
    ------
    ValueError
        If Ray is not installed, or no cluster answers.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ValueError("Ray is not installed: pip install 'pdrn[ray]'") from error
    wishes: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        # Whatever cluster RAY_ADDRESS names is not meant.
        wishes |= {"address": "local", "num_cpus": cpus, "object_store_memory": STORE_BYTES}
        wishes |= {"include_dashboard": False}
    else:
        _check_answer(address)
        wishes |= {"address": address}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(**wishes)
        except Exception as error:  # of no narrower class where it starts too slowly
            reason = (str(error) or type(error).__name__).splitlines()[0]
            what = "Ray cannot be started" if address is None else f"the Ray at {address} cannot be joined"
            raise ValueError(f"{what}: {reason}") from error
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own there, which ends less orderly
        yield ray
    finally:
        ray.shutdown()


def _check_answer(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ValueError(f"a cluster's address is HOST:PORT, or auto; got {address}")
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray answers at {address}; start one there by ray start --head") from error
