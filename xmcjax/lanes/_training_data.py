"""The data of a training run: checked rows in the order of training, used columns only, and X as LinOp."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, linops
from xmcjax._arguments import whole_number
from xmcjax._labels import label_matrix
from xmcjax._own_parts import check_loss, check_penalty
from xmcjax._range import check_norms, check_range
from xmcjax._sample_weight import weight_numbers
from xmcjax._used_columns import UsedColumns, used_columns
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._queue import by_positives


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Rows that count, in the order of training.

    Attributes:
        X: features, CSR or an array, [n, d], of which most columns have an entry.
        Y: labels, CSC [n, L] of ones.
        op: X as an operator on the default device.
        weight: s of the rows, [n]; None for ones.
        row_weight: C s, [n], or [1] without s.
        label_weights: weights of the rows by label, besides s; None for ones.
        columns: which of the given features X has.
    """

    X: Any
    Y: sp.csc_array
    op: linops.LinOp
    weight: np.ndarray | None
    row_weight: np.ndarray
    label_weights: LabelWeights | None
    columns: UsedColumns

    @property
    def dtype(self) -> np.dtype:
        """The type of the numbers that training works with."""
        return np.dtype(self.op.dtype)

    @property
    def native(self) -> bool:
        """Whether the native kernels multiply X."""
        return isinstance(self.op, linops.Csr) and self.op.native

    def weights_of(self, ids) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the rows with and without each of these labels, [len(ids)] each."""
        if self.label_weights is None:
            return np.ones(len(ids)), np.ones(len(ids))
        return self.label_weights.positive[ids], self.label_weights.negative[ids]


def checked_arguments(
    X, Y, sample_weight, label_weights: LabelWeights | None, options: OneVsAll
) -> tuple[Any, Any, np.ndarray | None]:
    """Checks the arguments of :func:`xmcjax.lanes.train_one_vs_all`, within :func:`xmcjax.lanes.precision`.

    Returns:
        (X [n, d], Y [n, L], each CSR or an array, s as float64 [n] or None).

    Raises:
        TypeError, ValueError: as there.

    Example:
        >>> from xmcjax.lanes import OneVsAll
        >>> X, Y, weight = checked_arguments(np.eye(2), np.eye(2), [1, 2], None, OneVsAll())
        >>> weight.tolist()
        [1.0, 2.0]
    """
    X = _sparse.matrix(X)
    dtype = np.dtype(np.float64 if X.dtype == np.float64 else np.float32)
    if options.loss.smooth:
        # a certificate assumes that no loss is below 0
        check_loss(options.loss, dtype, least=0.0)
        check_penalty(options.penalty, dtype)
    Y = label_matrix(Y)
    linops.check_features(X)
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"expected as many rows in Y as in X, {X.shape[0]}, got {Y.shape[0]}")
    if X.shape[0] == 0:
        raise ValueError("expected at least one row, got none")
    check_norms(X, np.float64)  # in which sums are worked out
    weight = None if sample_weight is None else check_sample_weight(sample_weight, X.shape[0])
    if label_weights is not None and len(label_weights.positive) != Y.shape[1]:
        raise ValueError(f"expected weights of {Y.shape[1]} labels, got {len(label_weights.positive)}")
    options.init.check(X.shape[1], Y.shape[1], options.fit_intercept)
    row_weight = options.C * (np.ones(1) if weight is None else weight[weight > 0])
    check_range("expected C times the sample weights", row_weight, dtype)
    return X, Y, weight


def training_data(X, Y, sample_weight, label_weights: LabelWeights | None, options: OneVsAll) -> TrainingData:
    """Checks the arguments of :func:`xmcjax.lanes.train_one_vs_all`, orders the rows and makes the operator.

    Raises:
        TypeError, ValueError: as there.
    """
    X, Y, weight = checked_arguments(X, Y, sample_weight, label_weights, options)
    if weight is not None:
        kept = np.flatnonzero(weight)
        if len(kept) < len(weight):
            X, Y = X[kept], Y[kept]
        weight = weight[kept]
    # starting weights that were asked for stay as they are, in columns without entries too
    columns = used_columns(X) if options.max_iter > 0 else UsedColumns(X.shape[1])
    X = columns.of(X)
    backend = _backend(options.backend, X)
    if backend == "native" and sp.issparse(X):
        order = _by_length(X)
        X, Y = X[order], Y[order]
        weight = None if weight is None else weight[order]
    Y = label_columns(Y)
    op = linops.make(X, backend=backend)
    if backend == "native" and sp.issparse(X) and isinstance(op, linops.Csr) and X.dtype == op.dtype:
        X = op.to_scipy()  # so that the sorted copy is freed
    row_weight = options.C * (np.ones(1) if weight is None else weight)
    return TrainingData(X, Y, op, weight, row_weight, label_weights, columns)


def _backend(backend: str, X) -> str:
    """What "auto" stands for on this machine, for these features; any other backend as it is."""
    if backend == "auto" and linops.native_ready():
        return "native"
    if backend == "auto" and sp.issparse(X) and linops.gpu_ready():
        return "gpu"
    return backend


def all_labels(Y: sp.csc_array) -> np.ndarray:
    """Numbers of all labels, those with the most positives first."""
    n_labels = Y.shape[1]
    return by_positives(np.diff(Y.indptr), np.arange(n_labels), n_labels)


def check_labels(labels, n_labels: int) -> np.ndarray:
    """Numbers of labels.

    Raises:
        TypeError: numbers that are not whole.
        ValueError: one that is repeated or out of range, or no vector.

    Example:
        >>> check_labels([2, 0], 3).tolist()
        [2, 0]
    """
    labels = _sparse.array(labels, "labels")
    if labels.size and labels.dtype.kind not in "iu":
        raise TypeError(f"labels: expected whole numbers, got values of type {labels.dtype}")
    if labels.ndim != 1:
        raise ValueError(f"labels: expected a vector, got shape {list(labels.shape)}")
    labels = labels.astype(np.int64)
    if len(np.unique(labels)) < len(labels) or ((labels < 0) | (labels >= n_labels)).any():
        raise ValueError(
            f"expected different labels from 0 to {n_labels - 1}, got a repeated one or one outside"
        )
    return labels


def label_columns(Y) -> sp.csc_array:
    """The label matrix as CSC of ones, float32 [n, L]; every stored non-zero is a label.

    Example:
        >>> label_columns(sp.csr_matrix([[1.0, 0.0], [1.0, 1.0]])).indptr.tolist()
        [0, 2, 3]
    """
    columns = sp.csc_array(_sparse.matrix(Y, "Y"), dtype=np.float32, copy=True)
    columns.eliminate_zeros()
    columns.sum_duplicates()
    columns.data[:] = 1
    return columns


def check_sample_weight(weight, n: int) -> np.ndarray:
    """Sample weights as float64 [n].

    Raises:
        TypeError: no real numbers; among objects each has to be one.
        ValueError: another shape, or weights that are not finite, not ≥ 0, or all zero.

    Example:
        >>> check_sample_weight([1.0, 2.0], 2).tolist()
        [1.0, 2.0]
    """
    weight, n = weight_numbers(weight), whole_number("n", n, 0)
    if weight.shape != (n,):
        raise ValueError(f"expected sample_weight of shape ({n},), got {weight.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if wrong.size:
        raise ValueError(
            f"expected finite sample weights ≥ 0, found {weight[wrong[0]]} for row {wrong[0]} of X"
        )
    if not weight.any():
        raise ValueError("expected a sample weight above zero, found only zeros")
    return weight


def _by_length(X) -> np.ndarray:
    """The rows of a CSR matrix, those with the fewest entries first.

    The processor predicts the ends of the loops over rows where rows of the same length follow one another.
    """
    return np.argsort(np.diff(X.indptr), kind="stable")
