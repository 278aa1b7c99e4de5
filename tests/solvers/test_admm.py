"""The alternating direction method of multipliers with sparse features: systems, steps, optimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.internals import admm_sparse, admm_steps, canonical_csr, certified, search
from tests.support.problems import needs_native
from xmcjax.native import CentredAscent, Splitting
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md

pytestmark = needs_native

FORMS = ["by features", "by rows"]


def texts(n=60, d=80, m=19, dtype: type[np.floating] = np.float64, seed=0):
    """Short texts: a few words stand in many, most words in few, one in none."""
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(1, d)
    dense = np.zeros((n, d))
    for row in dense:
        row[rng.choice(d - 1, 5, replace=False, p=popular / popular.sum())] = rng.uniform(0.5, 1.5, 5)
    dense[3] = 0
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)]).astype(np.int32)
    return canonical_csr(sp.csr_array(dense.astype(dtype)), zeros=False), y


def dense_part(split, X, rho, form):
    """Of the system; by features its factor is made."""
    if form == "by rows":
        return np.eye(X.shape[0]) + rho * (X @ X.T).toarray()
    S = np.tril(split.factor(rho))
    return S + np.tril(S, -1).T


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-10), (np.float32, 2e-4)])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_is_that_of_the_formulas(form, dtype, atol, threads):
    X, y = texts(dtype=dtype)
    (n, d), m, C, rho, relaxed = X.shape, 19, 2.0, 0.3, 1.7
    A = np.random.default_rng(1).uniform(0, C, (n, m)) * (np.arange(m) != y[:, None])
    split = Splitting(X, y, m, "llw", C, threads=threads)
    split.by_rows() if form == "by rows" else split.eliminate(10**9)
    split.alpha = sp.csr_array(A)
    dense = X.toarray().astype(np.float64)

    def centred(V):
        return V - V.mean(axis=1, keepdims=True)

    V = centred(dense.T @ A)
    W = -V
    np.testing.assert_allclose(split.begin(), [np.sum(A**2), np.sum((dense @ W) ** 2)], rtol=1e-5)
    S = dense_part(split, X, rho, form)
    for _ in range(3):
        gains = (1 + dense @ W) * (np.arange(m) != y[:, None])
        new = np.clip(A + rho * gains, 0, C) * (np.arange(m) != y[:, None])
        O = centred(dense.T @ new)
        expected = [np.maximum(gains, 0).sum(), new.sum(), np.sum(W**2), np.sum(O**2), np.sum((new - A) ** 2)]
        np.testing.assert_allclose(
            split.look(rho, relaxed, True), expected, rtol=1e-3 if dtype == np.float32 else 1e-9
        )
        split.keep_weights()
        split.keep_alpha()
        np.testing.assert_allclose(split.weights, W, atol=atol * np.abs(W).max())
        np.testing.assert_allclose(split.alpha.toarray(), new, atol=atol * C)
        right = split.right.copy()
        solution = np.linalg.solve(S, right).astype(dtype)
        step, curved = split.move(rho, relaxed, solution)
        delta = np.linalg.solve(np.eye(d) + rho * dense.T @ dense, W + 2 * O - V)
        W, A, V = W - relaxed * delta, A + relaxed * (new - A), V + relaxed * (O - V)
        np.testing.assert_allclose(step, np.sum(delta**2), rtol=1e-3 if dtype == np.float32 else 1e-8)
        if form == "by rows":
            np.testing.assert_allclose(solution, dense @ delta, atol=10 * atol * np.abs(dense @ delta).max())
        else:
            moved = step + rho * np.sum((dense @ delta) ** 2)
            np.testing.assert_allclose(curved + np.vdot(right, solution), moved, rtol=1e-3)


def test_the_order_leaves_little_to_the_dense_part():
    X, y = texts(n=400, d=600, m=5)
    split = Splitting(X, y, 5, "llw", 1.0)
    entries = split.eliminate(10**9)
    assert split.size < 250 and entries + split.size**2 / 2 < 0.5 * 600**2 / 2
    # as many entries as are allowed, and the rest is dense
    few = split.eliminate(100)
    assert 100 <= few < 200 and split.size > 300


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("C", [1e-3, 0.3, 10.0, 300.0])
def test_the_optimum_is_that_of_an_interior_point_method(form, C):
    X, y = texts(n=24, d=12, m=4)
    split = Splitting(X, y, 4, "llw", C)
    system = admm_sparse.System(form == "by rows", 24, 0)
    split.by_rows() if system.by_rows else split.eliminate(10**9)
    split.alpha = sp.csr_array((24, 4))
    found = admm_steps(admm_sparse.Sparse(split, X, C, system), C, 1e-5, 20_000)
    assert found.gap <= 1e-5
    least = dual_references.bound(X.toarray(), y, 4, "llw", 1, C)
    assert dual_references.objective(found.W, X.toarray(), y, "llw", 1, C) == pytest.approx(least, rel=2e-5)
    proof = certified(X, y, found.alpha, "llw", C, 1e-5, found.W)
    np.testing.assert_allclose([proof.primal, proof.dual], least, rtol=2e-5)


def test_a_system_that_would_take_too_much_is_not_made(monkeypatch):
    X, y = texts(n=200, d=300, m=5)
    split = Splitting(X, y, 5, "llw", 1.0)
    system = admm_sparse.system(split, X)
    assert system is not None and not system.by_rows
    monkeypatch.setattr(admm_sparse, "_BYTES", 1000)
    assert admm_sparse.system(split, X) is None
    # and ascent goes on
    found = md.run(X, y, formulation="llw", C=1.0)
    assert found.status == Status.CONVERGED


def test_long_texts_go_by_rows():
    rng = np.random.default_rng(0)
    X = canonical_csr(sp.random_array((40, 3000), density=0.1, rng=rng, format="csr"), zeros=False)
    split = Splitting(X, (np.arange(40) % 4).astype(np.int32), 4, "llw", 1.0)
    system = admm_sparse.system(split, X)
    assert system is not None and system.by_rows and split.size == 40


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_texts_at_a_large_C_are_solved_in_few_passes(dtype):
    X, y = texts(n=600, d=900, m=30, dtype=dtype, seed=2)
    found = md.run(X, y, formulation="llw", C=1e4, max_epochs=1000)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    assert found.W.dtype == dtype
    proof = certified(X, y, found.alpha, "llw", 1e4, 1e-3, found.W.astype(np.float64))
    assert proof.gap <= 1e-3


def long_texts(n, d, m, density, seed=0):
    """Rows of length 1 of many words, with more features than rows."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=density, rng=rng, format="csr")
    X = sp.csr_array(sp.diags_array(1 / np.sqrt(X.multiply(X).sum(axis=1))) @ X)
    return canonical_csr(X.astype(np.float32), zeros=False), (np.arange(n) % m).astype(np.int32)


def test_where_classes_can_be_separated_longer_weights_end_the_search():
    X, y = long_texts(n=600, d=3000, m=8, density=0.03, seed=1)
    found = md.run(X, y, formulation="llw", C=1e4, max_epochs=50)  # 101 without
    assert found.status == Status.CONVERGED
    proof = certified(X, y, found.alpha, "llw", 1e4, 1e-3, found.W.astype(np.float64))
    assert proof.gap <= 1e-3


def test_longer_weights_have_the_objective_that_is_told():
    X, y = long_texts(n=120, d=400, m=6, density=0.05)
    C, tol = 100.0, 1e-2
    plain, longer = (CentredAscent(X, y, 6, "llw", C) for _ in range(2))
    longest = search.Longer(longer, X, y, "llw", C, tol)
    shorter = 0
    for _ in range(30):
        told, without = longest.assess(0.01), plain.assess(0.01)
        assert told.dual == without.dual and told.primal <= without.primal
        if without.gap <= tol:
            break
        shorter += told.primal < 0.999 * without.primal
        least = dual_references.objective(longest.W, X.toarray(), y, "llw", 1, C)
        assert told.primal == pytest.approx(min(least, without.primal), rel=1e-4)
        longest.sweep(0.01, True)
        plain.sweep(0.01, True)
    assert shorter > 3 and longest.assess(0.01).gap <= without.gap + 1e-12


def stepping(start, tol, ascent=False, least=None):
    """Steps from some dual variables, in units of C = 1e4, and the rhos that they used."""
    X, y = texts(n=1500, d=300, m=12, dtype=np.float32, seed=2)
    C, rhos = 1e4, []
    split = Splitting(X, y, 12, "llw", C)
    system = admm_sparse.system(split, X)
    split.alpha = sp.csr_array(C * start * (np.arange(12) != y[:, None]))
    ascending = (lambda: CentredAscent(X, y, 12, "llw", C)) if ascent else None
    steps = admm_sparse.Sparse(split, X, C, system, ascending)
    if least is not None:
        steps.least = least
    use = steps.use

    def noted(rho):
        rhos.append(rho)
        use(rho)

    steps.use = noted
    found = admm_steps(steps, C, tol, 20_000)
    assert found.gap <= tol
    assert certified(X, y, found.alpha, "llw", C, tol, found.W).gap <= 1.01 * tol
    return found.steps, rhos


def test_from_far_away_rho_begins_at_a_part_of_C():
    start = np.random.default_rng(0).uniform(size=(1500, 12))
    near, far = stepping(start, 0.1), stepping(start, 0.1, least=0.0)
    assert near[1][0] == 100.0 > 10 * far[1][0]


def test_sweeps_of_ascent_end_many_steps():
    alone, found = (stepping(np.zeros((1500, 12)), 1e-3, ascent)[0] for ascent in (False, True))
    assert alone > 400 and found < 0.95 * alone


def test_threads_change_no_bit():
    X, y = texts(n=200, d=300, m=70)
    one, two = (md.run(X, y, formulation="llw", C=1e3, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.W, two.W)
    assert one.epochs > 25 and one.status == Status.CONVERGED  # passes of ascent, and steps after them


def test_features_so_large_that_rounding_leaves_no_factor_are_no_error():
    X, y = np.full((30, 5), 1e30), np.arange(30) % 3
    for features in (X, sp.csr_array(X)):
        found = md.run(features, y, formulation="llw", C=1.0, tol=1e-3, max_epochs=50)
        assert found.status in (Status.MAX_STEPS, Status.STALLED, Status.NONFINITE)
