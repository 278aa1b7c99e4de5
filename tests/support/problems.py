"""Small problems that many tests solve, with the backends that solve them, and their objectives."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from xmcjax.native import available

needs_native = pytest.mark.skipif(not available(), reason="no native kernels")
BACKENDS = ["dense", "jnp", pytest.param("native", marks=needs_native)]


def svm_problem(n=20, d=4, m=3, seed=0, dtype=np.float64):
    """Noisy classes of a linear model that all occur; a row of zeros, two equal rows of two classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X[3], X[0] = 0, X[1]
    y = np.argmax(X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m)), axis=1)
    y[:m] = np.arange(m)
    return X.astype(dtype), y


def confusable():
    """Sparse rows, three quarters noise: an SVM has many dual variables inside their bounds."""
    n, d, m, nonzeros = 2000, 1000, 100, 15
    rng = np.random.default_rng(0)
    share = 1 / np.sqrt(np.arange(1, m + 1))
    y = np.r_[np.arange(m), rng.choice(m, n - m, p=share / share.sum())]
    typical = rng.integers(0, d, (m, 50))[y]
    own = np.take_along_axis(typical, rng.integers(0, 50, (n, nonzeros)), axis=1)
    columns = np.where(rng.random((n, nonzeros)) < 0.25, own, (rng.zipf(1.3, (n, nonzeros)) - 1) % d)
    ones = np.ones(n * nonzeros)
    X = sp.csr_array((ones, (np.repeat(np.arange(n), nonzeros), columns.ravel())), shape=(n, d))
    X.data[:] = 1
    return sp.csr_array(sp.diags_array(1 / np.sqrt(X.sum(axis=1))) @ X).astype(np.float32), y


@functools.cache
def svm_minimum(kind: str, C: float, k: int = 1, **size) -> float:
    """Of :func:`svm_problem`, by an interior point method."""
    X, y = svm_problem(**size)
    return dual_references.bound(X, y, y.max() + 1, kind, k, C)


def lanes_problem(n=80, d=30, lanes=5, dtype=np.float64):
    """Sparse features, and targets ±1 of lanes, each with a positive row."""
    rng = np.random.default_rng(0)
    X = sp.random(n, d, 0.3, format="csr", random_state=0, dtype=np.float64).astype(dtype)
    y = np.where(rng.random((n, lanes)) < 0.2, 1, -1).astype(np.int8)
    y[0] = 1
    return X, y
