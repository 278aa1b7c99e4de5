"""A fit that fails leaves an estimator as it was; a warning names the line that called fit."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import xmcjax

HUGE = 1e30
ESTIMATORS = {
    "one_vs_all": xmcjax.OneVsAllClassifier(),
    "multiclass": xmcjax.MulticlassSVC(),
    "multinomial": xmcjax.MultinomialLogisticRegression(),
    "topk": xmcjax.TopKSVC(k=1),
    "kernel": xmcjax.KernelLogisticClassifier(),
}
UNCONVERGED = {
    "one_vs_all": dict(max_iter=1, tol=1e-6, init="zero"),
    "multiclass": dict(max_iter=1, tol=1e-9),
    "multinomial": dict(max_iter=1, tol=1e-9),
    "topk": dict(max_iter=1, tol=1e-9),
    "kernel": dict(max_iter=1, tol=1e-9),
}


def data(width=4, names=("cat", "dog", "fox")):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, width)).astype(np.float32)
    return X, np.array(names)[X[:, : len(names)].argmax(1)]


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("failure", ["overflow", "not finite", "warning"])
def test_a_failed_refit_changes_nothing(name, failure):
    X, y = data()
    estimator = clone(ESTIMATORS[name]).fit(X, y)
    before, expected = dict(vars(estimator)), estimator.predict(X)
    X2, y2 = data(6, ("ant", "bee", "cow"))
    if failure == "overflow":
        X2 = X2 * np.float32(HUGE)
    elif failure == "not finite":
        X2[3, 2] = np.nan
    else:
        estimator.set_params(**UNCONVERGED[name])
        before = dict(vars(estimator))
    with warnings.catch_warnings():
        warnings.simplefilter("error" if failure == "warning" else "ignore")
        try:
            estimator.fit(X2, y2)
        except (ValueError, Warning):
            pass
        else:
            # an overflow that a solver copes with is a fit like any other
            assert failure == "overflow" and estimator.n_features_in_ == 6
            assert set(estimator.predict(X2)) <= set(y2)
            return
    assert vars(estimator) == before
    np.testing.assert_array_equal(estimator.predict(X), expected)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_first_fit_that_fails_leaves_nothing(name):
    X, y = data()
    X[0, 0] = np.inf
    estimator = clone(ESTIMATORS[name])
    with pytest.raises(ValueError, match="inf"):
        estimator.fit(X, y)
    assert vars(estimator) == estimator.get_params()
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_the_failed_search_of_a_kernel_changes_nothing():
    X, y = data()
    estimator = xmcjax.KernelLogisticClassifier(max_iter=1, tol=1e-9)
    with pytest.warns(ConvergenceWarning):
        estimator.fit(X, y)
    before = dict(vars(estimator))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            estimator.tune(X[:30], y[:30], folds=3, max_iter=1)
    assert vars(estimator) == before


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_warning_names_the_line_that_called(name):
    X, y = data()
    estimator = clone(ESTIMATORS[name]).set_params(**UNCONVERGED[name])
    with pytest.warns(ConvergenceWarning) as caught:
        estimator.fit(X, y)
    assert {warning.filename for warning in caught} == {__file__}
