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
        found.append(scores.gradient(P))
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
