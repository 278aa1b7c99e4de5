"""A small problem of each solver of ``SOLVERS``, by every path that it has, with an oracle of its own.

An oracle is a general solver, on an objective that is written down a second time, in NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from tests.support import dual_references, objectives
from xmcjax import kernels, linops
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import SOLVERS
from xmcjax.solvers.instance_dual import Gram

N, D, CLASSES, LANES = 14, 4, 3, 2
C, L2, K = 0.7, 0.6, 1

_rng = np.random.default_rng(3)
X = _rng.normal(size=(N, D)) * (_rng.random((N, D)) < 0.8)
Y = _rng.integers(0, CLASSES, N)
Y[:CLASSES] = np.arange(CLASSES)
SIGNS = np.where(_rng.random((N, LANES)) < 0.4, 1, -1).astype(np.int8)
WEIGHT = _rng.random(N) + 0.5


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem, and how it is asked for.

    Attributes:
        problem: ``(dtype, path)`` -> the problem.
        paths: the first of them is the one that tests take that need no other.
        tight, loose: hyperparameters for float64 and for float32.
        limited: hyperparameters with too few iterations.
        optimum: least objective of each lane.
        other: a problem and hyperparameters with other numbers, which must cost no compilation.
    """

    problem: Callable[[Any, str], Any]
    paths: tuple[str, ...]
    tight: Any
    loose: Any
    limited: Any
    optimum: Callable[[], np.ndarray]
    other: Callable[[Any, Any], tuple[Any, Any]]


def features(dtype, path: str):
    """X as an operator: "dense", or CSR by the backend that is named."""
    if path == "dense":
        return linops.make(X.astype(dtype), backend="dense")
    return linops.make(sp.csr_matrix(X.astype(dtype)), backend=path)


FEATURES = ("dense", "native", "jnp") if linops.native_ready() else ("dense", "jnp")


# newton_cg: logistic regression, a free bias


def _lanes(dtype, path):
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    return SOLVERS["newton_cg"].problem(
        features(dtype, path),
        SIGNS,
        MARGIN_LOSSES["logistic"],
        weight=WEIGHT[:, None].astype(dtype),
        tolerance=tolerance,
    )


def _lanes_optimum():
    return np.array([objectives.lane_minimum(X, y, "logistic", WEIGHT, l2=L2, l2_bias=0.0) for y in SIGNS.T])


def _other_lanes(problem, hp):
    return dataclasses.replace(problem, weight=problem.weight * 2), hp._replace(l2=0.9, max_steps=90)


# multinomial: with intercepts


def _multinomial(dtype, path):
    solver = SOLVERS["multinomial"]
    return solver.problem(features(dtype, path), Y, L2, weight=WEIGHT, intercept=True)


def _multinomial_optimum():
    return np.array(objectives.multinomial_minimum(X, Y, L2, WEIGHT, intercept=True))


def _other_multinomial(problem, hp):
    return dataclasses.replace(problem, l2=problem.l2 * 2), hp._replace(max_steps=900)


# kernel_multinomial: two lanes of other weights


def _kernel(dtype, path):
    points = kernels.points(sp.csr_matrix(X.astype(dtype)) if path == "sparse" else X.astype(dtype))
    gram = kernels.gram(kernels.RBF(0.4), points, memory=0 if path == "tiles" else 2**20)
    weight = np.stack([WEIGHT, WEIGHT[::-1]], axis=1).astype(dtype)
    K = kernels.class_kernels(gram, 1.5, 0.3, CLASSES)
    return SOLVERS["kernel_multinomial"].problem(K, Y, weight, exact=path == "exact")


def _kernel_optimum():
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    matrix = 1.5 * np.exp(-0.4 / (2 * D) * squares) + 0.3

    def least(weight):
        def both(x):
            alpha = x.reshape(N, CLASSES)
            U = matrix @ alpha
            log_z = logsumexp(U, axis=1)
            slope = np.exp(U - log_z[:, None])
            slope[np.arange(N), Y] -= 1
            value = weight @ (log_z - U[np.arange(N), Y]) + (alpha * U).sum() / 2
            return value, (matrix @ (weight[:, None] * slope + alpha)).ravel()

        return objectives.least(both, N * CLASSES)

    return np.array([least(WEIGHT), least(WEIGHT[::-1])])


def _other_kernel(problem, hp):
    return dataclasses.replace(problem, weight=problem.weight * 2), hp._replace(max_steps=90, armijo=1e-3)


# the two dual solvers


def _multiclass(dtype, path):
    if path == "dense":
        return SOLVERS["multiclass_dual"].problem(X.astype(dtype), Y, C=C, backend="dense")
    return SOLVERS["multiclass_dual"].problem(sp.csr_matrix(X.astype(dtype)), Y, C=C, backend=path)


def _other_multiclass(problem, hp):
    return dataclasses.replace(problem, C=problem.C * 2), hp._replace(max_epochs=900)


def _instances(dtype, path):
    if path == "gram":
        op, backend = Gram(jnp.asarray((X @ X.T).astype(dtype))), "jnp"
    elif path == "dense in JAX":
        op, backend = features(dtype, "dense"), "jnp"
    else:
        op, backend = features(dtype, path), "auto"
    return SOLVERS["instance_dual"].problem(
        op, Y, set_name="topk_alpha", bound=np.array([[C], [2 * C]]), k=K, backend=backend
    )


def _other_instances(problem, hp):
    return dataclasses.replace(problem, bound=problem.bound * 2), hp._replace(max_epochs=900)


def _hp(name: str, **numbers):
    return SOLVERS[name].hparams(**numbers)


CASES = {
    "newton_cg": Case(
        _lanes,
        FEATURES,
        _hp("newton_cg", l2=L2, l2_bias=0.0, decrement=1e-14),
        _hp("newton_cg", l2=L2, l2_bias=0.0, decrement=1e-6),
        _hp("newton_cg", l2=L2, l2_bias=0.0, max_steps=1),
        _lanes_optimum,
        _other_lanes,
    ),
    "multinomial": Case(
        _multinomial,
        FEATURES,
        _hp("multinomial", tolerance=1e-8),
        _hp("multinomial", tolerance=1e-4),
        _hp("multinomial", tolerance=1e-8, max_steps=1),
        _multinomial_optimum,
        _other_multinomial,
    ),
    "kernel_multinomial": Case(
        _kernel,
        ("stored", "tiles", "sparse", "exact"),
        _hp("kernel_multinomial", tolerance=1e-10),
        _hp("kernel_multinomial", tolerance=1e-4),
        _hp("kernel_multinomial", tolerance=1e-10, max_steps=1),
        _kernel_optimum,
        _other_kernel,
    ),
    "multiclass_dual": Case(
        _multiclass,
        FEATURES,
        _hp("multiclass_dual", tol=1e-8),
        _hp("multiclass_dual", tol=1e-4),
        _hp("multiclass_dual", tol=1e-12, max_epochs=1),
        lambda: np.array(dual_references.bound(X, Y, CLASSES, "ww", 1, C)),
        _other_multiclass,
    ),
    "instance_dual": Case(
        _instances,
        (*FEATURES, "dense in JAX", "gram"),
        _hp("instance_dual", tol=1e-7, max_epochs=20_000),
        _hp("instance_dual", tol=1e-4),
        _hp("instance_dual", tol=1e-12, max_epochs=1),
        lambda: np.array([dual_references.bound(X, Y, CLASSES, "alpha", K, c) for c in (C, 2 * C)]),
        _other_instances,
    ),
}
