"""Joint Newton-CG on the host with a preconditioner of a block per class: the fastest where W is not large.

An outer step solves ∇²G δ = −∇G by conjugate gradients in float32 and moves along δ; scores, gradient and G
are in the dtype of X, of CSR features in float32 where that will do; all is in that of X where there is
little to do. The search looks for φ'(t) = 0 by Newton's method between bounds, on the scores alone. Nothing
is compiled, so that the first run is as fast as the next.

The preconditioner is the inverse of the Hessian's blocks of the classes, whose result is centred
(`_preconditioners`): with it usps at λ = 1 takes 28 products with the Hessian instead of 213. Blocks are
whole for dense features that are few enough. Where they would cost more than they save, dense features have a
Kronecker product in their place; elsewhere blocks are diagonal.

Without whole blocks a small λ begins with larger ones, whose minima are cheap and on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from xmcjax._cores import blas_threads, threads_of_product
from xmcjax._platform import default_platform
from xmcjax.linops import Csr, Dense
from xmcjax.solvers._base import Status
from xmcjax.solvers.multinomial import _preconditioners
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._scores import Along, DenseScores, scores_of
from xmcjax.solvers.multinomial._state import HParams, State, starting_weights_on_the_host

# CG ends at the part √(‖∇G‖ / ‖∇G(0)‖) of its first residual, in the preconditioner's norm, between these.
_LEAST_FORCING, _MOST_FORCING = 0.1, 0.3
MAX_CG = 250
# Tolerance below which scores in float32 do not do where X has float64.
_PRECISE = 1e-5
# A step is accepted at this part of the first slope, and of the fall that the slope promises.
_SLOPE, _ARMIJO = 0.25, 1e-4
_MOST_TRIALS = 40
# Of the norm of the gradient, by a step whose fall is lost in rounding.
_FALL = 0.9
# Outer steps for which whole blocks and the factors of a Kronecker product are kept.
_KEPT = 3
# A run may have converged where ½ ∇Gᵀ M ∇G, with M the preconditioner, is so much less than is wanted.
_SAFETY = 4.0
# λ of the first steps without whole blocks, over Σ_i c_i ‖x_i‖².
_LARGER = tuple(8e-5 * part for part in (1.0, 1.0, 1.0, 0.3, 0.1, 0.03))
# Whole blocks take so many numbers at most, and cost as much as so many products with the Hessian at most.
_MOST_NUMBERS, _MOST_PRODUCTS = 1 << 26, 40.0

# Scores or dense features of which several copies are held.
_MOST_HELD = 1 << 27

Enough = Callable[[np.ndarray, float, float], bool]


class Point(NamedTuple):
    """Weights and what belongs to them; of an array of the classes the axis is that of the scores."""

    V: np.ndarray  #: W and b, float64
    Z: np.ndarray  #: X W + 1 bᵀ
    now: Along
    gradient: np.ndarray  #: of the losses in V, float64


def _quiet() -> np.errstate:
    """Overflow ends the run with a status; OpenBLAS on arm64 says of products that they divide by zero."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def possible(problem: Problem) -> bool:
    """Whether the features are at hand on a CPU, and all classes on one device."""
    stored = isinstance(problem.op, (Csr, Dense)) and problem.axis is None
    return stored and default_platform() == "cpu"


def fits(problem: Problem) -> bool:
    """Whether its copies of the scores, and of dense features, take some gigabytes at most."""
    n, d = problem.op.shape
    numbers = n * max(problem.classes, d if isinstance(problem.op, Dense) else 0)
    return numbers <= _MOST_HELD


def init(problem: Problem, hp: HParams, W0=None, b0=None) -> State:
    """The state at the starting weights; `state.inner` counts products with the Hessian.

    Raises:
        ValueError: features that are neither dense nor CSR on a CPU, or starting weights of another shape.
    """
    if not possible(problem):
        raise ValueError("block_newton: expected dense or CSR features on a CPU, without a mesh")
    W, bias = (a.astype(np.float64) for a in starting_weights_on_the_host(problem, W0, b0))
    begun, precise = W0 is not None or b0 is not None, float(hp.tolerance) < _PRECISE
    with blas_threads(threads(problem)), _quiet():
        return Host(problem, begun, precise).begin(hp, W, bias)


def step(problem: Problem, hp: HParams, state: State) -> State:
    """One Newton step of the problem that :func:`init` was given."""
    with blas_threads(threads(problem)), _quiet():
        return state.memory.step(hp, state)


def direction(state: State, wanted: float) -> np.ndarray:
    """A Newton direction [d+1, K] at a state, whose residual matters little in a bound of `wanted`."""
    with _quiet():
        return state.memory.direction(state, wanted)


def threads(problem: Problem) -> int:
    """For products with the features: as many as there are cores where a product takes milliseconds."""
    if isinstance(problem.op, Csr):
        return problem.op.threads
    n, d = problem.op.shape
    return threads_of_product(n * d * problem.classes)


@jax.tree_util.register_static
class Host:
    """What a run keeps on the host, beside the arrays of its state.

    Args:
        problem: for which :func:`possible` is true.
        begun: whether there are starting weights.
        precise: whether more is wanted than float32 gives.
    """

    def __init__(self, problem: Problem, begun: bool, precise: bool):
        self._scores = scores_of(problem, precise, threads(problem))
        self._dtype = np.dtype(problem.op.dtype)
        self._axis, d = self._scores.axis, self._scores.d
        self._K, self._l2 = problem.classes, float(problem.l2)
        # where the weights are and where the intercepts
        self._lead = (slice(None), slice(0, d)) if self._axis == 0 else (slice(0, d), slice(None))
        self._last = (slice(None), d) if self._axis == 0 else (d, slice(None))
        self._at_zero = not begun
        self._gram: np.ndarray | None = None
        if isinstance(self._scores, DenseScores) and self._blocks_pay():
            self._gram = _preconditioners.gram(self._scores)
        self._larger = [] if begun or self._gram is not None else self._larger_l2()
        self._factors: _preconditioners.Factors | None = None
        self._preconditioner: _preconditioners.Preconditioner | None = None
        self._age = 0
        self._point: Point | None = None
        self._weights: tuple[np.ndarray, np.ndarray] | None = None

    def begin(self, hp: HParams, W: np.ndarray, bias: np.ndarray) -> State:
        """The state before the first step."""
        V = np.vstack([W, bias])
        # the losses do not depend on the mean over the classes, and λ/2 ‖W‖² is least where it is 0
        point = self._point = self._at(self._laid_out(V - V.mean(axis=1, keepdims=True)))
        uniform = np.full_like(point.now.P, 1 / self._K)
        at_zero = float(np.linalg.norm(self._loss_gradient(uniform)))
        rounding = 8 * float(np.finfo(self._scores.dtype).eps) * self._scores.largest_gradient()
        return self._stated(hp, at_zero if at_zero > rounding else 1.0, 0, 0, Status.RUNNING)

    def step(self, hp: HParams, state: State) -> State:
        """The state after one step."""
        point = self._of(state)
        larger = bool(self._larger)
        l2 = self._larger.pop(0) if larger else self._l2
        gradient = point.gradient + l2 * self._regularised(point.V)
        self._prepare(point, l2)
        forcing = np.sqrt(float(state.gradient_norm) / float(state.scale))
        part = float(np.clip(forcing, _LEAST_FORCING, _MOST_FORCING)) ** 2
        # at W = 0 the preconditioner of dense features is the inverse of the Hessian
        exact = self._at_zero and self._gram is not None
        self._at_zero = False
        direction, products = self._minimised(
            point, gradient, l2, lambda r, rz, first: exact or rz <= part * first
        )
        moved = self._searched(point, direction, float(np.vdot(gradient, direction)), l2)
        self._age += 1
        if larger:  # of another λ
            self._preconditioner = None
        counts = int(state.steps) + 1, int(state.inner) + products
        if moved is None:
            return self._stated(hp, float(state.scale), *counts, Status.LINE_SEARCH_FAILED)
        self._point = moved
        return self._stated(hp, float(state.scale), *counts, Status.RUNNING)

    def direction(self, state: State, wanted: float) -> np.ndarray:
        """A Newton direction [d+1, K] at a state, whose residual matters little in a bound of `wanted`."""
        point = self._of(state)
        self._prepare(point, self._l2)

        def enough(r, rz, first):
            small = float(np.vdot(r[self._lead], r[self._lead])) <= 0.2 * self._l2 * wanted
            return small and float(np.abs(r[self._last]).sum()) <= 0.01 * wanted

        gradient = point.gradient + self._l2 * self._regularised(point.V)
        direction, _ = self._minimised(point, gradient, self._l2, enough)
        return self._laid_out(direction)

    def _laid_out(self, V: np.ndarray) -> np.ndarray:
        """[d+1, K] as the scores want it, and back."""
        return np.ascontiguousarray(V.T) if self._axis == 0 else V

    def _regularised(self, V: np.ndarray) -> np.ndarray:
        """W, and 0 in place of b."""
        W = V.copy()
        W[self._last] = 0
        return W

    def _at(self, V: np.ndarray) -> Point:
        Z = self._scores.product(V)
        now = self._scores.along(Z, np.zeros_like(Z), 0.0)
        return Point(V, Z, now, self._loss_gradient(now.P))

    def _of(self, state: State) -> Point:
        """The point of a state: the last one, or that of a state that was stored."""
        last = self._weights
        if self._point is None or last is None or state.W is not last[0] or state.bias is not last[1]:
            V = np.vstack([np.asarray(state.W, np.float64), np.asarray(state.bias, np.float64)])
            self._point = self._at(self._laid_out(V))
            self._larger, self._at_zero, self._preconditioner, self._factors = [], False, None, None
        return self._point

    def _loss_gradient(self, P: np.ndarray) -> np.ndarray:
        return self._scores.transposed(self._scores.slope(P)).astype(np.float64)

    def _stated(self, hp: HParams, scale: float, steps: int, inner: int, status: Status) -> State:
        """The state at the last point."""
        point = self._point
        assert point is not None
        W = self._regularised(point.V)
        gradient = point.gradient + self._l2 * W
        value = self._l2 / 2 * float(np.vdot(W, W)) + point.now.value
        norm = float(np.linalg.norm(gradient))
        if not (np.isfinite(value) and np.isfinite(norm)):
            status = Status.NONFINITE
        elif (
            norm <= self._least(hp) * scale
            and not self._larger
            and self._decrement(point, gradient, hp, value)
        ):
            status = Status.CONVERGED
        elif status == Status.RUNNING and steps >= hp.max_steps:
            status = Status.MAX_STEPS
        dtype = self._dtype
        V = self._laid_out(point.V).astype(dtype)
        self._weights = V[:-1], V[-1]
        reals = (np.asarray(a, dtype) for a in (value, norm, value, norm, scale))
        counts = (np.asarray(a, np.int32) for a in (status, steps, inner))
        return State(*self._weights, *reals, *counts, memory=self)  # type: ignore[arg-type]

    def _least(self, hp: HParams) -> float:
        """The part of ‖∇G(0)‖ that the gradient may have."""
        if hp.gradient_tolerance is not None:
            return float(hp.gradient_tolerance)
        return np.inf if hp.tolerance > 0 else 0.0

    def _decrement(self, point: Point, gradient: np.ndarray, hp: HParams, value: float) -> bool:
        """Whether G is about as near to its minimum as is wanted."""
        if not hp.tolerance > 0:
            return True
        if self._preconditioner is None:
            self._prepare(point, self._l2)
        assert self._preconditioner is not None
        r = self._right_side(gradient)
        return _SAFETY * float(np.vdot(r, self._preconditioner(r))) / 2 <= float(hp.tolerance) * value

    def _right_side(self, gradient: np.ndarray) -> np.ndarray:
        r = (-gradient).astype(self._scores.work)
        r -= r.mean(axis=self._axis, keepdims=True)
        return r

    def _prepare(self, point: Point, l2: float) -> None:
        """The preconditioner at a point."""
        kept = self._age < _KEPT
        if self._gram is None:
            made = kept and self._factors is not None
            if not made and isinstance(self._scores, DenseScores) and self._factors_pay():
                self._factors, self._age = _preconditioners.factors(self._scores, self._narrow(point)), 0
            if self._factors is None:
                self._preconditioner = _preconditioners.diagonal(self._scores, self._narrow(point), l2)
            else:
                self._preconditioner = _preconditioners.kronecker(self._factors, l2)
        elif not isinstance(self._scores, DenseScores):
            raise AssertionError("whole blocks are those of dense features")
        elif self._at_zero and self._preconditioner is None:
            self._preconditioner = _preconditioners.uniform(self._scores, self._K, l2, self._gram)
            self._age = _KEPT - 1
        elif self._preconditioner is None or not kept:
            blocks = _preconditioners.blocks(self._scores, self._narrow(point), l2, self._gram)
            self._preconditioner, self._age = blocks, 0

    def _narrow(self, point: Point) -> np.ndarray:
        """The probabilities in the dtype of conjugate gradients."""
        return point.now.P.astype(self._scores.work, copy=False)

    def _minimised(
        self, point: Point, gradient: np.ndarray, l2: float, enough: Enough
    ) -> tuple[np.ndarray, int]:
        """(δ with ∇²G δ = −gradient but for the residual, products with ∇²G); δ is centred.

        Args:
            point: where G is modelled.
            gradient: with λ = `l2`, as the Hessian.
            l2: λ.
            enough: ``(r, rᵀMr, that at first)`` -> whether to stop; r is the residual.
        """
        apply = self._preconditioner
        assert apply is not None
        hessian = self._scores.hessian(point.now.P)
        r = self._right_side(gradient)
        v = _preconditioners.Vectors(np.zeros_like(r), r, apply(r), hessian.V, hessian.out)
        rz = first = float(np.vdot(r, v.z))
        done = enough(r, first, first)
        if done:
            v.x[:] = v.z
        v.p[:] = v.z
        step = apply.stepping(v, self._scores.work.type(l2), self._lead)
        products = 0
        while not done and products < MAX_CG and rz > 0:
            hessian.product()
            products += 1
            before = rz
            along, rz = step(rz)
            if not along > 0:
                break
            done = enough(r, rz, first)
            v.p[:] *= self._scores.work.type(rz / before)
            v.p[:] += v.z
        direction = v.x.astype(np.float64)
        direction -= direction.mean(axis=self._axis, keepdims=True)
        return direction, products

    def _searched(self, point: Point, direction: np.ndarray, slope: float, l2: float) -> Point | None:
        """The point on the line where the slope of G is small; None where G does not fall.

        Where the slope promises less than G is rounded by, it is the whole step, if the gradient falls.
        """
        if not slope < 0:
            return None
        W, D = self._regularised(point.V), self._regularised(direction)
        ww, wd, dd = (float(np.vdot(a, b)) for a, b in ((W, W), (W, D), (D, D)))
        value = l2 / 2 * ww + point.now.value
        rounding = 4 * float(np.finfo(self._scores.dtype).eps) * abs(value)
        U = self._scores.product(direction)
        if -slope <= rounding:
            whole = self._point_at(point, direction, U, 1.0, self._scores.along(point.Z, U, 1.0))
            before, after = (np.linalg.norm(p.gradient + l2 * self._regularised(p.V)) for p in (point, whole))
            return whole if after <= _FALL * before else None
        t, low, high = 1.0, 0.0, np.inf
        for _ in range(_MOST_TRIALS):
            now = self._scores.along(point.Z, U, t)
            fall = l2 * t * (wd + t / 2 * dd) + now.value - point.now.value
            along = l2 * (wd + t * dd) + now.slope
            if abs(along) <= _SLOPE * abs(slope) and fall <= _ARMIJO * t * slope + rounding:
                return self._point_at(point, direction, U, t, now)
            low, high = (t, high) if along < 0 else (low, t)
            curvature = l2 * dd + now.curvature
            t -= along / curvature if curvature > 0 else -t
            if not low < t < high:
                t = (low + high) / 2 if np.isfinite(high) else 2 * low
        return None

    def _point_at(self, point: Point, direction: np.ndarray, U: np.ndarray, t: float, now: Along) -> Point:
        """The point after a step, where its losses are known."""
        Z = point.Z + np.asarray(t, U.dtype) * U
        return Point(point.V + t * direction, Z, now, self._loss_gradient(now.P))

    def _larger_l2(self) -> list[float]:
        """λ to begin with, above that of the problem."""
        unit = float(self._scores.weight.astype(np.float64) @ self._scores.squares)
        return [part * unit for part in _LARGER] if _LARGER[-1] * unit > self._l2 else []

    def _blocks_pay(self) -> bool:
        n, size = self._scores.n, self._scores.d + 1
        rows = min(n, _preconditioners.rows_of_a_block(self._scores.d))
        products = (rows * size + size * size) / (4 * n)  # (K rows size² + K size³) / (4 n K size)
        return self._K * size * size <= _MOST_NUMBERS and products <= _MOST_PRODUCTS

    def _factors_pay(self) -> bool:
        n, size = self._scores.n, self._scores.d + 1
        products = (n * size * size + 9 * (size**3 + self._K**3)) / (4 * n * self._K * size)
        return size * size <= _MOST_NUMBERS and products <= _MOST_PRODUCTS
