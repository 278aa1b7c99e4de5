"""Solvers that visit one row after another stay on the native kernels of the CPU where a GPU is the default.

The GPU is pretended: the one place that asks JAX for its default device is told so, and new arrays are the
CPU's only in a context that says so. What would go to a GPU runs on the twins, so that a solver that takes
them is seen.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import InPlace, platforms, solver_paths
from xmcjax import linops, solvers
from xmcjax.estimators import (
    KernelLogisticClassifier,
    MulticlassSVC,
    MultinomialLogisticRegression,
    OneVsAllClassifier,
    TopKSVC,
)
from xmcjax.solvers import multiclass_dual, topk_sdca
from xmcjax.solvers.multinomial import auto

pytestmark = pytest.mark.skipif(not linops.native_ready(), reason="no kernels")


@pytest.fixture
def calls(monkeypatch):
    """What is native while there is a GPU: names of calls in place, and of lanes whose epochs are calls."""
    made: list[str] = []
    plain, problem = InPlace.__init__, topk_sdca.problem

    def noted(self, name, *args, **fields):
        made.append(name)
        plain(self, name, *args, **fields)

    def noted_of_lanes(*args, **given):
        lanes = problem(*args, **given)
        made.append("lanes" if lanes.rows is None else "lanes in plain JAX")
        return lanes

    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    monkeypatch.setattr(InPlace, "__init__", noted)
    monkeypatch.setattr(topk_sdca, "problem", noted_of_lanes)
    return made


def data(sparse: bool, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(60, 8)).astype(np.float32), np.arange(60) % 4
    X[np.arange(60), y] += 1
    return (sp.csr_matrix(X * (np.abs(X) > 0.5)) if sparse else X), y


def test_what_the_default_platform_is(monkeypatch):
    assert platforms.default_platform() == "cpu"
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    assert platforms.default_platform() == "gpu" and not linops.native_ready()
    with platforms.on_host():
        assert platforms.default_platform() == "cpu" and linops.native_ready()
    with jax.default_device(jax.devices("cpu")[0]):
        assert linops.native_ready()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("estimator", "call"),
    [
        *((MulticlassSVC(formulation=f), "multiclass_new") for f in ("ww", "cs", "llw")),
        (MulticlassSVC(formulation="ovr"), "separate_new"),
        (TopKSVC(k=2), "lanes"),
        (TopKSVC(k=2, variant="entropy"), "lanes"),
    ],
    ids=["ww", "cs", "llw", "ovr", "alpha", "entropy"],
)
def test_estimators_of_dual_variables(estimator, call, sparse, calls):
    X, y = data(sparse)
    estimator.fit(X, y)
    assert call in calls and "lanes in plain JAX" not in calls
    assert estimator.reason_.endswith(f"on the CPU, because {platforms.SEQUENTIAL}")


@pytest.mark.parametrize("estimator", [MulticlassSVC(solver="admm"), TopKSVC(solver="admm", k=2)])
def test_steps_for_all_rows_at_once_are_the_device_s(estimator, calls):
    X, y = data(False)
    estimator.fit(X, y)
    assert not calls
    assert "because" not in estimator.reason_  # why it would be on the CPU


def test_multinomial_dual_ascent(calls):
    X, y = data(True)
    found = MultinomialLogisticRegression(solver="dual").fit(X, y)  # an error without native calls
    assert found.reason_.endswith(f"on the CPU, because {auto.WHY}")


@pytest.mark.parametrize("sparse", [False, True])
def test_small_and_sparse_multinomial_problems_compile_no_program_for_a_gpu(sparse, calls):
    X, y = data(sparse)
    found = MultinomialLogisticRegression().fit(X, y)
    assert "block" in found.reason_ and "on the CPU" in found.reason_


@pytest.mark.parametrize(
    ("size", "kernels", "free", "where"),
    [
        (1 << 27, True, 1 << 34, "gpu"),  # naics2017 is one: 83,958 numbers by 1,055 classes
        (1 << 26, True, 1 << 34, "cpu"),
        (1 << 27, False, 1 << 34, "cpu"),
        (1 << 27, True, 1 << 33, "cpu"),
        (1 << 27, True, None, "cpu"),
    ],
)
def test_large_sparse_multinomial_problems_are_the_device_s_where_it_has_kernels_and_memory(
    size, kernels, free, where, monkeypatch
):
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    monkeypatch.setattr(auto, "gpu_ready", lambda: kernels)
    monkeypatch.setattr(auto, "free_memory", lambda: free)
    with auto.placed("auto", True, size, 1 << 30):
        assert platforms.default_platform() == where


def test_large_dense_multinomial_problems_are_the_device_s(monkeypatch):
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    with auto.placed("auto", False, 1 << 40):
        assert platforms.default_platform() == "gpu"
    with auto.placed("newton", True, 1):
        assert platforms.default_platform() == "gpu"


@pytest.mark.parametrize("kind", ["sparse", "dense", "gram"])
def test_lanes_of_dual_variables_are_the_host_s(kind, calls):
    X, y = data(kind == "sparse")
    if kind == "gram":
        op = topk_sdca.Gram(jax.numpy.asarray(X @ X.T))
    else:
        op = linops.make(X)
        assert not getattr(op, "native", False)
    solver = solvers.SOLVERS["instance_dual"]
    problem = topk_sdca.problem(op, y, [1, 2], [1.0, 0.1])
    assert calls == ["lanes"]
    assert all(a.committed for a in jax.tree.leaves(problem) if isinstance(a, jax.Array))
    found = solver.run(problem, solver.hparams(tol=1e-2))
    assert np.all(np.asarray(found.status) == solvers.Status.CONVERGED)


def test_an_operator_on_a_gpu_may_be_asked_for_in_plain_jax(calls):
    X, y = data(True)
    topk_sdca.problem(linops.make(X), y, backend="jnp")
    assert calls == ["lanes in plain JAX"]


def test_the_protocol_of_multi_class_problems(calls):
    X, y = data(True)
    solver = solvers.SOLVERS["multiclass_dual"]
    solver.run(solver.problem(X, y, C=1.0), solver.hparams())
    assert "multiclass_new" in calls


def test_the_same_bits_as_without_a_gpu(monkeypatch):
    X, y = data(True)
    without = multiclass_dual.run(X, y, C=1.0).W
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(multiclass_dual.run(X, y, C=1.0).W, without)


@pytest.mark.parametrize(
    ("estimator", "where"),
    [
        (OneVsAllClassifier(verbose=1), "; one device of gpu: "),
        (MultinomialLogisticRegression("newton", verbose=1), "; newton was asked for; on the gpu\n"),
        (KernelLogisticClassifier(verbose=1), "needs the fewest products; on the gpu\n"),
    ],
    ids=["one_vs_all", "multinomial", "kernel"],
)
def test_a_fit_says_that_it_ran_on_the_device(estimator, where, monkeypatch, capsys):
    X, y = data(False)
    estimator.fit(X, y)
    alone = capsys.readouterr().err
    assert alone.count("\n") == 1 and "gpu" not in alone
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    estimator.fit(X, y)
    assert where in capsys.readouterr().err


def test_info_says_what_runs_where(monkeypatch):
    assert solver_paths() == {}
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    paths = solver_paths()
    assert paths["multi-class, multi-label and top-k SVMs"].startswith("C++ kernels on the CPU")
    assert paths["prediction"] == "plain JAX on the gpu"
