"""Every estimator among the tools of scikit-learn: routed weights, searches, calibration, binarizers."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, MultiLabelBinarizer, StandardScaler

import xmcjax
from tests.support.commands import Terminal
from tests.support.estimators import ESTIMATORS, clusters

pytestmark = pytest.mark.usefixtures("default_settings")

NAMES = list(ESTIMATORS)
WARM = ["OneVsAllClassifier", "MultinomialLogisticRegression", "KernelLogisticClassifier"]
VERBOSE = ["OneVsAllClassifier", "MultinomialLogisticRegression"]
FOLDS = KFold(2, shuffle=True, random_state=0)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def weighted(seed=3):
    X, y = clusters(90)
    return X, np.array(["ant", "bee", "cow"])[y], np.random.default_rng(seed).integers(0, 4, 90) + 0.25


def by_hand(estimator, X, y, weight):
    """Weighted scores of the folds of an estimator that is fitted with weights."""
    for train, test in FOLDS.split(X):
        model = clone(estimator).fit(X[train], y[train], sample_weight=weight[train])
        yield model.score(X[test], y[test], sample_weight=weight[test])


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_routed_through_a_search_and_a_pipeline(name, routing):
    X, y, weight = weighted()
    ours = ESTIMATORS[name].set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    search = GridSearchCV(ours, {"tol": [1e-3]}, cv=FOLDS).fit(X, y, sample_weight=weight)
    expected = list(by_hand(ESTIMATORS[name].set_params(**search.best_params_), X, y, weight))
    found = [search.cv_results_[f"split{i}_test_score"][0] for i in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    alone = ESTIMATORS[name].set_params(**search.best_params_).fit(X, y, weight)
    np.testing.assert_array_equal(search.decision_function(X), alone.decision_function(X))

    scores = cross_validate(
        make_pipeline(StandardScaler().set_fit_request(sample_weight=False), ours),
        X,
        y,
        cv=FOLDS,
        params={"sample_weight": weight},
        error_score="raise",
    )
    assert scores["test_score"].min() > 0.6


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_were_not_asked_for_are_refused(name, routing):
    X, y, weight = weighted()
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        GridSearchCV(ESTIMATORS[name], {"tol": [1e-3]}, cv=2).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("name", NAMES)
def test_calibration_takes_weights(name):
    X, y, weight = weighted()
    ours = CalibratedClassifierCV(ESTIMATORS[name], cv=FOLDS).fit(X, y, sample_weight=weight)
    plain = CalibratedClassifierCV(ESTIMATORS[name], cv=FOLDS).fit(X, y)
    p = ours.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert ours.score(X, y) > 0.7 and np.abs(p - plain.predict_proba(X)).max() > 1e-3


@pytest.mark.parametrize("sparse", [False, True])
def test_binarizers_there_and_back(sparse):
    X, number = clusters(90)
    names = np.array(["ant", "bee", "cow"])
    ours = xmcjax.OneVsAllClassifier(C=10.0)

    binarizer = LabelBinarizer(sparse_output=sparse)
    Y = binarizer.fit_transform(names[number])
    found = ours.fit(X, Y).predict(X)
    assert sp.issparse(found) == sparse and found.shape == Y.shape
    assert np.mean(binarizer.inverse_transform(found) == names[number]) > 0.7
    # the best label of each row, where those above 0 are none or several
    best = np.argmax(ours.decision_function(X), axis=1)
    np.testing.assert_array_equal(names[best], ours.fit(X, names[number]).predict(X))

    tags = [sorted({str(names[i]), str(names[(i + 1) % 3])}) if i else [] for i in number]
    binarizer = MultiLabelBinarizer(sparse_output=sparse)
    Y = binarizer.fit_transform(tags)
    found = binarizer.inverse_transform(ours.fit(X, Y).predict(X))
    assert np.mean([list(one) == other for one, other in zip(found, tags, strict=True)]) > 0.6


def test_two_classes_of_a_binarizer():
    X, number = clusters(90, classes=2)
    names = np.array(["no", "yes"])[number]
    binarizer = LabelBinarizer()
    Y = binarizer.fit_transform(names)
    assert Y.shape == (90, 1)
    for name in NAMES:
        ours = ESTIMATORS[name].fit(X, Y.ravel())
        assert np.mean(binarizer.inverse_transform(ours.predict(X)) == names) > 0.8


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_a_search_over_label_matrices(container):
    X, number = clusters(90)
    Y = np.eye(3, dtype=int)[number] | np.eye(3, dtype=int)[(number + 1) % 3]
    ours = xmcjax.OneVsAllClassifier()
    search = GridSearchCV(ours, {"C": [1e-4, 1.0]}, cv=FOLDS, scoring="f1_micro").fit(X, container(Y))
    assert search.best_params_ == {"C": 1.0} and search.best_score_ > 0.7
    assert sp.issparse(search.predict(X)) == (container is not np.asarray)
    scores = [
        ours.set_params(C=C).fit(X[train], container(Y[train])).score(X[test], container(Y[test]))
        for C in (1e-4, 1.0)
        for train, test in FOLDS.split(X)
    ]
    own = GridSearchCV(ours, {"C": [1e-4, 1.0]}, cv=FOLDS).fit(X, container(Y))
    np.testing.assert_allclose(own.cv_results_["mean_test_score"], np.reshape(scores, (2, 2)).mean(axis=1))
    if container is np.asarray:
        assert cross_val_predict(ours, X, Y, cv=FOLDS, method="decision_function").shape == (90, 3)


@pytest.mark.parametrize("name", NAMES)
def test_inside_one_vs_rest_of_scikit_learn(name):
    X, y = clusters(90)
    ours = OneVsRestClassifier(ESTIMATORS[name]).fit(X, y)
    assert ours.score(X, y) > 0.7


def steps(model):
    return int(np.max(model.n_iter_))


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_goes_on(name):
    X, y = clusters(90)
    tight = dict(tol=1e-10) | (dict(clip=0) if name == "OneVsAllClassifier" else {})
    cold = ESTIMATORS[name].set_params(**tight).fit(X, y)
    warm = clone(cold).set_params(warm_start=True).fit(X, y)
    np.testing.assert_array_equal(warm.decision_function(X), cold.decision_function(X))
    assert steps(warm.fit(X, y)) <= 1 < steps(cold)
    np.testing.assert_allclose(warm.decision_function(X), cold.decision_function(X), atol=1e-4)
    # another problem near by: the same minimum from either start
    y = np.where(np.arange(90) == 50, (y + 1) % 3, y)
    np.testing.assert_allclose(
        warm.fit(X, y).decision_function(X), cold.fit(X, y).decision_function(X), atol=1e-4
    )


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_with_other_classes(name):
    X, y = clusters(90)
    tight = dict(tol=1e-10) | (dict(clip=0) if name == "OneVsAllClassifier" else {})
    for before, now in ((y < 2, y < 3), (y < 3, y < 2), (y < 2, y > 0)):
        warm = ESTIMATORS[name].set_params(warm_start=True, **tight).fit(X[before], y[before])
        cold = ESTIMATORS[name].set_params(**tight).fit(X[now], y[now])
        found = warm.fit(X[now], y[now]).decision_function(X)
        np.testing.assert_allclose(found, cold.decision_function(X), atol=1e-4)
        np.testing.assert_array_equal(warm.classes_, cold.classes_)


@pytest.mark.parametrize("name", WARM[:2])
def test_a_warm_start_needs_the_same_features(name):
    X, y = clusters(90)
    warm = ESTIMATORS[name].set_params(warm_start=True).fit(X, y)
    before = dict(vars(warm))
    with pytest.raises(ValueError, match=r"^X: expected 4 features, as in the last fit, found 3$"):
        warm.fit(X[:, :3], y)
    assert vars(warm) == before
    with pytest.raises(TypeError, match=r"^warm_start: expected True or False, got 1$"):
        warm.set_params(warm_start=1).fit(X, y)


def test_a_warm_start_of_labels():
    X, _ = clusters(90, 6)
    Y = sp.csr_matrix((np.random.default_rng(1).random((90, 5)) < 0.3).astype(float))
    for init in ("mean_separating", "ova_primal", "ova_primal_pp"):
        warm = xmcjax.OneVsAllClassifier(init=init, warm_start=True, clip=0, tol=1e-6).fit(X, Y[:, :3])
        cold = xmcjax.OneVsAllClassifier(init=init, clip=0, tol=1e-6).fit(X, Y)
        warm.fit(X, Y)
        assert max(warm.n_iter_[:3]) <= 1 < min(warm.n_iter_[3:])
        np.testing.assert_allclose(warm.coef_, cold.coef_, atol=1e-4)
    with pytest.raises(ValueError, match=r"^y: expected a label matrix, as in the last fit"):
        warm.fit(X, np.arange(90) % 3)


def test_a_warm_start_of_multinomial_is_that_of_logistic_regression():
    X, y = clusters(90)
    ours = xmcjax.MultinomialLogisticRegression(tol=1e-9, warm_start=True, C=0.1).fit(X, y)
    other = LogisticRegression(tol=1e-10, max_iter=10_000, C=2.0).fit(X, y)
    for solver in ("auto", "newton", "lbfgs", "block_newton"):
        ours.set_params(C=2.0, solver=solver).fit(X, y)
        np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("name", VERBOSE)
def test_a_terminal_sees_how_far_a_fit_is(name, monkeypatch):
    X, y = clusters(90)

    def seen(verbose, stderr):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            ESTIMATORS[name].set_params(verbose=verbose).fit(X, y)
        return stderr.getvalue()

    unit = {"OneVsAllClassifier": "3/3 [", "MultinomialLogisticRegression": "iteration"}[name]
    assert unit in seen(1, Terminal()) and unit in seen(True, Terminal())
    assert seen(0, Terminal()) == seen(False, Terminal()) == ""
    # no bar in a file; a line that says how it ended may be there
    written = seen(1, io.StringIO())
    assert "\r" not in written and unit not in written.partition(":")[0] and written.count("\n") <= 1
    with pytest.raises(ValueError, match=r"^verbose: expected at least 0, got -1$"):
        seen(-1, Terminal())
    with pytest.raises(TypeError, match=r"^verbose: expected a whole number of at least 0, got 'much'$"):
        seen("much", Terminal())
