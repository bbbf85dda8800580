"""Primal-dual networks: L blocks from the quantized signal to the restored one.

``PrimalDual`` is the whole family. Its corners have names: memory ``dual`` is the PDN (3.3), memory ``bias``
the PDRN (3.4); tying ``tied`` is one K for all layers with learned steps, the authors' later variant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pdrn.convex import L1, Box
from pdrn.convex.arrays import Array
from pdrn.nets.architecture import Architecture, Start, Weights
from pdrn.nets.blocks import (
    Activations,
    Block,
    LinearMap,
    MixingBlock,
    PrimalDualBlock,
    PrimalDualResidualBlock,
    unrolled,
)
from pdrn.nets.starts import chambolle_pock

Memory = Literal["dual", "bias", "gain", "mix"]
Tying = Literal["untied", "half", "tied"]
Learned = Literal["no", "once", "per layer"]


@dataclass(frozen=True)
class PrimalDual(Architecture):
    """L primal-dual steps on the cells: ``s = x[L]``, started at the centres and a dual activation of zero.

    The paper's variable is the distance to the centre q; here x is the signal itself, so that ``W`` sees
    ``x`` where the paper writes ``x + q``, and the box is the cells.

    Attributes
    ----------
    map
        Dense or convolutional.
    depth
        How many blocks, L.
    memory
        What the dual step adds to ``W x``: the last dual activation (``dual``, the PDN), a bias (``bias``,
        the PDRN), a bias and the last dual activation times one number per channel (``gain``) or mixed
        across channels by a matrix (``mix``).
    tying
        ``untied``: kernels W and V for every layer. ``half``: one kernel K for every layer, W = K and
        V = -tau K' with a learned tau. ``tied``: one K for all, W = sigma K and V = -tau K', both learned.
    theta
        The extrapolation, or where it starts if it is learned.
    learn_theta
        Whether theta is learned: ``no``, ``once`` for all layers, or ``per layer``.

    Examples
    --------
    >>> from pdrn.nets import DenseMap, PrimalDual
    >>> PrimalDual(DenseMap(1024), depth=10).parameter_count == 10 * 2 * 1024**2
    True
    >>> PrimalDual(DenseMap(1024), depth=10, memory="bias").parameter_count == 10 * (2 * 1024**2 + 1024)
    True
    """

    memory: Memory = "dual"
    tying: Tying = "untied"
    theta: float = 0.0
    learn_theta: Learned = "no"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in (("memory", Memory), ("tying", Tying), ("learn_theta", Learned)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(
                    f"{name} must be one of {', '.join(get_args(choices))}, got {getattr(self, name)!r}"
                )
        if not np.isfinite(self.theta):
            raise ValueError(f"theta must be finite, got {self.theta}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        kernel, channels = self.map.kernel_shape, self.map.channels
        shapes: dict[str, tuple[int, ...]] = {}
        if self.tying == "tied":
            shapes |= {"K": kernel, "sigma": (1,), "tau": (1,)}
        elif self.tying == "half":
            shapes |= {f"K.{layer}": kernel for layer in range(self.depth)} | {"tau": (self.depth,)}
        else:
            shapes |= {f"{name}.{layer}": kernel for name in "WV" for layer in range(self.depth)}
        if self.memory != "dual":
            shapes |= {f"b.{layer}": (channels,) for layer in range(self.depth)}
        if self.memory in ("gain", "mix"):
            mix = (channels,) if self.memory == "gain" else (channels, channels)
            shapes |= {f"M.{layer}": mix for layer in range(self.depth - 1)}
        if self.learn_theta != "no":
            shapes["theta"] = (1,) if self.learn_theta == "once" else (self.depth,)
        return shapes

    def start(self, generator: np.random.Generator) -> Start:
        """Start at Chambolle-Pock with the map's own dictionary; nothing is random."""
        return chambolle_pock(self)

    def blocks(self, weights: Weights) -> list[Block]:
        """Return the layers that these weights make."""
        return [self._block(layer, weights) for layer in range(self.depth)]

    def activations(self, weights: Weights, cells: Box) -> Iterator[Activations]:
        box = Box(self.map.lay_out(cells.lower), self.map.lay_out(cells.upper))
        return unrolled(self.blocks(weights), L1(), box, box.centre)

    def estimate(self, weights: Weights, cells: Box, activation: Activations) -> Array:
        return self.map.gather(activation.x, cells.lower.shape)

    def products(self, shape: tuple[int, ...]) -> int:
        count = self.map.products(shape)
        mixing = count // self.map.kernel_shape[1] * self.map.channels if self.memory == "mix" else 0
        return 2 * self.depth * count + (self.depth - 1) * mixing

    def _block(self, layer: int, weights: Weights) -> Block:
        W, V = self._maps(layer, weights)
        theta = self._theta(layer, weights)
        if self.memory == "dual":
            return PrimalDualBlock(W, V, theta)
        b = weights[f"b.{layer}"]
        if self.memory == "bias" or layer == 0:  # there is nothing to remember in the first layer
            return PrimalDualResidualBlock(W, V, b, theta)
        M = weights[f"M.{layer - 1}"]
        return MixingBlock(W, V, (lambda y: y * M) if self.memory == "gain" else (lambda y: y @ M), b, theta)

    def _maps(self, layer: int, weights: Weights) -> tuple[LinearMap, LinearMap]:
        analyse, synthesise = self.map.analyse, self.map.synthesise
        if self.tying == "untied":
            W, V = weights[f"W.{layer}"], weights[f"V.{layer}"]
            return lambda x: analyse(x, W), lambda y: synthesise(y, V)
        if self.tying == "half":
            K, tau = weights[f"K.{layer}"], weights["tau"][layer]
            return lambda x: analyse(x, K), lambda y: -tau * synthesise(y, K)
        K, sigma, tau = weights["K"], weights["sigma"][0], weights["tau"][0]
        return lambda x: sigma * analyse(x, K), lambda y: -tau * synthesise(y, K)

    def _theta(self, layer: int, weights: Weights) -> Array:
        if self.learn_theta == "no":
            return self.theta
        return weights["theta"][0 if self.learn_theta == "once" else layer]
