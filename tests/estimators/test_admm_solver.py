"""MulticlassSVC and TopKSVC by steps for all rows at once in plain JAX."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from xmcjax.estimators import MulticlassSVC, TopKSVC

MACHINES = [
    *(MulticlassSVC(name) for name in ("ww", "cs", "llw", "ovr", "ovr_squared")),
    *(TopKSVC(2, name) for name in ("alpha", "beta")),
    TopKSVC(2, "beta", kernel="precomputed"),
]


def data(dtype=np.float64):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = rng.normal(size=(60, 6))
    X[np.arange(60), y] += 1.5
    return X.astype(dtype), np.array(["a", "b", "c", "d"])[y], rng.uniform(0.2, 2, 60)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_the_same_machine_as_by_dual_ascent(machine):
    X, y, weight = data()
    X = X @ X.T if getattr(machine, "kernel", "") == "precomputed" else X
    weight[:3] = 0  # rows that are left out
    options = dict(tol=1e-8, fit_intercept=True, class_weight="balanced", max_iter=20_000)
    machine.set_params(**options, solver="auto").fit(X, y, weight)
    expected = machine.decision_function(X)
    machine.set_params(solver="admm").fit(X, y, weight)
    np.testing.assert_allclose(machine.decision_function(X), expected, atol=2e-3)
    assert machine.dual_gap_ <= 1e-8
    assert machine.reason_ == "steps for all rows at once, which were asked for, on the cpu"


def test_sparse_features_and_float32():
    X, y, _ = data(np.float32)
    X = X * (np.abs(X) > 0.5)
    found = [MulticlassSVC("cs", solver="admm", tol=1e-5).fit(A, y).coef_ for A in (X, sp.csr_matrix(X))]
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(*found, atol=1e-5)


def test_a_warm_start_and_a_limit():
    X, y, _ = data()
    machine = MulticlassSVC(solver="admm", tol=1e-6, warm_start=True).fit(X, y)
    first = machine.n_iter_
    assert machine.fit(X, y).n_iter_ < first
    with pytest.warns(ConvergenceWarning, match="raise max_iter or tol"):
        MulticlassSVC(solver="admm", tol=1e-9, max_iter=1).fit(X, y)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (MulticlassSVC(solver="newton"), "solver: expected one of auto, admm, got 'newton'"),
        (MulticlassSVC("topk_beta", solver="admm"), "formulation: expected one of ww"),
        (TopKSVC(2, "entropy", solver="admm"), "solver: expected auto with the variant entropy, got admm"),
        (TopKSVC(2, solver="admm", smoothing=0.5), r"solver: expected auto with smoothing=0\.5, got admm"),
    ],
)
def test_what_is_refused(machine, words):
    X, y, _ = data()
    with pytest.raises(ValueError, match=words):
        machine.fit(X, y)


def test_a_label_matrix_is_refused():
    X, y, _ = data()
    Y = sp.csr_matrix(np.eye(4, dtype=int)[np.searchsorted(["a", "b", "c", "d"], y)])
    with pytest.raises(ValueError, match="solver: expected auto with a label matrix as y, got 'admm'"):
        MulticlassSVC("cs", solver="admm").fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MulticlassSVC("cs").fit(X, Y)


def test_features_that_dual_ascent_refuses():
    X, y, _ = data()
    wrong = np.where(X[7, 2] == X, np.nan, X)
    words = "expected finite features, found NaN in row 7, column 2 of X"
    for solver in ("auto", "admm"):
        with pytest.raises(ValueError, match=words):
            MulticlassSVC(solver=solver).fit(wrong, y)


def test_inner_products_that_are_all_zero():
    _, y, _ = data()
    machine = TopKSVC(2, kernel="precomputed", solver="admm").fit(np.zeros((60, 60)), y)
    assert machine.dual_gap_ <= 1e-3 and not machine.decision_function(np.zeros((1, 60))).any()


def test_inner_products_that_are_none():
    X, y, _ = data()
    K = X @ X.T
    far = np.sign(np.add.outer(X[:, 0], X[:, 0])) * np.abs(K).max()
    K = np.where(np.eye(60, dtype=bool), K, far)
    with pytest.raises(
        ValueError, match="expected positive semidefinite inner products, found the eigenvalue -"
    ):
        TopKSVC(2, kernel="precomputed", solver="admm").fit(K, y)
