"""A small problem of each solver of ``SOLVERS``, by every path that it has, with an oracle of its own.

An oracle is a general solver, on an objective that is written down a second time, in NumPy.
"""

from __future__ import annotations

import dataclasses
import functools
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
C, L2 = 0.7, 0.6

_rng = np.random.default_rng(3)
X = _rng.normal(size=(N, D)) * (_rng.random((N, D)) < 0.8)
Y = _rng.integers(0, CLASSES, N)
Y[:CLASSES] = np.arange(CLASSES)
SIGNS = np.where(_rng.random((N, LANES)) < 0.4, 1, -1).astype(np.int8)
WEIGHT = _rng.random(N) + 0.5
FEATURES = ("dense", "native", "jnp") if linops.native_ready() else ("dense", "jnp")


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem, and how it is asked for.

    Attributes:
        problem: ``(dtype, path)`` -> the problem.
        paths: the first of them is the one that tests take that need no other.
        tight, loose: hyperparameters for float64 and for float32.
        optimum: least objective of each lane.
        number: of the problem, which may be another one without a compilation.
        limit: the hyperparameter that limits the iterations.
    """

    problem: Callable[[Any, str], Any]
    paths: tuple[str, ...]
    tight: Any
    loose: Any
    optimum: Callable[[], Any]
    number: str
    limit: str = "max_steps"

    def other(self, problem, hp):
        """A problem and hyperparameters with other numbers, which must cost no compilation."""
        moved = dataclasses.replace(problem, **{self.number: getattr(problem, self.number) * 2})
        return moved, hp._replace(**{self.limit: getattr(hp, self.limit) - 1})

    @property
    def limited(self):
        """Hyperparameters with too few iterations."""
        return self.tight._replace(**{self.limit: 1})


def features(dtype, path: str):
    """X as an operator: "dense", or CSR by the backend that is named."""
    if path == "dense":
        return linops.make(X.astype(dtype), backend="dense")
    return linops.make(sp.csr_matrix(X.astype(dtype)), backend=path)


def _lanes(dtype, path):
    """Logistic regression with a free bias."""
    numbers = dict(weight=WEIGHT[:, None].astype(dtype), tolerance=1e-9 if dtype == np.float64 else 1e-4)
    return SOLVERS["newton_cg"].problem(features(dtype, path), SIGNS, MARGIN_LOSSES["logistic"], **numbers)


def _lanes_optimum():
    return [objectives.lane_minimum(X, y, "logistic", WEIGHT, l2=L2, l2_bias=0.0) for y in SIGNS.T]


def _multinomial(dtype, path):
    return SOLVERS["multinomial"].problem(features(dtype, path), Y, L2, weight=WEIGHT, intercept=True)


def _kernel(dtype, path):
    """Two lanes of other weights."""
    points = kernels.points(sp.csr_matrix(X.astype(dtype)) if path == "sparse" else X.astype(dtype))
    gram = kernels.gram(kernels.RBF(0.4), points, memory=0 if path == "tiles" else 2**20)
    weight = np.stack([WEIGHT, WEIGHT[::-1]], axis=1).astype(dtype)
    K = kernels.class_kernels(gram, 1.5, 0.3, CLASSES)
    return SOLVERS["kernel_multinomial"].problem(K, Y, weight, exact=path == "exact")


@functools.cache
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

    return [least(WEIGHT), least(WEIGHT[::-1])]


def _multiclass(dtype, path):
    given = X.astype(dtype) if path == "dense" else sp.csr_matrix(X.astype(dtype))
    return SOLVERS["multiclass_dual"].problem(given, Y, C=C, backend=path)


def _instances(dtype, path):
    if path == "gram":
        op, backend = Gram(jnp.asarray((X @ X.T).astype(dtype))), "jnp"
    elif path == "dense in JAX":
        op, backend = features(dtype, "dense"), "jnp"
    else:
        op, backend = features(dtype, path), "auto"
    options = dict(set_name="topk_alpha", bound=np.array([[C], [2 * C]]), k=1, backend=backend)
    return SOLVERS["instance_dual"].problem(op, Y, **options)


def _splitting(dtype, path):
    """Two lanes of another C, of which the second leaves out two rows."""
    op = Gram(jnp.asarray((X @ X.T).astype(dtype))) if path == "gram" else features(dtype, path)
    mask = np.stack([np.ones(N, bool), np.arange(N) < N - 2])
    return SOLVERS["admm"].problem(op, Y, formulation="cs", C=np.array([C, 2 * C]), mask=mask)


def _splitting_optimum():
    return [
        dual_references.bound(X, Y, CLASSES, "alpha", 1, C),
        dual_references.bound(X[:-2], Y[:-2], CLASSES, "alpha", 1, 2 * C),
    ]


def _hinges(kind: str, *Cs: float):
    return [dual_references.bound(X, Y, CLASSES, kind, 1, C) for C in Cs]


def _hp(name: str, **numbers):
    return SOLVERS[name].hparams(**numbers)


CASES = {
    "newton_cg": Case(
        _lanes,
        FEATURES,
        _hp("newton_cg", l2=L2, l2_bias=0.0, decrement=1e-14),
        _hp("newton_cg", l2=L2, l2_bias=0.0, decrement=1e-6),
        _lanes_optimum,
        "weight",
    ),
    "multinomial": Case(
        _multinomial,
        FEATURES,
        _hp("multinomial", tolerance=1e-8),
        _hp("multinomial", tolerance=1e-4),
        lambda: objectives.multinomial_minimum(X, Y, L2, WEIGHT, intercept=True),
        "l2",
    ),
    "kernel_multinomial": Case(
        _kernel,
        ("stored", "tiles", "sparse", "exact"),
        _hp("kernel_multinomial", tolerance=1e-10),
        _hp("kernel_multinomial", tolerance=1e-4),
        _kernel_optimum,
        "weight",
    ),
    "multiclass_dual": Case(
        _multiclass,
        FEATURES,
        _hp("multiclass_dual", tol=1e-8),
        _hp("multiclass_dual", tol=1e-4),
        lambda: _hinges("ww", C)[0],
        "C",
        "max_epochs",
    ),
    "instance_dual": Case(
        _instances,
        (*FEATURES, "dense in JAX", "gram"),
        _hp("instance_dual", tol=1e-7, max_epochs=20_000),
        _hp("instance_dual", tol=1e-4),
        lambda: _hinges("alpha", C, 2 * C),
        "bound",
        "max_epochs",
    ),
    "admm": Case(
        _splitting,
        (*FEATURES, "gram"),
        _hp("admm", tol=1e-8, max_steps=100_000),
        _hp("admm", tol=1e-4),
        _splitting_optimum,
        "bound",
    ),
}
