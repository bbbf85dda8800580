"""Related networks of the literature, on the same maps and task: cells in, signals in their cells out.

They differ from primal-dual networks in what they iterate: sparse coefficients (LISTA), features (residual
networks), learned proximal maps around a fixed operator (learned primal-dual), or a few exact steps behind a
network of another kind (deep primal-dual). The tied recurrent network belongs to the primal-dual family.

Each is written from its paper's equations, reduced to this task; docstrings name the omissions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdrn.convex import Box
from pdrn.convex.backend import Array, Step, namespace, zeros
from pdrn.convex.functionals import clip
from pdrn.convex.operators import analyse
from pdrn.errors import InputError
from pdrn.nets.maps import ConvolutionalMap, Map, set_size
from pdrn.nets.primal_dual import Arrays, MapArchitecture, PrimalDual, Weights

TAPS = 3
"""Places that a small convolution sees: one to the left, its own, one to the right."""


def recurrent_proximal(map: Map, depth: int) -> PrimalDual:
    """Return the recurrent proximal network of Wang, Fidler and Urtasun (2016).

    One operator for all layers, steps and extrapolation learned, started at Chambolle-Pock with theta = 1.
    """
    return PrimalDual(map, depth, "dual", "tied", theta=1.0, learn_theta="once")


@dataclass(frozen=True)
class LISTA(MapArchitecture):
    """Learned iterative soft thresholding (Gregor and LeCun 2010): the coefficients a of q, and ``s = D a``.

        a <- soft(W q + S a, threshold)   with   S = 1 - E D

    W, E, D and the thresholds are shared by all layers. The factored S is as general as theirs for a square
    dictionary, and the only affordable one for a convolution. It starts at ISTA with the map's dictionary.
    """

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys("WED", self.map.kernel_shape) | {"threshold": (self.map.channels,)}

    def start(self, generator: np.random.Generator) -> Arrays:
        K, norm = self.map.dictionary()
        threshold = np.full(self.map.channels, 0.01)
        return {"W": K / norm**2, "E": K / norm**2, "D": K, "threshold": threshold}

    def states(self, weights: Weights, inputs: Box) -> Iterator[Array]:
        E, D = weights["E"], weights["D"]
        threshold = namespace(E).abs(weights["threshold"])
        seen = self.map.analyse(self.map.lay_out(inputs.centre), weights["W"])
        inside = _inside(self.map, inputs)
        a = _soft(seen, threshold)
        yield a
        for _ in range(self.depth - 1):
            s = inside * self.map.synthesise(a, D)
            a = _soft(seen + a - self.map.analyse(s, E), threshold)
            yield a

    def estimate(self, weights: Weights, inputs: Box, state: Array) -> Array:
        return self.map.gather(self.map.synthesise(state, weights["D"]), inputs.lo.shape)

    def products(self, shape: tuple[int, ...]) -> int:
        return 2 * self.depth * self.map.products(shape)


@dataclass(frozen=True)
class ResidualNetwork(MapArchitecture):
    """Residual blocks of He et al. (2016), equation (2.2), on features of q, with linear maps in and out.

        h <- relu(W2 relu(W1 h + b1) + b2 + h),   s = q + B h,   first h = relu(A q + a)

    It starts at random with ``B = 0``: a network that changes nothing. No batch normalisation.
    """

    def shapes(self) -> dict[str, tuple[int, ...]]:
        kernel, channels = self.map.kernel_shape, self.map.channels
        shapes: dict[str, tuple[int, ...]] = {"A": kernel, "a": (channels,), "B": kernel}
        for name, shape in (("W1", (channels, channels)), ("W2", (channels, channels))):
            shapes |= {f"{name}.{layer}": shape for layer in range(self.depth)}
        for name in ("b1", "b2"):
            shapes |= {f"{name}.{layer}": (channels,) for layer in range(self.depth)}
        return shapes

    def start(self, generator: np.random.Generator) -> Arrays:
        return _glorot(self.shapes(), generator, silent=("B",))

    def states(self, weights: Weights, inputs: Box) -> Iterator[Array]:
        h = _relu(self.map.analyse(self.map.lay_out(inputs.centre), weights["A"]) + weights["a"])
        for layer in range(self.depth):
            W1, W2 = weights[f"W1.{layer}"], weights[f"W2.{layer}"]
            inner = _relu(h @ W1.T + weights[f"b1.{layer}"])
            h = _relu(inner @ W2.T + weights[f"b2.{layer}"] + h)
            yield h

    def estimate(self, weights: Weights, inputs: Box, state: Array) -> Array:
        change = self.map.synthesise(state, weights["B"])
        estimate: Array = inputs.centre + self.map.gather(change, inputs.lo.shape)
        return estimate

    def products(self, shape: tuple[int, ...]) -> int:
        outer = self.map.products(shape)
        inner = self.map.sizes(shape)[1] * self.map.channels
        return 2 * self.depth * inner + 2 * outer


@dataclass(frozen=True)
class LearnedPrimalDual(MapArchitecture):
    """Learned primal-dual (Adler and Oktem 2018): the operator stays, the proximal maps are learned.

        y <- y + dual CNN(y, K x, K q),   x <- x + primal CNN(x, K'y)

    x and y carry ``memory`` channels, of which the first is what K sees. Each CNN has three layers of
    ``width`` channels over neighbouring samples or frequencies. ReLU stands in for their PReLU; K, the map's
    dictionary scaled to norm 1, is not learned.
    """

    memory: int = 5
    width: int = 32

    fixed = ("K",)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_size(self, "memory")
        set_size(self, "width")
        if isinstance(self.map, ConvolutionalMap) and self.map.edge == 0:
            raise InputError("signals would see each other; give the map a window longer than its hop")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"K": self.map.kernel_shape}
        for side, extra in (("dual", 2), ("primal", 1)):
            sizes = (self.memory + extra, self.width, self.width, self.memory)
            for stage, (into, out) in enumerate(itertools.pairwise(sizes)):
                for layer in range(self.depth):
                    shapes[f"{side}{stage}.{layer}"] = (out, TAPS * into)
                    shapes[f"{side}{stage}_bias.{layer}"] = (out,)
        return shapes

    def start(self, generator: np.random.Generator) -> Arrays:
        K, norm = self.map.dictionary()
        return _glorot(self.shapes(), generator, silent=("primal2",)) | {"K": K / norm}

    def states(self, weights: Weights, inputs: Box) -> Iterator[Array]:
        q = self.map.lay_out(inputs.centre)
        K, stack = weights["K"], namespace(q).concatenate
        inside = _inside(self.map, inputs)[..., None]
        seen = self.map.analyse(q, K)[..., None]
        y = zeros((*seen.shape[:-1], self.memory), q)
        x = stack([q[..., None]] * self.memory, -1)
        for layer in range(self.depth):
            forward = self.map.analyse(x[..., 0], K)[..., None]
            y = y + self._cnn("dual", layer, weights, stack([y, forward, seen], -1), 1.0)
            backward = inside * self.map.synthesise(y[..., 0], K)[..., None]
            x = x + self._cnn("primal", layer, weights, stack([x, backward], -1), inside)
            yield x

    def estimate(self, weights: Weights, inputs: Box, state: Array) -> Array:
        return self.map.gather(state[..., 0], inputs.lo.shape)

    def _cnn(self, side: str, layer: int, weights: Weights, features: Array, inside: Any) -> Array:
        """Do three small convolutions, ``(..., places, channels) -> (..., places, memory)``."""
        for stage in range(3):
            kernel, bias = weights[f"{side}{stage}.{layer}"], weights[f"{side}{stage}_bias.{layer}"]
            *batch, places, channels = features.shape
            edge = zeros((*batch, channels), features)
            flat = features.reshape(*batch, places * channels)
            padded = namespace(features).concatenate([edge, flat, edge], -1)
            features = inside * (analyse(padded, kernel, hop=channels) + bias)
            features = features if stage == 2 else _relu(features)
        return features

    def products(self, shape: tuple[int, ...]) -> int:
        samples, coefficients = self.map.sizes(shape)
        cnn = sum(
            math.prod(size) * places
            for side, places in (("dual", coefficients), ("primal", samples))
            for name, size in self.shapes().items()
            if name.startswith(side) and len(size) == 2
        )
        return (2 * self.depth + 1) * self.map.products(shape) + cnn


@dataclass(frozen=True)
class DeepPrimalDual(MapArchitecture):
    """A network that estimates and a primal-dual head that corrects (Riegler et al. 2016).

    The body, a residual network, makes an estimate u. The head does ``depth`` steps of Chambolle-Pock on
    ``|K s|_1 + pull^2 / 2 |s - u|^2`` over the cells, with K, its steps and the pull learned. Theirs has a
    non-local regulariser in place of ``|K s|_1``.
    """

    body_depth: int = 2

    @property
    def body(self) -> ResidualNetwork:
        """The network that makes the estimate u."""
        return ResidualNetwork(self.map, self.body_depth)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        steps = dict.fromkeys(("sigma", "tau", "pull"), (1,))
        return self.body.shapes() | {"K": self.map.kernel_shape} | steps

    def start(self, generator: np.random.Generator) -> Arrays:
        K, norm = self.map.dictionary()
        steps = {"sigma": 10.0, "tau": 0.1 / norm**2, "pull": 1.0}
        head = {name: np.full(1, step) for name, step in steps.items()}
        return self.body.start(generator) | {"K": K} | head

    def states(self, weights: Weights, inputs: Box) -> Iterator[Array]:
        map = self.map
        *_, hidden = self.body.states(weights, inputs)
        guess = self.body.estimate(weights, inputs, hidden)
        u, lower, upper = map.lay_out(guess), map.lay_out(inputs.lo), map.lay_out(inputs.hi)
        K, sigma, tau = weights["K"], weights["sigma"][0], weights["tau"][0]
        pull = tau * weights["pull"][0] ** 2
        y: Step = 0.0
        x = x_bar = clip(u, lower, upper)
        for _ in range(self.depth):
            y = clip(sigma * map.analyse(x_bar, K) + y, -1.0, 1.0)
            before = x
            x = clip((x - tau * map.synthesise(y, K) + pull * u) / (1 + pull), lower, upper)
            x_bar = 2 * x - before
            yield x

    def estimate(self, weights: Weights, inputs: Box, state: Array) -> Array:
        return self.map.gather(state, inputs.lo.shape)

    def products(self, shape: tuple[int, ...]) -> int:
        return self.body.products(shape) + 2 * self.depth * self.map.products(shape)


def _inside(map: Map, inputs: Box) -> Array:
    """Return ones on the signals and zeros between them, so that no signal of a batch sees another."""
    return map.lay_out(namespace(inputs.lo).ones_like(inputs.lo))


def _glorot(
    shapes: dict[str, tuple[int, ...]], generator: np.random.Generator, silent: tuple[str, ...]
) -> Arrays:
    """Matrices uniform in ``+-sqrt(6 / (rows + columns))``, biases and the kinds named silent zero."""

    def matrix(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if len(shape) == 1 or name.partition(".")[0] in silent:
            return np.zeros(shape)
        limit = math.sqrt(6 / sum(shape))
        return generator.uniform(-limit, limit, shape)

    return {name: matrix(name, shape) for name, shape in shapes.items()}


def _relu(x: Array) -> Array:
    return x.clip(0, None) if isinstance(x, np.ndarray) else x.relu()


def _soft(v: Array, threshold: Array) -> Array:
    return v - clip(v, -threshold, threshold)
