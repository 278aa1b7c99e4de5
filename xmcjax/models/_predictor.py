"""Prediction of few rows: the weights are held by feature, so that a row costs what its features weigh."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse, native
from xmcjax._arguments import job_count, whole_number
from xmcjax._finite import place_not_finite
from xmcjax.models._arrays import ArrayModel
from xmcjax.models._linear import LinearModel

# Labels that are read from a model at a time.
_LABELS = 1 << 16
# Scores that are made at a time for dense weights, in bytes.
_SCORES = 64 << 20


class Predictor:
    """The k best labels of rows of a linear model, for a server: one row or some thousands at a time.

    A model in a directory is opened here and read at the first prediction; `LinearModel` and
    :func:`predict_topk` read it anew for every call, which suits many rows. Nothing is compiled, JAX is not
    imported, and threads may share an object. Weights take 8 bytes each in float32 and 12 in float64, or d L
    numbers where they are dense.

    Args:
        model: a directory, a `LinearModel` or an `ArrayModel`.
        n_jobs: threads of a prediction; None is 1, -1 one per core. The result does not depend on it.

    Attributes:
        n_labels: L. n_features: d, after the model's transforms. dtype: of weights and scores.

    Raises:
        OSError, ModelError: as :meth:`LinearModel.load`; damaged shards raise at the first prediction.
        TypeError: another model.

    Example:
        >>> from xmcjax.models import ArrayModel, Predictor
        >>> predictor = Predictor(ArrayModel(np.float32([[1, 0], [0, 1], [1, 1]]), np.float32([0, 0.5, -1])))
        >>> labels, scores = predictor.predict_topk(np.float32([[0, 2]]), 2)
        >>> labels.tolist(), scores.tolist()
        ([[1, 2]], [[2.5, 1.0]])
    """

    def __init__(self, model, *, n_jobs: int | None = None):
        self._threads = job_count(n_jobs)
        if isinstance(model, (str, os.PathLike)):
            model = LinearModel.load(model)
        if not isinstance(model, (LinearModel, ArrayModel)):
            expected = "a directory, a LinearModel or an ArrayModel"
            raise TypeError(f"model: expected {expected}, found {type(model).__name__}")
        self._model = model
        self.n_labels, self.n_features, self.dtype = model.n_labels, model.n_features, model.dtype
        self._lock = threading.Lock()
        self._weights: np.ndarray | sp.csr_array | None = None
        self._bias = np.empty(0, self.dtype)
        # the weights as native calls take them, where these serve
        self._by_feature: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def predict_topk(self, X, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each row, best first; equal scores rank by the lower label.

        Args:
            X: features [n, d] after the model's transforms, sparse or dense.
            k: how many labels per row, at least 1.

        Returns:
            ``(labels, scores)``, int32 [n, k] and [n, k] of the model's dtype. Where fewer than k labels
            were trained, the slots left over hold label −1 and score −inf.

        Raises:
            ValueError: X of another width, not two-dimensional, malformed or not finite; k below 1.
            TypeError: X is no matrix of real numbers.
            ModelFormatError: a damaged shard.
        """
        k = whole_number("k", k, 1)
        X, weights = self._checked(X), self._held()
        labels = np.full((X.shape[0], k), -1, np.int32)
        scores = np.full((X.shape[0], k), -np.inf, self.dtype)
        if self._by_feature is not None:
            X = X if sp.issparse(X) else _sparse.csr(sp.csr_array(X))
            fields = dict(X=_arrays(X), W=self._by_feature, b=self._bias, threads=self._threads)
            native.InPlace.once("predict_topk", **fields, scores=scores, best=labels)
            return labels, scores
        rows = max(1, _SCORES // (self.dtype.itemsize * max(1, self.n_labels)))
        for first in range(0, X.shape[0], rows):
            part = slice(first, first + rows)
            labels[part], scores[part] = _best(self._scores(X[part], weights) + self._bias, k)
        return labels, scores

    def decision_function(self, X, labels=None) -> np.ndarray:
        """Scores x·w + b of some labels, [n, len(labels)]; −inf where a label was not trained.

        Args:
            X: as in :meth:`predict_topk`.
            labels: which, whole numbers from 0; None for all.

        Raises:
            ValueError, TypeError, ModelFormatError: as :meth:`predict_topk`.
            IndexError: a label that the model does not have.
        """
        X, weights = self._checked(X), self._held()
        if labels is None:
            return self._scores(X, weights) + self._bias
        labels = np.atleast_1d(_sparse.array(labels, "labels"))
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise TypeError(f"labels: expected whole numbers, found {labels.dtype} {list(labels.shape)}")
        wrong = labels[(labels < 0) | (labels >= self.n_labels)]
        if wrong.size:
            raise IndexError(f"labels: expected numbers from 0 to {self.n_labels - 1}, found {wrong[0]}")
        return self._scores(X, weights[:, labels]) + self._bias[labels]

    def _checked(self, X):
        X = _sparse.matrix(X)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X: expected {self.n_features} features as in the model, found shape {X.shape}")
        place = place_not_finite(X)
        if place is not None:
            row, column, value = place
            raise ValueError(f"X: expected finite features, found {value} in row {row}, column {column}")
        X = X.astype(self.dtype, copy=False)
        return _sparse.csr(X) if sp.issparse(X) else X

    def _held(self) -> Any:
        """The weights [d, L], read once."""
        with self._lock:
            if self._weights is None:
                self._weights = self._read()
            return self._weights

    def _read(self):
        model = self._model
        trained = [
            model.trained(first, min(first + _LABELS, self.n_labels))
            for first in range(0, self.n_labels, _LABELS)
        ]
        kept = np.concatenate(trained) if trained else np.empty(0, bool)
        coef, bias = model.coef(), model.intercept()
        self._bias = np.where(kept, bias, -np.inf).astype(self.dtype)
        if not sp.issparse(coef):
            return np.ascontiguousarray(coef.T, self.dtype)
        weights = _sparse.canonical_csr(coef.T.tocsr().astype(self.dtype, copy=False))
        if native.load_library() is None:
            native.warn_of_twins()
        else:
            self._by_feature = _arrays(weights)
        return weights

    def _scores(self, X, weights) -> np.ndarray:
        scores = X @ weights
        return np.asarray(scores.toarray() if sp.issparse(scores) else scores, self.dtype)


def _arrays(X) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a checked CSR matrix, as native calls take it: 64-bit offsets as pairs of 32-bit halves."""
    _sparse.require_checked(X)
    offset = np.ascontiguousarray(X.indptr, np.int64).view(np.int32).reshape(-1, 2)
    return X.data, np.ascontiguousarray(X.indices, np.int32), offset


def _best(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(labels, scores) of the k best of each row; −1 and −inf where there are fewer."""
    n, L = scores.shape
    some = min(k, L)
    labels = np.full((n, k), -1, np.int32)
    best = np.full((n, k), -np.inf, scores.dtype)
    if some:
        # all that are as good as the k-th, of which the lowest labels count
        least = np.partition(scores, L - some, axis=1)[:, L - some]
        for i in range(n):
            places = np.flatnonzero(scores[i] >= least[i])
            order = places[np.argsort(-scores[i, places], kind="stable")][:some]
            found = scores[i, order]
            labels[i, :some] = np.where(found > -np.inf, order, -1)
            best[i, :some] = found
    return labels, best
