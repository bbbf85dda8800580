"""Networks from files, as `pdrn train` writes them, for restoring sound."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

from pdrn.nets import Network
from pdrn.nets.checkpoint import Provenance, load
from pdrn.restoring.learned import LearnedMethod


@dataclass(frozen=True, eq=False)
class Model:
    """A network, and what it was made for."""

    name: str
    network: Network
    provenance: Provenance

    def method(self, sample_rate_hz: int, step: float | None, shifts: int | None = None) -> LearnedMethod:
        """Return what restores sound of this rate, whose cells are one step wide, or differ (None)."""
        rate = self.provenance.sample_rate_hz
        if step is None:
            raise ValueError(f"{self.name} is for cells of one width, and these differ; choose method cp")
        if rate not in (None, sample_rate_hz):
            raise ValueError(
                f"{self.name} is for {rate} Hz and this is {sample_rate_hz} Hz; choose method cp"
            )
        return LearnedMethod(self.network, step, model=self.name, shifts=shifts)


def model_of(path: str | os.PathLike[str], name: str | None = None) -> Model:
    """Read a network from a file, again where that has changed; it is called as the file unless named."""
    try:
        state = os.stat(path)
        version: tuple[int, ...] = (state.st_ino, state.st_size, state.st_mtime_ns)
    except OSError:
        version = ()  # reading it says what is wrong
    return _read(os.fspath(path), name, version)


@lru_cache(maxsize=4)
def _read(path: str, name: str | None, _: tuple[int, ...]) -> Model:
    network, provenance = load(path)
    model = Model(name or os.path.basename(path), network, provenance)
    if provenance.unit != "cell":
        raise ValueError(f"{model.name} measures in {provenance.unit}; train one in units of the cell")
    LearnedMethod(network, 1.0)  # refuses one that is not convolutional
    return model
