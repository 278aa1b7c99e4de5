"""Native products of block_newton of shapes for which they are made in parts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import multinomial as helpers
from tests.support.problems import needs_native
from xmcjax import native
from xmcjax.solvers.multinomial import block_newton


def _called(monkeypatch) -> list[str]:
    """The names of native calls from now on."""
    names, once = [], native.InPlace.once

    def noted(name, **given):
        names.append(name)
        return once(name, **given)

    monkeypatch.setattr(native.InPlace, "once", noted)
    return names


@needs_native
@pytest.mark.parametrize(("n", "d", "classes", "few"), [(1000, 600, 300, False), (3000, 50, 20, True)])
def test_a_gradient_has_sums_of_groups_where_they_are_few(n, d, classes, few, monkeypatch):
    """Where weights are many beside the rows, such sums would take more memory than the features."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, d)).astype(np.float32), np.arange(n) % classes
    problem = helpers.problem(X, y, intercept=True)
    scores = block_newton.scores_of(problem, precise=False, threads=2)
    P = rng.dirichlet(np.ones(classes), n).astype(np.float32).T.copy()
    R = P.astype(np.float64)
    R[y, np.arange(n)] -= 1
    before, names = P.copy(), _called(monkeypatch)
    found = []
    for threads in (1, 2, 3):
        scores.threads = threads
        found.append(scores.gradient(P, helpers.rest(P)))
    assert names == 3 * ["softmax_gradient_by_class"] * few
    np.testing.assert_array_equal(P, before)
    expected = np.hstack([R @ X, R.sum(axis=1, keepdims=True)])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-3)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@needs_native
@pytest.mark.parametrize("n", [130, 1500, 2100])
def test_directions_of_few_rows_do_not_depend_on_the_threads(n):
    rng = np.random.default_rng(n)
    X, y = helpers.sparse_set(n, 40, 70, dtype=np.float32)
    scores = block_newton.scores_of(helpers.problem(X, y, intercept=True), precise=False, threads=1)
    P = rng.dirichlet(np.ones(70), n).astype(np.float32)
    right = rng.normal(size=(41, 70)).astype(np.float32)
    right -= right.mean(axis=1, keepdims=True)
    found = []
    for threads in (1, 2, 3, 7):
        scores.threads = threads
        x, r, sums = np.empty_like(right), right.copy(), np.empty(2)
        least = np.array([0.0, 0.0, -1.0, -1.0])
        inverse = np.ones_like(right)
        scores.solve(P, inverse=inverse, ridge=0.5, least=least, max_steps=5, r=r, x=x, sums=sums)
        assert sums[0] == 5
        # what conjugate gradients leave, by the product with the Hessian
        hessian = scores.hessian(P)
        hessian.V[:] = x
        hessian.product()
        hessian.out[:-1] += 0.5 * x[:-1]
        left = right - hessian.out
        np.testing.assert_allclose(r, left - left.mean(axis=1, keepdims=True), atol=1e-3)
        found.append((x, r, sums))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 31, 32, 33, 64, 65, 96, 150, 192, 193])
def test_products_with_the_hessian_of_any_number_of_classes(classes, dtype, monkeypatch):
    """Sums of a row stay in registers where they are neither few nor too many; the last ones may overlap."""
    monkeypatch.setattr("xmcjax.solvers.multinomial._scores._FEW", 1 << 60)  # in the dtype of X
    rng = np.random.default_rng(classes)
    X, y = helpers.sparse_set(300, 30, classes, dtype=dtype)
    problem = helpers.problem(X, y, intercept=True, weight=rng.uniform(0.1, 3, 300).astype(dtype))
    scores = block_newton.scores_of(problem, precise=True, threads=1)
    P = rng.dirichlet(np.ones(classes), 300).astype(dtype)
    right = rng.normal(size=(31, classes)).astype(dtype)
    right -= right.mean(axis=1, keepdims=True)
    x, r, sums = np.empty_like(right), right.copy(), np.empty(2)
    given = dict(inverse=np.ones_like(right), ridge=0.5, least=np.array([0.0, 0.0, -1.0, -1.0]))
    scores.solve(P, **given, max_steps=3, r=r, x=x, sums=sums)
    assert sums[0] == 3
    wide, c = x.astype(np.float64), problem.weight.astype(np.float64)
    U = X @ wide[:-1] + wide[-1]
    R = np.asarray(c)[:, None] * P * (U - np.sum(P * U, axis=1, keepdims=True))
    left = right - np.vstack([X.T @ R + 0.5 * wide[:-1], R.sum(axis=0)])
    left -= left.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(r, left, atol=2e-4 if dtype == np.float32 else 1e-12)


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lanes", [1, 2, 7, 8, 9, 17, 150])
def test_right_sides_and_steps(lanes, dtype):
    rng = np.random.default_rng(lanes)
    V, (gradient, direction) = rng.normal(size=(5, lanes)), rng.normal(size=(2, 5, lanes)).astype(dtype)
    inverse = rng.uniform(1, 2, (5, lanes)).astype(dtype)
    r, moved, three, two = np.empty_like(gradient), np.empty_like(V), np.empty(3), np.empty(2)
    given = dict(V=V, gradient=gradient, inverse=inverse, ridge=0.3, threads=1)
    native.InPlace.once("softmax_right_side", **given, r=r, sums=three)
    native.InPlace.once("softmax_moved", V=V, direction=direction, threads=1, moved=moved, sums=two)
    ridged = gradient + np.r_[0.3, 0.3, 0.3, 0.3, 0.0][:, None] * V
    z = inverse * (right := ridged.mean(axis=1, keepdims=True) - ridged)
    z -= z.mean(axis=1, keepdims=True)
    near = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(r, right, near, near)
    squares = np.vdot(ridged, ridged), np.vdot(V[:-1], V[:-1])
    np.testing.assert_allclose(three, np.array([*squares, np.vdot(right, z)]), near, near)
    np.testing.assert_allclose(moved, V + direction, rtol=1e-15)
    D = direction[:-1].astype(np.float64)
    np.testing.assert_allclose(two, np.array([np.vdot(V[:-1], D), np.vdot(D, D)]), 1e-12)
