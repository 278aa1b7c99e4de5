"""Steps of :mod:`xmcjax.solvers._admm` with dense features, in float64.

In the basis of the eigenvectors of XᵀX the system is a diagonal, so that ρ may change at no cost. Where there
are fewer rows than features, W lies in the span of the rows, and the basis of those of XXᵀ is smaller:

    XᵀX = E Λ Eᵀ:  X̃ = X E, W = E W̃;      XXᵀ = U Λ Uᵀ:  X̃ = U Λ^½, W = Xᵀ U Λ^−½ W̃.
"""

from __future__ import annotations

import functools

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax.native import awaited
from xmcjax.solvers import _admm
from xmcjax.solvers._certified import losses
from xmcjax.solvers._formulations import NAMES, Formulation
from xmcjax.solvers._host_loop import abandonable

# The smaller of rows and features up to which there is a basis, and bytes that all arrays together may take.
_MOST, _BYTES = 2000, 2 << 30
_RELAXED = 1.8


def fits(n: int, d: int, m: int) -> bool:
    """Whether rows or features are few enough, and the arrays small enough."""
    r = min(n, d)
    return r <= _MOST and 8 * (n * (d + r + 6 * m) + (r + d) * r + 6 * r * m) <= _BYTES


def solve(
    X, y: np.ndarray, alpha: sp.csr_array, formulation: str, C: float, tol: float, most: int, k: int = 1
) -> _admm.Found:
    """Steps from some dual variables until the gap is small enough.

    Args:
        X: [n, d], dense or sparse; worked with as dense float64.
        y: the class of each row, [n].
        alpha: dual variables [n, m].
        formulation: a name of :mod:`xmcjax.solvers._formulations`.
        C: weight of the losses.
        tol: of the relative duality gap.
        most: steps at most.
        k: of the top-k losses.
    """
    return _admm.steps(Dense(X, y, alpha, formulation, C, k), C, tol, most)


class Dense:
    """The steps; arguments as of :func:`solve`."""

    exact = True

    def __init__(self, X, y: np.ndarray, alpha: sp.csr_array, formulation: str, C: float, k: int):
        X = np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)
        self._form, self._y, self._C, self._k = NAMES[formulation], y, C, k
        self.shortens = not self._form.ridge(C)
        eigenvalue, self._X, self._basis = abandonable(lambda: _basis(X))
        self._eigenvalue = eigenvalue[:, None]
        self._A = alpha.toarray().astype(np.float64)
        self._V = self._weights(self._A)
        self._W = -self._V
        self._best_W, self._best_A = self._W, self._A

    def _weights(self, A: np.ndarray) -> np.ndarray:
        return -self._form.centred(self._X.T @ self._form.coefficients(A, self._y))

    def _length2(self, A: np.ndarray) -> float:
        return float(np.vdot(A, self._form.metric(A)))

    def _scores2(self, W: np.ndarray) -> float:
        return float(np.sum(self._eigenvalue * W**2))

    def begin(self) -> tuple[float, float]:
        return self._length2(self._A), self._scores2(self._W)

    def use(self, rho: float) -> None:
        self._rho = rho

    def look(self, checked: bool) -> _admm.Look | None:
        form, y, rho, C, k = self._form, self._y, self._rho, self._C, self._k
        Z = self._X @ self._W
        with jax.enable_x64(True):
            b = form.metric(self._A) + rho * form.gains(Z, y)
            # the projection of pairs in one compiled call: its operations one by one take six times as long
            row_map = functools.partial(awaited, _row_map, form) if form.sparse else form.row_map
            self._new = np.array(row_map(b, y, rho, C, k))
        self._O = self._weights(self._new)
        if not checked:
            return None
        primal = float(np.vdot(self._W, self._W) / 2 + C * losses(Z, y, form, k).sum())
        return _admm.Look(primal, float(form.dual_gain(self._new, C)), float(np.vdot(self._O, self._O)))

    def move(self) -> tuple[float, float]:
        delta = (self._W + 2 * self._O - self._V) / (1 + self._rho * self._eigenvalue)
        change = self._new - self._A
        self._W = self._form.centred(self._W - _RELAXED * delta)
        self._A = self._A + _RELAXED * change
        self._V = self._V + _RELAXED * (self._O - self._V)
        return self._length2(change), self._scores2(delta)

    def keep_weights(self) -> None:
        self._best_W = self._W

    def keep_alpha(self, factor: float) -> None:
        self._best_A = factor * self._new

    def best(self) -> tuple[np.ndarray, sp.csr_array]:
        return self._form.centred(self._basis @ self._best_W), sp.csr_array(self._best_A)


@functools.partial(jax.jit, static_argnums=(0, 5))
def _row_map(form: Formulation, b, y, rho: float, C: float, k: int) -> jax.Array:
    return form.row_map(b, y, rho, C, k)


def _basis(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Λ [r], X̃ [n, r], and the matrix [d, r] that makes W of W̃."""
    n, d = X.shape
    # numbers that overflow leave a gap that is not finite, and the caller says so
    with np.errstate(over="ignore", invalid="ignore"):
        G = X.T @ X if n >= d else X @ X.T
    if n >= d:
        eigenvalue, E = np.linalg.eigh(G)
        return np.maximum(eigenvalue, 0), X @ E, E
    eigenvalue, U = np.linalg.eigh(G)
    there = eigenvalue > n * np.finfo(np.float64).eps * eigenvalue[-1]
    root, U = np.sqrt(eigenvalue[there]), U[:, there]
    return root**2, U * root, X.T @ (U / root)
