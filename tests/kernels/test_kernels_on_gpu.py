"""Kernel matrices of sparse features by the kernels in CUDA, compiled for the CPU."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import cuda_builds
from tests.support.kernel_functions import CASES, everything
from xmcjax import KernelLogisticClassifier, kernels, linops
from xmcjax.kernels import RBF, Linear

N, D, COLUMNS = 41, 9, 3
W = np.array([0.3, 1.7])


@pytest.fixture
def on_gpu(monkeypatch):
    """Callers that ask for products get those of the kernels in CUDA."""
    cuda_builds.register()
    monkeypatch.setattr(linops, "_kernels", lambda: "cuda")


def features(dtype=np.float64, n=N, seed=0):
    """With an empty row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.4)
    X[3] = 0
    return X.astype(dtype)


def columns(*shape, seed=1):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("memory", [0, 1e9])
@pytest.mark.parametrize("name", ["rbf", "sum", "matern_1.5"])
def test_products_and_derivatives(name, memory, on_gpu, monkeypatch):
    monkeypatch.setattr("xmcjax.kernels._gram._TILE_BYTES", 8 * len(W) * N * 7)  # tiles of 7 rows
    make, value = CASES[name]
    X = features()
    Z = X[:5] * 0.5
    points = kernels.points(sp.csr_array(X))
    test = kernels.points(sp.csr_array(Z), like=points)
    for op in (points.op, test.op, points.rows(np.array([0, 2])).op):
        assert isinstance(op, linops.Grouped) and op.kernels == "cuda"
    gram = kernels.gram(make(W), points, memory=memory)
    S, U = columns(N, len(W), COLUMNS), columns(N, len(W), COLUMNS, seed=2)
    product, across, by_kernel, by_S = everything(gram, test, S, U)
    for l, w in enumerate(W):
        M = value(w, X, X)
        np.testing.assert_allclose(product[:, l], M @ S[:, l], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(across[:, l], value(w, Z, X) @ S[:, l], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(by_S[:, l], M @ U[:, l], rtol=1e-11, atol=1e-11)
    plain = kernels.points(sp.csr_array(X), backend="jnp")
    expected = everything(kernels.gram(make(W), plain, memory=memory), plain, S, U)[2]
    for ours, theirs in zip(jax.tree.leaves(by_kernel), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_a_linear_kernel_goes_through_the_features(on_gpu):
    """X (Xᵀ S), where that reads fewer numbers than the matrix has; its derivative likewise."""
    X = features(n=200)
    points = kernels.points(sp.csr_array(X))
    gram = kernels.gram(Linear(), points)
    assert gram.linear
    S, U = columns(200, 1, COLUMNS), columns(200, 1, COLUMNS, seed=2)
    product, across, _, by_S = everything(gram, points, S, U)
    np.testing.assert_allclose(product[:, 0], X @ (X.T @ S[:, 0]), rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(across, product, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(by_S[:, 0], X @ (X.T @ U[:, 0]), rtol=1e-12, atol=1e-11)
    # columns without an entry do not count, and those that all rows have do
    sparse = sp.csr_array(X)
    wide = sp.csr_array((sparse.data, sparse.indices, sparse.indptr), shape=(200, 100_000))
    assert kernels.gram(Linear(), kernels.points(wide)).linear
    full = sp.csr_array(np.random.default_rng(0).normal(size=(40, 30)))
    assert not kernels.gram(Linear(), kernels.points(full)).linear


@pytest.mark.parametrize(
    "make", [lambda k, p: kernels.low_rank(k, p, 12), lambda k, p: kernels.fourier(k, p, 8)]
)
def test_approximations(make, on_gpu):
    X = sp.csr_array(features())
    S = columns(N, 1, COLUMNS)
    ours, theirs = (make(RBF(0.7), p) for p in (kernels.points(X), kernels.points(X, backend="jnp")))
    np.testing.assert_allclose(ours.matmat(S), theirs.matmat(S), rtol=1e-9, atol=1e-9)
    test = kernels.points(X[:6], like=ours.points)
    assert isinstance(test.op, linops.Grouped)
    np.testing.assert_allclose(
        ours.cross(test, S), theirs.cross(theirs.points.rows(np.arange(6)), S), atol=1e-9
    )


def fitted(X, y, **options):
    return KernelLogisticClassifier(v=2.0, **options).fit(X, y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_classifier(kernel, on_gpu, monkeypatch):
    """The same bits twice, what plain JAX finds, and a pickle that a machine without a GPU reads."""
    X, y = sp.csr_array(features(np.float32, 120)), np.arange(120) % 3
    model, again = (fitted(X, y, kernel=kernel) for _ in range(2))
    scores = model.decision_function(X)
    assert scores.tobytes() == again.decision_function(X).tobytes()
    assert model.dual_coef_.tobytes() == again.dual_coef_.tobytes()
    stored = pickle.dumps(model)
    assert isinstance(pickle.loads(stored)._kernels.gram.points.op, linops.Grouped)
    monkeypatch.undo()
    theirs = fitted(X, y, kernel=kernel)
    np.testing.assert_allclose(scores, theirs.decision_function(X), atol=2e-3)
    read = pickle.loads(stored)
    assert isinstance(read._kernels.gram.points.op, linops.Csr)
    np.testing.assert_allclose(scores, read.decision_function(X), atol=1e-5)
