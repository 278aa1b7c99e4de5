"""Small problems of multinomial regression, and their objective written down a second time."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from tests.support.objectives import multinomial as objective
from tests.support.objectives import multinomial_gradient as gradient
from tests.support.objectives import multinomial_minimum as minimum
from xmcjax import linops
from xmcjax.solvers import multinomial

__all__ = ["gradient", "minimum", "objective", "problem", "sparse_set"]


def sparse_set(n=90, d=40, classes=7, seed=0, dtype=np.float64):
    """CSR features that say something about the class, and the classes."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)]).astype(np.int32)
    X = sp.random(n, d, 0.15, format="csr", random_state=seed).toarray()
    X[np.arange(n), y % d] += 1.0
    return sp.csr_matrix(X.astype(dtype)), y


def problem(X, y, lam=1.0, *, backend="auto", **options):
    return multinomial.multinomial_problem(linops.make(X, backend=backend), y, lam, **options)
