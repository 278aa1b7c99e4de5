"""The multi-label SVM: the minimum, its certificate, and what may not change it."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from tests.support.dual_references import multilabel_dual, multilabel_objective
from tests.support.problems import needs_native
from xmcjax import losses
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md


@functools.cache
def problem(n=150, d=20, m=7, seed=0, density=0.15):
    """Rows with none, some and all labels, rows of zeros, and a label that no row has."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    scores = X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m))
    Y = scores > 1
    Y[:, -1] = False
    Y[0], Y[1], X[2:4] = False, True, 0
    return X, Y


def minimum(X, Y, C):
    """By sequential quadratic programming on W and a slack for each row."""
    (n, d), m = X.shape, Y.shape[1]
    costs = np.broadcast_to(C, n)
    A, b = [], []
    for i, labels in enumerate(Y):
        for j in np.flatnonzero(labels):
            for k in np.flatnonzero(~labels):
                row = np.zeros((d, m))
                row[:, j], row[:, k] = X[i], -X[i]
                A.append(np.concatenate([row.ravel(), np.eye(n)[i]]))
                b.append(1.0)
    A, size = np.array(A), d * m
    limits, scale = [(None, None)] * size + [(0, None)] * n, 1 / costs.max()
    found = scipy.optimize.minimize(
        lambda x: scale * (x[:size] @ x[:size] / 2 + costs @ x[size:]),
        np.concatenate([np.zeros(size), np.ones(n)]),
        jac=lambda x: scale * np.concatenate([x[:size], costs]),
        bounds=limits,
        constraints=dict(type="ineq", fun=lambda x: A @ x - np.array(b), jac=lambda x: A),
        method="SLSQP",
        options=dict(maxiter=1000, ftol=1e-13),
    )
    assert found.success, found.message
    return found.fun / scale


BACKENDS = [pytest.param("native", marks=needs_native), "jnp"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("C", [0.3, 5.0])
def test_the_minimum_is_that_of_a_quadratic_program(backend, C):
    X, Y = problem(n=18, d=3, m=4, seed=3, density=1.0)
    rng = np.random.default_rng(0)
    for costs in (C, C * rng.integers(0, 3, len(X))):
        found = md.run_multilabel(X, Y, C=costs, tol=1e-7, max_epochs=20_000, backend=backend)
        assert found.status == Status.CONVERGED
        np.testing.assert_allclose(found.primal, minimum(X, Y, costs), rtol=1e-6)


@pytest.mark.parametrize(
    ("backend", "dtype", "form", "C"),
    [
        *(
            pytest.param("native", dtype, form, C, marks=needs_native)
            for dtype in (np.float32, np.float64)
            for form in (np.asarray, sp.csr_array)
            for C in (0.01, 1.0, 50.0)
        ),
        ("jnp", np.float64, sp.csr_array, 1.0),
        ("jnp", np.float32, np.asarray, 1.0),
    ],
)
def test_the_certificate_holds(C, form, dtype, backend):
    X, Y = problem()
    X = X.astype(dtype)
    found = md.run_multilabel(form(X), sp.csr_array(Y), C=C, tol=1e-4, max_epochs=20_000, backend=backend)
    assert found.status == Status.CONVERGED and found.gap <= 1e-4 and found.W.dtype == dtype
    alpha = found.alpha.toarray()
    np.testing.assert_allclose(found.primal, multilabel_objective(found.W, X, Y, C), rtol=1e-9)
    np.testing.assert_allclose(found.dual, multilabel_dual(alpha, X, Y, C), rtol=1e-9)
    assert found.primal - found.dual <= 1.01e-4 * found.primal
    # the dual set
    assert np.all(alpha[Y] >= 0) and np.all(alpha[~Y] <= 0)
    np.testing.assert_allclose(alpha.sum(1), 0, atol=1e-9 * C)
    assert np.all(abs(alpha).sum(1) / 2 <= C * (1 + 1e-9))
    assert not alpha[0].any() and not alpha[1].any()


def test_no_feasible_point_is_below_the_dual():
    """Weak duality of the formulas themselves, at points that nobody solved for."""
    X, Y = problem()
    rng = np.random.default_rng(0)
    for _ in range(20):
        up, down = rng.random(Y.shape) * Y, rng.random(Y.shape) * ~Y
        s = rng.random((len(X), 1)) * (Y.any(1, keepdims=True) & ~Y.all(1, keepdims=True)) * 2.0
        alpha = s * (
            up / np.maximum(up.sum(1, keepdims=True), 1e-9) - down / down.sum(1, keepdims=True).clip(1e-9)
        )
        W = rng.normal(size=(X.shape[1], Y.shape[1])) * rng.choice([0.01, 0.1, 1])
        assert multilabel_dual(alpha, X, Y, 2.0) <= multilabel_objective(W, X, Y, 2.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_the_loss_of_this_library(backend):
    X, Y = problem()
    found = md.run_multilabel(X, Y, C=2.0, backend=backend)
    with jax.enable_x64(True):
        total = losses.multilabel_hinge(jnp.asarray(X @ found.W), jnp.asarray(2 * Y - 1)).sum()
    np.testing.assert_allclose(found.primal, (found.W**2).sum() / 2 + 2 * float(total), rtol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_label_a_row_is_Crammer_and_Singer(backend):
    X, Y = problem()
    one = Y.sum(1) == 1
    y = Y[one].argmax(1)
    by_class = md.run(X[one], y, formulation="cs", C=3.0, classes=Y.shape[1], tol=1e-6)
    by_label = md.run_multilabel(X[one], Y[one], C=3.0, tol=1e-6, max_epochs=20_000, backend=backend)
    np.testing.assert_allclose(by_label.primal, by_class.primal, rtol=2e-6)
    np.testing.assert_allclose(by_label.W, by_class.W, atol=1e-2)


@needs_native
def test_threads_and_dense_products_change_nothing_that_matters():
    X, Y = problem(n=700, d=40, m=60)
    rows = sp.csr_array(X)
    one, two = (md.run_multilabel(rows, Y, tol=1e-5, max_epochs=20_000, threads=t) for t in (1, 3))
    np.testing.assert_array_equal(one.W, two.W)
    dense = md.run_multilabel(X, Y, tol=1e-5, max_epochs=20_000)
    np.testing.assert_allclose(one.primal, dense.primal, rtol=2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_start_is_made_feasible_and_saves_passes(backend):
    X, Y = problem()
    first = md.run_multilabel(X, Y, C=2.0, tol=1e-5, max_epochs=20_000, backend=backend)
    again = md.run_multilabel(X, Y, C=2.0, tol=1e-4, start=first.alpha, backend=backend)
    assert again.status == Status.CONVERGED and again.epochs < first.epochs / 3
    smaller = md.run_multilabel(X, Y, C=0.5, tol=1e-5, start=first.alpha, max_epochs=20_000, backend=backend)
    fresh = md.run_multilabel(X, Y, C=0.5, tol=1e-5, max_epochs=20_000, backend=backend)
    np.testing.assert_allclose(smaller.primal, fresh.primal, rtol=2e-5)
    nonsense = np.random.default_rng(0).normal(size=Y.shape) * 1e3
    other = md.run_multilabel(X, Y, C=0.5, tol=1e-5, start=nonsense, max_epochs=20_000, backend=backend)
    np.testing.assert_allclose(other.primal, fresh.primal, rtol=2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_limits_are_kept_and_said(backend):
    X, Y = problem(n=400, d=5, density=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = md.run_multilabel(sp.csr_array(X), Y, C=1e4, tol=1e-9, max_epochs=3, backend=backend)
    assert found.status == Status.MAX_STEPS and found.epochs <= 4
    seen = []
    md.run_multilabel(X, Y, C=10.0, tol=1e-6, max_epochs=40, backend=backend, observe=seen.append)
    assert seen and all(progress.alpha().shape == Y.shape for progress in seen[:1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_steps_for_all_rows_solve_what_ascent_does_not(backend):
    X, Y = problem(n=300, d=8, m=5, density=1.0)
    X = X * np.array([1, 1, 1, 1, 5, 5, 20, 20.0])
    found = md.run_multilabel(X, Y, C=10.0, tol=1e-4, backend=backend)
    assert found.status == Status.CONVERGED and "steps for all rows" in found.reason
    np.testing.assert_allclose(found.primal, multilabel_objective(found.W, X, Y, 10.0), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-12, 1e6])
def test_scales_of_the_features(scale):
    X, Y = problem(density=1.0)
    found = md.run_multilabel((scale * X).astype(np.float32), Y, C=1 / scale**2, tol=1e-3, max_epochs=5000)
    plain = md.run_multilabel(X, Y, C=1.0, tol=1e-3, max_epochs=5000)
    assert found.status == plain.status == Status.CONVERGED
    # W of scaled features is 1/scale times it, and C · φ are the same problem divided by scale²
    np.testing.assert_allclose(found.primal * scale**2, plain.primal, rtol=3e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_so_short_that_all_variables_are_at_their_bounds(dtype, backend):
    """b of a visit is larger than C by 10¹⁰ and more."""
    X, Y = problem(density=1.0)
    found = md.run_multilabel((1e-6 * X).astype(dtype), Y, C=1e-3, tol=1e-5, backend=backend)
    assert found.status == Status.CONVERGED and found.epochs <= 30


def test_numbers_that_overflow_are_said():
    X, Y = problem()
    found = md.run_multilabel(X.astype(np.float32), Y, C=3e38, max_epochs=20)
    assert found.status != Status.CONVERGED


def test_what_cannot_be_trained_on_is_refused():
    X, Y = problem()
    cases = [
        (dict(Y=Y[:-1]), ValueError, r"^Y: expected labels of 150 rows, as X has, got shape \[149, 7\]"),
        (dict(Y=np.zeros_like(Y)), ValueError, "^Y: expected a row that has a label and lacks another"),
        (dict(Y=np.ones_like(Y)), ValueError, "^Y: expected a row that has a label and lacks another"),
        (dict(C=(Y.sum(1) == 0) * 1.0), ValueError, "^Y: expected a row that has a label and lacks another"),
        (dict(C=-1.0), ValueError, "^C: expected a finite number above 0, got -1"),
        (dict(C=-np.ones(len(X))), ValueError, "^C: expected finite numbers of at least 0, found -1"),
        (dict(tol=0), ValueError, "^tol: expected a finite number above 0, got 0"),
        (dict(start=np.zeros((2, 2))), ValueError, r"^start: expected dual variables \[150, 7\]"),
        (dict(start=np.full(Y.shape, np.nan)), ValueError, "^start: expected finite dual variables"),
        (dict(backend="gpu"), ValueError, "^backend: expected"),
        (dict(X=np.where(X > 2, np.nan, X)), ValueError, "^expected finite features, found NaN in row"),
        (dict(observe=3), TypeError, "^observe: expected a function"),
        (dict(Y="labels"), TypeError, "^Y: expected"),
    ]
    for changed, kind, said in cases:
        given = dict(X=X, Y=Y) | changed
        with pytest.raises(kind, match=said):
            md.run_multilabel(given.pop("X"), given.pop("Y"), **given)
