"""The networks as torch modules: the same forward pass, with weights that learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pdrn.nets.architecture import Architecture, Start, Weights, restore, restore_by_layer
from pdrn.nets.maps import ConvolutionalMap, DenseMap, Map
from pdrn.nets.network import Arrays, Network, Plan, check_weights
from pdrn.nets.primal_dual import Learned, PrimalDual, Tying


class PlannedModule(nn.Module):
    """The weights of a plan, as parameters by the plan's names."""

    def __init__(self, architecture: Plan, weights: Start, dtype: torch.dtype) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"networks compute in float32 or float64, not in {dtype}; try torch.autocast")
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
    >>> from pdrn.nets.modules import PDN
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

    >>> from pdrn.nets.modules import PDRN
    >>> PDRN(1024, depth=2).architecture.parameter_count == 2 * (2 * 1024**2 + 1024)
    True
    """

    memory = "bias"
