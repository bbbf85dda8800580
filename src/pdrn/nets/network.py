"""A network on NumPy arrays: what restores sound, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pdrn.convex.arrays import Array, require_finite, set_field
from pdrn.nets.architecture import Architecture, restore, restore_by_layer
from pdrn.nets.maps import set_size
from pdrn.nets.threads import limited

Arrays = dict[str, np.ndarray[Any, Any]]


class Plan(Protocol):
    """What names the tensors of a network: an architecture or an unrolling."""

    @property
    def fixed(self) -> tuple[str, ...]:
        """The names of tensors that are not learned."""

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor."""


@dataclass(frozen=True, eq=False)
class Network:
    """An architecture and its weights; calling it restores signals inside their cells.

    The weights are all float32 or all float64, and that is what is computed in. Cells may be of either type;
    the result has theirs, and lies in them exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from pdrn.nets import DenseMap, Network, PrimalDual
    >>> network = Network.started(PrimalDual(DenseMap(64), depth=3))
    >>> lower = np.floor(16 * np.sin(np.arange(64) / 5)) / 16
    >>> restored = network(lower, lower + 1 / 16)
    >>> bool(np.all((lower <= restored) & (restored <= lower + 1 / 16)))
    True
    """

    architecture: Architecture
    weights: Arrays
    threads: int | None = 1
    """How many threads matrix products take; None leaves that to NumPy."""

    def __post_init__(self) -> None:
        set_field(self, "weights", checked_weights(self.architecture, self.weights))
        if self.threads is not None:
            set_size(self, "threads")

    @classmethod
    def started(
        cls, architecture: Architecture, generator: np.random.Generator | None = None, dtype: Any = np.float32
    ) -> Network:
        """Return a network at the architecture's own start."""
        weights = architecture.start(generator or np.random.default_rng(0))
        return cls(architecture, {name: part.astype(dtype) for name, part in weights.items()})

    def astype(self, dtype: Any) -> Network:
        """Return the network with weights of another type."""
        weights = {name: part.astype(dtype) for name, part in self.weights.items()}
        return Network(self.architecture, weights, self.threads)

    def __call__(self, lower: Array, upper: Array) -> Array:
        """Restore signals inside their cells, ``(..., n) -> (..., n)``."""
        with limited(self.threads):
            return restore(self.architecture, self.weights, lower, upper)

    def by_layer(self, lower: Array, upper: Array) -> list[Array]:
        """Return the estimates of all layers; the last is the result."""
        with limited(self.threads):
            return restore_by_layer(self.architecture, self.weights, lower, upper)


def checked_weights(plan: Plan, weights: Arrays) -> Arrays:
    """Return the weights of a plan in its order, refusing others, mixed types and what is not finite."""
    check_weights(plan, {name: part.shape for name, part in weights.items()})
    arrays = {name: np.ascontiguousarray(weights[name]) for name in plan.shapes()}
    types = {part.dtype for part in arrays.values()}
    if types not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise ValueError(f"the weights must be all float32 or all float64, got {sorted(map(str, types))}")
    for name, part in arrays.items():
        require_finite(part, name)
    return arrays


def check_weights(plan: Plan, found: dict[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless the tensors found, by name and shape, are those of a plan."""
    wanted = plan.shapes()
    if missing := sorted(wanted.keys() - found.keys()):
        raise ValueError(f"the network needs tensors that are missing: {_listed(missing)}")
    if extra := sorted(found.keys() - wanted.keys()):
        raise ValueError(f"there are tensors that the network has no place for: {_listed(extra)}")
    for name, shape in wanted.items():
        if tuple(found[name]) != shape:
            raise ValueError(f"tensor {name} must have shape {shape}, got {tuple(found[name])}")


def _listed(names: list[str], most: int = 5) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
