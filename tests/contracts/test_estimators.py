"""What every estimator keeps: labels, dtypes and forms of the data, copies, weights of rows."""

from __future__ import annotations

import collections
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from tests.support.estimators import ESTIMATORS, clusters
from xmcjax import OneVsAllClassifier

pytestmark = pytest.mark.usefixtures("default_settings")

NAMES = list(ESTIMATORS)


def fitted(name, X, y, *weight, **options):
    return ESTIMATORS[name].set_params(**options).fit(X, y, *weight)


def weights_of(model):
    return [getattr(model, name) for name in ("coef_", "intercept_", "dual_coef_") if hasattr(model, name)]


@pytest.mark.parametrize("names", [("ant", "bee", "cow"), (-7, 3, 1000), (0.0, 2.0, 5.0)])
@pytest.mark.parametrize("name", NAMES)
def test_classes_of_any_kind(name, names):
    X, number = clusters()
    names = np.array(names)
    scores = fitted(name, X, number).decision_function(X)
    ours = fitted(name, X, names[number])
    np.testing.assert_array_equal(ours.classes_, names)
    np.testing.assert_array_equal(ours.decision_function(X), scores)
    np.testing.assert_array_equal(ours.predict(X), names[scores.argmax(axis=1)])
    assert ours.predict(X).dtype == names.dtype and ours.score(X, names[number]) > 0.8
    order = np.argsort(-scores, axis=1)
    labels, top = ours.predict_topk(X, 2)
    np.testing.assert_array_equal(labels, names[order[:, :2]])
    np.testing.assert_allclose(top, np.take_along_axis(scores, order[:, :2], axis=1), rtol=1e-5)
    with pytest.raises(ValueError, match="k: expected at most 3"):
        ours.predict_topk(X, 4)
    with pytest.raises(ValueError, match="k: expected at least 1"):
        ours.predict_topk(X, 0)
    for k in (2.5, "a", None, True):
        with pytest.raises(TypeError, match=r"^k: expected a whole number of at least 1, got "):
            ours.predict_topk(X, k)


@pytest.mark.parametrize("names", [(-1, 1), ("no", "yes"), (False, True)])
@pytest.mark.parametrize("name", NAMES)
def test_two_classes_have_one_score(name, names):
    X, number = clusters()
    X, y = X[number < 2], np.array(names)[number[number < 2]]
    ours = fitted(name, X, y)
    if hasattr(ours, "coef_"):
        assert ours.coef_.shape == (1, 4) and ours.intercept_.shape == (1,)
        weights = ours.coef_.toarray() if sp.issparse(ours.coef_) else ours.coef_
        np.testing.assert_allclose(ours.decision_function(X), X @ weights[0] + ours.intercept_[0], atol=1e-9)
    scores = ours.decision_function(X)
    np.testing.assert_array_equal(ours.predict(X), np.array(names)[(scores > 0).astype(int)])
    assert ours.score(X, y) > 0.8
    labels, top = ours.predict_topk(X, 2)
    np.testing.assert_array_equal(labels[:, 0], ours.predict(X))
    assert np.all(labels[:, 0] != labels[:, 1]) and np.all(top[:, 0] >= top[:, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_forms_and_dtypes_of_features(name, dtype):
    X, y = clusters(dtype=dtype)
    X = X * (np.abs(X) > 0.5)
    ours, *others = (
        fitted(name, form(X), y)
        for form in (np.asarray, sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array)
    )
    scores = ours.decision_function(X)
    assert jnp.zeros(()).dtype == np.float32 and ours.n_features_in_ == 4
    arrays = [*weights_of(ours), scores, ours.decision_function(sp.csr_matrix(X)), ours.predict_topk(X, 2)[1]]
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}
    for other in others:
        assert {array.dtype for array in weights_of(other)} == {np.dtype(dtype)}
        np.testing.assert_allclose(other.decision_function(X), scores, atol=0.05)
        np.testing.assert_array_equal(other.decision_function(X), others[0].decision_function(X))
    # nor do JAX's settings matter
    with jax.enable_x64(True):
        again = fitted(name, X, y)
        assert again.predict_topk(X, 2)[1].dtype == dtype
    np.testing.assert_array_equal(again.decision_function(X), scores)


@pytest.mark.parametrize("name", NAMES)
def test_pickle_clone_and_search(name):
    X, y = clusters()
    ours = fitted(name, X, y)
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.decision_function(X), ours.decision_function(X))
    assert clone(ours).get_params() == ours.get_params()
    search = GridSearchCV(clone(ours), {"tol": [1e-2, 1e-3]}, cv=2).fit(X, np.array(["ant", "bee", "cow"])[y])
    assert search.best_score_ > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_is_a_number_of_rows(name):
    X, y = clusters()
    times = np.random.default_rng(2).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    options = dict(tol=1e-11, max_iter=10_000)
    weighted, repeated = fitted(name, X, y, times, **options), fitted(name, X[rows], y[rows], **options)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-5)
    assert np.abs(weighted.decision_function(X) - fitted(name, X, y).decision_function(X)).max() > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_rows_are_checked(name):
    for weight, message in (
        ([1, 1], r"shape \(3,\)"),
        ([1, -1, 1], "found -1.0 for row 1"),
        ([1, 1, np.inf], "found inf for row 2"),
        ([0, 0, 0], "only zeros"),
        ([0, 1, 1], "at least two classes"),
    ):
        with pytest.raises(ValueError, match=message):
            ESTIMATORS[name].fit(np.eye(3), [0, 1, 1], sample_weight=weight)


# Every check of the kernel machine compiles for shapes of its own: those that look at its interface run, the
# rest is slow.
QUICK = (
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_parameters_default_constructible",
    "check_estimators_pickle",
    "check_classifiers_one_label",
)


def checks():
    for name, estimator in ESTIMATORS.items():
        if name == "KernelLogisticClassifier":
            estimator = clone(estimator).set_params(tol=1e-9)
        for one, check in estimator_checks_generator(clone(estimator)):
            called = getattr(check, "func", check).__name__
            if "sample_weight_equivalence" in called:
                one = clone(one).set_params(tol=1e-12)  # the check compares seven digits
            if called == "check_class_weight_classifiers" and name.endswith("SVC"):
                # rows lie around the origin: without a bias no weights make one class of all of them
                one = clone(one).set_params(fit_intercept=True)
            if called == "check_class_weight_classifiers" and name == "KernelLogisticClassifier":
                one = clone(one).set_params(tol=1e-6)  # residuals have the size of the weights, 1,000
            slow = name == "KernelLogisticClassifier" and called not in QUICK
            yield pytest.param(one, check, id=f"{name}-{called}", marks=[pytest.mark.slow] if slow else [])


# Some of the checks' data lie far from the origin, which coordinate ascent takes many epochs for.
@pytest.mark.filterwarnings("ignore:the relative duality gap:sklearn.exceptions.ConvergenceWarning")
# One check calls partial_fit after fit, with the same y.
@pytest.mark.filterwarnings("ignore:nothing was trained:UserWarning")
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_the_checks_are_many():
    """A tag can make scikit-learn leave most checks out, which would pass unseen."""
    found = [
        getattr(check, "func", check).__name__
        for _, check in estimator_checks_generator(OneVsAllClassifier())
    ]
    assert len(found) >= 55
    for needed in ("multilabel", "sparse", "sample_weight", "pickle", "dtypes"):
        assert any(needed in name for name in found), needed


@pytest.mark.parametrize("options", [dict(loss="logistic", clip=0), dict(init="ova_primal_pp", n_jobs=2)])
def test_checks_with_other_options(options):
    results = check_estimator(OneVsAllClassifier(**options), on_skip=None)
    assert collections.Counter(result["status"] for result in results)["passed"] >= 55


def test_a_sigmoid_fails_the_checks_that_predict_by_probabilities():
    """Predictions are those of the scores, whatever calibration there is."""
    results = check_estimator(OneVsAllClassifier(calibration="sigmoid"), on_skip=None, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed == {"check_classifiers_train", "check_classifier_multioutput"}
