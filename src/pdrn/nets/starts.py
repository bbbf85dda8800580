"""Where training starts: at Chambolle-Pock, at random, or at the identity. Weights come in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pdrn.nets.architecture import Start
    from pdrn.nets.primal_dual import PrimalDual

SPARING = 1.5
"""Where the weights of a prior start to follow the signal, a natural logarithm; tried on training speech."""

Fill = Callable[[tuple[int, ...]], np.ndarray[Any, Any]]


def chambolle_pock(
    architecture: PrimalDual,
    *,
    sigma: float = 10.0,
    tau: float | None = None,
    dictionary: np.ndarray[Any, Any] | None = None,
    memory_gain: float = 1.0,
    generator: np.random.Generator | None = None,
) -> Start:
    """Start at the algorithm: ``W = sigma K``, ``V = -tau K'``, no bias.

    A PDN then computes what as many iterations of Chambolle-Pock compute, a PDRN what they compute when the
    dual variable is forgotten in between.

    Parameters
    ----------
    architecture
        The network.
    sigma, tau
        The steps. Without tau it is the longest step that converges, ``1 / (sigma |K|^2)``.
    dictionary
        The kernel K, shape ``(m, n)`` or ``(channels, window)``; without it the map's own: the cosine
        transform, or windowed cosines and sines.
    memory_gain
        Where the network has a map of the dual memory, it starts at so many times the identity.
    generator
        Fills the hidden layers of a context, which has no say at the start.
    """
    K, norm = _dictionary(architecture, dictionary)
    tau = 1 / (sigma * norm**2) if tau is None else tau
    tied = architecture.tying == "tied"
    return _filled(
        architecture,
        generator,
        W=lambda shape: sigma * K,
        V=lambda shape: -tau * K,
        K=lambda shape: K.copy() if tied else sigma * K,
        sigma=lambda shape: np.full(shape, sigma),
        tau=lambda shape: np.full(shape, tau if tied else tau / sigma),
        M=lambda shape: memory_gain * _identity(shape),
    )


def glorot(architecture: PrimalDual, generator: np.random.Generator) -> Start:
    """Start at random: every kernel uniform in ``+-sqrt(6 / (rows + columns))``, no bias, unit steps.

    This is the default of TensorFlow 1.5, and so the likely start of the paper.
    """
    limit = math.sqrt(6 / sum(architecture.map.kernel_shape))

    def uniform(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return generator.uniform(-limit, limit, shape)

    return _filled(
        architecture, generator, W=uniform, V=uniform, K=uniform, sigma=np.ones, tau=np.ones, M=_identity
    )


def identity(architecture: PrimalDual, generator: np.random.Generator) -> Start:
    """Start with a network that changes nothing: ``V = 0``, or tau where that is tied, the rest at random.

    W is not zero too, since no gradient would reach either.
    """
    weights = glorot(architecture, generator)
    silent = ("V", "tau")
    return {name: 0 * part if name.partition(".")[0] in silent else part for name, part in weights.items()}


def _dictionary(
    architecture: PrimalDual, dictionary: np.ndarray[Any, Any] | None
) -> tuple[np.ndarray[Any, Any], float]:
    if dictionary is None:
        return architecture.map.dictionary()
    K = np.asarray(dictionary, np.float64)
    if K.shape != architecture.map.kernel_shape:
        raise ValueError(f"the dictionary must have shape {architecture.map.kernel_shape}, got {K.shape}")
    return K, architecture.map.norm(K)


def _filled(architecture: PrimalDual, generator: np.random.Generator | None, **fills: Fill) -> Start:
    """Make every tensor of an architecture, each by the rule for its kind."""
    generator = np.random.default_rng(0) if generator is None else generator
    fills |= {
        "b": np.zeros,
        "theta": lambda shape: np.full(shape, float(architecture.theta)),
        "A": lambda shape: architecture.map.dictionary()[0],
        "a": lambda shape: np.full(shape, SPARING),
        "C": lambda shape: generator.normal(0.0, math.sqrt(2 / shape[1]), shape),
        "c": np.zeros,
        "H": np.zeros,
        "h": np.zeros,
    }
    return {name: fills[name.partition(".")[0]](shape) for name, shape in architecture.shapes().items()}


def _identity(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.ones(shape) if len(shape) == 1 else np.eye(shape[0])
