"""Dual ascent over instances: the optimum against an interior point method, native epochs against JAX's."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.problems import needs_native, svm_problem
from tests.support.topk import SIZE, STEP, TIGHT, features, make, objective, solve
from xmcjax import linops
from xmcjax.native import available
from xmcjax.solvers import Status, instance_dual, topk_sdca


@needs_native
@pytest.mark.parametrize("variant", ["alpha", "entropy"])
@pytest.mark.parametrize("kind", ["dense", "csr", "gram"])
def test_nothing_is_compiled_for_a_number_of_rows(kind, variant, compilations):
    X, y = svm_problem(n=63, d=30, m=5, dtype=np.float32)
    X = np.where(np.abs(X) > 1.3, X, 0)

    def solved(n):
        given = (
            features(X[:n], "gram") if kind == "gram" else X[:n] if kind == "dense" else sp.csr_array(X[:n])
        )
        found = topk_sdca.solve(given, y[:n], 2, 1.0, variant=variant, max_epochs=30)
        assert found.W.dtype == np.float32 and found.epochs > 0

    solved(61)
    programs = compilations(lambda: [solved(n) for n in (60, 62, 63)])
    # features, and what the test makes of them, are put on the device
    others = [one for one in programs if "jit(stage)" not in one and "jit(convert" not in one]
    assert others == []


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_numbers_of_rows_share_the_programs_of_plain_jax(kind, compilations, monkeypatch):
    """Rows behind count in no figure of the solution, and smoothed losses have no program of their own."""
    X, y = svm_problem(n=63, d=30, m=5, dtype=np.float32)
    X = np.where(np.abs(X) > 1.3, X, 0)
    weight = np.arange(63) % 5 / 4.0  # rows without one count as little as those behind
    here, seen = topk_sdca.solve(kind(X[:61]), y[:61], 2, gamma=0.5, weight=weight[:61], tol=1e-5), []
    monkeypatch.setattr("xmcjax.linops.native_ready", lambda: False)
    monkeypatch.setattr("xmcjax.solvers._instance_problem.native_ready", lambda: False)

    def solved(n, start=None):
        how = dict(gamma=0.5, weight=weight[:n], tol=1e-5, start=start, observe=seen.append)
        return topk_sdca.solve(kind(X[:n]), y[:n], 2, **how)

    def large(programs):
        return [one for one in programs if "jit(advance)" in one or "jit(_envelope)" in one]

    assert large(compilations(lambda: solved(62)))
    ended = []
    assert large(compilations(lambda: ended.append(solved(61)))) == []
    (one,) = ended
    assert one.status == Status.CONVERGED and one.alpha.shape == seen[-1].alpha().shape == (61, 5)
    assert one.primal == pytest.approx(here.primal, rel=2e-5)
    again = solved(61, one.alpha)
    assert again.alpha.shape == (61, 5) and again.epochs <= one.epochs


@needs_native
def test_a_run_takes_the_arrays_of_its_state():
    X, y = svm_problem(**SIZE)
    problem = make(X, y, "topk_alpha", k=2)
    state = topk_sdca.init(problem)
    end = topk_sdca.run(problem, TIGHT, state)
    assert state.dual.is_deleted() and isinstance(end.dual, jax.Array)
    assert Status(int(end.status[0])) == Status.CONVERGED
    again = topk_sdca.advance(problem, TIGHT, jax.tree.map(jnp.array, end), 3)
    assert again.epochs.tolist() == end.epochs.tolist()


@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_the_dual_variables_stay_in_their_set(variant):
    X, y = svm_problem(**SIZE)
    k, problem = 3, make(X, y, f"topk_{variant}", C=0.5, k=3)
    state = topk_sdca.init(problem, jax.random.key(0))
    for _ in range(4):
        state = STEP(problem, TIGHT, state)
        x = np.asarray(state.dual[0])
        total = x.sum(1, keepdims=True)
        assert x.min() >= 0 and total.max() <= 0.5 * (1 + 1e-12)
        assert np.all(x <= (total if variant == "alpha" else 0.5) / k * (1 + 1e-12))
        assert np.all(x[np.arange(len(y)), y] == 0)


def test_nothing_but_zeros():
    """W = 0, and every instance has the loss of h = 1."""
    state = solve(make(np.zeros((6, 2)), np.array([0, 1, 2, 0, 1, 2]), "topk_alpha", k=2))
    assert state.status[0] == Status.CONVERGED and state.primal[0] == 6 and not np.any(state.weights)


# --- native and JAX -----------------------------------------------------------------------------


# What a row's variables become is a matter of its set, its scores and its length alone: each
# kind of features has every set or most with some k, and without a smoothing, another program, one set.
SMOOTH = [0.0, 0.02, 3.0]  # lanes with and without
EPOCHS_OF = [
    *(("topk_alpha", k, SMOOTH, kind) for k, kind in (([1, 3], "dense"), (3, "csr"))),
    *(("topk_beta", k, SMOOTH, kind) for k, kind in (([2, 4], "dense"), (2, "csr"), (3, "gram"))),
    *(("box", 1, SMOOTH, kind) for kind in ("dense", "csr", "gram")),
    *(("topk_alpha", 2, 0.0, "dense"), ("topk_beta", 3, 0.0, "gram"), ("box", 1, 0.0, "csr")),
    *(("topk_entropy", k, 0.0, kind) for k, kind in (([1, 2], "dense"), (2, "csr"), (4, "gram"))),
]


@needs_native
@pytest.mark.parametrize(("set_name", "k", "gamma", "kind"), EPOCHS_OF)
def test_native_epochs_are_those_of_jax(set_name, k, gamma, kind):
    X, y = svm_problem(**SIZE)
    C = 0.5 * np.where(np.arange(40) % 7 != 2, 1 + np.arange(40) % 3, 0)[None, :]  # some rows are left out
    entropy = set_name == "topk_entropy"
    within = 1e-11 if entropy else 1e-12
    hp = topk_sdca.HParams(block=16, sweeps=2) if kind != "csr" else topk_sdca.HParams(block=1, sweeps=1)
    ks, gammas = (a.ravel() for a in np.meshgrid(k, gamma, indexing="ij"))  # a lane for each of both
    ours, twin = (
        make(X, y, set_name, ks, gammas, C=C, kind=kind, backend=backend) for backend in ("native", "jnp")
    )
    assert ours.rows is None and twin.rows is not None
    a, b = (topk_sdca.init(p, jax.random.key(7)) for p in (ours, twin))
    for _ in range(5):
        a, b = STEP(ours, hp, a), STEP(twin, hp, b)
        np.testing.assert_allclose(a.weights, b.weights, atol=within)
        np.testing.assert_allclose(a.dual, b.dual, atol=within)
        if entropy:
            np.testing.assert_allclose(a.estimate, b.estimate, rtol=1e-8, atol=1e-14)
    for new, old in zip(topk_sdca.objectives(ours, hp, a), topk_sdca.objectives(twin, hp, b), strict=True):
        np.testing.assert_allclose(new, old, rtol=10 * within, atol=1e-12)
    if set_name != "box":
        # what the visits found is an upper bound of the gap where there is none
        lanes = (gammas > 0) & (ks > 1)
        np.testing.assert_allclose(a.estimate[lanes], b.estimate[lanes], rtol=1e-8)
    x = np.asarray(a.dual)
    assert not np.any(x[:, np.arange(40) % 7 == 2])
    if entropy:  # of a row of zeros
        np.testing.assert_allclose(
            x[:, 3], np.tile(np.where(np.arange(5) == y[3], 0, C[0, 3] / 5), (len(ks), 1))
        )


@needs_native
@pytest.mark.parametrize(("m", "dtype"), [(3, np.float64), (17, np.float32), (70, np.float32)])
def test_blocks_do_not_change_the_iterates(dtype, m):
    X, y = svm_problem(n=90, d=40, m=m, seed=3, dtype=dtype)
    weights = []
    for block in (1, 13):
        problem, hp = make(X, y, "topk_alpha", C=2.0, k=2), topk_sdca.HParams(block=block, sweeps=1)
        state = topk_sdca.init(problem, jax.random.key(0))
        for _ in range(3):
            state = STEP(problem, hp, state)
        weights.append(np.asarray(state.weights))
    assert weights[0].dtype == dtype
    np.testing.assert_allclose(weights[1], weights[0], atol=2e3 * np.finfo(dtype).eps)


EPOCHS = """
import sys, jax, numpy as np
from xmcjax import linops
from xmcjax.solvers import topk_sdca
rng = np.random.default_rng(0)
X, y = rng.normal(size=(60, 33)).astype(np.float32), rng.integers(0, 19, 60)
step, out = jax.jit(topk_sdca.step), []
for k, variant in ((1, "alpha"), (4, "alpha"), (4, "beta")):
    p = topk_sdca.problem(linops.make(X), y, k, 0.1, variant=variant, classes=19)
    s = topk_sdca.init(p, jax.random.key(0))
    for _ in range(3):
        s = step(p, topk_sdca.HParams(block=16, sweeps=2), s)
    out.append(np.asarray(s.weights))
np.save(sys.argv[1], np.stack(out))
"""


@needs_native
def test_the_kernels_of_every_instruction_set_agree(tmp_path, monkeypatch):
    running = []
    for isa in ("baseline", "avx2"):
        environment = os.environ | {"XMCJAX_ISA": isa, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", EPOCHS, str(tmp_path / f"{isa}.npy")]
        running.append(subprocess.Popen(command, env=environment))
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "best.npy")])
    with jax.enable_x64(False):
        exec(EPOCHS, {})
    assert [process.wait(timeout=240) for process in running] == [0, 0]
    first, *others = (np.load(tmp_path / f"{isa}.npy") for isa in ("best", "baseline", "avx2"))
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-5)


# --- lanes --------------------------------------------------------------------------------------

KS, CS = [2, 1, 2], [0.3, 1.0, 2.0]


@needs_native
def test_lanes_are_single_problems():
    X, y = svm_problem(**SIZE)
    folds = np.arange(len(y)) % 4 != np.array([[1], [2], [3]])
    hp = topk_sdca.HParams(tol=1e-3, block=16, sweeps=2, threads=2)
    op = linops.make(X)

    def end(k, C, mask):
        problem = topk_sdca.problem(op, y, k, C, mask=mask)
        state = topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(3)))
        return topk_sdca.weights(problem, state), state

    together, state = end(KS, CS, folds)
    for lane, inside in enumerate(folds):
        alone, single = end(KS[lane], CS[lane], inside)
        np.testing.assert_array_equal(alone[0], together[lane])
        for name in ("epochs", "checks", "primal"):
            assert getattr(single, name)[0] == getattr(state, name)[lane]
        value = objective(together[lane], X[inside], y[inside], "topk_alpha", KS[lane], 0.0, CS[lane])
        np.testing.assert_allclose(state.primal[lane], value, rtol=1e-10)
    assert len(set(np.asarray(state.epochs).tolist())) > 1  # they did not all end together


@needs_native
def test_lanes_of_jax_are_the_native_ones():
    X, y = svm_problem(n=20, d=7, m=5)
    hp = topk_sdca.HParams(tol=0.03, max_epochs=50, block=8, sweeps=1)
    problems = [
        topk_sdca.problem(linops.make(X), y, KS, CS, backend=backend) for backend in ("native", "jnp")
    ]
    ours, twin = (topk_sdca.run(p, hp, topk_sdca.init(p, jax.random.key(3))) for p in problems)
    assert len(set(np.asarray(ours.epochs).tolist())) > 1
    for name in ("weights", "dual", "primal", "gap", "epochs", "status"):
        np.testing.assert_allclose(getattr(ours, name), getattr(twin, name), atol=1e-9)


# --- slots --------------------------------------------------------------------------------------


@needs_native
def test_slots_that_suffice_change_nothing():
    X, y = svm_problem(n=60, d=12, m=10)
    problem = make(X, y, "topk_alpha", C=1.0, k=2, kind="csr")
    whole, slots = (solve(problem, dataclasses.replace(TIGHT, tol=1e-5), slots=s) for s in (0, 9))
    np.testing.assert_array_equal(whole.weights, slots.weights)
    for of in (topk_sdca.weights, topk_sdca.coefficients):
        np.testing.assert_array_equal(of(problem, whole), of(problem, slots))


def test_slots_are_refused_where_there_are_none():
    X, y = svm_problem(**SIZE)
    with pytest.raises(ValueError, match="slots=0"):
        topk_sdca.init(make(X, y, "topk_alpha", backend="jnp"), jax.random.key(0), slots=4)
    if available():
        with pytest.raises(ValueError, match="at least k = 3 slots, got 2"):
            topk_sdca.init(make(X, y, "topk_alpha", k=3), jax.random.key(0), slots=2)


# --- the state ----------------------------------------------------------------------------------


def test_the_gap_is_worked_out_rarely_and_kept():
    X, y = svm_problem(n=200, d=10, m=6, seed=4)
    state = solve(make(X, y, "topk_alpha", C=3.0, k=2), topk_sdca.HParams(tol=1e-5, max_epochs=20_000))
    epochs, checks = int(state.epochs[0]), int(state.checks[0])
    assert state.status[0] == Status.CONVERGED and epochs > 20
    assert checks <= 1 + epochs / instance_dual.EPOCHS_PER_CHECK
    history = np.asarray(state.history[0])
    assert np.all(np.isposinf(history[checks:])) and np.all(np.diff(history[:checks, 0]) > 0)
    assert np.all(np.diff(history[:checks, 2]) > 0)  # dual ascent
    np.testing.assert_array_equal(history[checks - 1], [epochs, state.primal[0], state.dual_objective[0]])
    np.testing.assert_allclose(state.gap[0], state.primal[0] - state.dual_objective[0], rtol=1e-6, atol=1e-12)
    # the estimate of the last epoch is about the gap
    assert 0.3 < float(state.estimate[0] / (state.gap[0] / state.primal[0])) < 3


def test_the_order_comes_from_the_key():
    X, y = svm_problem(**SIZE)
    problem = make(X, y, "topk_alpha", k=2)
    hp = topk_sdca.HParams(tol=1e-12, max_epochs=3)
    a, b, c = solve(problem, hp), solve(problem, hp), solve(problem, hp, seed=1)
    np.testing.assert_array_equal(a.weights, b.weights)
    assert np.any(np.asarray(a.weights) != c.weights)
    assert a.epochs[0] == 3 and np.isfinite(a.gap[0])


def test_long_rows_converge_in_float32():
    """Dual variables far below their bound: changes of 1e-4 of their size must not count as rounding."""
    rng = np.random.default_rng(0)
    X, y = (10 * rng.normal(size=(60, 20))).astype(np.float32), rng.integers(0, 8, 60)
    with jax.enable_x64(False):
        state = solve(make(X, y, "topk_alpha", k=3), topk_sdca.HParams(max_epochs=500))
    assert state.status[0] == Status.CONVERGED
    assert np.max(state.dual) < 0.02 / 3


@pytest.mark.parametrize("kind", [sp.csr_array, np.asarray], ids=["sparse", "dense"])
def test_rounding_at_the_last_epoch_does_not_hide_the_end(kind):
    """Gains are 0 but for rounding, which C multiplies: only weights a little longer have a small gap."""
    rng, y = np.random.default_rng(3), np.arange(24) % 4
    X, C = rng.normal(size=(24, 40)).astype(np.float32), 1000 * rng.uniform(0.1, 3, 24)
    with jax.enable_x64(False):
        found = topk_sdca.solve(kind(X), y, 2, 1.0, weight=C, max_epochs=40)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    primal = objective(found.W.T, X, y, "topk_alpha", 2, 0.0, C)
    np.testing.assert_allclose(primal, found.primal, rtol=1e-6)
    assert primal <= dual_references.bound(X, y, 4, "alpha", 2, C) * (1 + 1e-3)


def test_large_and_small_scales():
    X, y = svm_problem(**SIZE)
    hp = dataclasses.replace(TIGHT, tol=1e-6)
    values = [
        solve(make(X * scale, y, "topk_alpha", C=scale**-2, k=2), hp).primal[0] * scale**2
        for scale in (1.0, 1e-3, 1e3)
    ]
    np.testing.assert_allclose(values, values[0], rtol=2e-6)


@needs_native
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("variant", ["alpha", "entropy"])
def test_a_tolerance_beyond_the_precision_is_its_largest(variant, kind):
    X, y = svm_problem(n=40, d=5, m=3, dtype=np.float32)
    for tol in (1e39, 1e308):
        found = topk_sdca.solve(sp.csr_array(X) if kind == "csr" else X, y, 2, 1.0, variant=variant, tol=tol)
        assert found.W.dtype == np.float32 and np.isfinite(found.W).all()


def test_inner_products_have_no_weights():
    X, y = svm_problem(**SIZE)
    problem = make(X, y, "topk_alpha", kind="gram")
    with pytest.raises(ValueError, match="coefficients, but no weights"):
        topk_sdca.weights(problem, topk_sdca.init(problem, jax.random.key(0)))


@pytest.mark.parametrize("gram", [False, True])
@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_an_ascent_that_is_ended_early_is_not_worse_than_no_weights(variant, gram):
    rng = np.random.default_rng(0)
    X, y = 5e3 + 1e3 * rng.normal(size=(40, 3)), np.arange(40) % 4
    features = instance_dual.Gram(jnp.asarray(X @ X.T)) if gram else X
    found = topk_sdca.solve(features, y, 2, C=1e4, variant=variant, max_epochs=1)
    assert found.status == Status.MAX_STEPS and np.any(found.W)
    assert found.primal <= (1 + 1e-3) * 1e4 * 40  # at W = 0 each loss is 1


# --- real data ----------------------------------------------------------------------------------


def test_silhouettes(data_folder):
    """A tenth of Caltech-101 Silhouettes, k = 1 and 5, to the gap of the paper's experiments."""
    import scipy.io

    folder = data_folder / "caltech101_silhouettes"
    stored = scipy.io.loadmat(folder / "caltech101_silhouettes_28.mat")
    X, y = stored["X"][::10].astype(np.float32), stored["Y"].ravel()[::10].astype(int) - 1
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    with jax.enable_x64(False):
        problem = topk_sdca.problem(linops.make(X), y, [1, 5], 1.0, classes=101)
        state = topk_sdca.run(problem, topk_sdca.HParams(), topk_sdca.init(problem, jax.random.key(0)))
        assert set(np.asarray(state.status)) == {Status.CONVERGED}
        for lane, k in enumerate((1, 5)):
            value = objective(topk_sdca.weights(problem, state)[lane], X, y, "topk_alpha", k, 0.0, 1.0)
            np.testing.assert_allclose(state.primal[lane], value, rtol=1e-4)


def test_sparse_rows_are_dense_rows():
    X, y = svm_problem(n=80, d=20, m=8)
    hp = topk_sdca.HParams(tol=1e-12, max_epochs=4, block=1, sweeps=1)
    dense, sparse = (make(X, y, "topk_alpha", C=1.0, k=2, kind=kind) for kind in ("dense", "csr"))
    weights = [topk_sdca.weights(problem, solve(problem, hp)) for problem in (dense, sparse)]
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-11)
    assert isinstance(sparse.op, linops.Csr) and sp.issparse(sparse.op.to_scipy())


@needs_native
@pytest.mark.parametrize(
    ("dtype", "kind"), [(np.int64, np.asarray), (bool, np.asarray), (np.uint8, sp.csr_array)]
)
def test_features_of_whole_numbers_are_those_of_float32(dtype, kind):
    rng = np.random.default_rng(0)
    X, y, told = rng.integers(0, 17, (200, 20)).astype(dtype), np.arange(200) % 4, []
    if kind is sp.csr_array:
        X[:, 1:] *= rng.random((200, 19)) < 0.15
    whole = topk_sdca.solve(kind(X), y, 2, observe=told.append)
    floating = topk_sdca.solve(kind(X.astype(np.float32)), y, 2)
    assert told[-1].method == "steps for all rows at once"  # which had certified whole weights
    assert whole.W.dtype == np.float32 and whole.status == Status.CONVERGED
    np.testing.assert_array_equal(whole.W, floating.W)
    assert (whole.gap, whole.epochs) == (floating.gap, floating.epochs)


@needs_native
def test_the_gap_is_that_of_the_features_that_are_given():
    """Without x64, float32 does not tell rows apart that lie far from 0."""
    rng = np.random.default_rng(0)
    X = 1e5 + rng.normal(size=(100, 10))
    y = np.argmax(X[:, :4], axis=1)
    with jax.enable_x64(False):
        found = topk_sdca.solve(X, y, 1)
    assert found.status == Status.CONVERGED
    primal = dual_references.objective(found.W, X, y, "alpha", 1, 1.0)
    assert found.primal == pytest.approx(primal, rel=1e-6)


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "jnp"])
def test_a_gap_far_below_0_is_no_end(backend):
    """Dual variables of a large C are outside of the dual set of a small one."""
    X, y = svm_problem(n=31, d=5, m=3)
    before, after = (make(X, y, "topk_beta", C=C, k=2, backend=backend) for C in (1.0, 0.05))
    state, hp = topk_sdca.init(before), topk_sdca.HParams(max_epochs=30)
    for _ in range(5):
        state = topk_sdca.step(before, topk_sdca.HParams(tol=0.0), state)
    assert backend == "jnp" or topk_sdca.step(after, hp, state).gap[0] < -0.1  # the twin looks later
    found = topk_sdca.run(after, hp, state)
    assert found.gap[0] >= -1e-9 or found.status[0] == Status.MAX_STEPS


@needs_native
@pytest.mark.parametrize(("variant", "kind"), [("alpha", np.asarray), ("beta", sp.csr_array)])
def test_features_far_from_0_go_to_the_solver_of_crammer_and_singer(variant, kind):
    rng = np.random.default_rng(0)
    y = np.arange(800) % 4
    X = 1e4 + rng.normal(size=(800, 6)) + 1.5 * np.eye(4, 6)[y]
    told = []
    # half of them: with twice as many the steps for all rows come to their end with some instruction sets
    options = dict(C=1000.0, variant=variant, max_epochs=300, observe=told.append)
    found = topk_sdca.solve(kind(X), y, **options)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    assert 150 <= found.epochs <= 300 and "; after 150 epochs coordinate ascent comes first" in found.reason
    assert told[-1].method == "Newton's method" and 150 < told[-1].passes <= found.epochs
    value = dual_references.objective(found.W, X, y, variant, 1, 1000.0)
    np.testing.assert_allclose(found.primal, value, rtol=1e-9)
