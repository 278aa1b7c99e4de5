"""What every multi-class formulation keeps: what is said to have converged has the gap that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.internals import admm_dense, certified
from tests.support.problems import needs_native, svm_minimum, svm_problem
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md

ALL = list(md.FORMULATIONS)
# both kinds of features, with instances, classes and pairs of classes as lanes
IN_JAX = [(name, "dense" if name == "cs" else "jnp") for name in ALL]
PATHS = [pytest.param(name, "native", marks=needs_native) for name in ALL] + IN_JAX


def check(found, X, y, formulation, C, tol, least):
    """That W is as good as is said, by objectives in extended precision."""
    rounding = 1e-8 if X.dtype == np.float64 else 1e-5
    assert found.status == Status.CONVERGED and found.W.dtype == X.dtype
    value = dual_references.objective(found.W, X, y, formulation, 1, C)
    assert found.primal == pytest.approx(value, rel=rounding)
    assert -1e-9 < found.gap <= tol
    assert found.dual <= least * (1 + 1e-8)
    assert (1 - 1e-8) * least <= value <= least / (1 - found.gap) * (1 + rounding)
    if formulation == "llw":
        np.testing.assert_allclose(found.W.sum(axis=1), 0, atol=1e-6 * np.abs(found.W).max() + 1e-12)


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-7), (np.float32, 1e-3)])
@pytest.mark.parametrize(("formulation", "path"), PATHS)
def test_the_optimum_is_that_of_an_interior_point_method(formulation, path, dtype, tol):
    size = dict(n=30, d=5, m=19) if path == "native" else dict(n=20, d=4, m=3)
    X, y = svm_problem(**size, dtype=dtype)
    features = X if path == "dense" else sp.csr_array(X)
    found = md.run(features, y, formulation=formulation, C=0.7, tol=tol, backend=path, max_epochs=20_000)
    check(found, X, y, formulation, 0.7, tol, svm_minimum(formulation, 0.7, **size))


@pytest.mark.parametrize(("formulation", "path"), PATHS)
def test_a_huge_C(formulation, path):
    X, y = svm_problem(n=60)
    features = X if path == "dense" else sp.csr_array(X)
    found = md.run(features, y, formulation=formulation, C=1e6, tol=1e-3, backend=path, max_epochs=20_000)
    check(found, X, y, formulation, 1e6, 1e-3, svm_minimum(formulation, 1e6, n=60))


def separable(norm: float, dtype, n=400, d=60, m=26):
    """Rows of one norm that can be told apart with all gains close to 0."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(m, d))
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    X = 0.3 * centres[y] + rng.normal(size=(n, d))
    return (norm * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype), y


def certified_gap(found, X, y, formulation, C):
    """(P − D) / P in float64 of W and α as they are."""
    dual = certified(X.astype(np.float64), y, found.alpha, formulation, C, 1.0).dual
    value = dual_references.objective(found.W, X, y, formulation, 1, C)
    return (value - dual) / value


@needs_native
@pytest.mark.parametrize(
    ("formulation", "C", "dtype", "tol"),
    # α of Crammer-Singer is far below C here, and what is rounding of C is not rounding of α
    [("cs", 10.0, dtype, tol) for dtype in (np.float32, np.float64) for tol in (1e-4, 1e-6)]
    + [("llw", C, np.float32, 1e-3) for C in (0.01, 10.0)],
)
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_long_rows(formulation, C, dtype, tol, container):
    X, y = separable(30.0, dtype, d=100 if formulation == "llw" else 60)
    found = md.run(container(X), y, formulation=formulation, C=C, tol=tol)
    assert found.status == Status.CONVERGED
    assert -1e-9 < certified_gap(found, X, y, formulation, C) <= tol
    assert formulation == "cs" or found.newton_steps == 0


@needs_native
def test_precision_that_does_not_suffice_is_said():
    X, y = separable(30.0, np.float32, n=100, d=30, m=6)
    found = md.run(X, y, formulation="ovr", C=1e3, tol=1e-9, max_epochs=500)
    assert found.status in (Status.STALLED, Status.MAX_STEPS)
    assert md.run(X.astype(np.float64), y, formulation="ovr", C=1e3, tol=1e-9).status == Status.CONVERGED


@pytest.mark.parametrize("formulation", ALL)
def test_what_is_certified_is_inside_the_dual_set(formulation):
    X, y = svm_problem()
    alpha = np.random.default_rng(1).uniform(-0.1, 0.9, (20, 3))
    if not formulation.startswith("ovr"):
        alpha[np.arange(20), y] = 0
    found = certified(X, y, sp.csr_array(alpha), formulation, 0.5, 1e-3)
    inside = found.alpha.toarray()
    assert inside.min() >= 0
    assert formulation == "ovr_squared" or inside.max() <= 0.5
    assert formulation != "cs" or inside.sum(axis=1).max() <= 0.5 * (1 + 1e-12)
    assert found.dual <= svm_minimum(formulation, 0.5) <= found.primal
    value = dual_references.objective(found.W, X, y, formulation, 1, 0.5)
    np.testing.assert_allclose(found.primal, value, rtol=1e-12)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_no_variable_of_topk_alpha_is_above_a_kth_of_its_row(k):
    """The others stay, and the bound is the largest: rows of fewer than k variables have none above 0."""
    rng = np.random.default_rng(k)
    alpha = rng.exponential(size=(200, 8)) * (rng.random((200, 8)) < rng.random((200, 1)))
    found = admm_dense.formulation_of("topk_alpha").inside(sp.csr_array(alpha), np.inf, k).toarray()
    bound = found.sum(axis=1) / k
    assert np.all(found <= bound[:, None] * (1 + 1e-12)) and np.all(found[(alpha > 0).sum(axis=1) < k] == 0)
    cut = found < alpha
    most = np.where(cut, found, 0).max(axis=1)
    np.testing.assert_array_equal(found, np.where(cut, most[:, None], alpha))
    # a bound that is a little larger would be above the mean
    longer = 1.001 * most + 1e-6
    outside = np.minimum(alpha, longer[:, None]).sum(axis=1) < k * longer
    assert np.all(outside[cut.any(axis=1)]) and cut.any(axis=1).sum() > 50
