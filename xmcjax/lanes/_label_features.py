"""The features of labels in float64, for certificates: products, and Newton directions.

A direction solves H δ = −∇f with H = Λ + [X, 1]ᵀ D [X, 1] and Λ = diag(1, …, 1, r). Where features, or rows
with a curvature, are few, a Cholesky factor gives δ exactly: that of H, of the size of the features, or that
of D⁻¹ + [X, 1] Λ⁻¹ [X, 1]ᵀ, of the size of these rows. Elsewhere conjugate gradients find δ.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from xmcjax.solvers.host_newton import conjugate_gradients

# Rows with a curvature, and features, up to which a direction is worked out exactly.
_EXACT_ROWS, _EXACT_FEATURES = 400, 320
# Most steps of conjugate gradients, and the residual, relative to the first one, at which they end.
_CG_STEPS, _CG_TOLERANCE = 500, 1e-6
# _BYTES: most bytes of features, or of some of their rows, that are held as an array of float64. _FILLED: the
# least part of all entries that sparse features store where holding them so is worth it.
_BYTES, _FILLED = 64 << 20, 0.25
# About the most products of entries in XᵀX or XXᵀ of sparse features for a direction.
_PRODUCTS = 2e7


class LabelFeatures:
    """X in float64, for labels of several threads.

    Args:
        X: CSR or dense [n, d].
    """

    def __init__(self, X: Any):
        (n, d), sparse = X.shape, sp.issparse(X)
        self._X, self.shape, self.dtype = X, (n, d), X.dtype
        filled = not sparse or X.nnz >= _FILLED * n * d
        self._held = filled and 8 * n * d <= _BYTES
        cheap = self._held or (sparse and X.nnz**2 <= _PRODUCTS * max(n, d))
        #: whether directions are worked out exactly, whatever rows have a curvature
        self.factors = cheap and (d <= _EXACT_FEATURES or n <= _EXACT_ROWS)
        #: whether they are, and X is held as an array: :attr:`operations` counts such a step
        self.exact = self.factors and self._held

    @classmethod
    def of(cls, X: Any) -> LabelFeatures:
        """The features of a matrix; a ``LabelFeatures`` itself is returned as it is."""
        return X if isinstance(X, cls) else cls(X)

    @property
    def operations(self) -> float:
        """About the work of an exact step, in units of the time of an operation of the native Newton step."""
        n, d = self.shape
        factor = n * (d + 1) ** 2 if d < n else n**3 / 3
        return 0.6 * factor + 20 * n * d + 2e3 * n + 2e6

    @functools.cached_property
    def _dense(self) -> np.ndarray:
        X = self._X.toarray() if sp.issparse(self._X) else self._X
        return np.ascontiguousarray(X, np.float64)

    @functools.cached_property
    def _wide(self) -> Any:
        return self._X.astype(np.float64)

    @functools.cached_property
    def _inner_products(self) -> np.ndarray:
        """X Xᵀ, where rows are few."""
        return self._dense @ self._dense.T

    def product(self, w: np.ndarray) -> np.ndarray:
        """X w."""
        if self._held:
            return self._dense @ w
        if sp.issparse(self._X):
            return self._X @ w
        return np.concatenate([part @ w for _, part in self._parts(np.arange(self.shape[0]))])

    def transposed(self, slope: np.ndarray) -> np.ndarray:
        """Xᵀ slope."""
        rows = np.flatnonzero(slope)
        if self._held and 4 * len(rows) > len(slope):
            return self._dense.T @ slope
        total = np.zeros(self.shape[1])
        for chosen, part in self._parts(rows):
            total += part.T @ slope[chosen]
        return total

    def taken(self, rows: np.ndarray) -> LabelFeatures:
        """The features of some rows, in ascending order."""
        return self if len(rows) == self.shape[0] else LabelFeatures(self._some(rows))

    def direction(
        self, D: np.ndarray, r: float, gradient: np.ndarray, gradient_bias: float
    ) -> tuple[np.ndarray, float]:
        """−H⁻¹ ∇f.

        Args:
            D: curvatures of the losses, [n].
            r: of the bias; negative for none.
            gradient, gradient_bias: ∇f.
        """
        rows = np.flatnonzero(D)
        if self.factors or self._few(rows):
            with contextlib.suppress(np.linalg.LinAlgError):  # where rounding makes it fail, CG is used
                return self.factored(D, r)(-gradient, -gradient_bias)
        return self._by_gradients(rows, D[rows], r, -gradient, -gradient_bias)

    def factored(self, D: np.ndarray, r: float) -> Callable[[np.ndarray, float], tuple[np.ndarray, float]]:
        """(g, g_b) ↦ H⁻¹ (g, g_b), by a Cholesky factor; the bias part is 0 where it has no curvature.

        Raises:
            numpy.linalg.LinAlgError: H is not positive definite in float64.
        """
        rows = np.flatnonzero(D)
        D = D[rows]
        h = _of_bias(D, r)
        return self._by_rows(rows, D, r, h) if self._few(rows) else self._by_features(rows, D, h)

    def _few(self, rows: np.ndarray) -> bool:
        """Whether a factor of the size of these rows is small, and no larger than one of the features."""
        return len(rows) <= min(_EXACT_ROWS, self.shape[1])

    def _by_features(self, rows, D, h):
        """By the factor of H, [d + 1]²."""
        A, d = self._some(rows), self.shape[1]
        H = np.zeros((d + 1, d + 1))
        if sp.issparse(A):
            H[:d, :d] = (A.T @ (sp.diags_array(D) @ A)).toarray()
        else:
            B = np.sqrt(D)[:, None] * A
            H[:d, :d] = B.T @ B
        H[d, :d] = H[:d, d] = A.T @ D if h > 0 else 0.0
        H.flat[:: d + 2] += 1
        H[d, d] = h if h > 0 else 1.0
        inverse = _inverse(H)

        def solve(g, g_b):
            x = inverse(np.append(g, g_b if h > 0 else 0.0))
            return x[:-1], float(x[-1])

        return solve

    def _by_rows(self, rows, D, r, h):
        """By the factor of D⁻¹ + [X, 1] Λ⁻¹ [X, 1]ᵀ.

        For a free bias Λ has no inverse. Then X is centred about its mean with the weights D, so that H has
        no term between the bias and the weights.
        """
        A = self._some(rows)
        if self._held and self.shape[0] <= _EXACT_ROWS:
            K = self._inner_products[np.ix_(rows, rows)]
        else:
            gram = A @ A.T
            K = gram.toarray() if sp.issparse(gram) else gram
        K.flat[:: len(K) + 1] += 1 / D
        if not (r == 0 and h > 0):
            of_bias = 1 / r if h > 0 else 0.0
            inverse = _inverse(K + of_bias)

            def solve(g, g_b):
                s = inverse(A @ g + g_b * of_bias)
                return g - A.T @ s, (g_b - float(s.sum())) * of_bias

            return solve
        p = D / h
        u, means = A.T @ D, (K @ p) - p / D
        centred = _inverse(K - means[:, None] - means + p @ means)

        def solve_free(g, g_b):
            g = g - u * (g_b / h)
            along = A @ g
            s = centred(along - p @ along)
            x = g - A.T @ s + u * (s.sum() / h)
            return x, (g_b - float(u @ x)) / h

        return solve_free

    def _by_gradients(self, rows, D, r, right, of_bias):
        A, h = self._some(rows), _of_bias(D, r)
        of_bias = of_bias if h > 0 else 0.0
        squared = A.multiply(A).tocsr() if sp.issparse(A) else A * A
        diagonal = np.append(1 + squared.T @ D, h if h > 0 else 1.0)
        both = np.append(right, of_bias)

        def product(p):
            u = D * (A @ p[:-1] + p[-1])
            return np.append(p[:-1] + A.T @ u, (u.sum() + max(r, 0.0) * p[-1]) if h > 0 else 0.0)

        small = _CG_TOLERANCE**2 * float(both @ (both / diagonal))
        x, _ = conjugate_gradients(product, both, diagonal, lambda r, rz, fall: not rz > small, _CG_STEPS)
        return x[:-1], float(x[-1])

    def _some(self, rows: np.ndarray) -> Any:
        """These rows of X in float64."""
        if not self._held:
            every = sp.issparse(self._X) and len(rows) == self.shape[0] and 8 * self._X.nnz <= _BYTES
            return self._wide if every else self._X[rows].astype(np.float64)
        return self._dense if len(rows) == self.shape[0] else self._dense[rows]

    def _parts(self, rows: np.ndarray):
        """Some rows of X with their numbers, of dense X as many at a time as _BYTES hold."""
        size = len(rows) if sp.issparse(self._X) else _BYTES // (8 * max(1, self.shape[1]))
        for first in range(0, max(len(rows), 1), max(size, 1)):
            chosen = rows[first : first + max(size, 1)]
            yield chosen, self._some(chosen)


def _of_bias(D: np.ndarray, r: float) -> float:
    """h, of the bias in H; 0 where there is none, or it has no curvature."""
    return float(r + D.sum()) if r >= 0 else 0.0


def _inverse(A: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """b ↦ A⁻¹ b, A positive definite, which is overwritten."""
    factor = scipy.linalg.cho_factor(A, overwrite_a=True, check_finite=False)
    return lambda b: scipy.linalg.cho_solve(factor, b, check_finite=False)
