"""The blocks of primal-dual networks: equations (2.1) and (2.5), for any F and G.

A block is one iteration of Chambolle-Pock (1.2) whose operator has become two learned linear maps. With
``W = sigma K`` and ``V = -tau K'`` the primal-dual block *is* that iteration. Maps are functions; ``F`` and
``G`` are functionals of the convex core, whose proximal maps are the activations. For dequantization
``F = L1()`` and ``G = Box(lower, upper)`` make both of them clips, which gives (3.3) and (3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pdrn.convex import Functional
from pdrn.convex.arrays import Array, Step, is_array, plus, times

LinearMap = Callable[[Array], Array]
"""A linear map whose result is memory of its own."""


@dataclass(frozen=True, eq=False)
class Activations:
    """What one block hands to the next."""

    x: Array
    """The primal activation, the signal."""
    y: Any
    """The dual activation, one number per coefficient; the number 0 before the first block."""
    x_bar: Array
    """The extrapolated primal activation; x itself where theta is 0."""

    @classmethod
    def at(cls, x: Array) -> Activations:
        """Start at x with a dual activation of zero."""
        return cls(x, 0.0, x)


class Block(Protocol):
    """One layer of an unrolled network."""

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        """Return the activations after this layer."""


def unrolled(blocks: Iterable[Block], F: Functional, G: Functional, x: Array) -> Iterator[Activations]:
    """Yield the activations after every block, from x on."""
    activations = Activations.at(x)
    for block in blocks:
        activations = block(F, G, activations)
        yield activations


@dataclass(frozen=True, eq=False)
class PrimalDualBlock:
    """The block of a primal-dual network, (2.1) and (3.3): the dual activation is its memory.

        y'     = prox_{sigma F*}(W x_bar + y)
        x'     = prox_{tau G}(V y' + x)
        x_bar' = x' + theta (x' - x)

    Steps and theta are numbers or tensors that learn. Where F* and G are indicators, as for dequantization,
    the steps live in W and V alone.
    """

    W: LinearMap
    V: LinearMap
    theta: Step = 0.0
    sigma: Step = 1.0
    tau: Step = 1.0

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        y = F.prox_conjugate(plus(self.W(before.x_bar), before.y), self.sigma, overwrite=True)
        return _primal_step(self, G, before.x, y)


@dataclass(frozen=True, eq=False)
class PrimalDualResidualBlock:
    """The block of a primal-dual residual network, (2.5) and (3.4): a learned bias replaces the memory.

        y' = prox_{sigma F*}(W x_bar + b)
        x' = prox_{tau G}(V y' + x)

    The paper has theta = 0, hence x_bar = x.
    """

    W: LinearMap
    V: LinearMap
    b: Array
    theta: Step = 0.0
    sigma: Step = 1.0
    tau: Step = 1.0

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        y = F.prox_conjugate(plus(self.W(before.x_bar), self.b), self.sigma, overwrite=True)
        return _primal_step(self, G, before.x, y)


@dataclass(frozen=True, eq=False)
class MixingBlock:
    """Between the two: a learned map ``M`` of the last dual activation, and a bias.

        y' = prox_{sigma F*}(W x_bar + M y + b)
        x' = prox_{tau G}(V y' + x)

    ``M = 1, b = 0`` is the primal-dual block, ``M = 0`` the primal-dual residual block.
    """

    W: LinearMap
    V: LinearMap
    M: LinearMap
    b: Array
    theta: Step = 0.0
    sigma: Step = 1.0
    tau: Step = 1.0

    def __call__(self, F: Functional, G: Functional, before: Activations) -> Activations:
        v = plus(plus(self.W(before.x_bar), self.M(before.y)), self.b)
        return _primal_step(self, G, before.x, F.prox_conjugate(v, self.sigma, overwrite=True))


def _primal_step(
    block: PrimalDualBlock | PrimalDualResidualBlock | MixingBlock, G: Functional, x: Array, y: Array
) -> Activations:
    """Do the second half of every block: ``x' = prox_{tau G}(V y' + x)``, and extrapolate."""
    after = G.prox(plus(block.V(y), x), block.tau, overwrite=True)
    if not is_array(block.theta) and block.theta == 0:
        return Activations(after, y, after)
    return Activations(after, y, plus(times(after - x, block.theta), after))
