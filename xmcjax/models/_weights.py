"""Weights of a linear model in a form that predicts: by feature where they are sparse, else as a matrix.

Nothing here imports JAX. The native library computes scores of sparse weights, or scipy where it is absent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, native
from xmcjax._fork import UnlockedCachedProperty
from xmcjax._used_columns import UsedColumns

# For at most _FEW_ROWS rows a pass over all weights is less work than ordering the weights by feature. For
# more than _MANY_ROWS dense rows per thread, weights by feature are put in the order of labels.
_FEW_ROWS, _MANY_ROWS = 32, 64
# Bytes per feature of a tile of dense rows: the product of a few rows with the weights takes whole tiles.
_TILE = 64
# The most scores that are computed, or entries of dense rows that are made sparse, at a time.
_SCORES = 1 << 22
# The most labels per row that are found while scores are made; for more, all scores of a row are made first.
_LISTED = 128
# From this share of non-zero weights on, a dense matrix takes no more memory than a sparse one.
_DENSE = 0.5


class Weights:
    """Weights of L labels on d features, with a bias per label; −inf for a label that is never predicted."""

    bias: np.ndarray

    def serving(self, X, threads: int = 1) -> Weights:
        """These weights in the form that suits X, CSR or an array, if they serve no other rows."""
        return self

    def rows(self, X):
        """X, CSR or an array of the dtype of the weights, as :meth:`scores` takes it."""
        raise NotImplementedError

    def part(self, X, rows: slice):
        """Some consecutive rows of X, as :meth:`scores` takes them."""
        return self.rows(_sparse.rows_of(X, rows))

    def scores(self, X, labels: np.ndarray | None = None, *, threads: int = 1) -> np.ndarray:
        """X W + b of some labels, or of all, [n, L]."""
        raise NotImplementedError

    def best(self, X, scores: np.ndarray, labels: np.ndarray, first: int = 0, *, threads: int = 1) -> None:
        """Merges these labels, numbered from `first`, into the k best of the lower labels of each row.

        Args:
            X: checked CSR or an array, of the dtype of the weights.
            scores, labels: [n, k], best first; −inf and −1 where there are fewer. Both are changed in place.
            first: number of the first label.
            threads: how many may be used; the result does not depend on it.
        """
        for part in parts(X.shape[0], len(self.bias)):
            z = self.scores(self.part(X, part), threads=threads)
            _rank(z, scores[part], labels[part], first, threads)


def weights_of(
    coef, bias: np.ndarray, rows: int | None = None, columns: UsedColumns | None = None
) -> Weights:
    """The subclass of :class:`Weights` that suits the weights and their use.

    Args:
        coef: weights of a checked model, CSR or an array [L, d].
        bias: [L], of the dtype of the weights.
        rows: how many rows are predicted, if the weights are used once; None if they are kept.
        columns: the columns that the rows use, where these are known; None for all.
    """
    if columns is not None and columns.numbers is not None and not sp.issparse(coef):
        return AllWeights(columns.of(coef), bias, columns)
    coef = _sparse.csr(coef) if sp.issparse(coef) else coef
    if not sp.issparse(coef) or coef.nnz >= _DENSE * coef.shape[0] * coef.shape[1] > 0:
        return AllWeights(coef.toarray() if sp.issparse(coef) else coef, bias)
    if rows is not None and rows <= _FEW_ROWS:
        return ByLabel(coef, bias)
    return ByFeature.of(coef, bias)


class AllWeights(Weights):
    """A dense matrix of all weights.

    Args:
        coef: [L, d].
        bias: [L].
        columns: the columns of sparse rows that `coef` is reduced to; None for all.
    """

    def __init__(self, coef: np.ndarray, bias: np.ndarray, columns: UsedColumns | None = None):
        self._W, self.bias, self._columns = coef.T, bias, columns

    @UnlockedCachedProperty
    def _by_feature(self) -> np.ndarray:
        """The matrix with the weights of a feature side by side, which is how sparse rows read it."""
        return np.ascontiguousarray(self._W)

    def rows(self, X):
        X = _sparse.csr(X) if sp.issparse(X) else X
        return X if self._columns is None else self._columns.of(X)

    def scores(self, X, labels: np.ndarray | None = None, *, threads: int = 1) -> np.ndarray:
        W, bias = self._by_feature if sp.issparse(X) else self._W, self.bias
        if labels is not None:
            W, bias = np.ascontiguousarray(W[:, labels]), bias[labels]
        if sp.issparse(X):
            z = _product(X, W, threads)
            z += bias
            return z
        with _infinite():
            z = X @ W
            z += bias
        return z


class ByLabel(Weights):
    """Sparse weights by label. One pass over all of them computes the scores of a few rows, or of dense rows.

    Args:
        coef: checked CSR [L, d].
        bias: [L].
    """

    def __init__(self, coef, bias: np.ndarray):
        self._coef, self.bias = coef, bias + bias.dtype.type(0)  # turns −0 into 0

    def rows(self, X):
        return _sparse.csr(X) if sp.issparse(X) else X

    def scores(self, X, labels: np.ndarray | None = None, *, threads: int = 1) -> np.ndarray:
        coef, bias = (self._coef, self.bias) if labels is None else (self._coef[labels], self.bias[labels])
        coef, scores = _sparse.csr(coef), np.empty((X.shape[0], len(bias)), X.dtype)
        if sp.issparse(X):
            coef, X = _of_few_features(coef, X)
        # row by row where filling a tile with several rows would be most of the work of the product
        alone = min(len(X), _FEW_ROWS) * coef.nnz < _lanes(X) * X.shape[1]
        step = 1 if alone else _FEW_ROWS
        for first in range(0, len(X), step):
            scores[first : first + step] = _scores_of_few(coef, bias, X[first : first + step], threads)
        return scores


def _lanes(X) -> int:
    """How many rows a tile has."""
    return _TILE // X.dtype.itemsize


def _scores_of_few(coef, bias: np.ndarray, X: np.ndarray, threads: int) -> np.ndarray:
    """X W + b, [n, L], in the order of summation of :class:`ByFeature`."""
    n = len(X)
    if native.load_library() is None:
        with _infinite():
            return (coef @ X.T).T + bias
    given = np.zeros((X.shape[1], n if n == 1 else -(-n // _lanes(X)) * _lanes(X)), X.dtype)
    given[:, :n] = X.T
    z = np.empty((len(bias), given.shape[1]), X.dtype)
    native.InPlace.once("predict_few", W=native.csr_arrays(coef), b=bias, X=given, threads=threads, z=z)
    return z[:, :n].T


def _of_few_features(coef, X) -> tuple[Any, np.ndarray]:
    """Checked weights and rows, as an array; if most work grows with d, with only the rows' features."""
    if X.shape[0] > 1 and _lanes(X) * X.shape[1] > coef.nnz:
        used = np.unique(X.indices)
        coef, X = _sparse.csr(coef[:, used]), X[:, used]
    return coef, X.toarray()


class ByFeature(Weights):
    """Sparse weights by feature, so that a row reads runs of consecutive weights; in memory or mapped.

    Args:
        indptr: where the weights of each feature begin, int64 [d+1].
        labels: of each weight, ascending within a feature, int32.
        values: the weights.
        bias: [L].

    The arrays are those of a checked matrix, or else :meth:`check` verifies the parts that a row needs.
    """

    in_memory = True

    def __init__(self, indptr: np.ndarray, labels: np.ndarray, values: np.ndarray, bias: np.ndarray):
        self.indptr, self.labels, self.values = indptr, labels, values
        self.bias = bias + bias.dtype.type(0)  # turns −0 into 0, as in :class:`ByLabel`
        # native calls take 64-bit offsets as pairs of 32-bit halves
        self._arrays = values, labels, indptr.view(np.int32).reshape(-1, 2)

    @classmethod
    def of(cls, coef, bias: np.ndarray) -> ByFeature:
        """Made from checked CSR [L, d]."""
        weights = _sparse.canonical_csr(coef.T.tocsr())
        indptr = np.ascontiguousarray(weights.indptr, np.int64)
        return cls(indptr, np.ascontiguousarray(weights.indices, np.int32), weights.data, bias)

    def check(self, X) -> None:
        """Checks the weights of the features of X, checked CSR; weights in memory need no check."""

    def serving(self, X, threads: int = 1) -> Weights:
        if not self.in_memory or sp.issparse(X) or len(X) <= _MANY_ROWS * threads:
            return self
        shape = len(self.bias), len(self.indptr) - 1
        coef = sp.csc_array((self.values, self.labels, self.indptr), shape=shape).tocsr()
        return ByLabel(_sparse.canonical_csr(coef), self.bias)

    def rows(self, X):
        return _sparse.csr(X) if sp.issparse(X) else _sparse.of_dense(X)

    def scores(self, X, labels: np.ndarray | None = None, *, threads: int = 1) -> np.ndarray:
        self.check(X)
        if native.load_library() is None:
            return self._scores_of(X, labels)
        z = np.empty((X.shape[0], len(self.bias)), self.values.dtype)
        given = dict(X=native.csr_arrays(X), W=self._arrays, b=self.bias, threads=threads)
        native.InPlace.once("predict_scores", **given, z=z)
        return z if labels is None else z[:, labels]

    def _scores_of(self, X, labels: np.ndarray | None) -> np.ndarray:
        # the weights of the features of X, one feature after the other
        features, column = np.unique(X.indices, return_inverse=True)
        begin, lengths = self.indptr[features], self.indptr[features + 1] - self.indptr[features]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(begin - indptr[:-1], lengths) + np.arange(indptr[-1])
        shape, which = (len(features), len(self.bias)), self.labels[places]
        # `which` is a copy that nobody else changes; scipy does not check it
        if which.size and not 0 <= which.min() <= which.max() < shape[1]:
            raise ValueError(f"expected labels from 0 to {shape[1] - 1}, found others: the index was changed")
        W = sp.csr_array((self.values[places], which, indptr), shape=shape)
        rows = sp.csr_array((X.data, column, X.indptr), shape=(X.shape[0], len(features)))
        chosen, bias = (W, self.bias) if labels is None else (W[:, labels], self.bias[labels])
        with _infinite():
            return (rows @ chosen).toarray() + bias

    def best(self, X, scores: np.ndarray, labels: np.ndarray, first: int = 0, *, threads: int = 1) -> None:
        if native.load_library() is None or scores.shape[1] > _LISTED:
            super().best(X, scores, labels, first, threads=threads)
            return
        given = dict(W=self._arrays, b=self.bias, first_label=first, threads=threads)
        dense = not sp.issparse(X)
        for part in parts(X.shape[0], X.shape[1]) if dense else [slice(None)]:
            rows = self.rows(X[part] if dense else X)
            self.check(rows)
            best = dict(scores=scores[part], best=labels[part])
            native.InPlace.once("predict_topk", X=native.csr_arrays(rows), **given, **best)


def _product(X, V: np.ndarray, threads: int) -> np.ndarray:
    """X V of checked CSR X and a contiguous array."""
    if native.load_library() is None:
        with _infinite():
            return X @ V
    out = np.empty((X.shape[0], V.shape[1]), V.dtype)
    native.InPlace.once("csr_matmat", X=native.csr_arrays(X), V=V, threads=threads, out=out)
    return out


def _infinite() -> np.errstate:
    """Without warnings, a score that overflows is infinite, and inf − inf gives NaN, which is never best."""
    return np.errstate(over="ignore", invalid="ignore")


def parts(n: int, labels: int) -> list[slice]:
    """n rows cut into slices whose scores for that many labels are computed at a time."""
    rows = max(1, _SCORES // max(1, labels))
    return [slice(first, min(first + rows, n)) for first in range(0, n, rows)]


def _rank(z: np.ndarray, scores: np.ndarray, labels: np.ndarray, first: int, threads: int) -> None:
    """Merges the scores z [n, L] of labels from `first` on into the k best of lower labels, [n, k]."""
    if native.load_library() is not None:
        given = dict(z=np.ascontiguousarray(z), first_label=first, threads=threads)
        native.InPlace.once("best_labels", **given, scores=scores, best=labels)
        return
    k = scores.shape[1]
    for i in range(len(z)):
        # lower labels stand first, so that a stable sort prefers them among equals
        known = labels[i] >= 0
        found = np.concatenate([scores[i][known], z[i]])
        which = np.concatenate([labels[i][known], first + np.arange(z.shape[1], dtype=np.int32)])
        if len(found) > k:
            # all scores that are at least the k-th best
            places = np.flatnonzero(found >= np.partition(found, len(found) - k)[len(found) - k])
            found, which = found[places], which[places]
        order = np.argsort(-found, kind="stable")[:k]
        order = order[found[order] > -np.inf]
        scores[i, : len(order)], labels[i, : len(order)] = found[order], which[order]
