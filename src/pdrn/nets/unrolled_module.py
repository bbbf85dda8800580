"""A problem of your own as a torch module: the iterations of Chambolle-Pock with weights that learn."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pdrn.convex import ChambollePock, Problem
from pdrn.convex.arrays import map_arrays
from pdrn.nets.architecture import Start
from pdrn.nets.modules import PlannedModule
from pdrn.nets.primal_dual import Learned, Memory, Tying
from pdrn.nets.unrolled import Unrolled, run, run_by_layer
from pdrn.nets.unrolling import Kernel, Unrolling


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
    dtype = torch.float64 if str(problem.start.dtype).endswith("float64") else torch.float32
    return UnrolledModule(plan, plan.start(problem.K), dtype)


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
