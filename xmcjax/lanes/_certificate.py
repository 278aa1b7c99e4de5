"""Whether a label that has ended is where it says, in float64, whatever misled the solver before.

With ½ ‖w‖² as the penalty the problem of a label, f(w, b) = ½ ‖w‖² + ½ r b² + Σ_i c_i φ(y_i (x_i·w + b)),
has a dual. Slopes u_i = φ'(m'_i) at the margins m' of any point give, with v = Σ_i c_i u_i y_i x_i and
s = Σ_i c_i u_i y_i,

    min f ≥ D = Σ_i c_i (φ(m'_i) − u_i m'_i) − ½ ‖v‖² − s²/2r,

where r = 0 asks for s = 0. The bias of that point is chosen for it; what rounding leaves is taken from the
slopes of the heavier sign by a factor ρ < 1, which is known to leave at least ρ (φ − u m) of their terms
where φ ≥ 0, since u ↦ −φ*(u) is concave and −φ*(0) = min φ. The slopes at (w, b) themselves give
f − D = ‖∇f‖²/2, which is far too much where C ‖x‖² is large; those at the end of a Newton step hardly more
than ½ ∇fᵀ H⁻¹ ∇f where the step stays where the model holds.

With another penalty R the last two terms are −R*(−v) and −(r R)*(−s). Where R has a kink or grows like |w|,
these are −∞ unless |v_j| ≤ 1, and slopes are shrunk by the factor that gives the largest bound.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.linalg
import scipy.sparse as sp

from xmcjax import linops
from xmcjax._platform import on_host
from xmcjax.lanes._dual_end import DualEnd
from xmcjax.lanes._job import Job
from xmcjax.lanes._label_math import TERM_ROUNDING, balanced, derivatives, shrunk, sum_of, violation
from xmcjax.lanes._lanes import Lanes, Solved
from xmcjax.linops import LinOp
from xmcjax.losses import MarginLoss
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import Status, newton_cg
from xmcjax.solvers.host_newton import conjugate_gradients, halved

#: A label has converged only where f − min f is certain to be at most this part of f.
GAP = 5e-3
# Of f, by which rounding may have misled a solver before it is not believed.
_ROUNDING = 1e-4
# Largest mean of κ C s ‖x‖², beside the 1 of the penalty, with which a small Newton decrement is believed: of
# the fits of tests/attack/scales_one_vs_all.py none was misled below 10,000.
_STIFF = 4e3
# The same of κ C s ‖x‖² ‖w‖² / 2 R(w) with another penalty: of 145 fits none was misled by 0.1% below 3,000.
_STIFF_PENALISED = 1e3
# Entries of X up to which a lane that its steps have ended is retried, and a path is taken.
_RETRIED, _ON_A_PATH = 1_000_000, 10_000_000
# Factors of C between the problems of a path; Newton steps of each, and the part of f of the decrement at
# its end.
_FACTORS, _PATH_STEPS, _PATH_DECREMENT = (10.0, 3.0), 200, 1e-5
# Of the end of a path: penalties with a kink bound Xᵀ ℓ' by 1, and the bound shrinks ℓ' until that holds.
_PATH_VIOLATION = 1e-3
# Newton steps, steps of CG for each of them, and halvings of a step.
_NEWTON_STEPS, _CG_STEPS, _HALVINGS = 50, 500, 50
# Of the residual of CG.
_CG_TOLERANCE = 1e-6
# Active rows up to which a direction is worked out exactly.
_EXACT_ROWS = 400
# Bytes of some rows of dense features in float64.
_BYTES = 64 << 20


class Certified(NamedTuple):
    """Weights, and what is certain about them."""

    w: np.ndarray  #: [d], in the dtype of X
    bias: float
    value: float  #: f
    gradient_norm: float  #: ‖∇f‖
    gap: float  #: (f − D) / f for the largest D that was found
    ended: bool  #: whether ‖∇f‖ is within its tolerance, or is rounding


class _Point(NamedTuple):
    w: np.ndarray
    bias: float
    z: np.ndarray
    value: float
    slope: np.ndarray  # c ∂φ/∂z
    curvature: np.ndarray
    gradient: np.ndarray
    gradient_bias: float


class _Certifier:
    """The problems of labels over the same features.

    Args:
        X: CSR or dense [n, d].
        loss: φ.
        weight: C s of the rows, [1] or [n].
        l2_bias: r; negative for no bias.
        penalty: R, of the weights and, r times it, of the bias.
        retries: whether lanes that ``max_steps`` has ended are looked at, where products with X are cheap.
    """

    def __init__(
        self,
        X: Any,
        loss: MarginLoss,
        weight: np.ndarray,
        l2_bias: float,
        penalty: Penalty | None = None,
        retries: bool = False,
    ):
        self._X, self._loss, self._r = X, loss, float(l2_bias)
        self._penalty = L2() if penalty is None else penalty
        self._mean = _mean_curvature(X, loss, weight)
        # Xᵀ ℓ' is wrong by ε Σ |ℓ'| ‖x‖ ≤ ε (2 κ f Σ c ‖x‖²)^½ or so, the minimum by half the square of that
        self._wrong = 16 * float(np.finfo(X.dtype).eps) ** 2 * self._mean if np.isfinite(self._mean) else 0.0
        entries = X.nnz if sp.issparse(X) else X.size
        self._doubted = {Status.LINE_SEARCH_FAILED} | (
            {Status.MAX_STEPS} if retries and entries <= _RETRIED else set()
        )
        self._takes_paths = entries <= _ON_A_PATH
        dual = self._takes_paths and isinstance(self._penalty, L2) and DualEnd.serves(loss, self._r)
        self._dual = DualEnd(X, self._r) if dual else None
        self._op: LinOp | None = None
        self._making = threading.Lock()

    def certified(
        self, w: np.ndarray, bias: float, y: np.ndarray, c: np.ndarray, tolerance: float = np.inf
    ) -> Certified:
        """The weights, or better ones, with their gap.

        Args:
            w, bias: of the lane.
            y: targets, [n].
            c: C s c of the rows, [n].
            tolerance: on ‖∇f‖, which better ones are to keep as well.
        """
        with _in_float64(), on_host():
            kind = _Label if isinstance(self._penalty, L2) else _PenalisedLabel
            part = 1 / self._mean if self._mean > 1 else 1.0
            label = kind(self._X, self._loss, self._r, y, c, self._penalty, tolerance)
            return label.certified(w, bias, self._dual, self._operator if self._takes_paths else None, part)

    def _operator(self) -> LinOp:
        """X in float64, made where it is needed first."""
        with self._making:
            if self._op is None:
                self._op = linops.make(sp.csr_array(self._X), np.float64)
            return self._op


class Certifier(_Certifier):
    """With ½ ‖w‖² as the penalty; arguments as of the base."""

    def doubts(self, status: int, value: float, gradient_norm: float, active: float) -> bool:
        """Whether the end of a lane is to be looked at.

        Args:
            status, value, gradient_norm: of the lane.
            active: rows with a slope or a curvature, times the larger weight of the label's rows.
        """
        if status != Status.CONVERGED:
            return status in self._doubted
        # The solver has settled that the Newton decrement is small. What may have misled it is rounding, and
        # rows that leave the loss in the step that it models.
        if self._wrong * active > _ROUNDING:
            return True
        # Where the loss of a row moves it little, the model errs little where rows leave the loss in a step.
        stiff = not self._mean <= _STIFF
        # ‖∇f‖²/2 bounds f − min f, but for a bias that is free
        return stiff and (self._r == 0 or gradient_norm * gradient_norm / 2 > GAP * value)

    def believes(self, w: np.ndarray, status: int, active: float) -> bool:
        """Whether the weights that were asked for settle a doubt: here they do not."""
        return False


class PenalisedCertifier(_Certifier):
    """With another penalty, which has a ``conjugate``; arguments as of the base."""

    def doubts(self, status: int, value: float, gradient_norm: float, active: float) -> bool:
        """Whether the weights at the end of a lane are asked for; arguments as of :class:`Certifier`."""
        return status == Status.CONVERGED or status in self._doubted

    def believes(self, w: np.ndarray, status: int, active: float) -> bool:
        """Whether a lane that ended with these weights cannot have been misled."""
        if status != Status.CONVERGED:
            return False
        with _in_float64(), on_host():
            w = w.astype(np.float64)
            # 2 R(w) / ‖w‖² stands for the 1 that ½ ‖w‖² has for its curvature
            slack = float(w @ w) / (2 * sum_of(self._penalty, w, 1.0)) if w.any() else 0.0
            return bool(self._mean * slack <= _STIFF_PENALISED and self._wrong * slack * active <= _ROUNDING)


def _mean_curvature(X: Any, loss: MarginLoss, weight: np.ndarray) -> float:
    """The mean of κ C s ‖x‖², of which the number of active rows is about what bounds the curvature."""
    of_rows = np.broadcast_to(weight, X.shape[0])
    if not sp.issparse(X):
        squares = np.einsum("i,ij,ij->", of_rows, X, X, dtype=np.float64)
    elif len(weight) == 1:
        squares = weight[0] * np.einsum("i,i->", X.data, X.data, dtype=np.float64)
    else:
        of_entries = np.repeat(of_rows, np.diff(X.indptr))
        squares = np.einsum("i,i,i->", of_entries, X.data, X.data, dtype=np.float64)
    return loss.most_curvature * float(squares) / X.shape[0]


class _Label:
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
    ):
        self._X, self._loss, self._r, self._penalty = X, loss, l2_bias, penalty
        self._tolerance = tolerance
        self._y, self._c = y.astype(np.float64), c.astype(np.float64)

    def certified(
        self,
        w: np.ndarray,
        bias: float,
        dual: DualEnd | None = None,
        operator: Callable[[], LinOp] | None = None,
        part: float = 1.0,
    ) -> Certified:
        """The weights, or better ones, with their gap.

        Where the loss has an end in the dual, that is the first to be looked at. Where neither it nor Newton
        steps make the weights of the lane good enough, the solver takes a path in float64: from weights
        of zero and a small part of C to the whole of it, each time from the solution before. Where C ‖x‖² is
        so large that steps are lost among rows that enter and leave the loss, 50 steps on a path reach what
        a thousand at C do not.

        Args:
            w, bias: of the lane.
            dual: the end of a label in the dual; None for none.
            operator: gives X in float64; None for no path.
            part: of C, at which a path begins.
        """
        if dual is None:
            best, least = self._improved(w, bias, -np.inf)
        else:
            best, least = self._in_dual(w, bias, dual)
            if not self._certain(best, least):
                found, least = self._improved(best.w, best.bias, least)
                best = min(best, found, key=lambda point: point.value)
        for factor in _FACTORS:
            if operator is None or self._certain(best, least):
                break
            parts = [*np.exp(np.arange(np.log(part), 0, np.log(factor))), 1.0]
            found, least = self._improved(*self._path(operator(), parts), least)
            best = min(best, found, key=lambda point: point.value)
        return self._judged(best, least)

    def _in_dual(self, w: np.ndarray, bias: float, dual: DualEnd) -> tuple[_Point, float]:
        """Weights as numbers of the type of X, or better ones by the dual, and a lower bound of f."""
        best = self._at(*self._rounded(w, bias))
        least = self._bound(best.z)
        if self._certain(best, least):
            return best, least
        for end in dual(self._y, self._c):
            least = max(least, end.bound)
            if not self._certain(best, least):
                found = self._at(*self._rounded(end.w, end.bias))
                best = min(best, found, key=lambda point: point.value)
            if self._certain(best, least):
                break
        return best, least

    def _path(self, op: LinOp, parts: list[float]) -> tuple[np.ndarray, float]:
        """The weights and the bias at the end of a path over these parts of C."""
        w, bias, positives = np.zeros(self._X.shape[1]), 0.0, np.flatnonzero(self._y > 0)
        hp = newton_cg.HParams(l2_bias=self._r, max_steps=_PATH_STEPS, decrement=_PATH_DECREMENT)
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

    def _improved(self, w: np.ndarray, bias: float, least: float) -> tuple[_Point, float]:
        """Weights as numbers of the type of X, or better ones by Newton steps, and a lower bound of f."""
        given = now = self._at(*self._rounded(w, bias))
        least = max(least, self._bound(now.z))

        def certain(point: _Point) -> bool:
            return self._certain(point, least)

        for _ in range(_NEWTON_STEPS):
            if certain(given) or not np.isfinite(now.value):
                break
            # as numbers of the type of X they may be worse
            if certain(now) and certain(rounded := self._at(*self._rounded(now.w, now.bias))):
                now = rounded
                break
            step, step_bias = self._direction(now)
            along = self._product(step) + step_bias
            least = max(least, self._bound(now.z + along))
            better = None if certain(given) else self._searched(now, step, step_bias, along)
            if better is None:
                break
            now = better
            least = max(least, self._bound(now.z))
        if certain(given) or not now.value < given.value:
            now = given
        else:
            now = min(given, self._at(*self._rounded(now.w, now.bias)), key=lambda point: point.value)
        return now, least

    def _certain(self, point: _Point, least: float) -> bool:
        return point.value - least <= GAP * point.value and self._ended(point)

    def _ended(self, point: _Point) -> bool:
        """Whether ‖∇f‖ is within its tolerance, 0 where a label starts at its minimum, or is rounding."""
        norm = _norm(point)
        # where f is strongly convex by σ, ‖∇f‖²/2σ bounds f − min f
        convex = (min(self._r, 1.0) if self._r >= 0 else 1.0) if isinstance(self._penalty, L2) else 0.0
        rounding = float(np.finfo(np.float64).eps) * point.value
        return norm <= self._tolerance or bool(norm * norm / 2 <= convex * rounding)

    def _judged(self, now: _Point, least: float) -> Certified:
        """A point, whose weights are numbers of the type of X, beside a lower bound."""
        # of exact zeros the gap is 0
        fall = max(now.value - least, 0.0)
        gap = fall / now.value if now.value > 0 else 0.0 if fall == 0 else np.inf
        w, bias = now.w.astype(self._X.dtype), float(self._X.dtype.type(now.bias))
        return Certified(
            w, bias, now.value, _norm(now), gap if np.isfinite(gap) else np.inf, self._ended(now)
        )

    def _rounded(self, w, bias):
        dtype = self._X.dtype
        return np.asarray(w, dtype).astype(np.float64), float(dtype.type(bias))

    def _product(self, w: np.ndarray) -> np.ndarray:
        """X w in float64."""
        if sp.issparse(self._X):
            return self._X @ w
        return np.concatenate([part @ w for _, part in self._parts(np.arange(self._X.shape[0]))])

    def _transposed(self, slope: np.ndarray) -> np.ndarray:
        """Xᵀ slope."""
        rows = np.flatnonzero(slope)
        total = np.zeros(self._X.shape[1])
        for chosen, part in self._parts(rows):
            total += part.T @ slope[chosen]
        return total

    def _parts(self, rows: np.ndarray):
        """Some rows of X in float64, so many at a time."""
        size = len(rows) if sp.issparse(self._X) else _BYTES // (8 * max(1, self._X.shape[1]))
        for first in range(0, max(len(rows), 1), max(size, 1)):
            chosen = rows[first : first + max(size, 1)]
            yield chosen, self._X[chosen].astype(np.float64)

    def _evaluated(self, z: np.ndarray):
        """c φ, and its derivatives in z."""
        return [self._c * np.asarray(part) for part in derivatives(self._loss, z, self._y)]

    def _at(self, w: np.ndarray, bias: float, z: np.ndarray | None = None) -> _Point:
        z = self._product(w) + bias if z is None else z
        value, slope, curvature = self._evaluated(z)
        r = max(self._r, 0.0)
        f = float(value.sum() + w @ w / 2 + r * bias * bias / 2)
        of_bias = float(slope.sum()) + r * bias if self._r >= 0 else 0.0
        return _Point(w, bias, z, f, slope, curvature, w + self._transposed(slope), of_bias)

    def _dual(self, z: np.ndarray) -> tuple[np.ndarray, float]:
        """u c y, [n], and a lower bound of Σ c (φ − u m), of the slopes u at these scores."""
        if self._r == 0:
            z = z + float(balanced(self._loss, z, self._y, self._c))
        value, slope, _ = self._evaluated(z)
        # far from the minimum the two cancel, and what rounding leaves may be larger than the minimum
        terms = value - slope * z - TERM_ROUNDING * (np.abs(value) + np.abs(slope * z))
        if self._r == 0:
            rising, falling = float(slope[slope > 0].sum()), -float(slope[slope < 0].sum())
            heavier = slope > 0 if rising > falling else slope < 0
            rho = min(rising, falling) / max(rising, falling) if max(rising, falling) > 0 else 1.0
            slope, terms = np.where(heavier, rho * slope, slope), np.where(heavier, rho * terms, terms)
        return slope, float(terms.sum())

    def _bound(self, z: np.ndarray) -> float:
        """D of the slopes at these scores."""
        slope, terms = self._dual(z)
        v = self._transposed(slope)
        bound = float(terms - v @ v / 2)
        if self._r > 0:
            of_bias = float(slope.sum())
            bound -= of_bias * of_bias / (2 * self._r)
        return bound if np.isfinite(bound) else -np.inf

    def _direction(self, now: _Point) -> tuple[np.ndarray, float]:
        """−H⁻¹ ∇f, exact where few rows are active, else by conjugate gradients with the diagonal."""
        D, r = now.curvature, max(self._r, 0.0)
        rows = np.flatnonzero(D)
        A, D = self._X[rows].astype(np.float64), D[rows]
        of_bias = r + D.sum()
        has_bias = self._r >= 0 and of_bias > 0
        right = -np.append(now.gradient, now.gradient_bias if has_bias else 0.0)
        if len(rows) <= min(_EXACT_ROWS, len(right) - 1) and not (has_bias and r == 0):
            with contextlib.suppress(np.linalg.LinAlgError):  # where rounding is beyond it, CG has its turn
                return _exact(A, D, r if has_bias else np.inf, right[:-1], right[-1])
        squared = A.multiply(A).tocsr() if sp.issparse(A) else A * A
        diagonal = np.append(1 + squared.T @ D, of_bias if has_bias else 1.0)

        def product(p):
            u = D * (A @ p[:-1] + p[-1])
            return np.append(p[:-1] + A.T @ u, (u.sum() + r * p[-1]) if has_bias else 0.0)

        small = _CG_TOLERANCE**2 * float(right @ (right / diagonal))
        x, _ = conjugate_gradients(product, right, diagonal, lambda r, rz, fall: not rz > small, _CG_STEPS)
        return x[:-1], float(x[-1])

    def _searched(self, now: _Point, step, step_bias: float, along) -> _Point | None:
        """The first of t = 1, ½, ¼, … where f falls; None where it does for none."""

        def at(t: float) -> _Point:
            return self._at(now.w + t * step, now.bias + t * step_bias, now.z + t * along)

        return halved(at, now.value, _HALVINGS)


class _PenalisedLabel(_Label):
    """The same with another penalty: the gradient is the element of ∂f that is nearest to 0."""

    def _improved(self, w: np.ndarray, bias: float, least: float) -> tuple[_Point, float]:
        exact = self._at(w.astype(np.float64), bias)
        return self._at(*self._rounded(w, bias)), max(least, self._bound(exact.z))

    def _at(self, w: np.ndarray, bias: float, z: np.ndarray | None = None) -> _Point:
        z = self._product(w) + bias if z is None else z
        value, slope, curvature = self._evaluated(z)
        r, R = max(self._r, 0.0), self._penalty
        f = float(value.sum()) + sum_of(R, w, 1.0) + sum_of(R, np.array([bias]), r)
        of_bias = (
            float(violation(R, np.array([slope.sum()]), np.array([bias]), r)[0]) if self._r >= 0 else 0.0
        )
        gradient = np.asarray(violation(R, self._transposed(slope), w, 1.0))
        return _Point(w, bias, z, f, slope, curvature, gradient, of_bias)

    def _bound(self, z: np.ndarray) -> float:
        slope, terms = self._dual(z)
        u = np.where(self._c > 0, slope * self._y / np.where(self._c > 0, self._c, 1.0), 0.0)
        v, s, r = self._transposed(slope), float(slope.sum()), max(self._r, 0.0)
        conjugate = type(self._loss).conjugate is not MarginLoss.conjugate
        bound = float(shrunk(self._loss if conjugate else None, self._penalty, terms, u, self._c, v, s, r))
        return bound if np.isfinite(bound) else -np.inf


def _norm(point: _Point) -> float:
    return float(np.hypot(np.linalg.norm(point.gradient), point.gradient_bias))


def _exact(A, D: np.ndarray, r: float, right: np.ndarray, of_bias: float) -> tuple[np.ndarray, float]:
    """(Λ + BᵀDB)⁻¹ right, with B = [A, 1] and Λ = diag(1, …, 1, r), by D⁻¹ + BΛ⁻¹Bᵀ, [rows of A]²."""
    gram = A @ A.T
    inner = (gram.toarray() if sp.issparse(gram) else gram) + 1 / r + np.diag(1 / D)
    factor = scipy.linalg.cho_factor(inner, overwrite_a=True, check_finite=False)
    s = scipy.linalg.cho_solve(factor, A @ right + of_bias / r, check_finite=False)
    return right - A.T @ s, float(of_bias - s.sum()) / r


@contextlib.contextmanager
def _in_float64():
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"), jax.enable_x64(True):
        yield
