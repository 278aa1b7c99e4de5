"""Top-k SVMs with a smoothing: the optimum against other methods, and native epochs against JAX's."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.objectives import least
from tests.support.problems import needs_native, svm_problem
from xmcjax import TopKSVC, linops, losses
from xmcjax.solvers import Status, instance_dual, topk_sdca

TIGHT = topk_sdca.HParams(tol=1e-9, max_epochs=100_000, block=16, sweeps=2)
KINDS = {"topk_alpha": "alpha", "topk_beta": "beta", "box": "ww"}
SETS = [("topk_alpha", 1), ("topk_alpha", 3), ("topk_beta", 2), ("topk_beta", 4), ("box", 1)]
GAMMAS = [0.05, 1.0, 20.0]
STEP = jax.jit(topk_sdca.step)  # which is long in being traced


def make(X, y, set_name, k, gamma, *, C=0.8, kind="dense", backend="auto"):
    if kind == "gram":
        op = topk_sdca.Gram(jnp.asarray(X @ X.T))
    else:
        op = linops.make(
            sp.csr_matrix(X) if kind == "csr" else X, backend="dense" if kind == "dense" else backend
        )
    backend = "auto" if kind == "csr" else backend
    bound = np.asarray(C, float)
    return instance_dual.problem(op, y, set_name=set_name, bound=bound, k=k, gamma=gamma, backend=backend)


def solve(problem, hp=TIGHT, **how):
    return topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(0), **how))


def objective(W, X, y, set_name, k, gamma, C):
    """P of weights [m, d], from the losses of the library, which have tests of their own."""
    scores = X @ W.T
    if set_name == "box":
        gains = 1 + scores - jnp.take_along_axis(scores, y[:, None], 1)
        x = jnp.clip(gains / gamma, 0, 1)
        of_rows = (
            jnp.sum(x * (gains - gamma / 2 * x), axis=1)
            - jnp.take_along_axis(x * (gains - gamma / 2 * x), y[:, None], 1)[:, 0]
        )
    else:
        of_rows = losses.smooth_topk_hinge(scores, y, k, gamma, KINDS[set_name])
    return jnp.sum(W**2) / 2 + jnp.sum(C * of_rows)


def minimum(X, y, m, *loss):
    """By L-BFGS on the primal."""
    of = jax.jit(jax.value_and_grad(lambda w: objective(w.reshape(m, -1), X, y, *loss)))

    def both(w):
        value, slope = of(w)
        return float(value), np.asarray(slope, np.float64)

    return least(both, m * X.shape[1])


@pytest.mark.parametrize(("set_name", "k"), SETS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_optimum_is_that_of_other_methods(set_name, k, gamma):
    X, y = svm_problem(n=14, d=3, m=5)
    problem = make(X, y, set_name, k, gamma)
    state = solve(problem)
    assert state.status[0] == Status.CONVERGED
    bound = dual_references.bound(X, y, 5, KINDS[set_name], k, 0.8, gamma)
    loss = (set_name, k, gamma, 0.8)
    value = float(objective(topk_sdca.weights(problem, state)[0], X, y, *loss))
    found = np.array([value, state.primal[0], state.dual_objective[0]])
    np.testing.assert_allclose(found, bound, rtol=1e-8)
    np.testing.assert_allclose(minimum(X, y, 5, *loss), bound, rtol=1e-6)


@pytest.mark.parametrize(("set_name", "k"), SETS)
@pytest.mark.parametrize("kind", ["dense", "csr", "gram"])
def test_the_proof_is_that_of_the_weights(set_name, k, kind):
    for dtype, tol in ((np.float64, 1e-7), (np.float32, 1e-5)):
        X, y = svm_problem(n=40, d=7, m=5, dtype=dtype)
        C = np.linspace(0.1, 1, 40)[None, :]
        problem = make(X, y, set_name, k, 0.3, C=C, kind=kind)
        state = solve(problem, dataclasses.replace(TIGHT, tol=tol))
        assert state.status[0] == Status.CONVERGED and state.weights.dtype == dtype
        found = topk_sdca.proof(problem, state, 0, tol)
        W = X.astype(np.float64).T @ topk_sdca.coefficients(problem, state)[0].astype(np.float64)
        gamma, C = float(problem.gamma[0]), np.asarray(problem.bound[0], np.float64)
        value = float(objective(W.T, X.astype(np.float64), y, set_name, k, gamma, C))
        assert 0 <= found.gap <= tol and found.primal == pytest.approx(
            value, rel=1e-9 if dtype == np.float64 else 1e-6
        )
        assert state.primal[0] == pytest.approx(value, rel=1e-12 if dtype == np.float64 else 1e-5)
        x = found.alpha.toarray()
        ridge = gamma / C[:, None]
        own = np.zeros_like(x)
        own[np.arange(40), y] = x.sum(axis=1)
        V = X.astype(np.float64).T @ (own - x)
        assert found.dual == pytest.approx(x.sum() - (ridge * x**2).sum() / 2 - (V**2).sum() / 2, rel=1e-6)


# What a row's variables become is a matter of the set, its scores and its length alone: one kind of features
# has all sets, the others some of each form.
OF_KINDS = [("dense", *of) for of in SETS] + [("csr", *of) for of in SETS[1::2]] + [("gram", *SETS[3])]


@needs_native
@pytest.mark.parametrize(("kind", "set_name", "k"), [*OF_KINDS, ("csr", *SETS[4]), ("gram", *SETS[4])])
def test_native_epochs_are_those_of_jax(set_name, k, kind):
    X, y = svm_problem(n=45, d=7, m=6)
    C = 0.5 * np.where(np.arange(45) % 7 != 2, 1 + np.arange(45) % 3, 0)[None, :]  # some rows are left out
    hp = topk_sdca.HParams(block=16, sweeps=2) if kind != "csr" else topk_sdca.HParams(block=1, sweeps=1)
    gamma = [0.0, 0.02, 3.0]  # lanes with and without
    ours, twin = (
        make(X, y, set_name, k, gamma, C=C, kind=kind, backend=backend) for backend in ("native", "jnp")
    )
    assert ours.rows is None and twin.rows is not None
    a, b = (topk_sdca.init(p, jax.random.key(7)) for p in (ours, twin))
    for _ in range(4):
        a, b = STEP(ours, hp, a), STEP(twin, hp, b)
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-12)
        np.testing.assert_allclose(a.dual, b.dual, atol=1e-12)
    for new, old in zip(topk_sdca.objectives(ours, hp, a), topk_sdca.objectives(twin, hp, b), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-11, atol=1e-12)
    if set_name != "box" and k > 1:  # what the visits found is an upper bound of the gap where there is none
        np.testing.assert_allclose(a.estimate[1:], b.estimate[1:], rtol=1e-8)
    assert not np.any(np.asarray(a.dual)[:, np.arange(45) % 7 == 2])


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "jnp"])
def test_lanes_with_and_without_are_single_problems(backend):
    X, y = svm_problem(n=30, d=5, m=5)
    backend = "auto" if backend == "native" else backend
    hp = topk_sdca.HParams(tol=1e-4, max_epochs=200, block=8, sweeps=2)
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


@pytest.mark.parametrize(
    ("kind", "backend", "set_name", "k"),
    [
        *((kind, "auto", *of) for kind in ("dense", "csr") for of in SETS),
        *(("dense", "jnp", *of) for of in (SETS[1], SETS[4])),
    ],
)
def test_a_row_of_zeros_takes_the_best_of_its_set(set_name, k, backend, kind):
    X, y = svm_problem(n=12, d=3, m=6)
    X[5] = 0
    for gamma in (0.1, 50.0):
        problem = make(X, y, set_name, k, gamma, kind=kind, backend=backend)
        x = np.asarray(STEP(problem, TIGHT, topk_sdca.init(problem)).dual[0, 5])
        most = 0.8 if set_name == "box" else 0.8 / 5
        expected = np.where(np.arange(6) == y[5], 0, min(0.8 / gamma, most))
        np.testing.assert_allclose(x, expected, rtol=1e-12)
        if backend == "auto":
            primal, _, gap, _ = topk_sdca.objectives(problem, TIGHT, solve(problem))
            assert abs(gap[0]) <= 1e-8 * primal[0]


@needs_native
def test_slots_are_added_where_they_run_out():
    X, y = svm_problem(n=60, d=12, m=12)
    problem = make(X, y, "topk_alpha", 2, 5.0, kind="csr")
    hp = dataclasses.replace(TIGHT, tol=1e-5)
    whole, few = solve(problem, hp), solve(problem, hp, slots=2)
    assert few.status[0] == Status.CONVERGED and few.index.shape[2] > 2
    np.testing.assert_allclose(few.primal[0], whole.primal[0], rtol=2e-5)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(("variant", "k"), [("alpha", 1), ("alpha", 3), ("beta", 2)])
def test_one_svm_with_weights_of_rows(variant, k, form):
    X, y = svm_problem(n=24, m=5)
    weight = np.random.default_rng(6).random(24)
    weight[7] = 0
    kept = weight > 0
    bound = dual_references.bound(X[kept], y[kept], 5, variant, k, 0.8 * weight[kept], 0.25)
    found = topk_sdca.solve(
        form(X), y, k, 0.8, variant=variant, gamma=0.25, weight=weight, tol=1e-8, max_epochs=20_000
    )
    assert found.status == Status.CONVERGED and found.primal == pytest.approx(bound, rel=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("k", "variant"), [(1, "alpha"), (2, "alpha"), (3, "beta")])
def test_the_estimator(k, variant, dtype):
    X, y = svm_problem(n=80, d=6, m=5, dtype=dtype)
    tol = 1e-6 if dtype == np.float64 else 1e-4
    options = dict(k=k, variant=variant, C=0.5, tol=tol, max_iter=5000)
    sharp, *soft = (TopKSVC(smoothing=gamma, **options).fit(X, y) for gamma in (0.0, 1e-6, 0.5, 3.0))
    total = 0.5 * len(y)
    for gamma, model in zip((1e-6, 0.5, 3.0), soft, strict=True):
        assert model.status_ == Status.CONVERGED and model.dual_gap_ <= tol and model.coef_.dtype == dtype
        W = model.coef_.astype(np.float64)
        value = float(objective(W, X.astype(np.float64), y, f"topk_{variant}", k, gamma, 0.5))
        assert model.objective_ == pytest.approx(value, rel=1e-9 if dtype == np.float64 else 1e-6)
        # φ − γ/2 ≤ φ_γ ≤ φ
        slack = 2 * tol * sharp.objective_
        assert sharp.objective_ - gamma / 2 * total - slack <= value <= sharp.objective_ + slack
    gram = TopKSVC(smoothing=0.5, kernel="precomputed", **options).fit(X @ X.T, y)
    assert gram.objective_ == pytest.approx(soft[1].objective_, rel=3 * tol)


def test_a_smoothing_beside_C_beyond_the_dtype_is_refused():
    X, y = svm_problem(n=20, d=3, m=4, dtype=np.float32)
    with pytest.raises(ValueError, match=r"^smoothing: expected smoothing / C from 1.18e-38 to 3.4e.38"):
        TopKSVC(smoothing=1e20, C=1e-30).fit(X, y)
