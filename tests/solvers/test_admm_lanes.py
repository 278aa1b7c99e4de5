"""Steps for all rows at once in plain JAX: every loss, lanes of every kind, and what is said of their end."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.internals import device_memory
from tests.support.problems import svm_problem
from xmcjax import linops
from xmcjax.linops import DeviceMemoryError
from xmcjax.solvers import SOLVERS, Status, admm, multiclass_dual, topk_sdca
from xmcjax.solvers.instance_dual import Gram

SOLVER = SOLVERS["admm"]
TIGHT = admm.HParams(tol=1e-9, max_steps=200_000)
ROWS = np.random.default_rng(1).uniform(0.3, 2, 20)
# of each loss: its k, and its name in the references
LOSSES = {
    **{name: (1, name) for name in admm.LOSSES if not name.startswith("topk")},
    "cs": (1, "alpha"),
    "topk_alpha": (2, "alpha"),
    "topk_beta": (2, "beta"),
}


def problem(X, y, formulation, **given):
    k = LOSSES[formulation][0]
    op = X if isinstance(X, Gram) else linops.make(X)
    return admm.problem(op, y, formulation=formulation, k=k, **given)


def least(X, y, formulation, C, m=4):
    k, kind = LOSSES[formulation]
    return dual_references.bound(X, y, m, kind, k, C)


def objective(W, X, y, formulation, C):
    k, kind = LOSSES[formulation]
    return dual_references.objective(np.asarray(W, np.float64), X, y, kind, k, C)


def sequential(X, y, formulation, C, rows):
    """The minimum that the dual ascent of the host finds."""
    if formulation.startswith("topk"):
        more = dict(variant=formulation.removeprefix("topk_"), weight=rows, tol=1e-7, max_epochs=50_000)
        return topk_sdca.solve(X, y, 2, C, **more).primal
    C = C if rows is None else C * rows
    return multiclass_dual.run(X, y, formulation=formulation, C=C, tol=1e-7, max_epochs=50_000).primal


@pytest.mark.parametrize(("formulation", "rows"), [("cs", None), *((name, ROWS) for name in LOSSES)])
def test_every_loss_reaches_the_optimum_of_two_other_methods(formulation, rows):
    X, y = svm_problem(m=4)
    found = SOLVER.run(problem(X, y, formulation, C=0.8, weight=rows), TIGHT)
    assert Status(int(found.status[0])) == Status.CONVERGED
    C = 0.8 * (np.ones(20) if rows is None else rows)
    lowest = least(X, y, formulation, C)
    assert lowest * (1 - 1e-9) <= found.value[0] <= lowest * (1 + 1e-7)
    np.testing.assert_allclose(objective(found.weights[0], X, y, formulation, C), found.value[0], rtol=1e-9)
    np.testing.assert_allclose(found.value[0], sequential(X, y, formulation, 0.8, rows), rtol=1e-6)


@pytest.mark.parametrize("formulation", LOSSES)
def test_what_float32_says_holds_in_float64(formulation):
    X, y = svm_problem(m=4, dtype=np.float32)
    found = SOLVER.run(problem(X, y, formulation, C=[0.8, 8.0]), admm.HParams(tol=1e-4))
    assert found.weights.dtype == found.value.dtype == np.float32
    for lane, C in enumerate((0.8, 8.0)):
        assert Status(int(found.status[lane])) == Status.CONVERGED
        lowest = least(X, y, formulation, C)
        assert lowest * (1 - 1e-6) <= objective(found.weights[lane], X, y, formulation, C)
        assert objective(found.weights[lane], X, y, formulation, C) <= lowest / (1 - 1e-4) * (1 + 1e-6)


@pytest.mark.parametrize("formulation", ["llw", "topk_alpha"])
def test_lanes_are_what_each_of_them_is_alone(formulation):
    """Of a grid of C with folds, in which some end far earlier than others."""
    X, y = svm_problem(m=4)
    C, folds = np.geomspace(0.01, 30, 9), np.arange(20) % 3 != np.arange(9)[:, None] % 3
    both = SOLVER.run(problem(X, y, formulation, C=C, mask=folds), TIGHT)
    assert np.all(np.asarray(both.status) == Status.CONVERGED)
    steps = np.asarray(both.diagnostics.steps)
    assert steps.max() > 4 * steps.min()
    for lane in range(9):
        alone = SOLVER.run(problem(X, y, formulation, C=C[lane], mask=folds[lane]), TIGHT)
        np.testing.assert_allclose(both.value[lane], alone.value[0], rtol=3e-9)
        np.testing.assert_allclose(both.weights[lane], alone.weights[0], atol=1e-4)
        rows = folds[lane]
        assert both.value[lane] <= least(X[rows], y[rows], formulation, C[lane]) * (1 + 1e-7)


@pytest.mark.parametrize(
    ("formulation", "dtype"),
    [("llw", np.float32), ("cs", np.float32), *((name, np.float64) for name in ("llw", "ovr", "topk_beta"))],
)
def test_sets_of_classes(formulation, dtype):
    """Each is the problem of its own rows and classes."""
    X, y = svm_problem(n=40, m=5, dtype=dtype)
    members = np.array([[True] * 5, [False, True, True, False, True], [True, True, True, True, False]])
    hp, rtol = (TIGHT, 1e-8) if dtype == np.float64 else (admm.HParams(tol=1e-5), 2e-5)
    lanes = problem(X, y, formulation, C=0.5, members=members)
    found = SOLVER.run(lanes, hp)
    assert np.all(np.asarray(found.status) == Status.CONVERGED)
    for lane, inside in enumerate(members):
        rows, kept = inside[y], np.flatnonzero(inside)
        own = np.searchsorted(kept, y[rows])
        lowest = least(X[rows], own, formulation, 0.5, len(kept))
        np.testing.assert_allclose(found.value[lane], lowest, rtol=rtol)
        assert not np.asarray(found.weights[lane])[:, ~inside].any()
        W = np.asarray(found.weights[lane])[:, inside]
        np.testing.assert_allclose(objective(W, X[rows], own, formulation, 0.5), found.value[lane], rtol=rtol)
        proof = admm.proof(lanes, found.diagnostics, lane, hp.tol)
        assert proof.gap <= hp.tol * 1.01 and not proof.alpha.toarray()[:, ~inside].any()


def test_lanes_of_other_classes():
    X, y = svm_problem(m=4)
    y2 = np.roll(y, 1)
    found = SOLVER.run(problem(X, np.stack([y, y2]), "ww", C=0.8), TIGHT)
    for lane, own in enumerate((y, y2)):
        np.testing.assert_allclose(found.value[lane], least(X, own, "ww", 0.8), rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inner_products_are_as_good_as_features(dtype):
    X, y = svm_problem(m=4)
    hp = TIGHT if dtype == np.float64 else admm.HParams(tol=1e-5)
    found = SOLVER.run(problem(Gram(jnp.asarray((X @ X.T).astype(dtype))), y, "topk_beta", C=0.8), hp)
    assert Status(int(found.status[0])) == Status.CONVERGED and found.weights.shape == (1, 20, 4)
    W = X.T @ np.asarray(found.weights[0], np.float64)
    lowest = least(X, y, "topk_beta", 0.8)
    assert objective(W, X, y, "topk_beta", 0.8) <= lowest * (1 + 2 * hp.tol + 1e-8)


def test_more_features_than_rows():
    X, y = svm_problem(n=15, d=40, m=3)
    for given in (X, sp.csr_matrix(X)):
        lanes = problem(given, y, "cs", C=0.8)
        assert lanes.features.shape[1] < 15  # the basis of the rows, without what is 0
        found = SOLVER.run(lanes, TIGHT)
        np.testing.assert_allclose(found.value[0], least(X, y, "cs", 0.8, 3), rtol=1e-7)


@pytest.mark.parametrize("formulation", ["ww", "ovr"])
def test_a_start_from_other_dual_variables(formulation):
    X, y = svm_problem(n=60, m=4)
    hp = admm.HParams(tol=1e-6, max_steps=100_000)
    given = problem(X, y, formulation, C=1.0)
    cold = admm.run(given, hp, admm.init(given))
    alpha = admm.dual_variables(given, cold, 0)
    at_once = hp._replace(max_steps=0)
    assert admm.run(given, at_once, admm.init(given, alpha)).gap[0] < 1e-3
    assert admm.run(given, at_once, admm.init(given)).gap[0] > 1e-2
    smaller = problem(X, y, formulation, C=0.5)  # in whose dual set they are not
    state = admm.init(smaller, alpha.toarray())
    assert float(jnp.max(state.dual)) <= 0.5
    found = SOLVER.run(smaller, hp, state)
    np.testing.assert_allclose(found.value[0], least(X, y, formulation, 0.5), rtol=1e-5)


@pytest.mark.parametrize("formulation", LOSSES)
def test_the_best_dual_variables_are_those_of_the_start_until_others_are_better(formulation):
    X, y = svm_problem(m=4)
    k = LOSSES[formulation][0]
    options = dict(formulation=formulation, k=k, C=10.0)
    best = admm.solve(X, y, tol=1e-6, **options)
    lane = problem(X, y, formulation, C=10.0)
    state = admm.init(lane, best.alpha)
    dual = best.primal * (1 - best.gap)
    np.testing.assert_allclose(state.dual_objective, [dual], rtol=1e-5)
    few = admm.solve(X, y, start=best.alpha, max_epochs=1, tol=1e-6, **options)
    assert few.primal * (1 - few.gap) >= dual * (1 - 1e-6)


@pytest.mark.parametrize("formulation", ["cs", "topk_alpha"])
def test_dual_variables_of_shorter_features_or_a_smaller_C_are_a_start_too(formulation):
    rng, m = np.random.default_rng(0), 6
    y = np.r_[np.arange(m), rng.integers(0, m, 194)]
    X = rng.normal(size=(m, 20))[y] + 1.5 * rng.normal(size=(200, 20))
    short = problem(X, y, formulation, C=1.0)
    alpha = admm.dual_variables(short, admm.run(short, admm.HParams(), admm.init(short)), 0)
    for longer in (problem(X, y, formulation, C=1e3), problem(1e4 * X, y, formulation, C=1.0)):
        cold, given = admm.init(longer), admm.init(longer, alpha)
        proved = admm.proof(longer, given, 0, 1e-3).dual
        np.testing.assert_allclose(given.dual_objective[0], proved, rtol=1e-9)
        assert proved >= cold.dual_objective[0] > 0
        for state in cold, given:
            found = admm.run(longer, admm.HParams(max_steps=500), state)
            assert found.status[0] == Status.CONVERGED


@pytest.mark.parametrize("formulation", LOSSES)
def test_the_start_is_inside_the_dual_set_and_the_same_for_all_classes(formulation):
    X, y = svm_problem(m=5)
    members = np.array([[True] * 5, [True, True, False, True, True]])
    lanes = problem(X, y, formulation, C=[0.8, 0.3], members=members)
    state = admm.init(lanes)
    for lane, C in enumerate((0.8, 0.3)):
        rows = members[lane][y]
        others = np.arange(5) != y[:, None]
        exists = rows[:, None] & members[lane] & (others | formulation.startswith("ovr"))
        alpha = admm.dual_variables(lanes, state, lane).toarray()
        np.testing.assert_array_equal(alpha > 0, exists)
        assert np.ptp(alpha[exists]) < 1e-12
        kept = np.flatnonzero(members[lane])
        lowest = least(X[rows], np.searchsorted(kept, y[rows]), formulation, C, len(kept))
        assert admm.proof(lanes, state, lane, 1e-3).dual <= lowest * (1 + 1e-9)


@pytest.mark.parametrize("formulation", LOSSES)
def test_a_start_of_more_classes_is_brought_into_the_dual_set_of_those_of_a_lane(formulation):
    X, y = svm_problem(m=5)
    lanes = problem(X, y, formulation, C=1.0, members=~np.eye(5, dtype=bool))
    k = LOSSES[formulation][0]
    for start in (admm.solve(X, y, formulation=formulation, k=k).alpha, np.full((20, 5), 1e300)):
        state = admm.init(lanes, start)
        for lane in range(5):
            proved = admm.proof(lanes, state, lane, 1e-3).dual
            np.testing.assert_allclose(state.dual_objective[lane], proved, rtol=1e-9)
        assert np.all(np.asarray(SOLVER.run(lanes, admm.HParams(), state).status) == Status.CONVERGED)


def test_a_start_of_zeros_is_none():
    """ρ would be C otherwise, whatever the lengths of the rows."""
    X, y = svm_problem(m=4)
    lanes = problem(1e6 * X, y, "ww", C=[1e-12, 1e-10])
    cold, zeros = admm.init(lanes), admm.init(lanes, np.zeros((20, 4)))
    jax.tree.map(np.testing.assert_array_equal, cold, zeros)
    assert np.all(np.asarray(SOLVER.run(lanes, admm.HParams(), zeros).status) == Status.CONVERGED)


@pytest.mark.parametrize("given", [np.zeros((3, 7), np.float32), Gram(jnp.zeros((3, 3)))], ids=["X", "K"])
def test_features_that_are_all_zero(given):
    """The basis of the rows is empty then."""
    lanes = problem(given, [0, 1, 2], "ww", C=0.5)
    assert lanes.features.shape == (3, 0)
    found = SOLVER.run(lanes)
    assert Status(int(found.status[0])) == Status.CONVERGED
    assert float(found.value[0]) == 3.0 and found.weights.shape == (1, given.shape[1], 3)


def test_a_long_time_without_progress_is_not_taken_for_rounding():
    """ρ is wrong by a factor of 500 in the beginning, and float64 takes as many steps."""
    rng, y = np.random.default_rng(0), np.arange(200) % 5
    X = rng.normal(size=(200, 20)) + 1.5 * rng.normal(size=(5, 20))[y]
    value, steps = [], []
    for dtype in (np.float32, np.float64):
        found = SOLVER.run(problem(X.astype(dtype), y, "ovr_squared", C=100.0))
        assert Status(int(found.status[0])) == Status.CONVERGED
        value.append(float(found.value[0]))
        steps.append(int(found.diagnostics.steps[0]))
    np.testing.assert_allclose(*value, rtol=2e-3)
    assert min(steps) > 1000


def separable(C, tol=1e-3, **more):
    """Long rows of classes that can be separated: at the optimum gains are 0 but for rounding."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 6
    X = rng.normal(size=(600, 80)) + rng.normal(size=(6, 80))[y]
    X = (30 * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    lanes = problem(X, y, "cs", C=C)
    return lanes, admm.HParams(tol=tol, **more)


def test_rounding_of_gains_that_are_zero_does_not_keep_weights_from_an_end():
    """Longer weights end it, long before so many steps without progress pass for rounding."""
    lanes, hp = separable(1000.0)
    found = SOLVER.run(lanes, hp)
    assert Status(int(found.status[0])) == Status.CONVERGED
    assert int(found.diagnostics.steps[0]) < 200
    assert isinstance(lanes.op, linops.Dense)
    exact = SOLVER.run(problem(np.asarray(lanes.op.X, np.float64), lanes.y[0], "cs", C=1000.0), hp)
    np.testing.assert_allclose(found.value, exact.value, rtol=2e-3)


def test_a_gap_that_rounding_keeps_is_said():
    lanes, hp = separable(1.0, tol=1e-12)
    found = SOLVER.run(lanes, hp)
    assert Status(int(found.status[0])) == Status.STALLED
    assert found.remedy.startswith("1 of 1: STALLED: rounding keeps the duality gap too large")
    assert 1e-12 < float(found.diagnostics.gap[0]) < 1e-2


def two_units(seed):
    """Two classes that a line through features of different units separates."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(40, 2)) * [1, 1e3])
    return X, (X @ rng.normal(size=2) > 0).astype(int)


@pytest.mark.parametrize("formulation", ["cs", "ovr"])
def test_weights_of_dual_variables_end_it_where_others_go_round_them(formulation):
    X, y = two_units(4)
    X = np.hstack([X, np.ones((40, 1))])
    found = admm.solve(X, y, formulation=formulation, C=9.328, tol=1e-3)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and found.epochs < 200


def test_what_is_certified_is_converged_where_the_steps_are_over():
    found = admm.solve(*two_units(0), formulation="cs", C=9.328, tol=1e-3, max_epochs=10)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and found.epochs == 10


def test_no_certificate_in_jit():
    lanes, hp = separable(1.0)
    state = jax.jit(admm.run)(lanes, hp, admm.init(lanes))
    assert int(state.status[0]) == Status.CONVERGED
    assert float(state.gap[0]) <= float(hp.tol)
    assert admm.proof(lanes, state, 0, 1e-3).gap <= 1e-3


def test_numbers_that_overflow():
    X, y = svm_problem(dtype=np.float32)
    found = SOLVER.run(problem(X * np.float32(1e15), y, "ovr", C=3e38))
    assert Status(int(found.status[0])) == Status.NONFINITE
    assert "look for huge feature values or a huge C" in found.remedy


def test_weights_of_numbers_that_overflow_warn_of_nothing():
    X, y = svm_problem(dtype=np.float32)
    assert admm.solve(X, y, C=1e38).status == Status.NONFINITE


def test_it_goes_on_from_where_it_ended():
    X, y = svm_problem(m=4)
    lanes = problem(X, y, "ww", C=[0.8, 2.0])
    few = SOLVER.run(lanes, TIGHT._replace(max_steps=20)).diagnostics
    assert np.all(np.asarray(few.status) == Status.MAX_STEPS)
    state = few._replace(status=jnp.full(2, Status.RUNNING, jnp.int32))
    found, whole = SOLVER.run(lanes, TIGHT, state), SOLVER.run(lanes, TIGHT)
    np.testing.assert_allclose(found.value, whole.value, rtol=1e-9)
    np.testing.assert_array_equal(found.diagnostics.steps, whole.diagnostics.steps)


WRONG = [
    (dict(formulation="topk_entropy"), ValueError, "formulation: expected one of ww, cs"),
    (dict(k=4), ValueError, "k: expected at most 3, got 4"),
    (dict(k=2), ValueError, "k: expected 1 with the formulation ww, got 2"),
    (dict(C=[0.1, -1.0]), ValueError, "expected C above 0"),
    (dict(C=[1.0, 2.0], mask=np.ones((3, 20), bool)), ValueError, "expected C and mask for the same lanes"),
    (dict(y=np.zeros((3, 20), int), classes=4, C=[1.0, 2.0]), ValueError, "expected C and mask for 3 lanes"),
    (dict(members=np.ones(4)), TypeError, "members: expected a boolean mask"),
    (dict(members=np.ones(3, bool)), ValueError, r"members: expected \[4\] or \[lanes, 4\]"),
    (dict(members=np.ones((0, 4), bool)), ValueError, r"members: .*\[lanes, 4\], got \[0, 4\]"),
    (dict(members=np.arange(4) < 1), ValueError, "members: expected at least 2 classes in a lane, got 1"),
    (dict(y=np.zeros(3, int)), ValueError, "expected a class for each of 20 rows"),
]


@pytest.mark.parametrize(("wrong", "error", "words"), WRONG)
def test_what_is_refused(wrong, error, words):
    X, y = svm_problem(m=4)
    with pytest.raises(error, match=words):
        admm.problem(linops.make(X), **(dict(y=y) | wrong))


def test_limits_are_refused():
    X, y = svm_problem(m=4)
    lanes = problem(X, y, "ww")
    with pytest.raises(ValueError, match="tol: expected a number from 0, got -1"):
        SOLVER.run(lanes, admm.HParams(tol=-1.0))
    with pytest.raises(ValueError, match="max_steps: expected at least 0"):
        SOLVER.run(lanes, admm.HParams(max_steps=-1))
    with pytest.raises(ValueError, match="max_steps: expected at most 2147483647, got 2147483648"):
        SOLVER.run(lanes, admm.HParams(max_steps=2**31))
    for wrong in (np.nan, np.inf):
        K = (X @ X.T).astype(np.float32)
        K[3, 5] = wrong
        with pytest.raises(ValueError, match=f"inner products, found {wrong} in row 3, column 5 of K"):
            admm.problem(Gram(jnp.asarray(K)), y)
    wide = linops.make(sp.csr_matrix(([1.0], ([0], [0])), shape=(9000, 9000)))
    with pytest.raises(ValueError, match=r"expected at most 8192 rows or features.*take another solver"):
        admm.problem(wide, np.arange(9000) % 2)


def test_lanes_that_the_device_has_no_room_for(monkeypatch, compilations):
    X, y = svm_problem(m=4)
    X = X[:17]  # of a shape that no other test has
    lanes = problem(X, y[:17], "ww", C=np.linspace(0.1, 1, 30))
    found = []

    def compiled(free, work):
        monkeypatch.setattr(device_memory, "free_memory", lambda device=None: free)
        return sum("jit(advance)" in program for program in compilations(work))

    half = admm.HParams(tol=0.5)  # at which all lanes end together
    assert compiled(1 << 30, lambda: found.append(SOLVER.run(lanes, half))) == 1
    assert set(np.asarray(found[0].status)) == {Status.CONVERGED}
    with pytest.raises(
        DeviceMemoryError, match=r"30 of 17 rows and 4 classes need .* free: float32 in place of"
    ):
        compiled(10, lambda: admm.init(lanes))
    # XLA of jax 0.8.0 to 0.10.0 counts 192 KiB, that of 0.10.1 196, that of 0.12 199
    needed = "19[69]" if jax.__version_info__ > (0, 10, 0) else "192"
    said = (
        rf"30 of 17 rows and 4 classes need {needed} KiB beside the features.*: about (\d+) lanes would fit; "
        "float"
    )
    with pytest.raises(DeviceMemoryError, match=said) as refused:
        compiled(100_000, lambda: admm.init(lanes))
    told = re.search(said, str(refused.value))
    assert told is not None
    fewer = int(told[1])
    assert 1 < fewer < 30
    # so many do, and three more do not
    admm.init(problem(X, y[:17], "ww", C=np.ones(fewer - 1)))
    with pytest.raises(DeviceMemoryError):
        admm.init(problem(X, y[:17], "ww", C=np.ones(fewer + 3)))
    # within jit nothing is counted: the program is that of the caller
    assert jax.jit(lambda lanes: admm.init(lanes).rho)(lanes).shape == (30,)


def test_a_gap_far_below_0_is_no_end():
    """The best values of a large C are those of no small one."""
    X, y = svm_problem(m=4)
    before, after = (problem(X, y, "cs", C=C) for C in (1.0, 0.05))
    hp = admm.HParams(max_steps=300)
    state = admm.run(before, hp, admm.init(before))
    found = admm.run(after, hp, state._replace(status=jnp.full_like(state.status, Status.RUNNING)))
    assert found.gap[0] < -1 and found.status[0] == Status.MAX_STEPS


@pytest.mark.parametrize("formulation", admm.LOSSES)
def test_the_protocol_goes_on_where_a_state_was(formulation):
    X, y = svm_problem(m=4)
    one, hp = problem(X, y, formulation, C=1.0), admm.HParams(tol=1e-6, max_steps=100_000)
    whole = SOLVER.run(one, hp)
    half = hp._replace(max_steps=int(whole.diagnostics.steps[0]) // 2)
    found = SOLVER.run(one, hp, SOLVER.run(one, half).diagnostics)
    assert found.diagnostics.steps[0] <= whole.diagnostics.steps[0]
    np.testing.assert_allclose(found.value, whole.value, rtol=1e-6)
    more = SOLVER.run(one, hp, found.diagnostics).diagnostics.steps - found.diagnostics.steps
    assert more[0] <= 50


@pytest.mark.parametrize("made", [linops.Dense, Gram])
def test_a_problem_is_made_outside_of_jit_and_passes_through_it(made):
    X, y = np.random.default_rng(0).standard_normal((2, 12, 3)), np.arange(12) % 3
    X = [x @ x.T if made is Gram else x for x in X]
    solver = SOLVERS["admm"]

    def weights(problem):
        return solver.run(problem, solver.hparams()).weights

    def of_features(X):
        return jnp.sum(jnp.asarray(jax.tree.leaves(weights(admm.problem(made(X), y)))[0]))

    stacked, said = jnp.stack(X), "^op: expected numbers, found an array that JAX traces: make"
    for changed, given in ((jax.jit, stacked[0]), (jax.grad, stacked[0]), (jax.vmap, stacked)):
        with pytest.raises(TypeError, match=said):
            changed(of_features)(given)
    problems = [admm.problem(made(jnp.asarray(x)), y) for x in X]
    both = jax.vmap(weights)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems))
    for i, problem in enumerate(problems):
        alone = jax.jit(weights)(problem)
        for found, expected in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-8)
