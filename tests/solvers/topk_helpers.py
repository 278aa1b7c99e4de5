"""Problems, objectives and a QP solver for the tests of dual ascent over instances."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.sparse as sp

from xmcjax import linops
from xmcjax.solvers.instance_dual import Gram


def data(n=40, d=7, m=5, seed=0, dtype=np.float64):
    """Features with a row of zeros and two equal rows, and noisy classes of a linear model that all occur."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X[3], X[5] = 0, X[4]
    y = np.argmax(X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m)), axis=1)
    y[:m] = np.arange(m)
    return X.astype(dtype), y


def features(X, kind, backend):
    """X as the solver takes it: "dense", "csr" or "gram"."""
    if kind == "gram":
        return Gram(jnp.asarray(X @ X.T))
    if kind == "dense":
        return linops.make(X, backend="dense")
    return linops.make(sp.csr_matrix(X), backend=backend)


def margins(X, y, W):
    """h over the classes other than y, [n, m − 1]."""
    Z = X @ W.T
    rows = np.arange(len(y))
    H = 1 + Z - Z[rows, y][:, None]
    other = np.arange(W.shape[0]) != y[:, None]
    return H[other].reshape(len(y), -1)


def losses(H, set_name, k):
    """φ written down a second time, from sorted margins."""
    H = -np.sort(-H, axis=1)
    if set_name == "box":
        return np.maximum(H, 0).sum(1)
    H = H[:, :k]
    return np.maximum(H.mean(1), 0) if set_name == "topk_alpha" else np.maximum(H, 0).mean(1)


def objective(X, y, W, C, set_name, k):
    """½‖W‖² + Σ C_i φ(z_i)."""
    return (W**2).sum() / 2 + (C * losses(margins(X, y, W), set_name, k)).sum()


def optimum(X, y, C, set_name, k, m):
    """The optimal value by a general QP solver: the losses as maxima of sums over subsets of classes."""
    n, d = X.shape
    sizes = {"topk_alpha": (0, k), "topk_beta": range(k + 1), "box": range(m)}[set_name]
    scale = 1.0 if set_name == "box" else 1.0 / k
    rows, right = [], []
    for i in range(n):
        others = [j for j in range(m) if j != y[i]]
        for size in sizes:
            for chosen in itertools.combinations(others, size):
                # ξ_i ≥ scale Σ_{j chosen} (1 + (w_j − w_y)·x_i)
                row = np.zeros(m * d + n)
                for j in chosen:
                    row[j * d : (j + 1) * d] -= scale * X[i]
                    row[y[i] * d : (y[i] + 1) * d] += scale * X[i]
                row[m * d + i] = 1
                rows.append(row)
                right.append(scale * len(chosen))
    A, b = np.array(rows), np.array(right)
    q = np.concatenate([np.zeros(m * d), np.full(n, C)])
    P = np.concatenate([np.ones(m * d), np.zeros(n)])
    start = np.zeros(m * d + n)
    start[m * d :] = m
    solved = scipy.optimize.minimize(
        lambda v: (P * v) @ v / 2 + q @ v,
        start,
        jac=lambda v: P * v + q,
        constraints={"type": "ineq", "fun": lambda v: A @ v - b, "jac": lambda v: A},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    # it ends where its line search meets the rounding: what counts is the value of the weights
    return objective(X, y, solved.x[: m * d].reshape(m, d), C, set_name, k)
