"""train_one_vs_all: edges of the data, what it hands out, what it refuses."""

from __future__ import annotations

import sys
import threading

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.lanes import assert_same_bits, matrix, small, train, vector
from tests.support.processes import python
from xmcjax import inits, losses
from xmcjax.lanes import OneVsAll, forecast
from xmcjax.linops import check_features, put
from xmcjax.models import LinearModel, ShardWriter
from xmcjax.solvers import Status


@pytest.fixture(scope="module")
def data():
    return small(dtype=np.float64)


@pytest.mark.parametrize("backend", ["auto", "jnp"])
@pytest.mark.parametrize(
    ("given", "trained"),
    [("f8", "f8"), (">f8", "f8"), ("f4", "f4"), ("f2", "f4"), ("i4", "f4"), (bool, "f4")],
)
def test_the_precision_follows_the_features_not_the_settings_of_the_process(given, trained, backend):
    X, Y = small()
    X, found = X.toarray() > 0 if given is bool else (4 * X.toarray()).astype(given), {}
    for setting in (False, True):
        with jax.enable_x64(setting):
            found[setting], _ = train(X, Y, n_jobs=2, backend=backend, labels=np.arange(4))
            assert jax.numpy.zeros(1).dtype == (np.float64 if setting else np.float32)
    assert {result.values.dtype for result in found[False].values()} == {np.dtype(trained)}
    assert_same_bits(*found.values())


def test_features_in_float64_are_stored_and_resumed_under_the_settings_of_jax(data, tmp_path):
    X, Y = data
    meta = {"n_features": X.shape[1], "n_labels": Y.shape[1], "dtype": "float64"}
    for labels in (range(10), None):
        with (
            jax.enable_x64(False),
            ShardWriter(tmp_path / "m", meta, shard_size=10, resume=labels is None) as writer,
        ):
            labels = writer.missing() if labels is None else np.array(labels)
            train(X, Y, lambda result: writer.add(*result[:7]), labels=labels)
    ours, _ = train(X, Y)
    W, _ = LinearModel.load(tmp_path / "m").dense_block(0, Y.shape[1])
    np.testing.assert_array_equal(W, matrix(ours, X.shape[1])[0])


@pytest.fixture
def run(data):
    return lambda **options: train(*data, **options)


def test_labels_without_positives(data):
    X, Y = data
    Y = sp.lil_matrix(Y)
    Y[:, 0] = 0
    Y[:, 7] = 0
    ours, summary = train(X, Y)
    empty = np.flatnonzero(np.asarray(Y.sum(0)).ravel() == 0)
    assert {0, 7} <= set(empty) and len(empty) < Y.shape[1]
    assert summary.statuses[Status.NO_POSITIVES] == len(empty)
    for label, result in ours.items():
        assert (result.status == Status.NO_POSITIVES) == (label in empty)
        if label in empty:
            assert len(result.indices) == len(result.values) == result.newton_steps == result.bias == 0
            assert np.isnan(result.value)


@pytest.mark.parametrize("init", ["zero", "mean_separating", "multi_pos", "ova_primal", "ova_primal_pp"])
@pytest.mark.parametrize(
    ("X", "Y"),
    [
        ([[1.0, 2.0]], [[1, 0]]),  # one row
        ([[0.0, 0.0]], [[1, 1]]),  # that is empty
        ([[1.0, 0], [0, 1], [1, 1]], [[1], [0], [1]]),  # one label
        ([[1.0, 0], [0, 1], [1, 1]], [[1, 1], [1, 0], [1, 0]]),  # a label on all rows
        ([[1.0, 1], [1, 1], [1, 1]], [[1, 0], [0, 1], [0, 1]]),  # rows that are alike
        ([[0.0, 0], [0, 0], [0, 0]], [[1, 0], [0, 1], [0, 1]]),  # no features at all
    ],
)
def test_edges(X, Y, init):
    ours, _ = train(sp.csr_matrix(X), sp.csr_matrix(Y), init=inits.INITS[init](), tol=1e-8, clip=0.0)
    X, Y = np.array(X), np.array(Y)
    for label, y in enumerate(Y.T):
        result = ours[label]
        if not y.any():
            assert result.status == Status.NO_POSITIVES
            continue
        assert result.status == Status.CONVERGED
        w, y = vector(result, 2), 2 * y - 1
        slope = -2 * y * np.maximum(1 - y * (X @ w + result.bias), 0)
        np.testing.assert_allclose(w + X.T @ slope, 0, atol=1e-6)
        np.testing.assert_allclose(result.bias + slope.sum(), 0, atol=1e-6)


def test_no_labels():
    ours, summary = train(np.eye(3), sp.csr_matrix((3, 0)))
    assert ours == {} and summary.statuses == {}


def test_dense_features(data, run):
    X, Y = data
    dense, _ = train(X.toarray(), Y, clip=0.0, tol=1e-8)
    reference = matrix(run(clip=0.0, tol=1e-8)[0], X.shape[1])
    for ours, theirs in zip(matrix(dense, X.shape[1]), reference, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("backend", ["jnp", "dense"])
def test_backends(data, run, backend):
    reference, _ = run()
    ours, _ = run(backend=backend)
    for label, result in reference.items():
        np.testing.assert_allclose(ours[label].value, result.value, rtol=1e-3)
        assert ours[label].status == result.status


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, np.asarray])
def test_features_that_are_not_finite(data, value, form):
    X, Y = data
    X = X.toarray()
    X[150, 3] = value
    found = "NaN" if np.isnan(value) else str(value)
    with pytest.raises(
        ValueError, match=rf"expected finite features, found {found} in row 150, column 3 of X"
    ):
        train(form(X), Y)


def test_large_features_are_finite():
    for X in (np.full((4, 4), 3e38, np.float32), sp.csr_matrix((2, 3))):  # the sum of the first is not
        assert check_features(X) is None


def test_labels_that_overflow_have_no_weights():
    X = np.array([[1e30, 0], [0, 1e30], [1e30, 1e30]], np.float32)
    ours, summary = train(X, sp.csr_matrix([[1], [0], [1]]), init=inits.Bias(1e30))
    assert summary.statuses == {Status.NONFINITE: 1}
    assert len(ours[0].indices) == 0 and ours[0].bias == 0


@pytest.mark.parametrize("backend", ["auto", "jnp"])
@pytest.mark.parametrize("options", [{"tol": 1e300}, {"init": inits.MeanSeparating(1e300)}], ids=repr)
def test_numbers_beyond_the_precision_are_no_warnings_of_numpy(options, backend):
    X, Y = small()
    _, summary = train(X, Y, backend=backend, **options)
    assert set(summary.statuses) <= {Status.CONVERGED, Status.NO_POSITIVES}


def test_small_weights_are_dropped_after_training(run):
    whole, clipped = run(clip=0.0)[0], run(clip=0.2)[0]
    dropped = 0
    for label, result in whole.items():
        kept = np.abs(result.values) >= 0.2
        np.testing.assert_array_equal(clipped[label].indices, result.indices[kept])
        np.testing.assert_array_equal(clipped[label].values, result.values[kept])
        np.testing.assert_array_equal(clipped[label][3:-1], result[3:-1])  # the bias is not clipped
        assert np.all(np.diff(clipped[label].indices) > 0)
        dropped += np.count_nonzero(~kept)
    assert dropped > 0


@pytest.mark.parametrize("bias", ["regularised", "free", "none"])
def test_the_bias(data, run, bias):
    X, Y = data
    intercept = dict(fit_intercept=bias != "none", regularise_intercept=bias == "regularised")
    results, _ = run(**intercept, tol=1e-9, clip=0.0, init=inits.Zero())
    W, b = matrix(results, X.shape[1])
    y = 2 * Y.toarray() - 1
    slope = -2 * y * np.maximum(1 - y * (X @ W + b), 0)
    trained = Y.toarray().any(0)
    np.testing.assert_allclose((W + X.T @ slope)[:, trained], 0, atol=1e-6)
    if bias == "none":
        assert not b.any()
    else:
        np.testing.assert_allclose((slope.sum(0) + (bias == "regularised") * b)[trained], 0, atol=1e-6)


def test_no_iteration_gives_the_starts(data, run):
    ours, summary = run(max_iter=0, clip=0.0, init=inits.Bias(2.0))
    trained = data[1].toarray().any(0)
    assert summary.statuses == {Status.MAX_STEPS: trained.sum(), Status.NO_POSITIVES: (~trained).sum()}
    assert all(r.bias == -2 and len(r.values) == 0 for l, r in ours.items() if trained[l])


def test_labels_that_run_out_of_steps_keep_their_weights(run):
    ours, summary = run(max_iter=1, init=inits.Zero())
    assert summary.statuses[Status.MAX_STEPS] > 0
    for result in ours.values():
        assert result.newton_steps <= 1
        if result.status == Status.MAX_STEPS:
            assert len(result.values) > 0 and np.isfinite(result.gradient_norm)


def test_the_records_of_the_steps(data, run):
    records = []
    ours, summary = run(observe=records.append, block_size=8)
    seen = {}
    for record in records:
        assert 0 < len(record.labels) <= 8
        *fields, seconds, thread_seconds = record
        assert all(len(field) == len(record.labels) for field in fields)
        assert seconds > 0 and thread_seconds > 0
        for k, label in enumerate(record.labels.tolist()):
            seen.setdefault(label, []).append(tuple(field[k] for field in fields[1:]))
    trained = {label: r for label, r in ours.items() if r.status != Status.NO_POSITIVES}
    assert seen.keys() == trained.keys()
    for label, steps in seen.items():
        made, cg, active, multiplier, value, gradient, status = map(np.array, zip(*steps, strict=True))
        result = trained[label]
        np.testing.assert_array_equal(made, np.arange(len(made)))  # 0 takes the starting weights
        assert made[-1] == result.newton_steps and cg[-1] == result.cg_steps
        assert value[-1] == result.value and gradient[-1] == result.gradient_norm
        assert np.all(status[:-1] == Status.RUNNING) and status[-1] == result.status
        assert np.all(np.diff(value) <= 0) and np.all(np.diff(cg) >= 0)
        assert np.all((multiplier > 0) & (multiplier <= 2))
        assert np.all((active >= 0) & (active <= data[0].shape[0]))
    assert summary.steps == sum(len(record.labels) for record in records)
    assert summary.active == sum(record.active.sum() for record in records)
    assert summary.newton_steps == sum(r.newton_steps for r in ours.values())
    assert summary.cg_steps == sum(r.cg_steps for r in ours.values())
    assert 0 < summary.first_step_seconds < summary.seconds


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("init", ["mean_separating", "ova_primal_pp"])
@pytest.mark.parametrize("where", ["sink", "observe"])
@pytest.mark.timeout(240)  # where training hangs
def test_an_error_of_the_caller_ends_the_run(where, init, threads):
    X, Y = small()
    calls = []

    def fail(_):
        calls.append(1)
        if len(calls) == 3:
            raise OSError("the disk is full")

    options = dict(init=inits.INITS[init](), n_jobs=threads, block_size=4)
    with pytest.raises(OSError, match=r"^the disk is full$"):
        train(X, Y, **{where: fail}, **options)
    assert len(calls) == 3  # the others stop too


def test_the_sink_is_called_by_one_thread_at_a_time():
    X, Y = small()
    inside, calls = threading.Lock(), []

    def sink(result):
        assert inside.acquire(blocking=False), "called while another call runs"
        calls.append(result.label)
        inside.release()

    def observe(record):
        assert not inside.locked()

    train(X, Y, sink, observe=observe, n_jobs=2, block_size=2)
    assert sorted(calls) == list(range(Y.shape[1]))


@pytest.mark.parametrize("threads", [1, 2])
def test_no_label_is_begun_after_the_first_no(data, threads):
    X, Y = data
    asked = []

    def may_begin(label):
        asked.append(label)
        return len(asked) <= 11

    whole, _ = train(X, Y)
    ours, summary = train(X, Y, may_begin=may_begin, n_jobs=threads, block_size=4)
    positives = np.asarray(Y.sum(axis=0)).ravel()
    assert asked == np.argsort(-positives, kind="stable")[:12].tolist()
    assert sorted(ours) == sorted(asked[:11]) and sum(summary.statuses.values()) == 11
    for label, result in ours.items():
        np.testing.assert_array_equal(result.values, whole[label].values)
    with pytest.raises(ValueError, match="ova_primal_pp takes labels in the order of its tree"):
        train(X, Y, may_begin=may_begin, init=inits.OvaPrimalTree())


class Kinked(losses.MarginLoss):
    name, smooth = "kinked", False


def test_a_loss_without_curvature():
    with pytest.raises(TypeError, match=r"curvature, which kinked has not; take one of .*, hinge$"):
        OneVsAll(loss=Kinked())


@pytest.mark.parametrize("C", [1e-50, 1e300])
def test_C_of_another_type(C):
    with pytest.raises(ValueError, match="the range of float32, got"):
        train(np.eye(3, dtype=np.float32), sp.csr_matrix(np.eye(3)), C=C)


@pytest.mark.parametrize(
    ("labels", "error", "said"),
    [
        ([0, 3], ValueError, "different labels from 0 to 2, got a repeated one or one outside"),
        ([0.5], TypeError, "labels: expected whole numbers, got values of type float64"),
    ],
)
def test_a_forecast_refuses_labels_as_training_does(labels, error, said):
    data = np.eye(3, dtype=np.float32), sp.csr_matrix(np.eye(3))
    assert forecast(*data, OneVsAll(), labels=[2, 0], patience=0.0).sample == 2
    for call in (forecast, lambda X, Y, options, labels: train(X, Y, labels=labels)):
        with pytest.raises(error, match=said):
            call(*data, OneVsAll(), labels=labels)


def test_shapes():
    with pytest.raises(ValueError, match="as many rows in Y as in X, 3, got 2"):
        train(np.eye(3), sp.csr_matrix(np.eye(2)))
    with pytest.raises(ValueError, match="at least one row"):
        train(sp.csr_matrix((0, 3)), sp.csr_matrix((0, 2)))
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(2,\)"):
        train(np.eye(3), sp.csr_matrix(np.eye(3)), sample_weight=[1, 2])
    with pytest.raises(ValueError, match="found nan for row 1"):
        train(np.eye(3), sp.csr_matrix(np.eye(3)), sample_weight=[1, np.nan, 1])


GROWTH = """
import re
import numpy as np, scipy.sparse as sp
from xmcjax.lanes import OneVsAll, train_one_vs_all

rng = np.random.default_rng(0)
X = sp.random(120, 4000, 0.01, format="csr", random_state=0, dtype=np.float32)

def peak(count):
    rows = rng.integers(0, 120, 3 * count)
    Y = sp.csc_matrix((np.ones(3 * count), (rows, np.repeat(np.arange(count), 3))), shape=(120, count))
    train_one_vs_all(X, Y, OneVsAll(), lambda result: None)
    # not ru_maxrss, which begins with that of the parent process
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

small = peak(300)
print(peak(3000) - small)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_memory_does_not_grow_with_the_labels():
    """3000 labels of 4000 weights are 46 MB."""
    assert float(python(GROWTH, check=True).stdout) < 10


def test_lanes_never_see_a_host_array():
    """JAX takes the memory of a host array that is aligned to 64 bytes instead of copying it."""
    memory = np.zeros(2048 + 64, np.uint8)
    first = -memory.ctypes.data % 64
    host = memory[first : first + 2048].view(np.float32)
    device = put(host)
    host[:] = 1
    assert not np.any(device)
