"""OneVsAllClassifier beside LinearSVC; what a fit of label matrices leaves behind, and what it predicts."""

import functools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import label_ranking_average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_score

from tests.support.estimators import TIGHT, clusters, linear_svc, with_ones
from xmcjax import OneVsAllClassifier
from xmcjax.solvers import Status


def test_a_label_matrix_is_a_loop_over_its_labels(multilabel):
    X, Y = multilabel
    ours = OneVsAllClassifier(**TIGHT).fit(X.astype(np.float64), Y)
    for label, y in enumerate(Y.toarray().T):
        coef, intercept = linear_svc(X, y)
        np.testing.assert_allclose(ours.coef_[label], coef[0], atol=1e-4)
        np.testing.assert_allclose(ours.intercept_[label], intercept[0], atol=1e-4)


def test_l1_equals_linear_svc(multilabel):
    """At the default tolerance and at a tight one."""
    X, Y = multilabel
    X, ones = X.astype(np.float64), with_ones(X)
    fits = [
        (OneVsAllClassifier(penalty="l1", C=2.0, tol=tol, clip=0).fit(X, Y), relative)
        for tol, relative in ((0.01, 1e-3), (1e-6, 1e-6))
    ]
    for label in range(5):
        y = 2 * Y[:, [label]].toarray().ravel() - 1

        def objective(w, b, y=y):
            v = np.append(w, b)
            return np.abs(v).sum() + 2 * (np.maximum(1 - y * (ones @ v), 0) ** 2).sum()

        best = objective(*linear_svc(X, y, penalty="l1", C=2.0, tol=1e-9))
        for ours, relative in fits:
            found = objective(ours.coef_[label], ours.intercept_[label])
            np.testing.assert_allclose(found, best, rtol=relative)
    assert all((ours.coef_ == 0).mean() > 0.1 for ours, _ in fits)


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array, np.asarray])
def test_predictions_have_the_form_of_y(multilabel, fitted, container):
    X, Y = multilabel
    y = container(Y.toarray())
    ours = OneVsAllClassifier().fit(X, y)
    np.testing.assert_array_equal(ours.coef_.toarray(), fitted.coef_.toarray())
    predicted = ours.predict(X)
    assert sp.issparse(predicted) == sp.issparse(y) and predicted.shape == y.shape
    if sp.issparse(y):
        assert predicted.format == "csr" and set(predicted.data) == {1}
        predicted = predicted.toarray()
    np.testing.assert_array_equal(predicted, ours.decision_function(X) > 0)
    assert ours.score(X, y) == np.mean((predicted == Y.toarray()).all(1))


def test_a_matrix_of_one_label_is_scored(multilabel):
    X, Y = multilabel
    one = Y[:, [np.argmax(Y.sum(axis=0))]]
    ours = OneVsAllClassifier().fit(X, one)
    predicted = ours.predict(X)
    assert sp.issparse(predicted) and predicted.shape == one.shape
    right = (predicted != one).toarray()[:, 0] == 0
    weight = np.arange(1.0, len(right) + 1)
    for y in (one, 3 * one, one.toarray(), one.toarray().astype(bool)):
        assert ours.score(X, y) == pytest.approx(right.mean())
        assert ours.score(X, y, weight) == pytest.approx(np.average(right, weights=weight))
    assert 0.5 < right.mean() < 1
    with pytest.raises(ValueError, match=r"shape \(\d+, 2\)"):
        ours.score(X, Y[:, :2].toarray())


def test_stored_zeros_are_no_labels(multilabel):
    X, Y = multilabel
    stored = Y.copy()
    stored.data[::10] = 0
    cleaned = stored.copy()
    cleaned.eliminate_zeros()
    assert stored.nnz > cleaned.nnz
    a, b = OneVsAllClassifier().fit(X, 2 * stored), OneVsAllClassifier().fit(X, cleaned)
    np.testing.assert_array_equal(a.coef_.toarray(), b.coef_.toarray())


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([[0, 1, 2], [1, 0, 0], [0, 0, 1], [1, 1, 2]]), "matrix of 0 and 1"),
        (np.array([[1, 2]] * 4), "matrix of 0 and 1 as y, found 2"),
        (np.array([[0.0, 3.0], [3, 0], [0, 0], [3, 3]]), "matrix of 0 and 1 as y, found 3.0"),
        (np.array([[-1, 1], [1, -1], [1, 1], [-1, -1]]), "matrix of 0 and 1 as y, found -1"),
        (sp.csr_matrix([[0, -2.0], [1, 0], [1, 1], [0, 0]]), "matrix of 0 and 1 as y, found -2.0"),
        (np.array([1, 0, 1]), "inconsistent numbers of samples"),
        (np.array([1, 0, np.nan, 1]), "NaN"),
    ],
)
def test_y_is_checked(y, message):
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier().fit(np.eye(4), y)


@pytest.mark.parametrize("options", [dict(n_jobs=2, block_size=4), dict(n_jobs=-1)])
def test_threads_and_blocks_keep_the_bits(multilabel, fitted, options):
    other = OneVsAllClassifier(**options).fit(*multilabel)
    np.testing.assert_array_equal(other.coef_.toarray(), fitted.coef_.toarray())
    np.testing.assert_array_equal(other.intercept_, fitted.intercept_)
    X, _ = multilabel
    np.testing.assert_array_equal(other.predict_topk(X, 3)[0], fitted.predict_topk(X, 3)[0])


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


def test_a_clip_that_is_too_large_for_the_features_is_said():
    X, y = clusters()
    message = r"below clip = 0.01 raised the objective of \d+ labels? by more than"
    with pytest.warns(UserWarning, match=message) as found:
        OneVsAllClassifier(clip=0.01).fit(X * 1000, y)
    assert [w.filename for w in found] == [__file__] and ", that of class " in str(found[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OneVsAllClassifier().fit(X * 1000, y)


def test_scores_are_those_of_the_attributes_and_topk_is_their_order(multilabel, fitted):
    X, _ = multilabel
    scores = fitted.decision_function(X)
    np.testing.assert_allclose(scores, X @ fitted.coef_.T + fitted.intercept_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fitted.decision_function(X.toarray()), scores, rtol=1e-5, atol=1e-5)
    labels, top = fitted.predict_topk(X, 4)
    np.testing.assert_allclose(top, -np.sort(-scores, axis=1)[:, :4], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, labels, 1), top, rtol=1e-5, atol=1e-5)


def _ranking(estimator, X, Y):
    scores = estimator.decision_function(X)
    assert roc_auc_score(Y.ravel(), scores.ravel()) > 0.5
    return label_ranking_average_precision_score(Y, scores)


@pytest.mark.filterwarnings("ignore:.* labels have no positive rows:UserWarning")
def test_metrics_take_the_scores_of_a_fold_that_lacks_a_label(multilabel):
    X, Y = multilabel
    rows = np.arange(X.shape[0])
    # in the first fold, so that the others train without it and it is scored there
    Y = np.hstack([Y.toarray(), rows[:, None] < 2])
    split = [(rows[10:], rows[:10])]
    score = cross_val_score(OneVsAllClassifier(), X, Y, cv=split, scoring=_ranking, error_score="raise")
    assert 0 < score[0] < 1


def test_too_many_scores_are_refused(multilabel, fitted, monkeypatch):
    X, Y = multilabel
    monkeypatch.setattr("xmcjax.estimators._linear._MOST_BYTES", 100)
    with pytest.raises(ValueError, match="predict_topk"):
        fitted.decision_function(X)
    monkeypatch.setattr("xmcjax.models._weights._SCORES", 1)  # a row at a time
    dense = clone(fitted).fit(X, Y.toarray())
    monkeypatch.undo()
    np.testing.assert_array_equal(dense.predict(X), fitted.predict(X).toarray())


def test_labels_without_positives(multilabel):
    X, Y = multilabel
    Y = sp.hstack([sp.csr_matrix((X.shape[0], 2)), Y], format="csr")
    with pytest.warns(UserWarning, match=rf"^2 of {Y.shape[1]} labels have no positive rows") as caught:
        ours = OneVsAllClassifier().fit(X, Y)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert list(ours.status_[:2]) == [Status.NO_POSITIVES] * 2 and list(ours.n_iter_[:2]) == [0, 0]
    assert np.all(ours.decision_function(X)[:, :2] == np.float32(-1e30))
    assert ours.predict(X)[:, :2].nnz == 0
    labels, scores = ours.predict_topk(X, Y.shape[1])
    assert np.all(labels[:, -2:] == -1) and np.all(scores[:, -2:] == -np.inf)
    assert labels[:, :-2].min() == 2


def test_labels_that_did_not_converge_are_counted(multilabel):
    X, Y = multilabel
    with pytest.warns(
        ConvergenceWarning, match=r"labels did not converge.*MAX_STEPS.*raise max_iter"
    ) as caught:
        ours = OneVsAllClassifier(max_iter=1, init="zero").fit(X, Y)
    assert f"{np.sum(ours.status_ == Status.MAX_STEPS)} of {Y.shape[1]}" in str(caught[0].message)
    assert set(ours.n_iter_) == {1}


@pytest.mark.parametrize("classes", [2, 3])
def test_the_class_that_did_not_converge_is_named(classes):
    X, number = clusters(classes=classes)
    names = np.array(["ant", "bee", "cow"])[number]
    with pytest.warns(ConvergenceWarning, match="the worst is class '(ant|bee|cow)' .MAX_STEPS") as caught:
        ours = OneVsAllClassifier(max_iter=1, tol=1e-6, init="zero").fit(X, names)
    worst = "bee"
    if classes == 3:  # that with the largest gradient
        y, ones = np.where(names[:, None] == ours.classes_, 1, -1), with_ones(X).toarray()
        W = np.hstack([ours.coef_.toarray(), ours.intercept_[:, None]])
        slope = -2 * np.maximum(1 - y * (ones @ W.T), 0) * y
        worst = ours.classes_[np.argmax(np.linalg.norm(W + slope.T @ ones, axis=1))]
    assert f"class '{worst}'" in str(caught[0].message)
    assert ("1 of 1" in str(caught[0].message)) == (classes == 2)


@pytest.fixture
def spoil(monkeypatch):
    """Lets the problems of some labels end as those that overflow do."""
    from xmcjax import lanes

    train = lanes.train_one_vs_all

    def trained(X, Y, options, sink, spoilt, **more):
        def spoiling(result):
            if result.label in spoilt:
                nothing = dict(indices=result.indices[:0], values=result.values[:0], bias=0.0)
                result = result._replace(status=Status.NONFINITE, gradient_norm=np.nan, **nothing)
            sink(result)

        return train(X, Y, options, spoiling, **more)

    def labels(*spoilt):
        monkeypatch.setattr(lanes, "train_one_vs_all", functools.partial(trained, spoilt=spoilt))

    return labels


def test_a_label_whose_numbers_overflowed_is_never_predicted(multilabel, spoil):
    X, Y = multilabel
    spoil(1, 4)
    for y in (Y, Y.toarray()):
        with pytest.warns(ConvergenceWarning, match="^2 of .* worst is label 1 .NONFINITE.*huge C"):
            ours = OneVsAllClassifier().fit(X, y)
        assert np.all(ours.intercept_[[1, 4]] == -np.inf)
        assert np.isfinite(np.delete(ours.intercept_, [1, 4])).all()
        assert np.all(ours.decision_function(X)[:, [1, 4]] == np.float32(-1e30))
        assert not ours.predict(X)[:, [1, 4]].sum()
        labels, scores = ours.predict_topk(X, Y.shape[1])
        assert not np.isin(labels, [1, 4]).any() and np.all(labels[:, -2:] == -1)
        assert np.all(scores[:, -2:] == -np.inf)


def test_a_class_whose_numbers_overflowed_is_never_predicted(spoil):
    X, number = clusters()
    spoil(1)
    with pytest.warns(ConvergenceWarning, match="worst is class 3 .NONFINITE"):
        ours = OneVsAllClassifier().fit(X, np.array([-7, 3, 1000])[number])
    assert set(ours.predict(X)) == {-7, 1000}
    assert set(ours.predict_topk(X, 2)[0].ravel()) == {-7, 1000}
    with pytest.raises(ValueError, match="k: expected at most 2, the number of classes with weights, got 3"):
        ours.predict_topk(X, 3)


@pytest.mark.parametrize("number", [2, 3])
def test_without_a_finite_class_there_is_no_classifier(number):
    X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32) * np.float32(1e30)
    with pytest.raises(ValueError, match=r"^no class has weights, because numbers of each overflowed: look"):
        OneVsAllClassifier(init="zero").fit(X, np.arange(12) % number)


def test_predictions_are_those_of_the_scores_in_any_precision(multilabel, fitted):
    X, _ = multilabel
    model = clone(fitted).fit(X, np.arange(X.shape[0]) % 5)
    rng = np.random.default_rng(0)
    model.coef_ = np.zeros((5, X.shape[1]))
    model.intercept_ = 1 + 1e-9 * rng.permutation(5).astype(np.float64)
    for dtype in (np.float32, np.float64):
        scores = model.decision_function(X.astype(dtype))
        np.testing.assert_array_equal(model.predict(X.astype(dtype)), model.classes_[scores.argmax(axis=1)])
        labels, best = model.predict_topk(X.astype(dtype), 1)
        np.testing.assert_array_equal(labels[:, 0], model.predict(X.astype(dtype)))
        assert best.dtype == scores.dtype == np.float64
