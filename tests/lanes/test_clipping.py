"""Weights that are dropped after training matter little, whatever the scale of the features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from tests.support import objectives
from tests.support.lanes import assert_same_bits, signs, small, train, vector
from tests.support.problems import needs_native
from xmcjax import OneVsAllClassifier, inits, losses
from xmcjax.data import load_svmlight
from xmcjax.lanes import LabelWeights, Summary

TIGHT = dict(tol=1e-8, init=inits.Zero())


def dense(scale=1.0, n=300, d=12, labels=4, dtype=np.float64):
    """Features away from zero, of different scales, and labels that are noisy functions of them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(20, 160, (n, d)) * rng.uniform(0.5, 2, d)
    Y = (X - X.mean(0)) @ rng.normal(size=(d, labels)) + 60 * rng.normal(size=(n, labels)) > 0
    return (X * scale).astype(dtype), sp.csr_matrix(Y.astype(np.float32))


def scores(X, results):
    return np.column_stack([X[:, r.indices] @ r.values + r.bias for _, r in sorted(results.items())])


def objective(X, Y, r, c=1.0, C=1.0):
    w = vector(r, X.shape[1])
    return objectives.lanes(X, signs(Y, r.label), w, r.bias, "squared_hinge", C * c)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 255.0, 1e5])
def test_what_is_dropped_does_not_depend_on_the_unit_of_the_features(scale):
    """min ½‖w‖² + C Σ φ of s X has the solution w/s for C/s²."""
    X, Y = small(dtype=np.float64)
    more = dict(fit_intercept=False, **TIGHT)
    plain, _ = train(X, Y, C=0.5, **more)
    scaled, _ = train(X * scale, Y, C=0.5 / scale**2, **more)
    dropped = 0
    for label, r in plain.items():
        np.testing.assert_array_equal(scaled[label].indices, r.indices)
        np.testing.assert_allclose(scaled[label].values * scale, r.values, rtol=1e-4, atol=1e-6)
        dropped += X.shape[1] - len(r.indices)
    assert dropped > 0


@pytest.mark.parametrize("scale", [1e-3, 1.0, 255.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_on_raw_features(scale, dtype):
    X, Y = dense(scale, dtype=dtype)
    whole, ours = train(X, Y, clip=0.0)[0], train(X, Y)[0]
    above = scores(X, whole) > 0
    assert (above == (scores(X, ours) > 0)).mean() > 0.995
    if scale >= 1:  # where the clip of the literature is far too large
        assert (above == (scores(X, train(X, Y, clip=0.01)[0]) > 0)).mean() < 0.9


@pytest.mark.parametrize("C", [1e-3, 1.0])
def test_the_threshold(C):
    """0.01 min(1/r, ‖w‖/4), in both parts of the minimum."""
    X, Y = small(dtype=np.float64)
    X = (3 * X).tocsr()  # r = 3
    whole, ours = train(X, Y, clip=0.0, C=C)[0], train(X, Y, C=C)[0]
    by_norm = dropped = 0
    for label, r in whole.items():
        norm = np.linalg.norm(r.values)
        t = 0.01 * min(1 / 3, norm / 4)
        by_norm += 0 < norm / 4 < 1 / 3
        kept = r.indices[np.abs(r.values) >= t]
        np.testing.assert_array_equal(ours[label].indices, kept)
        dropped += len(r.indices) - len(kept)
    assert dropped > 0 and (by_norm > 10) == (C < 1)


@pytest.mark.parametrize("backend", ["jnp", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("weighted", [False, True])
def test_objectives_hardly_rise(backend, weighted):
    """Those of a clip that is too large for the features do, and are counted."""
    X, Y = small(n=100, d=50, labels=12, dtype=np.float64)
    X = (20 * X).tocsr()
    rng = np.random.default_rng(1)
    positive = rng.uniform(1, 5, Y.shape[1]) if weighted else np.ones(Y.shape[1])
    more = dict(tol=1e-3, label_weights=LabelWeights(positive, np.ones(Y.shape[1])))
    ours, summary = train(X, Y, backend=backend, **more)
    fixed, of_fixed = train(X, Y, backend=backend, clip=0.05, **more)
    assert summary.raised.labels == 0 < of_fixed.raised.labels
    rises = {}
    for label, r in ours.items():
        if np.isfinite(r.value):
            y = Y[:, [label]].toarray().ravel()
            c = np.where(y > 0, positive[label], 1)
            assert objective(X, Y, r, c) <= 1.01 * r.value
            rises[label] = objective(X, Y, fixed[label], c) / r.value - 1
            assert r.rise == 0
    found = {label: r.rise for label, r in fixed.items() if r.rise > 0.01}
    assert found.keys() == {label for label, rise in rises.items() if rise > 0.01}
    for label, rise in found.items():
        assert rise == pytest.approx(rises[label], rel=1e-6)
    worst = max(found, key=found.__getitem__)
    looked_at = sum(r.rise != 0 for r in fixed.values())
    assert of_fixed.raised == (len(found), worst, found[worst], looked_at, 0)
    assert f"of {len(found)} labels by more than 1%, that of x most, by" in of_fixed.raised.describe(
        "x", 0.05
    )


def wide(n=80, own=20, labels=6):
    """Rows of norm 1, half of its square in features that no other row has; labels of few rows."""
    rng = np.random.default_rng(0)
    common, alone = rng.random((n, 5)), rng.uniform(0.5, 1.5, (n, own))
    parts = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (common, alone)]
    X = np.hstack([parts[0], (np.eye(n)[:, :, None] * parts[1][:, None]).reshape(n, -1)]) / np.sqrt(2)
    Y = rng.random((n, labels)) < 0.05
    return sp.csr_matrix(X), sp.csr_matrix(Y.astype(np.float32))


@pytest.mark.parametrize(
    ("backend", "tree"),
    [("jnp", False), *(pytest.param("native", tree, marks=needs_native) for tree in (False, True))],
)
def test_objectives_hardly_rise_where_rows_are_few(backend, tree, monkeypatch):
    """With a large C: what is dropped along a row has one sign, and the columns' rises do not add up."""
    X, Y = wide()
    more = dict(backend=backend, C=100.0) | (dict(init=inits.OvaPrimalTree()) if tree else {})
    found, _ = train(X, Y, **more)
    monkeypatch.setattr("xmcjax.lanes._clipping._STIFF", np.inf)
    unseen, _ = train(X, Y, **more)
    before, now = (
        {label: objective(X, Y, r, C=100.0) / r.value - 1 for label, r in results.items()}
        for results in (unseen, found)
    )
    assert max(before.values()) > 0.01
    assert max(now.values()) < 0.00501
    alike = [label for label, rise in before.items() if rise < 0.0049]
    assert alike and all(len(found[label].indices) == len(unseen[label].indices) for label in alike)
    assert sum(len(r.indices) for r in found.values()) < 0.8 * len(now) * X.shape[1]


@pytest.mark.parametrize("backend", ["jnp", pytest.param("native", marks=needs_native)])
def test_objectives_hardly_rise_where_no_row_is_active(backend):
    """At the minimum all rows are at the margin or beyond; without some weights they are within it."""
    X, Y = wide()
    found, _ = train(X, Y, backend=backend, C=1e9)
    for r in found.values():
        assert objective(X, Y, r, C=1e9) <= 1.00501 * r.value
    assert sum(len(r.indices) for r in found.values()) < 0.9 * len(found) * X.shape[1]


@needs_native
def test_objectives_hardly_rise_in_single_precision():
    """What is dropped is far smaller than the rounding of sums over all weights."""
    rng = np.random.default_rng(0)
    X = 10 * rng.standard_normal((60, 400))
    S = X @ rng.standard_normal((400, 6))
    Y = sp.csr_matrix((np.quantile(S, 0.9, axis=0) < S).astype(np.float32))
    for r in train(X.astype(np.float32), Y, C=1e4)[0].values():
        assert objective(X, Y, r, C=1e4) <= 1.00501 * r.value


@needs_native
def test_objectives_are_looked_at_in_a_forked_process_or_that_is_refused(monkeypatch):
    X, Y = wide()
    expected, _ = train(X, Y, C=100.0)
    monkeypatch.setattr("xmcjax._fork._owner", -1)  # as if JAX had its threads in another process
    assert_same_bits(train(X, Y, C=100.0)[0], expected)
    for more in (dict(clip=0.05), dict(C=100.0, init=inits.OvaPrimalTree())):
        with pytest.raises(RuntimeError, match="this process was forked from process"):
            train(X, Y, **more)


def test_so_many_labels_are_looked_at(monkeypatch):
    X, Y = dense(255.0, labels=8)
    _, whole = train(X, Y, clip=0.01)
    assert whole.raised.looked_at == 8 and whole.raised.unseen == 0
    monkeypatch.setattr("xmcjax.lanes._clipping.LOOKS", 3)
    results, summary = train(X, Y, clip=0.01)
    assert summary.raised.labels == 3
    said = summary.raised.describe("label 2", 0.01)
    assert "of at least 3 labels by more than 1%" in said
    assert "(3 of the 8 that may have risen were looked at), of these that of label 2 most, by " in said
    rises = [r.rise for r in results.values()]
    assert np.isnan(rises).sum() == summary.raised.unseen == 5
    assert np.nanmax(rises) == summary.raised.rise <= whole.raised.rise


def test_the_words_are_certain_where_all_were_looked_at():
    raised = Summary().raised
    for label, rise in enumerate([0.0, 0.005, 0.02, 0.5]):
        raised = raised.with_label(label, rise)
    assert raised == (2, 3, 0.5, 3, 0)
    assert "of 2 labels by more than 1%, that of label 3 most, by 50.00%:" in raised.describe("label 3", 0.1)
    raised = raised.with_label(4, np.nan)
    assert "of at least 2 labels by more than 1% (3 of the 4 that may have risen" in raised.describe("x", 0.1)
    assert Summary().raised.with_label(3, 0.5).describe("label 3", 0.1) == (
        "dropping weights below clip = 0.1 raised the objective of 1 label by more than 1%, that of label 3 "
        "by 50.00%: leave clip out, so that the scale of the features decides, or set it to 0, which keeps "
        "all weights"
    )


@pytest.mark.parametrize("clip", [None, 0.02])
def test_starts_that_need_whole_weights(clip):
    """In a tree a label starts at all weights of its parent; what is handed out is clipped."""
    X, Y = small(dtype=np.float64)
    more = dict(tol=1e-8, clip=clip)
    ours, plain = train(X, Y, init=inits.OvaPrimalTree(), **more)[0], train(X, Y, **more)[0]
    for label, r in plain.items():
        np.testing.assert_array_equal(ours[label].indices, r.indices)
    assert sum(len(r.indices) for r in ours.values()) < 0.99 * len(ours) * X.shape[1]


def test_starting_weights_are_left_alone():
    X, Y = small()
    assert_same_bits(train(X, Y, max_iter=0)[0], train(X, Y, max_iter=0, clip=0.5)[0])


def test_a_loss_whose_curvature_is_not_known_keeps_all():
    class Unknown(losses.SquaredHinge):
        native = None

        @property
        def most_curvature(self):
            return float("inf")

    X, Y = small()
    ours, _ = train(X, Y, loss=Unknown(), backend="jnp")
    whole, _ = train(X, Y, loss=Unknown(), backend="jnp", clip=0.0)
    assert_same_bits(ours, whole)


def test_satimage(data_folder):
    """Grey values as they come, and in other units."""
    (X, y), (X_test, y_test) = (
        load_svmlight(data_folder / "satimage" / f"{part}.libsvm.xz") for part in ("train", "test")
    )
    X, X_test = X.toarray(), X_test.toarray()
    for scale in (1, 255, 2550, 1e-3):
        ours = OneVsAllClassifier().fit(X * np.float32(scale), y)
        accuracy = ours.score(X_test * np.float32(scale), y_test)
        peer = LinearSVC(dual=False, tol=1e-3 / scale).fit(X * scale, y)
        # scikit-learn's own accuracy falls where features are large
        assert accuracy >= peer.score(X_test * scale, y_test) - 0.005
        whole = OneVsAllClassifier(clip=0).fit(X * np.float32(scale), y)
        assert abs(accuracy - whole.score(X_test * np.float32(scale), y_test)) <= 0.002


def test_a_loss_of_unknown_curvature_keeps_all_weights_of_a_column_without_entries():
    class Steep(losses.MarginLoss):
        def value(self, m):
            return losses.squared_hinge.value(m)

    X, Y = small(dtype=np.float64)
    X = sp.hstack([X, sp.csr_matrix((X.shape[0], 1))], format="csr")
    assert np.isinf(Steep().most_curvature)
    found, expected = (train(X, Y, loss=loss, clip=0, **TIGHT)[0] for loss in (Steep(), losses.squared_hinge))
    dropped, _ = train(X, Y, loss=Steep(), **TIGHT)
    for label, result in found.items():
        np.testing.assert_allclose(result.values, expected[label].values, rtol=1e-6)
        np.testing.assert_array_equal(dropped[label].values, result.values[result.values != 0])
