"""OneVsAllClassifier beside scikit-learn's LinearSVC, and the promises it adds."""

import pickle
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import label_ranking_average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import xmcjax
from xmcjax import OneVsAllClassifier, inits, losses
from xmcjax._cores import usable_cores
from xmcjax.data import make_power_law
from xmcjax.lanes import OneVsAll, Weighting, train_one_vs_all
from xmcjax.models import ShardWriter
from xmcjax.penalties import ElasticNet
from xmcjax.solvers import Status

TIGHT = dict(tol=1e-6, clip=0.0)


@pytest.fixture(scope="module")
def multilabel():
    X, Y = make_power_law(150, 60, 12, seed=3)
    Y = sp.csr_matrix(Y[:, np.asarray(Y.sum(0)).ravel() > 0])
    return X, Y


@pytest.fixture(scope="module")
def fitted(multilabel):
    return OneVsAllClassifier().fit(*multilabel)


@pytest.fixture(scope="module")
def classes():
    """Three noisy clusters; the numbers of the classes have gaps."""
    rng = np.random.default_rng(0)
    number = rng.integers(0, 3, 90)
    X = rng.normal(size=(90, 4)) + 2 * np.eye(4)[number]
    return X, np.array([-7, 3, 1000])[number]


def with_ones(X):
    return sp.hstack([sp.csr_array(X), np.ones((X.shape[0], 1))], format="csr")


def reference(X, y, weight=None, C=1.0):
    """LinearSVC with a bias as the weight of a feature of value 1, regularised."""
    svc = LinearSVC(C=C, dual=False, tol=1e-10, max_iter=100000, fit_intercept=False)
    svc.fit(with_ones(X), y, weight)
    return svc.coef_[:, :-1], svc.coef_[:, -1]


# --- y of every kind ------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(0, 1, 2), (-7, 3, 1000), ("ant", "bee", "cow"), (0.0, 2.0, 5.0)])
def test_a_class_vector_of_any_kind(classes, names):
    X, y = classes
    y = np.array(names)[np.searchsorted([-7, 3, 1000], y)]
    ours = OneVsAllClassifier(**TIGHT).fit(X, y)
    coef, intercept = reference(X, y)
    np.testing.assert_array_equal(ours.classes_, names)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, intercept, atol=1e-5)
    np.testing.assert_array_equal(ours.predict(X), np.array(names)[np.argmax(X @ coef.T + intercept, 1)])
    assert ours.predict(X).dtype == y.dtype
    assert ours.score(X, y) > 0.8


@pytest.mark.parametrize("names", [(-1, 1), (0, 1), ("no", "yes"), (3, 17), (False, True)])
def test_two_classes_are_one_problem(classes, names):
    X, y = classes
    X, y = X[y != 1000], np.array(names)[(y[y != 1000] == 3).astype(int)]
    ours = OneVsAllClassifier(**TIGHT).fit(X, y)
    coef, intercept = reference(X, y == names[1])
    assert ours.coef_.shape == (1, 4) and ours.intercept_.shape == (1,)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-5)
    scores = ours.decision_function(X)
    assert scores.shape == (len(y),)
    np.testing.assert_allclose(scores, X @ coef[0] + intercept[0], atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), np.array(names)[(scores > 0).astype(int)])
    labels, top = ours.predict_topk(X, 2)
    np.testing.assert_array_equal(labels[:, 0], ours.predict(X))
    np.testing.assert_allclose(top, np.stack([abs(scores), -abs(scores)], 1), rtol=1e-6)


def test_a_label_matrix_equals_a_loop_over_its_labels(multilabel):
    X, Y = multilabel
    X = X.astype(np.float64)
    ours = OneVsAllClassifier(**TIGHT).fit(X, Y)
    svc = OneVsRestClassifier(LinearSVC(dual=False, tol=1e-10, max_iter=100000, fit_intercept=False))
    svc.fit(with_ones(X), Y)
    coef = np.concatenate([e.coef_ for e in svc.estimators_])
    np.testing.assert_allclose(ours.coef_, coef[:, :-1], atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, coef[:, -1], atol=1e-4)


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array, np.asarray])
def test_predictions_have_the_form_of_y(multilabel, fitted, container):
    X, Y = multilabel
    y = container(Y.toarray())
    ours = OneVsAllClassifier().fit(X, y)
    np.testing.assert_array_equal(ours.coef_.toarray(), fitted.coef_.toarray())
    predicted = ours.predict(X)
    assert sp.issparse(predicted) == sp.issparse(y) and predicted.shape == y.shape
    if sp.issparse(y):
        assert predicted.format == "csr"
        assert set(predicted.data) == {1}
        predicted = predicted.toarray()
    np.testing.assert_array_equal(predicted, ours.decision_function(X) > 0)
    assert ours.score(X, y) == np.mean((predicted == Y.toarray()).all(1))


def test_stored_zeros_are_no_labels(multilabel, fitted):
    X, Y = multilabel
    stored = Y.copy()
    stored.data[::10] = 0
    twice = 2 * stored
    cleaned = stored.copy()
    cleaned.eliminate_zeros()
    assert stored.nnz > cleaned.nnz
    a, b = OneVsAllClassifier().fit(X, twice), OneVsAllClassifier().fit(X, cleaned)
    np.testing.assert_array_equal(a.coef_.toarray(), b.coef_.toarray())


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([[0, 1, 2], [1, 0, 0], [0, 0, 1], [1, 1, 2]]), "matrix of 0 and 1"),
        (np.array([[1, 2]] * 4), "matrix of 0 and 1 as y, found 2"),
        (np.array([[0.0, 3.0], [3, 0], [0, 0], [3, 3]]), "matrix of 0 and 1 as y, found 3.0"),
        (np.array([[-1, 1], [1, -1], [1, 1], [-1, -1]]), "matrix of 0 and 1 as y, found -1"),
        (sp.csr_matrix([[0, -2.0], [1, 0], [1, 1], [0, 0]]), "matrix of 0 and 1 as y, found -2.0"),
        (np.array([0.5, 1.5, 2.5, 0.5]), "Unknown label type"),
        (np.array([1, 1, 1, 1]), "at least two classes"),
        (np.array([1, 0, 1]), "inconsistent numbers of samples"),
        (np.array([1, 0, np.nan, 1]), "NaN"),
    ],
)
def test_y_is_checked(y, message):
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier().fit(np.eye(4), y)


# --- attributes, dtypes, precision ----------------------------------------------------------


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


# --- labels without positives, convergence ----------------------------------------------------


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


def test_what_did_not_converge_is_said_once(multilabel):
    X, Y = multilabel
    with pytest.warns(
        ConvergenceWarning, match=r"labels did not converge.*MAX_STEPS.*raise max_iter"
    ) as caught:
        ours = OneVsAllClassifier(max_iter=1, init="zero").fit(X, Y)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert f"{np.sum(ours.status_ == Status.MAX_STEPS)} of {Y.shape[1]}" in str(caught[0].message)
    assert set(ours.n_iter_) == {1}


@pytest.mark.parametrize("number", [2, 3])
def test_the_class_that_did_not_converge_is_named(classes, number):
    X, y = classes
    names = np.array(["ant", "bee", "cow"])[np.searchsorted([-7, 3, 1000], y)]
    X, names = X[names != "cow"] if number == 2 else X, names[names != "cow"] if number == 2 else names
    with pytest.warns(ConvergenceWarning, match="the worst is class '(bee|cow)' .MAX_STEPS") as caught:
        ours = OneVsAllClassifier(max_iter=1, tol=1e-6, init="zero").fit(X, names)
    if number == 2:
        assert "1 of 1" in str(caught[0].message) and "class 'bee'" in str(caught[0].message)
        return
    # the class named is that with the largest gradient
    y, found = (names[:, None] == ours.classes_) * 2.0 - 1, str(caught[0].message)
    W, b = np.hstack([ours.coef_.toarray(), ours.intercept_[:, None]]), with_ones(X).toarray()
    slope = -2 * np.maximum(1 - y * (b @ W.T), 0) * y
    norms = np.linalg.norm(W + slope.T @ b, axis=1)
    assert f"class '{ours.classes_[np.argmax(norms)]}'" in found


def test_a_label_whose_numbers_overflowed_is_never_predicted(multilabel, monkeypatch):
    X, Y = multilabel
    _spoil(monkeypatch, {1, 4})
    for y in (Y, Y.toarray()):
        with pytest.warns(ConvergenceWarning, match="^2 of .* worst is label 1 .NONFINITE.*huge C"):
            ours = OneVsAllClassifier().fit(X, y)
        assert (
            np.all(ours.intercept_[[1, 4]] == -np.inf)
            and np.isfinite(np.delete(ours.intercept_, [1, 4])).all()
        )
        assert np.all(ours.decision_function(X)[:, [1, 4]] == np.float32(-1e30))
        assert not ours.predict(X)[:, [1, 4]].sum()
        labels, scores = ours.predict_topk(X, Y.shape[1])
        assert not np.isin(labels, [1, 4]).any() and np.all(labels[:, -2:] == -1)
        assert np.all(scores[:, -2:] == -np.inf)


def test_a_class_whose_numbers_overflowed_is_never_predicted(classes, monkeypatch):
    X, y = classes
    _spoil(monkeypatch, {1})
    with pytest.warns(ConvergenceWarning, match="worst is class 3 .NONFINITE"):
        ours = OneVsAllClassifier().fit(X, y)
    assert set(ours.predict(X)) == {-7, 1000}
    assert set(ours.predict_topk(X, 2)[0].ravel()) == {-7, 1000}
    with pytest.raises(ValueError, match="k: expected at most 2, the number of classes with weights, got 3"):
        ours.predict_topk(X, 3)


@pytest.mark.parametrize("number", [2, 3])
def test_without_a_finite_class_there_is_no_classifier(number):
    X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32) * np.float32(1e30)
    with pytest.raises(ValueError, match=r"^no class has weights, because numbers of each overflowed: look"):
        OneVsAllClassifier(init="zero").fit(X, np.arange(12) % number)


def _spoil(monkeypatch, spoilt):
    """Lets the problems of these labels end as those that overflow do."""
    from xmcjax import lanes

    train = lanes.train_one_vs_all

    def trained(X, Y, options, sink, **more):
        def spoiling(result):
            if result.label in spoilt:
                nothing = result.indices[:0], result.values[:0]
                result = result._replace(
                    indices=nothing[0],
                    values=nothing[1],
                    bias=0.0,
                    status=Status.NONFINITE,
                    gradient_norm=np.nan,
                )
            sink(result)

        return train(X, Y, options, spoiling, **more)

    monkeypatch.setattr(lanes, "train_one_vs_all", trained)


@pytest.mark.parametrize("wide", [False, True])
def test_jax_settings_do_not_change_the_weights(multilabel, fitted, wide):
    X, Y = multilabel
    with jax.enable_x64(wide):
        other = OneVsAllClassifier().fit(X, Y)
        assert other.predict_topk(X, 2)[1].dtype == np.float32
    np.testing.assert_array_equal(other.coef_.toarray(), fitted.coef_.toarray())


def test_no_iteration_gives_the_starting_weights(multilabel):
    """⟨w0, p̄⟩ = s and ⟨w0, n̄⟩ = t, which clipped weights would miss."""
    X, Y = multilabel
    ours = OneVsAllClassifier(max_iter=0, msi_s=0.5, msi_t=-4.0).fit(X, Y)
    scores, Y = ours.decision_function(X), Y.toarray()
    np.testing.assert_allclose((scores * Y).sum(0) / Y.sum(0), 0.5, atol=1e-4)
    np.testing.assert_allclose((scores * (1 - Y)).sum(0) / (1 - Y).sum(0), -4.0, atol=1e-4)
    assert set(ours.n_iter_) == {0}


# --- parameters -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:dropping weights below clip:UserWarning")
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "huber_hinge"])
@pytest.mark.parametrize("intercept", ["regularised", "free", "none"])
def test_parameters_reach_the_trainer(multilabel, loss, intercept):
    X, Y = multilabel
    intercepts = dict(fit_intercept=intercept != "none", regularise_intercept=intercept == "regularised")
    ours = OneVsAllClassifier(
        loss,
        C=2.0,
        tol=0.1,
        clip=0.05,
        block_size=8,
        init="zero",
        **intercepts,
    ).fit(X, Y)
    options = OneVsAll(
        losses.MARGIN_LOSSES[loss], inits.Zero(), C=2.0, tol=0.1, clip=0.05, block_size=8, **intercepts
    )
    results = {}
    train_one_vs_all(X, Y, options, lambda result: results.__setitem__(result.label, result))
    for label, result in results.items():
        row = ours.coef_[label]
        np.testing.assert_array_equal(row.indices, result.indices)
        np.testing.assert_array_equal(row.data, result.values)
        assert ours.intercept_[label] == np.float32(result.bias)
    assert np.all(ours.intercept_ == 0) == (intercept == "none")


def test_objects_for_loss_and_init(multilabel):
    X, Y = multilabel
    ours = OneVsAllClassifier(losses.HuberHinge(delta=0.25), inits.MultiPos(max_positives=3), **TIGHT)
    ours = clone(ours).fit(X.astype(np.float64), Y)
    other = OneVsAllClassifier(losses.HuberHinge(delta=0.25), "zero", **TIGHT).fit(X.astype(np.float64), Y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-3)
    assert not np.allclose(ours.coef_, OneVsAllClassifier("huber_hinge", clip=0).fit(X, Y).coef_, atol=1e-2)


def test_pretrained_starts_from_a_saved_model(multilabel, fitted, tmp_path):
    X, Y = multilabel
    meta = {"n_features": X.shape[1], "n_labels": Y.shape[1], "dtype": "float32"}
    with ShardWriter(tmp_path / "model", meta) as writer:
        for label in range(Y.shape[1]):
            row = fitted.coef_[label]
            writer.add(label, row.indices, row.data, float(fitted.intercept_[label]), 1)
    again = OneVsAllClassifier(init="pretrained", pretrained=tmp_path / "model", max_iter=0).fit(X, Y)
    np.testing.assert_array_equal(again.coef_.toarray(), fitted.coef_.toarray())
    np.testing.assert_array_equal(again.intercept_, fitted.intercept_)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(loss="squared"), ValueError, "loss: expected one of squared_hinge, .*'squared'"),
        (dict(init="msi"), ValueError, "init: expected one of zero, .*'msi'"),
        (dict(loss="hinge"), TypeError, "needs a loss with curvature"),
        (dict(C=0), ValueError, "C: expected a finite number above 0"),
        (dict(tol=-1), ValueError, "tol: expected a finite number above 0, got -1"),
        (dict(clip=-0.1), ValueError, "clip"),
        (dict(block_size=0), ValueError, "block_size: expected at least 1, got 0"),
        (dict(C="a"), TypeError, "C: expected a number, got 'a'"),
        (dict(C=None), TypeError, "C: expected a number, got None"),
        (dict(tol="a"), TypeError, "tol: expected a number, got 'a'"),
        (dict(penalty="l3"), ValueError, "penalty: expected one of l2, l1, elastic_net, huber, got 'l3'"),
        (dict(penalty="elastic_net", l1_ratio=2), ValueError, "expected 0 < l1_ratio <= 1, got 2"),
        (dict(penalty="huber", huber_width="a"), TypeError, "huber_width: expected a number, got 'a'"),
        (dict(sparsify_rise="a"), TypeError, "sparsify_rise: expected a number, got 'a'"),
        (dict(sparsify_rise=-1), ValueError, "sparsify_rise: expected a finite number above 0, got -1"),
        (dict(weighting="up"), ValueError, "weighting: expected one of propensity, .* got 'up'"),
        (dict(weighting="propensity", propensities="x"), ValueError, "dataset: expected one of default"),
        (dict(weighting="propensity", propensities=3), TypeError, "propensities: expected .* a pair"),
        (dict(weighting="propensity", propensities=(0, 1)), ValueError, "a: expected a positive number"),
        (dict(clip="a"), TypeError, "clip: expected a number, got 'a'"),
        (dict(msi_s="a"), TypeError, "msi_s: expected a number, got 'a'"),
        (dict(block_size=1.5), TypeError, "block_size: expected a whole number of at least 1, got 1.5"),
        (dict(max_iter=2.5), TypeError, "max_iter: expected a whole number of at least 0, got 2.5"),
        (dict(max_iter=-1), ValueError, "max_iter: expected at least 0, got -1"),
        (
            dict(n_jobs="a"),
            TypeError,
            "n_jobs: expected a whole number of threads, or -1 for one per core, got 'a'",
        ),
        (
            dict(n_jobs=0),
            ValueError,
            "n_jobs: expected from 1 to 16384 threads, or -1 for one per core, got 0",
        ),
        (
            dict(loss=3),
            TypeError,
            "loss: expected one of squared_hinge, .* or an object of MarginLoss, got 3",
        ),
        (
            dict(loss=losses.HuberHinge),
            TypeError,
            "loss: expected one of .* or an object of MarginLoss, got <class",
        ),
        (dict(init=3), TypeError, "init: expected one of zero, .* or an object of Init, got 3"),
        (dict(init="pretrained"), ValueError, "directory of a model"),
        (dict(init="bias", fit_intercept=False), ValueError, "needs a bias"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        OneVsAllClassifier(**options).fit(np.eye(3), [0, 1, 1])


def test_l1_equals_linear_svc(multilabel):
    """At the default tolerance and at a tight one, the bias as the weight of a feature of value 1."""
    X, Y = multilabel
    X = X.astype(np.float64)
    fits = [
        (OneVsAllClassifier(penalty="l1", C=2.0, tol=eps, clip=0).fit(X, Y), relative)
        for eps, relative in ((0.01, 1e-3), (1e-6, 1e-6))
    ]
    ones = with_ones(X)
    for label in np.flatnonzero(np.asarray(Y.sum(0)).ravel())[:5].tolist():
        y = 2 * Y[:, [label]].toarray().ravel() - 1
        svc = LinearSVC(penalty="l1", dual=False, C=2.0, fit_intercept=False, tol=1e-9, max_iter=1_000_000)
        best = svc.fit(ones, y).coef_[0]

        def f(v, y=y):
            return np.abs(v).sum() + 2 * (np.maximum(1 - y * (ones @ v), 0) ** 2).sum()

        for ours, relative in fits:
            found = f(np.append(ours.coef_[label], ours.intercept_[label]))
            np.testing.assert_allclose(found, f(best), rtol=relative)
    for ours, _ in fits:
        assert (ours.coef_ == 0).mean() > 0.1


def test_penalties_of_objects_and_names_are_the_same(multilabel):
    X, Y = multilabel
    by_name = OneVsAllClassifier(penalty="elastic_net", l1_ratio=0.8).fit(X, Y)
    by_object = OneVsAllClassifier(penalty=ElasticNet(0.8)).fit(X, Y)
    np.testing.assert_array_equal(by_name.coef_.toarray(), by_object.coef_.toarray())


def test_weighting_and_sparsify_reach_the_trainer(multilabel):
    X, Y = multilabel
    for propensities, weighting in (
        ("Wikipedia", Weighting("propensity", 0.5, 0.4)),
        ((0.6, 2.6), Weighting("propensity", 0.6, 2.6)),
    ):
        ours = OneVsAllClassifier(
            weighting="propensity", propensities=propensities, sparsify_rise=0.05, clip=0
        )
        ours.fit(X, Y)
        results = []
        options = OneVsAll(sparsify_rise=0.05)
        train_one_vs_all(X, Y, options, results.append, label_weights=weighting.weights(Y))
        assert sp.issparse(ours.coef_)
        for result in results:
            np.testing.assert_array_equal(ours.coef_[result.label].data, result.values)


# --- sample weights -------------------------------------------------------------------------


def test_sample_weights_weigh_the_losses(classes):
    X, y = classes
    weight = np.random.default_rng(1).random(len(y)) * 3
    ours = OneVsAllClassifier(C=0.7, **TIGHT).fit(X, y, sample_weight=weight)
    coef, intercept = reference(X, y, weight=weight, C=0.7)
    np.testing.assert_allclose(ours.coef_, coef, atol=1e-5)
    np.testing.assert_allclose(ours.intercept_, intercept, atol=1e-5)


@pytest.mark.parametrize("init", ["mean_separating", "multi_pos", "ova_primal_pp"])
def test_a_weight_is_a_number_of_rows(multilabel, init):
    X, Y = multilabel
    X = X.astype(np.float64)
    times = np.random.default_rng(2).integers(0, 4, X.shape[0])
    rows = np.repeat(np.arange(X.shape[0]), times)
    options = dict(init=init, clip=0, max_iter=2)
    with pytest.warns(ConvergenceWarning):
        weighted = OneVsAllClassifier(**options).fit(X, Y, sample_weight=times)
    with pytest.warns(ConvergenceWarning):
        repeated = OneVsAllClassifier(**options).fit(X[rows], Y[rows])
    tolerance = 1e-3 if init == "multi_pos" else 1e-8  # whose ridge meets repeated rows
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=tolerance)
    np.testing.assert_array_equal(weighted.status_, repeated.status_)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 1], r"shape \(3,\)"),
        ([1, -1, 1], "found -1.0 for row 1"),
        ([1, 1, np.inf], "found inf for row 2"),
        ([0, 0, 0], "only zeros"),
        ([0, 1, 1], "at least two classes"),
    ],
)
def test_sample_weights_are_checked(weight, message):
    with pytest.raises(ValueError, match=message):
        OneVsAllClassifier().fit(np.eye(3), [0, 1, 1], sample_weight=weight)


# --- X, tools, import -----------------------------------------------------------------------


@pytest.mark.parametrize("container", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_place_of_what_is_not_finite_is_named(classes, value, container):
    X, y = classes
    ours = OneVsAllClassifier().fit(container(X), y)
    X = X.copy()
    X[7, 2] = value
    found = "NaN" if np.isnan(value) else str(value)
    for call in (lambda: OneVsAllClassifier().fit(container(X), y), lambda: ours.predict(container(X))):
        with pytest.raises(ValueError, match=rf"found {found} in row 7, column 2"):
            call()


def test_another_width_and_no_fit_are_refused(fitted):
    with pytest.raises(ValueError, match="60 features"):
        fitted.predict(np.ones((2, 5)))
    with pytest.raises(NotFittedError):
        OneVsAllClassifier().predict_topk(np.ones((2, 5)), 1)


def test_pickle_clone_and_search(multilabel, fitted, classes):
    X, _ = multilabel
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    assert clone(fitted).get_params() == fitted.get_params()
    search = GridSearchCV(OneVsAllClassifier(init="zero"), {"max_iter": [0, 100]}, cv=2).fit(*classes)
    assert search.best_params_ == {"max_iter": 100}


def test_threads_and_blocks_keep_the_bits(multilabel, fitted):
    X, Y = multilabel
    other = OneVsAllClassifier(n_jobs=2, block_size=4).fit(X, Y)
    np.testing.assert_array_equal(other.coef_.toarray(), fitted.coef_.toarray())
    np.testing.assert_array_equal(other.intercept_, fitted.intercept_)


def test_minus_one_job_is_a_thread_per_core(multilabel, fitted):
    X, Y = multilabel
    other = OneVsAllClassifier(n_jobs=-1)
    assert other._options().threads == usable_cores()
    assert OneVsAllClassifier()._options().threads == OneVsAllClassifier(n_jobs=-99)._options().threads == 1
    other.fit(X, Y)
    np.testing.assert_array_equal(other.coef_.toarray(), fitted.coef_.toarray())
    np.testing.assert_array_equal(other.predict_topk(X, 3)[0], fitted.predict_topk(X, 3)[0])


def test_importing_the_package_imports_little():
    program = (
        "import sys, xmcjax; assert 'OneVsAllClassifier' in dir(xmcjax)\n"
        "assert not {'jax', 'sklearn', 'numpy'} & set(sys.modules)\n"
        "import xmcjax.estimators; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    with pytest.raises(AttributeError, match="Nothing"):
        _ = xmcjax.Nothing
