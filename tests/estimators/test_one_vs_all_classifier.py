"""OneVsAllClassifier with scikit-learn's tools: bad X, pickles, searches, threads, import."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import xmcjax
from xmcjax import OneVsAllClassifier
from xmcjax._cores import usable_cores


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
