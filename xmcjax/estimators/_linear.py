"""Prediction with linear weights, for every classifier that has ``coef_`` and ``intercept_``."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from xmcjax import _sparse
from xmcjax._arguments import job_count, refuse_renamed, whole_number
from xmcjax._links import SOFTMAX
from xmcjax._sample_weight import weight_numbers
from xmcjax.estimators import _stored
from xmcjax.estimators._counted import LOWEST
from xmcjax.estimators._inputs import checked_features, checked_truth
from xmcjax.estimators._storable import Storable

# Most bytes of scores that decision_function makes.
_MOST_BYTES = 8 << 30


class LinearClassifier(Storable, ClassifierMixin, BaseEstimator):
    """Base of the linear classifiers; a subclass has ``fit``, which sets what prediction needs.

    Attributes:
        classes_: what predictions are made of.
        coef_: [m, d], CSR or an array; m is 1 for a class vector of two classes, for the second.
        intercept_: [m]; −inf for a label that is never predicted.
        _form: of :class:`xmcjax.estimators._targets.Targets`.
        _fitted: attributes of a fit, numbers, that a stored classifier keeps.
    """

    _form: str
    _fitted: tuple[str, ...] = ()

    @property
    def _link(self) -> str | None:
        """How scores become probabilities, of :data:`xmcjax._links.LINKS`."""
        return SOFTMAX if self._calibrated else None

    @property
    def _calibrated(self) -> bool:
        """Whether there is a calibration; before a fit, whether there is to be one."""
        if hasattr(self, "coef_"):
            return getattr(self, "calibration_", None) is not None
        return getattr(self, "calibration", None) is not None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def set_params(self, **params):
        """Sets arguments, as scikit-learn has it; TypeError for one that has another name now."""
        init = type(self).__init__
        refuse_renamed(init, getattr(init, "renamed", {}), params)
        return super().set_params(**params)

    def _write(self, path, *, held=False, **more):
        _stored.save(self, path, _stored.labels_of(self), more, held=held)

    @classmethod
    def _read(cls, path):
        return _stored.load(cls, path)

    def _restore(self, status, steps, link):
        """Sets what a model stores of each problem, and what its scores stand for.

        Args:
            status: how training ended, [m], numbers of :class:`xmcjax.solvers.Status`.
            steps: Newton steps, [m].
            link: of :data:`xmcjax._links.LINKS`, or None.
        """

    @staticmethod
    def _parameters_of(meta):
        """Arguments for meta data that do not name them, as those of the command line."""
        raise ValueError("expected the member parameters, found none")

    def decision_function(self, X):
        """Scores X coef_ᵀ + intercept_, [n, m]; [n] where m is 1, of two classes.

        A label that is never predicted scores −1e30, below all others: scores are finite, as metrics of
        scikit-learn want them.

        Raises:
            ValueError: more than 8 GiB of scores, of which :meth:`predict_topk` makes none; X of
                another width or not finite.
        """
        X = self._features(X)
        size = 8 * X.shape[0] * len(self.intercept_)
        if size > _MOST_BYTES:
            raise ValueError(
                f"{X.shape[0]} rows and {len(self.intercept_)} labels make {size / 2**30:.0f} GiB of scores: "
                "take predict_topk, or fewer rows at a time"
            )
        scores = self._scores(*self._with_model(X))
        if scores.ndim == 2:
            scores[:, np.isneginf(self.intercept_)] = LOWEST
        return scores

    def predict(self, X):
        """The class of the highest score; of one-vs-all with label matrices all labels with a score above 0.

        Args:
            X: finite features [n, d], sparse or dense.

        Returns:
            Classes [n]. After a fit of a label matrix `OneVsAllClassifier` gives a label matrix [n, L] of 0
            and 1, CSR where y of ``fit`` was sparse, else an array; the others, which rank the labels of a
            row, give the number of the best label of each row, [n].

        Raises:
            ValueError: X of another width or not finite.
        """
        from xmcjax.lanes import precision
        from xmcjax.models import predict_topk, scores_above

        X, model = self._with_model(self._features(X))
        if self._binary:
            return self.classes_[(self._scores(X, model) > 0).astype(int)]
        with precision(X.dtype):
            if self._form == "classes":
                best = predict_topk(model, X, 1, threads=self._threads)[0][:, 0]
                return self.classes_[np.maximum(best, 0)]
            Y = scores_above(model, X, threads=self._threads)
        Y = sp.csr_matrix((np.ones(Y.nnz, np.int64), Y.indices, Y.indptr), shape=Y.shape)
        return Y if self._form == "sparse" else Y.toarray()

    def predict_topk(self, X, k):
        """The k best labels of each row, best first, without the n x m matrix of scores.

        Args:
            X: finite features [n, d], sparse or dense.
            k: a whole number from 1; at most the number of classes that have weights, but for
                `OneVsAllClassifier` after a fit of a label matrix.

        Returns:
            ``(labels, scores)``, both [n, k]: entries of ``classes_`` and their scores. Where the
            label matrix of a `OneVsAllClassifier` has fewer than k labels with weights, the slots
            left over hold −1 and −inf.

        Raises:
            TypeError: k is not a whole number.
            ValueError: k out of range; X of another width or not finite.
        """
        from xmcjax.lanes import precision
        from xmcjax.models import ArrayModel, predict_topk

        X, k = self._features(X), whole_number("k", k, 1)
        (X, coef), intercept = self._in_one_dtype(X), self.intercept_
        if self._binary:
            stack = sp.vstack if sp.issparse(coef) else np.vstack
            coef, intercept = stack([-coef, coef]), np.concatenate([-intercept, intercept])
        most = np.count_nonzero(intercept > -np.inf)
        if self._form == "classes" and k > most:
            raise ValueError(f"k: expected at most {most}, the number of classes with weights, got {k}")
        model = ArrayModel(coef, intercept, copy=False)
        with precision(X.dtype):
            labels, scores = predict_topk(model, X, k, threads=self._threads)
        return (self.classes_[labels] if self._form == "classes" else labels), scores

    def score(self, X, y, sample_weight=None):
        """The share of rows that are predicted right; for a label matrix with all of their labels.

        Args:
            X: finite features [n, d], sparse or dense.
            y: classes [n] or, as in ``fit``, a label matrix [n, L], sparse or dense.
            sample_weight: weights of the rows, [n]; None for equal ones.

        Raises:
            TypeError: a masked array; a sparse y where ``fit`` was given classes; weights that are no number.
            ValueError: X as for :meth:`predict`; y of another length or kind, or a sparse matrix that is
                malformed, has another number of labels, or holds values that are negative or not finite.
        """
        check_is_fitted(self)
        if sample_weight is not None:
            sample_weight = weight_numbers(sample_weight)
        matrix = self._form != "classes"
        y = checked_truth(y, len(self.classes_) if matrix else None)
        if matrix and len(self.classes_) == 1:  # scikit-learn takes no label matrix of one column
            truth, found = (column_or_1d(Y.toarray() if sp.issparse(Y) else Y) for Y in (y, self.predict(X)))
            return float(accuracy_score(truth, found, sample_weight=sample_weight))
        return super().score(X, y, sample_weight)

    @property
    def _binary(self) -> bool:
        return self._form == "classes" and len(self.classes_) == 2

    @property
    def _threads(self) -> int:
        return job_count(getattr(self, "n_jobs", None))

    def _features(self, X):
        """X checked against that of ``fit``, CSR or an array of float."""
        from xmcjax.linops import check_features

        check_is_fitted(self)
        X = checked_features(self, X)
        check_features(X)
        return _stored.applied(getattr(self, "transforms_", None), X)

    def _in_one_dtype(self, X):
        """X and the weights in one dtype; the weights are checked, since users may change ``coef_``."""
        coef = _sparse.matrix(self.coef_, "coef_")
        dtype = np.result_type(X.dtype, coef.dtype, np.float32)
        return X.astype(dtype, copy=False), coef.astype(dtype, copy=False)

    def _with_model(self, X):
        from xmcjax.models import ArrayModel

        X, coef = self._in_one_dtype(X)
        return X, ArrayModel(coef, self.intercept_, copy=False)  # for one call

    def _scores(self, X, model):
        from xmcjax.models import decision_function

        scores = decision_function(model, X, threads=self._threads)
        return scores[:, 0] if self._binary else scores


def with_ones(X):
    """X with a last feature of value 1, whose weight is a bias."""
    ones = np.ones((X.shape[0], 1), X.dtype)
    return sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])
