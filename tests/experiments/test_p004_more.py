"""The splits, the converging baselines and the further studies of paper 004, on sets that need no files."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from experiments import _data
from experiments.papers.p004 import kernels, table_2
from experiments.papers.p004.baselines import (
    BASELINES,
    _cutting_planes,
    _precision_step,
    _splitting,
    _top_push_gradient,
    _top_push_solver,
    svm_perf,
)
from experiments.papers.p004.baselines._base import one_hot
from experiments.papers.p004.table_1 import TOPS


@pytest.fixture
def overlapping():
    """A hundred instances of four classes that overlap, float32."""
    rng = np.random.default_rng(3)
    y = np.arange(100) % 4
    return (rng.normal(size=(4, 6))[y] + rng.normal(size=(100, 6))).astype(np.float32), y


def test_the_parts_by_class_have_the_official_sizes(monkeypatch):
    # the numbers of images of the classes of Caltech 101 Silhouettes
    counts = [31, 32, 33, 34, 34, 34, 34, 35, 35, 35, 37, 37, 38, 39, 39, 39, 40, 41, 42, 42, 42, 43, 43, 43]
    counts += [45, 45, 45, 46, 47, 47, 47, 47, 49, 49, 49, 50, 51, 51, 52, 53, 53, 54, 54, 55, 55, 56, 57, 57]
    counts += [57, 59, 59, 59, 59, 60, 61, 62, 63, 64, 64, 64, 64, 64, 65, 66, 67, 67, 67, 68, 69, 70, 73, 75]
    counts += [
        75,
        76,
        78,
        80,
        81,
        82,
        84,
        85,
        85,
        85,
        86,
        86,
        86,
        87,
        88,
        91,
        98,
        99,
        100,
        107,
        114,
        123,
        128,
    ]
    counts += [200, 239, 435, 435, 798, 798]
    y = np.repeat(np.arange(1, len(counts) + 1), counts)
    X = np.arange(len(y), dtype=np.float32)[:, None]

    class Found:
        X_train, X_valid, X_test = X[:5000], X[5000:7000], X[7000:]
        Y_train, Y_valid, Y_test = y[:5000], y[5000:7000], y[7000:]

    monkeypatch.setattr(_data, "fetch", lambda name: Found)
    split = _data.load_classes("caltech101_silhouettes_by_class")
    assert [len(part) for part in split[::2]] == [4100, 2264, 2307]
    rows = np.concatenate(split[::2]).ravel().astype(int)
    assert sorted(rows) == list(range(len(y)))  # every image once
    assert all(
        (y[part.ravel().astype(int)] - 1 == of).all() for part, of in zip(*[iter(split)] * 2, strict=True)
    )
    assert np.bincount(split.y).max() == _data.MOST_PER_CLASS


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("kind", ["recall", "precision"])
def test_splitting_and_cutting_planes_end_at_one_minimum(overlapping, kind, k, C):
    X, y = overlapping[0].astype(np.float64), overlapping[1]
    right = one_hot(y, bool)
    if kind == "recall":
        risk = svm_perf.RecallRisk(right, k * len(y))
    else:
        risk = svm_perf.PrecisionRisk(right, -(-len(y) // k))
    W, gap, start = _splitting.minimise(risk, right, X, C, 1e-3, None)
    assert gap <= 1e-3
    planes = _cutting_planes.Planes((X.shape[1], 4), np.float64)
    expected, of_planes = _cutting_planes.minimise(planes, risk, X, C, 1e-3)
    assert of_planes <= 1e-3
    values = [_cutting_planes.value(risk, C, V, X @ V) for V in (W, expected)]
    np.testing.assert_allclose(values[0], values[1], rtol=2e-3)
    # from there a fit ends at its first check
    again = _splitting.minimise(risk, right, X, C, 1e-3, start)
    assert again[1] <= 1e-3


@pytest.mark.parametrize("least", [1, 7, 20])
@pytest.mark.parametrize("t", [0.1, 1.0])
def test_the_step_of_precision_ends_at_its_minimum(least, t):
    rng = np.random.default_rng(0)
    right = one_hot(np.arange(20) % 3, bool)
    risk, V, kept = svm_perf.PrecisionRisk(right, least), rng.normal(size=(20, 3)), None
    for _ in range(200):
        P, missed, kept = risk.labelling(V, t, kept)
    assert kept and sum(kept.values()) == pytest.approx(1) and all(a + b >= least for a, b in kept)
    Z = V + t * (right - P)
    value = np.square(Z - V).sum() / 2 + t * risk.value(Z)
    # the largest lower bound of this form is the minimum
    bound = t * (missed + np.vdot(P - right, V)) - t**2 * np.square(P - right).sum() / 2
    assert bound <= value * (1 + 1e-9) and value - bound <= 0.01 * value
    # P with its loss is a mixture of labellings: its plane is nowhere above R
    for other in 3 * rng.normal(size=(200, 20, 3)):
        assert missed + np.vdot(P - right, other) <= risk.value(other) + 1e-9


class _Watched(svm_perf.PrecisionRisk):
    """Keeps how many wrong pairs were sorted."""

    def __init__(self, right, least):
        super().__init__(right, least)
        self.sorted = set()

    def _largest(self, scores, known):
        self.sorted.add(known)
        return super()._largest(scores, known)


@pytest.mark.parametrize("least", [1, 7, 20])
def test_the_step_of_precision_needs_the_largest_wrong_scores_alone(monkeypatch, least):
    rng = np.random.default_rng(3)
    right = one_hot(np.concatenate([np.arange(30), np.arange(20)]), bool)
    # scores that are all alike are averaged, so that no part of them is enough
    for V, all_alike in ((rng.normal(size=right.shape) - 2, False), (np.zeros(right.shape), True)):
        found = []
        for top in (2, 1000):
            monkeypatch.setattr(svm_perf, "TOP", top)
            risk, kept = _Watched(right, least), None
            for _ in range(5):
                P, missed, kept = risk.labelling(V, 0.1, kept)
            found.append((P, missed))
            assert (right.size - 50 in risk.sorted) == (all_alike or top == 1000)
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12, atol=1e-12)
        assert found[0][1] == pytest.approx(found[1][1])


@pytest.mark.parametrize("lowered", [1, 5, 60])
def test_falling_scores_of_which_the_first_are_lowered(lowered):
    rng = np.random.default_rng(lowered)
    values, by = -np.sort(rng.normal(size=60)), np.sort(rng.random(lowered))[::-1]
    expected = isotonic_regression(values - np.pad(by, (0, 60 - lowered)), increasing=False).x
    np.testing.assert_allclose(_precision_step._lowered(values, by), expected, rtol=1e-12)


def test_the_projection_of_the_splitting():
    rng = np.random.default_rng(0)
    A = (3 * rng.normal(size=(20, 5))).astype(np.float32)
    P = _splitting.project(A, 12)
    assert P.min() >= 0 and P.max() <= 1 and 11.99 <= P.sum() <= 12
    inner = (P > 0) & (P < 1)
    assert np.ptp((A - P)[inner]) < 1e-5  # one threshold
    assert np.array_equal(_splitting.project(A, 100), np.clip(A, 0, 1))


def test_top_push_as_published_ends_early_and_goes_to_the_same_minimum(overlapping):
    X, y = overlapping[0].astype(np.float64), overlapping[1]
    right, C = one_hot(y, bool), 0.05
    _, early = _top_push_gradient.solve(X, right, C)
    W, late = _top_push_gradient.solve(X, right, C, tol=0.0)
    assert late < early / 10 and late < 5e-3
    found = _top_push_solver.solve(X, y, 4, C, True, tol=1e-6)

    def primal(W):
        Z = X @ W
        top = np.where(right, -np.inf, Z).max()
        return np.square(W).sum() / 2 + C * np.square(np.maximum(1 + top - Z[right], 0)).sum()

    np.testing.assert_allclose(primal(W), primal(found.W.T), rtol=5e-3)
    alpha = _top_push_gradient.project(np.float32([[2, 1], [0.5, 3]]), np.eye(2, dtype=bool))
    assert alpha[np.eye(2, dtype=bool)].sum() == pytest.approx(alpha[~np.eye(2, dtype=bool)].sum(), abs=1e-5)
    assert BASELINES["TopPush, ended early"].fit(X, y, C).gap == pytest.approx(early)


def test_ten_splits(tmp_path):
    options = dataclasses.replace(table_2.Options(small=True).chosen(), grid=(1.0, 10.0), out=tmp_path)
    result = table_2.run(options)
    assert {(r["split"], r["method"]) for r in result["runs"]} == {
        (split, method)
        for split in (0, 1)
        for method in ("SVM OVA", "top-1 SVM alpha", "top-3 SVM alpha", "top-3 SVM beta")
    }
    for r in result["runs"]:
        assert len(r["test"]) == len(r["C"]) == len(TOPS) and set(r["C"]) <= {1.0, 10.0}
        assert r["gap"] <= 1e-3 and r["test"][0] > 85 and r["rows"] == 1_200
    assert result["runs"][0]["test"] != result["runs"][4]["test"]  # other splits
    text = table_2.markdown(result)
    assert "digits, 2 splits of 1,200 and 597 images, 10 classes" in text and "58.16 ± 0.2" in text
    train, test = table_2.parts("digits", 0)
    np.testing.assert_allclose(train.X[:, :-1].var(axis=0).sum(), 1, rtol=1e-4)
    assert (test.X[:, -1] == 1).all()


def test_kernels(tmp_path):
    options = dataclasses.replace(kernels.Options(small=True).chosen(), out=tmp_path)
    result = kernels.run(options)
    by = {(r["kernel"], r["k"]): r for r in result["runs"]}
    assert len(by) == 6
    for k in (1, 3):
        features, inner, gauss = (by[kernel, k] for kernel in ("features", "inner products", "Gauss"))
        np.testing.assert_allclose(features["objective"], inner["objective"], rtol=2e-3)
        assert gauss["gap"] <= 1e-3 and gauss["test"][0] > features["test"][0]
    text = kernels.markdown(result)
    assert "| Gauss | 3 |" in text and "apart, relatively" in text
