"""The top-k entropy in dual ascent over instances: its row map, the optimum, native epochs against JAX's."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import admm, certified, entropic
from tests.support.objectives import least
from tests.support.problems import needs_native, svm_problem
from xmcjax import TopKSVC, linops, losses
from xmcjax.solvers import Status, instance_dual, multinomial, topk_sdca

TIGHT = topk_sdca.HParams(tol=1e-9, max_epochs=10_000, block=16, sweeps=2)
KS = [1, 2, 4]


def make(X, y, k, *, C=0.8, kind="dense", backend="auto"):
    if kind == "gram":
        op = topk_sdca.Gram(jnp.asarray(X @ X.T))
    else:
        op = linops.make(
            sp.csr_matrix(X) if kind == "csr" else X, backend="dense" if kind == "dense" else "auto"
        )
    backend = "auto" if kind == "csr" and backend == "native" else backend
    return instance_dual.problem(
        op, y, set_name="topk_entropy", bound=np.asarray(C, float), k=k, backend=backend
    )


def solve(problem, hp=TIGHT, **how):
    return topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(0), **how))


def objective(W, X, y, k, C):
    """P of weights [m, d], from the loss of the library, which has tests of its own."""
    return jnp.sum(W**2) / 2 + jnp.sum(C * losses.topk_entropy(X @ W.T, y, k))


def minimum(X, y, m, k, C):
    """By L-BFGS on the primal."""
    of = jax.jit(jax.value_and_grad(lambda w: objective(w.reshape(m, -1), X, y, k, C)))

    def both(w):
        value, slope = of(w)
        return float(value), np.asarray(slope, np.float64)

    return least(both, m * X.shape[1])


def plogp(p):
    return np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0)


def test_the_row_map_is_a_maximum():
    """No step towards a vertex of the set raises the objective, which is strictly concave."""
    rng = np.random.default_rng(0)
    run = jax.jit(entropic.entropic, static_argnums=2)
    for k in (1, 3, 6):
        scale = np.array([0.1, 1, 5, 20, 100, 1, 700, 1])[:, None]
        a = rng.normal(size=(8, 6)) * scale
        a[-1] = 0.5  # all alike
        c = np.array([1e-9, 1, 10, 1e3, 2, 1e6, 1, 3.0])[:, None]
        u = np.asarray(run(jnp.asarray(a), jnp.asarray(c), k))

        def value(u, a=a, c=c):
            s = u.sum(axis=1)
            concave = c[:, 0] / 2 * ((u**2).sum(axis=1) + s**2) + plogp(u).sum(axis=1) + plogp(1 - s)
            return (a * u).sum(axis=1) - concave

        assert np.all(u >= 0) and np.all(u.sum(axis=1) <= 1 + 1e-12)
        assert np.all(u.max(axis=1) <= u.sum(axis=1) / k * (1 + 1e-12))
        base = value(u)
        for _ in range(500):
            vertex = np.zeros(6)
            vertex[rng.permutation(6)[:k]] = rng.integers(0, 2) / k
            step = 10 ** rng.uniform(-8, 0)
            assert np.all(value(u + step * (vertex - u)) <= base + 1e-12 * (1 + np.abs(base)))


def test_without_a_curvature_the_row_map_is_the_slope_of_the_loss():
    rng = np.random.default_rng(1)
    z = np.concatenate([np.zeros((20, 1)), rng.normal(size=(20, 6)) * 3], axis=1)
    for k in (1, 3, 6):
        slope = jax.grad(lambda z, k=k: losses.topk_entropy(z, np.zeros(20, int), k).sum())(jnp.asarray(z))
        u = entropic.entropic(jnp.asarray(z[:, 1:]), jnp.full((20, 1), 1e-13), k)
        np.testing.assert_allclose(u, slope[:, 1:], atol=1e-11)


def test_where_a_step_rounds_to_nothing_the_row_map_ends():
    """Newton's method ends at a bound of its bracket, and a step out of it is no reason for a bisection."""
    a = [-5.26570568, -9.84034065, -14.66159018, -6.57822675, -12.60571104, -12.59182208, -8.46986974]
    a, c = np.array([[*a, -7.59349839, 2.59173686]]), 61.48109026
    u = np.asarray(jax.jit(entropic.entropic, static_argnums=2)(jnp.asarray(a), jnp.full((1, 1), c), 1))
    s = u.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.log(u) + c * (u + s) - np.log1p(-s), a, atol=1e-11)


@pytest.mark.parametrize("k", [1, 3])
def test_the_row_map_takes_few_passes(k, monkeypatch):
    rng, passes, at = np.random.default_rng(0), [], entropic._at
    monkeypatch.setattr(entropic, "_at", lambda *given: passes.append(0) or at(*given))
    scale, c = (x.reshape(-1, 1) for x in np.meshgrid([0.1, 1, 10, 100, 1e5], [1e-9, 1e-3, 1, 30, 1e3, 1e7]))
    a = rng.normal(size=(30, 8)) * scale + rng.normal(size=(30, 1)) * scale
    a[::4] = a[::4, :1]  # all alike
    a[1, 2] = np.nan
    with jax.disable_jit():
        u = entropic.entropic(jnp.asarray(a), jnp.asarray(c), k)
    assert len(passes) <= 25 and np.all(np.isfinite(np.delete(u, 1, axis=0)))


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("C", [0.01, 0.8, 50.0])
def test_the_optimum_is_that_of_the_primal(k, C):
    X, y = svm_problem(n=14, d=3, m=5)
    problem = make(X, y, k, C=C)
    state = solve(problem)
    assert state.status[0] == Status.CONVERGED
    value = float(objective(topk_sdca.weights(problem, state)[0], X, y, k, C))
    expected = minimum(X, y, 5, k, C)
    found = np.array([value, state.primal[0], state.dual_objective[0]])
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("kind", ["dense", "csr", "gram"])
def test_the_proof_is_that_of_the_weights(k, kind):
    for dtype, tol in ((np.float64, 1e-7), (np.float32, 1e-5)):
        X, y = svm_problem(n=40, d=7, m=5, dtype=dtype)
        problem = make(X, y, k, C=np.linspace(0.1, 1, 40)[None, :], kind=kind)
        state = solve(problem, dataclasses.replace(TIGHT, tol=tol))
        assert state.status[0] == Status.CONVERGED and state.weights.dtype == dtype
        found = topk_sdca.proof(problem, state, 0, tol)
        wide, C = X.astype(np.float64), np.asarray(problem.bound[0], np.float64)
        W = wide.T @ topk_sdca.coefficients(problem, state)[0].astype(np.float64)
        assert 0 <= found.gap <= tol
        assert found.primal == pytest.approx(
            float(objective(W.T, wide, y, k, C)), rel=1e-9 if tol < 1e-6 else 1e-6
        )
        u = found.alpha.toarray() / C[:, None]
        own = np.zeros_like(u)
        own[np.arange(40), y] = u.sum(axis=1)
        V = wide.T @ (C[:, None] * (own - u))
        dual = -np.sum(C * (plogp(u).sum(axis=1) + plogp(1 - u.sum(axis=1)))) - (V**2).sum() / 2
        assert found.dual == pytest.approx(dual, rel=1e-6)


@needs_native
@pytest.mark.parametrize(
    # what a row's variables become is a matter of k, its scores and its length alone
    ("kind", "k"),
    [*(("dense", k) for k in KS), ("csr", 2), ("gram", 4)],
)
def test_native_epochs_are_those_of_jax(k, kind):
    X, y = svm_problem(n=30, d=7, m=6)
    C = 0.5 * np.where(np.arange(30) % 7 != 2, 1 + np.arange(30) % 3, 0)[None, :]  # some rows are left out
    hp = topk_sdca.HParams(block=16, sweeps=2) if kind != "csr" else topk_sdca.HParams(block=1, sweeps=1)
    ours, twin = (make(X, y, k, C=C, kind=kind, backend=backend) for backend in ("native", "jnp"))
    assert ours.rows is None and twin.rows is not None
    step = jax.jit(topk_sdca.step)
    a, b = (topk_sdca.init(p, jax.random.key(7)) for p in (ours, twin))
    for _ in range(3):
        a, b = step(ours, hp, a), step(twin, hp, b)
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-11)
        np.testing.assert_allclose(a.dual, b.dual, atol=1e-11)
        np.testing.assert_allclose(a.estimate, b.estimate, rtol=1e-8, atol=1e-14)
    for new, old in zip(topk_sdca.objectives(ours, hp, a), topk_sdca.objectives(twin, hp, b), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-10, atol=1e-12)
    x = np.asarray(a.dual)[0]
    assert not np.any(x[np.arange(30) % 7 == 2])
    np.testing.assert_allclose(x[3], np.where(np.arange(6) == y[3], 0, C[0, 3] / 6))  # a row of zeros


@needs_native
def test_slots_are_added_where_they_run_out():
    X, y = svm_problem(n=40, d=12, m=9)
    problem = make(X, y, 2, kind="csr")
    few = solve(problem, dataclasses.replace(TIGHT, tol=1e-6), slots=2)
    assert few.status[0] == Status.CONVERGED and few.index.shape[2] == 8
    np.testing.assert_allclose(few.primal[0], solve(problem).primal[0], rtol=2e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_steps_for_all_rows_at_once(k, weighted):
    X, y = svm_problem(n=24, m=5)
    C = np.random.default_rng(6).random(24) if weighted else 0.7
    found = admm(X, y, 5, "topk_entropy", C, k)(sp.csr_array((24, 5)), 1e-9, 5000)
    assert found.gap <= 1e-9
    proof = certified(X, y, found.alpha, "topk_entropy", C, 1e-8, found.W, k)
    assert proof.gap <= 1e-8 and proof.primal == pytest.approx(minimum(X, y, 5, k, C), rel=1e-7)


def test_what_takes_too_many_epochs_is_solved_by_steps_for_all_rows():
    X, y = svm_problem(n=50, d=8, m=5)
    rows = sp.csr_matrix(100 * X * (abs(X) > 1.2))
    epochs = topk_sdca.solve(rows, y, 1, 70.0, variant="entropy", max_epochs=100)
    assert epochs.reason.startswith("epochs come first, 100 of them at most")
    assert epochs.status == Status.MAX_STEPS
    found = topk_sdca.solve(100 * X, y, 1, 70.0, variant="entropy")
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and 100 < found.epochs < 300


def test_of_one_class_it_is_the_multinomial_regression():
    X, y = svm_problem(n=60, d=5, m=4)
    found = topk_sdca.solve(X, y, 1, 0.7, variant="entropy", tol=1e-8)
    problem = multinomial.multinomial_problem(linops.make(X), y, 1 / 0.7, intercept=False)
    other = multinomial.run(problem, "newton", multinomial.HParams(tolerance=1e-10))
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.W, other.W, atol=1e-4)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_estimator(form, dtype):
    X, y = svm_problem(n=80, d=6, m=5, dtype=dtype)
    tol = 1e-6 if dtype == np.float64 else 1e-4
    weight = np.random.default_rng(3).integers(0, 3, 80).astype(float)
    kept = weight > 0
    model = TopKSVC(3, "entropy", C=0.5, tol=tol).fit(form(X), y, weight)
    assert model.status_ == Status.CONVERGED and model.dual_gap_ <= tol and model.coef_.dtype == dtype
    wide = X.astype(np.float64)
    value = float(objective(model.coef_.astype(np.float64), wide, y, 3, 0.5 * weight))
    assert model.objective_ == pytest.approx(value, rel=1e-9 if dtype == np.float64 else 1e-6)
    expected = minimum(wide[kept], y[kept], 5, 3, 0.5 * weight[kept])
    assert expected * (1 - 1e-7) <= value <= expected * (1 + 1.1 * tol)
