"""topk_sdca: the optimum against a QP solver and LinearSVC, the native epochs against the jnp ones."""

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
from sklearn.svm import LinearSVC
from topk_helpers import data, features, losses, margins, objective, optimum

from xmcjax import TopKSVC, linops
from xmcjax.native import available
from xmcjax.solvers import Status, instance_dual, topk_sdca

needs_native = pytest.mark.skipif(not available(), reason="no native kernels")
BACKENDS = ["jnp", "native"] if available() else ["jnp"]
SETS = ["topk_alpha", "topk_beta", "box"]
KINDS = ["dense", "csr", "gram"]
TIGHT = topk_sdca.HParams(tol=1e-9, max_epochs=100_000, block=16, sweeps=2)


def make(X, y, set_name, *, C=1.0, k=1, kind="dense", backend="auto"):
    op = features(X, kind, "auto" if backend == "auto" else backend)
    bound = np.asarray(C, float)
    return instance_dual.problem(
        op, y, set_name=set_name, bound=bound, k=k, backend="auto" if kind == "csr" else backend
    )


step = jax.jit(topk_sdca.step)


def solve(problem, hp=TIGHT, seed=0, **how):
    return topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(seed), **how))


# --- the optimum --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("set_name", "k"),
    [("topk_alpha", 1), ("topk_alpha", 2), ("topk_alpha", 3), ("topk_beta", 2), ("topk_beta", 3), ("box", 1)],
)
def test_the_optimum_is_that_of_a_qp_solver(set_name, k):
    X, y = data(n=14, d=3, m=4)
    best = optimum(X, y, 0.8, set_name, k, 4)
    state = solve(make(X, y, set_name, C=0.8, k=k))
    assert state.status[0] == Status.CONVERGED
    np.testing.assert_allclose(state.primal[0], best, rtol=1e-6)
    np.testing.assert_allclose(state.dual_objective[0], best, rtol=1e-6)
    if k == 1 and set_name == "topk_alpha":
        classifier = TopKSVC(C=0.8, tol=1e-9, max_iter=100_000).fit(X, y)
        print(f"TopKSVC(k=1) over the optimum of a QP solver, less 1: {classifier.objective_ / best - 1:.1e}")
        np.testing.assert_allclose(classifier.objective_, best, rtol=1e-6)
        np.testing.assert_allclose(objective(X, y, classifier.coef_, 0.8, set_name, k), best, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("variant", "k"), [("alpha", 1), ("alpha", 2), ("alpha", 4), ("beta", 3), ("beta", 4)]
)
def test_the_gap_closes_with_features_of_every_kind(variant, k, kind):
    X, y = data()
    problem = make(X, y, f"topk_{variant}", C=0.5, k=k, kind=kind)
    state = solve(problem, dataclasses.replace(TIGHT, tol=1e-7))
    assert state.status[0] == Status.CONVERGED
    a = topk_sdca.coefficients(problem, state)[0]
    W = a.T @ X
    if kind != "gram":
        np.testing.assert_allclose(topk_sdca.weights(problem, state)[0], W, atol=1e-10)
    value = objective(X, y, W, 0.5, f"topk_{variant}", k)
    np.testing.assert_allclose(state.primal[0], value, rtol=1e-10)
    x = np.maximum(-a, 0)
    np.testing.assert_allclose(state.dual_objective[0], x.sum() - (W**2).sum() / 2, rtol=1e-10)
    assert -1e-12 <= value - float(state.dual_objective[0]) <= 1.01e-7 * value
    np.testing.assert_allclose(W.sum(0), 0, atol=1e-10)  # Σ_c w_c = 0
    assert int(state.support[0]) == np.count_nonzero(x.sum(1))
    # the same lanes from another order
    other = solve(problem, dataclasses.replace(TIGHT, tol=1e-7), seed=1)
    np.testing.assert_allclose(other.primal[0], state.primal[0], rtol=1e-6)


def test_the_dual_variables_stay_in_their_set():
    X, y = data()
    for variant, k in (("alpha", 3), ("beta", 3)):
        problem = make(X, y, f"topk_{variant}", C=0.5, k=k)
        state = topk_sdca.init(problem, jax.random.key(0))
        for _ in range(4):
            state = step(problem, TIGHT, state)
            x = np.asarray(state.dual[0])
            total = x.sum(1, keepdims=True)
            assert x.min() >= 0 and total.max() <= 0.5 * (1 + 1e-12)
            assert np.all(x <= (total if variant == "alpha" else 0.5) / k * (1 + 1e-12))
            assert np.all(x[np.arange(len(y)), y] == 0)


def test_k_1_is_the_svm_of_crammer_and_singer():
    X, y = data(n=120, d=10, m=6, seed=2)
    svc = LinearSVC(
        multi_class="crammer_singer", fit_intercept=False, tol=1e-8, max_iter=200_000, random_state=0
    )
    svc.fit(X, y)
    reference = objective(X, y, svc.coef_, 1.0, "topk_alpha", 1)
    alpha, beta = (
        solve(make(X, y, f"topk_{variant}"), dataclasses.replace(TIGHT, tol=1e-6))
        for variant in ("alpha", "beta")
    )
    np.testing.assert_allclose(alpha.primal[0], reference, rtol=1e-4)
    np.testing.assert_allclose(beta.primal[0], alpha.primal[0], rtol=2e-6)


def test_a_row_of_zeros_takes_all_that_it_may():
    X, y = data()
    for set_name, k, kind, most in (
        ("topk_alpha", 2, "dense", 0.5),
        ("topk_beta", 3, "gram", 0.5),
        ("box", 1, "csr", 4 * 0.5),
    ):
        problem = make(X, y, set_name, C=0.5, k=k, kind=kind)
        state = step(problem, TIGHT, topk_sdca.init(problem, jax.random.key(0)))
        np.testing.assert_allclose(np.asarray(state.dual[0, 3]).sum(), most)
    # nothing but zeros: W = 0, and every instance has the loss of h = 1
    problem = make(np.zeros((6, 2)), np.array([0, 1, 2, 0, 1, 2]), "topk_alpha", k=2)
    state = solve(problem)
    assert state.status[0] == Status.CONVERGED and state.primal[0] == 6 and not np.any(state.weights)


# --- native and jnp -----------------------------------------------------------------------------


@needs_native
@pytest.mark.parametrize(
    ("set_name", "k", "kind"),
    [
        ("topk_alpha", 2, "dense"),
        ("topk_beta", 3, "gram"),
        ("box", 1, "csr"),
    ],
)
def test_native_epochs_are_those_of_jax(set_name, k, kind):
    X, y = data(n=45)
    C = 0.5 * (np.arange(45) % 7 != 2)[None, :]  # some rows are left out
    hp = topk_sdca.HParams(block=16, sweeps=2) if kind != "csr" else topk_sdca.HParams(block=1, sweeps=1)
    ours, twin = (make(X, y, set_name, C=C, k=k, kind=kind, backend=backend) for backend in ("native", "jnp"))
    assert ours.rows is None and twin.rows is not None
    a, b = (topk_sdca.init(p, jax.random.key(7)) for p in (ours, twin))
    for _ in range(5):
        a, b = step(ours, hp, a), step(twin, hp, b)
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-12)
        np.testing.assert_allclose(a.dual, b.dual, atol=1e-12)
    for new, old in zip(topk_sdca.objectives(ours, hp, a), topk_sdca.objectives(twin, hp, b), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12)
    assert not np.any(np.asarray(a.dual)[0, np.arange(45) % 7 == 2])


@needs_native
@pytest.mark.parametrize(("m", "dtype"), [(3, np.float64), (17, np.float32), (70, np.float32)])
def test_blocks_do_not_change_the_iterates(dtype, m):
    X, y = data(n=90, d=40, m=m, seed=3, dtype=dtype)
    states = []
    for block in (1, 13):
        problem = make(X, y, "topk_alpha", C=2.0, k=2)
        hp = topk_sdca.HParams(block=block, sweeps=1)
        state = topk_sdca.init(problem, jax.random.key(0))
        for _ in range(3):
            state = step(problem, hp, state)
        states.append(np.asarray(state.weights))
        assert states[0].dtype == dtype
    eps = np.finfo(dtype).eps
    for other in states[1:]:
        np.testing.assert_allclose(other, states[0], atol=2e3 * eps)


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


@needs_native
def test_lanes_are_single_problems():
    X, y = data()
    folds = np.arange(len(y)) % 4 != np.array([[1], [2], [3]])
    ks, Cs = [2, 1, 2], [0.3, 1.0, 2.0]
    hp = topk_sdca.HParams(tol=1e-3, block=16, sweeps=2, threads=2)
    op = linops.make(X)

    def end(k, C, mask):
        problem = topk_sdca.problem(op, y, k, C, mask=mask)
        state = topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(3)))
        return topk_sdca.weights(problem, state), state

    together, state = end(ks, Cs, folds)
    for lane in range(3):
        alone, single = end(ks[lane], Cs[lane], folds[lane])
        np.testing.assert_array_equal(alone[0], together[lane])
        assert single.epochs[0] == state.epochs[lane] and single.checks[0] == state.checks[lane]
        assert single.primal[0] == state.primal[lane]
        inside = folds[lane]
        value = objective(X[inside], y[inside], together[lane], Cs[lane], "topk_alpha", ks[lane])
        np.testing.assert_allclose(state.primal[lane], value, rtol=1e-10)
    assert len(set(np.asarray(state.epochs).tolist())) > 1  # they did not all end together


@needs_native
def test_lanes_of_jax_are_the_native_ones():
    X, y = data(n=20)
    hp = topk_sdca.HParams(tol=0.03, max_epochs=50, block=8, sweeps=1)
    ends = []
    for backend in ("native", "jnp"):
        problem = topk_sdca.problem(linops.make(X), y, [2, 1, 2], [0.3, 1.0, 2.0], backend=backend)
        ends.append(topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(3))))
    assert len(set(np.asarray(ends[0].epochs).tolist())) > 1
    for name in ("weights", "dual", "primal", "gap", "epochs", "status"):
        np.testing.assert_allclose(getattr(ends[0], name), getattr(ends[1], name), atol=1e-9)


# --- slots --------------------------------------------------------------------------------------


@needs_native
@pytest.mark.parametrize("kind", ["csr", "dense"])
def test_slots_are_added_where_they_run_out(kind):
    X, y = data(n=60, d=12, m=12)
    problem = make(X, y, "topk_beta", C=1.0, k=2, kind=kind)
    hp = dataclasses.replace(TIGHT, tol=1e-4)
    whole, few = solve(problem, hp), solve(problem, hp, slots=2)
    assert few.status[0] == Status.CONVERGED
    np.testing.assert_allclose(few.primal[0], whole.primal[0], rtol=2e-4)
    assert 2 < few.index.shape[2] <= 11 and few.dual.shape == few.index.shape
    a = topk_sdca.coefficients(problem, few)[0]
    np.testing.assert_allclose(a.T @ X, topk_sdca.weights(problem, few)[0], atol=1e-10)
    np.testing.assert_allclose(a.sum(1), 0, atol=1e-12)


@needs_native
def test_slots_that_suffice_change_nothing():
    X, y = data(n=60, d=12, m=10)
    problem = make(X, y, "topk_alpha", C=1.0, k=2, kind="csr")
    whole, slots = (solve(problem, dataclasses.replace(TIGHT, tol=1e-5), slots=s) for s in (0, 9))
    np.testing.assert_array_equal(whole.weights, slots.weights)
    np.testing.assert_array_equal(
        topk_sdca.coefficients(problem, whole), topk_sdca.coefficients(problem, slots)
    )


def test_slots_are_refused_where_there_are_none():
    X, y = data()
    with pytest.raises(ValueError, match="slots=0"):
        topk_sdca.init(make(X, y, "topk_alpha", backend="jnp"), jax.random.key(0), slots=4)
    if available():
        with pytest.raises(ValueError, match="at least k = 3 slots, got 2"):
            topk_sdca.init(make(X, y, "topk_alpha", k=3), jax.random.key(0), slots=2)


# --- the state ----------------------------------------------------------------------------------


def test_the_gap_is_worked_out_rarely_and_kept():
    X, y = data(n=200, d=10, m=6, seed=4)
    problem = make(X, y, "topk_alpha", C=3.0, k=2)
    state = solve(problem, topk_sdca.HParams(tol=1e-5, max_epochs=20_000))
    epochs, checks = int(state.epochs[0]), int(state.checks[0])
    assert state.status[0] == Status.CONVERGED and epochs > 20
    assert checks <= 1 + epochs / instance_dual.EPOCHS_PER_CHECK
    history = np.asarray(state.history[0])
    assert np.all(np.isnan(history[checks:])) and np.all(np.diff(history[:checks, 0]) > 0)
    assert np.all(np.diff(history[:checks, 2]) > 0)  # dual ascent
    np.testing.assert_array_equal(history[checks - 1], [epochs, state.primal[0], state.dual_objective[0]])
    np.testing.assert_allclose(state.gap[0], state.primal[0] - state.dual_objective[0], rtol=1e-6, atol=1e-12)
    # the estimate of the last epoch is about the gap
    assert 0.3 < float(state.estimate[0] / (state.gap[0] / state.primal[0])) < 3


def test_max_epochs_and_the_key():
    X, y = data()
    problem = make(X, y, "topk_alpha", k=2)
    hp = topk_sdca.HParams(tol=1e-12, max_epochs=3)
    a, b, c = solve(problem, hp), solve(problem, hp), solve(problem, hp, seed=1)
    assert a.status[0] == Status.MAX_STEPS and a.epochs[0] == 3 and np.isfinite(a.gap[0])
    np.testing.assert_array_equal(a.weights, b.weights)
    assert np.any(np.asarray(a.weights) != c.weights)


def test_float32():
    with jax.enable_x64(False):
        X, y = data(dtype=np.float32)
        problem = make(X, y, "topk_beta", C=0.5, k=2)
        state = solve(problem, topk_sdca.HParams(tol=1e-5, block=16))
        assert state.status[0] == Status.CONVERGED
        assert {a.dtype for a in (state.weights, state.dual, state.gap, state.history)} == {
            jnp.dtype(np.float32)
        }
        W = topk_sdca.weights(problem, state)[0]
        np.testing.assert_allclose(state.primal[0], objective(X, y, W, 0.5, "topk_beta", 2), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_keeps_shapes_and_dtypes(dtype):
    X, y = data(dtype=dtype)
    for backend in BACKENDS:
        problem = make(X, y, "topk_alpha", k=2, backend=backend)
        state = jax.eval_shape(lambda key, p=problem: topk_sdca.init(p, key), jax.random.key(0))
        after = jax.eval_shape(topk_sdca.step, problem, topk_sdca.HParams(), state)
        assert [(a.shape, a.dtype) for a in after] == [(b.shape, b.dtype) for b in state]


def test_long_rows_converge_in_float32():
    """Dual variables far below their bound: changes of 1e-4 of their size must not count as rounding."""
    rng = np.random.default_rng(0)
    X, y = (10 * rng.normal(size=(60, 20))).astype(np.float32), rng.integers(0, 8, 60)
    with jax.enable_x64(False):
        state = solve(make(X, y, "topk_alpha", k=3), topk_sdca.HParams(max_epochs=500))
    assert state.status[0] == Status.CONVERGED
    assert np.max(state.dual) < 0.02 / 3


def test_large_and_small_scales():
    X, y = data()
    reference = solve(make(X, y, "topk_alpha", C=1.0, k=2), dataclasses.replace(TIGHT, tol=1e-6))
    for scale in (1e-3, 1e3):
        state = solve(
            make(X * scale, y, "topk_alpha", C=scale**-2, k=2), dataclasses.replace(TIGHT, tol=1e-6)
        )
        np.testing.assert_allclose(state.primal[0] * scale**2, reference.primal[0], rtol=2e-6)


def test_numbers_cost_no_compilation():
    X, y = data()
    op = linops.make(X)
    for C, tol in ((1.0, 1e-2), (0.1, 1e-3), (3.0, 1e-1)):
        problem = topk_sdca.problem(op, y, 2, C)
        state = topk_sdca.run(problem, topk_sdca.HParams(tol=tol), topk_sdca.init(problem, jax.random.key(0)))
        assert state.status[0] == Status.CONVERGED
        if C == 1.0:
            compiled = instance_dual.advance.__wrapped__._cache_size()
    assert instance_dual.advance.__wrapped__._cache_size() == compiled


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(k=0), ValueError, "k from 1 to 4, the number of classes less one, got 0"),
        (dict(k=5), ValueError, "k from 1 to 4, the number of classes less one, got 5"),
        (dict(k=1.5), TypeError, "k as whole numbers, got float64"),
        (dict(variant="gamma"), ValueError, "variant: expected one of alpha, beta, got 'gamma'"),
        (dict(C=0.0), ValueError, "C above 0"),
        (dict(C=np.inf), ValueError, "C above 0"),
        (dict(C=[1.0, 2.0], k=[1, 2, 3]), ValueError, "same lanes, got 2 and 3"),
        (dict(C=[[1.0]]), ValueError, r"a number or \[lanes\]"),
        (dict(mask=np.ones(7, bool)), ValueError, r"mask \[40\] or \[lanes, 40\], got \[7\]"),
        (dict(mask=np.arange(40)), TypeError, "boolean mask, got int64"),
        (
            dict(mask=np.ones((2, 40), bool), C=[1.0, 2.0, 3.0]),
            ValueError,
            "C and mask for the same lanes, got 3 and 2",
        ),
        (dict(C=[]), ValueError, "same lanes, got 0 and 1"),
        (dict(C=1e-320), ValueError, r"bounds of 0 or from 2.23e-308 .* range of float64, got 1e-320"),
        (dict(classes=5.7), TypeError, "number of classes as a whole number, got 5.7"),
        (dict(classes=3), ValueError, "classes from 0 to 2, found 3 for row 3"),
        (dict(y=[[1, 2], [3]]), ValueError, "^y: expected rows of one length, found a ragged list"),
        (dict(k=[[1, 2], [3]]), ValueError, "^k: expected rows of one length, found a ragged list"),
        (dict(mask=[[True], [True, False]]), ValueError, "^mask: expected rows of one length"),
        (dict(y=np.zeros(40)), TypeError, "classes as whole numbers, got float64"),
        (dict(y=np.zeros(40, int)), ValueError, "at least two classes, got 1"),
        (dict(y=np.zeros(39, int)), ValueError, r"class for each of 40 rows, got \[39\]"),
        (dict(y=np.full(40, -1), classes=4), ValueError, "found -1 for row 0"),
        (
            dict(X=np.full((40, 2), 1e200)),
            ValueError,
            "squared norm is a finite float64, which that of row 0 is not",
        ),
        (dict(backend="gpu"), ValueError, "backend of auto, native, jnp, got 'gpu'"),
    ],
)
def test_bad_input(change, error, message):
    X, y = data()
    op = linops.make(change.pop("X", X))
    with pytest.raises(error, match=message):
        topk_sdca.problem(op, change.pop("y", y), **change)


def test_bad_inner_products():
    X, y = data()
    with pytest.raises(ValueError, match=r"square matrix of inner products, got \[40, 7\]"):
        topk_sdca.problem(topk_sdca.Gram(jnp.asarray(X)), y)
    with pytest.raises(ValueError, match=r"square matrix of inner products, got \[40\]"):
        topk_sdca.problem(topk_sdca.Gram(jnp.ones(40)), y)
    with pytest.raises(TypeError, match="inner products of float32 or float64, got int64"):
        topk_sdca.problem(topk_sdca.Gram(jnp.eye(40, dtype=int)), y)
    problem = topk_sdca.problem(topk_sdca.Gram(jnp.asarray(X @ X.T)), y)
    with pytest.raises(ValueError, match="coefficients, but no weights"):
        topk_sdca.weights(problem, topk_sdca.init(problem, jax.random.key(0)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(block=0), "block as a whole number of at least 1, got 0"),
        (dict(block=2.5), "block as a whole number of at least 1, got 2.5"),
        (dict(sweeps=0), "sweeps as a whole number of at least 1, got 0"),
        (dict(threads=None), "threads as a whole number of at least 1, got None"),
        (dict(max_epochs=2**31), "max_epochs of at most 2147483647, got 2147483648"),
    ],
)
def test_bad_numbers_of_the_method(options, message):
    with pytest.raises(ValueError, match=message):
        topk_sdca.HParams(**options)


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
            W = topk_sdca.weights(problem, state)[lane].astype(float)
            value = (W**2).sum() / 2 + losses(margins(X, y, W), "topk_alpha", k).sum()
            np.testing.assert_allclose(state.primal[lane], value, rtol=1e-4)


def test_sparse_rows_are_dense_rows():
    X, y = data(n=80, d=20, m=8)
    dense = make(X, y, "topk_alpha", C=1.0, k=2)
    sparse = make(X, y, "topk_alpha", C=1.0, k=2, kind="csr")
    hp = topk_sdca.HParams(tol=1e-12, max_epochs=4, block=1, sweeps=1)
    a, b = solve(dense, hp), solve(sparse, hp)
    np.testing.assert_allclose(topk_sdca.weights(dense, a), topk_sdca.weights(sparse, b), atol=1e-11)
    assert sp.issparse(sparse.op.to_scipy())
