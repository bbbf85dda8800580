"""Any problem min F(Kx) + G(x), unrolled: so many iterations of Chambolle-Pock as the layers of a network.

An *unrolling* is the plan: which tensors there are and how they act on a problem. What F and G hold, such as
cells or noisy signals, comes with the problem at every call, and so do the operator and the steps that the
algorithm takes for it. What is learned stands in for the operator and multiplies the steps:

    y'     = prox_{sigma F*}(y + sigma W x_bar)
    x'     = prox_{tau G}(x - tau V'y')
    x_bar' = x' + theta (x' - x)

with W = V = K and the algorithm's own sigma, tau and theta at the start. It runs on NumPy arrays and torch
tensors alike; ``pdrn.nets.unrolling`` has the network, ``pdrn.nets.torch`` the module that learns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from pdrn.convex import ChambollePock, Dense, Operator, Problem
from pdrn.convex.backend import (
    Array,
    convert,
    is_array,
    is_real,
    is_tensor,
    map_arrays,
    set_field,
    times,
    to_numpy,
)
from pdrn.errors import InputError
from pdrn.nets.maps import require_size, set_size
from pdrn.nets.primal_dual import (
    MOST_LAYERS,
    Activations,
    Block,
    Learned,
    Memory,
    MixingBlock,
    PrimalDualBlock,
    PrimalDualResidualBlock,
    Start,
    Tying,
    Weights,
)
from pdrn.nets.runtime import Arrays, checked_weights, limited

if TYPE_CHECKING:
    from pdrn.nets.torch import UnrolledModule

Kernel = Literal["own", "matrix", "gains"]

LARGEST_MATRIX = 2**18
"""An operator without arrays of its own is learned as a matrix if that has at most so many entries."""

_ANY_MATRIX = Dense(np.ones((1, 1)))


@dataclass(frozen=True)
class Unrolling:
    """L steps on a problem, started where the problem starts, with a dual activation of zero.

    Attributes
    ----------
    depth
        How many layers, L.
    kernel
        What is learned of the operator. ``own``: the arrays that it holds, such as a matrix or filters.
        ``matrix``: all of its matrix. ``gains``: one factor per channel of coefficients, the operator itself
        being fixed; for ``F = L1()`` these are weights of the norm.
    kernel_shapes
        The shapes of the arrays that a kernel consists of.
    channels
        How many kinds of coefficients the operator has; biases, gains and memory are per channel.
    memory, tying
        As in ``PrimalDual``: what the dual step adds, and whether W, V are kernels for every layer
        (``untied``), W = V one for every layer (``half``) or one for all (``tied``).
    learn_steps, learn_theta
        Whether the steps' factors and theta are learned: ``no``, ``once`` for all layers, ``per layer``.
    sigma, tau, theta
        Those of the algorithm; a step that is None follows from every problem's weight.
    """

    depth: int
    kernel: Kernel
    kernel_shapes: tuple[tuple[int, ...], ...]
    channels: int
    memory: Memory = "dual"
    tying: Tying = "untied"
    learn_steps: Learned = "per layer"
    learn_theta: Learned = "no"
    sigma: float | None = None
    tau: float | None = None
    theta: float = 1.0

    fixed: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        set_size(self, "depth", most=MOST_LAYERS)
        set_size(self, "channels")
        for name, kind in (
            ("kernel", Kernel),
            ("memory", Memory),
            ("tying", Tying),
            ("learn_steps", Learned),
            ("learn_theta", Learned),
        ):
            if getattr(self, name) not in get_args(kind):
                choices = ", ".join(get_args(kind))
                raise InputError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        set_field(self, "kernel_shapes", tuple(map(tuple, self.kernel_shapes)))
        if not self.kernel_shapes or (self.kernel != "own" and len(self.kernel_shapes) > 1):
            raise InputError(f"a kernel {self.kernel} does not consist of {len(self.kernel_shapes)} arrays")
        for size in (size for shape in self.kernel_shapes for size in shape):
            require_size("a size of a kernel", size)
        self._algorithm  # noqa: B018 (refuses steps that cannot be)

    @staticmethod
    def of(
        problem: Problem,
        depth: int,
        algorithm: ChambollePock | None = None,
        *,
        kernel: Kernel | None = None,
        memory: Memory = "dual",
        tying: Tying = "untied",
        learn_steps: Learned = "per layer",
        learn_theta: Learned = "no",
    ) -> Unrolling:
        """Plan a network for problems like this one; ``pdrn.nets.unrolling`` explains the parameters."""
        K, algorithm = problem.K, algorithm or ChambollePock()
        if not isinstance(algorithm, ChambollePock):
            raise InputError(f"a {type(algorithm).__name__} has no layers to learn; unroll ChambollePock")
        if kernel is None:
            small = math.prod(K.shape) <= LARGEST_MATRIX
            kernel = "own" if _arrays_of(K) else "matrix" if small else "gains"
        elif kernel == "own" and not _arrays_of(K):
            raise InputError(f"{K} holds no arrays to learn; choose the kernel matrix or gains")
        shapes = {
            "own": [array.shape for array in _arrays_of(K)],
            "matrix": [K.shape],
            "gains": [(K.channels,)],
        }.get(kernel, [])
        return Unrolling(
            depth,
            kernel,
            tuple(tuple(map(int, shape)) for shape in shapes),
            K.channels,
            memory,
            tying,
            learn_steps,
            learn_theta,
            algorithm.sigma,
            algorithm.tau,
            algorithm.theta,
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor."""
        shapes: dict[str, tuple[int, ...]] = {}
        for part, shape in enumerate(self.kernel_shapes):
            for kernel in {"untied": "WV", "half": "K", "tied": "K"}[self.tying]:
                name = kernel if part == 0 else f"{kernel}_{part}"
                if self.tying == "tied":
                    shapes[name] = shape
                else:
                    shapes |= {f"{name}.{layer}": shape for layer in range(self.depth)}
        if self.memory != "dual":
            shapes |= {f"b.{layer}": (self.channels,) for layer in range(self.depth)}
        if self.memory in ("gain", "mix"):
            mix = (self.channels,) if self.memory == "gain" else (self.channels, self.channels)
            shapes |= {f"M.{layer}": mix for layer in range(self.depth - 1)}
        for names, learned in ((("log_sigma", "log_tau"), self.learn_steps), (("theta",), self.learn_theta)):
            if learned != "no":
                shapes |= dict.fromkeys(names, (1,) if learned == "once" else (self.depth,))
        return shapes

    def start(self, K: Operator) -> Start:
        """Return the weights that make it Chambolle-Pock with this operator, float64."""
        if self.kernel == "own":
            parts = [to_numpy(array).astype(np.float64) for array in _arrays_of(K)]
        else:
            parts = [K.apply(np.eye(K.shape[1])).T if self.kernel == "matrix" else np.ones(K.channels)]
        weights: Start = {}
        for name, shape in self.shapes().items():
            kind, _, part = name.partition(".")[0].partition("_")
            if kind in ("W", "V", "K"):
                weights[name] = parts[int(part or 0)].copy()
            elif kind == "M":
                weights[name] = np.ones(shape) if len(shape) == 1 else np.eye(shape[0])
            else:
                weights[name] = np.full(shape, self.theta if kind == "theta" else 0.0)
        return weights

    def activations(self, weights: Weights, problem: Problem) -> Iterator[Activations]:
        """Yield what every layer hands to the next, for a problem in the type of the weights."""
        self._require_fits(problem.K)
        steps = self._algorithm.steps(problem)
        activations = Activations.at(problem.start)
        for layer in range(self.depth):
            block = self._block(layer, weights, problem.K, *steps)
            activations = block(problem.F, problem.G, activations)
            yield activations

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned."""
        return sum(math.prod(shape) for shape in self.shapes().values())

    @property
    def _algorithm(self) -> ChambollePock:
        return ChambollePock(self.sigma, self.tau, self.theta)

    def _require_fits(self, K: Operator) -> None:
        own = tuple(tuple(array.shape) for array in _arrays_of(K))
        fits = {
            "own": own == self.kernel_shapes,
            "matrix": K.shape == self.kernel_shapes[0],
            "gains": K.channels == self.channels,
        }[self.kernel]
        if not fits:
            raise InputError(
                f"this network was unrolled from a problem with another operator than {type(K).__name__} of "
                f"shape {K.shape}; pass problems with one like that"
            )

    def _block(self, layer: int, weights: Weights, K: Operator, sigma: Any, tau: Any) -> Block:
        analysis, synthesis = self._operators(layer, weights, K)
        if self.learn_steps != "no":
            index = 0 if self.learn_steps == "once" else layer
            sigma, tau = (
                step * _exp(weights[name][index]) for step, name in ((sigma, "log_sigma"), (tau, "log_tau"))
            )
        theta: Any = self.theta
        if self.learn_theta != "no":
            theta = weights["theta"][0 if self.learn_theta == "once" else layer]
        maps = (lambda x: times(analysis._apply(x), sigma), lambda y: times(synthesis._adjoint(y), -tau))
        if self.memory == "dual":
            return PrimalDualBlock(*maps, theta, sigma, tau)
        b = _per_channel(weights[f"b.{layer}"], K)
        if self.memory == "bias" or layer == 0:  # there is nothing to remember in the first layer
            return PrimalDualResidualBlock(*maps, b, theta, sigma, tau)
        M = weights[f"M.{layer - 1}"]

        def remember(y: Array) -> Array:
            seen = y.reshape(*y.shape[:-1], -1, self.channels)
            return (seen * M if self.memory == "gain" else seen @ M.T).reshape(y.shape)

        return MixingBlock(*maps, remember, b, theta, sigma, tau)

    def _operators(self, layer: int, weights: Weights, K: Operator) -> tuple[Operator, Operator]:
        """Return what stands for K where it analyses and where it synthesises."""
        suffix = "" if self.tying == "tied" else f".{layer}"
        operators: list[Operator] = []
        for kernel in "WV" if self.tying == "untied" else "K":
            names = [kernel, *(f"{kernel}_{part}" for part in range(1, len(self.kernel_shapes)))]
            parts = [weights[name + suffix] for name in names]
            if self.kernel == "gains":
                operators.append(_Gains(_per_channel(parts[0], K), K))
            else:
                like = K if self.kernel == "own" else _ANY_MATRIX
                operators.append(map_arrays(like, partial(_following, iter(parts))))
        return operators[0], operators[-1]


@dataclass(frozen=True, eq=False)
class _Gains(Operator):
    """``diag(gains) K``, for one gain per coefficient."""

    gains: Array
    operator: Operator

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    def apply(self, x: Array) -> Array:
        return self.gains * self.operator.apply(x)

    def adjoint(self, y: Array) -> Array:
        return self.operator.adjoint(self.gains * y)


def _arrays_of(K: Operator) -> list[Array]:
    """Return the arrays of floats that an operator holds, at any depth: masks and indices are not learned."""
    found: list[Array] = []

    def note(array: Array) -> Array:
        if is_real(array):
            found.append(array)
        return array

    map_arrays(K, note)
    return found


def _following(parts: Iterator[Array], array: Array) -> Array:
    """Put the next of some arrays in the place of another, if that is of floats."""
    return next(parts) if is_real(array) else array


def _per_channel(part: Array, K: Operator) -> Array:
    """Repeat numbers, one per channel, for every view."""
    count = K.shape[0] // part.shape[0]
    if count == 1:
        return part
    return part.repeat(count) if is_tensor(part) else np.tile(part, count)


def _exp(x: Any) -> Any:
    return x.exp() if is_array(x) else np.exp(x)


def unroll(
    problem: Problem,
    depth: int,
    algorithm: ChambollePock | None = None,
    *,
    kernel: Kernel | None = None,
    tying: Tying = "untied",
    memory: Memory = "dual",
    learn_steps: Learned = "per layer",
    learn_theta: Learned = "no",
) -> UnrolledModule:
    """Turn a problem min F(Kx) + G(x) into a network that learns to solve problems like it.

    Before it has learned, layer l is iterate l of ``solve(problem, algorithm)``, unless memory is ``bias``.
    It is called with problems that differ from this one in what F and G hold and in their batch. They have an
    operator like this one's: share it, so that its norm is computed once.

    Parameters
    ----------
    problem
        It gives the operator, and the type to compute in, float32 or float64.
    depth
        How many layers.
    algorithm
        Where learning starts, ``ChambollePock()`` unless given.
    kernel
        What is learned of the operator. ``own``: the arrays that it holds, such as a matrix or filters.
        ``matrix``: all of its matrix. ``gains``: nothing but a factor for each kind of coefficients, which
        for an l1 norm is its weight. Without it the first of these that there is, where a matrix has to be
        small (512 by 512).
    tying
        ``untied``: an analysing and a synthesising kernel for every layer. ``half``: one that does both.
        ``tied``: one for all layers.
    memory
        What the dual step adds to ``sigma W x``: the last dual activation (``dual``), a bias (``bias``), or a
        bias and the last dual activation times a number per channel (``gain``) or a matrix (``mix``).
    learn_steps, learn_theta
        Whether a factor of each step, and theta, are learned: ``no``, ``once`` or ``per layer``.

    Examples
    --------
    >>> import numpy as np
    >>> from pdrn.convex import DCT, L1, Problem, SquaredL2, solve
    >>> from pdrn.nets import unroll
    >>> noisy = np.cos(np.arange(32) / 3) + np.random.default_rng(0).normal(0, 0.3, (10, 32))
    >>> problem = Problem(0.5 * L1(), SquaredL2().shifted(-noisy), DCT(32), noisy)
    >>> net = unroll(problem, depth=5)
    >>> np.allclose(net(problem).detach(), solve(problem, iterations=5).x, atol=1e-12)
    True
    """
    plan = Unrolling.of(
        problem,
        depth,
        algorithm,
        kernel=kernel,
        tying=tying,
        memory=memory,
        learn_steps=learn_steps,
        learn_theta=learn_theta,
    )
    import torch

    from pdrn.nets.torch import UnrolledModule

    dtype = torch.float64 if str(problem.start.dtype).endswith("float64") else torch.float32
    return UnrolledModule(plan, plan.start(problem.K), dtype)


@dataclass(frozen=True, eq=False)
class Unrolled:
    """An unrolling and its weights, on NumPy arrays: calling it with a problem gives a solution of sorts.

    The weights are all float32 or all float64, and that is what is computed in. The result has the type of
    the problem, and lies where G is finite.
    """

    architecture: Unrolling
    weights: Arrays
    threads: int | None = 1
    """How many threads matrix products take; None leaves that to NumPy."""

    def __post_init__(self) -> None:
        set_field(self, "weights", checked_weights(self.architecture, self.weights))
        if self.threads is not None:
            set_size(self, "threads")

    def __call__(self, problem: Problem) -> Array:
        """Return the x of the last layer, shape ``(..., n)``."""
        with limited(self.threads):
            return run(self.architecture, self.weights, problem)

    def by_layer(self, problem: Problem) -> list[Array]:
        """Return the x of all layers; the last is the result."""
        with limited(self.threads):
            return run_by_layer(self.architecture, self.weights, problem)


def run(plan: Unrolling, weights: Weights, problem: Problem) -> Array:
    """Return the x of the last layer, in the problem's type and where its G is finite."""
    inner = _converted(problem, weights)
    last = reduce(lambda _, activation: activation, plan.activations(weights, inner))
    return _settled(last.x, problem)


def run_by_layer(plan: Unrolling, weights: Weights, problem: Problem) -> list[Array]:
    """Return the x of all layers; the last is what ``run`` returns."""
    activations = plan.activations(weights, _converted(problem, weights))
    return [_settled(each.x, problem) for each in activations]


def _converted(problem: Problem, weights: Weights) -> Problem:
    """Return the problem in the type that is computed in."""
    if not isinstance(problem, Problem):
        raise InputError(f"this network takes a Problem, as the solver does, got a {type(problem).__name__}")
    like = next(iter(weights.values()))
    if like.dtype == problem.start.dtype:
        return problem
    return map_arrays(problem, lambda array: convert(array, like))


def _settled(x: Array, problem: Problem) -> Array:
    """Return x in the type of the problem; what that moved goes back to where G is finite."""
    return x if x.dtype == problem.start.dtype else problem.G.project(convert(x, problem.start))
