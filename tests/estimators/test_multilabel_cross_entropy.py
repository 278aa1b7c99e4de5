"""Multinomial regression on label matrices: the minimum of the multi-label cross-entropy."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from tests.support.commands import run_apart
from tests.support.multilabel import D, L, N, check_that_one_label_a_row_is_a_class, problem
from xmcjax import MultinomialLogisticRegression, losses
from xmcjax.data import save_xmc
from xmcjax.solvers import Status

C = 2.0
EXACT = dict(C=C, tol=1e-9)
# the last label of the problem has no row, and each fit says so
pytestmark = pytest.mark.filterwarnings("ignore:1 of 6 labels have no positive rows:UserWarning")


def objective(W, b, s, v, intercept):
    """‖W‖²/2C + Σ_i s_i of the mean over the labels of a row, each with v_j; of labels with rows."""
    X, Y = problem()
    value = (W**2).sum() / (2 * C)
    Z = X @ W.T + b * intercept
    lse = np.logaddexp.reduce(Z, axis=1)
    for i in range(N):
        labels = np.flatnonzero(Y[i])
        if labels.size:
            value += s[i] * np.mean(v[labels] * (lse[i] - Z[i, labels]))
    return value


def minimum(s, v, intercept):
    M = L - 1  # labels with rows

    def f(x):
        return objective(x[: M * D].reshape(M, D), x[M * D :], s, v, intercept)

    def slope(x):  # of the sum that is f, by its closed form
        X, Y = problem()
        Y, of_label = Y[:, :M], v[:M]
        W, b = x[: M * D].reshape(M, D), x[M * D :]
        Z = X @ W.T + b * intercept
        P = np.exp(Z - np.logaddexp.reduce(Z, axis=1)[:, None])
        T = Y / np.maximum(Y.sum(1), 1)[:, None] * of_label * s[:, None]
        G = T.sum(1)[:, None] * P - T
        return np.concatenate([(W / C + G.T @ X).ravel(), intercept * G.sum(0)])

    options = dict(maxiter=20_000, maxfun=40_000, ftol=1e-15, gtol=1e-10)
    return scipy.optimize.minimize(
        f, np.zeros(M * (D + 1)), jac=slope, method="L-BFGS-B", options=options
    ).fun


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("solver", ["auto", "newton"])
def test_the_minimum(solver, weighted, form, intercept):
    X, Y = problem()
    rng = np.random.default_rng(1)
    s = rng.integers(0, 3, N).astype(float) if weighted else np.ones(N)
    v = rng.uniform(0.5, 2, L) if weighted else np.ones(L)
    how = dict(class_weight=dict(enumerate(v))) if weighted else {}
    model = MultinomialLogisticRegression(solver, fit_intercept=intercept, **how, **EXACT)
    model.fit(form(X), form(Y), s if weighted else None)
    assert model.status_ == Status.CONVERGED
    np.testing.assert_array_equal(model.classes_, np.arange(L))
    np.testing.assert_allclose(model.objective_, minimum(s, v, intercept), rtol=1e-8)
    W, b = np.asarray(model.coef_)[:-1], np.asarray(model.intercept_)[:-1]
    np.testing.assert_allclose(model.objective_, objective(W, b, s, v, intercept), rtol=1e-10)


def test_it_is_the_loss_of_this_library():
    X, Y = problem()
    model = MultinomialLogisticRegression(**EXACT).fit(X, Y)
    scores, signs = model.decision_function(X)[:, :-1], 2 * Y[:, :-1] - 1  # of the labels with rows
    with jax.enable_x64(True):
        total = float(losses.multilabel_cross_entropy(jnp.asarray(scores), jnp.asarray(signs)).sum())
    expected = (model.coef_**2).sum() / (2 * C) + total
    np.testing.assert_allclose(model.objective_, expected, rtol=1e-10)


def test_one_label_a_row_is_a_class():
    check_that_one_label_a_row_is_a_class(lambda: MultinomialLogisticRegression(**EXACT), 0)


def test_predictions_are_labels_and_score_is_precision_at_1():
    X, Y = problem()
    model = MultinomialLogisticRegression(C=C).fit(sp.csr_matrix(X), sp.csr_matrix(Y))
    best = model.predict_topk(X, 2)[0]
    np.testing.assert_array_equal(model.predict(X), best[:, 0])
    assert "the others, which rank the labels" in (model.predict.__doc__ or "")
    assert "of the others the softmax over all labels" in (model.predict_proba.__doc__ or "")
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    hits = Y[np.arange(N), best[:, 0]]
    assert model.score(X, Y) == model.score(sp.csr_matrix(X), sp.csr_matrix(Y)) == hits.mean()
    weight = np.arange(N)
    np.testing.assert_allclose(model.score(X, Y, weight), hits @ weight / weight.sum())
    with pytest.raises(ValueError, match=f"^y: expected {L} labels, as in fit, found {L + 1}"):
        model.score(X, sp.csr_matrix((N, L + 1)))
    with pytest.raises(ValueError, match=r"^y: expected a label matrix \[120, 6\], found shape \[120, 5\]"):
        model.score(X, Y[:, :5])


def test_label_matrices_that_cannot_be_trained_on_are_refused():
    X, Y = problem()
    fit = MultinomialLogisticRegression().fit
    with pytest.raises(ValueError, match=r"^y: expected rows of at least two labels, found 1"):
        fit(X, Y * (np.arange(L) == 0))
    with pytest.raises(ValueError, match=r"^y: expected rows of at least two labels, found 0"):
        fit(X, sp.csr_matrix(Y), (Y.sum(1) == 0).astype(float))
    with pytest.raises(ValueError, match="expected a matrix of 0 and 1 as y, found 2"):
        fit(X, 2 * Y)


def test_a_fit_that_goes_on_and_a_model_on_disk(tmp_path):
    X, Y = problem()
    model = MultinomialLogisticRegression(C=C, warm_start=True).fit(X, Y)
    model.save(tmp_path / "model")
    again = MultinomialLogisticRegression.load(tmp_path / "model")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    before = model.objective_
    assert model.fit(X, Y).objective_ <= before * (1 + 1e-4) and model.n_iter_ <= 3


def test_the_command_trains_on_rows_with_several_labels(tmp_path):
    X, Y = problem()
    save_xmc(tmp_path / "train.txt", sp.csr_matrix(X), sp.csr_matrix(Y))
    train = ["train", "--system", "multinomial", "--C", C, "--tol", "1e-8", "--dtype", "float64"]
    train += ["--train", tmp_path / "train.txt", "--test", tmp_path / "train.txt"]
    train += ["--model", tmp_path / "model"]
    done, again = run_apart([*train, "--json"], [*train, "--resume"])
    fields = json.loads(done.done().out)
    ours = MultinomialLogisticRegression(C=C, tol=1e-8).fit(X, Y)
    np.testing.assert_allclose(fields["training"]["objective"], ours.objective_, rtol=1e-6)
    stored = MultinomialLogisticRegression.load(tmp_path / "model")
    np.testing.assert_allclose(stored.predict_proba(X), ours.predict_proba(X), atol=1e-4)
    assert "nothing left to train" in again.done().out
