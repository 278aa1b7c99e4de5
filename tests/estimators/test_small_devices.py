"""Devices that are too small for a fit or a prediction: one sentence says so, or smaller parts are taken."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from sklearn.exceptions import ConvergenceWarning

from tests.support.internals import device_memory, kernel_training, multinomial_run
from xmcjax import linops
from xmcjax.estimators import (
    KernelLogisticClassifier,
    MulticlassSVC,
    MultinomialLogisticRegression,
    OneVsAllClassifier,
    TopKSVC,
)
from xmcjax.linops import DeviceMemoryError
from xmcjax.solvers import newton_cg

N, D, CLASSES = 408, 3, 12
FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes."


@pytest.fixture
def pretend(monkeypatch):
    """Has every device say that so many bytes are free."""
    return lambda free: monkeypatch.setattr(device_memory, "free_memory", lambda device=None: free)


def data(dtype=np.float32):
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)).astype(dtype), rng.permutation(np.arange(N) % CLASSES)


# The five systems, on their way for devices.
SYSTEMS = {
    "one-vs-all": lambda: OneVsAllClassifier(),
    "multiclass": lambda: MulticlassSVC(solver="admm"),
    "top-k": lambda: TopKSVC(k=2, solver="admm"),
    "multinomial": lambda: MultinomialLogisticRegression(solver="newton"),
    "kernel": lambda: KernelLogisticClassifier(),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_fit_that_does_not_fit_says_what_it_needs(system, pretend):
    X, y = data()
    pretend(X.nbytes + 500)
    with pytest.raises(DeviceMemoryError) as raised:
        SYSTEMS[system]().fit(X, y)
    text = str(raised.value)
    assert " KiB" in text and "are free: " in text and str(jax.devices()[0]) in text
    assert text.endswith("would take less of it") and "RESOURCE_EXHAUSTED" not in text


@pytest.mark.parametrize("system", ["multinomial", "kernel"])
def test_with_room_the_fit_is_the_same(system, pretend):
    X, y = data()
    expected = SYSTEMS[system]().fit(X, y)
    pretend(1 << 30)
    ours = SYSTEMS[system]().fit(X, y)
    assert ours.objective_ == expected.objective_
    np.testing.assert_array_equal(ours.predict(X), expected.predict(X))


METHODS = ("newton", "lbfgs", "lc")


@pytest.mark.parametrize("method", METHODS)
def test_methods_of_multinomial_regression_are_counted_and_compiled_once(method, pretend, compilations):
    X, y = data()
    X, y = np.tile(X, (20, 1)), np.tile(y, 20)  # beyond what is filled up to common sizes
    model = MultinomialLogisticRegression(solver=method, max_iter=3)
    pretend(X.nbytes + 1000)
    said = (
        rf"a step of {method} for 12 classes needs .* beside the arrays that are there, by XLA's count, and "
        r".* are free: block_newton \(on the CPU\), fewer classes, fewer rows"
    )
    with pytest.raises(DeviceMemoryError, match=said):
        model.fit(X, y)
    pretend(1 << 30)
    jax.clear_caches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of three iterations
        compiled = compilations(lambda: model.fit(X, y))
    assert sum("advance" in program for program in compiled) == 1


def test_on_the_host_nothing_is_counted(pretend):
    X, y = data()
    pretend(X.nbytes)
    assert MultinomialLogisticRegression(solver="block_newton").fit(X, y).n_iter_ > 0


def test_a_kernel_matrix_that_does_not_fit_is_made_in_tiles(pretend):
    """A third of what is free is for matrices; the fit is the same but for rounding."""
    X, y = data(np.float64)
    X, y = np.tile(X, (4, 1)) + 0.01, np.tile(y, 4)
    matrix = 8 * len(X) ** 2
    model = KernelLogisticClassifier(v=2.0, tol=1e-6)
    expected = model.fit(X, y).objective_
    stored = []
    for free in (2 * matrix, 4 * matrix):
        pretend(free)
        data_, _ = kernel_training.training(model, X, y, None, widen=True)
        with jax.enable_x64(True):
            base = kernel_training.base_of(model, data_)
            kernel, h = model._family(data_, np.arange(CLASSES), 2.0, base)
            stored.append(kernel.kernels(h).gram.stored is not None)
    assert stored == [False, True]
    pretend(2 * matrix)
    np.testing.assert_allclose(model.fit(X, y).objective_, expected, rtol=1e-6)
    whole = model.predict_proba(X)
    pretend(20_000)  # a prediction takes fewer rows at once
    np.testing.assert_allclose(model.predict_proba(X), whole, rtol=1e-9)


def test_lanes_of_solvers_say_it_too(pretend):
    X, y = data()
    targets = np.where(y[:, None] == np.arange(CLASSES), 1, -1)
    from xmcjax.losses import MARGIN_LOSSES

    problem = newton_cg.lane_problem(linops.make(X), targets, MARGIN_LOSSES["logistic"], tolerance=1e-3)
    pretend(1000)
    with pytest.raises(DeviceMemoryError, match=r"an iteration needs .* are free: fewer rows"):
        newton_cg.run(problem, newton_cg.HParams(), newton_cg.init(problem))


FAILS = {
    "multinomial": (multinomial_run._Run, "initial", "a fit", r'solver="block_newton" \(on the CPU\), fewer'),
    "kernel": (None, "run_to_excess", "a fit of kernels", "a smaller memory or rank"),
}


@pytest.mark.parametrize("system", FAILS)
@pytest.mark.parametrize("kind", [JaxRuntimeError, MemoryError])
def test_what_no_count_foresaw(system, kind, pretend, monkeypatch):
    """XLA's own error, and the one that stands for it where a computation is awaited."""
    from xmcjax.solvers import kernel_multinomial

    owner, name, what, remedy = FAILS[system]

    def full(*args, **options):
        error = JaxRuntimeError(FULL)
        if kind is MemoryError:
            raise MemoryError("Out of memory") from error
        raise error

    monkeypatch.setattr(owner or kernel_multinomial, name, full)
    X, y = data()
    pretend(3 << 20)
    said = (
        rf"ran out of memory during {what}: Out of memory while .* 9 bytes, and 3 MiB are free now: {remedy}"
    )
    with pytest.raises(DeviceMemoryError, match=said):
        SYSTEMS[system]().fit(X, y)
    pretend(None)  # a CPU
    with pytest.raises(MemoryError) as raised:
        SYSTEMS[system]().fit(X, y)
    assert type(raised.value) is MemoryError


def test_other_errors_stay():
    for error in (ValueError("of something else"), JaxRuntimeError("INTERNAL: broken"), MemoryError("numpy")):
        with pytest.raises(type(error), match=str(error)), device_memory.explained("a fit"):
            raise error
