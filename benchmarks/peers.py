"""Chambolle-Pock on problem (3.2) as users of other libraries would call it.

Every peer gets the whole batch at once, the fast cosine transform, the same start and the same steps, and
returns the same iterate; the benchmark checks that. pyunlocbox allows no step above 2 and starts its dual
variable elsewhere: it is timed, not compared.
"""

import functools
import importlib.util
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft

Array = np.ndarray[Any, Any]
Peer = Callable[[Array, Array, Array, float, float, int], Array]
"""(lower, upper, start, sigma, tau, iterations) -> x."""


def dct(x: Array) -> Array:
    """Transform as the peers' users would, with SciPy."""
    return scipy.fft.dct(x, norm="ortho")


def idct(y: Array) -> Array:
    """Transform back."""
    return scipy.fft.idct(y, norm="ortho")


def pyproximal(lower: Array, upper: Array, start: Array, sigma: float, tau: float, iterations: int) -> Array:
    """``PrimalDual`` with ``Box``, ``L1`` and pylops' cosine transform."""
    import pylops
    from pyproximal import L1, Box
    from pyproximal.optimization.primaldual import PrimalDual

    K = pylops.signalprocessing.DCT(dims=lower.shape, axes=-1, dtype=lower.dtype)
    solution = PrimalDual(
        Box(lower.ravel(), upper.ravel()), L1(), K, start.ravel(), tau, sigma, niter=iterations, gfirst=True
    )
    return np.asarray(solution).reshape(lower.shape)


def odl(lower: Array, upper: Array, start: Array, sigma: float, tau: float, iterations: int) -> Array:
    """``pdhg`` with ``IndicatorBox``, ``L1Norm`` and an operator of the user's."""
    import odl as library

    space = library.tensor_space(lower.shape, dtype=str(lower.dtype))

    class Cosine(library.Operator):
        def __init__(self, backwards: bool = False) -> None:
            super().__init__(space, space, linear=True)
            self.backwards = backwards

        def _call(self, x: Any) -> Any:
            return (idct if self.backwards else dct)(x.data)

        @property
        def adjoint(self) -> Any:
            return Cosine(not self.backwards)

    x = space.element(start.copy())
    box = library.functionals.IndicatorBox(space, space.element(lower), space.element(upper))
    library.solvers.pdhg(x, box, library.functionals.L1Norm(space), Cosine(), iterations, tau, sigma)
    return np.asarray(x.data)


def sigpy(lower: Array, upper: Array, start: Array, sigma: float, tau: float, iterations: int) -> Array:
    """``PrimalDualHybridGradient`` with ``BoxConstraint`` and the conjugate of ``L1Reg``."""
    import sigpy as library

    shape = lower.shape
    sparse = library.prox.Conj(library.prox.L1Reg(shape, 1.0))
    box = library.prox.BoxConstraint(shape, lower, upper)
    x, u = start.copy(), np.zeros_like(start)
    algorithm = library.alg.PrimalDualHybridGradient(
        sparse, box, dct, idct, x, u, tau, sigma, max_iter=iterations
    )
    while not algorithm.done():
        algorithm.update()
    return x


def pyunlocbox(lower: Array, upper: Array, start: Array, sigma: float, tau: float, iterations: int) -> Array:
    """``chambolle_pock`` with ``norm_l1`` and a box of the user's, with steps of 1."""
    from pyunlocbox import functions, solvers

    box = functions.dummy()
    box._prox = lambda x, step: np.clip(x, lower, upper)
    solver = solvers.chambolle_pock(sigma=1.0, tau=1.0, theta=1.0, L=dct, Lt=idct)
    result = solvers.solve(
        [box, functions.norm_l1()], start.copy(), solver, rtol=None, maxit=iterations, verbosity="NONE"
    )
    return np.asarray(result["sol"])


def deepinv(lower: Array, upper: Array, start: Array, sigma: float, tau: float, iterations: int) -> Array:
    """``PDCP`` with ``L1Prior`` and a data term of the user's, in torch."""
    import torch

    _declare_torchvision_operators()
    import deepinv as library

    from pdrn.convex import DCT

    low, high, x = (torch.from_numpy(a) for a in (lower, upper, start))
    K = DCT(lower.shape[-1])

    class Cells(library.optim.DataFidelity):
        def fn(self, x: Any, *args: Any, **kwargs: Any) -> Any:
            return x.new_zeros(len(x))

        def prox(self, x: Any, *args: Any, **kwargs: Any) -> Any:
            return torch.clamp(x, low, high)

    model = library.optim.PDCP(
        K=K.apply,
        K_adjoint=K.adjoint,
        data_fidelity=Cells(),
        prior=library.optim.L1Prior(),
        stepsize=tau,
        stepsize_dual=sigma,
        beta=1.0,
        max_iter=iterations,
        g_first=True,
        custom_init=lambda y, physics: {"est": (x, x, torch.zeros_like(x))},
    )
    with torch.no_grad():
        return np.asarray(model(x, library.physics.Denoising()))


@functools.cache
def _declare_torchvision_operators() -> object:
    """Let torchvision, which deepinv imports, load beside a torch that its compiled part does not fit."""
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("deepinv needs torchvision; install the extra bench")
    source = pathlib.Path(spec.origin).with_name("_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "DEF")
    for pair in set(re.findall(r'register_meta\("(\w+)"|torchvision::(\w+)', source)):
        library.define(f"{''.join(pair)}(Tensor x) -> Tensor")
    return library  # its definitions live as long as it does


PEERS: dict[str, Peer] = {
    "pyproximal": pyproximal,
    "odl": odl,
    "sigpy": sigpy,
    "pyunlocbox": pyunlocbox,
    "deepinv": deepinv,
}
NOT_COMPARABLE = {"pyunlocbox"}
