"""L-BFGS for the weights of the top-k entropy: its gap, its coordinates, and what it is handed."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import certified
from tests.support.problems import svm_problem
from tests.support.topk import minimum
from xmcjax.solvers import Status, topk_sdca
from xmcjax.solvers.instance_dual import Gram

lbfgs = importlib.import_module("xmcjax.solvers._lbfgs_weights")
SETS = importlib.import_module("xmcjax.solvers._formulations").SETS
NONE = sp.csr_array((0, 0))


def entropy(X, y, m, C, k, **options):
    return lbfgs.Method(X, y, m, SETS["topk_entropy"], C, k, **options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_it_ends_at_the_minimum_with_the_gap_that_is_certified(form, k, weighted):
    X, y = svm_problem(n=24, m=5)
    C = np.random.default_rng(6).random(24) if weighted else 0.7
    for tol in (1e-2, 1e-9):
        found, passes = entropy(form(X), y, 5, C, k).in_passes(NONE, tol, 500)
        assert found.gap <= tol and 1 < passes < 100
        proof = certified(X, y, found.alpha, "topk_entropy", C, tol, found.W, k)
        # ½ ‖∇P‖² is the gap of these dual variables
        assert proof.gap == pytest.approx(found.gap, rel=1e-6, abs=1e-12)
    assert proof.primal == pytest.approx(minimum(X, y, "topk_entropy", k, 0.0, C), rel=1e-7)


@pytest.mark.parametrize("wide", [False, True])
def test_the_gradient_is_that_of_the_objective(wide):
    """In every kind of coordinates, by differences."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 30) if wide else (30, 6)), np.arange(12 if wide else 30) % 4
    kinds = {"columns": sp.csr_array(X), "eigenvectors": X}
    for name, features in kinds.items():
        steps = entropy(features, y, 4, 0.5, 2)
        u = rng.normal(size=len(steps._at.scale) * 4)
        gradient = steps._evaluate(u).gradient
        for place in range(0, len(u), 5):
            h = np.zeros_like(u)
            h[place] = 1e-6
            slope = (steps._evaluate(u + h).primal - steps._evaluate(u - h).primal) / 2e-6
            assert slope == pytest.approx(gradient[place], rel=1e-5, abs=1e-6), name
        # and back from weights to coordinates, of what the rows see of them
        Z = steps._at.rows @ u.reshape(-1, 4)
        np.testing.assert_allclose(features @ steps._at.weights(u), Z, atol=1e-9)
        again = steps._at.of_weights(steps._at.weights(u))
        np.testing.assert_allclose(steps._at.rows @ again.reshape(-1, 4), Z, atol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "products", "float32"])
def test_features_of_different_sizes_far_from_0(kind):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 6, 300)
    X = (rng.normal(size=(300, 9)) + rng.normal(size=(6, 9))[y]) * np.exp(2 * rng.normal(size=9)) + 20
    X = X.astype(np.float32) if kind == "float32" else X
    given = Gram(X @ X.T) if kind == "products" else X
    found = topk_sdca.solve(given, y, 2, 30.0, variant="entropy")
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and found.epochs < 400
    first = "epochs come first, 10 of them" if kind == "products" else "L-BFGS for the weights comes first"
    assert found.reason.startswith(first)
    W = X.T @ found.W if kind == "products" else found.W
    assert certified(X, y, found.alpha, "topk_entropy", 30.0, 1e-3, W.astype(float), 2).gap <= 1.01e-3


@pytest.mark.parametrize("k", [1, 3])
def test_classes_that_can_be_separated_by_such_features(k):
    """Curvatures fall by orders of magnitude on the way: coordinates for those of W = 0 do not end it."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 500)
    X = (rng.normal(size=(500, 60)) + rng.normal(size=(10, 60))[y]) * np.exp(2 * rng.normal(size=60))
    X += 20 * rng.normal(size=60)
    found = topk_sdca.solve(X, y, k, 30.0, variant="entropy")
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and found.epochs < 500


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((30, 300)),
        np.zeros((30, 3), np.float32),
        np.zeros((30, 0)),
        np.full((30, 40), 1e-200),
        sp.csr_array((30, 300)),
        Gram(np.zeros((30, 30), np.float32)),
    ],
    ids=["wide", "tall", "none", "tiny", "sparse", "products"],
)
def test_features_that_say_nothing(X):
    found = topk_sdca.solve(X, np.arange(30) % 3, 2, 1.0, variant="entropy")
    assert found.status == Status.CONVERGED
    # E = log 2 of two classes of the same score, each held at 1/2
    assert found.primal == pytest.approx(30 * np.log(3))


def test_sparse_features_have_epochs_first():
    X, y = svm_problem(n=50, d=30, m=5)
    rows = sp.csr_matrix(100 * X * (abs(X) > 1.5))
    epochs = topk_sdca.solve(rows, y, 1, 70.0, variant="entropy", max_epochs=10)
    assert epochs.reason.startswith("epochs come first, 10 of them") and epochs.status == Status.MAX_STEPS
    found = topk_sdca.solve(rows, y, 1, 70.0, variant="entropy")
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and 10 < found.epochs < 500


def test_where_columns_are_slow_a_basis_follows(monkeypatch):
    """From the weights that were reached, in as few evaluations as are left."""
    monkeypatch.setattr(lbfgs, "_PATIENCE", 5)
    X, y = svm_problem(n=40, d=8, m=4)
    X = sp.csr_array(X * np.logspace(-2, 2, 8))
    steps, told = entropy(X, y, 4, 10.0, 2, observe=lambda progress: told.append(progress.passes)), []
    found, passes = steps.in_passes(NONE, 1e-6, 300)
    assert found.gap <= 1e-6 and passes < 200 and told == sorted(told) and told[-1] <= passes
    assert not steps._columns_first
    proof = certified(X, y, found.alpha, "topk_entropy", 10.0, 1e-6, found.W, 2)
    assert proof.gap == pytest.approx(found.gap, rel=1e-4, abs=1e-12)


def test_a_start_saves_evaluations_and_a_later_call_goes_on():
    X, y = svm_problem(n=60, d=8, m=5)
    found = topk_sdca.solve(X, y, 2, 1.0, variant="entropy", tol=1e-8)
    near = topk_sdca.solve(X, y, 2, 1.01, variant="entropy", tol=1e-4, start=found.alpha)
    far = topk_sdca.solve(X, y, 2, 1.01, variant="entropy", tol=1e-4)
    assert near.epochs < far.epochs and near.primal == pytest.approx(far.primal, rel=2e-4)
    steps = entropy(X, y, 5, 1.0, 2)
    first, _ = steps.in_passes(NONE, 1e-3, 100)
    then, passes = steps.in_passes(NONE, 1e-3, 100)
    assert passes <= 2 and then.gap <= first.gap


@pytest.mark.parametrize(("unit", "C", "tol"), [(1e6, 10.0, 1e-7), (1e3, 1e7, 1e-7), (1e6, 10.0, 1e-9)])
def test_what_rounding_ends_a_few_epochs_solve(unit, C, tol):
    """Its weights are the best, and of their dual variables those of the epochs."""
    rng = np.random.default_rng(0)
    X, y = unit * np.eye(32)[rng.integers(0, 32, 95)], rng.integers(0, 3, 95)
    with jax.enable_x64(True):
        found = topk_sdca.solve(X, y, 1, C, variant="entropy", tol=tol)
    assert found.status == Status.CONVERGED and found.gap <= tol and found.epochs < 200
    assert certified(X, y, found.alpha, "topk_entropy", C, tol, found.W, 1).gap <= tol


@pytest.mark.parametrize("epochs", [1, 2, 7])
def test_where_it_is_cut_short(epochs):
    """The dual variables of weights far from the optimum say less than those of 0."""
    X, y = svm_problem(n=60, d=8, m=5)
    seen = []
    options = dict(variant="entropy", max_epochs=epochs, tol=1e-9)
    found = topk_sdca.solve(50 * X, y, 2, 10.0, **options, observe=seen.append)
    assert found.status == Status.MAX_STEPS and found.epochs == epochs
    assert found.primal <= 600 * np.log(5) * (1 + 1e-9)  # that of W = 0
    assert found.gap <= 1 + 1e-9
    assert all(progress.alpha().shape == (60, 5) and progress.passes <= epochs for progress in seen)


def test_what_its_observer_raises_is_raised():
    def stop(progress):
        raise StopIteration("enough")

    X, y = svm_problem(n=60, d=8, m=5)
    with pytest.raises(StopIteration, match="enough"):
        topk_sdca.solve(X, y, 2, 1.0, variant="entropy", observe=stop)


def test_of_dual_variables_below_those_of_0_the_weights_with_the_lesser_objective_are_kept():
    X, y = svm_problem(n=20, d=4, m=3)
    search = importlib.import_module("xmcjax.solvers._search").Search(X, y, "topk_beta", 100.0, 1e-9)
    alpha = sp.csr_array(np.where(np.arange(3) == y[:, None], 0, 30.0))
    far = np.ones((4, 1)) * [1.0, 2.0, 3.0]
    for W in (3 * far, 0 * far, 9 * far):
        search.keep(certified(X, y, alpha, "topk_beta", 100.0, 1e-9, W))
    assert search.found.primal == pytest.approx(2000) and not search.found.W.any()
    assert search.found.dual == 0 and not search.found.alpha.nnz


def test_it_begins_no_farther_than_what_a_start_serves():
    """W(α) = W − ∇P(W) of a point under way may have an objective that is larger by orders of magnitude."""
    X, y = svm_problem(n=60, d=8, m=5)
    X = 50 * X
    seen = []
    topk_sdca.solve(X, y, 2, 10.0, variant="entropy", tol=1e-6, observe=seen.append)
    alpha, steps = seen[3].alpha(), entropy(X, y, 5, 10.0, 2)
    W = X.T @ SETS["topk_entropy"].coefficients(alpha.toarray(), y)
    zero, whole = (steps._evaluate(steps._at.of_weights(V)).primal for V in (0 * W, W))
    assert steps._start(alpha, 100).primal <= zero < whole
    assert not steps._start(sp.csr_array((60, 5)), 100).u.any()
