"""The processes of torchrun, which train one network, each on its rows of every batch.

``DistributedDataParallel`` averages their gradients, so that all hold the same weights. Only the first
process reads and writes the run folder; ``broadcast`` passes the contents on to the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pdrn.errors import InputError

Value = TypeVar("Value")


def rank() -> int:
    """Return the number of this process among those of torchrun; 0 is the first or only one."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Return the number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def process_group() -> Iterator[None]:
    """Connect the processes while the context lasts; a single process needs no connection."""
    if world_size() == 1:
        yield
        return
    import torch.distributed
    from torch.distributed.rendezvous import rendezvous

    # After a restart, the store of torchrun may still hold the addresses of processes that ended.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store, rank, count = next(rendezvous("env://"))
        store = torch.distributed.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=count)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"the processes cannot connect ({str(error).splitlines()[0]}); start them with torchrun"
        ) from error
    try:
        yield
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        raise InputError(
            "another process of this training has ended; repeat the command to resume"
        ) from error
    finally:
        torch.distributed.destroy_process_group()


def broadcast(value: Value) -> Value:
    """Return the value of the first process."""
    if world_size() == 1:
        return value
    import torch.distributed

    values = [value]
    torch.distributed.broadcast_object_list(values, src=0)
    return values[0]


def total(values: Any) -> Any:
    """Return the sum of a tensor over all processes."""
    if world_size() > 1:
        import torch.distributed

        torch.distributed.all_reduce(values)
    return values


def parallel(module: Any) -> Any:
    """Return a module whose gradients are averaged over all processes."""
    if world_size() == 1:
        return module
    from torch.nn.parallel import DistributedDataParallel

    # A weight without influence, such as theta of a single layer, gets no gradient to wait for.
    return DistributedDataParallel(module, find_unused_parameters=True)


def shard(count: int) -> slice:
    """Return the rows of a batch, of ``count`` rows, that belong to this process."""
    return slice(rank() * count // world_size(), (rank() + 1) * count // world_size())
