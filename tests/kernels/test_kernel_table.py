"""What every kernel of the table promises, made with the hyperparameters that it asks for."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from test_kernel_products import CASES

from xmcjax import KernelLogisticClassifier
from xmcjax.kernels import KERNELS, Pairs, Scaled

N, D = 19, 3


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((N, D))


def made(name, value=0.7):
    """A kernel with this value for each hyperparameter that has no default, and a variance."""
    fields = [f for f in dataclasses.fields(KERNELS[name]) if f.default is dataclasses.MISSING]
    return Scaled(2 * value, KERNELS[name](**{field.name: value for field in fields}))


def matrix(kernel, X):
    distance2 = ((X[:, None] - X[None]) ** 2).sum(-1)
    return np.asarray(kernel.value(Pairs(jnp.asarray(X @ X.T), jnp.asarray(distance2), float(X.shape[1]))))


@pytest.mark.parametrize("name", KERNELS)
def test_the_matrix_is_symmetric_and_positive_semidefinite(name, X):
    M = matrix(made(name), X)
    np.testing.assert_allclose(M, M.T, rtol=1e-14)
    values = np.linalg.eigvalsh(M)
    assert values.min() > -1e-12 * values.max() and values.max() > 0


@pytest.mark.parametrize("name", KERNELS)
def test_an_estimator_takes_it_by_its_name(name, X):
    y = (X[:, 0] > 0).astype(int)
    model = KernelLogisticClassifier(kernel=name).fit(X, y)
    assert isinstance(model.kernel_, KERNELS[name]) and np.mean(model.predict(X) == y) > 0.9


def test_every_kernel_has_a_case_among_the_products():
    assert set(KERNELS) <= {case.split("_")[0] for case in CASES}
