"""Every set of dual ascent over instances, sharp and smoothed: its optimum, its proof, its estimator."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.problems import needs_native, svm_problem
from tests.support.topk import LOSSES, SIZE, STEP, TIGHT, dual, make, minimum, objective, solve
from xmcjax import TopKSVC, linops
from xmcjax.solvers import Status, topk_sdca

SETS = [("topk_alpha", 1), ("topk_alpha", 3), ("topk_beta", 2), ("topk_beta", 4), ("box", 1)]
ENTROPY = [("topk_entropy", k) for k in (1, 2, 4)]
# (set, k, γ, C): γ = 0 has a program of its own, and the sets of the hinges then have an oracle less
PROBLEMS = [(*of, 0.0, 0.8) for of in [*SETS, ("topk_alpha", 2), ("topk_beta", 1)]]
PROBLEMS += [(*of, gamma, 0.8) for of in SETS for gamma in (0.05, 1.0, 20.0)]
PROBLEMS += [(*of, 0.0, C) for of in ENTROPY for C in (0.01, 0.8, 50.0)]


@pytest.mark.parametrize(("set_name", "k", "gamma", "C"), PROBLEMS)
def test_the_optimum_is_that_of_other_methods(set_name, k, gamma, C):
    single, y = svm_problem(n=14, d=3, m=5, dtype=np.float32)
    X = single.astype(np.float64)
    oracles = []
    if set_name in LOSSES:
        oracles.append((dual_references.bound(X, y, 5, LOSSES[set_name], k, C, gamma), 1e-8))
    if gamma or set_name not in LOSSES:
        oracles.append((minimum(X, y, set_name, k, gamma, C), 1e-6 if gamma else 1e-7))
    for given, tol in ((X, 1e-9), (single, 1e-5)):
        problem = make(given, y, set_name, k, gamma, C=C)
        state = solve(problem, dataclasses.replace(TIGHT, tol=tol))
        assert state.status[0] == Status.CONVERGED
        assert {a.dtype for a in (state.weights, state.dual, state.gap, state.history)} == {given.dtype}
        value = objective(topk_sdca.weights(problem, state)[0], X, y, set_name, k, gamma, C)
        found = np.array([value, state.primal[0], state.dual_objective[0]])
        for least, accuracy in oracles:
            np.testing.assert_allclose(found, least, rtol=max(accuracy, 2 * tol))


@pytest.mark.parametrize("kind", ["dense", "csr", "gram"])
@pytest.mark.parametrize(
    ("set_name", "k", "gamma"),
    [
        *(("topk_alpha", 1, 0.0), ("topk_alpha", 4, 0.0), ("topk_beta", 3, 0.0)),
        *((*of, 0.3) for of in SETS),
        *((*of, 0.0) for of in ENTROPY),
    ],
)
def test_the_proof_is_that_of_the_weights(set_name, k, gamma, kind):
    for dtype, tol in ((np.float64, 1e-7), (np.float32, 1e-5)):
        double = dtype == np.float64
        X, y = svm_problem(**SIZE, dtype=dtype)
        problem = make(X, y, set_name, k, gamma, C=np.linspace(0.1, 1, 40)[None, :], kind=kind)
        hp = dataclasses.replace(TIGHT, tol=tol)
        state = solve(problem, hp)
        assert state.status[0] == Status.CONVERGED and state.weights.dtype == dtype
        found = topk_sdca.proof(problem, state, 0, tol)
        wide = X.astype(np.float64)
        a = topk_sdca.coefficients(problem, state)[0].astype(np.float64)
        W = wide.T @ a
        # as the problem has them
        gamma, C = float(problem.gamma[0]), np.asarray(problem.bound[0], np.float64)
        value = objective(W.T, wide, y, set_name, k, gamma, C)
        assert 0 <= found.gap <= tol and found.primal == pytest.approx(value, rel=1e-9 if double else 1e-6)
        assert state.primal[0] == pytest.approx(value, rel=1e-12 if double else 1e-5)
        least = dual(found.alpha.toarray(), wide, y, set_name, gamma, C)
        assert found.dual == pytest.approx(least, rel=1e-6)
        if not double:
            continue
        least = dual(np.maximum(-a, 0), wide, y, set_name, gamma, C)
        assert state.dual_objective[0] == pytest.approx(least, rel=1e-10)
        assert -1e-12 <= value - float(state.dual_objective[0]) <= 1.01 * tol * value
        if kind != "gram":
            np.testing.assert_allclose(topk_sdca.weights(problem, state)[0], W.T, atol=1e-10)
        np.testing.assert_allclose(W.sum(axis=1), 0, atol=1e-10)  # Σ_c w_c = 0
        assert int(state.support[0]) == np.count_nonzero(np.maximum(-a, 0).sum(axis=1))
        # in another order
        np.testing.assert_allclose(solve(problem, hp, seed=1).primal[0], state.primal[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("set_name", "k", "kind", "most"),
    [("topk_alpha", 2, "dense", 0.5), ("topk_beta", 3, "gram", 0.5), ("box", 1, "csr", 4 * 0.5)],
)
def test_a_row_of_zeros_takes_all_that_it_may(set_name, k, kind, most):
    X, y = svm_problem(**SIZE)
    problem = make(X, y, set_name, k, C=0.5, kind=kind)
    state = STEP(problem, TIGHT, topk_sdca.init(problem, jax.random.key(0)))
    np.testing.assert_allclose(np.asarray(state.dual[0, 3]).sum(), most)


@pytest.mark.parametrize(
    ("kind", "backend", "set_name", "k"),
    [(kind, "auto", *of) for kind in ("dense", "csr") for of in SETS]
    + [("dense", "jnp", *of) for of in (SETS[1], SETS[4])],
)
def test_a_row_of_zeros_takes_the_best_of_a_smoothed_set(set_name, k, backend, kind):
    X, y = svm_problem(**SIZE)
    gamma = np.array([0.0, 0.1, 50.0])
    problem = make(X, y, set_name, k, gamma, C=0.8, kind=kind, backend=backend)
    x = np.asarray(STEP(problem, TIGHT, topk_sdca.init(problem)).dual[1:, 3])
    most = np.minimum(0.8 / gamma[1:], 0.8 if set_name == "box" else 0.8 / 4)
    np.testing.assert_allclose(x, most[:, None] * (np.arange(5) != y[3]), rtol=1e-12)


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "jnp"])
def test_lanes_with_and_without_a_smoothing_are_single_problems(backend):
    X, y = svm_problem(**SIZE)
    backend = "auto" if backend == "native" else backend
    hp = topk_sdca.HParams(tol=1e-4, max_epochs=200, block=16, sweeps=2)
    op, gammas = linops.make(X), [0.0, 0.5, 4.0]
    together = topk_sdca.problem(op, y, 2, 0.7, gamma=gammas, backend=backend)
    state = topk_sdca.run(together, hp, topk_sdca.init(together, jax.random.key(3)))
    for lane, gamma in enumerate(gammas):
        alone = topk_sdca.problem(op, y, 2, 0.7, gamma=gamma, backend=backend)
        single = topk_sdca.run(alone, hp, topk_sdca.init(alone, jax.random.key(3)))
        assert single.epochs[0] == state.epochs[lane]
        np.testing.assert_allclose(
            topk_sdca.weights(alone, single)[0], topk_sdca.weights(together, state)[lane], atol=1e-12
        )
    assert np.all(np.diff(np.asarray(state.primal)) < 0)  # the loss falls with γ


@needs_native
@pytest.mark.parametrize(
    ("set_name", "gamma", "kind", "m", "tol", "slots"),
    [
        *(("topk_beta", 0.0, kind, 12, 1e-4, range(3, 12)) for kind in ("csr", "dense")),
        *(("topk_alpha", 5.0, "csr", 12, 1e-5, range(3, 12)), ("topk_entropy", 0.0, "csr", 9, 1e-6, [8])),
    ],
)
def test_slots_are_added_where_they_run_out(set_name, gamma, kind, m, tol, slots):
    X, y = svm_problem(n=60, d=12, m=m)
    problem = make(X, y, set_name, 2, gamma, kind=kind)
    hp = dataclasses.replace(TIGHT, tol=tol)
    whole, few = solve(problem, hp), solve(problem, hp, slots=2)
    assert few.status[0] == Status.CONVERGED
    np.testing.assert_allclose(few.primal[0], whole.primal[0], rtol=2 * tol)
    assert few.index.shape[2] in slots and few.dual.shape == few.index.shape
    a = topk_sdca.coefficients(problem, few)[0]
    np.testing.assert_allclose(a.T @ X, topk_sdca.weights(problem, few)[0], atol=1e-10)
    np.testing.assert_allclose(a.sum(1), 0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("k", "variant"), [(1, "alpha"), (2, "alpha"), (3, "beta")])
def test_the_estimator_with_a_smoothing(k, variant, dtype):
    X, y = svm_problem(n=80, d=6, m=5, dtype=dtype)
    tol = 1e-6 if dtype == np.float64 else 1e-4
    options = dict(k=k, variant=variant, C=0.5, tol=tol, max_iter=5000)
    sharp, *soft = (TopKSVC(smoothing=gamma, **options).fit(X, y) for gamma in (0.0, 1e-6, 0.5, 3.0))
    total = 0.5 * len(y)
    for gamma, model in zip((1e-6, 0.5, 3.0), soft, strict=True):
        assert model.status_ == Status.CONVERGED and model.dual_gap_ <= tol and model.coef_.dtype == dtype
        value = objective(model.coef_, X, y, f"topk_{variant}", k, gamma, 0.5)
        assert model.objective_ == pytest.approx(value, rel=1e-9 if dtype == np.float64 else 1e-6)
        # φ − γ/2 ≤ φ_γ ≤ φ
        slack = 2 * tol * sharp.objective_
        assert sharp.objective_ - gamma / 2 * total - slack <= value <= sharp.objective_ + slack
    gram = TopKSVC(smoothing=0.5, kernel="precomputed", **options).fit(X @ X.T, y)
    assert gram.objective_ == pytest.approx(soft[1].objective_, rel=3 * tol)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_estimator_of_the_entropy(form, dtype):
    X, y = svm_problem(n=80, d=6, m=5, dtype=dtype)
    tol = 1e-6 if dtype == np.float64 else 1e-4
    weight = np.random.default_rng(3).integers(0, 3, 80).astype(float)
    kept = weight > 0
    model = TopKSVC(3, "entropy", C=0.5, tol=tol).fit(form(X), y, weight)
    assert model.status_ == Status.CONVERGED and model.dual_gap_ <= tol and model.coef_.dtype == dtype
    value = objective(model.coef_, X, y, "topk_entropy", 3, 0.0, 0.5 * weight)
    assert model.objective_ == pytest.approx(value, rel=1e-9 if dtype == np.float64 else 1e-6)
    expected = minimum(X[kept].astype(np.float64), y[kept], "topk_entropy", 3, 0.0, 0.5 * weight[kept])
    assert expected * (1 - 1e-7) <= value <= expected * (1 + 1.1 * tol)


def test_a_smoothing_beside_C_beyond_the_dtype_is_refused():
    X, y = svm_problem(n=20, d=3, m=4, dtype=np.float32)
    with pytest.raises(ValueError, match=r"^smoothing: expected smoothing / C from 1.18e-38 to 3.4e.38"):
        TopKSVC(smoothing=1e20, C=1e-30).fit(X, y)
