"""Problems of few rows and many features as problems of as many features as there are rows.

At the minimum of ½‖w‖² and losses of the scores w is Xᵀa. With X Xᵀ = L Lᵀ the features L, [n, n], have the
same inner products, hence the same problems, of which v belongs to w = Xᵀ L⁻ᵀ v.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Most rows, and fewest features per row, with which these problems pay.
_MOST_ROWS, _FEATURES_OF_A_ROW = 512, 4
# Units of rounding of each row's inner product with itself that are added to it, so that L exists.
_OF_ROUNDING = 100.0
#: Mean of the curvature of the losses of a row up to which solvers need few passes over the features, where
#: the curvature of the penalty is 1.
EASY = 20.0


def is_wide(shape: Any) -> bool:
    """Whether [n, d] are few rows and many features."""
    n, d = shape
    return 1 < n <= _MOST_ROWS and d >= _FEATURES_OF_A_ROW * n


class RowSpan:
    """The span of the rows of X.

    Args:
        X: dense, real [n, d]; inner products are in its dtype.

    Attributes:
        features: L, float64 [n, n].
    """

    def __init__(self, X: np.ndarray):
        self._X = X
        inner = (X @ X.T).astype(np.float64)
        own = inner.diagonal().copy()
        own[own == 0] = own.mean() or 1.0
        more = _OF_ROUNDING * float(np.finfo(X.dtype).eps)
        while True:
            try:
                self.features = np.linalg.cholesky(inner + more * np.diag(own))
                return
            except np.linalg.LinAlgError:
                if more > 1:
                    raise
                more *= 10

    def weights(self, v: np.ndarray) -> np.ndarray:
        """w, [d] or [d, K], of v, [n] or [n, K], in the dtype of X."""
        a = np.linalg.solve(self.features.T, v).astype(self._X.dtype, copy=False)
        return (a.T @ self._X).T
