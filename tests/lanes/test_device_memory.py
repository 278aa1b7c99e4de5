"""Lanes by the memory of a device: what is counted, what is said where it is too little, what goes on."""

from __future__ import annotations

import gc
import threading

import jax
import numpy as np
import pytest
from jax.errors import JaxRuntimeError

from tests.support.internals import (
    device_blocks,
    device_memory,
    devices,
    fitting,
    newton_trainer,
    queues,
)
from tests.support.lanes import small, train
from xmcjax import inits, linops
from xmcjax.lanes import OneVsAll, lanes_that_fit, precision, train_one_vs_all
from xmcjax.linops import DeviceMemoryError
from xmcjax.native import PerformanceWarning
from xmcjax.solvers import newton_cg

FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes."


@pytest.fixture
def pretend(monkeypatch):
    """Has every device say that so many bytes are free."""
    return lambda free: monkeypatch.setattr(device_memory, "free_memory", lambda device=None: free)


class Counted:
    """A program that takes so many bytes, and as many more for each lane; what it was counted for."""

    def __init__(self, fixed, lane):
        self.asked = []
        self._sizes = fixed, lane

    def __call__(self, lanes):
        self.asked.append(lanes)
        fixed, lane = self._sizes
        return fixed + lane * lanes


def chooser(count, free):
    return fitting.Fitting(count, free, "over 3 rows and 2 features on gpu:0", np.float32)


@pytest.mark.parametrize(
    ("fixed", "lane", "free", "guess", "chosen", "asked"),
    [
        (0, 1, 1000, 512, 512, [512]),  # the guess fits
        (0, 1, 600, 512, 384, [512, 384]),
        (100, 1, 600, 512, 256, [512, 384, 256]),
        (0, 1, 900, 384, 384, [384]),  # it fills nearly half: another number is not worth a compilation
        (0, 1, 1000, 128, 512, [128]),  # it leaves more than half, and what is chosen fits for certain
        (10, 1, 300, 64, 128, [64]),
        (0, 10, 100, 16, 8, [16, 8]),
        (70, 1, 100, 16, 8, [16, 8]),
        (0, 90, 100, 16, 1, [16, 1]),  # one takes more than 0.8 of it, and fits
    ],
)
def test_lanes_by_the_count(fixed, lane, free, guess, chosen, asked):
    count = Counted(fixed, lane)
    assert chooser(count, free).chosen(guess) == chosen
    assert count.asked == asked
    assert count(chosen) <= (0.8 * free if chosen > 1 else free)


@pytest.mark.parametrize(
    ("fixed", "lane", "free", "blocks"),
    [(0, 1, 1279, 1), (0, 1, 1280, 2), (0, 1, 10_000, 2), (1000, 1, 2000, 1), (0, 0, 1000, 1)],
)
def test_blocks_by_the_count(fixed, lane, free, blocks):
    """Two where both take at most 0.8 of what is free; one where nothing is counted."""
    assert chooser(Counted(fixed, lane), free).blocks(512) == blocks


def test_where_not_one_lane_fits():
    said = (
        r"one lane over 3 rows and 2 features on gpu:0 needs 3\.00 GiB beside X, by XLA's count, and "
        r"2\.00 GiB are free: fewer rows or features, or the CPU \(JAX_PLATFORMS=cpu\), would take less"
    )
    with pytest.raises(DeviceMemoryError, match=said):
        chooser(lambda lanes: (2 + lanes) << 30, 2 << 30).chosen(512)


def test_where_lanes_that_are_asked_for_do_not_fit():
    count = Counted(1 << 30, 1 << 20)
    with pytest.raises(
        DeviceMemoryError, match=r"block_size=5000 .* are free: block_size=2176 would fit; fewer"
    ):
        chooser(count, 4 << 30).check(5000)
    chooser(count, 4 << 30).check(3072)  # all of it, since the caller says so
    half = r"float32 in place of float64, fewer rows"
    with pytest.raises(DeviceMemoryError, match=half):
        fitting.Fitting(count, 1 << 20, "", np.float64).check(8)


@pytest.mark.parametrize(("of_free", "blocks"), [(2.4, 1), (2.6, 2)])
def test_a_device_with_room_has_two_blocks(of_free, blocks, pretend, monkeypatch):
    """And the model is that of one."""
    X, Y = small(n=131, d=71, labels=60)
    options = dict(backend="jnp", block_size=16)
    alone, _ = train(X, Y, **options)
    plain = OneVsAll()
    shared = device_blocks.Shared(linops.make(X, backend="jnp"), plain.loss, np.ones(1), newton_cg.HParams())
    with precision(X.dtype):
        pretend(int(of_free * device_blocks.block_bytes(shared, 16)))
    for module in (devices, newton_trainer):
        monkeypatch.setattr(module, "default_platform", lambda: "gpu")
    begun, together, take = set(), threading.Barrier(blocks), queues.LabelQueue.take

    def first_together(self, idle):  # each thread takes labels once before any takes more
        if threading.get_ident() not in begun:
            begun.add(threading.get_ident())
            together.wait(timeout=120)
        return take(self, idle)

    monkeypatch.setattr(queues.LabelQueue, "take", first_together)
    found, _ = train(X, Y, **options)
    assert len(begun) == blocks
    assert found.keys() == alone.keys()
    for label, result in found.items():
        assert result.indices.tobytes() == alone[label].indices.tobytes()
        assert result.values.tobytes() == alone[label].values.tobytes()


@pytest.mark.parametrize("backend", ["jnp", "dense"])
def test_training_takes_the_lanes_that_are_counted_and_compiles_once(backend, pretend, compilations):
    X, Y = small(n=131, d=71, labels=200)
    counts, most, plain = {}, [], OneVsAll()
    given = linops.make(X, backend=backend), plain.loss, np.ones(1), newton_cg.HParams()
    shared = device_blocks.Shared(*given)

    def work(of_free):
        with precision(X.dtype):
            counts[32] = device_blocks.block_bytes(shared, 32)
        pretend(int(of_free * counts[32]))
        most.clear()
        observe = lambda step: most.append(len(step.labels))  # noqa: E731
        train(X, Y, observe=observe, backend=backend, init=inits.Zero())

    compiled = compilations(lambda: work(1.4))
    assert max(most) == 32 and counts[32] > 4 * 32 * (2 * 71 + 131)
    assert sum("jit(advance)" in program for program in compiled) == 1
    compiled = compilations(lambda: work(1.1))
    assert max(most) == 16
    assert sum("jit(advance)" in program for program in compiled) == 1


def test_too_little_memory_is_said_before_anything_is_trained(pretend):
    X, Y = small(n=50, d=60)
    results, plain = [], OneVsAll()
    shared = device_blocks.Shared(linops.make(X, backend="jnp"), plain.loss, np.ones(1), newton_cg.HParams())
    one, nine = (device_blocks.block_bytes(shared, lanes) for lanes in (1, 9))
    assert one is not None and nine is not None
    for block_size in (None, 9):
        pretend(one - 1)
        said = r"expected lanes that fit .*: one lane over 50 rows and 60 features on"
        with pytest.raises(DeviceMemoryError, match=said):
            train_one_vs_all(X, Y, OneVsAll(backend="jnp", block_size=block_size), results.append)
    pretend(nine - 1)
    with pytest.raises(DeviceMemoryError, match=r"block_size=9 over 50 rows .* block_size=[1-8] would fit"):
        train_one_vs_all(X, Y, OneVsAll(backend="jnp", block_size=9), results.append)
    assert not results


def test_features_that_do_not_fit(pretend):
    X = np.ones((100, 50), np.float32)
    pretend(19_000)
    assert linops.make(X[:90]).shape == (90, 50)
    said = "expected X to fit into the memory of .*: 100 rows of 50 features take {} KiB or more"
    for backend, size in (("dense", 20), ("jnp", 39), ("gpu", 78)):
        with pytest.raises(DeviceMemoryError, match=said.format(size)):
            linops.make(X, backend=backend)


class Device:
    """Runs out of memory at some calls of a function, and perhaps for all lanes above a number."""

    def __init__(self, monkeypatch, owner, name, fails):
        self._work, self._fails, self.calls = getattr(owner, name), fails, 0
        self._lock = threading.Lock()
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *args, **options):
        with self._lock:
            self.calls += 1
            number = self.calls
        if self._fails(number, args):
            raise JaxRuntimeError(FULL)
        return self._work(*args, **options)


def at(*numbers):
    return lambda number, args: number in numbers


WHERE = {
    "the first step": (newton_cg, "advance", at(1)),
    "later steps": (newton_cg, "advance", at(4, 7)),
    "more than 3 lanes": (newton_cg, "advance", lambda number, args: args[0].y.shape[1] > 3),
    "starts": (device_blocks, "_refill", at(3)),
    "reading out": (device_blocks, "_columns", at(2)),
    "what is kept": (device_blocks, "_largest", at(2)),
    "the lanes themselves": (device_blocks, "put", at(40)),
}


@pytest.mark.parametrize(
    ("where", "init"),
    [*((where, "mean_separating") for where in WHERE), ("later steps", "ova_primal_pp")],
)
def test_a_device_that_is_full_goes_on_with_half_of_the_lanes(where, init, monkeypatch):
    X, Y = small(n=80, d=60, labels=24)
    options = dict(backend="jnp", init=inits.INITS[init](), tol=1e-4, clip=0.0, n_jobs=2)
    reference, _ = train(X, Y, block_size=8, **options)
    Device(monkeypatch, *WHERE[where])
    with pytest.warns(
        PerformanceWarning, match="ran out of memory with 8 lanes: training goes on with 4; block"
    ):
        ours, summary = train(X, Y, block_size=8, **options)  # which asserts that no label comes twice
    assert ours.keys() == reference.keys() and sum(summary.statuses.values()) == 24
    for label, result in reference.items():
        assert ours[label].status == result.status
        if result.newton_steps:
            np.testing.assert_allclose(ours[label].value, result.value, rtol=1e-5)


def test_the_lanes_that_were_too_many_are_given_back(monkeypatch):
    X, Y = small(n=80, d=60, labels=40)
    held = []

    def columns():
        gc.collect()
        return sum(a.shape[1] for a in jax.live_arrays() if a.shape[:1] == (60,) and a.ndim == 2)

    others = columns()  # what earlier tests have left

    def full(number, args):
        held.append(columns() - others)
        return number == 3

    Device(monkeypatch, newton_cg, "advance", full)
    with pytest.warns(PerformanceWarning, match="goes on with 16"):
        train(X, Y, backend="jnp", block_size=32, init=inits.Zero())
    assert held[3] <= held[2] / 2 + 2


def test_one_lane_is_the_last(monkeypatch):
    X, Y = small(n=80, d=60, labels=5)
    Device(monkeypatch, newton_cg, "advance", lambda number, args: True)
    said = "the device ran out of memory with one lane: Out of memory while trying"
    with pytest.warns(PerformanceWarning), pytest.raises(DeviceMemoryError, match=said):
        train(X, Y, backend="jnp", block_size=2)


def test_other_errors_and_those_of_the_caller_end_training(monkeypatch):
    X, Y = small(n=80, d=60, labels=5)

    def full(result):
        raise JaxRuntimeError(FULL)

    with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        train(X, Y, full, backend="jnp")

    def broken(*args):
        raise JaxRuntimeError("INTERNAL: a kernel failed")

    monkeypatch.setattr(newton_cg, "advance", broken)
    with pytest.raises(JaxRuntimeError, match="INTERNAL"):
        train(X, Y, backend="jnp")


class _Gpu:
    platform = "gpu"

    def __init__(self, **told):
        self.memory_stats = lambda: told or None


def test_what_a_device_tells():
    assert device_memory.free_memory(_Gpu(bytes_limit=1000, bytes_in_use=300)) == 700
    assert device_memory.free_memory(_Gpu(bytes_limit=1000, bytes_in_use=1300)) == 0
    assert device_memory.free_memory(_Gpu(bytes_in_use=300)) is None
    assert device_memory.free_memory(_Gpu()) is None
    assert device_memory.free_memory() is None  # a CPU
    with jax.default_device("cpu"):
        assert device_memory.used_device().platform == "cpu"
        assert lanes_that_fit(linops.make(small()[0])) == 32
