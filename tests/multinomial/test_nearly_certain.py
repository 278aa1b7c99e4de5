"""Probabilities that are nearly 1, of rows that are separated: what they lack has its digits in float32."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from tests.support import multinomial as helpers
from tests.support.internals import kronecker, preconditioners
from tests.support.problems import needs_native
from xmcjax import linops
from xmcjax.lanes import precision
from xmcjax.native import twins
from xmcjax.solvers import Status, multinomial


def _near(found, expected):
    """To the digits of float32, of scores and sums, beside the largest."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * float(np.max(np.abs(expected))))


@pytest.fixture(params=[False, pytest.param(True, marks=needs_native)], ids=["numpy", "native"])
def native(request):
    return request.param


@pytest.fixture(params=[2, 7])
def classes(request):
    """Of two there are kernels of their own."""
    return request.param


@pytest.fixture(params=helpers.KINDS)
def certain(request, native, classes):
    """Scores, X, classes and weights; scores Z and U along a line, [n, K], where p is 1 − 1e-9 to 1e-4."""
    scores, X, y, c = helpers.scores_of(request.param, np.float32, n=300, classes=classes, twins=not native)
    rng = np.random.default_rng(0)
    Z, U = rng.normal(size=(2, 300, classes)).astype(np.float32)
    Z[np.arange(300), y] += rng.uniform(12, 20, 300).astype(np.float32)
    # some rows are certain of a class that is not theirs
    Z[np.arange(5), (y[:5] + 1) % classes] += 40
    return scores, X, y, c, Z, U


def _turned(scores, A):
    return np.ascontiguousarray(A.T) if scores.axis == 0 else A


def _of_the_right(scores, c):
    """The weights, now without the rows that are certain and wrong: what the others make is small."""
    c = np.where(np.arange(len(c)) < 5, 0, c)
    scores.weight[:] = c
    if scores.axis == 0 and scores.native:
        scores.blocks["weight"] = scores.in_blocks(scores.weight[None])[:, 0]
    return c


def _softmax(Z):
    """In float64, and 1 less each, by the sum of the others."""
    E = np.exp(Z.astype(np.float64) - Z.max(axis=1, keepdims=True))
    others = np.stack([np.delete(E, k, axis=1).sum(axis=1) for k in range(Z.shape[1])], axis=1)
    mass = E.sum(axis=1, keepdims=True)
    return E / mass, others / mass


def test_losses_along_a_line(certain):
    scores, _, y, c, Z, U = certain
    t, rows = 0.25, np.arange(len(y))  # which float32 has
    along = scores.along(_turned(scores, Z), _turned(scores, U), t)
    P, lacking = _softmax(Z.astype(np.float64) + t * U)
    V = U.astype(np.float64) - U[rows, y][:, None]
    losses = np.where(P[rows, y] > 0.5, -np.log1p(-lacking[rows, y]), -np.log(P[rows, y]))
    mean = (P * V).sum(axis=1)
    c = _of_the_right(scores, c)
    right = scores.along(_turned(scores, Z), _turned(scores, U), t)
    spread = (P * (V - mean[:, None]) ** 2).sum(axis=1)
    expected = c @ losses, c @ mean, c @ spread
    np.testing.assert_allclose((right.value, right.slope, right.curvature), expected, rtol=2e-5)
    np.testing.assert_allclose(along.rest, lacking.min(axis=1), rtol=1e-4)


def test_gradients_and_products_with_the_hessian(certain, classes):
    scores, X, y, c, Z, U = certain
    c = _of_the_right(scores, c)
    now = scores.along(_turned(scores, Z), _turned(scores, 0 * U), 0.0)
    P, lacking = _softmax(Z)
    R, Xb = c[:, None] * P, np.hstack([X, np.ones((len(y), 1))])
    R[np.arange(len(y)), y] = -c * lacking[np.arange(len(y)), y]
    _near(_turned(scores, scores.gradient(now.P, now.rest)), Xb.T @ R)
    _near(_turned(scores, scores.transposed(scores.slope(now.P, now.rest))), Xb.T @ R)
    V = np.random.default_rng(1).normal(size=(41, classes)).astype(np.float32)
    D = (Xb @ V)[:, :, None] - (Xb @ V)[:, None, :]  # of the scores of two classes
    curved = c[:, None] * P * np.einsum("il,ikl->ik", P, D)
    hessian = scores.hessian(now.P)
    hessian.V[:] = _turned(scores, V)
    hessian.product()
    _near(_turned(scores, hessian.out), Xb.T @ curved)
    # one product of conjugate gradients, natively another call
    made = preconditioners.Preconditioner(scores, np.copy)
    if scores.native:
        shape = (classes, 41, 41) if scores.axis == 0 else (41, classes)
        one = np.tile(np.eye(41), (classes, 1, 1)) if scores.axis == 0 else np.ones(shape)
        kind = preconditioners.Blocks if scores.axis == 0 else preconditioners.Diagonal
        made = kind(scores, one.astype(np.float32))
    V -= V.mean(axis=1, keepdims=True)
    left = _turned(scores, V).copy()
    found = made.solve(now.P, left, 0.0, preconditioners.Stop(0.0, 0.0), 1)
    step = _turned(scores, found.x) / V
    D = (Xb @ V)[:, :, None] - (Xb @ V)[:, None, :]
    product = Xb.T @ (c[:, None] * P * np.einsum("il,ikl->ik", P, D))
    _near((V - _turned(scores, left)) / step, product)


def test_preconditioners(certain, classes):
    scores, X, y, c, Z, U = certain
    c = _of_the_right(scores, c)
    now = scores.along(_turned(scores, Z), _turned(scores, 0 * U), 0.0)
    P, lacking = _softmax(Z)
    w, Xb = c[:, None] * P * lacking, np.hstack([X, np.ones((len(y), 1))])
    r = np.random.default_rng(1).normal(size=(41, classes)).astype(np.float32)
    ridge = 1e-4 * float(w.sum())
    last = preconditioners._BIAS * float(c.sum())
    ridges = np.r_[np.full(40, ridge), last]
    diagonal = preconditioners.diagonal(scores, now.P, now.rest, ridge)
    z = r / ((Xb * Xb).T @ w + ridges[:, None])
    _near(_turned(scores, diagonal(_turned(scores, r))), z - z.mean(axis=1, keepdims=True))
    if scores.axis == 1:
        return
    blocks = preconditioners.blocks(scores, now.P, now.rest, ridge, preconditioners.gram(scores))
    A = [(Xb * w[:, k, None]).T @ Xb + np.diag(ridges) for k in range(classes)]
    z = np.stack([np.linalg.solve(A[k], r[:, k]) for k in range(classes)], axis=1)
    z -= z.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(
        _turned(scores, blocks(_turned(scores, r))), z, rtol=0, atol=1e-2 * np.abs(z).max()
    )
    E, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(classes, classes)))
    pairs = (E[:, None, :] - E[None, :, :]) ** 2 / 2  # Σ_{j < l} p_j p_l (E_jk − E_lk)²
    _near(kronecker._variances(E.astype(np.float32), now.P), np.einsum("ij,il,jlk->ki", P, P, pairs))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(200, 500), (300, 60)])
def test_separated_rows_and_a_large_C_take_few_products(n, d, dtype, native):
    """Blocks and products of what rounding left took thousands in float64, and did not do in float32."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 20
    X = (0.3 * rng.normal(size=(20, d))[y] * (500 / d) ** 0.5 + rng.normal(size=(n, d))).astype(dtype)
    for C in (1e4, 1e6, 1e8):
        with precision(dtype), contextlib.nullcontext() if native else twins():
            problem = multinomial.multinomial_problem(linops.make(X), y, lam=1 / C, intercept=True)
            found = multinomial.run(problem, "block_newton")
        assert found.status == Status.CONVERGED and found.gap <= 1e-4
        assert found.history[-1].inner <= 200, C
