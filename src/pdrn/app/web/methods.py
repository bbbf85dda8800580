"""What there is to choose from: Chambolle-Pock always, and networks where there are some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pdrn.nets import PrimalDual
from pdrn.restoring.overlapped import ITERATIONS
from pdrn.restoring.restorer import Restorer
from pdrn.restoring.trained import model_of

SOLVER = "cp"
MOST_ITERATIONS = 500


@dataclass(frozen=True)
class Choice:
    """A way to restore, as the page offers it."""

    name: str
    title: str
    kind: Literal["solver", "network"]
    depth: int
    """Layers of a network, or iterations unless others are asked for."""
    sample_rate_hz: int | None = None
    """The only rate that it is for, if any."""
    model: str | None = None
    """The network's file."""

    def restorer(self, iterations: int | None = None, mix: float = 1.0) -> Restorer:
        """Return what restores in this way; a ValueError says what cannot be."""
        return Restorer(self.model, iterations, mix)


def choices(models: Sequence[Path]) -> dict[str, Choice]:
    """Return the choices by name: Chambolle-Pock, and networks from files."""
    solver = Choice(SOLVER, "Chambolle-Pock", "solver", ITERATIONS)
    return {choice.name: choice for choice in [*map(_network, models), solver]}


def _network(path: Path) -> Choice:
    model = model_of(str(path))
    plan = model.network.architecture
    assert isinstance(plan, PrimalDual)  # as model_of makes sure
    rate = model.provenance.sample_rate_hz
    return Choice(path.stem, f"Network {path.stem}", "network", plan.depth, rate, str(path))
