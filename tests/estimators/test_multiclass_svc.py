"""MulticlassSVC: labels, features and options of every kind, and what it promises of its optimum."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from xmcjax import MulticlassSVC
from xmcjax.solvers import Status

NAMES = np.array(["ant", "bee", "cow", "dog"])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    return X, np.argmax(X @ rng.normal(size=(6, 4)) + rng.normal(size=(120, 4)), axis=1)


def objective(X, y, W, formulation, C):
    Z, rows = X @ W.T, np.arange(len(y))
    if formulation.startswith("ovr"):
        losses = np.maximum(0, 1 - np.where(np.eye(len(W))[y] > 0, 1, -1) * Z)
        losses = losses**2 if formulation == "ovr_squared" else losses
        return (W**2).sum() / 2 + C * losses.sum()
    gains = 1 + Z - (0 if formulation == "llw" else Z[rows, y][:, None])
    gains[rows, y] = 0
    gains = np.maximum(0, gains)
    return (W**2).sum() / 2 + C * (gains.max(1) if formulation == "cs" else gains.sum(1)).sum()


@pytest.mark.parametrize("formulation", ["ww", "llw", "cs", "ovr", "ovr_squared"])
def test_no_other_weights_are_better(data, formulation):
    X, y = data
    ours = MulticlassSVC(formulation, C=0.5, tol=1e-5).fit(X, y)
    assert ours.status_ == Status.CONVERGED and -1e-12 < ours.dual_gap_ < 1e-4 and ours.n_iter_ > 1
    best = objective(X, y, ours.coef_, formulation, 0.5)
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-2, 0.1):
        change = size * rng.normal(size=ours.coef_.shape)
        if formulation == "llw":
            change -= change.mean(0)
            np.testing.assert_allclose(ours.coef_.sum(0), 0, atol=1e-12)
        assert objective(X, y, ours.coef_ + change, formulation, 0.5) > (1 - 1e-5) * best


def test_crammer_singer_with_a_bias_is_scikit_learns(data):
    X, y = data
    options = dict(C=0.3, tol=1e-8, max_iter=100_000, intercept_scaling=1)
    theirs = LinearSVC(multi_class="crammer_singer", **options).fit(X, y)
    ours = MulticlassSVC("cs", C=0.3, tol=1e-6, fit_intercept=True).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    np.testing.assert_allclose(ours.decision_function(X), X @ ours.coef_.T + ours.intercept_)


def test_labels_of_any_kind(data):
    X, y = data
    numbers = MulticlassSVC(random_state=0).fit(X, y)
    for names in (NAMES, np.array([-7, 3, 20, 1000]), np.array([0.0, 1.0, 2.0, 5.0])):
        ours = MulticlassSVC(random_state=0).fit(X, names[y])
        np.testing.assert_array_equal(ours.classes_, names)
        np.testing.assert_array_equal(ours.coef_, numbers.coef_)
        np.testing.assert_array_equal(ours.predict(X), names[np.argmax(X @ ours.coef_.T, axis=1)])
        labels, _ = ours.predict_topk(X, 2)
        np.testing.assert_array_equal(labels, names[np.argsort(-(X @ ours.coef_.T), axis=1)[:, :2]])


@pytest.mark.parametrize("formulation", ["ww", "ovr"])
def test_two_classes_have_one_row_of_weights(data, formulation):
    X, y = data
    two = y < 2
    ours = MulticlassSVC(formulation, C=0.2, tol=1e-6).fit(X[two], NAMES[y[two]])
    assert ours.coef_.shape == (1, 6) and ours.intercept_.shape == (1,)
    # Weston-Watkins: w_1 = −w_0 = w/2 of the binary SVM with twice the C
    C = 0.4 if formulation == "ww" else 0.2
    svc = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=100_000).fit(X[two], y[two])
    np.testing.assert_allclose(ours.coef_, svc.coef_, atol=1e-3)
    np.testing.assert_array_equal(ours.predict(X), NAMES[(X @ ours.coef_[0] > 0).astype(int)])


def test_the_precision_is_that_of_the_features(data):
    X, y = data
    wide = MulticlassSVC(tol=1e-4, random_state=0).fit(X, y)
    assert wide.coef_.dtype == wide.intercept_.dtype == np.float64
    narrow = MulticlassSVC(tol=1e-3, random_state=0).fit(sp.csr_array(X.astype(np.float32)), y)
    assert narrow.coef_.dtype == narrow.intercept_.dtype == np.float32
    np.testing.assert_allclose(narrow.coef_, wide.coef_, atol=2e-2)
    with jax.enable_x64(True):
        again = MulticlassSVC(tol=1e-4, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.coef_, wide.coef_)


def test_what_did_not_converge_is_said(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match=r"after 1 epochs, above tol=0.001: raise max_iter"):
        assert MulticlassSVC(max_iter=1).fit(X, y).status_ == Status.MAX_STEPS


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(formulation="wx"), ValueError, "formulation: expected one of ww, llw, .* got 'wx'"),
        (dict(C=0), ValueError, "C: expected a finite number above 0, got 0"),
        (dict(C="1"), TypeError, "C: expected a number, got '1'"),
        (dict(tol=0), ValueError, "tol: expected a finite number above 0, got 0"),
        (dict(max_iter=0), ValueError, "max_iter: expected at least 1, got 0"),
        (
            dict(n_jobs=0),
            ValueError,
            "n_jobs: expected from 1 to 16384 threads, or -1 for one per core, got 0",
        ),
    ],
)
def test_bad_options_are_named(data, options, error, message):
    with pytest.raises(error, match=message):
        MulticlassSVC(**options).fit(*data)


def test_bad_data_are_named(data):
    X, y = data
    broken = X.copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"^expected finite features, found NaN in row 3, column 2 of X$"):
        MulticlassSVC().fit(broken, y)
    with pytest.raises(
        ValueError, match=r"^expected features that are not all zero, found 120 rows of zeros$"
    ):
        MulticlassSVC().fit(0 * X, y)
    with pytest.raises(ValueError, match=r"^expected at least two classes in y, found one class$"):
        MulticlassSVC().fit(X, 0 * y)
