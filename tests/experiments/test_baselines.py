"""Every method of the comparison against a solver of another kind."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from experiments.papers.p003 import hierarchical_svm
from experiments.papers.p004.baselines import (
    BASELINES,
    GRID,
    _cutting_planes,
    _top_push_solver,
    one_vs_all,
    svm_perf,
    wsabie,
)
from experiments.papers.p004.baselines._base import one_hot

CLASSES = 3


@pytest.fixture
def tiny():
    """Four instances of three classes, not separable."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 2)), np.array([0, 1, 2, 0])


@pytest.fixture
def small():
    """Sixty instances of three classes that overlap."""
    rng = np.random.default_rng(1)
    y = np.arange(60) % CLASSES
    return rng.normal(size=(CLASSES, 6))[y] + rng.normal(size=(60, 6)), y


def minimum(objective, size, constraints):
    """By SLSQP, for quadratic programmes of any kind; from a point of random numbers."""
    start, limits = 0.1 * np.random.default_rng(0).normal(size=size), {"maxiter": 2_000, "ftol": 1e-13}
    given = dict(method="SLSQP", constraints=constraints, options=limits)
    found = scipy.optimize.minimize(objective, start, **given)
    assert found.success
    return found.fun


def labellings(right):
    """All subsets of the pairs, with the number of right and of wrong ones called right."""
    for bits in itertools.product((False, True), repeat=right.size):
        called = np.array(bits).reshape(right.shape)
        yield called, int((called & right).sum()), int((called & ~right).sum())


def structural_risk(Z, right, loss, allowed):
    """R by enumeration."""
    return max(
        loss(a, b) - Z[right & ~called].sum() + Z[~right & called].sum()
        for called, a, b in labellings(right)
        if allowed(a + b)
    )


def structural_minimum(X, right, loss, allowed, C):
    """½‖W‖² + C ξ with a constraint a labelling."""
    shape = X.shape[1], right.shape[1]
    slopes, offsets = [], []
    for called, a, b in labellings(right):
        if allowed(a + b):
            A = (~right & called).astype(float) - (right & ~called)
            slopes.append((X.T @ A).ravel())
            offsets.append(loss(a, b))
    slopes, offsets = np.array(slopes), np.array(offsets)
    constraint = {
        "type": "ineq",
        "fun": lambda v: v[-1] - slopes @ v[:-1] - offsets,
        "jac": lambda v: np.hstack([-slopes, np.ones((len(slopes), 1))]),
    }
    return minimum(lambda v: v[:-1] @ v[:-1] / 2 + C * v[-1], np.prod(shape) + 1, [constraint])


@pytest.mark.parametrize("name", ["Recall@1", "Recall@2", "Prec@1", "Prec@3"])
def test_svm_perf_equals_the_structural_svm(tiny, name):
    X, y = tiny
    right, k = one_hot(y, bool), int(name[-1])
    n, C = len(y), 0.7
    if name.startswith("Recall"):
        risk = svm_perf.RecallRisk(right, k * n)
        conditions = (lambda a, b: n - a), (lambda called: called <= k * n)
    else:
        least = -(-n // k)
        risk = svm_perf.PrecisionRisk(right, least)
        conditions = (lambda a, b: n * (1 - a / (a + b))), (lambda called: called >= least)
    rng = np.random.default_rng(2)
    # whole numbers are tied
    for Z in (np.zeros(right.shape), rng.normal(size=right.shape), rng.integers(3, size=right.shape) - 1.0):
        expected = structural_risk(Z, right, *conditions)
        np.testing.assert_allclose(risk.value(Z), expected, rtol=1e-12, atol=1e-12)
        slope, offset = risk.plane(Z)
        np.testing.assert_allclose((slope * Z).sum() + offset, expected, rtol=1e-12, atol=1e-12)
        for other in rng.normal(size=(5, *right.shape)):
            assert (slope * other).sum() + offset <= risk.value(other) + 1e-12

    planes = _cutting_planes.Planes((2, CLASSES), np.float64)
    W, gap = _cutting_planes.minimise(planes, risk, X, C, 1e-8)
    assert gap <= 1e-8
    value = (W**2).sum() / 2 + C * risk.value(X @ W)
    np.testing.assert_allclose(value, structural_minimum(X, right, *conditions, C), rtol=1e-6)


def top_push_minimum(X, right, C):
    """½‖w‖² + C Σ ξ², ξ ≥ 0, ξ ≥ 1 + t − z_right, t ≥ z_wrong over the columns of `right`."""
    d, m = X.shape[1], right.shape[1]
    n_right = int(right.sum())
    at_right, at_wrong = np.argwhere(right), np.argwhere(~right)

    def scores(v, pairs):
        return np.einsum("pd,dp->p", X[pairs[:, 0]], v[: d * m].reshape(d, m)[:, pairs[:, 1]])

    constraints = [
        {"type": "ineq", "fun": lambda v: v[-n_right:] - 1 - v[d * m] + scores(v, at_right)},
        {"type": "ineq", "fun": lambda v: v[d * m] - scores(v, at_wrong)},
        {"type": "ineq", "fun": lambda v: v[-n_right:]},
    ]

    def objective(v):
        return (v[: d * m] ** 2).sum() / 2 + C * (v[-n_right:] ** 2).sum()

    return minimum(objective, d * m + 1 + n_right, constraints)


@pytest.mark.parametrize("joint", [True, False])
def test_top_push_equals_a_quadratic_programme(tiny, joint):
    X, y = tiny
    right, C = one_hot(y, bool), 0.7
    found = _top_push_solver.solve(X, y, CLASSES, C, joint, tol=1e-9)
    assert found.gap <= 1e-9
    W, Z = found.W, X @ found.W.T
    if joint:
        expected = top_push_minimum(X, right, C)
        top = np.where(right, -np.inf, Z).max()
    else:
        expected = sum(top_push_minimum(X, right[:, [c]], C) for c in range(CLASSES))
        top = np.where(right, -np.inf, Z).max(axis=0)
    value = (W**2).sum() / 2 + C * np.where(right, np.maximum(0, 1 + top - Z) ** 2, 0).sum()
    np.testing.assert_allclose(value, expected, rtol=1e-6)


# leaves 1 … 4; 2 and 3 have a parent, which has a chain above it
TREE = np.array([(0, 1), (0, 7), (7, 6), (6, 2), (6, 3), (0, 5), (5, 4)])


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("edges", [None, TREE], ids=["flat", "tree"])
def test_hierarchical_svm_equals_a_quadratic_programme(edges, scaled):
    rng = np.random.default_rng(0)
    X, y, C = rng.normal(size=(7, 2)), np.array([0, 1, 2, 3, 1, 2, 0]), 0.7
    # paths of the leaves, written down; distances are half of the edges between two leaves
    paths = np.eye(4) if edges is None else np.array([[1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0]] * 2)
    if edges is not None:
        paths[2], paths[3] = [0, 1, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1]
    between = (paths.sum(axis=1)[:, None] + paths.sum(axis=1)) / 2 - paths @ paths.T
    loss = between if scaled else 1.0 - np.eye(4)
    shape = (paths.shape[1], 2)

    def slacks(v):
        scores = X @ v[: np.prod(shape)].reshape(shape).T @ paths.T
        return loss[y] + scores - scores[np.arange(7), y][:, None]

    expected = minimum(
        lambda v: v[: np.prod(shape)] @ v[: np.prod(shape)] / 2 + C * v[-7:].sum(),
        np.prod(shape) + 7,
        [{"type": "ineq", "fun": lambda v: (v[-7:, None] - slacks(v)).ravel()}],
    )
    method = hierarchical_svm.HierarchicalSvm(edges, scaled, tol=1e-9)
    found = method.fit(X, y, C)
    assert 0 <= found.gap <= 1e-9
    # the dual value equals that of the programme within the gap
    half = hierarchical_svm.class_kernel(edges, 4)[0]
    alpha = -found.start
    alpha[np.arange(7), y] += found.start.sum(axis=1)
    squares = np.trace((X @ X.T) @ alpha @ half @ alpha.T)
    np.testing.assert_allclose((found.start * loss[y]).sum() - squares / 2, expected, rtol=1e-6)
    sparse = method.fit(sp.csr_matrix(X), y, C, method.fit(X, y, 2 * C).start)
    np.testing.assert_allclose(sparse.scores(X), found.scores(X), atol=1e-3)


def test_one_vs_all_equals_liblinear(small):
    from sklearn.svm import LinearSVC

    X, y = small
    svc = LinearSVC(C=0.3, dual=False, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(X, y)
    found = one_vs_all.OneVsAll().fit(X, y, 0.3)
    assert found.gap <= 1e-3
    Y = 2 * one_hot(y, float) - 1
    primal, gap = one_vs_all.objective(X, Y, found.start, 0.3)
    best, none = one_vs_all.objective(X, Y, svc.coef_.T, 0.3)
    assert none < 1e-9
    assert best <= primal <= best + gap


def test_softmax_equals_scikit_learn(small):
    from sklearn.linear_model import LogisticRegression

    X, y = small
    expected = LogisticRegression(C=0.3, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y)
    found = BASELINES["softmax"].fit(X, y, 0.3)
    assert found.gap <= 1e-3
    np.testing.assert_allclose(found.scores(X), expected.decision_function(X), atol=0.1)
    scores = jax.nn.softmax(found.scores(X))
    np.testing.assert_allclose(scores, expected.predict_proba(X), atol=0.02)


def test_wsabie_step_is_the_gradient_of_the_loss(small):
    X, y = small
    rng = np.random.default_rng(3)
    state = wsabie.init(X.shape[1], CLASSES, 4, 1, rng, X.dtype)
    state = state._replace(beta=jnp.asarray(rng.normal(size=(CLASSES, 4))))
    before = jax.tree.map(np.array, state)
    drawn = wsabie.draw(rng, 1, len(y), X.dtype)
    after = wsabie.train(None, X, y, state, drawn, 0.1, 100.0)
    # a margin that large is always violated: one class gains, one loses
    moved = np.flatnonzero((np.asarray(after.beta) != before.beta).any(axis=1))
    x, c = X[drawn[0][0]], y[drawn[0][0]]
    assert len(moved) == 2 and c in moved
    other = int(moved[moved != c][0])
    assert np.asarray(after.violators)[c] == other

    # of ‖V x − β_c‖² − ‖V x − β_other‖²
    z = x @ before.V
    V = np.outer(x, 2 * (before.beta[other] - before.beta[c]))
    V = before.V - 0.1 * V / np.sqrt(np.square(V).sum(axis=0) / len(x))
    beta = before.beta.copy()
    for row, gradient in ((c, 2 * (beta[c] - z)), (other, 2 * (z - beta[other]))):
        beta[row] -= 0.1 * gradient / np.sqrt(np.square(gradient).sum() / len(x))
    np.testing.assert_allclose(after.V, V, rtol=1e-10)
    np.testing.assert_allclose(after.beta, beta, rtol=1e-10)


def test_wsabie_queue_leaves_out_instances_that_are_still_violated(small):
    X, y = small
    rng = np.random.default_rng(3)
    state = wsabie.init(X.shape[1], CLASSES, 4, 1, rng, X.dtype)
    # every class has a violator, and with β = 0 every class violates
    state = state._replace(violators=jnp.asarray([[1], [2], [0]], jnp.int32))
    for _ in range(10):
        state = wsabie.train(None, X, y, state, wsabie.draw(rng, 1, len(y), X.dtype), 0.1, 1.0)
    assert not np.any(state.beta)
    np.testing.assert_array_equal(state.violators, [[1], [2], [0]])


def test_wsabie_sparse_equals_dense(small):
    X, y = small
    X = np.where(np.abs(X) > 0.5, X, 0)
    method = wsabie.Wsabie(dimension=4, passes=3)
    dense, sparse = method.fit(X, y, 0.1), method.fit(sp.csr_matrix(X), y, 0.1)
    np.testing.assert_allclose(sparse.scores(sp.csr_matrix(X)), dense.scores(X), rtol=1e-8)


@pytest.mark.parametrize("name", ["SVM OVA", "TopPush", "TopPush OVA", "Prec@1", "Recall@1", "softmax"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_sparse_and_started_fits_agree(small, name, dtype):
    X, y = small
    X = X.astype(dtype)
    method = BASELINES[name]
    dense = method.fit(X, y, 0.1)
    sparse = method.fit(sp.csr_matrix(X), y, 0.1)
    started = method.fit(X, y, 0.1, method.fit(X, y, 0.01).start)
    for fitted in (dense, sparse, started):
        assert 0 <= fitted.gap <= 1e-3
        scores = fitted.scores(X)
        assert scores.shape == (len(y), CLASSES) and scores.dtype == dtype
        # two points whose gap is 1e-3 of the value are this close
        np.testing.assert_allclose(scores, dense.scores(X), atol=0.15)
        assert (scores.argmax(axis=1) == y).mean() > 0.6


def test_every_method_has_a_grid():
    for name, method in BASELINES.items():
        assert method.grid == tuple(sorted(method.grid)), name
    assert len(GRID) == 9 and GRID[0] == pytest.approx(1e-5) and GRID[-1] == pytest.approx(1e3)
