"""Steps of :mod:`xmcjax.solvers._admm` with dense features.

In the basis of the eigenvectors of XᵀX the system is a diagonal, so that ρ may change at no cost. Where there
are fewer rows than features, W lies in the span of the rows, and eigenvectors of XXᵀ give a smaller basis:

    XᵀX = E Λ Eᵀ:  X̃ = X E, W = E W̃;      XXᵀ = U Λ Uᵀ:  X̃ = U Λ^½, W = Xᵀ U Λ^−½ W̃.

The basis is worked out in float64. Native steps are in float32 until rounding keeps the gap from falling, and
in float64 afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax._cores import blas_threads
from xmcjax._sizes import repeated, rows_behind
from xmcjax.linops import native_ready
from xmcjax.native import awaited
from xmcjax.solvers import _admm
from xmcjax.solvers._admm_blocks import RELAXED, Basis, Blocks, extrapolation
from xmcjax.solvers._formulations import Formulation
from xmcjax.solvers._formulations import formulation as formulation_of
from xmcjax.solvers._host_loop import abandonable
from xmcjax.solvers._progress import Observe
from xmcjax.solvers._search import Ended

# _MOST: number of rows or features, whichever are fewer, up to which there is a basis. _BYTES: size that all
# arrays together may have.
_MOST, _BYTES = 2000, 2 << 30
#: Steps that count as a pass over the rows, because they cost about as much.
STEPS_PER_PASS = 10
# Rows of X per product where XᵀX is summed up.
_PART = 4096
# float32 is not tried with a tolerance below _NARROW, nor where fewer than _ENOUGH steps are allowed.
_NARROW, _ENOUGH = 1e-6, 500


def fits(n: int, d: int, m: int) -> bool:
    """Whether rows or features are few enough, and the arrays small enough."""
    r = min(n, d)
    return r <= _MOST and 8 * (n * (d + r + 6 * m) + (r + d) * r + 6 * r * m) <= _BYTES


class Method:
    """Steps with dense features, in the native library where there is one; the basis is kept between calls.

    Args:
        X: [n, d], dense or sparse, and made dense. Or its basis.
        y: the class of each row, [n]; or its labels, [n, m], where the formulation is one for labels.
        m: number of classes.
        formulation: one of :mod:`xmcjax.solvers._formulations`, or its name; with a smoothing, as for
            labels, the steps are those of :class:`Dense`.
        C: weight of the losses, a number, or one above 0 for each row, [n].
        k: of the top-k losses.
        threads: of a native call. NumPy's products use one, because another number would change their bits.
        observe: called with the progress every few steps; or None.
        made: gives the passes that other methods made before, or this one in other calls.
    """

    def __init__(
        self,
        X,
        y: np.ndarray,
        m: int,
        formulation: str | Formulation,
        C,
        k: int = 1,
        threads: int = 1,
        observe: Observe | None = None,
        made: Callable[[], float] = lambda: 0.0,
    ):
        self._told = _admm.told_in_passes(observe, made, STEPS_PER_PASS)
        self._problem = y.astype(np.int32, copy=False), m, formulation_of(formulation), C, k
        self._threads = threads
        given = isinstance(X, Basis)
        self._basis = X if given else abandonable(lambda: basis_of(X.toarray() if sp.issparse(X) else X))
        self._narrow = native_ready()

    def __call__(self, alpha: sp.csr_array, tol: float, most: int) -> _admm.Found:
        """Steps from some dual variables [n, m] until the gap is small enough.

        Args:
            alpha: dual variables; where all are 0, native steps start from equal ones.
            tol: of the relative duality gap.
            most: steps at most.
        """
        with blas_threads(1):
            return self._found(alpha, tol, most)

    def in_passes(self, alpha: sp.csr_array, tol: float, most: float) -> tuple[Ended, float]:
        """Makes at most `most` passes; the result, and the passes made. Shape [0, 0] of `alpha` is all 0."""
        start = alpha if alpha.size else sp.csr_array((len(self._problem[0]), self._problem[1]))
        found = self(start, tol, int(STEPS_PER_PASS * most))
        return Ended(found.alpha, found.gap, found.W), found.steps / STEPS_PER_PASS

    def _found(self, alpha: sp.csr_array, tol: float, most: int) -> _admm.Found:
        y, _, form, C, k = self._problem
        if form.smooth or y.ndim == 2 or not native_ready():
            split = Dense(self._basis, y, alpha, form, C, k)
            return _admm.steps(split, float(np.mean(C)), tol, most, self._told)
        made, W = 0, None
        if self._narrow and tol >= _NARROW and most >= _ENOUGH:
            found = self._native(np.float32, alpha, None, tol, most)
            if found.gap <= tol or found.steps >= most:
                return found
            self._narrow, made = False, found.steps
            if np.isfinite(found.gap):
                alpha, W = found.alpha, found.W
        found = self._native(np.float64, alpha, W, tol, most - made)
        return found._replace(steps=made + found.steps)

    def _native(self, dtype, alpha: sp.csr_array, W: np.ndarray | None, tol: float, most: int) -> _admm.Found:
        y, m, form, C, k = self._problem
        # overflow in float32 leaves a gap that is not finite, and steps in float64 follow
        with np.errstate(over="ignore", invalid="ignore"):
            split = Blocks(self._basis, y, m, form, C, k, dtype, self._threads)
            split.start(alpha, W)
            return _admm.steps(split, float(np.mean(C)), tol, most, self._told)


class Dense:
    """The steps in NumPy, in float64.

    Args:
        basis: of the features.
        y: the class of each row, [n].
        alpha: dual variables [n, m] to start from.
        form: the formulation.
        C: weight of the losses, a number, or one for each row, [n].
        k: of the top-k losses.
    """

    exact, free, rounding, least = True, True, 0.0, 0.0
    polish: Callable[[], float] | None = None

    def __init__(self, basis: Basis, y: np.ndarray, alpha: sp.csr_array, form: Formulation, C, k: int):
        self._form, self._y, self._k = form, y, k
        self._C = C[:, None] if np.ndim(C) else C  # as formulations take it
        self.shortens = not (form.smooth or np.any(form.ridge(C)))
        self._X, self._basis = basis.part(slice(None)), basis.rotation
        self._eigenvalue = basis.eigenvalue[:, None]
        self.extrapolation = extrapolation(self, len(y), alpha.shape[1])
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

    def look(self) -> _admm.Look:
        Z = self._made()
        of_rows = np.ravel(self._C) * self._form.losses_of(Z, self._y, self._k)
        primal = float(np.vdot(self._W, self._W) / 2 + of_rows.sum())
        gain = float(self._form.dual_gain(self._new, self._C))
        return _admm.Look(primal, gain, float(np.vdot(self._O, self._O)))

    def _made(self) -> np.ndarray:
        """Makes α⁺ and O, and returns the scores."""
        form, y, rho, C, k = self._form, self._y, self._rho, self._C, self._k
        Z = self._X @ self._W
        with jax.enable_x64(True):
            b = form.metric(self._A) + rho * form.gains(Z, y)
            # the projection of pairs in one compiled call: its operations one by one take six times as long
            row_map = functools.partial(_compiled, form) if form.sparse else form.row_map
            self._new = np.array(row_map(b, y, rho, C, k))
        self._O = self._weights(self._new)
        return Z

    def move(self, count: int) -> tuple[float, float]:
        for _ in range(count - 1):
            self._finish()
            self._made()
        change, delta = self._finish()
        return self._length2(change), self._scores2(delta)

    def _finish(self) -> tuple[np.ndarray, np.ndarray]:
        """Changes W, α and V, and returns α⁺ − α and Δ."""
        delta = (self._W + 2 * self._O - self._V) / (1 + self._rho * self._eigenvalue)
        change = self._new - self._A
        self._W = self._form.centred(self._W - RELAXED * delta)
        self._A = self._A + RELAXED * change
        self._V = self._V + RELAXED * (self._O - self._V)
        return change, delta

    def position(self) -> np.ndarray:
        W = np.sqrt(self._rho * self._eigenvalue) * self._W
        return np.concatenate([self._A.ravel() / np.sqrt(self._rho), W.ravel()])

    def state(self) -> list[np.ndarray]:
        return [self._A.copy(), self._W.copy(), self._V.copy()]

    def put(self, state: list[np.ndarray]) -> None:
        self._A, self._W, self._V = state

    def keep_weights(self) -> None:
        self._best_W = self._W

    def keep_alpha(self, factor: float) -> None:
        self._best_A = factor * self._new

    def best(self) -> tuple[np.ndarray, sp.csr_array]:
        return self._form.centred(self._basis @ self._best_W), sp.csr_array(self._best_A)


def _compiled(form: Formulation, b: np.ndarray, y: np.ndarray, rho: float, C, k: int) -> np.ndarray:
    """The row map by a program compiled for the number of rows; small numbers of rows are filled up."""
    behind = rows_behind(b.shape)
    b, y, C = (repeated(a, behind) for a in (b, y, C))
    return np.asarray(awaited(_row_map, form, b, y, rho, C, k))[: len(b) - behind]


@functools.partial(jax.jit, static_argnums=(0, 5))
def _row_map(form: Formulation, b, y, rho: float, C, k: int) -> jax.Array:
    return form.row_map(b, y, rho, C, k)


def basis_of_products(K: np.ndarray) -> Basis:
    """The basis of features of which only inner products K are known; weights are coefficients of rows."""
    rounding, K = np.finfo(K.dtype).eps, K.astype(np.float64)
    with blas_threads(1):
        root, U = _roots((K + K.T) / 2, rounding)
    return Basis(K, root**2, U / root, U * root)


def _roots(K: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """Λ^½ and U of K = U Λ Uᵀ, without eigenvalues that may be rounding."""
    eigenvalue, U = np.linalg.eigh(K)
    there = eigenvalue > len(K) * rounding * eigenvalue[-1]
    return np.sqrt(eigenvalue[there]), U[:, there]


def basis_of(X: np.ndarray) -> Basis:
    """The basis of features."""
    n, d = X.shape
    # numbers that overflow leave a gap that is not finite, and the caller says so
    with blas_threads(1), np.errstate(over="ignore", invalid="ignore"):
        if n < d:
            wide = X.astype(np.float64)
            root, U = _roots(wide @ wide.T, np.finfo(np.float64).eps)
            return Basis(X, root**2, wide.T @ (U / root), U * root)
        G = np.zeros((d, d))
        for first in range(0, n, _PART):
            part = X[first : first + _PART].astype(np.float64)
            G += part.T @ part
        eigenvalue, E = np.linalg.eigh(G)
        return Basis(X, np.maximum(eigenvalue, 0), E, None)
