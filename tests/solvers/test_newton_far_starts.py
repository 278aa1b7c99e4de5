"""Lanes of newton_cg that start at weights far larger than those at their minima."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import objectives
from tests.support.problems import needs_native
from xmcjax import linops, losses
from xmcjax.penalties import L1, ElasticNet, HuberPenalty
from xmcjax.solvers import SOLVERS

N, D, LANES = 300, 8, 2


@functools.cache
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    scores = X @ rng.normal(size=(D, LANES)) + rng.normal(size=(N, LANES))
    return X, np.where(scores > 1, 1, -1)


def problem(backend, penalty, loss="squared_hinge"):
    X, y = data()
    op = linops.make(X if backend == "dense" else sp.csr_matrix(X), backend=backend)
    return SOLVERS["newton_cg"].problem(op, y, losses.MARGIN_LOSSES[loss], penalty=penalty, tolerance=1e-2)


def solve(made, size=0.0):
    solver, start = SOLVERS["newton_cg"], np.full((D, LANES), size, np.float32)
    return solver.run(made, None, solver.init(made, None, w0=start))


def objective(found, penalty, loss="squared_hinge"):
    X, y = data()
    w, b = (np.asarray(a, np.float64) for a in found.weights)
    return objectives.lanes(X.astype(np.float64), y, w, b, loss, 1.0, l2_bias=1.0, penalty=penalty)


@needs_native
@pytest.mark.parametrize("penalty", [L1(), HuberPenalty(1.0), ElasticNet(0.5)], ids=repr)
def test_the_value_is_that_of_the_weights(penalty):
    """Not a sum of changes that has the rounding of the first, which is far above it."""
    found = solve(problem("native", penalty), 1e3)
    np.testing.assert_allclose(found.value, objective(found, penalty), rtol=1e-3)
