"""The end of a label with the squared hinge by coordinate ascent of its dual, in float64.

Where C ‖x‖² is large compared with the curvature 1 of the penalty, as with features that are not scaled, the
Hessian is so ill-conditioned that CG and line searches are lost in rounding. The dual lacks the directions in
which only the penalty has curvature (Hsieh et al. 2008, "A dual coordinate descent method for large-scale
linear SVM", eq. 4):

    min f = max_{α ≥ 0} D(α) = Σ α_i − ½ ‖Σ α_i y_i x_i‖² − (Σ α_i y_i)²/2r − Σ α_i²/4c_i.

The bias is the weight of a further feature, which is 1/√r in all rows. Where r is 0, the constraint
Σ α_i y_i = 0 takes the place of the term with r, and the ascent enforces it by multipliers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, native
from xmcjax._range import squared_norms
from xmcjax.losses import MarginLoss, SquaredHinge

# Relative gaps, one after another, at which the weights of the ascent are yielded.
_TOLERANCES = (1e-3, 1e-5, 1e-8)
# About how many entries of X the ascent visits per label, and its fewest and most passes over X.
_WORK, _PASSES = 2e7, (20, 1000)
# Square of the feature of a free bias, relative to the median of ‖x‖².
_FREE = 0.15


class End(NamedTuple):
    """Weights and a lower bound of the minimum."""

    w: np.ndarray  #: float64 [d]
    bias: float
    bound: float  #: D


#: A function of a label, (y, c, w, b) ↦ better and better ends; it may start from w and b.
Ending = Callable[[np.ndarray, np.ndarray, np.ndarray, float], Iterator[End]]


def bias_feature(X: Any, r: float) -> float:
    """The value of the feature of the bias in all rows of CSR or dense X; 0 for no bias.

    Where r is 0, it is proportional to the length of the rows: a larger value makes the ascent slower, a
    smaller one the multipliers.
    """
    if r != 0:
        return 1 / float(np.sqrt(r)) if r > 0 else 0.0
    squares = squared_norms(X, np.float64)
    some = squares[(squares > 0) & (squares < np.inf)]
    return float(np.sqrt(_FREE * np.median(some))) if some.size else 1.0


def with_bias(X: Any, feature: float, dtype) -> sp.csr_array:
    """CSR or dense X in this dtype as checked CSR, with the feature of the bias last where there is one."""
    dense = not sp.issparse(X)
    if feature > 0:
        of_bias = np.full((X.shape[0], 1), feature, dtype)
        X = np.hstack([X, of_bias]) if dense else sp.hstack([X, of_bias], format="csr")
    X = _sparse.of_dense(X, dtype) if dense else sp.csr_array(X).astype(dtype, copy=False)
    return _sparse.canonical_csr(X)


def balanced_variables(alpha: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """α with the variables of the sign with the larger sum scaled down until Σ α y = 0."""
    of_signs = alpha[positive].sum(), alpha[~positive].sum()
    factor = min(of_signs) / max(of_signs) if max(of_signs) > 0 else 1.0
    return np.where(positive if of_signs[0] > of_signs[1] else ~positive, factor * alpha, alpha)


class DualEnd:
    """What the dual of a label gives, over the same features for all labels.

    Args:
        X: CSR or dense [n, d].
        l2_bias: r; negative for no bias.
    """

    def __init__(self, X: Any, l2_bias: float):
        self._given, self._r = X, l2_bias
        self._bias = bias_feature(X, l2_bias)
        self._X: sp.csr_array = sp.csr_array((0, 0))
        self._rows: np.ndarray | None = None
        self._making = threading.Lock()

    @staticmethod
    def serves(loss: MarginLoss) -> bool:
        """Whether labels with this loss, and with ½ ‖w‖² as the penalty, have such an end here."""
        return type(loss) is SquaredHinge and native.available()

    def __call__(self, y: np.ndarray, c: np.ndarray, w: np.ndarray, bias: float) -> Iterator[End]:
        """Better and better ends of a label, which do not depend on other labels.

        Args:
            y: targets, [n].
            c: weights of the losses, [n]; rows of weight 0 are left out.
            w, bias: not used, since α starts at 0.
        """
        kept = c > 0
        X, y, c = self._features(kept), y[kept], c[kept]
        positive = np.flatnonzero(y > 0).astype(np.int32)
        ends = np.array([0, len(positive)])
        labels = sp.csc_array((np.ones(len(positive), np.int8), positive, ends), shape=(len(y), 1))
        empty = np.diff(X.indptr) == 0
        free = self._r == 0
        ascent = native.SeparateAscent(X, labels, "ovr_squared", c, free=free)
        most = float(np.clip(_WORK / max(X.nnz, 1), *_PASSES))
        for tolerance in _TOLERANCES:
            now = ascent.advance(tolerance, most)
            alpha = np.where(empty, 2 * c, np.maximum(ascent.alpha.toarray()[:, 0], 0))
            w = v = X.T @ (alpha * y)
            bias = 0.0
            if self._bias > 0:
                w, bias = v[:-1], self._bias * float(ascent.weights[-1, 0] if free else v[-1])
            if free:
                alpha = balanced_variables(alpha, y > 0)
                v = X[:, :-1].T @ (alpha * y)
            bound = float(alpha.sum() - v @ v / 2 - (alpha * alpha / (4 * c)).sum())
            yield End(w, bias, bound)
            if not now.found.gap <= tolerance:
                return

    def _features(self, kept: np.ndarray) -> sp.csr_array:
        """These rows of X in float64 with the feature of the bias, kept since most labels have the same."""
        with self._making:
            if self._rows is None or not np.array_equal(self._rows, kept):
                self._X, self._rows = with_bias(self._given[kept], self._bias, np.float64), kept
            return self._X
