"""Any problem min F(Kx) + G(x), unrolled: iterations of Chambolle-Pock as the layers of a network.

A call takes a problem, whose F, G and data it uses. Learned kernels W and V replace the problem's operator K,
and learned factors multiply the steps that the algorithm takes for it:

    y'     = prox_{sigma F*}(y + sigma W x_bar)
    x'     = prox_{tau G}(x - tau V'y')
    x_bar' = x' + theta (x' - x)

Initially W = V = K, and sigma, tau and theta are those of the algorithm. NumPy arrays and torch tensors run
the same code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pdrn.convex import ChambollePock, Dense, Operator, Problem
from pdrn.convex.backend import (
    AnyArray,
    Array,
    Step,
    convert,
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
    MAX_LAYERS,
    Arrays,
    Block,
    Learned,
    Memory,
    PrimalDualFamily,
    State,
    Tying,
    Weights,
    check_choices,
    identity_of,
    per_channel,
)

if TYPE_CHECKING:
    from pdrn.nets.torch import NetworkModule

Kernel = Literal["own", "matrix", "gains"]

MAX_MATRIX = 2**18
"""Largest number of entries of a matrix that is learned in place of an operator without arrays."""

_ANY_MATRIX = Dense(np.ones((1, 1)))


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
) -> NetworkModule:
    """Turn a problem min F(Kx) + G(x) into a torch module that learns to solve problems like it.

    Before training, layer l is iterate l of ``solve(problem, algorithm)``, except with the memory ``bias``.
    Call the module with problems that differ from this one in the arrays of F and G and in their batch. Let
    them share this problem's operator, so that its norm is computed once.

    Parameters
    ----------
    problem
        Its operator is the initial kernel; its dtype, float32 or float64, is that of the module.
    depth
        Number of layers.
    algorithm
        The initial steps and theta; default: ``ChambollePock()``.
    kernel
        The learned part of the operator. ``own``: its arrays, such as a matrix or filters. ``matrix``: its
        whole matrix. ``gains``: a factor per channel of coefficients, which for an l1 norm is its weight.
        Default: the first of these that is possible, for matrices up to 512 by 512.
    tying
        ``untied``: every layer has a kernel for analysis and one for synthesis. ``half``: every layer has one
        for both. ``tied``: all layers share one.
    memory
        The term that the dual step adds to ``sigma W x_bar``. ``dual``: the last dual variable. ``bias``: a
        bias. ``gain``, ``mix``: a bias, and the last dual variable times one number per channel, or times a
        matrix across channels.
    learn_steps, learn_theta
        Whether a factor of each step, and theta, are learned: ``no``, ``once`` for all layers, or ``per
        layer``.

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
    import torch

    from pdrn.nets.torch import NetworkModule

    K, algorithm = problem.K, algorithm or ChambollePock()
    if not isinstance(algorithm, ChambollePock):
        raise InputError(f"a {type(algorithm).__name__} has no layers to learn; unroll ChambollePock")
    arrays = _arrays_of(K)
    if kernel is None:
        kernel = "own" if arrays else "matrix" if math.prod(K.shape) <= MAX_MATRIX else "gains"
    elif kernel == "own" and not arrays:
        raise InputError(f"{K} holds no arrays to learn; choose the kernel matrix or gains")
    shapes: list[tuple[int, ...]] = [tuple(map(int, part.shape)) for part in arrays]
    if kernel != "own":
        shapes = [K.shape] if kernel == "matrix" else [(K.channels,)]
    architecture = Unrolling(
        depth,
        kernel,
        tuple(shapes),
        K.channels,
        memory,
        tying,
        learn_steps,
        learn_theta,
        algorithm.sigma,
        algorithm.tau,
        algorithm.theta,
    )
    dtype = torch.float64 if str(problem.start.dtype).endswith("float64") else torch.float32
    return NetworkModule(architecture, architecture.start(K), dtype=dtype)


@dataclass(frozen=True)
class Unrolling(PrimalDualFamily):
    """L primal-dual blocks on a problem; x starts at ``problem.start``, y at zero.

    Attributes
    ----------
    depth
        Number of layers, L.
    kernel
        The learned part of the operator; see ``unroll``.
    kernel_shapes
        Shapes of the arrays of one kernel.
    channels
        Number of channels of the operator's coefficients; biases, gains and memory are per channel.
    memory, tying, learn_theta
        See ``PrimalDualFamily``.
    learn_steps
        Whether factors of the steps are learned: ``no``, ``once`` for all layers, or ``per layer``.
    sigma, tau, theta
        Those of the algorithm; a step that is None is computed for every problem.
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

    def __post_init__(self) -> None:
        set_size(self, "depth", most=MAX_LAYERS)
        set_size(self, "channels")
        check_choices(self)
        set_field(self, "kernel_shapes", tuple(map(tuple, self.kernel_shapes)))
        if not self.kernel_shapes or (self.kernel != "own" and len(self.kernel_shapes) > 1):
            raise InputError(f"a kernel of kind {self.kernel} cannot have {len(self.kernel_shapes)} arrays")
        for size in (size for shape in self.kernel_shapes for size in shape):
            require_size("a size of a kernel", size)
        self._algorithm  # noqa: B018 (checks the steps)

    @property
    def learned_numbers(self) -> dict[str, Learned]:
        return {"log_sigma": self.learn_steps, "log_tau": self.learn_steps, "theta": self.learn_theta}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._family_shapes(self.kernel_shapes, self.channels)

    def start(self, K: Operator) -> Arrays:
        """Return the weights of Chambolle-Pock with this operator, float64."""
        if self.kernel == "own":
            parts = [to_numpy(array).astype(np.float64) for array in _arrays_of(K)]
        else:
            parts = [K.apply(np.eye(K.shape[1])).T if self.kernel == "matrix" else np.ones(K.channels)]
        weights: Arrays = {}
        for name, shape in self.shapes().items():
            kind, _, part = name.partition(".")[0].partition("_")
            if kind in ("W", "V", "K"):
                weights[name] = parts[int(part or 0)].copy()
            elif kind == "M":
                weights[name] = identity_of(shape)
            else:
                weights[name] = np.full(shape, self.theta if kind == "theta" else 0.0)
        return weights

    def inputs(self, lo: Any, hi: Any = None, *, check_values: bool) -> Problem:
        if hi is not None or not isinstance(lo, Problem):
            raise InputError(f"this network takes one Problem, as the solver does, got a {type(lo).__name__}")
        return lo

    def convert(self, inputs: Problem, like: Array) -> Problem:
        if like.dtype == inputs.start.dtype:
            return inputs
        return map_arrays(inputs, lambda array: convert(array, like))

    def states(self, weights: Weights, inputs: Problem) -> Iterator[State]:
        self._require_fits(inputs.K)
        sigma, tau = self._algorithm.steps(inputs)
        state = State.at(inputs.start, inputs.F, inputs.G)
        for layer in range(self.depth):
            state = self._layer(layer, weights, inputs.K, sigma, tau)(state)
            yield state

    def estimate(self, weights: Weights, inputs: Problem, state: State) -> Array:
        return state.x

    def finish(self, x: Array, inputs: Problem) -> AnyArray:
        """Return x in the dtype of the problem, projected: rounding may leave the domain of G."""
        return x if x.dtype == inputs.start.dtype else inputs.G.project(convert(x, inputs.start))

    @cached_property
    def _algorithm(self) -> ChambollePock:
        return ChambollePock(self.sigma, self.tau, self.theta)

    def _require_fits(self, K: Operator) -> None:
        fits = {
            "own": tuple(tuple(array.shape) for array in _arrays_of(K)) == self.kernel_shapes,
            "matrix": K.shape == self.kernel_shapes[0],
            "gains": K.channels == self.channels,
        }[self.kernel]
        if not fits:
            raise InputError(
                f"{type(K).__name__} of shape {K.shape} does not fit the operator that this network was "
                "unrolled from; pass problems with that operator"
            )

    def _layer(self, layer: int, weights: Weights, K: Operator, sigma: Step, tau: Step) -> Block:
        if self.learn_steps != "no":
            sigma = sigma * _exp(self._number("log_sigma", layer, weights, 0.0))
            tau = tau * _exp(self._number("log_tau", layer, weights, 0.0))
        kernels = self._kernels(layer, weights, len(self.kernel_shapes))
        analysis, synthesis = (self._operator(parts, K) for parts in kernels)
        return self._block(
            layer,
            weights,
            lambda x: times(analysis._apply(x), sigma),
            lambda y: times(synthesis._adjoint(y), -tau),
            K.shape[0],
            sigma,
            tau,
        )

    def _operator(self, parts: list[Array], K: Operator) -> Operator:
        """Return K with the arrays of a kernel in place of its own."""
        if self.kernel == "gains":
            return _Gains(per_channel(parts[0], K.shape[0]), K)
        remaining = iter(parts)
        return map_arrays(
            K if self.kernel == "own" else _ANY_MATRIX,
            lambda array: next(remaining) if is_real(array) else array,
        )


@dataclass(frozen=True, eq=False)
class _Gains(Operator):
    """``diag(gains) K``, with one gain per coefficient."""

    gains: AnyArray
    operator: Operator

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    def apply(self, x: Array) -> AnyArray:
        return self.gains * self.operator.apply(x)

    def adjoint(self, y: Array) -> AnyArray:
        return self.operator.adjoint(self.gains * y)


def _arrays_of(K: Operator) -> list[Array]:
    """Return the float arrays of an operator, at any depth; masks and indices are not learned."""
    found: list[Array] = []

    def note(array: Array) -> Array:
        if is_real(array):
            found.append(array)
        return array

    map_arrays(K, note)
    return found


def _exp(x: Any) -> Any:
    return x.exp() if is_tensor(x) else np.exp(x)
