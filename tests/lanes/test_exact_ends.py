"""Labels that end by exact Newton directions and interior points, where features or rows are few."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import interior_end, label_features, lane_certifier
from tests.support.lanes import matrix, train
from tests.support.primal_references import Problem, margin_loss
from xmcjax.lanes import OneVsAll
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status

LOSSES = [name for name, loss in MARGIN_LOSSES.items() if loss.smooth]
BIASES = {"regularised": 1.0, "free": 0.0, "none": -1.0}
OPTIONS = {
    "regularised": {},
    "free": dict(regularise_intercept=False),
    "none": dict(fit_intercept=False),
}
GAP = 5e-3  # of the value, which docs/reference/promises.md names


def tall(rng):
    return rng.normal(size=(60, 6))


def wide(rng):
    return rng.normal(size=(12, 40))


def of_equal_columns(rng):
    return np.repeat(rng.normal(size=(50, 4)), 2, axis=1)


def with_constant_columns(rng):
    return np.hstack([rng.normal(size=(50, 4)), np.full((50, 1), 3.0), np.zeros((50, 1))])


def one_feature(rng):
    return rng.normal(size=(30, 1)) + 2


SHAPES = [tall, wide, of_equal_columns, with_constant_columns, one_feature]


def mostly_empty(X):
    return sp.csr_array(X * (np.arange(X.size).reshape(X.shape) % 7 == 0))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, mostly_empty])
def test_a_direction_is_that_of_the_hessian(form):
    for make, bias, active in itertools.product(SHAPES, BIASES, ("all", "half", "few", "none")):
        check_a_direction(make, form, bias, active)


def check_a_direction(make, form, bias, active):
    rng, r = np.random.default_rng(0), BIASES[bias]
    given = form(make(rng).astype(np.float32))
    X = given.toarray() if sp.issparse(given) else given
    (n, d), ones = X.shape, np.ones((len(X), 1))
    D = rng.uniform(0.1, 50, n)
    D[{"all": n, "half": n // 2, "few": 3, "none": 0}[active] :] = 0
    A = np.hstack([X.astype(np.float64), ones])
    H = A.T @ (D[:, None] * A) + np.diag(np.append(np.ones(d), max(r, 0)))
    g, g_b = rng.normal(size=d), float(rng.normal()) if r >= 0 else 0.0
    kept = slice(d + (r >= 0 and H[d, d] > 0))  # without a bias, or with one that has no curvature
    expected = np.zeros(d + 1)
    expected[kept] = -np.linalg.solve(H[kept, kept], np.append(g, g_b)[kept])
    features = label_features.LabelFeatures(given)
    assert features.factors and features.exact == (form is not mostly_empty)
    w, b = features.direction(D, r, g, g_b)
    np.testing.assert_allclose(np.append(w, b), expected, rtol=1e-7, atol=1e-10)
    # the conjugate gradients that take its place elsewhere
    rows = np.flatnonzero(D)
    w, b = features._by_gradients(rows, D[rows], r, -g, -g_b)
    np.testing.assert_allclose(np.append(w, b), expected, rtol=1e-3, atol=1e-4)


def test_which_directions_are_exact():
    def exact(X):
        return label_features.LabelFeatures(X).exact

    assert exact(np.zeros((5000, 320))) and not exact(np.zeros((5000, 321)))
    assert exact(np.zeros((400, 5000))) and not exact(np.zeros((401, 5000)))
    assert exact(sp.csr_array(np.ones((50, 20)))) and not exact(sp.eye_array(20, format="csr"))

    def factors(*shape, each):
        n = shape[0]
        X = sp.csr_array((np.ones(n * each), np.tile(np.arange(each), n), np.arange(n + 1) * each), shape)
        return label_features.LabelFeatures(X).factors

    assert factors(5000, 320, each=5) and not factors(5000, 321, each=5)
    assert factors(400, 5000, each=5) and not factors(401, 5000, each=5)
    assert factors(5000, 320, each=60) and not factors(5000, 320, each=70)  # whose squares cost too much


def reference(X, y, c, loss, r):
    """(objective of weights and a bias, its minimum)."""
    used = X.any(axis=0)  # the minimum has no weights for the others
    problem = Problem(X[:, used].astype(np.float64), None if r < 0 else r, 1.0)
    functions = margin_loss(loss, y, c, 1.0)

    def objective(w, bias):
        assert not w[~used].any()
        return problem.objective(problem.point(w[used, None], None if r < 0 else bias), *functions)

    return objective, problem.minimum(*functions, 1)


@pytest.mark.parametrize("C", [0.01, 1.0, 1e4])
def test_an_interior_point_ends_at_the_minimum(C):
    for make, bias, positives in itertools.product(SHAPES, BIASES, (1, 10)):
        check_an_interior_point(make, bias, C, positives)


def check_an_interior_point(make, bias, C, positives):
    rng, r = np.random.default_rng(1), BIASES[bias]
    X = make(rng)
    y = np.where(np.argsort(np.argsort(X[:, 0] + rng.normal(size=len(X)))) < positives, 1.0, -1.0)
    c = C * rng.uniform(0.5, 2, len(X))
    c[-1] = 0  # no row at all
    objective, least = reference(X[:-1], y[:-1], c[:-1], "squared_hinge", r)
    features = label_features.LabelFeatures(X)
    assert interior_end.InteriorEnd.serves(MARGIN_LOSSES["squared_hinge"], features)
    ends = list(interior_end.InteriorEnd(features, r)(y, c, np.zeros(X.shape[1]), 0.0))
    assert len(ends) > 0 and all(end.bound <= least * (1 + 1e-9) for end in ends)
    assert objective(ends[-1].w, ends[-1].bias) == pytest.approx(least, rel=1e-7)
    assert ends[-1].bound == pytest.approx(least, rel=1e-7)


def test_an_interior_point_that_starts_at_the_minimum_takes_few_steps(monkeypatch):
    rng = np.random.default_rng(1)
    X, c = tall(rng), np.full(60, 1e4)
    y = np.where(X[:, 0] + rng.normal(size=60) > 0, 1.0, -1.0)
    factored, made = label_features.LabelFeatures.factored, []

    def counted(*args):
        made.append(1)
        return factored(*args)

    monkeypatch.setattr(label_features.LabelFeatures, "factored", counted)
    end = interior_end.InteriorEnd(label_features.LabelFeatures(X), 1.0)
    *_, found = end(y, c, np.zeros(6), 0.0)
    from_zero = len(made)
    list(end(y, c, found.w, found.bias))
    assert len(made) - from_zero < from_zero <= 20


@pytest.fixture
def taken_over_soon(monkeypatch):
    """After two Newton steps each lane ends by exact directions."""
    monkeypatch.setattr(lane_certifier.Certifier, "takes_over", lambda self, steps, cg, active: steps >= 2)


def labels(rng, X):
    """Some labels, of which one has one positive row."""
    scores = X @ rng.normal(size=(X.shape[1], 3)) + rng.normal(size=(len(X), 3))
    Y = scores > np.quantile(scores, 0.7, axis=0)
    Y[:, 2] = False
    Y[5, 2] = True
    return sp.csr_matrix(Y.astype(np.float32))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.usefixtures("taken_over_soon")
def test_a_lane_that_is_taken_over_ends_at_the_minimum(loss):
    for make, bias, dtype in itertools.product(SHAPES, BIASES, (np.float32, np.float64)):
        check_a_lane_that_is_taken_over(loss, bias, make, dtype)


def check_a_lane_that_is_taken_over(loss, bias, make, dtype):
    rng = np.random.default_rng(2)
    X = make(rng).astype(dtype)
    Y, weight = labels(rng, X), rng.uniform(0.5, 2, len(X))
    options = dict(C=30.0, loss=MARGIN_LOSSES[loss], clip=0, tol=1e-3, sample_weight=weight)
    found, summary = train(X, Y, **options, **OPTIONS[bias])
    assert set(summary.statuses) == {Status.CONVERGED}
    W, b = matrix(found, X.shape[1])
    for k in range(3):
        y = 2 * Y[:, [k]].toarray().ravel() - 1.0
        objective, least = reference(X, y, 30 * weight, loss, BIASES[bias])
        assert objective(W[:, k], b[k]) <= (1 + 1e-3) * least
        assert found[k].value == pytest.approx(objective(W[:, k], b[k]), rel=1e-6)


@pytest.mark.parametrize("backend", ["auto", "dense", "jnp"])
@pytest.mark.usefixtures("taken_over_soon")
def test_a_lane_that_is_taken_over_depends_on_no_other(backend):
    rng = np.random.default_rng(3)
    X = tall(rng)
    Y = labels(rng, X)
    options = dict(C=30.0, loss=MARGIN_LOSSES["logistic"], clip=0, backend=backend)
    models = [matrix(train(X, Y, **options, **more)[0], 6) for more in ({}, dict(block_size=1, n_jobs=2))]
    compare = np.testing.assert_array_equal if backend == "auto" else np.testing.assert_allclose
    compare(models[0][0], models[1][0])
    compare(models[0][1], models[1][1])


def unscaled(rng):
    """Features of sizes from 0.01 to 1,000, and two labels that follow from them with noise."""
    X = rng.normal(size=(400, 20))
    scores = X @ rng.normal(size=(20, 2)) + 2 * rng.normal(size=(400, 2))
    return (X + 1) * np.geomspace(0.01, 1000, 20), sp.csr_matrix((scores > 0).astype(np.float32))


def test_lanes_that_conjugate_gradients_do_not_end_are_taken_over(monkeypatch):
    X, Y = unscaled(np.random.default_rng(4))
    options = dict(C=100.0, loss=MARGIN_LOSSES["logistic"], clip=0)
    found, summary = train(X, Y, **options)
    monkeypatch.setattr(lane_certifier.Certifier, "takes_over", lambda *_: False)
    slowly, before = train(X, Y, **options)
    assert set(summary.statuses) == {Status.CONVERGED}
    assert max(result.newton_steps for result in found.values()) <= OneVsAll().max_iter
    assert summary.newton_steps < before.newton_steps / 2 and summary.cg_steps < before.cg_steps / 2
    for k in range(2):
        assert found[k].value <= (1 + 1e-4) * slowly[k].value


def test_few_steps_are_made_where_few_were_asked_for():
    X, Y = unscaled(np.random.default_rng(4))
    found, _ = train(X, Y, C=100.0, loss=MARGIN_LOSSES["logistic"], clip=0, max_iter=50)
    assert {(r.status, r.newton_steps) for r in found.values()} == {(Status.MAX_STEPS, 50)}


@pytest.mark.parametrize("C", [1.0, 100.0, 1e4])
def test_the_squared_hinge_needs_no_ascent_of_the_dual_where_features_are_few(monkeypatch, C):
    X, Y = unscaled(np.random.default_rng(5))

    def ascent(*_):
        raise AssertionError("the ascent of the dual was asked for")

    monkeypatch.setattr("xmcjax.lanes._dual_end.DualEnd.__call__", ascent)
    found, summary = train(X, Y, C=C, clip=0)
    assert set(summary.statuses) == {Status.CONVERGED}
    W, b = matrix(found, X.shape[1])
    for k in range(2):
        y = 2 * Y[:, [k]].toarray().ravel() - 1.0
        objective, least = reference(X, y, np.full(len(X), C), "squared_hinge", 1.0)
        assert objective(W[:, k], b[k]) <= (1 + GAP) * least


def of_categories(rng):
    """Rows of one feature for each of some categories, and two classes that follow from them with noise."""
    n, sizes = 300, (3, 5, 20, 40)
    chosen = np.stack([rng.integers(0, size, n) for size in sizes]) + np.cumsum([0, *sizes[:-1]])[:, None]
    each, d = len(sizes), sum(sizes)
    X = sp.csr_array((np.ones(n * each), chosen.T.ravel(), np.arange(n + 1) * each), shape=(n, d))
    scores = X @ rng.normal(size=(d, 2)) + rng.normal(size=(n, 2))
    return X, sp.csr_matrix((scores > 0).astype(np.float32))


@pytest.mark.parametrize("bias", BIASES)
def test_few_sparse_features_need_neither_conjugate_gradients_nor_ascent(monkeypatch, bias):
    X, Y = of_categories(np.random.default_rng(6))

    def called(*_):
        raise AssertionError("a slower way was taken")

    monkeypatch.setattr("xmcjax.lanes._dual_end.DualEnd.__call__", called)
    monkeypatch.setattr(label_features.LabelFeatures, "_by_gradients", called)
    factored, made = label_features.LabelFeatures.factored, []

    def counted(*args):
        made.append(1)
        return factored(*args)

    monkeypatch.setattr(label_features.LabelFeatures, "factored", counted)
    found, summary = train(X, Y, C=1e4, clip=0, **OPTIONS[bias])
    assert set(summary.statuses) == {Status.CONVERGED}
    assert 0 < len(made) <= 60
    W, b = matrix(found, X.shape[1])
    for k in range(2):
        y = 2 * Y[:, [k]].toarray().ravel() - 1.0
        objective, least = reference(X.toarray(), y, np.full(X.shape[0], 1e4), "squared_hinge", BIASES[bias])
        assert objective(W[:, k], b[k]) <= (1 + GAP) * least
