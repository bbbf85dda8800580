"""What there is to choose from: what fits by itself, networks, and Chambolle-Pock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pdrn.restoring import pretrained
from pdrn.restoring.choosing import MethodName
from pdrn.restoring.restorer import Restorer

AUTOMATIC: MethodName = "auto"
MOST_ITERATIONS = 500


@dataclass(frozen=True)
class Choice:
    """A way to restore, as the page offers it."""

    name: str
    title: str
    kind: Literal["automatic", "network", "solver"]
    sample_rate_hz: int | None = None
    """The only rate that it is for, if any."""
    method: MethodName = AUTOMATIC
    model: str | None = None
    """The network's name, or its file."""

    def restorer(self, iterations: int | None = None, mix: float = 1.0) -> Restorer:
        """Return what restores in this way; a ValueError says what cannot be."""
        return Restorer(self.model, iterations, mix, method=self.method)


def choices(models: Sequence[Path]) -> dict[str, Choice]:
    """Return the choices by name, with networks that come along, and others from files."""
    automatic = Choice(AUTOMATIC, "Automatic", "automatic")
    solver = Choice("cp", "Chambolle-Pock", "solver", method="cp")
    shipped = [_network(name, name) for name in pretrained.names()]
    own = [_network(path.stem, str(path)) for path in models]
    found: dict[str, Choice] = {}
    for choice in (automatic, *shipped, *own, solver):
        if choice.name in found:
            raise ValueError(f"two methods would be called {choice.name}; rename the file")
        found[choice.name] = choice
    return found


def _network(name: str, model: str) -> Choice:
    rate = pretrained.shipped_or_own(model).provenance.sample_rate_hz
    return Choice(name, f"Network {name}", "network", rate, "network", model)
