"""One-vs-all with the hinge: the dual's optimum, certain in float64, the same bits on any path."""

import functools
import threading

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import objectives
from tests.support.internals import hinge_trainer
from tests.support.lanes import signs, small, train, vector
from tests.support.problems import needs_native
from tests.support.processes import python
from xmcjax import OneVsAllClassifier, inits, losses, penalties
from xmcjax.lanes import LabelWeights, OneVsAll, train_one_vs_all
from xmcjax.native import StopFlag, twins
from xmcjax.solvers import Status, multiclass_dual

N, D, L = 300, 40, 12


@functools.cache
def problem(sparse=True, seed=0):
    """Rows with up to three of the labels, of which some are rare, and the last has none."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < (0.2 if sparse else 1.0))
    scores = X @ rng.normal(size=(D, L)) + rng.normal(size=(N, L))
    Y = scores > np.quantile(scores, np.linspace(0.6, 0.99, L), axis=0).diagonal()
    Y[:, -1] = False
    return (sp.csr_matrix(X) if sparse else X), sp.csr_matrix(Y)


def minimum(X, y, cost, bias=True):
    """By scipy's quadratic programming with the slacks as variables: the dual in a box, by L-BFGS-B."""
    import scipy.optimize

    X = X.toarray() if sp.issparse(X) else X
    rows = y[:, None] * (np.hstack([X, np.ones((len(y), 1))]) if bias else X)

    def negative_dual(alpha):
        w = rows.T @ alpha
        return w @ w / 2 - alpha.sum(), rows @ w - 1

    options = dict(maxiter=50_000, maxfun=100_000, ftol=1e-16, gtol=1e-10)
    box = dict(jac=True, bounds=[(0, c) for c in cost], method="L-BFGS-B", options=options)
    return -scipy.optimize.minimize(negative_dual, np.zeros(len(y)), **box).fun


def value(X, y, cost, result, bias=True):
    w = vector(result, X.shape[1])
    return objectives.lanes(X, y, w, result.bias, "hinge", cost, l2_bias=float(bias))


@needs_native
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tol"), [(np.float32, 0.01), (np.float64, 1e-4)])
def test_the_optimum(sparse, bias, dtype, tol):
    X, Y = problem(sparse)
    with jax.enable_x64(dtype == np.float64):
        options = dict(C=2.0, tol=tol, clip=0.0, fit_intercept=bias, max_iter=2000)
        results, _ = train(X.astype(dtype), Y, loss=losses.hinge, **options)
    for label in range(L - 1):
        result, cost = results[label], np.full(N, 2.0)
        least = minimum(X, signs(Y, label), cost, bias)
        assert result.status == Status.CONVERGED
        assert value(X, signs(Y, label), cost, result, bias) <= least * (1 + min(tol, 0.005) + 1e-6)
        assert result.value == pytest.approx(value(X, signs(Y, label), cost, result, bias), rel=1e-5)
        assert result.gradient_norm**2 / 2 <= min(tol, 0.005) * result.value
        assert bias or result.bias == 0
    assert results[L - 1].status == Status.NO_POSITIVES


@needs_native
def test_weights_of_rows_and_labels_are_those_of_repeated_rows():
    X, Y = problem()
    rng = np.random.default_rng(1)
    s, a, b = rng.integers(0, 4, N).astype(float), rng.uniform(0.3, 4, L), rng.uniform(0.3, 4, L)
    options = dict(loss=losses.hinge, C=0.5, tol=1e-6, clip=0.0)
    with jax.enable_x64(True):
        results, _ = train(X, Y, sample_weight=s, label_weights=LabelWeights(a, b), **options)
    for label in range(L - 1):
        y = signs(Y, label)
        cost = 0.5 * s * np.where(y > 0, a[label], b[label])
        kept = cost > 0
        least = minimum(X[kept], y[kept], cost[kept])
        assert value(X, y, cost, results[label]) == pytest.approx(least, rel=3e-6)


@needs_native
@pytest.mark.parametrize(("d", "share"), [(8, 1.0), (60, 0.1)])
def test_few_features_end_by_newtons_method_with_weights_of_rows_and_labels(d, share):
    """Ascent alone needs more than 300 passes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, d)) * (rng.random((600, d)) < share)
    Z = X @ rng.normal(size=(d, 3)) + 0.5 * np.sqrt(d * share) * rng.normal(size=(600, 3))
    Y, s, a, b = Z > 0, rng.integers(1, 4, 600).astype(float), np.array([0.5, 1, 3]), np.array([2, 1, 0.7])
    X, Y = X if share == 1 else sp.csr_matrix(X), sp.csr_matrix(Y)
    options = dict(loss=losses.hinge, C=100.0, tol=1e-4, clip=0.0)
    with jax.enable_x64(True):
        results, _ = train(X, Y, sample_weight=s, label_weights=LabelWeights(a, b), **options)
        alone, _ = train(X, Y, sample_weight=s, label_weights=LabelWeights(a, b), labels=[1], **options)
    np.testing.assert_array_equal(alone[1].values, results[1].values)
    rows = np.hstack([X.toarray() if sp.issparse(X) else X, np.ones((600, 1))])
    for label in range(3):
        y = signs(Y, label)
        cost = 100 * s * np.where(y > 0, a[label], b[label])
        assert results[label].status == Status.CONVERGED and results[label].newton_steps < 200
        # other methods solve two classes whose rows weigh differently; one is the other with its signs turned
        both = multiclass_dual.run(
            rows, (y < 0).astype(int), formulation="ovr", C=cost, classes=2, tol=1e-5, max_epochs=4000
        )
        assert both.status == Status.CONVERGED
        assert value(X, y, cost, results[label]) <= both.primal / 2 * (1 + 1e-4)
        assert both.dual / 2 <= value(X, y, cost, results[label])


@needs_native
def test_neither_threads_nor_blocks_nor_other_labels_change_a_bit():
    X, Y = problem()
    whole, summary = train(X, Y, loss=losses.hinge)
    assert summary.statuses[Status.CONVERGED] == L - 1 and summary.newton_steps > 0
    for other in (
        train(X, Y, loss=losses.hinge, n_jobs=3, block_size=2)[0],
        train(X, Y, loss=losses.hinge, block_size=5)[0],
        train(X, Y, loss=losses.hinge, labels=np.array([3, 7]))[0],
    ):
        for label, result in other.items():
            np.testing.assert_array_equal(result.values, whole[label].values)
            np.testing.assert_array_equal(result.indices, whole[label].indices)
            assert result.bias == whole[label].bias


@needs_native
@pytest.mark.parametrize("C", [0.5, 10.0])
def test_weights_are_dropped_as_far_as_the_objective_allows(C):
    X, Y = small()
    whole, _ = train(X, Y, loss=losses.hinge, C=C, clip=0.0)
    for options in ({}, {"sparsify_rise": 0.02}):
        dropped, _ = train(X, Y, loss=losses.hinge, C=C, **options)
        counts = [sum(len(r.values) for r in results.values()) for results in (dropped, whole)]
        assert counts[0] < counts[1]
        for label in np.flatnonzero(np.asarray(Y.sum(axis=0)).ravel()):
            y, cost = signs(Y, label), np.full(X.shape[0], C)
            rise = value(X, y, cost, dropped[label]) / value(X, y, cost, whole[label]) - 1
            assert rise <= (0.02 if options else 0.0025) + 1e-6
    clipped, summary = train(X, Y, loss=losses.hinge, C=C, clip=0.1)
    assert all(np.abs(r.values).min(initial=1) >= np.float32(0.1) for r in clipped.values())
    assert summary.raised.rise == pytest.approx(max(r.rise for r in clipped.values()))
    assert summary.raised.labels > 0


def test_without_kernels_plain_jax_finds_the_same():
    X, Y = problem()
    X, Y = X[:60], Y[:60, [0, 4]]
    with twins():
        results, _ = train(X, Y, loss=losses.hinge, C=1.0, clip=0.0)
    for label in range(2):
        y, cost = signs(Y, label), np.ones(60)
        assert results[label].status == Status.CONVERGED
        assert value(X, y, cost, results[label]) <= 1.005 * minimum(X, y, cost) + 1e-6


@needs_native
@pytest.mark.parametrize("seed", [7, 10])
def test_the_gap_of_a_label_alone_decides_not_that_of_it_and_its_mirror_image(seed):
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 3, 50)
    X, s = rng.normal(size=(3, 3))[k] + rng.normal(size=(50, 3)), rng.random(50) * 3
    for tol in (0.1, 1e-2, 1e-3):
        model = OneVsAllClassifier("hinge", C=100, fit_intercept=False, tol=tol).fit(X, k, s)
        assert (model.status_ == Status.CONVERGED).all()


@needs_native
@pytest.mark.parametrize("scale", [1e-18, 1e-3, 1e4, 1e12])
def test_any_scale_ends_as_solved_or_says_so(scale):
    X, Y = problem(sparse=False)
    X = (scale * X).astype(np.float32)
    results, _ = train(X, Y, loss=losses.hinge, C=1.0, clip=0.0)
    for label in range(L - 1):
        y, cost, result = signs(Y, label), np.ones(N), results[label]
        if result.status == Status.CONVERGED:
            # ascent in exact arithmetic would find no better point than a hundredth of this below it
            assert result.gradient_norm**2 / 2 <= 0.005 * result.value
            assert result.value == pytest.approx(value(X.astype(np.float64), y, cost, result), rel=1e-4)
        else:
            assert result.status in (Status.STALLED, Status.MAX_STEPS, Status.NONFINITE)


def test_fewer_labels_go_together_where_rows_or_features_are_many():
    together = hinge_trainer.labels_together
    assert together(30_000, 20_000) == 64
    for n, d in ((1_700_000, 10), (10, 1_700_000), (3_000_000, 3_000_000), (1, 1 << 40)):
        k = together(n, d)
        assert 1 <= k < 64 and (k == 1 or 12 * k * max(n, d) <= 1 << 28)


def test_what_the_dual_has_no_place_for_is_refused():
    wrong = {
        "penalty: expected l2": dict(penalty=penalties.ElasticNet()),
        "init: expected mean_separating as it is": dict(init=inits.Zero()),
        "regularise_intercept: expected True": dict(regularise_intercept=False),
        "max_iter: expected 1 or more": dict(max_iter=0),
    }
    for message, options in wrong.items():
        with pytest.raises(ValueError, match=f"^{message} with the loss hinge"):
            OneVsAll(loss=losses.hinge, **options)
    OneVsAll(loss=losses.hinge, fit_intercept=False, regularise_intercept=False)
    with pytest.raises(ValueError, match=r"^observe: expected None"):
        train(*problem(), loss=losses.hinge, observe=print)


@needs_native
def test_few_passes_end_as_MAX_STEPS():
    X, Y = problem(sparse=False)
    results, _ = train(100 * X, Y, loss=losses.hinge, C=1e3, tol=1e-6, max_iter=1)
    assert {r.status for r in results.values()} == {Status.MAX_STEPS, Status.NO_POSITIVES}
    assert all(r.newton_steps <= 11 for r in results.values())


@needs_native
def test_a_sink_that_fails_ends_the_run():
    X, Y = problem()
    taken = []

    def sink(result):
        taken.append(result.label)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        train_one_vs_all(X, Y, OneVsAll(loss=losses.hinge, n_jobs=2, block_size=2), sink)
    assert len(taken) == 1


@needs_native
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_ctrl_c_while_the_threads_are_started_ends_the_others(monkeypatch, loss):
    X, Y = problem()
    start, seen, stopped = threading.Thread.start, [], threading.Event()

    def interrupted(self):
        if seen:
            raise KeyboardInterrupt
        start(self)
        while not seen:
            pass

    set_flag = StopFlag.set

    def told(self):
        set_flag(self)
        stopped.set()

    def sink(result):
        seen.append(result.label)
        assert stopped.wait(60)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(StopFlag, "set", told)
    with pytest.raises(KeyboardInterrupt):
        train_one_vs_all(X, Y, OneVsAll(loss=losses.MARGIN_LOSSES[loss], n_jobs=2, block_size=1), sink)
    assert len(seen) == 1


def test_the_estimator_is_LinearSVC_with_the_hinge():
    from sklearn.svm import LinearSVC

    X, Y = problem()
    y = np.asarray(Y.argmax(axis=1)).ravel()
    ours = OneVsAllClassifier("hinge", C=1.0, tol=1e-4).fit(X, y)
    theirs = LinearSVC(loss="hinge", C=1.0, tol=1e-6, max_iter=200_000, dual=True).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=0.05)
    assert (ours.status_ == Status.CONVERGED).all() and (ours.n_iter_ > 0).all()
    with pytest.raises(AttributeError, match="predict_proba"):
        ours.predict_proba(X)


def test_other_losses_do_not_load_what_solves_the_hinge():
    program = """
import sys, numpy as np
from xmcjax import OneVsAllClassifier
OneVsAllClassifier().fit(np.eye(4), [0, 1, 2, 0])
print([name for name in sys.modules if name.startswith("xmcjax.solvers.multiclass_dual")])
"""
    done = python(program)
    assert done.returncode == 0 and done.stdout.strip() == "[]", done.stdout + done.stderr
