"""Whether a label that has ended is where it says, in float64, whatever rounding did before.

With ½ ‖w‖² as the penalty the problem of a label, f(w, b) = ½ ‖w‖² + ½ r b² + Σ_i c_i φ(y_i (x_i·w + b)),
has a dual. Slopes u_i = φ'(m'_i) at the margins m' of any point give, with v = Σ_i c_i u_i y_i x_i and
s = Σ_i c_i u_i y_i,

    min f ≥ D = Σ_i c_i (φ(m'_i) − u_i m'_i) − ½ ‖v‖² − s²/2r,

where r = 0 asks for s = 0. The bias of that point is chosen for it; what rounding leaves is taken from the
slopes of the heavier sign by a factor ρ < 1, which is known to leave at least ρ (φ − u m) of their terms
where φ ≥ 0, since u ↦ −φ*(u) is concave and −φ*(0) = min φ. The slopes at (w, b) themselves give
f − D = ‖∇f‖²/2, which is far too much where C ‖x‖² is large; those at the end of a Newton step hardly more
than ½ ∇fᵀ H⁻¹ ∇f where the step stays where the model holds.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax.losses import MarginLoss
from xmcjax.solvers import Status
from xmcjax.solvers.host_newton import conjugate_gradients, halved

#: A label has converged only where f − min f is certain to be at most this part of f.
GAP = 5e-3
# Of f, by which rounding may have misled a solver before it is not believed.
_ROUNDING = 1e-4
# Largest mean of κ C s ‖x‖², beside the 1 of the penalty, with which a small Newton decrement is believed: of
# the fits of tests/attack/scales_one_vs_all.py none was misled below 10,000.
_STIFF = 4e3
# Newton steps, steps of CG for each of them, and halvings of a step.
_NEWTON_STEPS, _CG_STEPS, _HALVINGS = 50, 500, 50
# Of the residual of CG.
_CG_TOLERANCE = 1e-6
# Of a term of the bound, relative to the sizes of what it is made of.
_TERM_ROUNDING = 4 * float(np.finfo(np.float64).eps)
# Halvings of the interval of a bias.
_BISECTIONS = 200
# Bytes of some rows of dense features in float64.
_BYTES = 64 << 20


class Certified(NamedTuple):
    """Weights, and what is certain about them."""

    w: np.ndarray  #: [d], in the dtype of X
    bias: float
    value: float  #: f
    gradient_norm: float  #: ‖∇f‖
    gap: float  #: (f − D) / f for the largest D that was found


class _Point(NamedTuple):
    w: np.ndarray
    bias: float
    z: np.ndarray
    value: float
    slope: np.ndarray  # c ∂φ/∂z
    curvature: np.ndarray
    gradient: np.ndarray
    gradient_bias: float


class Certifier:
    """The problems of labels over the same features, with ½ ‖w‖² as the penalty.

    Args:
        X: CSR or dense [n, d].
        loss: φ.
        weight: C s of the rows, [1] or [n].
        l2_bias: r; negative for no bias.
    """

    def __init__(self, X: Any, loss: MarginLoss, weight: np.ndarray, l2_bias: float):
        self._X, self._loss, self._r = X, loss, float(l2_bias)
        epsilon = float(np.finfo(X.dtype).eps)
        # the mean of κ C s ‖x‖², of which the number of active rows is about what bounds the curvature
        of_rows = np.broadcast_to(weight, X.shape[0])
        if not sp.issparse(X):
            squares = np.einsum("i,ij,ij->", of_rows, X, X, dtype=np.float64)
        elif len(weight) == 1:
            squares = weight[0] * np.einsum("i,i->", X.data, X.data, dtype=np.float64)
        else:
            of_entries = np.repeat(of_rows, np.diff(X.indptr))
            squares = np.einsum("i,i,i->", of_entries, X.data, X.data, dtype=np.float64)
        mean = loss.most_curvature * float(squares) / X.shape[0]
        # Xᵀ ℓ' is wrong by ε Σ |ℓ'| ‖x‖ ≤ ε (2 κ f Σ c ‖x‖²)^½ or so, the minimum by half the square of that
        self._wrong = 16 * epsilon**2 * mean if np.isfinite(mean) else 0.0
        # Where the loss of a row moves it little, the model errs little where rows leave the loss in a step.
        self._stiff = not mean <= _STIFF

    def doubts(self, status: int, value: float, gradient_norm: float, active: float) -> bool:
        """Whether the end of a lane is to be looked at.

        Args:
            status, value, gradient_norm: of the lane.
            active: rows with a slope or a curvature, times the larger weight of the label's rows.
        """
        if status != Status.CONVERGED:
            return status == Status.LINE_SEARCH_FAILED
        # The solver has settled that the Newton decrement is small. What may have misled it is rounding, and
        # rows that leave the loss in the step that it models.
        if self._wrong * active > _ROUNDING:
            return True
        # ‖∇f‖²/2 bounds f − min f, but for a bias that is free
        return self._stiff and (self._r == 0 or gradient_norm**2 / 2 > GAP * value)

    def certified(self, w: np.ndarray, bias: float, y: np.ndarray, c: np.ndarray) -> Certified:
        """The weights, or better ones, with their gap.

        Args:
            w, bias: of the lane.
            y: targets, [n].
            c: C s c of the rows, [n].
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), jax.enable_x64(True):
            return _Label(self._X, self._loss, self._r, y, c).certified(w, bias)


class _Label:
    """The problem of one label in float64; arguments as of :class:`Certifier`."""

    def __init__(self, X: Any, loss: MarginLoss, l2_bias: float, y: np.ndarray, c: np.ndarray):
        self._X, self._loss, self._r = X, loss, l2_bias
        self._y, self._c = y.astype(np.float64), c.astype(np.float64)

    def certified(self, w: np.ndarray, bias: float) -> Certified:
        """As of :class:`Certifier`."""
        given = now = self._at(*self._rounded(w, bias))
        least = self._bound(now.z)

        def certain(point: _Point) -> bool:
            return point.value - least <= GAP * point.value

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
        norm = float(np.hypot(np.linalg.norm(now.gradient), now.gradient_bias))
        # of exact zeros the gap is 0
        fall = max(now.value - least, 0.0)
        gap = fall / now.value if now.value > 0 else 0.0 if fall == 0 else np.inf
        w, bias = now.w.astype(self._X.dtype), float(self._X.dtype.type(now.bias))
        return Certified(w, bias, now.value, norm, gap if np.isfinite(gap) else np.inf)

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
        return [self._c * np.asarray(part) for part in _derivatives(self._loss, z, self._y)]

    def _at(self, w: np.ndarray, bias: float, z: np.ndarray | None = None) -> _Point:
        z = self._product(w) + bias if z is None else z
        value, slope, curvature = self._evaluated(z)
        r = max(self._r, 0.0)
        f = float(value.sum() + w @ w / 2 + r * bias * bias / 2)
        of_bias = float(slope.sum()) + r * bias if self._r >= 0 else 0.0
        return _Point(w, bias, z, f, slope, curvature, w + self._transposed(slope), of_bias)

    def _bound(self, z: np.ndarray) -> float:
        """D of the slopes at these scores."""
        if self._r == 0:
            z = z + float(_balanced(self._loss, z, self._y, self._c))
        value, slope, _ = self._evaluated(z)
        # far from the minimum the two cancel, and what rounding leaves may be larger than the minimum
        terms = value - slope * z - _TERM_ROUNDING * (np.abs(value) + np.abs(slope * z))
        if self._r == 0:
            rising, falling = float(slope[slope > 0].sum()), -float(slope[slope < 0].sum())
            heavier = slope > 0 if rising > falling else slope < 0
            rho = min(rising, falling) / max(rising, falling) if max(rising, falling) > 0 else 1.0
            slope, terms = np.where(heavier, rho * slope, slope), np.where(heavier, rho * terms, terms)
        v = self._transposed(slope)
        bound = float(terms.sum() - v @ v / 2)
        if self._r > 0:
            bound -= float(slope.sum()) ** 2 / (2 * self._r)
        return bound if np.isfinite(bound) else -np.inf

    def _direction(self, now: _Point) -> tuple[np.ndarray, float]:
        """−H⁻¹ ∇f by conjugate gradients with the diagonal."""
        D, r = now.curvature, max(self._r, 0.0)
        rows = np.flatnonzero(D)
        A, D = self._X[rows].astype(np.float64), D[rows]
        squared = A.multiply(A).tocsr() if sp.issparse(A) else A * A
        diagonal = np.append(1 + squared.T @ D, r + D.sum())
        has_bias = self._r >= 0 and diagonal[-1] > 0
        diagonal[-1] = diagonal[-1] if has_bias else 1.0

        def product(p):
            u = D * (A @ p[:-1] + p[-1])
            return np.append(p[:-1] + A.T @ u, (u.sum() + r * p[-1]) if has_bias else 0.0)

        right = -np.append(now.gradient, now.gradient_bias if has_bias else 0.0)
        small = _CG_TOLERANCE**2 * float(right @ (right / diagonal))
        x, _ = conjugate_gradients(product, right, diagonal, lambda r, rz, fall: not rz > small, _CG_STEPS)
        return x[:-1], float(x[-1])

    def _searched(self, now: _Point, step, step_bias: float, along) -> _Point | None:
        """The first of t = 1, ½, ¼, … where f falls; None where it does for none."""

        def at(t: float) -> _Point:
            return self._at(now.w + t * step, now.bias + t * step_bias, now.z + t * along)

        return halved(at, now.value, _HALVINGS)


@functools.partial(jax.jit, static_argnames="loss")
def _derivatives(loss: MarginLoss, z, y):
    return loss.score_value(z, y), loss.score_grad(z, y), loss.score_curv(z, y)


@functools.partial(jax.jit, static_argnames="loss")
def _balanced(loss: MarginLoss, z, y, c):
    """β with Σ c ∂φ(z + β)/∂z = 0, by bisection."""
    # slopes of the logistic loss vanish within 800
    reach = jnp.max(jnp.abs(z)) + 800

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        rises = jnp.sum(c * loss.score_grad(z + middle, y)) < 0  # the minimum lies above
        return jnp.where(rises, middle, low), jnp.where(rises, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (-reach, reach))
    return (low + high) / 2
