"""Features in float32 whose kernel values have too few digits there are fitted in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from tests.support.internals import kernel_training
from xmcjax import KernelLogisticClassifier
from xmcjax.kernels import RBF, Kernel, Linear, Matern, Scaled
from xmcjax.solvers import Status


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Own(Kernel):
    """A kernel of which the library knows nothing."""

    w: Any

    def value(self, pairs):
        return 1 / (1 + self.w * pairs.distance2 / pairs.features)

    def tree_flatten(self):
        return (self.w,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def clusters(far, n=90):
    """Two clusters as far from each other as twice this, and classes within them."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 2))
    X = np.hstack([z, far * (2 * rng.integers(0, 2, (n, 1)) - 1.0)])
    return X.astype(np.float32), (z[:, 0] > 0) + 2 * (z[:, 1] > 0)


def taken(X, kernel, weight=None):
    """The dtype of a fit."""
    model, y = KernelLogisticClassifier(kernel, v=1.0), np.arange(X.shape[0]) % 3
    return kernel_training.training(model, X, y, weight, widen=True)[1]


@pytest.mark.parametrize(
    ("kernel", "far"),
    [
        (RBF(1.0), 100),
        (Scaled(1.0, RBF(1.0)), 100),
        (RBF(0.5) * RBF(0.5), 100),
        (RBF(1.0) + Scaled(0.5, Matern(1.0)), 100),
        (Own(1.0), 100),
        (Matern(1.0, 0.5), 40),  # whose root magnifies what is rounded
    ],
    ids=["rbf", "scaled", "product", "sum", "own", "root"],
)
def test_clusters_that_are_far_from_each_other(kernel, far):
    for form in (np.asarray, sp.csr_array):
        assert taken(form(clusters(1)[0]), kernel) == np.float32
        assert taken(form(clusters(far)[0]), kernel) == np.float64


@pytest.mark.parametrize(
    ("kernel", "v", "tol"), [("rbf", 300.0, 1e-4), ("rbf", 3000.0, 1e-3), ("linear", 300.0, 1e-3)]
)
def test_a_loose_tolerance_is_reached_in_float32(kernel, v, tol):
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(3, 4)), rng.integers(0, 3, 140)
    X = (centres[y] + 1.2 * rng.normal(size=(140, 4))).astype(np.float32)
    model = KernelLogisticClassifier(kernel, v=v, tol=tol).fit(X, y)  # without a warning
    assert "in float64" not in model.reason_ and model.status_ == Status.CONVERGED
    exact = KernelLogisticClassifier(kernel, v=v).fit(X.astype(np.float64), y)
    assert abs(model.objective_ / exact.objective_ - 1) <= tol
    for tight in (tol / 10, 1e-5, 1e-9):
        fitted = KernelLogisticClassifier(kernel, v=v, tol=tight).fit(X, y)
        assert "in float64" in fitted.reason_ and fitted.status_ == Status.CONVERGED


def test_a_loose_tolerance_that_float32_does_not_reach_is_reached_in_float64(monkeypatch):
    X, y = clusters(1)
    begun = []
    family = KernelLogisticClassifier._family

    def of(model, data, *rest):
        begun.append(data.points.dtype)
        return family(model, data, *rest)

    monkeypatch.setattr(KernelLogisticClassifier, "_family", of)
    # of so few steps no fit ends: what is judged is the end in float32
    model = KernelLogisticClassifier("rbf", v=300.0, tol=1e-3, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="not converged") as told:
        model.fit(X, y)
    assert begun == [np.float32, np.float64] and "in float64" in model.reason_
    assert len(told) == 1 and told[0].filename == __file__
    begun.clear()
    with pytest.warns(ConvergenceWarning, match="not converged"):
        model.set_params(v=1.0).fit(X, y)
    assert begun == [np.float32] and "in float64" not in model.reason_


def test_a_fit_in_float64_is_that_to_the_same_features_in_float64():
    X, y = clusters(100)
    model, exact = (KernelLogisticClassifier(Scaled(1.0, RBF(1.0))).fit(a, y) for a in (X, X.astype(float)))
    assert "in float64" in model.reason_ and "in float64" not in exact.reason_
    np.testing.assert_allclose(model.predict_proba(X), exact.predict_proba(X.astype(float)), atol=1e-6)


def test_few_rows_far_from_all_others():
    X, _ = clusters(1, n=300)
    X[[7, 200], 2] += 1000  # near each other
    assert taken(X, Scaled(1.0, RBF(1.0))) == np.float64
    assert taken(X, RBF(1.0), weight=1.0 - np.isin(np.arange(300), [7, 200])) == np.float32


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_features_whose_products_underflow(kernel):
    X, _ = clusters(1)
    assert taken(np.float32(1e-15) * X, kernel) == np.float32
    assert taken(np.float32(1e-18) * X, kernel) == np.float64
    assert taken(0 * X, kernel) == np.float32


def test_stacks_and_sums_with_the_linear_kernel():
    X, _ = clusters(40)
    assert taken(X, Matern(np.array([1e-6, 1e-5, 1e-4]), 0.5)) == np.float32
    assert taken(X, Matern(np.array([1e-6, 1.0, 1e-4]), 0.5)) == np.float64
    assert taken(X, Scaled(1e-3, Linear()) + Scaled(1e-3, Linear()) * RBF(1e-4)) == np.float32


@pytest.mark.parametrize("v", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("dtypes", [["f8"], ["f4"], ["f4", "f8"]], ids="-".join)
def test_kernel_values_of_few_features(v, dtypes):
    """A kernel matrix without full rank, whose eigenvalues of 0 are rounded, also to less."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = np.argmax(X @ rng.normal(size=(4, 3)) + rng.gumbel(size=(400, 3)), axis=1)
    K = X @ X.T
    for dtype in dtypes:
        K = K.astype(dtype)
    model = KernelLogisticClassifier("precomputed", v=v).fit(K, y)  # without a warning
    assert model.status_ == Status.CONVERGED and model.n_iter_ < 30
    wanted = KernelLogisticClassifier("linear", v=v).fit(X, y)
    assert abs(model.objective_ - wanted.objective_) <= 1e-5 * wanted.objective_


def test_given_values_of_many_digits():
    K = np.eye(90, dtype=np.float32)
    assert taken(K, "precomputed") == np.float32
    assert taken(1000 * K, "precomputed") == np.float64
