"""Certificates in float64: how far the weights of a label that has ended are from the minimum.

With ½ ‖w‖² as the penalty the problem of a label, f(w, b) = ½ ‖w‖² + ½ r b² + Σ_i c_i φ(y_i (x_i·w + b)),
has a dual. Slopes u_i = φ'(m'_i) at the margins m' of any point give, with v = Σ_i c_i u_i y_i x_i and
s = Σ_i c_i u_i y_i,

    min f ≥ D = Σ_i c_i (φ(m'_i) − u_i m'_i) − ½ ‖v‖² − s²/2r,

where r = 0 requires s = 0. Then the bias of the point is chosen so that s is 0 up to rounding, and the slopes
of the sign with the larger sum are multiplied by the factor ρ < 1 that makes s exactly 0. Each of their terms
keeps at least ρ (φ − u m), since φ ≥ 0, u ↦ −φ*(u) is concave and −φ*(0) = min φ. The slopes at (w, b)
give f − D = ‖∇f‖²/2, which is far too large where C ‖x‖² is large. The slopes at the end of a Newton step
give hardly more than ½ ∇fᵀ H⁻¹ ∇f, as long as the quadratic model holds along the step.

With another penalty R the last two terms are −R*(−v) and −(r R)*(−s). Where R has a kink or grows like |w|,
these are −∞ unless |v_j| ≤ 1, and slopes are shrunk by the factor that gives the largest bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from xmcjax.lanes._dual_end import Ending
from xmcjax.lanes._job import Job
from xmcjax.lanes._label_features import LabelFeatures
from xmcjax.lanes._label_math import TERM_ROUNDING, balanced, derivatives, shrunk, sum_of, violation
from xmcjax.lanes._lanes import Lanes, Solved
from xmcjax.linops import LinOp
from xmcjax.losses import MarginLoss
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import newton_cg
from xmcjax.solvers.host_newton import halved

#: A label has converged only where f − min f is certain to be at most this part of f.
GAP = 5e-3
# Rounding error of a bound, relative to f. Newton steps go on until the gap, relative to f, is at most this
# or g², or until they bring nothing: g is the part of f that the weights gain over the bias alone. Scores
# without the bias vary by about g² of f then, and a larger gap may be an error of the bias beyond that.
_BOUND_ROUNDING = 1e-12
# _FACTORS: ratios of C between the problems of the first path and of the second. _PATH_STEPS: most Newton
# steps of a problem. _PATH_DECREMENT: Newton decrement, relative to f, at which a problem ends.
_FACTORS, _PATH_STEPS, _PATH_DECREMENT = (10.0, 3.0), 200, 1e-5
# Counterpart of _PATH_STEPS for steps with the whole of C from the weights of a lane.
_LAST_STEPS = 10
# Bound on ‖∇f‖ at the end of a path: a penalty with a kink bounds the entries of Xᵀ ℓ' by 1, and the lower
# bound of f shrinks ℓ' until that holds.
_PATH_VIOLATION = 1e-3
# Newton decrement, relative to f, at which the solver ends a lane.
_DECREMENT = newton_cg.HParams().decrement
# Most Newton steps, halvings of a step, and steps of the bias alone. _NEAR: a bound is worked out where the
# Newton decrement is at most this many times a gap that is small enough.
_NEWTON_STEPS, _HALVINGS, _BIAS_STEPS, _NEAR = 50, 50, 10, 10
_EPSILON = float(np.finfo(np.float64).eps)


class Certified(NamedTuple):
    """Weights, and what is certain about them."""

    w: np.ndarray  #: [d], in the dtype of X
    bias: float
    value: float  #: f
    gradient_norm: float  #: ‖∇f‖
    gap: float  #: (f − D) / f for the largest D that was found
    ended: bool  #: whether ‖∇f‖ is within its tolerance, or no more than rounding


class _Point(NamedTuple):
    w: np.ndarray
    bias: float
    z: np.ndarray
    value: float
    slope: np.ndarray  # c ∂φ/∂z
    curvature: np.ndarray
    gradient: np.ndarray
    gradient_bias: float


class Label:
    """The problem of one label in float64; arguments as of :class:`Certifier`."""

    def __init__(
        self,
        X: Any,
        loss: MarginLoss,
        l2_bias: float,
        y: np.ndarray,
        c: np.ndarray,
        penalty: Penalty,
        tolerance: float = np.inf,
        *,
        under_way: bool = False,
    ):
        self._features = LabelFeatures.of(X)
        self._loss, self._r, self._penalty = loss, l2_bias, penalty
        self._tolerance, self._under_way = tolerance, under_way
        self._has_ended = False
        self._y, self._c = y.astype(np.float64), c.astype(np.float64)

    def certified(
        self,
        w: np.ndarray,
        bias: float,
        ends: Sequence[Ending] = (),
        operator: Callable[[], LinOp] | None = None,
        part: float = 1.0,
    ) -> Certified:
        """The weights, or better ones, with their gap.

        Newton steps come first; where the loss has other `ends`, these are steps with exact directions, and
        they last only as long as whole steps lower f. Then each of the `ends` is tried, followed by Newton
        steps. If the weights are still not good enough, the solver takes a path in float64: it begins with
        weights of zero and a small part of C and goes up to the whole of C, from one solution to the next.
        Where C ‖x‖² is so large that steps are lost among rows that enter and leave the loss, 50 steps on a
        path reach what a thousand at C do not.

        Args:
            w, bias: of the lane.
            ends: ways to end a label with this loss other than by Newton steps.
            operator: gives X in float64; None for no path.
            part: the part of C at which a path begins.
        """
        if self._features.factors or not ends:
            best, least = self._improved(w, bias, -np.inf, whole_steps=bool(ends))
        else:
            best, least = self._at(*self._rounded(w, bias)), -np.inf
        for ending in ends:
            if self._done(best, least):
                break
            best, least = self._at_ends(best, least, ending)
            if not self._done(best, least):
                found, least = self._improved(best.w, best.bias, least)
                best = min(best, found, key=lambda point: point.value)
        for start, parts in self._ways(best, part):
            if operator is None or self._done(best, least):
                break
            found, least = self._improved(*self._path(operator(), parts, start), least)
            best = min(best, found, key=lambda point: point.value)
        if self._variance(best, least) < GAP:
            best = self._of_best_bias(best)
        return self._judged(best, least)

    def _at_ends(self, best: _Point, least: float, ending: Ending) -> tuple[_Point, float]:
        """`best`, or better weights of this ending in the dtype of X, and a lower bound of min f."""
        least = max(least, self._bound(best.z))
        if self._certain(best, least):
            return best, least
        for end in ending(self._y, self._c, best.w, best.bias):
            least = max(least, end.bound)
            if not self._certain(best, least):
                found = self._at(*self._rounded(end.w, end.bias))
                best = min(best, found, key=lambda point: point.value)
            if self._certain(best, least):
                break
        return best, least

    def _ways(self, best: _Point, part: float) -> list[tuple[_Point | None, list[float]]]:
        """The paths that are taken, in turn: where they start, None for zero, and their parts of C."""
        steps = (np.arange(np.log(part), 0, np.log(factor)) for factor in _FACTORS)
        return [(None, [*np.exp(logs), 1.0]) for logs in steps]

    def _path(self, op: LinOp, parts: list[float], start: _Point | None) -> tuple[np.ndarray, float]:
        """The weights and the bias at the end of a path over these parts of C."""
        w, bias, steps = np.zeros(self._features.shape[1]), 0.0, _PATH_STEPS
        if start is not None:
            w, bias, steps = start.w, start.bias, _LAST_STEPS
        positives = np.flatnonzero(self._y > 0)
        hp = newton_cg.HParams(l2_bias=self._r, max_steps=steps, decrement=_PATH_DECREMENT)
        for part in parts:
            lanes = Lanes(op, self._loss, part * self._c, hp, 1, penalty=self._penalty)
            tolerance = np.inf if part < 1 else _PATH_VIOLATION
            lanes.start([Job(0, positives, tolerance, w, 1.0, np.zeros(0, int), np.zeros(0), bias)])
            ended: list[Solved] = []
            while not ended:
                lanes.begin()
                ended = lanes.finish()[0]()
            if not (np.isfinite(ended[0].w).all() and np.isfinite(ended[0].bias)):
                break
            w, bias = ended[0].w, ended[0].bias
        return w, bias

    def _improved(
        self, w: np.ndarray, bias: float, least: float, whole_steps: bool = False
    ) -> tuple[_Point, float]:
        """The weights rounded to the dtype of X, or better ones by Newton steps, and a lower bound of min f.

        With `whole_steps`, the first step that has to be halved is the last one.
        """
        given = now = self._at(*self._rounded(w, bias))
        least = max(least, self._bound(now.z))

        # a lane that has not ended goes on until the solver itself would end it
        gap = _DECREMENT if self._under_way else GAP

        def certain(point: _Point) -> bool:
            return self._certain(point, least, gap) and self._tells(point, least)

        for _ in range(_NEWTON_STEPS):
            if certain(given) or not np.isfinite(now.value):
                break
            # rounded to the dtype of X, the weights may be worse
            if certain(now) and self._stands(rounded := self._at(*self._rounded(now.w, now.bias)), least):
                now = rounded
                break
            step, step_bias = self._features.direction(
                now.curvature, self._r, now.gradient, now.gradient_bias
            )
            along = self._features.product(step) + step_bias
            ahead = now.z + along
            losses = self._evaluated(ahead)
            # `fall` of an exact direction tells how far away the minimum is, and whether a bound is of use
            fall = -float(now.gradient @ step + now.gradient_bias * step_bias) / 2
            factors = self._features.factors
            near = not factors or fall <= _NEAR * gap * now.value
            if near:
                least = max(least, self._bound(ahead, losses))
            if certain(given) or fall <= (_EPSILON if factors else _BOUND_ROUNDING) * now.value:
                break  # a step promises no more than rounding
            better = self._searched(now, step, step_bias, along, ahead, losses)
            if better is None:
                break
            now = better
            if now.z is ahead:
                continue
            if whole_steps:
                break
            if near:
                least = max(least, self._bound(now.z))
        if certain(given) or not now.value < given.value:
            now = given
        else:
            now = min(given, self._at(*self._rounded(now.w, now.bias)), key=lambda point: point.value)
        return now, least

    def _certain(self, point: _Point, least: float, gap: float = GAP) -> bool:
        return point.value - least <= gap * point.value and self._ended(point)

    def _tells(self, point: _Point, least: float) -> bool:
        """Whether f − D is small compared with what the weights gain over the bias alone."""
        enough = max(self._variance(point, least), _BOUND_ROUNDING)
        return point.value - least <= enough * point.value

    def _variance(self, point: _Point, least: float) -> float:
        """About the variance of scores without the bias: g², where the weights gain at most g f over it."""
        if not point.value > 0:
            return 0.0
        losses, *_ = self._evaluated(np.full(len(self._y), point.bias))
        alone = float(losses.sum()) + max(self._r, 0.0) / 2 * point.bias * point.bias
        gained = max(alone - least, 0.0) / point.value
        return gained * gained  # may overflow to ∞, where ** would raise an error

    def _of_best_bias(self, point: _Point) -> _Point:
        """The same weights with the best bias, by the slope of f: differences of f would be rounding."""
        for _ in range(_BIAS_STEPS):
            h = max(self._r, 0.0) + float(point.curvature.sum())
            if self._r < 0 or not h > 0:
                break
            there = self._at(*self._rounded(point.w, point.bias - point.gradient_bias / h))
            if not abs(there.gradient_bias) < abs(point.gradient_bias):
                break
            point = there
        return point

    def _stands(self, rounded: _Point, least: float) -> bool:
        """Whether weights that were certain in float64 still are when they are rounded to the dtype of X.

        For a lane that was under way, only the gap is checked again: its gradient counts as it was before
        rounding, as it does for every lane that ended by itself.
        """
        if not self._under_way:
            return self._certain(rounded, least)
        self._has_ended = rounded.value - least <= GAP * rounded.value
        return self._has_ended

    def _done(self, best: _Point, least: float) -> bool:
        return self._has_ended or self._certain(best, least)

    def _ended(self, point: _Point) -> bool:
        """Whether ‖∇f‖ is within its tolerance, which may be 0, or no more than rounding."""
        norm = _norm(point)
        # where f is strongly convex by σ, ‖∇f‖²/2σ bounds f − min f
        convex = (min(self._r, 1.0) if self._r >= 0 else 1.0) if isinstance(self._penalty, L2) else 0.0
        rounding = _EPSILON * point.value
        return norm <= self._tolerance or bool(norm * norm / 2 <= convex * rounding)

    def _judged(self, now: _Point, least: float) -> Certified:
        """The result at a point whose weights are in the dtype of X, given a lower bound of min f."""
        # where f and the bound are both exactly 0, so is the gap
        fall = max(now.value - least, 0.0)
        gap = fall / now.value if now.value > 0 else 0.0 if fall == 0 else np.inf
        dtype = self._features.dtype
        w, bias, ended = now.w.astype(dtype), float(dtype.type(now.bias)), self._has_ended or self._ended(now)
        gap = gap if np.isfinite(gap) else np.inf
        return Certified(w, bias, now.value, _norm(now), gap, ended)

    def _rounded(self, w, bias):
        dtype = self._features.dtype
        return np.asarray(w, dtype).astype(np.float64), float(dtype.type(bias))

    def _evaluated(self, z: np.ndarray):
        """c φ, and its derivatives in z."""
        return [self._c * part for part in derivatives(self._loss, z, self._y)]

    def _at(self, w: np.ndarray, bias: float, z: np.ndarray | None = None, losses=None) -> _Point:
        z = self._features.product(w) + bias if z is None else z
        value, slope, curvature = self._evaluated(z) if losses is None else losses
        r = max(self._r, 0.0)
        f = float(value.sum() + w @ w / 2 + r * bias * bias / 2)
        slope_bias = float(slope.sum()) + r * bias if self._r >= 0 else 0.0
        return _Point(w, bias, z, f, slope, curvature, w + self._features.transposed(slope), slope_bias)

    def _dual(self, z: np.ndarray, losses=None) -> tuple[np.ndarray, float]:
        """u c y, [n], of the slopes u at these scores, and a lower bound of Σ c (φ − u m)."""
        if self._r == 0:
            z, losses = z + balanced(self._loss, z, self._y, self._c), None
        value, slope, _ = self._evaluated(z) if losses is None else losses
        # far from the minimum φ and u m cancel, and the rounding error may be larger than the minimum
        terms = value - slope * z - TERM_ROUNDING * (np.abs(value) + np.abs(slope * z))
        if self._r == 0:
            rising, falling = float(slope[slope > 0].sum()), -float(slope[slope < 0].sum())
            heavier = slope > 0 if rising > falling else slope < 0
            rho = min(rising, falling) / max(rising, falling) if max(rising, falling) > 0 else 1.0
            slope, terms = np.where(heavier, rho * slope, slope), np.where(heavier, rho * terms, terms)
        return slope, float(terms.sum())

    def _bound(self, z: np.ndarray, losses=None) -> float:
        """D of the slopes at these scores; `losses` is what :meth:`_evaluated` gives there, where known."""
        slope, terms = self._dual(z, losses)
        v = self._features.transposed(slope)
        bound = float(terms - v @ v / 2)
        if self._r > 0:
            of_bias = float(slope.sum())
            bound -= of_bias * of_bias / (2 * self._r)
        return bound if np.isfinite(bound) else -np.inf

    def _searched(self, now: _Point, step, step_bias: float, along, ahead, at_one) -> _Point | None:
        """The point at the first of t = 1, ½, ¼, … where f falls; None where it falls at none.

        For t = 1 the scores `ahead` and the losses `at_one` are given.
        """

        def at(t: float) -> _Point:
            known = (ahead, at_one) if t == 1 else (now.z + t * along, None)
            return self._at(now.w + t * step, now.bias + t * step_bias, *known)

        return halved(at, now.value, _HALVINGS)


class PenalisedLabel(Label):
    """A label with another penalty, whose gradient is the element of ∂f that is nearest to 0.

    Shrinking the slopes until |v_j| ≤ 1 lowers the bound by far more than f is above its minimum. Mostly some
    steps in float64 from the weights of the lane are enough then, and no path from zero is taken.
    """

    def _ways(self, best: _Point, part: float) -> list[tuple[_Point | None, list[float]]]:
        return [(best, [1.0]), *super()._ways(best, part)]

    def _improved(
        self, w: np.ndarray, bias: float, least: float, whole_steps: bool = False
    ) -> tuple[_Point, float]:
        exact = self._at(w.astype(np.float64), bias)
        return self._at(*self._rounded(w, bias)), max(least, self._bound(exact.z))

    def _at(self, w: np.ndarray, bias: float, z: np.ndarray | None = None, losses=None) -> _Point:
        z = self._features.product(w) + bias if z is None else z
        value, slope, curvature = self._evaluated(z)
        r, R = max(self._r, 0.0), self._penalty
        f = float(value.sum()) + sum_of(R, w, 1.0) + sum_of(R, np.array([bias]), r)
        of_bias = (
            float(violation(R, np.array([slope.sum()]), np.array([bias]), r)[0]) if self._r >= 0 else 0.0
        )
        gradient = np.asarray(violation(R, self._features.transposed(slope), w, 1.0))
        return _Point(w, bias, z, f, slope, curvature, gradient, of_bias)

    def _bound(self, z: np.ndarray, losses=None) -> float:
        slope, terms = self._dual(z, losses)
        u = np.where(self._c > 0, slope * self._y / np.where(self._c > 0, self._c, 1.0), 0.0)
        v, s, r = self._features.transposed(slope), float(slope.sum()), max(self._r, 0.0)
        conjugate = type(self._loss).conjugate is not MarginLoss.conjugate
        bound = float(shrunk(self._loss if conjugate else None, self._penalty, terms, u, self._c, v, s, r))
        return bound if np.isfinite(bound) else -np.inf


def _norm(point: _Point) -> float:
    return float(np.hypot(np.linalg.norm(point.gradient), point.gradient_bias))
