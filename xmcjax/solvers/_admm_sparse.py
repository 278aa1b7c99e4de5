"""Steps of :mod:`xmcjax.solvers._admm` for Lee-Lin-Wahba with sparse features, in the native library.

The system I + ρ XᵀX has one of two forms, whichever makes a step cheaper. The form by features has a Cholesky
factor: features that occur together with few others are eliminated one by one, and a dense matrix remains.
Where this factor fills up, as with long documents, the form by rows may be smaller:

    (I + ρ XᵀX)⁻¹ = I − ρ Xᵀ (I + ρ XXᵀ)⁻¹ X.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.native import CentredAscent, Splitting
from xmcjax.solvers import _admm
from xmcjax.solvers._accuracy import EPS
from xmcjax.solvers._anderson import Extrapolation

# _BYTES: size that the factor may have. _RELAXED: κ of the steps.
_BYTES = 1 << 30
_RELAXED = 1.9
# Lower bound of the first ρ, in units of C: gains are about 1, and dual variables go up to C.
_LEAST = 0.01
# Multiplications in products of dense matrices that take as long as one multiplication in sparse ascent.
_FASTER = 8
# Sweeps of ascent at the end.
_SWEEPS = 4
# Rows of a dense system, per right-hand side, up to which its inverse is made: a product with it takes two
# thirds of the time of two triangular solves, and there are hundreds of such products.
_INVERTED = 16
# Rows and columns of a block of a dense factor. Ctrl-C is answered between blocks.
_PART = 512


class System(NamedTuple):
    """A form of the system, and what it costs."""

    by_rows: bool
    dense: int  #: rows of its dense part
    entries: int  #: of its sparse part

    def numbers(self) -> float:
        """How many numbers a factor of this form has."""
        return self.entries + self.dense**2 / 2

    def passes(self, X: sp.csr_array, m: int) -> float:
        """Passes of ascent with m classes that cost as much as one and a half dense factorisations."""
        return self.dense**3 / 2 / _FASTER / max(X.nnz * m, 1)

    def bytes(self, itemsize: int) -> int:
        # an entry has a value in double, one in the dtype of X, a place and a feature; a matrix of inner
        # products of rows has the dtype of X alone
        dense = itemsize if self.by_rows else 8 + itemsize
        return (16 + itemsize) * self.entries + dense * self.dense**2


def system(split: Splitting, X: sp.csr_array) -> System | None:
    """The cheaper form, which `split` uses from now on; None where neither form fits into the memory.

    Args:
        split: of the problem.
        X: its features.
    """
    itemsize = X.dtype.itemsize
    entries = split.eliminate(_BYTES // (16 + itemsize))
    forms = [System(False, split.size, entries), System(True, X.shape[0], 0)]
    forms = [form for form in forms if form.bytes(itemsize) <= _BYTES]
    if not forms:
        return None
    best = min(forms, key=System.numbers)
    if best.by_rows:
        split.by_rows()
    return best


def by_frequency(X: sp.csr_array) -> np.ndarray:
    """The columns of X, those with few entries first, which a factor eliminates one after another."""
    return np.argsort(np.bincount(X.indices, minlength=X.shape[1]), kind="stable")


class Sparse:
    """The steps.

    Args:
        split: of the problem, with dual variables and a system.
        X: its features.
        C: weight of the losses.
        system: the form of the system that the steps solve.
        ascent: makes the coordinate ascent for the last sweeps, of the same problem; None for no sweeps.
    """

    shortens = True
    free, rounding = False, 0.0
    extrapolation: Extrapolation | None = None

    def __init__(
        self,
        split: Splitting,
        X: sp.csr_array,
        C: float,
        system: System,
        ascent: Callable[[], CentredAscent] | None = None,
    ):
        self._split, self._X, self._C, self._by_rows = split, X, C, system.by_rows
        self.least = _LEAST * C
        self.exact = X.dtype == np.float64
        self._factor = 1.0
        self._ascent, self._polished = ascent, None
        self.polish = self._swept if ascent else None

    def begin(self) -> tuple[float, float]:
        return self._split.begin()

    def use(self, rho: float) -> None:
        self._rho = rho
        S = self._inner_products(rho) if self._by_rows else self._split.factor(rho)
        self._solved = _solver(S, self._X.dtype, self._split.right.shape[1])

    def _inner_products(self, rho: float) -> np.ndarray:
        """I + ρ XXᵀ, the lower half."""
        n, rows = self._X.shape[0], self._X
        H = np.empty((n, n), self._X.dtype)
        for a in range(0, n, _PART):
            part = slice(a, min(a + _PART, n))
            H[part, : part.stop] = (rows[part] @ rows[: part.stop].T).toarray()
        H *= rho
        H.flat[:: n + 1] += 1
        return H

    def look(self) -> _admm.Look:
        loss, gain, norm2, dual, self._changed = self._split.look(self._rho, _RELAXED, True)
        return _admm.Look(norm2 / 2 + self._C * loss, gain, dual)

    def move(self, count: int) -> tuple[float, float]:
        for _ in range(count - 1):
            self._finish()
            *_, self._changed = self._split.look(self._rho, _RELAXED, False)
        return self._finish()

    def _finish(self) -> tuple[float, float]:
        right = self._split.right
        solution = self._solved(right)
        step, curved = self._split.move(self._rho, _RELAXED, solution)
        if self._by_rows:
            return self._changed, _product(solution, solution)  # X Δ is the solution itself
        # ΔᵀK Δ = ‖L⁻¹R‖²
        return self._changed, max(0.0, curved + _product(right, solution) - step) / self._rho

    def keep_weights(self) -> None:
        self._split.keep_weights()

    def keep_alpha(self, factor: float) -> None:
        self._split.keep_alpha()
        self._factor, self._polished = factor, None

    def _swept(self) -> float:
        assert self._ascent is not None
        point = self._ascent()
        point.alpha = self._factor * self._split.alpha
        for _ in range(_SWEEPS):
            point.sweep(EPS, False)
        self._polished = point.alpha
        return point.assess(EPS).dual

    def best(self) -> tuple[np.ndarray, sp.csr_array]:
        W = self._split.weights.astype(np.float64)
        alpha = self._factor * self._split.alpha if self._polished is None else self._polished
        return W - W.mean(axis=1, keepdims=True), alpha


def _product(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.einsum("ij,ij->", a, b, dtype=np.float64))


def _solver(S: np.ndarray, dtype, columns: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function that solves the system S for right-hand sides of `columns` columns; S is overwritten."""
    if S.dtype == np.float64 and 0 < len(S) <= min(_INVERTED * columns, 4 * _PART):
        upper = np.triu_indices(len(S), 1)
        S[upper] = S.T[upper]
        inverse = np.linalg.inv(S).astype(dtype)
        if not np.isfinite(inverse).all():
            raise np.linalg.LinAlgError("no inverse in the range of numbers")
        return lambda right: inverse @ right
    L = _cholesky(S).astype(dtype, copy=False)
    return lambda right: _solved(L, right)


def _cholesky(A: np.ndarray) -> np.ndarray:
    """L with A = L Lᵀ of a positive definite A, whose lower half is read and overwritten block by block."""
    import scipy.linalg  # here, because the import takes a twentieth of a second

    size = len(A)
    for a in range(0, size, _PART):
        b = min(a + _PART, size)
        A[a:b, a:b] = np.linalg.cholesky(A[a:b, a:b])
        if b == size:
            break
        A[b:, a:b] = scipy.linalg.solve_triangular(A[a:b, a:b], A[b:, a:b].T, lower=True).T
        for c in range(b, size, _PART):
            d = min(c + _PART, size)
            A[c:, c:d] -= A[c:, a:b] @ A[c:d, a:b].T
    return A


def _solved(L: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A⁻¹ right of A = L Lᵀ."""
    if not len(L):
        return right
    import scipy.linalg.blas  # as above

    # BLAS stores matrices by columns, and reads both arrays as their transposes: it solves Xᵀ L Lᵀ = rightᵀ
    trsm = scipy.linalg.blas.get_blas_funcs("trsm", (L,))
    half = trsm(1.0, L.T, right.T, side=1, lower=0, trans_a=0)
    return trsm(1.0, L.T, half, side=1, lower=0, trans_a=1, overwrite_b=1).T
