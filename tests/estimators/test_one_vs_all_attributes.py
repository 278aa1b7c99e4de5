"""What a fit of OneVsAllClassifier leaves behind: weights, dtypes, scores and their order."""

import warnings

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from one_vs_all_helpers import TIGHT
from sklearn.base import clone
from sklearn.metrics import label_ranking_average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_score

from xmcjax import OneVsAllClassifier
from xmcjax.solvers import Status


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [sp.csr_matrix, np.asarray])
def test_the_dtype_of_x_is_kept(multilabel, dtype, container):
    X, Y = multilabel
    X = container(X.toarray().astype(dtype))
    ours = OneVsAllClassifier().fit(X, Y)
    assert ours.coef_.dtype == ours.intercept_.dtype == dtype
    assert ours.decision_function(X).dtype == dtype
    assert ours.predict_topk(X, 3)[1].dtype == dtype
    assert ours.n_features_in_ == X.shape[1]
    assert not jax.config.jax_enable_x64


def test_float64_is_solved_in_float64(multilabel):
    X, Y = multilabel
    narrow = OneVsAllClassifier(**TIGHT | dict(tol=1e-3)).fit(X, Y)
    wide = OneVsAllClassifier(**TIGHT | dict(tol=1e-10)).fit(X.astype(np.float64), Y)
    assert set(wide.status_) == {Status.CONVERGED}  # out of reach of float32
    assert 0 < abs(wide.coef_ - narrow.coef_).max() < 0.05


def test_weights_are_sparse_where_they_are_clipped(multilabel, fitted):
    X, Y = multilabel
    whole = OneVsAllClassifier(clip=0).fit(X, Y)
    assert isinstance(whole.coef_, np.ndarray) and fitted.coef_.format == "csr"
    assert fitted.coef_.shape == whole.coef_.shape == (Y.shape[1], X.shape[1])
    given = OneVsAllClassifier(clip=0.002).fit(X, Y)
    kept = np.where(abs(whole.coef_) >= 0.002, whole.coef_, 0)
    np.testing.assert_array_equal(given.coef_.toarray(), kept)
    ours = fitted.coef_.toarray()
    dropped = (ours == 0) & (whole.coef_ != 0)
    np.testing.assert_array_equal(np.where(dropped, 0, whole.coef_), ours)
    assert dropped.any()


def test_a_clip_that_is_too_large_for_the_features_is_said(classes):
    X, y = classes
    with pytest.warns(
        UserWarning, match=r"below clip = 0.01 raised the objective of \d+ labels? by more than"
    ) as found:
        OneVsAllClassifier(clip=0.01).fit(X * 1000, y)
    assert [w.filename for w in found] == [__file__] and "most that of class " in str(found[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OneVsAllClassifier().fit(X * 1000, y)


@pytest.mark.filterwarnings("ignore:.* labels have no positive rows:UserWarning")
def test_metrics_take_the_scores_of_a_fold_that_lacks_a_label(multilabel):
    X, Y = multilabel
    rare = np.zeros((X.shape[0], 1))
    rare[[0, 1]] = 1  # in the first fold, so that the others train without it and it is scored there
    Y = np.hstack([Y.toarray(), rare])
    rows = np.arange(X.shape[0])
    split = [(rows[10:], rows[:10])]
    score = cross_val_score(OneVsAllClassifier(), X, Y, cv=split, scoring=_ranking, error_score="raise")
    assert 0 < score[0] < 1


def _ranking(estimator, X, Y):
    scores = estimator.decision_function(X)
    assert roc_auc_score(Y.ravel(), scores.ravel()) > 0.5
    return label_ranking_average_precision_score(Y, scores)


def test_scores_are_those_of_the_attributes(multilabel, fitted):
    X, _ = multilabel
    expected = X @ fitted.coef_.T + fitted.intercept_
    np.testing.assert_allclose(fitted.decision_function(X), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fitted.decision_function(X.toarray()), expected, rtol=1e-5, atol=1e-5)


def test_topk_is_the_order_of_the_scores(multilabel, fitted):
    X, _ = multilabel
    scores = fitted.decision_function(X)
    labels, top = fitted.predict_topk(X, 4)
    assert labels.shape == top.shape == (X.shape[0], 4)
    np.testing.assert_allclose(top, -np.sort(-scores, axis=1)[:, :4], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, labels, 1), top, rtol=1e-5, atol=1e-5)


def test_topk_of_classes_gives_classes(classes):
    X, y = classes
    ours = OneVsAllClassifier().fit(X, y)
    labels, _ = ours.predict_topk(X, 3)
    np.testing.assert_array_equal(np.sort(labels, axis=1), np.tile([-7, 3, 1000], (len(y), 1)))
    np.testing.assert_array_equal(labels[:, 0], ours.predict(X))
    with pytest.raises(ValueError, match="at most 3"):
        ours.predict_topk(X, 4)
    with pytest.raises(ValueError, match="at least 1"):
        ours.predict_topk(X, 0)
    for k in (2.5, "a", None, True):
        with pytest.raises(TypeError, match=r"^k: expected a whole number of at least 1, got "):
            ours.predict_topk(X, k)


def test_too_many_scores_are_refused(multilabel, fitted, monkeypatch):
    from xmcjax.estimators import _linear

    monkeypatch.setattr(_linear, "_MOST_BYTES", 100)
    with pytest.raises(ValueError, match="predict_topk"):
        fitted.decision_function(multilabel[0])
    monkeypatch.setattr(_linear, "_PART_BYTES", 1)  # a row at a time
    dense = clone(fitted).fit(multilabel[0], multilabel[1].toarray())
    monkeypatch.undo()
    np.testing.assert_array_equal(dense.predict(multilabel[0]), fitted.predict(multilabel[0]).toarray())
