"""Dual ascent of one against the rest in the native library: class by class, from a background."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.dual_references import objective
from tests.support.internals import canonical_csr
from tests.support.problems import needs_native
from xmcjax.native import SeparateAscent
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md

pytestmark = needs_native
FORMULATIONS = ["ovr", "ovr_squared"]
STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def texts(n=600, d=150, m=40, dtype=np.float64, seed=0):
    """Rows of unit norm with a few of many words, some rows of zeros, and a class without rows but one."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(m), rng.integers(0, m - 1, n - m)]).astype(np.int32)
    X = rng.random((n, d)) * (rng.random((n, d)) < 0.03)
    X[np.arange(n), y % d] += 0.5 * rng.random(n)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[100:103] = 0
    return canonical_csr(sp.csr_array(X.astype(dtype))), y


def point(X, y, formulation="ovr", C=1.0, **options):
    return SeparateAscent.of_classes(X, y, int(y.max()) + 1, formulation, C, **options)


def solved(X, y, *options, tol=1e-6, **named):
    one = point(X, y, *options, **named)
    to = one.advance(tol, 10_000)
    assert not to.running and to.found.gap <= tol
    return one


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_the_optimum_is_that_of_LIBLINEAR(formulation, dense, bias):
    from sklearn.svm import LinearSVC

    X, y = texts()
    if bias:
        X = canonical_csr(sp.csr_array(sp.hstack([X, np.ones((len(y), 1))])))
    C = 2.0
    loss = "hinge" if formulation == "ovr" else "squared_hinge"
    theirs = LinearSVC(C=C, loss=loss, dual=True, tol=1e-9, fit_intercept=False, max_iter=10**6).fit(X, y)
    one = solved(X, y, formulation, C, dense=dense, tol=1e-8)
    found = one.advance(1e-8, 0).found
    least = objective(theirs.coef_.T, X.toarray(), y, formulation, 1, C)
    np.testing.assert_allclose([found.primal, found.dual], least, rtol=1e-7)
    np.testing.assert_allclose(one.weights, theirs.coef_.T, atol=1e-3)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("dense", [False, True])
def test_the_gap_of_each_class_is_small_enough(formulation, dense):
    X, y = texts(dtype=np.float32)
    one = solved(X, y, formulation, dense=dense, tol=1e-3)
    W, alpha, features = one.weights.astype(np.float64), one.alpha.toarray(), X.toarray()
    s = np.where(y[:, None] == np.arange(40), 1, -1)
    h = np.maximum(1 - s * (features @ W), 0)
    ridge = 0 if formulation == "ovr" else 0.5
    half = (W**2).sum(axis=0) / 2
    primal = half + (h if formulation == "ovr" else h**2).sum(axis=0)
    dual = (alpha - ridge / 2 * alpha**2).sum(axis=0) - half
    assert alpha.min() >= 0 and (formulation == "ovr_squared" or alpha.max() <= 1)
    np.testing.assert_allclose(features.T @ (s * alpha), W, atol=1e-4)
    assert np.all((primal - dual) / primal <= 1e-3 * 1.01)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dense", [False, True])
def test_a_class_does_not_depend_on_the_others_nor_on_threads(dense, dtype):
    X, y = texts(dtype=dtype)
    options = dict(C=3.0, dense=dense, tol=1e-4, seed=5)
    whole = solved(X, y, **options)
    for threads in (2, 3):
        other = solved(X, y, threads=threads, **options)
        np.testing.assert_array_equal(whole.weights, other.weights)
        assert (whole.alpha != other.alpha).nnz == 0
    for first, last in ((0, 3), (3, 38), (38, 40)):
        part = solved(X, y, classes=(first, last), **options)
        np.testing.assert_array_equal(whole.weights[:, first:last], part.weights)
        assert (whole.alpha[:, first:last] != part.alpha[:, first:last]).nnz == 0


def test_passes_in_parts_come_to_the_same_gap():
    X, y = texts()
    one = point(X, y, C=10.0)
    before = -np.inf
    for _ in range(10_000):
        to = one.advance(1e-6, 1)
        assert to.found.dual >= before - 1e-9
        before = to.found.dual
        if not to.running:
            break
    assert to.found.gap <= 1e-6
    assert to.passes > 2
    looked = one.advance(1e-12, 0)
    assert looked.found == pytest.approx(to.found, rel=1e-6)


def test_dual_variables_may_be_set_at_any_time():
    X, y = texts()
    done, other = solved(X, y, C=10.0), point(X, y, C=10.0)
    before = other.advance(1e-6, 0).found
    other.alpha = done.alpha
    at = other.advance(1e-6, 0)
    assert at.found.gap <= 1.1e-6 < before.gap
    assert (done.alpha != other.alpha).nnz == 0
    np.testing.assert_allclose(done.weights, other.weights, atol=1e-9)


def test_rows_that_are_not_shrunk_come_to_the_same():
    X, y = texts()
    found = [md.run(X, y, formulation="ovr", C=10.0, tol=1e-7, shrinking=shrink) for shrink in (True, False)]
    np.testing.assert_allclose(found[0].primal, found[1].primal, rtol=3e-7)
    assert found[0].shrunk > 0.1
    assert [one.status for one in found] == [Status.CONVERGED] * 2


@pytest.mark.skipif(not STATM.exists(), reason="the memory of a process is read from /proc")
def test_many_classes_keep_the_differences_from_the_background_alone():
    # most of the dual variables are not zero, and few of them differ: those of rows that share a word
    n, m = 4000, 2000
    y = (np.arange(n) % m).astype(np.int32)
    columns = np.stack([y, m + np.random.default_rng(0).integers(0, 2000, n)], axis=1).ravel()
    ones = np.ones(2 * n, np.float32)
    X = canonical_csr(sp.csr_array((ones, columns, 2 * np.arange(n + 1)), shape=(n, m + 2000)))
    one = point(X, y)
    before = resident_bytes()
    to = one.advance(1e-3, 1000)
    grown = resident_bytes() - before
    assert not to.running and to.found.gap <= 1e-3
    assert grown < 4 * n * m / 2
    assert one.alpha.nnz > n * m / 2


def test_numbers_that_overflow_end_it():
    X, y = texts(dtype=np.float32)
    X = canonical_csr(sp.csr_array((1e30 * X).astype(np.float32)))
    assert not point(X, y).advance(1e-3, 10_000).running
