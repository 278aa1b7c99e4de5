"""Weights of the losses by label, against scikit-learn with the same weights of rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from tests.support import objectives
from tests.support.lanes import assert_same_bits, matrix, signs, small, train, vector
from tests.support.problems import needs_native
from xmcjax import losses, metrics
from xmcjax.lanes import WEIGHTINGS, LabelWeights, Weighting
from xmcjax.models import ArrayModel, predict_topk
from xmcjax.solvers import Status


@pytest.fixture(scope="module")
def data():
    return small(dtype=np.float64)


@pytest.fixture(scope="module")
def random_weights(data):
    rng = np.random.default_rng(3)
    count = data[1].shape[1]
    negative = np.where(np.arange(count) % 3, 1.0, rng.uniform(0.2, 2, count))  # many share a 1
    return LabelWeights(rng.uniform(0.5, 5, count), negative)


def test_the_weights_are_those_of_dismecpp():
    """Its tests: 1 positive of 50 rows has the propensity 0.25562…, 25 of 50 have 0.55716…"""
    Y = np.zeros((50, 2))
    Y[0, 0] = 1
    Y[:25, 1] = 1
    p = np.array([0.25562221863533147, 0.5571545100089221])
    up = Weighting("propensity", 0.55, 1.5).weights(Y)
    np.testing.assert_allclose(up.positive, 2 / p - 1)
    np.testing.assert_array_equal(up.negative, 1)
    down = Weighting("propensity_down", 0.55, 1.5).weights(Y)
    np.testing.assert_array_equal(down.positive, 1)
    np.testing.assert_allclose(down.negative, p / (2 - p))
    assert Weighting.of_preset("propensity", "Amazon-670K") == Weighting("propensity", 0.6, 2.6)
    with pytest.raises(ValueError, match=r"^weighting: propensities need at least 3 rows, found 2$"):
        Weighting("propensity", 0.55, 1.5).weights(Y[:2])
    assert set(WEIGHTINGS) == {"propensity", "propensity_down"}


@pytest.mark.parametrize("name", [*WEIGHTINGS, "random"])
@pytest.mark.parametrize(("eps", "relative"), [(0.01, 1e-3), (1e-6, 1e-6)])
def test_the_optimum_is_that_of_linear_svc(data, random_weights, name, eps, relative):
    X, Y = data
    weights = random_weights
    if name != "random":
        weights = WEIGHTINGS[name](metrics.inverse_propensities(Y))
    sample_weight = np.random.default_rng(5).uniform(0.5, 2, X.shape[0])
    more = dict(sample_weight=sample_weight, tol=eps, clip=0.0, block_size=4)
    ours, _ = train(X, Y, label_weights=weights, C=3.0, **more)
    ones = sp.hstack([X, np.ones((X.shape[0], 1))], format="csr")
    for label, result in ours.items():
        if result.status == Status.NO_POSITIVES:
            continue
        y = signs(Y, label)
        c = 3 * sample_weight * np.where(y > 0, weights.positive[label], weights.negative[label])
        svc = LinearSVC(dual=False, fit_intercept=False, tol=1e-9, max_iter=100000)
        v = svc.fit(ones, y, sample_weight=c).coef_[0]
        np.testing.assert_allclose(
            result.value, objectives.lanes(X, y, v[:-1], v[-1], "squared_hinge", c), rtol=relative
        )
        found = objectives.lanes(X, y, vector(result, X.shape[1]), result.bias, "squared_hinge", c)
        np.testing.assert_allclose(found, result.value, rtol=1e-9)


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "jnp", "dense"])
def test_logistic_with_a_free_bias_equals_scikit_learn(data, random_weights, backend):
    X, Y = data
    weights = random_weights
    chosen = np.flatnonzero(np.asarray(Y.sum(0)).ravel())[:7]
    options = dict(
        loss=losses.logistic, regularise_intercept=False, tol=1e-8, clip=0.0, block_size=3, backend=backend
    )
    ours, _ = train(X, Y, label_weights=weights, labels=chosen, **options)
    for label in chosen.tolist():
        y = signs(Y, label)
        c = np.where(y > 0, weights.positive[label], weights.negative[label])
        theirs = LogisticRegression(tol=1e-10, max_iter=1000).fit(X, y, sample_weight=c)
        np.testing.assert_allclose(vector(ours[label], X.shape[1]), theirs.coef_[0], atol=1e-5)
        np.testing.assert_allclose(ours[label].bias, theirs.intercept_[0], atol=1e-5)


def test_rare_labels_come_first_more_often(data):
    X, Y = data
    counts = np.asarray(Y.sum(0)).ravel()
    rare = np.flatnonzero((counts > 0) & (counts <= np.median(counts)))
    shares = []
    for weights in (None, WEIGHTINGS["propensity"](metrics.inverse_propensities(Y, 0.6, 2.6))):
        coef, bias = matrix(train(X, Y, label_weights=weights)[0], X.shape[1])
        best, _ = predict_topk(ArrayModel(coef.T, np.where(counts, bias, -np.inf)), X, 3)
        shares.append(np.isin(best, rare).mean())
    assert shares[1] > shares[0] > 0


@needs_native
def test_bits(data, random_weights):
    """Weights of 1 change no bit; nor do block size, threads, or the labels that a lane had before."""
    X, Y = small()
    plain, _ = train(X, Y)
    ones = np.ones(Y.shape[1])
    assert_same_bits(train(X, Y, label_weights=LabelWeights(ones, ones))[0], plain)
    reference, _ = train(X, Y, label_weights=random_weights)
    for options in (dict(block_size=3, n_jobs=2), dict(block_size=40)):
        assert_same_bits(train(X, Y, label_weights=random_weights, **options)[0], reference)


@pytest.mark.parametrize(("weighted", "eps"), [(True, 0.1), (False, 0.1), (False, 1e-5)])
def test_the_stopping_rule(data, random_weights, weighted, eps):
    """‖∇f‖ ≤ ε₀ max(1, min(|P|, |N|))/n ‖∇f(0)‖, the bias included."""
    X, Y = data
    weights = random_weights if weighted else LabelWeights(*np.ones((2, Y.shape[1])))
    ones = np.hstack([X.toarray(), np.ones((X.shape[0], 1))])
    y = 2 * Y.toarray() - 1
    c = np.where(y > 0, weights.positive, weights.negative)
    at_zero = 2 * np.linalg.norm(ones.T @ (c * y), axis=0)
    positives = Y.toarray().sum(0)
    bound = eps * np.maximum(1, np.minimum(positives, len(y) - positives)) / len(y) * at_zero
    results, _ = train(X, Y, label_weights=weights if weighted else None, tol=eps)
    for label, result in results.items():
        if positives[label]:
            assert result.gradient_norm <= bound[label] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("positive", "negative", "message"),
    [
        ([1.0, 0.0], [1.0, 1.0], "positive weights above zero, found 0.0 for label 1"),
        ([1.0, 1.0], [np.nan, 1.0], "negative weights above zero, found nan for label 0"),
        ([1.0, 1.0], [1.0], "as many negative weights as labels"),
    ],
)
def test_weights_that_are_none(positive, negative, message):
    with pytest.raises(ValueError, match=message):
        LabelWeights(positive, negative)


def test_weights_of_other_labels(data):
    with pytest.raises(ValueError, match="expected weights of 30 labels, got 2"):
        train(*data, label_weights=LabelWeights(np.ones(2), np.ones(2)))
