"""What is certain about labels that have ended."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize, nnls

from tests.attack.scales import prepare
from tests.support.internals import lane_certificate, lane_certifier
from tests.support.lanes import small, train
from tests.support.primal_references import Problem, margin_loss
from xmcjax import OneVsAllClassifier, lanes
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.penalties import L2
from xmcjax.solvers import Status

LOSSES = [name for name, loss in MARGIN_LOSSES.items() if loss.smooth]
GAP = 5e-3  # of the value, which docs/reference/promises.md names
BIASES = {"regularised": 1.0, "free": 0.0, "none": -1.0}
# Number of the problem, size of the features, type, loss, bias, C, eps, start: labels of each ended CONVERGED
# at 1.02 to 60 times their minimum.
MISLED = [
    (1, 1.0, "f8", "squared_hinge", "none", 1e7, 1e-4, "ova_primal"),
    (1, 1e5, "f8", "squared_hinge", "none", 1.0, 1e-3, "ova_primal"),
    (1, 100.0, "f8", "squared_hinge", "free", 1e6, 1e-3, "mean_separating"),
    (1, 1e7, "f4", "squared_hinge", "free", 1e-7, 1e-4, "zero"),
    (3, 100.0, "f4", "squared_hinge", "none", 0.1, 1e-3, "zero"),
    (3, 1e4, "f4", "huber_hinge", "none", 1e-5, 1.0, "mean_separating"),
    (3, 100.0, "f4", "huber_hinge", "free", 0.01, 1.0, "mean_separating"),
]


@pytest.mark.parametrize(("number", "size", "dtype", "loss", "bias", "C", "eps", "init"), MISLED)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_converged_is_at_the_minimum(form, number, size, dtype, loss, bias, C, eps, init):
    X, y = prepare(None)[number]
    X = (size * X).astype(dtype)
    model = OneVsAllClassifier(
        loss,
        init,
        C=C,
        tol=eps,
        clip=0,
        fit_intercept=bias != "none",
        regularise_intercept=bias == "regularised",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(form(X), y)
    said = " ".join(str(w.message) for w in caught)
    problem = Problem(X.astype(float), None if bias == "none" else BIASES[bias], 1.0)
    for k, status in enumerate(model.status_):
        if status != Status.CONVERGED:
            assert Status(status).remedy(dtype) in said
            continue
        functions = margin_loss(loss, np.where(y == k, 1, -1), C, 1.0)
        weights = problem.point(model.coef_[k : k + 1].T, None if bias == "none" else model.intercept_[k])
        value, least = problem.objective(weights, *functions), problem.minimum(*functions, 1)
        assert value - least <= 1.01 * GAP * value


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8)) * (rng.random((60, 8)) < 0.6)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, 1.0, -1.0)
    return X, y, rng.uniform(0.5, 2, 60)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_gap_is_that_of_the_minimum(data, loss, bias, dtype):
    X, y, c = data
    r = BIASES[bias]
    certifier = lane_certifier.Certifier(sp.csr_array(X.astype(dtype)), MARGIN_LOSSES[loss], c, r)
    problem = Problem(X.astype(dtype).astype(float), None if r < 0 else r, 1.0)
    functions = margin_loss(loss, y, c, 1.0)

    least = problem.minimum(*functions, 1)
    far = certifier.certified(np.ones(8), 0.0 if r < 0 else 3.0, y, c)
    assert far.w.dtype == dtype and (far.bias == 0) == (r < 0)
    at = problem.point(far.w[:, None], None if r < 0 else far.bias)
    np.testing.assert_allclose(far.value, problem.objective(at, *functions), rtol=1e-9)
    assert -1e-9 * least <= far.value - least <= far.gap * far.value + 1e-9 * least
    assert far.gap <= GAP
    again = certifier.certified(far.w, far.bias, y, c)
    np.testing.assert_array_equal(again.w, far.w)
    assert again.bias == far.bias


@pytest.mark.parametrize(("number", "size"), [(1, 1e4), (3, 1e3)])
def test_a_bound_lies_below_the_minimum_though_rounding_keeps_a_free_bias_from_its_balance(number, size):
    # Separable, and C so large that margins stand below 1 by their rounding alone.
    X, labels = prepare(None)[number]
    X, y, C = size * X, np.where(labels == 1, 1.0, -1.0), 1e4
    label = lane_certificate.Label(X, MARGIN_LOSSES["squared_hinge"], 0.0, y, np.full(len(y), C), L2())
    fit = label.certified(np.zeros(X.shape[1]), 0.0)
    scores = X @ fit.w + fit.bias
    least = Problem(X, 0.0, 1.0).minimum(*margin_loss("squared_hinge", y, C, 1.0), 1)
    assert fit.gap < GAP and fit.value <= (1 + GAP) * least
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = scores * (1 + 1e-14 * rng.normal(size=len(y)))
        assert label._bound(z) <= (1 + 1e-6) * least


@pytest.mark.parametrize("weights", [np.array([0.5]), None])
def test_dense_and_sparse_features_are_judged_alike(data, weights):
    X, y, c = data
    weights = c if weights is None else weights
    loss = MARGIN_LOSSES["logistic"]
    dense, sparse = (
        lane_certifier.Certifier(form(X), loss, weights, 1.0) for form in (np.asarray, sp.csr_array)
    )
    one, other = (certifier.certified(np.zeros(8), 0.0, y, c) for certifier in (dense, sparse))
    np.testing.assert_allclose(one.w, other.w, rtol=1e-9)
    np.testing.assert_allclose(one[1:], other[1:], rtol=1e-6, atol=1e-12)
    for active in 1.0, 1e30:
        assert dense.doubts(1, 1.0, 0.0, active) == sparse.doubts(1, 1.0, 0.0, active) == (active > 1)


def test_which_labels_are_doubted(data):
    X, _, _ = data
    X = X.copy()
    X[3] = 0  # an empty row
    loss, mean = MARGIN_LOSSES["squared_hinge"], 2 * (X**2).sum(1).mean()
    bound = np.sqrt(2 * GAP * 7.0)
    for form in (np.asarray, sp.csr_array):
        for curvature in (3.9e3, 4.1e3):
            certifier = lane_certifier.Certifier(
                form(X.astype(np.float32)), loss, np.array([curvature / mean]), 1.0
            )
            assert not certifier.doubts(Status.CONVERGED, 7.0, 0.99 * bound, 1)
            assert certifier.doubts(Status.CONVERGED, 7.0, 1.01 * bound, 1) == (curvature > 4e3)
            free = lane_certifier.Certifier(
                form(X.astype(np.float32)), loss, np.array([curvature / mean]), 0.0
            )
            assert free.doubts(Status.CONVERGED, 7.0, 0.0, 1) == (curvature > 4e3)
    certifier = lane_certifier.Certifier(sp.csr_array(X.astype(np.float32)), loss, np.ones(1), 1.0)
    assert certifier.doubts(Status.CONVERGED, 7.0, 0.0, 1e12)
    assert certifier.doubts(Status.LINE_SEARCH_FAILED, 7.0, 0.0, 60)
    for status in (Status.MAX_STEPS, Status.NONFINITE, Status.NO_POSITIVES):
        assert not certifier.doubts(status, 7.0, 100.0, 60)


def test_a_gradient_that_rounding_keeps_above_its_tolerance_is_no_convergence():
    X, Y = small()
    loose, _ = train(X, Y, C=100.0)
    tight, _ = train(X, Y, C=100.0, tol=1e-9)
    stuck = [label for label, end in tight.items() if end.status == Status.LINE_SEARCH_FAILED]
    assert len(stuck) > 5
    for label in stuck:
        assert loose[label].status == Status.CONVERGED
        np.testing.assert_allclose(tight[label].value, loose[label].value, rtol=GAP)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, bool])
@pytest.mark.parametrize("convert", [sp.csr_matrix, np.asarray])
def test_features_that_are_whole_numbers(dtype, convert):
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 2, (30, 8))
    Y = sp.csr_matrix((rng.random((30, 3)) < 0.4).astype(np.float32))

    def biases(X):
        found = {}
        lanes.train_one_vs_all(X, Y, lanes.OneVsAll(), lambda r: found.update({r.label: r.bias}))
        return [found[label] for label in range(3)]

    assert biases(convert(dense.astype(dtype))) == pytest.approx(biases(convert(dense.astype(np.float32))))


def _least(X, y, loss, penalty, C):
    """The minimum, by L-BFGS-B on positive and negative parts of the weights, along a path of C."""
    A = np.hstack([X, np.ones((len(X), 1))])
    A = np.hstack([A, -A])
    size = np.sqrt((A * A).mean(axis=0))

    def objective(u, C):
        u = u / size
        w, m = u[: len(u) // 2] + u[len(u) // 2 :], y * (A @ u)
        s = np.maximum(0, 1 - m)
        q = s if loss == "squared_hinge" else np.minimum(s, 1)
        fall = 2 * q if loss == "squared_hinge" else q
        of_w, slope = PENALTIES_OF_PARTS[penalty](w)
        f = of_w.sum() + C * (q * q if loss == "squared_hinge" else q * (s - q / 2)).sum()
        return f, (np.concatenate([slope, slope]) - C * (A.T @ (y * fall))) / size

    u = np.zeros(A.shape[1])
    for part in 1e-4, 1e-3, 1e-2, 0.1, 1.0:
        options = dict(maxiter=20_000, maxfun=40_000, maxcor=50, ftol=1e-14, gtol=1e-12)
        found = minimize(
            objective, u, (part * C,), "L-BFGS-B", True, bounds=[(0, None)] * len(u), options=options
        )
        u = found.x
    return found.fun


PENALTIES_OF_PARTS = {
    "l1": lambda w: (w, np.ones(len(w))),
    "elastic_net": lambda w: (w / 2 + w * w / 4, 0.5 + w / 2),
    "huber": lambda w: (np.where(w < 1, w * w / 2, w - 0.5), np.clip(w, 0, 1)),
}
# Rows, features, loss, penalty, C: each ended CONVERGED at 1.01 to 11 times its minimum.
OTHERWISE_MISLED = [
    (50, 40, "squared_hinge", "l1", 100.0),
    (50, 40, "squared_hinge", "elastic_net", 1e3),
    (30, 24, "squared_hinge", "huber", 1e3),
    (30, 24, "huber_hinge", "l1", 1e3),
]


@pytest.mark.parametrize(("n", "d", "loss", "penalty", "C"), OTHERWISE_MISLED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_converged_with_another_penalty_is_at_the_minimum(n, d, loss, penalty, C, dtype):
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(n, d))) * 20
    y = X @ rng.normal(size=d) + 100 * rng.normal(size=n) > 0
    X = X.astype(dtype)
    model = OneVsAllClassifier(loss, penalty=penalty, C=C, clip=0).fit(X, y)
    assert model.status_ == [Status.CONVERGED]
    X, signs = X.astype(float), np.where(y, 1.0, -1.0)
    w, b = model.coef_[0].astype(float), float(model.intercept_[0])
    m = signs * (X @ w + b)
    of_w, _ = PENALTIES_OF_PARTS[penalty](np.abs(np.append(w, b)))
    value = of_w.sum() + C * np.asarray(MARGIN_LOSSES[loss].value(m)).sum()
    assert value <= (1 + GAP) * _least(X, signs, loss, penalty, C)


@pytest.mark.parametrize("loss", ["squared_hinge", "huber_hinge"])
@pytest.mark.parametrize("init", ["mean_separating", "zero"])
@pytest.mark.parametrize("penalty", ["l2", "huber"])
def test_few_large_rows_are_solved_from_any_start(loss, init, penalty):
    """Steps from one point end at max_iter, at up to 250 times the minimum."""
    rng = np.random.default_rng(0)
    X, y = 30 * rng.normal(size=(30, 60)), rng.integers(0, 3, 30)
    model = OneVsAllClassifier(loss, init, penalty=penalty, clip=0).fit(X, y)
    assert set(model.status_) == {Status.CONVERGED}
    least = Problem(X, 1.0, 1.0).minimum
    signs, w = np.where(y == 0, 1.0, -1.0), np.append(model.coef_[0], model.intercept_[0])
    assert np.abs(w).max() < 1  # where Huber's penalty is ½ w², too
    value = float(MARGIN_LOSSES[loss].value(signs * (X @ w[:-1] + w[-1])).sum()) + w @ w / 2
    assert value <= (1 + GAP) * least(*margin_loss(loss, signs, 1.0, 1.0), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = OneVsAllClassifier(loss, init, penalty=penalty, clip=0, max_iter=3).fit(X, y)
    assert set(few.status_) == {Status.MAX_STEPS}  # as it was asked for


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_features_that_are_not_scaled_are_solved_in_the_dual(intercept, convert):
    """Primal steps of float32 and float64 end at up to 1e8 times the minimum, after seconds for a label."""
    rng = np.random.default_rng(0)
    X, y = (1e4 * rng.normal(size=(40, 120))).astype(np.float32), rng.integers(0, 20, 40)
    X[rng.random(X.shape) < 0.7] = 0
    X[3] = 0
    weight = np.ones(40)
    weight[5] = 0
    options = dict(C=30.0, clip=0, init="zero", fit_intercept=intercept)
    model = OneVsAllClassifier("squared_hinge", **options).fit(convert(X), y, sample_weight=weight)
    assert set(model.status_) == {Status.CONVERGED}
    kept, Z = weight > 0, np.hstack([X.astype(np.float64), np.full((40, 1), float(intercept))])
    for label in 0, 7:
        signs = np.where(y == model.classes_[label], 1.0, -1.0)[kept]
        w = np.append(model.coef_[label], model.intercept_[label])
        value = 30 * float((np.maximum(1 - signs * (Z[kept] @ w), 0) ** 2).sum()) + w @ w / 2
        # the dual by another method
        Q = np.outer(signs, signs) * (Z[kept] @ Z[kept].T) + np.eye(len(signs)) / 60
        alpha = nnls_dual(Q)
        dual = float(alpha.sum() - alpha @ Q @ alpha / 2)
        assert (1 - 1e-9) * dual <= value <= (1 + GAP) * dual


def nnls_dual(Q) -> np.ndarray:
    """argmax Σ α − ½ αᵀ Q α over α ≥ 0, by non-negative least squares of Q = LLᵀ."""
    L = np.linalg.cholesky(Q)
    return nnls(L.T, np.linalg.solve(L, np.ones(len(Q))))[0]


def test_badly_scaled_columns_are_solved():
    """Columns of sizes from 0.001 to 1,000, and noise for labels: CG of 500 steps is lost in rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 300)) * 10.0 ** rng.uniform(-3, 3, 300)
    y = rng.integers(0, 2, 150)
    model = OneVsAllClassifier("squared_hinge", C=300.0, clip=0, init="zero").fit(X, y)
    assert set(model.status_) == {Status.CONVERGED}


def test_a_label_that_starts_at_its_minimum_has_converged():
    """As many rows with it as without, all alike: the gradient at zero is 0, and so is its tolerance."""
    X, y = np.ones((4, 3)), np.array([0, 0, 1, 1])
    model = OneVsAllClassifier("squared_hinge", C=0.01, fit_intercept=False, init="zero").fit(X, y)
    assert set(model.status_) == {Status.CONVERGED} and abs(model.coef_).max() == 0


@pytest.mark.parametrize("init", ["ova_primal", "ova_primal_pp"])
def test_a_free_bias_of_a_label_without_positives_is_a_start(init):
    """It is best at −∞: from −358, where no row had a curvature, every search failed."""
    rng = np.random.default_rng(0)
    X, y = 0.01 * rng.normal(size=(31, 17)), rng.integers(0, 8, 31)
    for C in 0.01, 1.0:
        model = OneVsAllClassifier("logistic", init, C=C, clip=0, regularise_intercept=False).fit(X, y)
        assert set(model.status_) == {Status.CONVERGED}
        zero = OneVsAllClassifier("logistic", "zero", C=C, clip=0, regularise_intercept=False).fit(X, y)
        np.testing.assert_allclose(model.intercept_, zero.intercept_, rtol=1e-2)


def test_a_failed_search_is_no_end_where_float64_goes_on(monkeypatch):
    """The certificate reaches the tolerance of the label, and says so."""
    start = "xmcjax.lanes._problems.Problems.nearest_bias"
    monkeypatch.setattr(start, lambda problems, positives, bias: -358.0)
    rng = np.random.default_rng(0)
    X, y = 0.01 * rng.normal(size=(31, 17)), rng.integers(0, 8, 31)
    options = dict(C=0.01, clip=0, regularise_intercept=False)
    model = OneVsAllClassifier("logistic", "ova_primal", **options).fit(X, y)
    assert set(model.status_) == {Status.CONVERGED}
