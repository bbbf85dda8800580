"""The problem min F(Kx) + G(x) (1.1), its dual, and certificates of how well it is solved.

The dual is max -F*(y) - G*(-K'y). For any x and y the primal value is at least the dual value, so their
difference, the duality gap, bounds how far either is from the optimum.

``dequantization`` is the problem of the paper. Like a network, it takes the ends of the cells as two arrays,
of NumPy or torch: ``dequantization(cells.lo, cells.hi, K)``.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from pdrn.convex.backend import (
    AnyArray,
    Array,
    Step,
    convert,
    detach,
    epsilon,
    is_array,
    is_real,
    map_arrays,
    namespace,
    norm,
    positive,
    require_finite,
    require_fits,
    require_vectors,
    set_field,
    to_float64,
    to_numpy,
)
from pdrn.convex.functionals import L1, Box, Functional
from pdrn.convex.operators import Operator
from pdrn.errors import InputError

ROUNDING_ULPS = 16
"""A value of this many units of rounding of the value at the start counts as zero."""

BISECTIONS = 50
"""How often the interval of a dual vector's scale is halved: enough for double precision."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """A primal value, a dual value below it, and the optimum between them; one of each per problem."""

    primal: AnyArray
    dual: AnyArray
    rounding: AnyArray
    """Values up to this count as zero, in the type of the solver; 0 where G is not a box."""

    @property
    def gap(self) -> AnyArray:
        """How far, at most, the primal value is above the optimum."""
        return self.primal - self.dual

    @property
    def relative_gap(self) -> AnyArray:
        """The gap over the magnitude of the primal value."""
        xp = namespace(self.primal)
        return self.gap / xp.clip(xp.abs(self.primal), 1e-200, 1e200)

    def meets(self, tolerance: float) -> AnyArray:
        """Whether the relative gap is at most this, or the value itself is zero up to rounding.

        Where the optimum is zero, as for silence whose cells all touch zero, no gap is relatively small.
        """
        is_zero = (self.gap <= self.rounding) & (namespace(self.primal).abs(self.primal) <= self.rounding)
        return (self.relative_gap <= tolerance) | is_zero


@dataclass(frozen=True, eq=False)
class Problem:
    """A batch of problems min F(Kx) + G(x) (1.1) that share the operator K.

    Attributes
    ----------
    F
        The functional of Kx; the leading axes of the arrays that it holds are the batch.
    G
        The functional of x, likewise.
    K
        The operator, of shape ``(m, n)``.
    start
        Where solving starts, shape ``(..., n)``. Its leading axes are the batch. The solver computes in its
        type: float32 or float64, NumPy or torch.
    weight
        The size of dual moves over the size of primal moves: sigma / tau = weight**2 is a good ratio of
        steps. A number or one per problem, shape ``(..., 1)``.
    coercivity
        Where known, a c with ``max_i |x_i| <= c F(Kx)`` for every x. It bounds the solution, which keeps the
        dual value finite where G leaves coordinates unbounded.
    """

    F: Functional
    G: Functional
    K: Operator = field(metadata={"shared": True})
    start: AnyArray
    weight: Step = 1.0
    coercivity: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.K, Operator):
            raise InputError("K must be an operator; wrap a matrix as Dense(matrix)")
        for name, functional in (("F", self.F), ("G", self.G)):
            if not isinstance(functional, Functional):
                raise InputError(f"{name} must be a Functional, got a {type(functional).__name__}")
        m, n = self.K.shape
        start = self.start
        require_vectors(start, "the start", n)
        if 0 in start.shape:
            raise InputError(f"the batch is empty: the start has shape {tuple(start.shape)}")
        require_finite(start, "the start")
        batch = self.batch_shape
        self.F.require_fits((*batch, m), start, "F")
        self.G.require_fits((*batch, n), start, "G")
        weight = positive(self.weight, "weight")
        if is_array(weight) and weight.ndim:
            require_fits(weight, (*batch, 1), start, "weight")
        set_field(self, "weight", weight if is_array(weight) and weight.ndim else float(weight))
        if self.coercivity is not None:
            set_field(self, "coercivity", positive(self.coercivity, "coercivity"))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch, ``()`` for a single problem."""
        return tuple(self.start.shape[:-1])

    def objective(self, x: Array) -> Array:
        """F(Kx) + G(x), one number per problem."""
        return self.F.value(self.K.apply(x)) + self.G.value(x)

    def dual_objective(self, y: Array) -> Array:
        """-F*(y) - G*(-K'y), one number per problem."""
        return -self.F.conjugate(y) - self.G.conjugate(-self.K.adjoint(y))

    def certificate(self, x: Array, y: Array) -> Certificate:
        """Primal and dual value of x and y, computed in double precision whatever their type.

        Both are first projected onto the domains of G and F*, which rounding may have left; y is then scaled
        down where G* needs that, as for norms.
        """
        exact = self._exact
        x, y = exact.G.project(to_float64(x)), exact.F.project_dual(to_float64(y))
        primal = exact.objective(x)
        if self.coercivity is not None and isinstance(exact.G, Box):
            bounded = exact.G.within(self.coercivity * primal[..., None])
            exact = dataclasses.replace(exact, G=bounded)
        return Certificate(primal, exact._best_dual_value(y), self._rounding)

    def _best_dual_value(self, y: Array) -> Array:
        """Return the dual value of y, or of the longest ``a y``, 0 <= a < 1, where G*(-K'y) is infinite.

        Zero is in the domain of G* wherever G is bounded below, and the domain is convex: bisection finds a.
        """
        value = self.dual_objective(y)
        xp = namespace(value)
        if bool(xp.isfinite(value).all()):
            return value
        back = -self.K.adjoint(y)
        inside = xp.zeros_like(value)[..., None]
        outside = inside + 1
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            fits = xp.isfinite(self.G.conjugate(middle * back))[..., None]
            inside, outside = xp.where(fits, middle, inside), xp.where(fits, outside, middle)
        part = -self.F.conjugate(inside * y) - self.G.conjugate(inside * back)
        return xp.where(xp.isfinite(value), value, part)

    @cached_property
    def _exact(self) -> Self:
        return map_arrays(self, to_float64)

    @cached_property
    def _rounding(self) -> Array:
        exact = self._exact
        value = exact.objective(exact.G.project(exact.start))
        xp = namespace(value)
        # A start in a box is of the size of the solution; any other may be anywhere.
        is_measure = xp.isfinite(value) & isinstance(self.G, Box)
        return xp.where(is_measure, ROUNDING_ULPS * epsilon(self.start) * xp.abs(value), 0.0)

    def flat(self) -> Self:
        """Return the same problems with the batch in one leading axis."""
        batch, count = self.batch_shape, math.prod(self.batch_shape)

        def flatten(array: Array) -> Array:
            if array.ndim <= 1 and array is not self.weight:
                return array
            xp = namespace(array)
            return xp.broadcast_to(array, (*batch, array.shape[-1])).reshape(count, array.shape[-1])

        flat = map_arrays(self, flatten)
        return flat if batch else dataclasses.replace(flat, start=self.start[None])

    def rows(self, index: Any) -> Self:
        """Return some problems of a flat batch."""
        return map_arrays(self, lambda array: array[index] if array.ndim > 1 else array)


def dequantization(lo: Array, hi: Array, K: Operator, weight: Step = 1.0) -> Problem:
    """Find the signal in its cells with the sparsest coefficients: ``min |w Kx|_1``, ``lo <= x <= hi``.

    This is problem (3.2) in the variable x + q. A quantized sample gives the cell [lo, hi]. A clipped sample
    has one infinite bound, a missing sample two.

    Parameters
    ----------
    lo, hi
        The ends of the cells, arrays of floats of one shape ``(..., n)``.
    K
        The dictionary's analysis operator, for example ``DCT(n)`` or a ``GaborFrame``.
    weight
        Weights of the coefficients, a number or an array that broadcasts to ``(..., m)``.

    Returns
    -------
    Problem
        It starts at the centres of the cells, with steps in proportion to their width.

    Examples
    --------
    >>> import numpy as np
    >>> from pdrn.convex import DCT, dequantization, solve
    >>> lo = np.floor(16 * np.sin(np.arange(64) / 5)) / 16
    >>> solution = solve(dequantization(lo, lo + 1 / 16, DCT(64)), tolerance=1e-6)
    >>> bool(solution.certificate.relative_gap <= 1e-6)
    True
    """
    G = cells(lo, hi)
    F = L1(convert(weight, lo) if is_array(weight) else weight)
    # |x|_inf <= |x|_2 <= |Kx|_2 / c <= |Kx|_1 / c <= |w Kx|_1 / (c min w)
    bound = K.injectivity * float(to_numpy(F.weight).min())
    return Problem(F, G, K, G.centre, _weight(G), 1 / bound if bound > 0 else None)


def cells(lo: Array, hi: Array) -> Box:
    """Return the box of cells with these ends."""
    check_bounds(lo, hi)
    return Box(lo, hi)


def check_bounds(lo: Array, hi: Array) -> None:
    """Raise InputError unless bounds are two arrays of one type and shape; their values are not read."""
    if not (is_real(lo) and is_real(hi) and lo.dtype == hi.dtype):
        raise InputError("the bounds of the cells must be two arrays of one type, float32 or float64")
    if lo.shape != hi.shape:
        raise InputError(f"the bounds differ in shape: {tuple(lo.shape)} and {tuple(hi.shape)}")
    if lo.ndim == 0 or 0 in lo.shape:
        raise InputError(f"the bounds hold no cells: their shape is {tuple(lo.shape)}")


def _weight(G: Box) -> Step:
    """Return one over the typical primal move of each problem, as a power of two; dual moves are of size 1.

    A move is the mean radius of the cells, where an unbounded cell counts as wide as the RMS level of the
    signal. Where all cells are points it is that level, or 1 in silence.
    """
    centre = detach(G.centre)
    xp, radius = namespace(centre), detach(G.radius)
    level = norm(centre) / centre.shape[-1] ** 0.5
    mean_radius = xp.where(xp.isfinite(radius), radius, level).mean(-1)[..., None]
    move = xp.where(mean_radius > 0, mean_radius, xp.where(level > 0, level, xp.ones_like(level)))
    # A power of two leaves mantissas alone, and batches of equal cells get one number in spite of rounding.
    ratio = 2.0 ** -xp.round(xp.log2(move))
    first = float(ratio.reshape(-1)[0])
    return first if bool((ratio == first).all()) else ratio
