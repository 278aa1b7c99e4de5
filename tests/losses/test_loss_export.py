"""Losses and their gradients as exported programs, of which each platform gets its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from tests.support.losses import CASES, MULTILABEL, examples, signs
from xmcjax import losses, projections
from xmcjax.native import twins

# one of each algorithm
NAMES = ["crammer_singer", "topk_hinge_beta", "smooth_topk_hinge_alpha", "topk_entropy"]
NAMES += ["truncated_topk_entropy", "ordered_hinge"]
LOSSES = {name: (CASES[name].f, examples()[1]) for name in NAMES}
LOSSES["multilabel_cross_entropy"] = MULTILABEL["multilabel_cross_entropy"][0], signs()
LOSSES["fenchel_young"] = lambda z, t: losses.fenchel_young(z, t / 2, projections.simplex), signs()


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_can_be_exported(name):
    f, truth = LOSSES[name]
    both = jax.jit(lambda z, of: (f(z, of), jax.grad(lambda z: jnp.sum(f(z, of)))(z)))
    z = examples()[0]
    expected = both(z, truth)  # by native calls, where there are any
    with twins():
        program = export.export(both, platforms=["cuda", "cpu"])(z, truth)
    assert "xmcjax" not in program.mlir_module()
    read_back = export.deserialize(program.serialize())
    for found, value in zip(read_back.call(z, truth), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-14)
