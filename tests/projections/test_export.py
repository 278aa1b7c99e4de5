"""Projections and the losses on them as exported programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from xmcjax import losses, projections
from xmcjax.native import available, twins

X = np.random.default_rng(0).normal(size=(5, 6))
Y = np.arange(5)
FUNCTIONS = {
    "simplex": projections.simplex,
    "capped_simplex": lambda x: projections.capped_simplex(x, 1.0, 0.4),
    "topk_simplex": lambda x: projections.topk_simplex(x, 2),
    "smooth_topk_hinge": jax.grad(lambda x: jnp.sum(losses.smooth_topk_hinge(x, Y, 2))),
}


@pytest.mark.parametrize("platforms", [None, ["cuda", "cpu"]])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_twins_can_be_exported(name, platforms):
    f = jax.jit(FUNCTIONS[name])
    expected = f(X)  # traced and compiled with native calls, where there are any
    with twins():
        program = export.export(f, platforms=platforms)(X)
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
