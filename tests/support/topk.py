"""Problems of dual ascent over instances, and their objectives by the losses of the library and by NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.objectives import least
from xmcjax import linops, losses
from xmcjax.solvers import instance_dual, topk_sdca

# by the name of each set, that of its loss; the box has the loss of Weston and Watkins
LOSSES = {"topk_alpha": "alpha", "topk_beta": "beta", "box": "ww"}
TIGHT = topk_sdca.HParams(tol=1e-9, max_epochs=100_000, block=16, sweeps=2)
SIZE = dict(n=40, d=7, m=5)
STEP = jax.jit(topk_sdca.step)  # which is long in being traced


def features(X, kind, backend="auto"):
    """X as the solver takes it: "dense", "csr" or "gram"."""
    if kind == "gram":
        return topk_sdca.Gram(jnp.asarray(X @ X.T))
    return linops.make(
        X if kind == "dense" else sp.csr_matrix(X), backend="dense" if kind == "dense" else backend
    )


def make(X, y, set_name, k=1, gamma=0.0, *, C=1.0, kind="dense", backend="auto"):
    """A lane for each k and γ."""
    op = features(X, kind, backend)
    backend = "auto" if kind == "csr" else backend
    bound = np.asarray(C, float)
    return instance_dual.problem(op, y, set_name=set_name, bound=bound, k=k, gamma=gamma, backend=backend)


def solve(problem, hp=TIGHT, seed=0, **how):
    return topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(seed), **how))


def smooth(W, X, y, gamma, C, set_name, k):
    """P of weights [m, d] where it has a slope, from the library's losses, which have tests of their own."""
    scores = X @ W.T
    if set_name == "topk_entropy":
        of_rows = losses.topk_entropy(scores, y, k)
    elif set_name == "box":
        gains = 1 + scores - jnp.take_along_axis(scores, y[:, None], 1)
        x = jnp.clip(gains / gamma, 0, 1)
        of_classes = x * (gains - gamma / 2 * x)
        of_rows = jnp.sum(of_classes, axis=1) - jnp.take_along_axis(of_classes, y[:, None], 1)[:, 0]
    else:
        of_rows = losses.smooth_topk_hinge(scores, y, k, gamma, LOSSES[set_name])
    return jnp.sum(W**2) / 2 + jnp.sum(C * of_rows)


def objective(W, X, y, set_name, k, gamma, C) -> float:
    """P at W [m, d]."""
    W, X = np.asarray(W, np.float64), X.astype(np.float64)
    if gamma == 0 and set_name != "topk_entropy":
        return dual_references.objective(W.T, X, y, LOSSES[set_name], k, C)
    return float(smooth(W, X, y, gamma, C, set_name, k))


_slope = jax.jit(jax.value_and_grad(smooth), static_argnames=("set_name", "k"))


def minimum(X, y, set_name, k, gamma, C) -> float:
    """By L-BFGS on the primal, which has a slope."""
    m, d = y.max() + 1, X.shape[1]

    def both(w):
        value, slope = _slope(w.reshape(m, d), X, y, jnp.float64(gamma), C, set_name=set_name, k=k)
        return float(value), np.asarray(slope, np.float64).ravel()

    return least(both, m * d)


def dual(x, X, y, set_name, gamma, C) -> float:
    """D of x [n, m] without the entries of the classes of the rows."""
    own = np.zeros_like(x)
    own[np.arange(len(y)), y] = x.sum(axis=1)
    if set_name == "topk_entropy":
        u = x / C[:, None]
        gain = -np.sum(C * (plogp(u).sum(axis=1) + plogp(1 - u.sum(axis=1))))
    else:
        gain = x.sum() - (gamma / C[:, None] * x**2).sum() / 2
    return gain - ((X.T @ (own - x)) ** 2).sum() / 2


def plogp(p):
    return np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0)
