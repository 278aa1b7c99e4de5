"""Small problems of multinomial regression, and their objective written down a second time."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.objectives import multinomial as objective
from tests.support.objectives import multinomial_gradient as gradient
from tests.support.objectives import multinomial_minimum as minimum
from xmcjax import linops, native
from xmcjax.solvers import multinomial
from xmcjax.solvers.multinomial import block_newton

__all__ = ["KINDS", "gradient", "minimum", "objective", "problem", "scores_of", "sparse_set"]

KINDS = {"dense": lambda X: X.toarray(), "csr": lambda X: X}


def sparse_set(n=90, d=40, classes=7, seed=0, dtype=np.float64):
    """CSR features that say something about the class, and the classes."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)]).astype(np.int32)
    X = sp.random(n, d, 0.15, format="csr", random_state=seed).toarray()
    X[np.arange(n), y % d] += 1.0
    return sp.csr_matrix(X.astype(dtype)), y


def problem(X, y, lam=1.0, *, backend="auto", **options):
    return multinomial.multinomial_problem(linops.make(X, backend=backend), y, lam, **options)


def rest(P, axis=0):
    """1 − the largest probability of each instance, whose classes are along an axis."""
    return (1 - P.max(axis=axis)).astype(P.dtype)


def scores_of(kind, dtype, *, n=700, classes=7, twins=False):
    """Scores of random features of a kind of `KINDS`, and X in float64, classes and weights of the rows."""
    X, y = sparse_set(n, 40, classes, dtype=dtype)
    weight = np.random.default_rng(4).choice([0.0, 0.5, 2.0], n)
    made = problem(KINDS[kind](X), y, 0.3, intercept=True, weight=weight)
    with native.twins() if twins else contextlib.nullcontext(), pytest.MonkeyPatch.context() as patch:
        # in the dtype that is asked for
        patch.setattr("xmcjax.solvers.multinomial._scores._FEW", 1 << 60)
        scores = block_newton.scores_of(made, precise=True, threads=2)
    return scores, X.toarray().astype(np.float64), y, weight
