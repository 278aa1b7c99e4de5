"""The interior-point method of multi-class SVMs, and that it ends what other methods do not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.internals import interior
from tests.support.problems import needs_native
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md

FORMULATIONS = ["ww", "cs", "llw", "ovr"]


def overlapping(n: int, d: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(m), rng.integers(0, m, n - m)]
    return rng.normal(size=(m, d))[y] + 1.5 * rng.normal(size=(n, d)), y


def in_the_dual_set(alpha: np.ndarray, y: np.ndarray, formulation: str, C: float) -> bool:
    own = alpha[np.arange(len(y)), y]
    most = alpha.sum(axis=1) if formulation == "cs" else alpha
    return alpha.min() >= 0 and most.max() <= C * (1 + 1e-12) and (formulation == "ovr" or not own.any())


@pytest.mark.parametrize("C", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("shape", [(60, 5, 4), (40, 3, 2), (12, 15, 3)])
def test_the_optimum_is_that_of_the_reference(formulation, C, shape):
    X, y = overlapping(*shape)
    m = shape[2]
    found = interior.Method(X, y, m, formulation, C).run(1e-8, 100)
    assert found.gap <= 1e-8 and found.steps < 60
    least = dual_references.bound(X, y, m, formulation, 1, C)
    value = dual_references.objective(found.W, X, y, formulation, 1, C)
    assert (1 - 1e-7) * least <= value <= (1 + 1e-7) * least
    alpha = found.alpha.toarray()
    assert in_the_dual_set(alpha, y, formulation, C)
    # and D of the dual variables is as near
    sign = np.full((len(y), m), -1.0)
    if formulation in ("ww", "cs"):
        sign = np.where(np.arange(m) == y[:, None], alpha.sum(axis=1, keepdims=True), -alpha)
    elif formulation == "llw":
        sign = alpha.mean(axis=1, keepdims=True) - alpha
    else:
        sign = np.where(np.arange(m) == y[:, None], alpha, -alpha)
    dual = alpha.sum() - ((X.T @ sign) ** 2).sum() / 2
    assert dual >= (1 - 1e-7) * least


@needs_native
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("C", [1.0, 1e3])
def test_features_of_very_different_sizes_far_from_0(formulation, C):
    """Crammer-Singer ended at max_epochs, with gaps of 0.01 to 1."""
    X, y = overlapping(2000, 10, 10)
    rng = np.random.default_rng(1)
    X = np.c_[(X + 3 * rng.normal(size=10)) * 10 ** rng.uniform(-2, 3, 10), np.ones(2000)]
    found = md.run(X.astype(np.float32), y, formulation=formulation, C=C)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    value = dual_references.objective(found.W, X.astype(np.float32), y, formulation, 1, C)
    assert value == pytest.approx(found.primal, rel=1e-6)


@needs_native
@pytest.mark.parametrize("formulation", ["ww", "cs", "ovr"])
def test_large_features_and_a_large_C(formulation):
    """Newton's method goes far away, and left no steps to another one."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = 1e6 * (np.eye(4)[y] @ rng.normal(size=(4, 5)) + rng.normal(size=(60, 5)))
    found = md.run(X, y, formulation=formulation, C=1e4)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_columns_that_say_nothing_and_a_class_without_rows(formulation):
    X, y = overlapping(50, 4, 3)
    X = np.c_[X, X[:, :2], np.zeros(50), np.ones(50)]
    found = interior.Method(X, np.where(y == 2, 3, y), 4, formulation, 10.0).run(1e-6, 100)
    assert found.gap <= 1e-6


def test_dual_variables_at_their_bound_of_0_are_left_out():
    X, y = overlapping(200, 6, 5)
    found = interior.Method(X, y, 5, "ww", 10.0).run(1e-7, 100)
    assert found.gap <= 1e-7 and found.alpha.nnz < 0.5 * found.alpha.shape[0] * found.alpha.shape[1]


def test_steps_at_most_and_what_is_told():
    X, y = overlapping(50, 4, 3)
    told = []
    found = interior.Method(X, y, 3, "cs", 1.0).run(
        1e-9, 3, lambda gap, steps, alpha: told.append((gap, steps, alpha()))
    )
    assert found.steps == 3 and [steps for _, steps, _ in told] == [0, 1, 2, 3]
    assert all(sp.issparse(alpha) and alpha.shape == (50, 3) for _, _, alpha in told)
    assert found.gap == told[-1][0] > 1e-9


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("size", [1e160, np.nan])
def test_numbers_that_overflow_end_it(formulation, size):
    X, y = overlapping(50, 4, 3)
    found = interior.Method(X * size, y, 3, formulation, 1.0).run(1e-3, 100)
    assert not found.gap <= 1e-3 and found.steps < 100


def test_what_fits():
    assert interior.fits(1000, 20, 10, "cs") and interior.fits(1000, 500, 100, "ovr")
    assert not interior.fits(1000, 500, 10, "cs")  # unknowns of one system
    assert not interior.fits(10**7, 20, 10, "cs") and not interior.fits(10, 0, 3, "ww")


@needs_native
def test_it_is_named_to_who_observes():
    X, y = overlapping(300, 20, 6)
    X *= np.logspace(-2, 3, 20)
    told = []
    found = md.run(X, y, formulation="cs", C=1e3, tol=1e-6, observe=told.append)
    assert found.status == Status.CONVERGED and "the interior-point method, whose systems" in found.reason
    methods = list(dict.fromkeys(progress.method for progress in told))
    assert methods == ["coordinate ascent", "steps for all rows at once", "the interior-point method"]
    passes = [progress.passes for progress in told if progress.method == "the interior-point method"]
    assert passes == sorted(passes) and passes[-1] <= found.epochs + found.newton_steps


@needs_native
@pytest.mark.parametrize("most", [1, 2, 5, 12, 25, 50, 300])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_any_number_of_epochs_may_be_allowed(formulation, most):
    rng = np.random.default_rng(0)
    X, y = overlapping(400, 10, 4)
    X *= 10 ** rng.uniform(-2, 3, 10)
    found = md.run(X, y, formulation=formulation, C=100.0, tol=1e-9, max_epochs=most)
    assert found.epochs + found.newton_steps <= most + 1 and np.isfinite(found.primal)
    assert most >= 300 or "interior-point" not in found.reason


def test_rows_in_parts_give_the_same_system(monkeypatch):
    X, y = overlapping(100, 5, 4)
    for formulation in FORMULATIONS:
        monkeypatch.undo()
        whole = interior.Method(X, y, 4, formulation, 1.0).run(1e-6, 100)
        monkeypatch.setattr("xmcjax.solvers._interior._AT_ONCE", 8 * 5 * 4 * 7)
        parts = interior.Method(X, y, 4, formulation, 1.0).run(1e-6, 100)
        assert whole.gap <= 1e-6 and parts.gap <= 1e-6 and parts.steps == whole.steps
        np.testing.assert_allclose(parts.W, whole.W, rtol=1e-5, atol=1e-8)
