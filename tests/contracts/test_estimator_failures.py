"""What estimators refuse, and say; a fit that fails leaves an estimator as it was."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import xmcjax
from tests.support.estimators import ESTIMATORS, UNCONVERGED, clusters
from tests.support.internals import SYSTEMS
from xmcjax import losses
from xmcjax.solvers import Status
from xmcjax.solvers.multiclass_dual import FORMULATIONS

pytestmark = pytest.mark.usefixtures("default_settings")

NAMES = list(ESTIMATORS)
COUNT = "from 1 to 16384 threads, or -1 for one per core, got 0"
# of each argument that several estimators share
SHARED = [
    (dict(C=0), ValueError, "C: expected a finite number above 0, got 0"),
    (dict(C=np.inf), ValueError, "C: expected a finite number above 0, got inf"),
    (dict(C="a"), TypeError, "C: expected a number, got 'a'"),
    (dict(C=None), TypeError, "C: expected a number, got None"),
    (dict(tol=-1.0), ValueError, "tol: expected a finite number .*, got -1"),
    (dict(tol="a"), TypeError, "tol: expected a number, got 'a'"),
    (dict(max_iter=-1), ValueError, "max_iter: expected at least [01], got -1"),
    (dict(max_iter=2.5), TypeError, "max_iter: expected a whole number .*, got 2.5"),
    (dict(n_jobs=0), ValueError, f"n_jobs: expected {COUNT}"),
    (dict(n_jobs="a"), TypeError, "n_jobs: expected a whole number of threads, or -1 .*, got 'a'"),
]
LOSS = "loss: expected one of squared_hinge, logistic, huber_hinge, hinge"
OWN = {
    "OneVsAllClassifier": [
        (dict(loss="squared"), ValueError, f"{LOSS}, got 'squared'"),
        (dict(loss="hinge", penalty="l1"), ValueError, "penalty: expected l2 with the loss hinge"),
        (dict(loss=losses.hinge, init="zero"), ValueError, "init: expected mean_separating as it is"),
        (dict(loss=3), TypeError, f"{LOSS}, or an object of MarginLoss, got 3"),
        (dict(loss=losses.HuberHinge), TypeError, f"{LOSS}, or an object of MarginLoss, got <class"),
        (dict(init="msi"), ValueError, "init: expected one of zero, .*'msi'"),
        (dict(init=3), TypeError, "init: expected one of zero, .* or an object of Init, got 3"),
        (dict(init="pretrained"), ValueError, "directory of a model"),
        (dict(init="bias", fit_intercept=False), ValueError, "needs a bias"),
        (dict(clip=-0.1), ValueError, "clip"),
        (dict(block_size=0), ValueError, "block_size: expected at least 1, got 0"),
        (dict(block_size=1.5), TypeError, "block_size: expected a whole number of at least 1, got 1.5"),
        (dict(penalty="l3"), ValueError, "penalty: expected one of l2, l1, elastic_net, huber, got 'l3'"),
        (dict(penalty="elastic_net", l1_ratio=2), ValueError, "expected 0 < l1_ratio <= 1, got 2"),
        (dict(penalty="huber", huber_width="a"), TypeError, "huber_width: expected a number, got 'a'"),
        (dict(weighting="up"), ValueError, "weighting: expected one of propensity, .* got 'up'"),
        (dict(weighting="propensity", propensities="x"), ValueError, "dataset: expected one of default"),
        (dict(weighting="propensity", propensities=3), TypeError, "propensities: expected .* a pair"),
        (dict(weighting="propensity", propensities=(0, 1)), ValueError, "a: expected a positive number"),
    ],
    "MulticlassSVC": [
        (dict(formulation="wx"), ValueError, "formulation: expected one of ww, llw, .* got 'wx'"),
        (dict(tol=0), ValueError, "tol: expected a finite number above 0, got 0"),
    ],
    "MultinomialLogisticRegression": [
        (dict(solver="sgd"), ValueError, "solver: expected one of auto, "),
        (dict(C=1e-310), ValueError, "C: expected a number from 2.23e-308 to"),
        (dict(C=1.7e308), ValueError, "C: expected 1/C from 2.23e-308 to"),
        (dict(class_weight="uniform"), ValueError, "class_weight: expected None, balanced or a dict"),
        (dict(class_weight={1: -1.0}), ValueError, "class_weight: expected finite weights"),
    ],
    "TopKSVC": [
        (dict(k=0), ValueError, "k: expected at least 1, got 0"),
        (dict(k=3), ValueError, "k: expected at most 2, the number of classes less one, got 3"),
        (dict(k=1.5), TypeError, "k: expected a whole number"),
        (dict(variant="gamma"), ValueError, "variant: expected one of alpha, beta, entropy, got 'gamma'"),
        (
            dict(variant="entropy", smoothing=1.0),
            ValueError,
            "smoothing: expected 0 with the variant entropy",
        ),
        (dict(smoothing=-1), ValueError, "smoothing: expected a finite number of at least 0, got -1"),
        (dict(smoothing="soft"), TypeError, "smoothing: expected a number"),
        (dict(smoothing=1e-320), ValueError, "smoothing: expected 0 or a number from 2.23e-308"),
        (dict(kernel="rbf"), ValueError, "kernel: expected one of linear, precomputed, got 'rbf'"),
        (dict(max_iter=2**40), ValueError, "max_iter: expected at most 2147483647, got 1099511627776"),
    ],
    "KernelLogisticClassifier": [
        (dict(kernel="rbff"), ValueError, "kernel: expected one of linear, rbf, matern, precomputed"),
        (dict(kernel=3), TypeError, "or a Kernel, got 3"),
        (dict(kernel="linear", w=1.0), ValueError, "w: expected None for the kernel linear"),
        (dict(w=-1.0), ValueError, "w: expected a number above 0, got -1.0"),
        (dict(v=np.ones(4)), ValueError, r"v: expected a number or \[3\], got shape \(4,\)"),
        (dict(v="one"), TypeError, "^v: expected an array of real numbers, found"),
        (dict(v=[[1.0], [1.0, 2.0]]), ValueError, "^v: expected rows of one length, found a ragged list"),
        (dict(sigma2=-1.0), ValueError, "sigma2: expected a number from 0, got -1.0"),
        (dict(tol=0), ValueError, "tol: expected a finite number above 0"),
        (dict(memory=-1), ValueError, "memory: expected a number from 0, got -1.0"),
        (dict(likelihood="probit"), ValueError, "likelihood: expected one of softmax, one_vs_rest"),
        (dict(inner_labels=True), ValueError, "inner_labels: expected a hierarchy"),
        (dict(loadings=np.ones((2, 2))), ValueError, r"expected loadings \[3, functions\]"),
        (dict(hierarchy=[(0, 1), (2, 3), (3, 2)]), ValueError, "cycle"),
        (dict(hierarchy=[(0, 7), (0, 8)]), ValueError, "y: expected leaves of the hierarchy, found"),
        (dict(rank=3, approximation="lanczos"), ValueError, "expected one of cholesky, nystrom, fourier"),
        (dict(rank=3, approximation="fourier"), ValueError, "rank: expected an even number"),
        (dict(kernel="precomputed"), ValueError, "expected a kernel matrix"),
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_options_are_checked(name):
    X, y = clusters()
    estimator = ESTIMATORS[name]
    shared = [case for case in SHARED if case[0].keys() <= estimator.get_params().keys()]
    for options, error, message in shared + OWN[name]:
        with pytest.raises(error, match=message):
            clone(estimator).set_params(**options).fit(X, y)
            pytest.fail(f"{options} were taken")


@pytest.mark.parametrize("container", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("name", NAMES)
def test_data_are_checked(name, container):
    X, y = clusters()
    ours = ESTIMATORS[name].fit(container(X), y)
    for value, found in ((np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")):
        bad = X.copy()
        bad[7, 2] = value
        for call in (
            lambda bad=bad: clone(ours).fit(container(bad), y),
            lambda bad=bad: ours.predict(container(bad)),
        ):
            with pytest.raises(ValueError, match=rf"found {found} in row 7, column 2"):
                call()
    with pytest.raises(ValueError, match="y: expected at least two classes, found one class"):
        clone(ours).fit(container(X), 0 * y)
    with pytest.raises(ValueError, match="Unknown label type"):
        clone(ours).fit(container(X), X[:, 0])
    with pytest.raises(ValueError, match="4 features"):
        ours.predict(container(np.ones((2, 5))))
    with pytest.raises(NotFittedError):
        clone(ours).predict_topk(container(X), 1)


def other_data(failure):
    X, number = clusters(60, 6, seed=1)
    X, y = X.astype(np.float32), np.array(["ant", "bee", "cow"])[number]
    if failure == "overflow":
        X = X * np.float32(1e30)
    elif failure == "not finite":
        X[3, 2] = np.nan
    return X, y


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("failure", ["overflow", "not finite", "warning"])
def test_a_failed_refit_changes_nothing(name, failure):
    X, y = clusters(dtype=np.float32)
    estimator = ESTIMATORS[name].fit(X, y)
    expected = estimator.predict(X)
    if failure == "warning":
        estimator.set_params(**UNCONVERGED[name])
    before, (X2, y2) = dict(vars(estimator)), other_data(failure)
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


@pytest.mark.parametrize("name", NAMES)
def test_a_first_fit_that_fails_leaves_nothing(name):
    X, y = clusters()
    X[0, 0] = np.inf
    estimator = ESTIMATORS[name]
    with pytest.raises(ValueError, match="inf"):
        estimator.fit(X, y)
    assert vars(estimator) == estimator.get_params()
    with pytest.raises(NotFittedError):
        estimator.predict(X)


@pytest.mark.parametrize("name", NAMES)
def test_what_did_not_converge_is_said_at_the_line_that_called(name):
    X, y = clusters()
    estimator = ESTIMATORS[name].set_params(**UNCONVERGED[name])
    with pytest.warns(ConvergenceWarning, match=r"(raise max_iter|not converged \(MAX_STEPS)") as caught:
        estimator.fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]
    assert np.max(estimator.n_iter_) == 1 and np.isfinite(estimator.decision_function(X)).all()


REASONS = "rows whose squared norm", "overflowed", "mean variance"


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(
    ("dtype", "size"),
    [(np.float64, 1e100), (np.float64, 1e160), (np.float64, 1e-160), (np.float32, 1e19), (np.float32, 1e-30)],
)
@pytest.mark.parametrize("name", NAMES)
def test_features_of_any_size_are_right_or_have_their_sentence(name, dtype, size, container):
    X, y = load_iris(return_X_y=True)
    X = container((X[::3] * size).astype(dtype))
    model = type(ESTIMATORS[name])()
    # a warning of NumPy would be an error here
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            model.fit(X, y[::3])
        except ValueError as refusal:
            assert "\n" not in str(refusal)  # noqa: PT017 - a fit that ends is looked at below
            assert any(words in str(refusal) for words in REASONS)  # noqa: PT017
            return
    # what is said to be right has weights that are numbers; small ones are right where C is fixed
    assert caught or size < 1 or model.score(X, y[::3]) > 0.9
    assert name == "KernelLogisticClassifier" or np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize("kind", [xmcjax.MulticlassSVC, xmcjax.TopKSVC])
def test_numbers_beyond_the_dtypes(kind):
    X, y = clusters(dtype=np.float32)
    for C in (1e-42, 1e39):
        with pytest.raises(ValueError, match=r"C: expected a number from 1.18e-38 to 3.4e.38"):
            kind(C=C).fit(X, y)
    with pytest.raises(ValueError, match="squared norm is a finite float32"):
        kind().fit(np.full_like(X, 1e30), y)


@pytest.mark.parametrize("kind", SYSTEMS.values())
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("intercept", [True, False])
def test_features_of_zeros_are_a_problem_as_any_other(kind, form, intercept):
    """The minimum is at weights of zero; a bias knows how many rows a class has."""
    model = getattr(xmcjax, kind)()
    if "fit_intercept" in model.get_params():
        model.set_params(fit_intercept=intercept)
    elif not intercept:
        pytest.skip("it has no bias")
    X, y = form(np.zeros((7, 3))), np.array(list("aaaabbc"))  # more of "a" than of all others
    model.fit(X, y)
    assert set(np.atleast_1d(model.status_)) == {Status.CONVERGED}
    if hasattr(model, "coef_"):
        assert not sp.csr_matrix(model.coef_).toarray().any()
        scores = np.asarray(model.decision_function(X))
        assert np.isfinite(scores).all() and (scores == scores[0]).all()
    if intercept and kind != "KernelLogisticClassifier":
        assert (model.predict(X) == "a").all()


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("solver", ["auto", "admm"])
def test_every_multiclass_loss_takes_features_of_zeros(formulation, solver):
    y = np.arange(9) % 3
    for form in (np.asarray, sp.csr_matrix):
        model = xmcjax.MulticlassSVC(formulation, solver=solver).fit(form(np.zeros((9, 4))), y)
        assert model.status_ == Status.CONVERGED and not model.coef_.any() and model.dual_gap_ <= 1e-3


def test_the_hinge_takes_features_of_zeros():
    """Its curvature has no limit, and there is nothing that it could be of."""
    for form in (np.asarray, sp.csr_matrix):
        model = xmcjax.OneVsAllClassifier("hinge").fit(form(np.zeros((9, 4))), np.arange(9) % 3)
        assert set(model.status_) == {Status.CONVERGED} and not sp.csr_matrix(model.coef_).toarray().any()
