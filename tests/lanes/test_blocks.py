"""The block on the host makes the very steps of the block on the device."""

from __future__ import annotations

import dataclasses
import gc
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.gpu_targets import abstract_gpu
from tests.support.internals import blocks, clipping, device_blocks
from tests.support.lanes import small
from tests.support.problems import needs_native
from xmcjax import linops, losses
from xmcjax.lanes import Job
from xmcjax.native import put_columns, take_columns
from xmcjax.penalties import L1, L2
from xmcjax.solvers import newton_cg

pytestmark = needs_native


def jobs(Y, count, d, dtype, seed):
    rng = np.random.default_rng(seed)
    made = []
    for label in range(count):
        indices = rng.choice(d, 5, replace=False)
        base = rng.normal(size=d) if label % 2 else None
        positives = Y.tocsc()[:, [label]].indices
        made.append(Job(label, positives, 1e-4, base, 0.1, indices, rng.normal(size=5).astype(dtype), -0.5))
    return made


def stepped(block):
    """The numbers of the lanes after a step."""
    block.begin()
    return block.numbers()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", [losses.squared_hinge, losses.logistic, losses.huber_hinge])
@pytest.mark.parametrize("size", [3, 16])
def test_same_bits(dtype, loss, size):
    X, Y = small(dtype=dtype)
    op = linops.make(X, backend="native")
    hp = newton_cg.HParams(l2_bias=0.0, preconditioner=0.01)
    weight = np.linspace(0.5, 2, X.shape[0])
    shared = device_blocks.Shared(op, loss, weight, hp)
    host, device = blocks.HostBlock(shared, size), blocks.DeviceBlock(shared, size)
    todo = jobs(Y, 9, X.shape[1], dtype, size)
    for steps, lanes in ((4, range(min(size, 5))), (3, (1,)), (9, (0, 2))):
        for block in (host, device):
            block.start([(lane, todo[lane + steps % 4]) for lane in lanes])
        for _ in range(steps):
            ours, theirs = stepped(host), stepped(device)
            for name in blocks.NUMBERS:
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        for clip in (0.0, 0.05, None):
            rule = clipping.make_clipping(X, weight, loss, clip)
            read = (b.read(range(size), rule, np.ones(size))() for b in (host, device))
            for ours_kept, theirs_kept in zip(*read, strict=True):
                if clip is None and np.abs(ours_kept.values).max(initial=0) < 1e-18:
                    continue  # their squares underflow, a little earlier on a device
                np.testing.assert_array_equal(ours_kept.indices, theirs_kept.indices)
                np.testing.assert_array_equal(ours_kept.values, theirs_kept.values)
                assert (np.abs(ours_kept.values) >= (clip or 0)).all() and ours_kept.values.all()
                risks = ours_kept.expected_rise, theirs_kept.expected_rise
                if all(np.isfinite(risks)):  # an idle lane may have no objective
                    assert risks[0] == pytest.approx(risks[1], rel=0.1, abs=1e-3)
    assert ours["steps"].max() >= 3


@pytest.mark.parametrize("loss", [losses.squared_hinge, losses.logistic, losses.huber_hinge])
@pytest.mark.parametrize("by_label", [False, True])
def test_the_rise_of_an_objective(loss, by_label):
    X, Y = small(dtype=np.float64)
    weight, C = np.linspace(0.5, 2, X.shape[0]), (3.0 if by_label else 1.0)
    op, hp = linops.make(X, backend="native"), newton_cg.HParams()
    block = blocks.HostBlock(device_blocks.Shared(op, loss, weight, hp, by_label), 4)
    (job,) = jobs(Y, 1, X.shape[1], np.float64, 9)
    job = dataclasses.replace(job, positive_weight=C)
    block.start([(2, job)])
    for _ in range(4):
        bias = stepped(block)["bias"][2]
    (weights,) = block.read([2], clipping.keep_all(np.float64), [1.0])()
    w = np.zeros(X.shape[1])
    w[weights.indices] = weights.values
    y = np.where(np.isin(np.arange(X.shape[0]), job.positives), 1.0, -1.0)
    c, z = weight * np.where(y > 0, C, 1), X @ w + bias
    for t in (0.1, 0.5, 2.0):
        dropped = np.where(np.abs(w) < t, w, 0)
        with jax.enable_x64(True):
            of_rows = loss.score_value(jnp.asarray(z - X @ dropped), y) - loss.score_value(jnp.asarray(z), y)
        expected = float(c @ np.asarray(of_rows, np.float64)) - 0.5 * float(dropped @ dropped)
        risen = block._risen(2, dropped, 1.0001 * t)  # rows of norm 1
        assert abs(expected) > 1e-7 and risen == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_numbers_are_copies():
    X, Y = small()
    op = linops.make(X, backend="native")
    shared = device_blocks.Shared(op, losses.squared_hinge, np.ones(1), newton_cg.HParams())
    block = blocks.make_block(shared, 2)
    assert isinstance(block, blocks.HostBlock)
    block.start([(0, jobs(Y, 1, X.shape[1], np.float32, 0)[0])])
    first = stepped(block)
    value, (w,) = first["value"][0], block.read([0], clipping.keep_all(np.float32), [1.0])()
    before = w.values.copy()
    stepped(block)
    assert first["value"][0] == value
    np.testing.assert_array_equal(w.values, before)


PENALTY = L2()


def device_block(op, size=3, by_label=False, penalty=PENALTY):
    given = losses.squared_hinge, np.ones(1), newton_cg.HParams()
    return blocks.DeviceBlock(device_blocks.Shared(op, *given, by_label, penalty), size)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
@pytest.mark.parametrize("backend", ["gpu", "dense"])
@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["l2", "l1"])
def test_what_training_runs_lowers_for_a_gpu(backend, penalty):
    op = linops.make(small()[0], backend=backend)
    if isinstance(op, linops.Grouped):
        op = dataclasses.replace(op, kernels="triton")
    block = device_block(op, 256, penalty=penalty)
    with abstract_gpu():
        step = newton_cg.advance.__wrapped__.trace(block._problem, block._hp, block._state)
        text = step.lower(lowering_platforms=("cuda",)).as_text()
    # the product with δ, the gradient, and CG's: two products with the bias that it eliminates
    assert (text.count("xla.gpu.triton") >= 4) == (backend == "gpu")
    assert "tensor<200x256xf32>" in text


def test_more_weights_are_kept_than_was_guessed(monkeypatch):
    """The capacity that is compiled in is too small: a second pass reads what the first has left out."""
    monkeypatch.setattr(device_blocks, "KEPT", 4)
    monkeypatch.setattr(device_blocks, "READ", 2)
    X, Y = small()
    block, whole = (device_block(linops.make(X, backend="jnp")) for _ in range(2))
    whole._room = 2 * X.shape[1]
    for b in (block, whole):
        b.start([(lane, job) for lane, job in enumerate(jobs(Y, 3, X.shape[1], np.float32, 0))])
        stepped(b)
    waiting = block.read(range(3), clipping.keep_all(np.float32), [1.0] * 3)
    stepped(block)  # what was begun is of the step before
    few, all_ = waiting(), whole.read(range(3), clipping.keep_all(np.float32), [1.0] * 3)()
    for ours, theirs in zip(few, all_, strict=True):
        assert len(ours.indices) > 4
        np.testing.assert_array_equal(ours.indices, theirs.indices)
        np.testing.assert_array_equal(ours.values, theirs.values)


def test_what_is_read_follows_what_is_kept():
    """Up where there are more weights than were expected, down where there are a quarter of them or less."""
    X, Y = small()
    block = device_block(linops.make(X, backend="jnp"))
    block.start([(lane, job) for lane, job in enumerate(jobs(Y, 3, X.shape[1], np.float32, 0))])
    stepped(block)
    block._room, rooms = 4, []
    for clip in (0.0, 1e30, 0.0):
        rule = clipping.make_clipping(X, np.ones(1), losses.squared_hinge, clip)
        for _ in range(2):
            kept = block.read(range(3), rule, [1.0] * 3)()
            assert all((len(w.indices) > 4) == (clip == 0) for w in kept)
        rooms.append(block._room)
    # three lanes stand for the 32 that are read together
    assert rooms[0] == rooms[2] > 3 * 4 and rooms[1] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_in_a_thread_of_its_own(monkeypatch, dtype):
    """As on a GPU: with the precision of the thread that begins it, and the same bits."""
    X, Y = small(dtype=dtype)
    op = linops.make(X, backend="jnp")
    here = device_block(op)
    monkeypatch.setattr(device_blocks, "default_platform", lambda: "gpu")
    beside = device_block(op)
    assert here._beside is None and beside._beside is not None
    for block in (here, beside):
        block.start([(lane, job) for lane, job in enumerate(jobs(Y, 3, X.shape[1], dtype, 0))])
    for _ in range(3):
        ours, theirs = stepped(beside), stepped(here)
        for name in blocks.NUMBERS:
            assert ours[name].dtype == theirs[name].dtype
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_what_a_failed_step_held_is_free_at_once(monkeypatch):
    """The error of a thread of its own is no part of a cycle: the memory is there for fewer lanes."""
    X, Y = small()
    monkeypatch.setattr(device_blocks, "default_platform", lambda: "gpu")
    block = device_block(linops.make(X, backend="jnp"))
    block.start([(0, jobs(Y, 1, X.shape[1], np.float32, 0)[0])])
    there = weakref.ref(block)

    def full(*given):
        raise RuntimeError("full")

    monkeypatch.setattr(device_blocks.newton_cg, "advance", full)
    gc.collect()
    gc.disable()
    try:
        block.begin()
        raised = False
        try:
            block.numbers()
        except RuntimeError:  # pytest.raises would keep the error, and what it holds
            raised = True
        block.close()
        del block
        assert raised and there() is None
    finally:
        gc.enable()


def test_a_step_is_waited_for_where_the_block_is_closed(monkeypatch):
    monkeypatch.setattr(device_blocks, "default_platform", lambda: "gpu")
    block = device_block(linops.make(small()[0], backend="jnp"))
    ended = []

    def slow(*given):
        time.sleep(0.2)
        ended.append(True)
        raise RuntimeError("nobody asks")

    monkeypatch.setattr(device_blocks.newton_cg, "advance", slow)
    block.begin()
    block.close()
    assert ended == [True]


@pytest.mark.parametrize("by_label", [False, True])
def test_starts_of_more_entries_than_one_call_takes(monkeypatch, by_label):
    """Positives and starts go over in pieces; lanes that are not started keep what they have."""
    X, Y = small()
    op = linops.make(X, backend="jnp")
    whole = device_block(op, by_label=by_label)
    monkeypatch.setattr(device_blocks, "ENTRIES", 3)
    pieces = device_block(op, by_label=by_label)
    todo = jobs(Y, 6, X.shape[1], np.float32, 1)
    todo = [dataclasses.replace(job, positive_weight=2.0, negative_weight=0.5) for job in todo]
    for block in (whole, pieces):
        block.start([(lane, todo[lane]) for lane in range(3)])
        stepped(block)
        block.start([(2, todo[4]), (0, todo[5])])
        last = stepped(block)
    for name in ("y", "tolerance", "weight"):
        np.testing.assert_array_equal(getattr(whole._problem, name), getattr(pieces._problem, name))
    ours, theirs = (
        whole.read(range(3), clipping.keep_all(np.float32), [1.0] * 3)(),
        pieces.read(range(3), clipping.keep_all(np.float32), [1.0] * 3)(),
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.values, b.values)
    y = np.full((X.shape[0], 3), -1)
    for lane, job in ((0, todo[5]), (1, todo[1]), (2, todo[4])):
        y[job.positives, lane] = 1
    np.testing.assert_array_equal(pieces._problem.y, y)
    if by_label:
        np.testing.assert_array_equal(pieces._problem.weight, np.where(y > 0, 2.0, 0.5))
    assert list(last["steps"]) == [0, 1, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("rows", "columns", "which"), [(1, 1, [0]), (300, 7, [6, 0, 3]), (129, 16, [15]), (5, 3, [])]
)
def test_columns_as_rows_and_back(dtype, rows, columns, which):
    rng = np.random.default_rng(rows)
    matrix = rng.normal(size=(rows, columns)).astype(dtype)
    taken = take_columns(matrix, which)
    np.testing.assert_array_equal(taken, matrix[:, which].T)
    expected = matrix.copy()
    expected[:, which] = 2 * taken.T
    put_columns(matrix, which, 2 * taken)
    np.testing.assert_array_equal(matrix, expected)


def test_columns_that_are_none_are_refused():
    matrix = np.zeros((4, 3))
    for wrong in ([3], [-1]):
        with pytest.raises(ValueError, match="take_columns: expected which from 0 to 2, got"):
            take_columns(matrix, wrong)
    for rows in (np.zeros((1, 3)), np.zeros((2, 4)), np.zeros((1, 4), np.float32)):
        with pytest.raises(ValueError, match=r"expected rows as float64 \[count, length\] = \[1, 4\]"):
            put_columns(matrix, [0], rows)
    with pytest.raises(ValueError, match="put_columns: expected contiguous arrays"):
        put_columns(matrix, [0], np.zeros((1, 8))[:, ::2])
    with pytest.raises(ValueError, match=r"expected matrix as float32 .*, got int64 \[4, 3\]"):
        take_columns(np.zeros((4, 3), int), [0])
    with pytest.raises(ValueError, match="take_columns: expected contiguous arrays"):
        take_columns(np.zeros((4, 6))[:, ::2], [0])
