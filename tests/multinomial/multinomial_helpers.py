"""Small problems, their objective written down a second time, and scikit-learn's answer."""

from __future__ import annotations

import functools

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from xmcjax import linops
from xmcjax.solvers import multinomial


def sparse_set(n=90, d=40, classes=7, seed=0, dtype=np.float64):
    """CSR features that say something about the class, and the classes."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)]).astype(np.int32)
    X = sp.random(n, d, 0.15, format="csr", random_state=seed).toarray()
    X[np.arange(n), y] += 1.0
    return sp.csr_matrix(X.astype(dtype)), y


@functools.cache
def digits():
    """The digits, scaled to [0, 1]."""
    X, y = load_digits(return_X_y=True)
    return X / 16, y.astype(np.int32)


def problem(X, y, lam=1.0, *, backend="auto", **options):
    return multinomial.multinomial_problem(linops.make(X, backend=backend), y, lam, **options)


def objective(X, y, W, b, lam, weight=1.0):
    """G of Gopal and Yang, 2013, in numpy."""
    Z = X @ np.asarray(W, np.float64) + np.asarray(b, np.float64)
    losses = logsumexp(Z, axis=1) - Z[np.arange(len(y)), y]
    return lam / 2 * float(np.sum(np.square(W))) + float(np.sum(weight * losses))


def gradient(X, y, W, b, lam, weight=1.0):
    """(∇_W G, ∇_b G)."""
    Z = X @ W + b
    slope = np.exp(Z - logsumexp(Z, axis=1)[:, None])
    slope[np.arange(len(y)), y] -= 1
    slope = np.broadcast_to(weight, (len(y),))[:, None] * slope
    return lam * W + X.T @ slope, slope.sum(0)


def reference(X, y, lam, *, intercept=False, weight=None):
    """The minimum by scikit-learn: (G, W, b)."""
    model = LogisticRegression(
        C=1 / lam, fit_intercept=intercept, tol=1e-10, max_iter=10_000, solver="newton-cg"
    )
    model.fit(X, y, sample_weight=weight)
    W, b = model.coef_.T, model.intercept_
    return objective(X, y, W, b, lam, 1.0 if weight is None else weight), W, b
