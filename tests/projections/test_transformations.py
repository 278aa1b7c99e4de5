"""No NaN at the kinks, programs that are compiled once, and exported ones."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from tests.support.projections import SETS, Problem, project
from xmcjax import losses, projections
from xmcjax.native import available, twins

M, K = 9, 3


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "b",
    [np.zeros(M), np.ones(M), -np.ones(M), np.repeat([2.0, 1.0, 0.0], 3), np.eye(M)[0]],
    ids=["zero", "one", "negative", "ties", "unit"],
)
def test_finite_at_the_kinks(name, b):
    one = np.float64(1.0)
    problem = Problem(b, one, np.float64(0.0), np.float64(1 / 3), one, K)
    gradient = jax.grad(lambda b: (project(name, problem._replace(b=b)) ** 2).sum())(jnp.asarray(b))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("where", [contextlib.nullcontext, twins], ids=["public", "twin"])
def test_one_program_of_a_shape_takes_every_k_of_the_bound(where, compilations):
    b = jnp.asarray([[9.0, 8, 7, 6, 0, 0, 0], [6, 9, 7, 8, 0, 0, 0]])

    def solve(k):
        return projections.topk_simplex(b, k, variant="beta").block_until_ready()

    with where():
        solve(2)
        assert not compilations(lambda: [solve(3), solve(4)])
        for k in (3, 4):
            expected = np.where(b >= 10 - k, 1 / k, 0)
            np.testing.assert_allclose(solve(k), expected, rtol=1e-6)


X = np.random.default_rng(0).normal(size=(5, 6))
Y = np.arange(5)
FUNCTIONS = {
    "simplex": projections.simplex,
    "capped_simplex": lambda x: projections.capped_simplex(x, 1.0, 0.4),
    "topk_simplex": lambda x: projections.topk_simplex(x, 2),
    "smooth_topk_hinge": jax.grad(lambda x: jnp.sum(losses.smooth_topk_hinge(x, Y, 2))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_twins_can_be_exported(name):
    f = jax.jit(FUNCTIONS[name])
    expected = f(X)  # traced and compiled with native calls, where there are any
    with twins():
        program = export.export(f, platforms=["cuda", "cpu"])(X)
    assert "xmcjax" not in program.mlir_module()
    np.testing.assert_allclose(program.call(X), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.skipif(not available(), reason="no native kernels")
def test_after_the_context_native_calls_are_back():
    f = jax.jit(projections.simplex)
    with twins():
        assert not available() and "xmcjax" not in f.lower(X).as_text()
    assert available() and "xmcjax_project_box" in f.lower(X).as_text()
    with pytest.raises(ValueError, match="Cannot serialize code with custom calls"):
        export.export(f)(X)
