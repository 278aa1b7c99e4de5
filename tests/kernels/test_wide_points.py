"""Kernels of sparse features with many more columns than entries, beside those of dense features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.problems import needs_native
from xmcjax import KernelLogisticClassifier, kernels, linops

N, D, WIDE = 45, 3000, 1 << 20


def rows(count, seed):
    """Some columns that most rows have, one of which is nearly constant, and many of few rows or of none."""
    rng = np.random.default_rng(seed)
    X = sp.random(count, D, 0.01, format="lil", random_state=seed)
    X[:, :8] = rng.standard_normal((count, 8)) * (rng.random((count, 8)) < 0.7)
    X[:, 8] = 5 + rng.random((count, 1))
    return X.tocsr()


@pytest.fixture(scope="module")
def data():
    X, Z = rows(N, 0), rows(20, 1)
    y = (X[:, :3].toarray() + 0.3 * np.random.default_rng(2).standard_normal((N, 3))).argmax(axis=1)
    absent = np.setdiff1d(np.unique(Z.indices), np.unique(X.indices))
    assert absent.size > 100  # columns of the test rows without an entry in training
    return X, y, Z


@needs_native
def test_no_array_of_jax_has_the_size_of_all_columns():
    X = sp.csr_array((np.ones(4), ([0, 1, 2, 2], [7, 9, 7, WIDE - 1])), shape=(3, WIDE))
    points = kernels.points(X)
    assert not isinstance(points.op, linops.Dense)
    program = jax.jit(lambda points: points.pairs(0, 2, points)).lower(points)
    assert f"{WIDE}x" not in program.as_text()
    np.testing.assert_allclose(program.compile()(points).inner, [[1, 0, 1], [0, 1, 0]], atol=1e-15)


@pytest.mark.parametrize("kernel", [kernels.RBF(40.0), kernels.Linear(), kernels.Matern(20.0)])
@pytest.mark.parametrize("memory", [0, 1e9])
def test_products_are_those_of_dense_features(data, kernel, memory):
    X, _, Z = data
    S = jnp.asarray(np.random.default_rng(3).standard_normal((N, 1, 2)))
    found = []
    for form in (sp.csr_array, sp.csr_array.toarray):
        points = kernels.points(form(X))
        new = kernels.points(form(Z), like=points)
        gram = kernels.gram(kernel, points, memory=memory)
        low = kernels.low_rank(kernel, points, 12)
        found.append([gram.matrices(), gram.matmat(S), gram.cross(new, S), low.matrices(), low.cross(new, S)])
    for sparse, dense in zip(*found, strict=True):
        np.testing.assert_allclose(sparse, dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "matern", "linear"])
def test_a_fit_is_that_of_dense_features(data, kernel, tmp_path):
    X, y, Z = data
    sparse, dense = (KernelLogisticClassifier(kernel, tol=1e-10).fit(A, y) for A in (X, X.toarray()))
    assert sparse.n_features_in_ == D
    np.testing.assert_allclose(sparse.dual_coef_, dense.dual_coef_, atol=1e-8)
    u = sparse.decision_function(Z)
    np.testing.assert_allclose(u, dense.decision_function(Z.toarray()), rtol=1e-7, atol=1e-7)
    sparse.save(tmp_path / "m")
    np.testing.assert_array_equal(KernelLogisticClassifier.load(tmp_path / "m").decision_function(Z), u)


def test_derivatives_of_tuning_are_those_of_dense_features(data):
    X, y, _ = data
    folds = np.arange(N) % 3
    found = [KernelLogisticClassifier(tol=1e-10).cv_criterion(A, y, folds) for A in (X, X.toarray())]
    (value, slopes), (expected, of_dense) = found
    assert abs(value / expected - 1) < 1e-8
    np.testing.assert_allclose(slopes, of_dense, rtol=1e-5, atol=1e-7)
    v, w, step = 10.0, 800.0, 1e-4
    sides = [KernelLogisticClassifier(v=v, w=w * np.exp(s), tol=1e-11) for s in (0, step, -step)]
    (_, slopes), (up, _), (down, _) = (model.cv_criterion(X, y, folds) for model in sides)
    assert slopes.log_w == pytest.approx((up - down) / (2 * step), rel=1e-4)
