"""Prediction with weights held in memory by feature: a row reads only the weights of its features."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np

from xmcjax import _sparse, native
from xmcjax._arguments import flag, job_count, whole_number
from xmcjax._fork import OwnLock, UnlockedCachedProperty
from xmcjax._links import SIGMOID, likelihood_of
from xmcjax._links import probabilities as probabilities_of
from xmcjax.models._arrays import ArrayModel
from xmcjax.models._calibration import Calibration
from xmcjax.models._index import INDEX, biases, opened
from xmcjax.models._linear import LinearModel
from xmcjax.models._rows import checked_rows
from xmcjax.models._weights import Weights, parts, weights_of


class Predictor:
    """The k best labels of rows of a linear model, for a server: one row or a million, any number of calls.

    As in all functions of this package, features are those after the transforms of the model: for raw
    features X pass ``LinearModel.load(directory).transforms().apply(X)``.

    Weights are held by feature, so that a row reads only the weights of its features. Nothing is compiled,
    JAX is not imported, and threads may share an object. A model in a directory is opened here and its
    weights are read at the first prediction: they take 8 bytes each in float32 and 12 in float64, or d L
    numbers where they are dense. A call with more than 64 dense rows per thread makes a copy of sparse
    weights in the order of labels while it runs. Where :func:`write_index` has stored the weights by feature,
    only those that the rows need are read, and models larger than memory can be served. `LinearModel` and, on
    a CPU, :func:`predict_topk` read the shards anew in every call.

    Args:
        model: a directory, a `LinearModel` or an `ArrayModel`.
        n_jobs: threads of a prediction; None is 1, -1 one per core. The result does not depend on it.

    Attributes:
        n_labels: L. n_features: d, after the model's transforms. dtype: of weights and scores.

    Raises:
        OSError, ModelError: as :meth:`LinearModel.load`; damaged weights raise when they are read.
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
            directory = Path(model).absolute()  # the weights are read later
            # with an index the shards are not read
            model = LinearModel.load(directory, "lazy" if (directory / INDEX).exists() else None)
        elif not isinstance(model, LinearModel | ArrayModel):
            expected = "a directory, a LinearModel or an ArrayModel"
            raise TypeError(f"model: expected {expected}, found {type(model).__name__}")
        self._model = model
        self._open()
        self.n_labels, self.n_features, self.dtype = model.n_labels, model.n_features, model.dtype
        if native.load_library() is None:
            native.warn_of_twins()
        self._lock = OwnLock()

    def __getstate__(self) -> dict:
        """The state without the weights, which a copy reads itself."""
        read = ("_weights", "_calibration")
        return {name: value for name, value in self.__dict__.items() if name not in read}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._open()

    def _open(self) -> None:
        """Opens the index, where the model has one; without one, weights are read at the first prediction."""
        self._weights: Weights | None = _stored(self._model) if isinstance(self._model, LinearModel) else None

    @UnlockedCachedProperty
    def _calibration(self) -> Calibration | None:
        return self._model.calibration() if isinstance(self._model, LinearModel) else None

    def predict_topk(self, X, k: int, *, probabilities: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each row, best first; equal scores rank by the lower label.

        Args:
            X: features [n, d] after the model's transforms, sparse or dense.
            k: how many labels per row, at least 1.
            probabilities: whether to give probabilities in place of scores, where the model's loss is a
                likelihood: the logistic one, label by label, and that of multinomial regression.

        Returns:
            ``(labels, scores)``, int32 [n, k] and [n, k] of the model's dtype. Where fewer than k labels
            were trained, the slots left over hold label −1 and score −inf, or probability 0.

        Raises:
            ValueError: X of another width, not two-dimensional, malformed or not finite; k below 1; a model
                that knows no probabilities.
            TypeError: X is no matrix of real numbers.
            ModelFormatError: damaged weights.
        """
        k, link = whole_number("k", k, 1), None
        if flag("probabilities", probabilities):
            link = likelihood_of(getattr(self._model, "meta", {}))
        X = self._checked(X)
        weights = self._held().serving(X, self._threads)
        labels = np.full((X.shape[0], k), -1, np.int32)
        scores = np.full((X.shape[0], k), -np.inf, self.dtype)
        weights.best(X, scores, labels, threads=self._threads)
        if link is not None:
            for part in parts(X.shape[0], 1 if link == SIGMOID else self.n_labels):
                every = (
                    None if link == SIGMOID else weights.scores(weights.part(X, part), threads=self._threads)
                )
                some = scores[part]
                if self._calibration is not None:
                    some = self._calibration.apply(some, labels[part])
                    every = None if every is None else self._calibration.apply(every)
                scores[part] = probabilities_of(link, some, every)
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
        X = self._checked(X)
        weights = self._held().serving(X, self._threads)
        if labels is not None:
            labels = np.atleast_1d(_sparse.array(labels, "labels"))
            if labels.shape == (0,):
                labels = labels.astype(np.int64)  # NumPy gives an empty list a floating-point dtype
            if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
                raise TypeError(f"labels: expected whole numbers, found {labels.dtype} {list(labels.shape)}")
            wrong = labels[(labels < 0) | (labels >= self.n_labels)]
            if wrong.size:
                raise IndexError(f"labels: expected numbers from 0 to {self.n_labels - 1}, found {wrong[0]}")
        scores = np.empty((X.shape[0], self.n_labels if labels is None else len(labels)), self.dtype)
        for part in parts(X.shape[0], self.n_labels):
            scores[part] = weights.scores(weights.part(X, part), labels, threads=self._threads)
        return scores

    def _checked(self, X):
        return checked_rows(X, self.n_features, self.dtype)

    def _held(self) -> Weights:
        """The weights, read once."""
        with self._lock:
            if self._weights is None:
                model = self._model
                self._weights = weights_of(model.coef().astype(self.dtype, copy=False), biases(model))
                if isinstance(model, LinearModel):
                    model.forget()  # the weights by label are not needed again
            return self._weights


def _stored(model: LinearModel) -> Weights | None:
    """The index of a model; None where there is none of its present state."""
    index = opened(model)
    if index is None and (model.directory / INDEX).exists():
        message = f"{model.directory / INDEX} is of another state of the model and is not used: xmcjax index"
        warnings.warn(f"{message} makes it anew", native.PerformanceWarning, stacklevel=4)
    return index
