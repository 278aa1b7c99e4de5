"""Programs for a described GPU with projections of xmcjax-cuda: one call, and no loop of unknown length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import cuda_builds, gpu_targets
from tests.support.gpu_programs import DENSE, N, checked, features
from tests.support.internals import cuda
from xmcjax import native, projections
from xmcjax.solvers import admm


@pytest.fixture(autouse=True)
def kernels(a_gpu, monkeypatch):
    """They are said to be installed; what is traced with them is not used without."""
    cuda_builds.register_for_gpus()
    monkeypatch.setattr(cuda, "_absence", lambda: "")
    jax.clear_caches()
    yield
    jax.clear_caches()


SETS = {
    "simplex": (projections.simplex, "box"),
    "capped_simplex": (lambda x: projections.capped_simplex(x, 1.0, 0.3), "box"),
    "knapsack": (lambda x: projections.knapsack(x, 1.0, -0.1, 0.4), "box"),
    "weighted": (lambda x: projections.knapsack(x, 1.0, -0.1, 0.4, jnp.abs(x) + 1), "weighted"),
    "topk_cone": (lambda x: projections.topk_cone(x, 3), "topk"),
    "topk_simplex": (lambda x: projections.topk_simplex(x, 3, rho=1.0), "topk"),
    "beta": (lambda x: projections.topk_simplex(x, 3, variant="beta"), "box"),
}


@pytest.mark.parametrize("name", SETS)
def test_a_projection_is_one_call(name):
    """With its derivative, and for vectors that vmap maps."""
    project, kernel = SETS[name]
    x = jnp.ones((4, 50, 20), jnp.float32)
    for work in (project, jax.vmap(jax.vmap(project, 1, 1)), lambda x: jax.vjp(project, x)[1](x)):
        text = checked(jax.jit(work), "h200", x)
        assert gpu_targets.custom_calls(text) == [f"xmcjax_cuda_project_{kernel}"]
        assert " while(" not in text and " sort(" not in text
        assert gpu_targets.atomics(text) == 0


def test_a_few_long_vectors_are_left_to_plain_jax():
    x = jnp.ones((3, 1 << 21), jnp.float32)
    assert gpu_targets.custom_calls(checked(jax.jit(projections.simplex), "h200", x)) == []
    with native.twins():
        assert gpu_targets.custom_calls(checked(jax.jit(projections.simplex), "h200", x[:, :9])) == []


# Each lane of a step of ADMM has one, if its rows are coupled.
STEPS = {
    "cs": "box",
    "ww": "box",
    "topk_alpha": "topk",
    "topk_beta": "box",
    "ovr": None,
    "llw": None,
}


@pytest.mark.parametrize("formulation", STEPS)
def test_a_step_of_admm(formulation):
    lanes, m = 4, 7
    k = 3 if formulation.startswith("topk") else 1
    problem = admm.problem(features(DENSE), np.arange(N) % m, formulation=formulation, k=k, C=np.ones(lanes))
    text = checked(jax.jit(admm.step), "h200", problem, admm.HParams(), admm.init(problem))
    projection = [f"xmcjax_cuda_project_{STEPS[formulation]}"] if STEPS[formulation] else []
    # and the k largest, of the losses that a check adds up, and of those that it tries
    largest = ["xmcjax_cuda_topk"] * (2 if formulation.startswith("topk") else 0)
    assert sorted(gpu_targets.custom_calls(text)) == projection + largest
    # the loop that is left is over the factors which a check tries, and their number is known
    assert all("known_trip_count" in line for line in text.splitlines() if " while(" in line)
