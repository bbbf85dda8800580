"""Several processes that train one network, each on its rows of every batch.

``torchrun`` starts them and tells each in the environment who it is. All of them hold the same weights: the
gradients are added up over all processes, and whatever follows from them (clipping, regularisation, Adam, the
average) each computes for itself, with the same numbers. The first process alone reads and writes the run
folder.

This is what ``DistributedDataParallel`` does too. It wants a module and would change when gradients are
rounded; here weights are tensors in a dictionary, and one sum over one buffer is the whole of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from numpy.typing import NDArray

from pdrn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """The place of this process among those that train a network; unless told, it is alone."""

    rank: int = 0
    count: int = 1
    on_this_machine: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """Return which of so many rows are this process's."""
        return slice(self.rank * count // self.count, (self.rank + 1) * count // self.count)

    def add_up(self, values: Tensor | NDArray[Any]) -> None:
        """Replace values by their sums over all processes, the same to the bit for each of them."""
        if self.count > 1:
            import torch.distributed

            with _all_living():
                torch.distributed.all_reduce(torch.as_tensor(values))

    def take_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        if self.count > 1:
            import torch.distributed

            with _all_living():
                for tensor in tensors:
                    torch.distributed.broadcast(tensor, src=0)

    def shared(self, value: Value) -> Value:
        """Return the value that the first process has."""
        if self.count == 1:
            return value
        import torch.distributed

        values = [value]
        with _all_living():
            torch.distributed.broadcast_object_list(values, src=0)
        return values[0]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Refuse what any process refuses in this context, where they do not wait for one another."""
        if self.count == 1:
            yield
            return
        import torch.distributed

        refused: ValueError | OSError | None = None
        try:
            yield
        except (ValueError, OSError) as error:
            refused = error
        reasons: list[str] = [""] * self.count
        with _all_living():
            torch.distributed.all_gather_object(reasons, str(refused or ""))
        for rank, reason in enumerate(reasons):
            if reason:
                self.refuse(refused or InputError(f"process {rank} of {self.count}: {reason}"))

    def refuse(self, error: Exception) -> NoReturn:
        """Raise what all processes refuse, in the first; the others end when it has said why."""
        if self.is_first:
            raise error
        import torch.distributed

        with suppress(RuntimeError):
            torch.distributed.barrier()  # which the first never reaches: this waits for its end
        raise SystemExit(1)


ALONE = Processes()


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the processes that a launcher started together, or be alone where there is none."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ALONE
        return
    import torch.distributed

    rank = _meet()
    yield Processes(rank, count, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    with _all_living():
        torch.distributed.barrier()  # nobody is done before the first has written everything
    torch.distributed.destroy_process_group()


def _meet() -> int:
    """Find the other processes, and return the rank of this one."""
    import torch.distributed
    from torch.distributed.rendezvous import rendezvous

    # torchrun may keep its store over a restart, with the addresses of processes that ended.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store, rank, count = next(rendezvous("env://"))
        fresh = torch.distributed.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        # For weights in main memory, which is where they are.
        torch.distributed.init_process_group("gloo", store=fresh, rank=rank, world_size=count)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"the processes cannot find one another ({str(error).splitlines()[0]}); start them by torchrun"
        ) from error
    return int(rank)


@contextmanager
def _all_living() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise InputError(
            "another process of this training ended; give the same command again: "
            "training goes on where it stopped"
        ) from error
