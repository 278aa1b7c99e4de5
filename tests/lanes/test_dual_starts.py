"""Labels with the squared hinge and long features of few rows start near the minimum of the dual."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import dual_end
from tests.support.lanes import assert_same_bits, matrix, signs, train
from tests.support.problems import needs_native
from xmcjax.inits import Zero
from xmcjax.lanes import LabelWeights
from xmcjax.solvers import Status

N, D, LABELS = 60, 300, 4

pytestmark = needs_native


@functools.cache
def data():
    """Long sparse rows, of which scores with noise make the labels; the last label has few positives."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(5 * rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.2))
    scores = X @ rng.normal(size=(D, LABELS)) + 40 * rng.normal(size=(N, LABELS))
    return X, sp.csr_matrix(scores > np.array([0, 0, 0, 60]))


def objective(X, Y, results, C, r, weights, of_labels):
    """Of each label, as numpy has it."""
    W, b = matrix(results, X.shape[1])
    values = []
    for k in range(Y.shape[1]):
        y = signs(Y, k)
        c = C * weights
        if of_labels is not None:
            c = c * np.where(y > 0, of_labels.positive[k], of_labels.negative[k])
        losses = np.maximum(1 - y * (X @ W[:, k] + b[k]), 0) ** 2
        values.append(W[:, k] @ W[:, k] / 2 + max(r, 0) * b[k] ** 2 / 2 + c @ losses)
    return np.array(values)


@pytest.mark.parametrize("form", [sp.csr_matrix, lambda X: X.toarray()], ids=["sparse", "dense"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("r", [1.0, 0.0, -1.0])
def test_few_steps_are_left_and_the_minimum_is_the_same(form, dtype, r):
    X, Y = data()
    X = X[:, :D] if form is sp.csr_matrix else X[:, : 3 * N]  # fewer than for the span of the rows
    options = dict(C=10.0, clip=0, fit_intercept=r >= 0, regularise_intercept=r != 0)
    found, _ = train(form(X).astype(dtype), Y, **options)
    other, _ = train(form(X).astype(dtype), Y, init=Zero(), **options)
    assert {result.status for result in found.values()} == {Status.CONVERGED}
    assert max(result.newton_steps for result in found.values()) <= 2
    assert max(result.newton_steps for result in other.values()) > 4
    given = 10.0, r, np.ones(X.shape[0]), None
    here, there = (objective(X, Y, results, *given) for results in (found, other))
    assert np.all(here <= 1.0005 * there)


@pytest.mark.parametrize("r", [1.0, 0.0])
def test_weights_of_rows_and_labels_count_there_too(r):
    X, Y = data()
    weights = np.arange(N) % 4 + 0.5
    weights[::7] = 0
    of_labels = LabelWeights(np.array([1.0, 2.0, 5.0, 1.0]), np.array([1.0, 0.5, 2.0, 0.1]))
    given = dict(sample_weight=weights, label_weights=of_labels, C=10.0, clip=0)
    given["regularise_intercept"] = r > 0
    found, other = train(X, Y, **given)[0], train(X, Y, init=Zero(), **given)[0]
    assert max(result.newton_steps for result in found.values()) <= 2
    here, there = (objective(X, Y, results, 10.0, r, weights, of_labels) for results in (found, other))
    assert np.all(here <= 1.0005 * there)


@pytest.mark.parametrize("form", [sp.csr_matrix, lambda X: X.toarray()], ids=["sparse", "dense"])
def test_features_of_whole_numbers_start_as_those_of_float32(form):
    X, Y = data()
    whole, options = form(X[:, : 3 * N].rint().astype(np.int16)), dict(C=10.0, regularise_intercept=False)
    found, other = (train(a, Y, **options)[0] for a in (whole, whole.astype(np.float32)))
    assert max(result.newton_steps for result in found.values()) <= 2
    assert_same_bits(found, other)


@pytest.mark.parametrize("regularised", [True, False])
def test_a_start_depends_on_no_other(regularised):
    X, Y = data()
    solved = functools.partial(train, regularise_intercept=regularised)
    ways = ({}, dict(block_size=1), dict(block_size=2, n_jobs=2), dict(labels=np.array([3, 1, 0, 2])))
    models = [matrix(solved(X, Y, C=10.0, **way)[0], D) for way in ways]
    for W, b in models[1:]:
        np.testing.assert_array_equal(W, models[0][0])
        np.testing.assert_array_equal(b, models[0][1])
    for columns in ([3, 2, 1, 0], [2]):  # in another order, and alone
        W, b = matrix(solved(X, Y[:, columns], C=10.0)[0], D)
        np.testing.assert_array_equal(W, models[0][0][:, columns])
        np.testing.assert_array_equal(b, models[0][1][columns])


@pytest.mark.parametrize("options", [dict(max_iter=50), dict(C=1e-3)])
def test_steps_are_as_ever_where_they_were_chosen_or_are_few(options, monkeypatch):
    X, Y = data()
    found = matrix(train(X, Y, **options)[0], D)
    monkeypatch.setattr("xmcjax.lanes._dual_starts.serves", lambda *_: False)
    other = matrix(train(X, Y, **options)[0], D)
    for here, there in zip(found, other, strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_a_free_bias_takes_neither_tens_of_steps_nor_conjugate_gradients(tol, monkeypatch):
    """A looser tolerance had labels end by conjugate gradients in float64, of which they need none."""
    X, Y = data()

    def called(*_):
        raise AssertionError("conjugate gradients were asked for")

    monkeypatch.setattr("xmcjax.lanes._label_features.LabelFeatures._by_gradients", called)
    found, summary = train(X, Y, C=100.0, clip=0, tol=tol, regularise_intercept=False)
    assert set(summary.statuses) == {Status.CONVERGED}
    assert max(result.newton_steps for result in found.values()) <= 2


def test_a_free_bias_ends_by_ascent_of_the_dual():
    X, Y = data()
    for c in (np.full(N, 100.0), np.where(np.arange(N) % 5, 1.0, 1000.0)):
        y = signs(Y, 3)
        *_, last = dual_end.DualEnd(X, 0.0)(y, c, np.zeros(D), 0.0)
        losses = np.maximum(1 - y * (X @ last.w + last.bias), 0) ** 2
        value = last.w @ last.w / 2 + c @ losses
        assert last.bound <= value <= (1 + 1e-6) * last.bound
