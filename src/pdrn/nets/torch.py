"""Networks and blocks as torch modules: the same forward pass, with weights that learn."""

from __future__ import annotations

from collections.abc import Iterator
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
    Arrays,
    Block,
    CellArchitecture,
    Learned,
    Memory,
    PrimalDual,
    State,
    Tying,
    Weights,
    run,
    run_by_layer,
)
from pdrn.nets.runtime import Network, check_shapes
from pdrn.nets.spectral import at_rate


class PrimalDualBlock(nn.Module):
    """The block of a PDN, (2.1) and (3.3), on vectors, for any F and G; it maps a state to a state.

        y'     = prox_{sigma F*}(W x_bar + y)
        x'     = prox_{tau G}(V y' + x)
        x_bar' = x' + theta (x' - x)

    The parameters W, of shape ``(coefficients, samples)``, and V, ``(samples, coefficients)``, start uniform
    within Glorot's limits, drawn by torch's generator.

    Parameters
    ----------
    samples
        Length of x.
    coefficients
        Length of y; default: as many as samples.
    theta, sigma, tau
        Extrapolation and steps, numbers or parameters of your own. Where F* and G are indicators, sigma and
        tau have no effect beside W and V.

    Examples
    --------
    >>> import torch
    >>> from pdrn.convex import L1, Box
    >>> from pdrn.nets.torch import PrimalDualBlock, State
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(*(PrimalDualBlock(64) for _ in range(3)))
    >>> q = torch.round(8 * torch.sin(torch.arange(64) / 5)) / 8
    >>> cells = Box(q - 1 / 16, q + 1 / 16)
    >>> restored = net(State.at(q, L1(), cells)).x
    >>> bool(((cells.lo <= restored) & (restored <= cells.hi)).all())
    True
    """

    def __init__(
        self,
        samples: int,
        coefficients: int | None = None,
        *,
        theta: float | Tensor = 0.0,
        sigma: float | Tensor = 1.0,
        tau: float | Tensor = 1.0,
    ) -> None:
        super().__init__()
        self.theta, self.sigma, self.tau = theta, sigma, tau
        self.W = nn.Parameter(torch.empty(coefficients or samples, samples))
        self.V = nn.Parameter(torch.empty(samples, coefficients or samples))
        for matrix in (self.W, self.V):
            nn.init.xavier_uniform_(matrix)

    def forward(self, state: State) -> State:
        """Return the state after this block."""
        return Block(self._analyse, self._synthesise, 1.0, 0.0, self.theta, self.sigma, self.tau)(state)

    def _analyse(self, x: Tensor) -> Tensor:
        return x @ self.W.T

    def _synthesise(self, y: Tensor) -> Tensor:
        return y @ self.V.T


class PDRNBlock(PrimalDualBlock):
    """The block of a PDRN, (2.5) and (3.4): a learned bias b, zero at the start, replaces the dual memory.

        y' = prox_{sigma F*}(W x_bar + b)
        x' = prox_{tau G}(V y' + x)

    Its parameters are those of ``PrimalDualBlock``; the paper has theta = 0, hence x_bar = x.
    """

    def __init__(self, samples: int, coefficients: int | None = None, **steps: Any) -> None:
        super().__init__(samples, coefficients, **steps)
        self.b = nn.Parameter(torch.zeros(coefficients or samples))

    def forward(self, state: State) -> State:
        return Block(self._analyse, self._synthesise, 0.0, self.b, self.theta, self.sigma, self.tau)(state)


class NetworkModule(nn.Module):
    """Any architecture as a module, called as the architecture wants: with ``lo, hi`` or a problem.

    Parameters
    ----------
    architecture
        The structure.
    weights
        Where to start, arrays by name. Default: the architecture's own start, whose random part follows
        ``torch.manual_seed``; an unrolled problem has none, since it starts at an operator.
    dtype
        Type of the weights, and of the computation: float32 or float64.
    last_layers
        Gradients flow through this many last layers only, which saves memory; 0: through all.
    """

    def __init__(
        self,
        architecture: Architecture,
        weights: Arrays | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        last_layers: int = 0,
    ) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"networks compute in float32 or float64, not in {dtype}; try torch.autocast")
        if weights is None:
            if not isinstance(architecture, CellArchitecture):
                raise InputError(f"a {type(architecture).__name__} has no start of its own; pass weights")
            weights = architecture.start(np.random.default_rng(int(torch.randint(2**63 - 1, ()))))
        check_shapes(architecture, {name: np.shape(part) for name, part in weights.items()})
        self.architecture, self.last_layers = architecture, last_layers
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

    @staticmethod
    def of(network: Network, *, last_layers: int = 0) -> NetworkModule:
        """Return a NumPy network as a module, to train it further."""
        double = next(iter(network.weights.values())).dtype == np.float64
        return NetworkModule(
            network.architecture,
            network.weights,
            dtype=torch.float64 if double else torch.float32,
            last_layers=last_layers,
        )

    def network(self) -> Network:
        """Return the NumPy network with the weights as they are now."""
        weights = {name: part.cpu().numpy().copy() for name, part in self.state_dict().items()}
        return Network(self.architecture, weights)

    def forward(
        self, lo: Tensor | Problem, hi: Tensor | None = None, sample_rate_hz: int | None = None
    ) -> Tensor:
        """Restore signals inside their cells, or solve a problem, ``(..., n) -> (..., n)``.

        ``sample_rate_hz`` is for a `SpectralPrimalDual`; default: that of the architecture.

        The cells of the paper's quantizer are ``q - step / 2`` and ``q + step / 2``. Their type and shape are
        checked, their values are not: a cell with ``lo > hi`` restores to ``hi``. A problem may hold
        NumPy arrays.
        """
        architecture = self.architecture
        if sample_rate_hz is not None:
            architecture = at_rate(architecture, sample_rate_hz)
        restored: Tensor = run(architecture, self._weights(), self._inputs(lo, hi), self._skip)
        return restored

    def by_layer(self, lo: Tensor | Problem, hi: Tensor | None = None) -> list[Tensor]:
        """Return the estimates of all layers; the last is what ``forward`` returns."""
        return run_by_layer(self.architecture, self._weights(), self._inputs(lo, hi))

    def _skip(self, states: Iterator[Any]) -> None:
        if self.last_layers:
            with torch.no_grad():
                for _ in range(self.architecture.depth - self.last_layers):
                    next(states)

    def _inputs(self, lo: Tensor | Problem, hi: Tensor | None) -> Any:
        inputs = self.architecture.inputs(lo, hi, check_values=False)
        if not isinstance(inputs, Problem):
            return inputs
        device = next(iter(self.state_dict().values())).device
        return map_arrays(inputs, lambda array: torch.as_tensor(array, device=device))

    def _weights(self) -> Weights:
        return {name: self._tensor(name) for name in self.architecture.shapes()}

    def _tensor(self, name: str) -> Tensor:
        kind, _, index = name.partition(".")
        part: Any = getattr(self, kind)
        tensor: Tensor = part[int(index)] if index else part
        return tensor

    def extra_repr(self) -> str:
        return f"{self.architecture}, {self.architecture.parameter_count:,} parameters"


class PDN(NetworkModule):
    """A primal-dual network, blocks (3.3): ``depth`` steps whose memory is the dual variable.

    Parameters
    ----------
    map
        Frame length, for the paper's dense weights; or a ``DenseMap`` or ``ConvolutionalMap``.
    depth
        Number of blocks.
    tying, theta, learn_theta
        See ``PrimalDual``.
    weights
        Where to start, for example ``glorot(PrimalDual(...), generator)`` of ``pdrn.nets.primal_dual``.
        Default: Chambolle-Pock.

    Examples
    --------
    >>> import torch
    >>> from pdrn.nets.torch import PDN
    >>> net = PDN(64, depth=5)
    >>> q = torch.round(8 * torch.sin(torch.arange(64) / 5)) / 8
    >>> net(q - 1 / 16, q + 1 / 16).shape
    torch.Size([64])
    """

    memory: Memory = "dual"

    def __init__(
        self,
        map: int | Map,
        depth: int,
        *,
        tying: Tying = "untied",
        theta: float = 0.0,
        learn_theta: Learned = "no",
        weights: Arrays | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if not isinstance(map, DenseMap | ConvolutionalMap):
            map = DenseMap(map)
        architecture = PrimalDual(map, depth, self.memory, tying, theta, learn_theta)
        super().__init__(architecture, weights, dtype=dtype)


class PDRN(PDN):
    """A primal-dual residual network, blocks (3.4): a learned bias replaces the dual memory.

    The parameters are those of ``PDN``.

    >>> from pdrn.nets.torch import PDRN
    >>> PDRN(1024, depth=2).architecture.parameter_count == 2 * (2 * 1024**2 + 1024)
    True
    """

    memory = "bias"
