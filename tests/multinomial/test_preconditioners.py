"""Approximate inverses of the Hessian: native ones beside NumPy's, and what they are exactly."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from tests.support import multinomial as helpers
from tests.support.internals import kronecker, preconditioners
from tests.support.problems import needs_native
from xmcjax import native
from xmcjax.lanes import precision
from xmcjax.solvers import Status, multinomial
from xmcjax.solvers.multinomial import block_newton


def _made(scores, P):
    """The preconditioner of a kind of features."""
    rest = helpers.rest(P, scores.axis)
    if scores.axis == 1:
        return preconditioners.diagonal(scores, P, rest, 0.3)
    return preconditioners.blocks(scores, P, rest, 0.3, preconditioners.gram(scores))


@needs_native
@pytest.mark.parametrize("kind", helpers.KINDS)
@pytest.mark.parametrize("classes", [2, 7, 8, 20, 33, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_native_conjugate_gradients_are_those_of_numpy(kind, dtype, classes):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(classes), 700).astype(dtype)
    right = rng.normal(size=(41, classes)).astype(dtype)
    right -= right.mean(axis=1, keepdims=True)
    Stop, close = preconditioners.Stop, 1e-3 if dtype == np.float32 else 1e-7
    for stop in (Stop(1e-4, 0.0), Stop(0.0, np.inf), Stop(-1.0, -1.0, 1e-2, 1e-1), Stop(0.5, 1e9)):
        found, residuals = [], []
        for twins in (False, True):
            scores, *_ = helpers.scores_of(kind, dtype, classes=classes, twins=twins)
            turned = (lambda a: a.T) if scores.axis == 0 else (lambda a: a)
            at, r = (np.array(turned(a), order="C") for a in (P, right))
            direction = _made(scores, at).solve(at, r, 0.3, stop, 250)
            found.append((direction.products, direction.fall, turned(direction.x)))
            residuals.append(r)
        (products, *one), (expected, *other) = found
        assert abs(products - expected) <= (0 if dtype == np.float64 else 2)
        if products == expected:
            # the last steps of float32 are of rounding
            apart = 2e-2 if dtype == np.float32 else 1e-5
            np.testing.assert_allclose(*residuals, rtol=0, atol=apart * float(np.max(np.abs(right))))
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(a, b, rtol=close, atol=close * float(np.max(np.abs(b))))
        assert one[0] == pytest.approx(float(np.vdot(right, one[1])), rel=1e-3)
        np.testing.assert_allclose(one[1].mean(axis=1), 0, atol=1e-5)
        if stop.weights > 0:
            assert np.vdot(residuals[0], residuals[0]) <= 0.02


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [130, 3000])
def test_native_blocks_are_those_of_numpy(dtype, n):
    """With all rows and with a part of them; classes without probability have λ alone."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(6, 0.3), n).astype(dtype)
    P[:, 5] = 0
    found = []
    for twins in (False, True):
        scores, *_ = helpers.scores_of("dense", dtype, n=n, classes=6, twins=twins)
        found.append(_made(scores, np.ascontiguousarray(P.T)))
    r = rng.normal(size=(6, 41)).astype(dtype)
    r[:, 40] = 0
    one, other = (M(r) for M in found)
    # which rows are the largest is found out by a sample, for which rounding matters
    np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-3)
    worse = np.full((6, n), np.nan, dtype)
    scores, *_ = helpers.scores_of("dense", dtype, n=n, classes=6)
    made = preconditioners.blocks(scores, worse, helpers.rest(worse), 0.3, np.eye(41))
    assert not isinstance(made, preconditioners.Blocks)


@pytest.mark.parametrize("twins", [False, True])
def test_preconditioners_of_collinear_features_have_the_digits_of_float32(twins):
    """Where λ is less than rounding, and some columns are the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 20)).astype(np.float32)
    X[:, :5] = X[:, 5:10]
    y = rng.integers(0, 4, 500).astype(np.int32)
    P = rng.dirichlet(np.ones(4), 500).T
    # of columns that are the same a gradient has the same numbers
    r = rng.normal(size=(4, 21)).astype(np.float32)
    r[:, :5] = r[:, 5:10]
    found = []
    for dtype in (np.float32, np.float64):
        with precision(dtype), native.twins() if twins else contextlib.nullcontext():
            problem = helpers.problem(X.astype(dtype), y, 1e-5, intercept=True)
            scores = block_newton.scores_of(problem, True, 1)
            gram, at = preconditioners.gram(scores), np.array(P, dtype, order="C")
            blocks = preconditioners.blocks(scores, at, helpers.rest(at), 1e-5, gram)
            uniform = preconditioners.uniform(scores, 4, 1e-5, gram)
            assert isinstance(blocks, preconditioners.Blocks)
            found.append(
                [(z[:, :5] + z[:, 5:10], z[:, 10:]) for z in (M(r.astype(dtype)) for M in (blocks, uniform))]
            )
    for of_a_kind, expected in zip(*found, strict=True):
        for a, b in zip(of_a_kind, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=0.1 * float(np.max(np.abs(b))))


def test_a_basis_has_the_hessian_where_all_rows_have_the_same_probabilities():
    scores, *_ = helpers.scores_of("dense", np.float64)
    p = np.random.default_rng(1).dirichlet(np.ones(7))
    P = np.tile(p[:, None], (1, scores.n))
    r = np.random.default_rng(2).normal(size=(7, 41))
    r -= r.mean(axis=0)
    basis = kronecker.basis(scores, P, helpers.rest(P))
    assert basis is not None
    found = kronecker.kronecker(scores, P, basis, 0.3)
    assert found is not None
    z = found(r)
    hessian = scores.hessian(P)
    hessian.V[:] = z
    hessian.product()
    np.testing.assert_allclose(hessian.out + 0.3 * z, r, atol=1e-8)
    P[0, 0] = np.nan
    assert kronecker.basis(scores, P, helpers.rest(P)) is None
    assert kronecker.kronecker(scores, P, basis, 0.3) is None


@pytest.mark.parametrize("twins", [False, True])
def test_a_basis_has_the_diagonal_of_the_hessian(twins):
    scores, *_ = helpers.scores_of("dense", np.float64, twins=twins)
    P = np.ascontiguousarray(np.random.default_rng(1).dirichlet(np.full(7, 0.5), scores.n).T)
    basis = kronecker.basis(scores, P, helpers.rest(P))
    assert basis is not None
    made = kronecker.kronecker(scores, P, basis, 0.3)
    assert made is not None
    hessian = scores.hessian(P)
    for k in (0, 3, 6):
        for j in (0, 20, 40):
            hessian.V[:] = np.outer(made._E[:, k], basis.Q[:, j])
            hessian.product()
            assert 1 / made._inverse[k, j] == pytest.approx(np.vdot(hessian.V, hessian.out) + 0.3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("twins", [False, True])
def test_conjugate_gradients_in_a_basis_are_those_outside(dtype, twins):
    scores, *_ = helpers.scores_of("dense", dtype, twins=twins)
    rng = np.random.default_rng(1)
    P = np.ascontiguousarray(rng.dirichlet(np.full(7, 0.5), scores.n).T.astype(dtype))
    right = rng.normal(size=(7, 41)).astype(dtype)
    right -= right.mean(axis=0)
    basis = kronecker.basis(scores, P, helpers.rest(P))
    assert basis is not None
    made = kronecker.kronecker(scores, P, basis, 0.3)
    assert made is not None
    outside = preconditioners.Preconditioner(scores, made)
    Stop, close = preconditioners.Stop, 2e-3 if dtype == np.float32 else 1e-8
    for stop in (Stop(1e-2, 0.0), Stop(0.0, np.inf), Stop(-1.0, -1.0, 1e-1, 3e-1)):
        one, other = (M.solve(P, right.copy(), 0.3, stop, 250) for M in (made, outside))
        assert one.products == other.products
        assert one.fall == pytest.approx(other.fall, rel=1e-3)
        np.testing.assert_allclose(one.x, other.x, rtol=0, atol=close * float(np.max(np.abs(other.x))))


@pytest.mark.parametrize("size", [5, 64, 65])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverses_of_any_size(size, dtype):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(size, 2 * size))
    A = A @ A.T
    inverse = preconditioners._inverse(A.copy(), np.dtype(dtype))
    assert inverse is not None
    np.testing.assert_allclose(inverse @ A, np.eye(size), atol=1e-8 if dtype == np.float64 else 1e-4)
    assert preconditioners._inverse(A - 1e3 * size * np.eye(size), np.dtype(dtype)) is None


def test_diagonals_where_all_classes_are_alike():
    for twins in (False, True):
        scores, *_ = helpers.scores_of("csr", np.float64, twins=twins)
        P = np.full((scores.n, 7), 1 / 7)
        rest = helpers.rest(P, 1)
        of_each, of_all = preconditioners.diagonal, preconditioners.uniform_diagonal
        one, other = (make(scores, P, rest, 0.3) for make in (of_each, of_all))
        r = np.random.default_rng(1).normal(size=(41, 7))
        np.testing.assert_allclose(one(r), other(r), rtol=1e-10)


def _few_products_for_a_basis(hard, monkeypatch):
    """A problem of which a basis costs six products, and a list that grows where one is made."""
    made, whole = [], kronecker.basis
    monkeypatch.setattr(kronecker, "basis", lambda *given: made.append(len(given)) or whole(*given))
    monkeypatch.setattr("xmcjax.solvers.multinomial._costs.of_a_basis", lambda *sizes: 5.5)
    monkeypatch.setattr("xmcjax.solvers.multinomial._costs._MOST_NUMBERS", 50 * 50)
    rng = np.random.default_rng(0)
    y, turned = rng.integers(0, 12, 600), np.linalg.qr(rng.normal(size=(40, 40)))[0]
    X = 0.3 * rng.normal(size=(12, 40))[y] + rng.normal(size=(600, 40))
    if hard:
        X = X * np.geomspace(0.03, 1, 40) @ turned
    return helpers.problem(X, y, 1.0 if hard else 3000.0, intercept=True), made


@pytest.mark.parametrize("hard", [False, True])
def test_a_basis_is_made_where_a_diagonal_has_had_as_many_products_as_it_costs(hard, monkeypatch):
    """It took most of the time of problems that a diagonal ends."""
    problem, made = _few_products_for_a_basis(hard, monkeypatch)
    solution = multinomial.run(problem, "block_newton", multinomial.HParams(1e-6, 200))
    assert solution.status == Status.CONVERGED
    counts = [int(state.inner) for state in solution.history]
    # no direction before has more than are left, and a hard one has them all
    assert (6 in counts) == bool(made) == (counts[-1] > 6) == hard


def test_products_with_a_diagonal_are_counted_over_all_runs_from_a_checkpoint(tmp_path, monkeypatch):
    """A run that was stopped after each step would never have a basis, and few products for each."""
    problem, made = _few_products_for_a_basis(True, monkeypatch)
    hp = multinomial.HParams(1e-6, 200)
    whole = multinomial.run(problem, "block_newton", hp)
    for steps in range(1, 100):
        more = hp._replace(max_steps=steps)
        solution = multinomial.run(problem, "block_newton", more, checkpoint=tmp_path / "state")
        if solution.status == Status.CONVERGED:
            break
    assert len(made) > 1 and steps <= int(whole.history[-1].steps) + 2
