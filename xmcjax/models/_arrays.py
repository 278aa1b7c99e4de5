"""A linear model whose weights are in memory."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._finite import place_not_finite
from xmcjax.models._base import check_labels, is_trained


class ArrayModel:
    """Linear weights in memory, for `predict_topk`.

    Args:
        coef: [L, d], one label per row, sparse or dense.
        intercept: [L], or None for zeros. A bias of −inf marks a label that is never predicted.
        status: int [L], as in `xmcjax.solvers.Status`, or None for all trained.
        copy: whether sparse weights are copied, so that changes of `coef` do not reach the model. Without,
            they must not change as long as the model exists.

    Raises:
        ValueError: shapes that do not fit, malformed weights, or numbers that are not finite.
        TypeError: weights that are no real numbers.

    Example:
        >>> from xmcjax.models import predict_topk
        >>> model = ArrayModel(np.float32([[1, 0], [0, 1]]), np.float32([0, 0.5]))
        >>> predict_topk(model, np.float32([[0, 2]]), 1)[0].tolist()
        [[1]]
    """

    def __init__(self, coef, intercept=None, status=None, *, copy: bool = True):
        self._coef = coef = _sparse.matrix(coef, "coef")
        if sp.issparse(coef) and (copy or not coef.has_sorted_indices):
            # the copy is checked once, so the weights handed out of it must not be changed
            self._coef = _sparse.csr(sp.csr_array(coef, copy=True))
            self._coef.sort_indices()
            for array in (self._coef.data, self._coef.indices, self._coef.indptr):
                array.flags.writeable = False
        if self._coef.ndim != 2:
            raise ValueError(f"coef: expected [L, d], found {self._coef.ndim} dimension(s)")
        self.n_labels, self.n_features = self._coef.shape
        self.dtype = np.dtype(np.float64 if self._coef.dtype == np.float64 else np.float32)
        self.label_range: tuple[int, int] = (0, self.n_labels)
        if intercept is None:
            intercept = np.zeros(self.n_labels, self.dtype)
        with np.errstate(over="ignore"):  # a bias beyond the range is refused as infinite
            self._intercept = _sparse.dense(intercept, "intercept").astype(self.dtype)
        status = np.ones(self.n_labels, np.int8) if status is None else _sparse.dense(status, "status")
        for name, array in (("intercept", self._intercept), ("status", status)):
            if array.shape != (self.n_labels,):
                raise ValueError(f"{name}: expected shape ({self.n_labels},), found {array.shape}")
        self._check_numbers()
        self._trained = is_trained(status) & (self._intercept != -np.inf)

    def _check_numbers(self) -> None:
        place = place_not_finite(self._coef)
        if place is not None:
            label, feature, value = place
            raise ValueError(
                f"coef: expected finite weights, found {value} for label {label}, feature {feature}"
            )
        wrong = np.flatnonzero(~(self._intercept < np.inf))
        if wrong.size:
            value = self._intercept[wrong[0]]
            raise ValueError(
                f"intercept: expected finite biases, or -inf, found {value} for label {wrong[0]}"
            )

    def dense_block(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights [d, last − first], one label per column, and biases [last − first]."""
        first, last = check_labels(first, last, self.n_labels)
        block = self._coef[first:last]
        W = block if isinstance(block, np.ndarray) else block.toarray()
        b = np.where(self._trained[first:last], self._intercept[first:last], 0)
        return np.ascontiguousarray(W.T, self.dtype), b.astype(self.dtype)

    def weights(self, first: int, last: int):
        """The weights of labels first … last − 1, CSR or an array [last − first, d]; not to be changed."""
        first, last = check_labels(first, last, self.n_labels)
        return self._coef if (first, last) == (0, self.n_labels) else self._coef[first:last]

    def intercept_of(self, first: int, last: int) -> np.ndarray:
        """The biases of labels first … last − 1."""
        first, last = check_labels(first, last, self.n_labels)
        return self._intercept[first:last].copy()

    def coef(self):
        """All weights, CSR or an array [L, d]; not to be changed."""
        return self._coef

    def intercept(self) -> np.ndarray:
        """All biases, [L]; −inf for labels that are never predicted."""
        return self._intercept.copy()

    def trained(self, first: int, last: int) -> np.ndarray:
        """bool [last − first]: labels that have a score."""
        first, last = check_labels(first, last, self.n_labels)
        return self._trained[first:last]
