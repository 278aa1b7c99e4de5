"""The weights that dual variables give, and the duality gap that they are certain to have.

Whatever made α: it is brought into the dual set, W = Xᵀ coefficients(α) is worked out anew, and both
objectives are in float64. With V the weights in float64 and W those in the dtype of X, which the caller gets,

    P(W) = ½ ‖W‖² + Σ_i loss_i(X W) ≥ min P = max D ≥ D(α) = Σ α − ½ ρ Σ α² − ½ ‖V‖²,

so that P(W) − D(α) bounds how far P(W) is from its minimum, whatever rounding did before. Where many gains
are 0 at the optimum, as where the classes can be separated, rounding to float32 makes half of them losses of
weight C; weights longer by a few times the rounding have none of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.solvers._base import Status

# Bytes of the scores of some rows, and of the weights of some classes, in float64.
_BYTES = 64 << 20
# Share of the dual variables that are not zero, above which they are multiplied as a dense matrix.
_DENSE = 0.1
# Factors by which weights of float32 are lengthened, in units of their rounding.
_LONGER = (2, 8, 32, 128, 512, 2048)


class Certified(NamedTuple):
    """Weights, dual variables inside the dual set, and what their objectives are."""

    W: np.ndarray  #: [d, m], in the dtype of X
    alpha: sp.csr_array  #: float64 [n, m]
    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """|primal − dual| / |primal|: what is below 0 is rounding too; infinite where they are not finite."""
        gap = abs(self.primal - self.dual) / abs(self.primal) if self.primal else 0.0
        return gap if np.isfinite(gap) else np.inf


def certified(
    X, y: np.ndarray, alpha: sp.csr_array, formulation: str, C: float, tol: float, W: np.ndarray | None = None
) -> Certified:
    """The weights of some dual variables with their duality gap.

    Args:
        X: [n, d], CSR or dense.
        y: the class of each row, [n].
        alpha: dual variables [n, m], in the dual set but for rounding.
        formulation, C: of :func:`multiclass_problem`.
        W: weights that may be better than those of the dual variables, float64 [d, m].
        tol: where the gap is larger, weights of float32 may be lengthened by up to 2,000 times their
            rounding.
    """
    alpha = _inside(alpha.astype(np.float64), formulation, C)
    V = _weights(X, y, alpha, formulation)
    a = alpha.data
    ridge = 0.5 / C if formulation == "ovr_squared" else 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        dual = float(a.sum() - ridge / 2 * (a @ a) - np.vdot(V, V) / 2)

        def at(W: np.ndarray, factor: float) -> Certified:
            W = (factor * W if factor != 1 else W).astype(X.dtype, copy=False)
            return Certified(W, alpha, primal_objective(X, y, W, formulation, C), dual)

        best, exact = at(V, 1.0), V
        if W is not None and (other := at(W, 1.0)).gap < best.gap:
            best, exact = other, W
        if best.gap > tol and np.isfinite(best.gap) and X.dtype == np.float32:
            longer = [at(exact, 1 + k * float(np.finfo(np.float32).eps)) for k in _LONGER]
            best = min([best, *longer], key=lambda one: one.gap)
    return best


def described(found: Certified, violation: float, status: Status, formulation: str) -> dict:
    """The fields of ``Solution`` that follow from certified dual variables."""
    n, m = found.alpha.shape
    return dict(
        W=found.W,
        alpha=found.alpha,
        primal=found.primal,
        dual=found.dual,
        gap=found.gap,
        violation=violation,
        status=status if np.isfinite(found.primal) else Status.NONFINITE,
        density_w=np.count_nonzero(found.W) / found.W.size,
        density_alpha=np.count_nonzero(found.alpha.data) / (n * (m - (not formulation.startswith("ovr")))),
    )


def primal_objective(X, y: np.ndarray, W: np.ndarray, formulation: str, C: float) -> float:
    """P(W), in float64."""
    m = W.shape[1]
    rows = max(1, _BYTES // (8 * m))
    total = 0.0
    for first in range(0, X.shape[0], rows):
        part = slice(first, first + rows)
        total += losses(_scores(X[part], W), y[part], formulation)
    flat = W.ravel().astype(np.float64, copy=False)
    return float(flat @ flat / 2 + C * total)


def _scores(X, W) -> np.ndarray:
    """X W in float64, so many classes at a time."""
    X = X.astype(np.float64)
    width = max(1, _BYTES // (8 * W.shape[0]))
    if width >= W.shape[1]:
        return X @ W.astype(np.float64, copy=False)
    Z = np.empty((X.shape[0], W.shape[1]))
    for c in range(0, W.shape[1], width):
        Z[:, c : c + width] = X @ W[:, c : c + width].astype(np.float64)
    return Z


def losses(Z: np.ndarray, y: np.ndarray, formulation: str) -> float:
    """Σ_i loss_i / C of the scores of some rows, which are written over."""
    own = np.arange(len(y)), y
    # the gains of _formulations.py
    if formulation in ("ww", "cs"):
        Z -= Z[own][:, None]
        Z += 1
        Z[own] = 0
    elif formulation == "llw":
        Z -= Z.mean(axis=1, keepdims=True)  # those of Σ_c w_c = 0, which rounding has moved
        Z += 1
        Z[own] = 0
    else:
        Z[own] *= -1
        Z += 1
    if formulation == "cs":
        return float(Z.max(axis=1).sum())
    np.maximum(Z, 0, out=Z)
    return float(np.vdot(Z, Z) if formulation == "ovr_squared" else Z.sum())


def _inside(alpha: sp.csr_array, formulation: str, C: float) -> sp.csr_array:
    """The dual variables without what rounding has put outside of the dual set."""
    alpha = alpha.copy()
    np.clip(alpha.data, 0, None if formulation == "ovr_squared" else C, out=alpha.data)
    if formulation == "cs":
        sums = np.asarray(alpha.sum(axis=1))
        shorter = np.where(sums > C, C / np.where(sums > 0, sums, 1), 1)
        alpha.data *= np.repeat(shorter, np.diff(alpha.indptr))
    return alpha


def _weights(X, y: np.ndarray, alpha: sp.csr_array, formulation: str) -> np.ndarray:
    """Xᵀ coefficients(α) in float64, [d, m]."""
    (n, m), d = alpha.shape, X.shape[1]
    if sp.issparse(X) and formulation in ("ww", "cs") and alpha.nnz < _DENSE * n * m:
        own = sp.csr_array((alpha.sum(axis=1), (np.arange(n), y)), shape=(n, m))
        return (X.T.astype(np.float64) @ (own - alpha)).toarray()
    V = np.zeros((d, m))
    rows = max(1, _BYTES // (8 * max(m, 1 if sp.issparse(X) else d)))
    for first in range(0, n, rows):
        part = slice(first, first + rows)
        a = _coefficients(alpha[part].toarray(), y[part], formulation)
        V += X[part].astype(np.float64).T @ a
    if formulation == "llw":
        V -= V.mean(axis=1, keepdims=True)  # rounding has moved Σ_c w_c from 0
    return V


def _coefficients(a: np.ndarray, y: np.ndarray, formulation: str) -> np.ndarray:
    """The coefficients of _formulations.py, of the dual variables of some rows, which are written over."""
    own = np.arange(len(y)), y
    true = a[own]
    sums = a.sum(axis=1)
    np.negative(a, out=a)
    if formulation in ("ww", "cs"):
        a[own] = sums
    elif formulation == "llw":
        a += (sums / a.shape[1])[:, None]
    else:
        a[own] = true
    return a
