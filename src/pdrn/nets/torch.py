"""Networks as torch modules: the same forward pass, with weights that learn."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pdrn.convex import Problem
from pdrn.convex.backend import map_arrays
from pdrn.errors import InputError
from pdrn.nets.maps import ConvolutionalMap, DenseMap, Map
from pdrn.nets.primal_dual import (
    Architecture,
    Learned,
    PrimalDual,
    Start,
    Tying,
    Weights,
    restore,
    restore_by_layer,
)
from pdrn.nets.runtime import Arrays, Network, Plan, check_weights
from pdrn.nets.unrolling import Unrolled, Unrolling, run, run_by_layer


class PlannedModule(nn.Module):
    """The weights of a plan, as parameters by the plan's names."""

    def __init__(self, architecture: Plan, weights: Start, dtype: torch.dtype) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"networks compute in float32 or float64, not in {dtype}; try torch.autocast")
        self.architecture: Any = architecture
        check_weights(architecture, {name: np.shape(part) for name, part in weights.items()})
        lists: dict[str, list[nn.Parameter]] = {}
        for name in architecture.shapes():
            tensor = torch.tensor(weights[name], dtype=dtype)
            kind, _, index = name.partition(".")
            if name in architecture.fixed:
                self.register_buffer(name, tensor)
            elif index:
                lists.setdefault(kind, []).append(nn.Parameter(tensor))
            else:
                self.register_parameter(name, nn.Parameter(tensor))
        for kind, parameters in lists.items():
            self.add_module(kind, nn.ParameterList(parameters))

    def _arrays(self) -> Arrays:
        return {name: part.cpu().numpy().copy() for name, part in self.state_dict().items()}

    def _weights(self) -> Weights:
        return {name: self._tensor(name) for name in self.architecture.shapes()}

    def _tensor(self, name: str) -> Tensor:
        kind, _, index = name.partition(".")
        part: Any = getattr(self, kind)
        tensor: Tensor = part[int(index)] if index else part
        return tensor

    def extra_repr(self) -> str:
        return f"{self.architecture}, {self.architecture.parameter_count:,} parameters"


class NetworkModule(PlannedModule):
    """Any architecture as a module: cells in, signals inside their cells out.

    Parameters
    ----------
    architecture
        The plan.
    weights
        Where to start, arrays by name; without them at the architecture's own start.
    dtype
        The type of the weights, and of the computation.
    """

    def __init__(
        self, architecture: Architecture, weights: Start | None = None, *, dtype: torch.dtype = torch.float32
    ) -> None:
        weights = architecture.start(np.random.default_rng(0)) if weights is None else weights
        super().__init__(architecture, weights, dtype)

    def network(self) -> Network:
        """Return the NumPy network with the weights as they are now."""
        return Network(self.architecture, self._arrays())

    def forward(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Restore signals inside their cells, ``(..., n) -> (..., n)``.

        For the paper's quantizer the cells of a quantized signal q are ``q - step / 2`` and ``q + step / 2``.
        Cells are checked; in a compiled or exported graph they are not.
        """
        restored: Tensor = restore(self.architecture, self._weights(), lower, upper)
        return restored

    def by_layer(self, lower: Tensor, upper: Tensor) -> list[Tensor]:
        """Return the estimates of all layers; the last is what ``forward`` returns."""
        return restore_by_layer(self.architecture, self._weights(), lower, upper)


def as_module(network: Network) -> NetworkModule:
    """Return a NumPy network as a module, to train it further."""
    dtype = torch.float64 if next(iter(network.weights.values())).dtype == np.float64 else torch.float32
    return NetworkModule(network.architecture, network.weights, dtype=dtype)


class PDN(NetworkModule):
    """A primal-dual network, blocks (3.3): ``depth`` steps whose memory is the dual activation.

    Parameters
    ----------
    map
        How long frames are, for the paper's dense weights; or a ``DenseMap`` or ``ConvolutionalMap``.
    depth
        How many blocks.
    tying, theta, learn_theta
        See ``PrimalDual``.
    weights
        Where to start, for example ``starts.glorot(PrimalDual(...), generator)``; without them at
        Chambolle-Pock.

    Examples
    --------
    >>> import torch
    >>> from pdrn.nets.torch import PDN
    >>> net = PDN(64, depth=5)
    >>> q = torch.round(8 * torch.sin(torch.arange(64) / 5)) / 8
    >>> net(q - 1 / 16, q + 1 / 16).shape
    torch.Size([64])
    """

    memory: Any = "dual"

    def __init__(
        self,
        map: int | Map,
        depth: int,
        *,
        tying: Tying = "untied",
        theta: float = 0.0,
        learn_theta: Learned = "no",
        weights: Start | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if not isinstance(map, DenseMap | ConvolutionalMap):
            map = DenseMap(map)
        architecture = PrimalDual(map, depth, self.memory, tying, theta, learn_theta)
        super().__init__(architecture, weights, dtype=dtype)


class PDRN(PDN):
    """A primal-dual residual network, blocks (3.4): a learned bias stands in for the dual memory.

    The parameters are those of ``PDN``.

    >>> from pdrn.nets.torch import PDRN
    >>> PDRN(1024, depth=2).architecture.parameter_count == 2 * (2 * 1024**2 + 1024)
    True
    """

    memory = "bias"


class UnrolledModule(PlannedModule):
    """An unrolling as a module: problems in, what its layers make of them out."""

    def __init__(self, architecture: Unrolling, weights: Start, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(architecture, weights, dtype)

    @staticmethod
    def of(network: Unrolled) -> UnrolledModule:
        """Return a NumPy network as a module, to train it further."""
        double = next(iter(network.weights.values())).dtype == np.float64
        return UnrolledModule(
            network.architecture, network.weights, torch.float64 if double else torch.float32
        )

    def network(self) -> Unrolled:
        """Return the NumPy network with the weights as they are now."""
        return Unrolled(self.architecture, self._arrays())

    def forward(self, problem: Problem) -> Tensor:
        """Return the x of the last layer, shape ``(..., n)``; the problem may hold NumPy arrays too."""
        weights = self._weights()
        x: Tensor = run(self.architecture, weights, _on(problem, next(iter(weights.values())).device))
        return x

    def by_layer(self, problem: Problem) -> list[Tensor]:
        """Return the x of all layers; the last is what ``forward`` returns."""
        weights = self._weights()
        problem = _on(problem, next(iter(weights.values())).device)
        return run_by_layer(self.architecture, weights, problem)


def _on(problem: Problem, device: torch.device) -> Problem:
    """Return a problem of tensors on a device, and anything else as it is."""
    if not isinstance(problem, Problem):
        return problem
    return map_arrays(problem, lambda array: torch.as_tensor(array, device=device))


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of mallopt's parameters, from malloc.h
_MOST_FROM_THE_HEAP = 32 * 2**20  # bytes; the largest that mallopt takes
_MOST_KEPT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep memory that arrays of up to 32 MB leave, for this process; tell whether the system can do that."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(
        mallopt(_MMAP_THRESHOLD, _MOST_FROM_THE_HEAP) == 1 and mallopt(_TRIM_THRESHOLD, _MOST_KEPT) == 1
    )
