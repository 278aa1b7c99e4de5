"""Kernel regression where numbers are rounded away: far from the data, and with large variances."""

from __future__ import annotations

import numpy as np
import pytest

from xmcjax import KernelChainClassifier, KernelLogisticClassifier


def test_probabilities_that_are_rounded_do_not_decide():
    """Far outside of the data several σ(u) are 1, and several e^u are 0."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 300, p=[0.25, 0.4, 0.35])
    X = np.array([[-3.0, 0], [-3.0, 2.0], [3.0, 0]])[y] + rng.normal(size=(300, 2))
    far = np.array([[-120.0, 40.0], [-1e4, 3e3], [1e4, -1e4]])
    for likelihood in ("one_vs_rest", "softmax"):
        model = KernelLogisticClassifier("linear", v=10.0, likelihood=likelihood).fit(X, y)
        best, u = model.predict_topk(far, 3)
        np.testing.assert_array_equal(best, np.argsort(-model.decision_function(far), axis=1))
        np.testing.assert_array_equal(model.predict(far), best[:, 0])
        again, p = model.predict_topk(far, 3, probabilities=True)
        np.testing.assert_array_equal(again, best)
        np.testing.assert_array_equal(p, np.take_along_axis(model.predict_proba(far), best, axis=1))
        assert (np.diff(u, axis=1) < 0).all() and (np.diff(p, axis=1) == 0).any()
        log_p = model.predict_log_proba(far)
        np.testing.assert_allclose(np.exp(log_p), model.predict_proba(far), rtol=1e-12, atol=1e-300)
        assert (np.isfinite(log_p) & (model.predict_proba(far) == 0)).any()
    with pytest.raises(TypeError, match="probabilities: expected True or False"):
        model.predict_topk(far, 3, probabilities=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [KernelLogisticClassifier, KernelChainClassifier])
def test_a_tolerance_beyond_the_precision_is_its_largest(kind, dtype):
    X, y = np.eye(4, dtype=dtype), np.arange(4) // 2
    if kind is KernelChainClassifier:
        X, y = [X, X[::-1]], [y, y[::-1]]
    for tol in (1e39, 1e308):
        assert len(kind(tol=tol).fit(X, y).classes_) == 2


def test_logarithms_of_probabilities_of_a_class_without_rows():
    X, y = np.eye(4), np.arange(4) // 2
    rows = np.vstack([X, X]), np.append(y, y + 1), np.repeat([1.0, 0.0], 4)
    with pytest.warns(UserWarning, match="1 of 3 labels have no positive rows"):
        model = KernelLogisticClassifier().fit(*rows)
    log_p = model.predict_log_proba(X)
    np.testing.assert_array_equal(log_p[:, 2], -np.inf)
    np.testing.assert_allclose(np.exp(log_p), model.predict_proba(X), rtol=1e-6)


def test_the_criterion_of_large_kernels_is_that_of_separate_fits():
    """Small residuals alone left the scores of the held out rows open."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 80)
    X = np.eye(3)[y] @ rng.normal(size=(3, 5)) * 2 + rng.normal(size=(80, 5))
    folds = np.arange(80) % 3
    large = dict(v=[1.93647472e6, 3.74382921e4, 22.2894919], w=[1.02501883, 0.01920815, 0.47619096])
    expected = 0.0
    for fold in range(3):
        kept = folds != fold
        proba = KernelLogisticClassifier(**large).fit(X[kept], y[kept]).predict_proba(X[~kept])
        expected -= np.log(proba[np.arange(len(proba)), y[~kept]]).sum()
    value, slopes = KernelLogisticClassifier(**large).cv_criterion(X, y, folds)
    np.testing.assert_allclose(value, expected, rtol=1e-3)
    exact, exact_slopes = KernelLogisticClassifier(tol=1e-11, **large).cv_criterion(X, y, folds)
    np.testing.assert_allclose(value, exact, rtol=0.01)
    np.testing.assert_allclose(slopes.log_v, exact_slopes.log_v, atol=1e-3)
    np.testing.assert_allclose(slopes.log_w, exact_slopes.log_w, atol=0.01)
