"""Dual ascent in the native library against its twins in plain JAX and an interior point method."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import InPlace, canonical_csr
from tests.support.memory import peak_of
from tests.support.problems import confusable, needs_native, svm_minimum, svm_problem
from xmcjax.native import (
    Ascent,
    CentredAscent,
    Gate,
    Proximal,
    SeparateAscent,
    aligned_zeros,
)
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md

pytestmark = needs_native
ALL = list(md.FORMULATIONS)
C = 0.7


def checked(X):
    return canonical_csr(sp.csr_array(X))


def point(kind, X, y, formulation, **options):
    made = kind.of_classes if kind is SeparateAscent else kind
    return made(checked(X), y.astype(np.int32), y.max() + 1, formulation, C, **options)


def some_alpha(y, m, formulation, seed=0):
    """Inside the dual set, some at its bounds."""
    rng = np.random.default_rng(seed)
    alpha = np.clip(rng.normal(size=(len(y), m)), 0, C)
    if not formulation.startswith("ovr"):
        alpha[np.arange(len(y)), y] = 0
    if formulation == "cs":
        alpha *= np.minimum(1, C / np.maximum(alpha.sum(1), 1e-9))[:, None]
    return alpha


# more classes than fill a vector, so that there are several panels
WIDE = dict(n=40, d=5, m=19)


SEPARATE = ("ovr", "ovr_squared")
KINDS = [(Ascent, "ww"), (Ascent, "cs"), (Ascent, "llw"), (CentredAscent, "llw")]
KINDS += [*((SeparateAscent, name) for name in SEPARATE), *((Proximal, name) for name in ALL)]


def assessed(one):
    return one.advance(1e-9, 0).found if isinstance(one, SeparateAscent) else one.assess(1e-9)


@pytest.mark.parametrize(("kind", "formulation"), KINDS)
def test_alpha_comes_back_and_its_assessment_is_the_certificate_of_plain_jax(formulation, kind):
    X, y = svm_problem(**WIDE)
    problem = md.multiclass_problem(X, y, formulation=formulation, C=C)
    alpha, filled = some_alpha(y, 19, formulation), X.any(axis=1)
    alpha[~filled] = 0
    ours = point(kind, X, y, formulation)
    ours.alpha = sp.csr_array(alpha)
    np.testing.assert_allclose(ours.weights, md.weights(problem, jnp.asarray(alpha)), atol=1e-12)
    back = ours.alpha.toarray()
    np.testing.assert_allclose(back[filled], alpha[filled], atol=1e-12 if kind is Proximal else 0)
    if kind is Proximal:
        return
    assert back[~filled].any()  # a row of zeros has its variables at the bound
    found = assessed(ours)
    theirs = md.certificate(problem, ours.weights, jnp.asarray(ours.alpha.toarray()))
    np.testing.assert_allclose([found.primal, found.dual], [theirs.primal, theirs.dual], rtol=1e-10)
    np.testing.assert_allclose(found.violation, theirs.violation.max(), rtol=1e-10)


@pytest.mark.parametrize(("kind", "formulation"), KINDS)
@pytest.mark.parametrize("size", [{}, WIDE], ids=["one panel", "three panels"])
def test_sweeps_and_proximal_steps_reach_the_optimum(kind, formulation, size):
    X, y = svm_problem(**size)
    ours = point(kind, X, y, formulation)
    ours.alpha = sp.csr_array((len(y), y.max() + 1))
    before = -np.inf
    for _ in range(3000):
        if isinstance(ours, Proximal):
            found = ours.step(1e-8)
        elif isinstance(ours, SeparateAscent):
            found = ours.advance(1e-9, 20).found
        else:
            for _ in range(20):
                ours.sweep(1e-9)
            found = ours.assess(1e-9)
        assert found.dual >= before - 1e-9
        before = found.dual
        if found.violation < 1e-8:
            break
    least = svm_minimum(formulation, C, **size)
    np.testing.assert_allclose([found.primal, found.dual], least, rtol=1e-7)
    assert not isinstance(ours, Proximal) or 0 < ours.newton_steps < 200


@pytest.mark.parametrize("formulation", ["ww", "llw"])
def test_the_seed_alone_decides(formulation):
    X, y = svm_problem(**WIDE)

    def solve(**options):
        return md.run(X, y, formulation=formulation, C=C, tol=1e-3, max_epochs=6, **options)

    once = solve()
    np.testing.assert_array_equal(once.W, solve().W)
    assert np.abs(once.W - solve(seed=1).W).max() > 1e-9
    # the numbers of JAX's settings do not matter to it
    with jax.enable_x64(False):
        np.testing.assert_array_equal(once.W, solve().W)


def test_threads():
    # enough classes for four bundles of whole panels, and enough instances for threads to pay
    rng = np.random.default_rng(1)
    y = np.arange(1200) % 80
    X = rng.normal(size=(80, 40))[y] + 0.5 * rng.normal(size=(1200, 40))
    for formulation in ("ww", "ovr"):
        # by ascent alone: what follows it has weights of its own
        C = {"ww": 0.1, "ovr": 0.01}[formulation]
        options = dict(formulation=formulation, C=C, tol=1e-3, max_epochs=200)
        one = md.run(X, y, **options)
        two, again = (md.run(X, y, threads=2, **options) for _ in range(2))
        np.testing.assert_array_equal(two.W, again.W)
        if formulation == "ww":
            assert np.abs(one.W - two.W).max() > 0  # bundles play in another order
            assert two.status == Status.CONVERGED and two.gap < 0.01
            assert abs(one.primal - two.primal) < 0.01 * one.primal
        else:
            np.testing.assert_array_equal(one.W, two.W)
        # the numbers are those of W and α
        problem = md.multiclass_problem(X, y, formulation=formulation, C=C)
        alpha = jnp.asarray(two.alpha.toarray())
        np.testing.assert_allclose(md.weights(problem, alpha), two.W, atol=1e-9)
        np.testing.assert_allclose(md.certificate(problem, two.W, alpha).dual, two.dual, rtol=1e-9)


@pytest.mark.parametrize("shrinking", [True, False])
def test_threads_of_lee_lin_wahba(shrinking):
    # threads share the classes of an instance: enough of them for two
    rng = np.random.default_rng(2)
    y = rng.permutation(np.concatenate([np.arange(800), rng.integers(0, 800, 400)]))
    X = rng.normal(size=(800, 12))[y] + 0.5 * rng.normal(size=(1200, 12))
    options = dict(formulation="llw", C=1.0, tol=1e-2, max_epochs=4, shrinking=shrinking)
    one, two = (md.run(X, y, threads=threads, **options) for threads in (1, 2))
    np.testing.assert_array_equal(one.W, two.W)
    assert one.primal == two.primal


def ten_clusters(dtype):
    rng = np.random.default_rng(4)
    y = (np.arange(300) % 10).astype(np.int32)
    return checked((rng.normal(size=(10, 30))[y] + rng.normal(size=(300, 30))).astype(dtype)), y


def gap_after(one, sweeps, forgets=False):
    one.assess(1e-6)
    for _ in range(sweeps):
        one.sweep(1e-6)
        if forgets:  # variables that are set have no direction
            one.alpha = one.alpha
    return one.assess(1e-6).gap


def test_lee_lin_wahba_with_a_large_C():
    # the mean stays exact: dual variables that move together need no sweep for each unit of C
    X = checked(sp.random_array((200, 100), density=0.05, rng=np.random.default_rng(3), format="csr"))
    y = (np.arange(200) % 19).astype(np.int32)
    centred, plain = (gap_after(kind(X, y, 19, "llw", 30.0), 20) for kind in (CentredAscent, Ascent))
    assert centred < 0.2 * plain


def test_sweeps_of_lee_lin_wahba_go_on_in_their_direction():
    X, y = ten_clusters(np.float64)
    on, anew = (gap_after(CentredAscent(X, y, 10, "llw", 10.0), 100, forgets) for forgets in (False, True))
    assert on < 0.2 * anew


def test_weights_of_lee_lin_wahba_follow_from_alpha_after_many_changes():
    # in float32 the changes of 300 sweeps alone leave W off by 3e-3
    X, y = ten_clusters(np.float32)
    one = CentredAscent(X, y, 10, "llw", 1000.0)
    for _ in range(300):
        one.sweep(1e-6)
    one.assess(1e-6)
    W = -X.T.astype(np.float64) @ one.alpha.toarray()
    W -= W.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(one.weights, W, atol=1e-6 * np.abs(W).max())


def test_few_passes_where_most_variables_end_at_their_bound():
    # lists grow as fast as their variables reach C
    rng = np.random.default_rng(5)
    y = (np.arange(600) % 300).astype(np.int32)
    X = checked(rng.normal(size=(300, 20))[y] + rng.normal(size=(600, 20)))
    one = Ascent(X, y, 300, "ww", 1e-6)
    passes = 0
    while one.assess(0.01).violation > 0.01:
        passes += 1
        for _ in range(2):
            one.sweep(0.01)
    assert one.alpha.nnz > 0.9 * 600 * 299
    assert passes <= 8


def test_dense_features_end_by_one_system_for_all_classes():
    # systems of all classes are too large to factorise, and few passes are allowed
    rng = np.random.default_rng(0)
    y = np.arange(400) % 10
    X = np.abs(rng.uniform(size=(10, 130))[y] + 3 * rng.normal(size=(400, 130)))
    solution = md.run(X, y, C=10.0, tol=1e-3, max_epochs=100)
    assert solution.status == Status.CONVERGED
    assert solution.newton_steps == 0
    assert 80 < solution.epochs <= 100
    assert md.run(X, y, C=10.0, tol=1e-3, max_epochs=20_000).status == Status.CONVERGED


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("formulation", ["ovr", "cs"])
def test_what_a_later_method_makes_worse_stays_as_it_was(formulation, seed, monkeypatch):
    """Newton's method goes far away from where the first one was where features and C are so large."""
    monkeypatch.setattr("xmcjax.solvers._interior._UNKNOWNS", 0)
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 4
    X = 1e6 * (np.eye(4)[y] @ rng.normal(size=(4, 5)) + rng.normal(size=(60, 5)))
    found = md.run(X, y, formulation=formulation, C=1e4)
    assert found.status == Status.MAX_STEPS
    # at W = 0 each loss is 1, of each class or of the instance
    assert found.primal <= 1e4 * 60 * (1 if formulation == "cs" else 4) and found.dual >= 0


@pytest.mark.parametrize("seed", range(3))
def test_squared_hinges_end_with_features_and_C_as_large(seed):
    """Steps for all rows at once come before Newton's method, which goes far away."""
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 4
    X = 1e6 * (np.eye(4)[y] @ rng.normal(size=(4, 5)) + rng.normal(size=(60, 5)))
    found = md.run(X, y, formulation="ovr_squared", C=1e4)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3


def test_factors_of_lee_lin_wahba_that_would_take_too_much_are_never_made(monkeypatch):
    X, y = svm_problem(**WIDE)
    bytes_of_factors = 8 * 19 * 5 * 5
    found = {}
    for bound in (bytes_of_factors, bytes_of_factors - 1):
        monkeypatch.setattr("xmcjax.solvers.multiclass_dual._native._FACTORS", bound)
        monkeypatch.setattr("xmcjax.solvers._interior._BYTES", 0)
        found[bound] = md.run(X, y, formulation="llw", C=100.0, tol=1e-6, max_epochs=100_000)
        assert found[bound].status == Status.CONVERGED
    factorised, replaced = found.values()
    assert factorised.newton_steps > 0 == replaced.newton_steps
    np.testing.assert_allclose(replaced.primal, factorised.primal, rtol=2e-6)


def test_instances_of_lee_lin_wahba_have_their_own_weights():
    X, y = svm_problem(**WIDE)
    rows, y = checked(X), y.astype(np.int32)
    one, same = (CentredAscent(rows, y, 19, "llw", of_rows) for of_rows in (C, np.full(len(y), C)))
    for _ in range(5):
        assert one.sweep(1e-3) == same.sweep(1e-3)
    np.testing.assert_array_equal(one.weights, same.weights)
    # a row with the weight 2 is that row twice
    twice = np.r_[np.arange(len(y)), 3]
    weighted = CentredAscent(rows, y, 19, "llw", C * (1.0 + (np.arange(len(y)) == 3)))
    repeated = CentredAscent(checked(X[twice]), y[twice], 19, "llw", C)
    ends = []
    for ascent in (weighted, repeated):
        for _ in range(3000):
            ascent.sweep(1e-9, False)
        ends.append(ascent.assess(1e-9))
    assert all(abs(end.gap) < 1e-6 for end in ends)
    assert ends[0].primal == pytest.approx(ends[1].primal, rel=1e-6)
    assert weighted.alpha.max() > 1.5 * C
    for kind, formulation, weights in (
        (Ascent, "ww", np.ones(len(y))),
        (Proximal, "ww", np.ones(len(y))),
        (CentredAscent, "llw", np.ones(3)),
        (CentredAscent, "llw", np.zeros(len(y))),
    ):
        with pytest.raises(ValueError, match="expected one C but for ascent over instances of Lee-Lin-Wahba"):
            kind(rows, y, 19, formulation, weights)


def test_a_copy_of_a_handle_is_let_go_of_once():
    X, y = svm_problem(**WIDE)
    one = point(Ascent, X, y, "ww")
    other = copy.copy(one)
    del one
    with pytest.raises(ValueError, match="a handle of multiclass_new that nobody has let go of"):
        other.sweep(0.1)
    del other


@pytest.mark.parametrize("weight", [0.1, 1.0])
def test_threads_take_about_as_many_passes_as_one(weight):
    X, y = confusable()
    one, two = (md.run(X, y, C=weight, max_epochs=600, threads=threads) for threads in (1, 2))
    assert one.status == two.status == Status.CONVERGED
    np.testing.assert_allclose(two.primal, one.primal, rtol=2e-3)
    assert two.epochs < 1.5 * one.epochs  # if each match had some of the variables of an instance, above 2


def test_threads_meet_at_a_gate():
    memory, met = aligned_zeros((16,), np.int64), []

    def come():
        gate = Gate(memory, 3)
        for meeting in range(50):
            while not gate.meet():
                pass
            met.append(meeting)

    gate = Gate(memory, 3)
    assert not gate.meet()  # nobody else has come within its patience
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(come) for _ in range(2)]
        for _ in range(50):
            while not gate.meet():
                pass
        for other in others:
            other.result()
    assert met == sorted([*range(50)] * 2)  # nobody goes on before all have come
    with pytest.raises(ValueError, match="a gate in whole lines of the cache"):
        Gate(aligned_zeros((17,), np.int64)[1:], 3).meet()


def test_arguments_that_do_not_fit_a_handle():
    X, y = svm_problem(**WIDE)
    one = point(Ascent, X, y, "ww")
    another = point(Ascent, X, y, "llw")
    handle, count = one._handle, np.zeros((), np.int64)
    moves = dict(row=np.zeros(1, np.int32), label=np.zeros(1, np.int32), change=np.zeros(1))
    follow = dict(handle=handle, **moves)
    together = dict(row=np.zeros((2, 8), np.int32), label=np.zeros((2, 8), np.int32), change=np.zeros((2, 8)))
    memory = dict(gate=aligned_zeros((16,), np.int64), state=np.zeros(2, np.int64), patience=1)
    sweep = dict(handle=handle, own=0, parts=4, tolerance=0.1, caution=1.0, **together, **memory)
    sweep |= dict(
        stage=np.zeros(4, np.int64), violation=np.zeros(1), counts=np.zeros((2, 2), np.int64), held=count
    )
    wrong = [
        ("a handle of another method", dict(handle=another._handle)),
        ("a place among the members", dict(own=2)),
        ("a place among the members", dict(own=-1)),
        ("a stage", dict(stage=np.array([5, 0, 0, 0]))),
        ("a stage", dict(stage=np.array([0, 4, 0, 0]))),
        ("a caution of 1", dict(caution=0.0)),
        ("a gate in whole lines", dict(gate=aligned_zeros((17,), np.int64)[1:])),
        ("in the type of X", dict(change=np.zeros((2, 8), np.float32))),
    ]
    ends = np.zeros(41, np.int64)
    last = np.full(41, 1, np.int64)
    last[0] = 0
    calls = [
        ("alpha_count", "a handle of multiclass_new", dict(handle=0, count=count)),
        ("weights", "all features and classes", dict(handle=handle, W=np.zeros((1, 1)))),
        ("weights", "in the type of X", dict(handle=handle, W=np.zeros((5, 19), np.float32))),
        ("follow_moves", "rows below", dict(**follow | dict(row=np.array([40], np.int32)))),
        ("follow_moves", "classes below", dict(**follow | dict(label=np.array([-1], np.int32)))),
        ("follow_moves", "in the type of X", dict(**follow | dict(change=np.zeros(1, np.float32)))),
        *(("row_sweep", message, sweep | change) for message, change in wrong),
        ("get_moves", "room", dict(handle=handle, **moves)),
        (
            "set_alpha",
            "of classes below",
            dict(handle=handle, offset=last, index=np.array([19], np.int32), value=np.ones(1)),
        ),
        (
            "set_alpha",
            "of all rows",
            dict(
                handle=handle,
                offset=ends + (np.arange(41) == 7),
                index=np.zeros(0, np.int32),
                value=np.zeros(0),
            ),
        ),
    ]
    for name, expected, fields in calls:
        with pytest.raises(ValueError, match=f"expected .*{expected}"):
            InPlace.once(f"multiclass_{name}", **fields)
    assert one.sweep(0.1)[1] > 0


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_newton_steps_of_full_rows_are_those_of_rows_without_zeros(m, weighted):
    """Full rows are added to a system together, others one by one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(203, 13))
    X[::3, 4] = 0
    y, C = rng.integers(0, m, 203).astype(np.int32), rng.uniform(1, 5, 203) if weighted else 2.0
    stored = sp.csr_array((X.ravel(), np.tile(np.arange(13), 203), np.arange(0, 204 * 13, 13)), shape=X.shape)
    ends = []
    for rows in (canonical_csr(stored), canonical_csr(stored, zeros=False)):
        newton = Proximal(rows, y, m, "ovr", C)
        while newton.step(1e-9).gap > 1e-9:
            assert newton.newton_steps < 200
        ends.append((newton.newton_steps, newton.weights))
    assert ends[0][0] == ends[1][0]
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-9)
    losses = np.maximum(1 - np.where(y[:, None] == np.arange(m), 1, -1) * (X @ ends[0][1]), 0)
    primal = (ends[0][1] ** 2).sum() / 2 + (np.broadcast_to(C, 203) * losses.sum(axis=1)).sum()
    assert primal == pytest.approx(newton.step(1e-9).primal, rel=1e-9)


def test_a_dense_fit_takes_the_memory_of_its_rows():
    """CSR was made of X by way of coordinates, with a peak of seven times X."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40_000, 50)).astype(np.float32), rng.integers(0, 3, 40_000)
    _, peak = peak_of(lambda: md.run(X, y, formulation="cs", max_epochs=1))
    assert peak < 5.5 * X.nbytes
