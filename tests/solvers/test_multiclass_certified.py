"""That a solution said to have converged has the gap that was asked for, worked out a second time."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from multiclass_helpers import ALL, data, primal, quadratic_program

from tests.support import dual_references as reference
from xmcjax.solvers import Status, _admm
from xmcjax.solvers import multiclass_dual as md
from xmcjax.solvers._certified import certified


def separable(norm: float, dtype, n=400, d=60, m=26):
    """Rows of one norm that can be told apart with all gains close to 0."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(m, d))
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    X = 0.3 * centres[y] + rng.normal(size=(n, d))
    return (norm * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype), y


def gap(solution, X, y, formulation, C):
    """(P − D) / P in float64 of W and α as they are."""
    found = certified(X.astype(np.float64), y, solution.alpha, formulation, C, 1.0)
    value = reference.objective(solution.W, X, y, formulation, 1, C)
    return (value - found.dual) / value


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [1e-4, 1e-6])
def test_crammer_singer_of_long_rows(dtype, tol):
    # α is far below C here, and what is rounding of C is not rounding of α
    X, y = separable(30.0, dtype)
    solution = md.run(X, y, formulation="cs", C=10.0, tol=tol)
    assert solution.status == Status.CONVERGED
    assert -1e-9 < gap(solution, X, y, "cs", 10.0) <= tol


@pytest.mark.parametrize("tol", [1e-2, 1e-3])
@pytest.mark.parametrize("formulation", ALL)
def test_a_huge_C(formulation, tol):
    X, y = data(d=4, n=60)
    solution = md.run(X, y, formulation=formulation, C=1e8, tol=tol)
    assert solution.status == Status.CONVERGED
    assert -1e-9 < gap(solution, X, y, formulation, 1e8) <= tol


def test_precision_that_does_not_suffice_is_said():
    X, y = separable(30.0, np.float32)
    solution = md.run(X, y, formulation="ovr", C=1e3, tol=1e-9, max_epochs=2000)
    assert solution.status in (Status.STALLED, Status.MAX_STEPS)
    assert md.run(X.astype(np.float64), y, formulation="ovr", C=1e3, tol=1e-9).status == Status.CONVERGED


@pytest.mark.parametrize("C", [0.01, 10.0])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_lee_lin_wahba_of_long_rows(C, container):
    X, y = separable(30.0, np.float32, d=100)
    solution = md.run(container(X), y, formulation="llw", C=C)
    assert solution.status == Status.CONVERGED
    assert solution.newton_steps == 0
    assert gap(solution, X, y, "llw", C) <= 1e-3


@pytest.mark.parametrize("formulation", ALL)
@pytest.mark.parametrize("C", [1e-3, 0.3, 30.0])
def test_one_system_for_all_classes_finds_the_optimum(formulation, C):
    X, y = data(n=40, d=5, m=4)
    start = sp.csr_array((40, 4))
    found = _admm.solve(X, y, start, formulation, C, 1e-5, 20_000)
    W, value = quadratic_program(X, y, formulation, C)
    assert found.gap <= 1e-5
    np.testing.assert_allclose(primal(found.W, X, y, formulation, C), value, rtol=2e-5)
    np.testing.assert_allclose(found.W, W, atol=2e-2)
    proof = certified(X, y, found.alpha, formulation, C, 1e-5, found.W)
    np.testing.assert_allclose([proof.primal, proof.dual], value, rtol=2e-5)


@pytest.mark.parametrize("formulation", ALL)
def test_what_is_certified_is_inside_the_dual_set(formulation):
    X, y = data()
    rng = np.random.default_rng(1)
    alpha = rng.uniform(-0.1, 0.9, (20, 3))
    if formulation != "ovr" and formulation != "ovr_squared":
        alpha[np.arange(20), y] = 0
    found = certified(X, y, sp.csr_array(alpha), formulation, 0.5, 1e-3)
    inside = found.alpha.toarray()
    assert inside.min() >= 0
    if formulation != "ovr_squared":
        assert inside.max() <= 0.5
    if formulation == "cs":
        assert inside.sum(axis=1).max() <= 0.5 * (1 + 1e-12)
    _, value = quadratic_program(X, y, formulation, 0.5)
    assert found.dual <= value <= found.primal
    np.testing.assert_allclose(found.primal, primal(found.W, X, y, formulation, 0.5), rtol=1e-12)


def test_the_twin_keeps_the_same_promise():
    X, y = data(n=40, d=4, m=3, dtype=np.float32)
    for formulation in ALL:
        solution = md.run(X, y, formulation=formulation, C=1e4, tol=1e-4, backend="jnp")
        assert solution.status == Status.CONVERGED
        assert -1e-9 < gap(solution, X, y, formulation, 1e4) <= 1e-4
