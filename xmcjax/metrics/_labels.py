"""True labels and predictions, brought into one form for all ranking metrics.

The truth is a set of label numbers per row. Predictions become label numbers, best first. Neither
is ever expanded to an n x L array that was not given as one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import kind_of, of_one_dtype
from xmcjax._finite import first_place

# Dense score blocks are ranked this many numbers at a time: the temporary arrays stay small.
_BLOCK_ELEMENTS = 1 << 22
# Label numbers in which repetitions are looked for at a time: these arrays stay in the cache.
_CACHED_ELEMENTS = 1 << 15
# The most label numbers of a row that are compared with each other, which is faster than to sort so few.
_COMPARED = 8


class Truth(NamedTuple):
    """The true labels of n rows.

    Attributes:
        indptr: int64 [n + 1], where the labels of each row start in ``labels``.
        labels: int64, the label numbers row by row, ascending within a row, none twice.
        n_labels: L, or None where a class vector was given and L is unknown.
    """

    indptr: np.ndarray
    labels: np.ndarray
    n_labels: int | None

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def counts(self) -> np.ndarray:
        """int64 [n], the number of labels of each row."""
        return np.diff(self.indptr)

    @property
    def rows(self) -> np.ndarray:
        """int64, the row of each entry of ``labels``."""
        return np.repeat(np.arange(self.n_rows), self.counts)


def of_one_kind(y_true: np.ndarray, y_pred: np.ndarray) -> list[np.ndarray]:
    """Class vectors in one dtype, both of texts or neither: "1" is no other name of 1.

    Raises:
        TypeError: texts beside numbers or truth values, in one of them or in the other, or other objects
            beside any of these.
        ValueError: a class that is nan.
    """
    kinds = kind_of(y_true), kind_of(y_pred)
    numeric = [set(kind.split(" and ")) <= {"numbers", "truth values"} for kind in kinds]
    for name, kind, is_numeric in zip(("y_true", "y_pred"), kinds, numeric, strict=True):
        if " and " in kind and not is_numeric:
            raise TypeError(f"{name}: expected classes of one kind, found {kind}")
    if kinds[0] != kinds[1] and not all(numeric):
        raise TypeError(f"y_pred: expected classes that are {kinds[0]} as in y_true, found {kinds[1]}")
    for name, y in (("y_true", y_true), ("y_pred", y_pred)):
        if y.dtype.kind in "fcmMO" and (y != y).any():
            raise ValueError(f"{name}: expected classes, found nan")
    return of_one_dtype(y_true, y_pred)


def as_label_matrix(Y, name: str) -> sp.csr_array:
    """A 0/1 label matrix [n, L] as CSR with sorted indices, its stored zeros dropped.

    Arrays of a matrix that is so already are shared with it.

    Raises:
        TypeError: Y is not a matrix of numbers.
        ValueError: Y is not two-dimensional or holds anything but 0 and 1.
    """
    Y = _sparse.matrix(Y, name)
    if Y.ndim != 2:
        raise ValueError(f"{name}: expected a label matrix [n, L], found {Y.ndim} dimension(s)")
    Y = sp.csr_array(_sparse.canonical_csr(Y, name, zeros=False)) if sp.issparse(Y) else _sparse.of_dense(Y)
    place = first_place(Y, Y.data != 1)
    if place is not None:
        raise ValueError(f"{name}: expected 0 and 1, found {place[2]} in row {place[0]}, label {place[1]}")
    return Y


def as_truth(Y_true) -> Truth:
    """True labels from a 0/1 matrix [n, L] (sparse or dense) or a vector of class numbers [n].

    Raises:
        TypeError: a class vector that does not hold integers.
        ValueError: no rows, a negative class number, or a matrix with values other than 0 and 1.
    """
    if not _sparse.is_sparse(Y_true):
        Y_true = _sparse.array(Y_true, "Y_true")
    if Y_true.ndim == 0:
        found = type(Y_true[()]).__name__
        raise ValueError(f"Y_true: expected a label matrix or class numbers, found {found}")
    if Y_true.shape[0] == 0:
        raise ValueError("Y_true: expected at least one row, found none")
    if Y_true.ndim == 1 and isinstance(Y_true, np.ndarray):
        if Y_true.dtype.kind not in "iu":
            raise TypeError(
                "Y_true: expected class numbers (integers, the columns of the scores), found "
                f"{Y_true.dtype}; np.searchsorted(classifier.classes_, names) makes numbers of names"
            )
        if Y_true.min() < 0:
            raise ValueError(f"Y_true: expected class numbers from 0, found {Y_true.min()}")
        return Truth(np.arange(len(Y_true) + 1), _int64(Y_true, "Y_true"), None)
    Y = as_label_matrix(Y_true, "Y_true")
    return Truth(Y.indptr.astype(np.int64), Y.indices.astype(np.int64), Y.shape[1])


def _int64(numbers: np.ndarray, name: str) -> np.ndarray:
    """Whole numbers as int64, in which larger ones of uint64 would become negative."""
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: expected numbers below 2^63, found {numbers.max()}")
    return numbers.astype(np.int64, copy=False)


def _check_shape(predictions, truth: Truth, what: str) -> None:
    if predictions.ndim != 2:
        raise ValueError(f"predictions: expected two dimensions, found {predictions.ndim}")
    if predictions.shape[0] != truth.n_rows:
        raise ValueError(
            f"predictions: expected {truth.n_rows} rows as in Y_true, found {predictions.shape[0]}"
        )
    if what == "scores":
        if truth.n_labels is not None and predictions.shape[1] != truth.n_labels:
            raise ValueError(
                f"predictions: expected scores of {truth.n_labels} labels as in Y_true, found "
                f"{predictions.shape[1]} columns (top-k label numbers must be integers)"
            )
        if truth.n_labels is None and truth.labels.max() >= predictions.shape[1]:
            raise ValueError(
                f"Y_true: expected class numbers below {predictions.shape[1]}, the number of score "
                f"columns, found {truth.labels.max()}"
            )


def top_k_dense(scores: np.ndarray, k: int) -> np.ndarray:
    """The k best columns of each row, int64 [n, k], best first, ties by the lower column.

    Columns scored −inf are no predictions; slots that remain hold −1.
    """
    n, n_labels = scores.shape
    top = np.full((n, k), -1, np.int64)
    width = min(k, n_labels)
    if width == 0:
        return top
    step = max(1, _BLOCK_ELEMENTS // n_labels)
    for start in range(0, n, step):
        block = scores[start : start + step]
        check_numbers(block, start)
        columns = _best_columns(block, width)
        values = np.take_along_axis(block, columns, axis=1)
        # The columns ascend, so a stable sort leaves ties with the lower column first. Sorting the
        # reversed rows and reversing again would not: negate instead (−x is exact).
        order = np.argsort(-values.astype(np.result_type(values.dtype, np.float32)), axis=1, kind="stable")
        columns = np.take_along_axis(columns, order, axis=1)
        columns[np.take_along_axis(values, order, axis=1) == -np.inf] = -1
        top[start : start + step, :width] = columns
    return top


def _best_columns(block: np.ndarray, width: int) -> np.ndarray:
    """The columns of the `width` best scores of each row, ascending, [rows, width]."""
    rows, n_labels = block.shape
    if width == n_labels:
        return np.broadcast_to(np.arange(width), block.shape)
    # Everything above the k-th largest value is in; of the values equal to it, the first columns.
    threshold = np.partition(block, n_labels - width, axis=1)[:, n_labels - width, None]
    above = block > threshold
    equal = block == threshold
    room = width - above.sum(axis=1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, axis=1) <= room))
    return np.nonzero(chosen)[1].reshape(rows, width)


def check_numbers(scores, start: int = 0) -> None:
    """Raises a ValueError for NaN among scores, CSR or an array, of rows from `start` on."""
    place = first_place(scores, np.isnan(scores.data if sp.issparse(scores) else scores))
    if place is not None:
        row = start + place[0]
        raise ValueError(f"predictions: expected numbers, found nan in row {row}, label {place[1]}")


def first_ranks(scores: np.ndarray, truth: Truth) -> np.ndarray:
    """The rank of each row's best true label among dense scores, int64 [n] from 1; 0 where none is ranked.

    Ranks are those of :func:`top_k_dense`, counted: how many scores are above, and how many are equal and
    stand before.
    """
    _check_shape(scores, truth, "scores")
    n, n_labels = scores.shape
    best, column = np.full(n, -np.inf, scores.dtype), np.zeros(n, np.int64)
    some = np.flatnonzero(truth.counts)
    if some.size:
        values, starts = scores[truth.rows, truth.labels], truth.indptr[some]
        best[some] = np.maximum.reduceat(values, starts)
        places = np.where(values == best[truth.rows], truth.labels, n_labels)
        column[some] = np.minimum.reduceat(places, starts)
    rank = np.zeros(n, np.int64)
    step = max(1, _CACHED_ELEMENTS // max(1, n_labels))
    for start in range(0, n, step):
        block, least = scores[start : start + step], best[start : start + step, None]
        check_numbers(block, start)
        above = np.count_nonzero(block > least, axis=1)
        rank[start : start + step] = above + 1
        tied = np.flatnonzero(np.count_nonzero(block >= least, axis=1) > above + 1)
        before = np.arange(n_labels) < column[start + tied, None]
        rank[start + tied] += np.count_nonzero((block[tied] == least[tied]) & before, axis=1)
    rank[best == -np.inf] = 0
    return rank


def stored_once(scores) -> sp.csr_array:
    """Checked sparse scores of predictions in ascending columns; a copy.

    Raises:
        ValueError: two scores of one row and label, of which nobody knows which one counts.
    """
    once = sp.csr_array(scores, copy=True)
    once.sum_duplicates()
    if once.nnz != scores.nnz:
        raise ValueError(
            "predictions: expected one score for each row and label, found an entry stored twice"
        )
    return once


def top_k_sparse(scores, k: int) -> np.ndarray:
    """As `top_k_dense` for sparse scores: only stored entries, zeros among them, are predictions."""
    scores = stored_once(_sparse.csr(scores, "predictions"))
    check_numbers(scores)
    top = best_places(scores.data, scores.indptr, k)
    found = top >= 0
    top[found] = scores.indices[top[found]]
    return top


def best_places(values: np.ndarray, indptr: np.ndarray, k: int) -> np.ndarray:
    """Where among all values the k best of each row stand, int64 [n, k]; ranks are those of `top_k_dense`.

    Args:
        values: row by row, none of them NaN.
        indptr: [n + 1], where each row starts.
        k: how many.
    """
    values = values.astype(np.result_type(values.dtype, np.float32), copy=False)
    counts = np.diff(indptr)
    places = np.full((len(counts), k), -1, np.int64)
    # rows of about the same length are padded together, so that there is little padding
    order, start = np.argsort(-counts, kind="stable"), 0
    while start < len(order) and (longest := int(counts[order[start]])):
        rows = order[start : start + max(1, _CACHED_ELEMENTS // longest)]
        start += len(rows)
        within = np.arange(longest)
        block = values.take(indptr[rows, None] + within, mode="clip")
        block[within >= counts[rows, None]] = -np.inf
        best = top_k_dense(block, min(k, longest))
        places[rows, : best.shape[1]] = np.where(best < 0, -1, best + indptr[rows, None])
    return places


def _check_indices(indices: np.ndarray, truth: Truth) -> np.ndarray:
    indices = _int64(indices, "predictions")
    if indices.size and indices.min() < -1:
        raise ValueError(f"predictions: expected label numbers from 0, or -1 for none, found {indices.min()}")
    if truth.n_labels is not None and indices.size and indices.max() >= truth.n_labels:
        raise ValueError(f"predictions: expected label numbers below {truth.n_labels}, found {indices.max()}")
    step = max(1, _CACHED_ELEMENTS // max(1, indices.shape[1]))
    for start in range(0, len(indices), step):
        part = indices[start : start + step]
        if part.shape[1] <= _COMPARED and not _any_twice(np.ascontiguousarray(part.T)):
            continue
        ordered = np.sort(part, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        if twice.any():
            row, column = np.argwhere(twice)[0]
            raise ValueError(
                f"predictions: expected each label once per row, found label {ordered[row, column]} "
                f"twice in row {start + row}"
            )
    return indices


def _any_twice(columns: np.ndarray) -> bool:
    """Whether a label from 0 stands in two of a few columns [k, n], at the same place."""
    return any(((columns[:i] == columns[i]) & (columns[i] >= 0)).any() for i in range(1, len(columns)))


def as_predictions(predictions) -> Any:
    """Checked CSR of sparse scores, else an array.

    Raises:
        TypeError, ValueError: a malformed matrix or a masked array.
    """
    if _sparse.is_sparse(predictions):
        return _sparse.csr(predictions, "predictions")
    return _sparse.array(predictions, "predictions")


def is_label_numbers(predictions) -> bool:
    """Whether predictions are label numbers (an integer array) rather than scores.

    Raises:
        TypeError: neither integers nor floating-point scores.
    """
    kind = predictions.dtype.kind
    if sp.issparse(predictions):
        if kind not in "iuf":
            raise TypeError(f"predictions: expected scores (numbers), found {predictions.dtype}")
        return False
    if kind not in "iuf":
        raise TypeError(
            "predictions: expected scores (floating point) or label numbers (integers), "
            f"found {predictions.dtype}"
        )
    return kind in "iu"


def top_k(predictions, truth: Truth, k: int | None) -> np.ndarray:
    """Predictions of any accepted form as label numbers [n, k], best first, −1 where there is none.

    Args:
        predictions: dense scores [n, L] (floating point), sparse scores [n, L] (stored entries
            only), or label numbers [n, K] (integers, best first, −1 for none) with K ≥ k.
        truth: the true labels that the shapes and numbers are checked against.
        k: how many; None takes all that label numbers or sparse scores hold.
    """
    predictions = as_predictions(predictions)
    numbers = is_label_numbers(predictions)
    _check_shape(predictions, truth, "numbers" if numbers else "scores")
    if numbers:
        if k is not None and predictions.shape[1] < k:
            raise ValueError(
                f"predictions: expected at least k = {k} label numbers per row, found {predictions.shape[1]}"
            )
        return _check_indices(predictions[:, :k], truth)
    if sp.issparse(predictions):
        if k is None:
            k = int(np.diff(predictions.indptr).max(initial=0))
        return top_k_sparse(predictions, k)
    return top_k_dense(predictions, predictions.shape[1] if k is None else k)


def hits(truth: Truth, top: np.ndarray) -> np.ndarray:
    """bool, the shape of ``top`` [n, k]: which predicted labels are true."""
    if not truth.labels.size:
        return np.zeros(top.shape, bool)
    if len(truth.labels) == truth.n_rows and (truth.counts == 1).all():
        return top == truth.labels[:, None]
    labels, width = truth.labels, int(max(truth.labels.max(), top.max(initial=-1))) + 1
    if width * truth.n_rows > np.iinfo(np.int64).max:
        # numbers such as hashes: true labels are numbered anew, and other predictions are no hits
        known, labels = np.unique(labels, return_inverse=True)
        top, width = _places(top, known), len(known)
    # (row, label) as one ascending number: a binary search finds every prediction at once.
    keys = truth.rows * width + labels
    wanted = np.arange(len(top))[:, None] * width + top
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return (keys[place] == wanted) & (top >= 0)


def _places(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Where labels stand among ascending known ones, at least one; −1 for another label."""
    place = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[place] == labels, place, -1)
