"""Joint Newton-CG on the host with a preconditioner of a block per class: the fastest where W is not large.

An outer step solves ∇²G δ = −∇G by conjugate gradients in float32 and moves along δ. Scores and gradients are
in float32 too where that suffices, and in the dtype of X once it did not; in small problems all is in the
dtype of X. The line search solves φ'(t) = 0 by Newton's method between bounds, on the scores alone. Nothing
is compiled, so that the first run is as fast as the next.

The preconditioner is the inverse of the Hessian's blocks of the classes, whose result is centred
(`_preconditioners`): with it usps at λ = 1 takes 28 products with the Hessian instead of 213. Blocks are
whole for dense features that are few enough, and for CSR ones that may as well be an array (`_costs`). Where
whole blocks would cost more than they save, dense features have a diagonal first, and then one basis for the
blocks of all classes (`_kronecker`); elsewhere blocks are diagonal.

Without whole blocks a run with a small λ begins with larger ones, whose minima are cheap and on the way.
Where dense features are many and rows few, the run begins near the minimum, which is found in the span of the
rows (`xmcjax._row_span`) by the same steps.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import numpy as np

from xmcjax import native
from xmcjax._cores import blas_threads
from xmcjax._platform import default_platform
from xmcjax._range import squared_norms
from xmcjax._row_span import EASY, RowSpan, is_wide
from xmcjax.linops import Csr, Dense
from xmcjax.solvers._base import Status
from xmcjax.solvers.multinomial import _costs, _kronecker, _preconditioners
from xmcjax.solvers.multinomial._line_search import OnALine, Search
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._scores import Along, DenseScores, scores_of, threads_of
from xmcjax.solvers.multinomial._state import HParams, State, starting_weights

# CG ends at the part √(‖∇G‖ / ‖∇G(0)‖) of its first residual, in the preconditioner's norm, clipped to
# _FORCING; or to _FORCING_OF_A_BASIS with one basis for all classes, where a step takes dozens of products.
_FORCING, _FORCING_OF_A_BASIS = (0.1, 0.2), (0.3, 0.5)
MAX_CG = 250
# Tolerance below which scores in float32 do not suffice where X has float64.
_PRECISE = 1e-5
# A step is accepted if its slope is at most _SLOPE of the first and its fall _ARMIJO of what the slope
# promises.
_SLOPE, _ARMIJO = 0.25, 1e-4
# Part to which a step whose fall is lost in rounding must reduce the norm of the gradient.
_FALL = 0.9
# Whole blocks and a basis are made anew where a direction took at least as many products with the Hessian as
# they cost, and _WORN times as many as the first direction with them.
_WORN = 2.0
# Number of directions for which a diagonal is kept.
_KEPT = 2
# A run may have converged where ½ ∇Gᵀ M ∇G, with M the preconditioner, is _SAFETY times less than the gap
# wanted. CG ends, at the latest, where its residual has fallen to the part _LEFT of that.
_SAFETY, _LEFT = 4.0, 0.5
# λ of the first steps without whole blocks, divided by Σ_i c_i ‖x_i‖².
_LARGER = tuple(8e-5 * part for part in (1.0, 1.0, 1.0, 0.3, 0.1, 0.03))
# Factor of a further larger λ, made while the λ of the problem is below it.
_FALLING = 0.1
# Factor of the tolerance in the span of the rows.
_TIGHT = 0.1


class Point(NamedTuple):
    """Weights and what belongs to them; the axis of the classes is that of the scores."""

    V: np.ndarray  #: W and b, float64
    Z: np.ndarray  #: X W + 1 bᵀ
    now: Along
    gradient: np.ndarray  #: of the losses in V, in the dtype of the scores


class RightSide(NamedTuple):
    """−∇G at a point, and what is found on the way."""

    r: np.ndarray  #: in the dtype of conjugate gradients, less its mean over the classes
    norm: float  #: ‖∇G‖
    square: float  #: ‖W‖²
    pressed: float  #: rᵀM r for the preconditioner M at hand, nan without one


def _quiet() -> np.errstate:
    """Overflow ends the run with a status; OpenBLAS on arm64 reports division by zero in products."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def possible(problem: Problem) -> bool:
    """Whether the features are at hand on a CPU, and all classes on one device."""
    stored = isinstance(problem.op, (Csr, Dense)) and problem.axis is None
    return stored and default_platform() == "cpu"


def fits(problem: Problem) -> bool:
    """Whether the copies of the scores, and of dense features, take some gigabytes at most."""
    n, d = problem.op.shape
    numbers = n * max(problem.classes, d if isinstance(problem.op, Dense) else 0)
    return numbers <= _costs.MOST_HELD


def init(problem: Problem, hp: HParams, W0=None, b0=None) -> State:
    """The state at the starting weights; `state.inner` counts products with the Hessian.

    Raises:
        ValueError: features that are neither dense nor CSR on a CPU, or starting weights of another shape.
    """
    if not possible(problem):
        raise ValueError("block_newton: expected dense or CSR features on a CPU, without a mesh")
    problem = _costs.in_its_form(problem)
    W, bias = (a.astype(np.float64) for a in starting_weights(problem, W0, b0, module=np))
    begun, precise = W0 is not None or b0 is not None, float(hp.tolerance) < _PRECISE
    with blas_threads(threads_of(problem)), _quiet():
        if not begun and (start := _in_the_span_of_the_rows(problem, hp)) is not None:
            (W, bias), begun = start, True
        return Host(problem, begun, precise).begin(hp, W, bias)


def _in_the_span_of_the_rows(problem: Problem, hp: HParams) -> tuple[np.ndarray, np.ndarray] | None:
    """A start near the minimum, by steps with one feature per row; None where these would not pay."""
    if not isinstance(problem.op, Dense) or not is_wide(problem.op.shape):
        return None
    X, squares = np.asarray(problem.op.X), squared_norms(np.asarray(problem.op.X), np.float64)
    curvature = float(np.asarray(problem.weight, np.float64) @ squares) / (4 * len(X) * float(problem.l2))
    if not (EASY < curvature < np.inf and squares.max() < np.finfo(X.dtype).max):
        return None
    # in float64: with float32 the start is further from the minimum, and steps over all features follow
    span = RowSpan(X.astype(np.float64, copy=False))
    narrow = dataclasses.replace(problem, op=Dense(span.features))  # type: ignore[arg-type]
    tight = hp._replace(tolerance=_TIGHT * hp.tolerance)
    state = init(narrow, tight)
    while int(state.status) == Status.RUNNING:
        state = step(narrow, tight, state)
    W = span.weights(np.asarray(state.W))
    useful = int(state.status) == Status.CONVERGED and bool(np.isfinite(W).all())
    return (W, np.asarray(state.bias, np.float64)) if useful else None


def step(problem: Problem, hp: HParams, state: State) -> State:
    """One Newton step of the problem that :func:`init` was given."""
    with blas_threads(threads_of(problem)), _quiet():
        return state.memory.step(hp, state)


def direction(state: State, wanted: float) -> np.ndarray:
    """A Newton direction [d+1, K] at a state, whose residual matters little in a bound of `wanted`."""
    with _quiet():
        return state.memory.direction(state, wanted)


@jax.tree_util.register_static
class Host:
    """What a run keeps on the host, beside the arrays of its state.

    Args:
        problem: for which :func:`possible` is true.
        begun: whether there are starting weights.
        precise: whether more is wanted than float32 gives.
    """

    def __init__(self, problem: Problem, begun: bool, precise: bool):
        self._problem = problem
        self._scores = scores_of(problem, precise, threads_of(problem))
        self._dtype = np.dtype(problem.op.dtype)
        self._K, self._l2 = problem.classes, float(problem.l2)
        self._at_zero = not begun
        self._gram: np.ndarray | None = None
        sizes = self._scores.n, self._scores.d, self._K
        #: cost of a basis for all classes, in products with the Hessian; infinite where there is none
        self._of_basis = np.inf
        if isinstance(self._scores, DenseScores):
            if _costs.blocks_pay(*sizes):
                self._gram = _preconditioners.gram(self._scores)
            elif (cost := _costs.of_a_basis(*sizes)) <= _costs.MOST_PRODUCTS:
                self._of_basis = cost
        #: λ of the next steps
        self._larger: list[float] = []
        self._basis: _kronecker.Basis | None = None
        self._preconditioner: _preconditioners.Preconditioner | None = None
        #: products with the Hessian of each direction since blocks or a basis were made
        self._products: list[int] = []
        #: products with the Hessian of all directions
        self._made_in_all = 0
        #: whether the preconditioner is that of W = 0
        self._uniform = False
        #: the point at which the preconditioner was made, and its λ
        self._made: tuple[Point, float] | None = None
        self._point: Point | None = None
        #: the right side at the last point, and its λ
        self._right: tuple[RightSide, float] | None = None
        self._weights: tuple[np.ndarray, np.ndarray] | None = None
        self._tolerance = 0.0

    def begin(self, hp: HParams, W: np.ndarray, bias: np.ndarray) -> State:
        """The state before the first step."""
        self._tolerance = float(hp.tolerance)
        V = np.vstack([W, bias])
        # the losses do not depend on the mean over the classes, and λ/2 ‖W‖² is least where it is 0
        V = self._laid_out(V - V.mean(axis=1, keepdims=True) if not self._at_zero else V)
        zero, losses = self._scores.at_zero(self._K)
        gradient = self._scores.gradient(losses.P, losses.rest)
        at_zero = float(np.linalg.norm(gradient))
        if not self._at_zero:
            self._point = self._at(V)
            # far from the minimum probabilities may be 0 and 1, and say nothing of the way back; an intercept
            # that is not trained stays as it was given
            worse = not self._value(self._point) <= losses.value
            self._at_zero = worse and bool(self._scores.intercept)
        if self._at_zero:
            self._point = Point(np.zeros_like(V), zero, losses, gradient)
            self._larger = self._larger_l2() if self._gram is None else []
        rounding = 8 * float(np.finfo(self._scores.dtype).eps) * self._scores.largest_gradient()
        return self._stated(hp, at_zero if at_zero > rounding else 1.0, 0, 0, Status.RUNNING)

    def step(self, hp: HParams, state: State) -> State:
        """The state after one step."""
        point = self._of(state)
        # the tolerance has become smaller, because the certified gap was too large
        if self._is_narrow() and float(hp.tolerance) < self._tolerance:
            point = self._widened(point)
        larger = bool(self._larger)
        l2 = self._larger.pop(0) if larger else self._l2
        self._prepare(point, l2)
        known = self._right if self._right is not None and self._right[1] == l2 else None
        right = self._right_side(point, l2) if known is None else known[0]
        self._right = None  # conjugate gradients overwrite it
        first = self._made_in_all < self._of_basis < np.inf
        most = math.ceil(self._of_basis - self._made_in_all) if first else MAX_CG
        found = self._minimised(point, right.r, l2, self._stop(hp, state, larger), most)
        self._at_zero = False
        self._scores.give(right.r)
        moved = self._searched(point, found, right, l2)
        self._products.append(found.products)
        self._made_in_all += found.products
        self._scores.give(found.x)
        if larger:  # the preconditioner is that of another λ
            self._preconditioner = None
        counts = int(state.steps) + 1, int(state.inner) + found.products
        status = Status.RUNNING
        if moved is not None:
            self._scores.give(point.gradient)
            self._point = moved
        elif self._is_narrow():
            self._widened(point)
        else:
            status = Status.LINE_SEARCH_FAILED
        return self._stated(hp, float(state.scale), *counts, status)

    def _stop(self, hp: HParams, state: State, larger: bool) -> _preconditioners.Stop:
        """When a direction is good enough for a step."""
        # at W = 0 the preconditioner of dense features is the inverse of the Hessian, to its rounding
        if self._at_zero and self._gram is not None:
            return _preconditioners.Stop(0.0, np.inf)
        forcing = np.sqrt(float(state.gradient_norm) / float(state.scale))
        part = float(np.clip(forcing, *(_FORCING if self._basis is None else _FORCING_OF_A_BASIS))) ** 2
        wanted = hp.tolerance > 0 and hp.gradient_tolerance is None and not larger
        return _preconditioners.Stop(part, _LEFT * self._small(hp, float(state.value)) if wanted else 0.0)

    def _small(self, hp: HParams, value: float) -> float:
        """rᵀM r at which G is about as near to its minimum as is wanted."""
        return 2 * float(hp.tolerance) * value / _SAFETY

    def _is_narrow(self) -> bool:
        """Whether scores have another dtype than X."""
        return self._scores.dtype != self._dtype

    def _widened(self, point: Point) -> Point:
        """The point, with scores in the dtype of X from now on."""
        self._scores = scores_of(self._problem, True, threads_of(self._problem))
        self._right = self._preconditioner = self._basis = None
        self._point = self._at(point.V)
        return self._point

    def direction(self, state: State, wanted: float) -> np.ndarray:
        """A Newton direction [d+1, K] at a state, whose residual matters little in a bound of `wanted`."""
        point = self._of(state)
        self._prepare(point, self._l2)
        stop = _preconditioners.Stop(-1.0, -1.0, 0.2 * self._l2 * wanted, 0.01 * wanted)
        right = self._right_side(point, self._l2)
        return self._laid_out(self._minimised(point, right.r, self._l2, stop, MAX_CG).x)

    def _laid_out(self, V: np.ndarray) -> np.ndarray:
        """[d+1, K] as the scores want it, and back."""
        return np.ascontiguousarray(V.T if self._scores.axis == 0 else V)

    def _at(self, V: np.ndarray) -> Point:
        Z = self._scores.product(V)
        now = self._scores.along(Z, np.zeros_like(Z), 0.0)
        return Point(V, Z, now, self._scores.gradient(now.P, now.rest))

    def _value(self, point: Point) -> float:
        W = point.V[self._scores.lead]
        return self._l2 / 2 * float(np.vdot(W, W)) + point.now.value

    def _of(self, state: State) -> Point:
        """The point of a state: the last one, or a new one for a state that was stored."""
        last = self._weights
        if self._point is None or last is None or state.W is not last[0] or state.bias is not last[1]:
            V = np.vstack([np.asarray(state.W, np.float64), np.asarray(state.bias, np.float64)])
            self._point = self._at(self._laid_out(V))
            self._larger, self._at_zero, self._preconditioner, self._basis = [], False, None, None
            self._right, self._made_in_all = None, int(state.inner)
        return self._point

    def _stated(self, hp: HParams, scale: float, steps: int, inner: int, status: Status) -> State:
        """The state at the last point."""
        point = self._point
        assert point is not None
        if self._preconditioner is None and not self._larger and self._least(hp) == np.inf:
            self._prepare(point, self._l2)  # as the decrement will be asked for
        right = self._right_side(point, self._l2)
        self._right = right, self._l2
        value, norm = self._l2 / 2 * right.square + point.now.value, right.norm
        if not (np.isfinite(value) and np.isfinite(norm)):
            status = Status.NONFINITE
        # where no step was found, the point is one that had not converged, or not for the certificate
        elif status == Status.RUNNING:
            small = norm <= self._least(hp) * scale and not self._larger
            if small and self._decrement(point, right, hp, value):
                status = Status.CONVERGED
            elif steps >= hp.max_steps:
                status = Status.MAX_STEPS
        dtype = self._dtype
        V = self._laid_out(point.V).astype(dtype, copy=False)
        self._weights = V[:-1], V[-1]
        reals = (np.asarray(a, dtype) for a in (value, norm, value, norm, scale))
        counts = (np.asarray(a, np.int32) for a in (status, steps, inner))
        return State(*self._weights, *reals, *counts, memory=self)  # type: ignore[arg-type]

    def _least(self, hp: HParams) -> float:
        """The part of ‖∇G(0)‖ that the gradient may have."""
        if hp.gradient_tolerance is not None:
            return float(hp.gradient_tolerance)
        return np.inf if hp.tolerance > 0 else 0.0

    def _decrement(self, point: Point, right: RightSide, hp: HParams, value: float) -> bool:
        """Whether G is about as near to its minimum as is wanted."""
        if not hp.tolerance > 0:
            return True
        pressed = right.pressed
        if self._preconditioner is None:
            self._prepare(point, self._l2)
            assert self._preconditioner is not None
            pressed = self._right_side(point, self._l2).pressed
        return pressed <= self._small(hp, value)

    def _right_side(self, point: Point, l2: float) -> RightSide:
        """−∇G with λ = `l2`, centred."""
        scores, M = self._scores, self._preconditioner
        if scores.native and scores.axis == 1 and scores.dtype == scores.work:
            r, sums = scores.room(point.gradient.shape, scores.work), np.empty(3)
            inverse = M.inverse if isinstance(M, _preconditioners.Diagonal) else point.gradient
            given = dict(V=point.V, gradient=point.gradient, inverse=inverse, ridge=l2)
            native.InPlace.once("softmax_right_side", **given, threads=scores.threads, r=r, sums=sums)
            pressed = np.nan if M is None else float(sums[2])
            return RightSide(r, float(np.sqrt(sums[0])), float(sums[1]), pressed)
        W = point.V[scores.lead]
        gradient = point.gradient.astype(np.float64)
        gradient[scores.lead] += l2 * W
        r = np.negative(gradient, dtype=scores.work, casting="same_kind")
        r -= r.mean(axis=scores.axis, keepdims=True)
        pressed = np.nan if M is None else float(np.vdot(r, M(r)))
        return RightSide(r, float(np.linalg.norm(gradient)), float(np.vdot(W, W)), pressed)

    def _prepare(self, point: Point, l2: float) -> None:
        """Makes the preconditioner at a point, unless the one at hand serves."""
        made, self._made = self._made, (point, l2)
        if self._preconditioner is not None and made is not None and made[0] is point and made[1] == l2:
            return
        scores = self._scores
        if self._gram is None:
            found = self._of_a_basis(point, l2)
            if found is None:
                self._diagonal(point, l2, l2 if made is None else made[1])
            else:
                self._preconditioner = found
        elif not isinstance(scores, DenseScores):
            raise AssertionError("whole blocks are those of dense features")
        elif self._at_zero and self._preconditioner is None:
            self._preconditioner = _preconditioners.uniform(scores, self._K, l2, self._gram)
            self._uniform = True
        elif not self._preconditioner or self._uniform or self._worn(_costs.of_blocks(scores.n, scores.d)):
            self._preconditioner = _preconditioners.blocks(scores, *self._narrow(point), l2, self._gram)
            self._products, self._uniform = [], False

    def _diagonal(self, point: Point, l2: float, before: float) -> None:
        """Makes a diagonal, which costs about a product with the Hessian, where the last one is old."""
        old = self._preconditioner is None or self._uniform or len(self._products) >= _KEPT or l2 != before
        if old:
            self._uniform, self._products = self._at_zero, []
            make = _preconditioners.uniform_diagonal if self._at_zero else _preconditioners.diagonal
            self._preconditioner = make(self._scores, *self._narrow(point), l2)

    def _of_a_basis(self, point: Point, l2: float) -> _preconditioners.Preconditioner | None:
        """The preconditioner of one basis for all classes; None if it does not pay yet, or has no inverse.

        A diagonal comes first, for as many products as the basis costs: they solve easy problems.
        """
        scores = self._scores
        if self._made_in_all < self._of_basis or not isinstance(scores, DenseScores):
            return None
        P, rest = self._narrow(point)
        if self._basis is None or self._worn(self._of_basis):
            self._basis, self._products = _kronecker.basis(scores, P, rest), []
        return None if self._basis is None else _kronecker.kronecker(scores, P, self._basis, l2)

    def _worn(self, cost: float) -> bool:
        """Whether to make anew blocks or a basis that cost as much as `cost` products with the Hessian."""
        counts = self._products
        return len(counts) > 1 and counts[-1] >= max(cost, _WORN * counts[0])

    def _narrow(self, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities, and 1 − the largest of a row, in the dtype of conjugate gradients."""
        work = self._scores.work
        return point.now.P.astype(work, copy=False), point.now.rest.astype(work, copy=False)

    def _minimised(
        self, point: Point, r: np.ndarray, l2: float, stop: _preconditioners.Stop, most: int
    ) -> _preconditioners.Direction:
        """δ with ∇²G δ = r but for the residual, centred; r is overwritten."""
        assert self._preconditioner is not None
        return self._preconditioner.solve(point.now.P, r, l2, stop, most)

    def _searched(
        self, point: Point, found: _preconditioners.Direction, right: RightSide, l2: float
    ) -> Point | None:
        """The point on the line where the slope of G is small; None where G does not fall.

        Where the slope or the preconditioner promises less than the rounding of G, the point is that of the
        whole step, if the gradient falls: what conjugate gradients find beyond the preconditioner then has
        less curvature than rounding. Where the slope leaps, the point is that before the leap.
        """
        slope = -found.fall
        if not slope < 0:
            return None
        scores = self._scores
        direction = found.x
        V, wd, dd = self._whole_step(point, direction)
        value = l2 / 2 * right.square + point.now.value
        rounding = 4 * float(np.finfo(scores.dtype).eps) * abs(value)
        U = scores.product(direction, scores.room(point.Z.shape, scores.dtype))
        P = scores.room(U.shape, U.dtype)
        if min(-slope, right.pressed) <= rounding:
            whole = self._point_at(point, V, U, scores.along(point.Z, U, 1.0, P))
            return whole if self._right_side(whole, l2).norm <= _FALL * right.norm else None
        search = Search(slope)
        while (t := search.t) is not None:
            now = scores.along(point.Z, U, t, P)
            fall = l2 * t * (wd + t / 2 * dd) + now.value - point.now.value
            here = OnALine(t, l2 * (wd + t * dd) + now.slope, l2 * dd + now.curvature)
            small = abs(here.slope) <= _SLOPE * abs(slope) or search.is_last
            if small and fall <= _ARMIJO * t * slope + rounding:
                if t != 1:
                    V += (t - 1) * direction
                    U *= U.dtype.type(t)
                moved = self._point_at(point, V, U, now)
                scores.give(point.now.P, point.Z)
                return moved
            search.go_on(here)
        return None

    def _whole_step(self, point: Point, direction: np.ndarray) -> tuple[np.ndarray, float, float]:
        """V + δ, and V·δ and δ·δ over the weights without the intercepts."""
        scores = self._scores
        if scores.native and scores.axis == 1:
            V, sums = np.empty_like(point.V), np.empty(2)
            given = dict(V=point.V, direction=direction, threads=scores.threads)
            native.InPlace.once("softmax_moved", **given, moved=V, sums=sums)
            return V, float(sums[0]), float(sums[1])
        W, D = point.V[scores.lead], direction[scores.lead].astype(np.float64)
        return point.V + direction, float(np.vdot(W, D)), float(np.vdot(D, D))

    def _point_at(self, point: Point, V: np.ndarray, U: np.ndarray, now: Along) -> Point:
        """The point after a step from `point` to V, by which the scores grow by U; its losses are `now`."""
        U += point.Z
        last = self._scores.last
        V[last] -= V[last].mean()
        return Point(V, U, now, self._scores.gradient(now.P, now.rest))

    def _larger_l2(self) -> list[float]:
        """λ to begin with, above that of the problem."""
        unit = float(self._scores.weight.astype(np.float64) @ self._scores.squares)
        if not self._l2 < _LARGER[-1] * unit < np.inf:
            return []
        larger = [part * unit for part in _LARGER]
        while larger[-1] * _FALLING > self._l2:
            larger.append(larger[-1] * _FALLING)
        return larger
