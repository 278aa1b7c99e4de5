"""Losses and their gradients as exported programs, of which each platform gets its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from tests.support.losses import CASES, MULTILABEL, M, examples, signs
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


@pytest.mark.parametrize("name", [*CASES, *MULTILABEL])
def test_sizes_may_be_symbols(name):
    n, m = export.symbolic_shape("n, m")
    several = name in MULTILABEL
    f = MULTILABEL[name][0] if several else CASES[name].f
    for classes in (M, m) if several else (M,):
        z = jax.ShapeDtypeStruct((n, classes), jnp.float32)
        truth = jax.ShapeDtypeStruct(z.shape if several else (n,), jnp.int32)
        for shape in ((n, classes), (1, classes), (classes,), (1,)):
            where = jax.ShapeDtypeStruct(shape, bool)
            assert jax.eval_shape(lambda z, t, where: f(z, t, where=where), z, truth, where).shape == (n,)
        with pytest.raises(ValueError, match="expected a mask where that broadcasts to"):
            jax.eval_shape(lambda z, t: f(z, t, where=np.ones((2, M), bool)), z, truth)


def test_a_program_of_any_number_of_rows_takes_a_mask():
    z, y = examples(dtype=np.float32)
    where = np.arange(M) % 3 > 0
    f = jax.jit(lambda z, y: losses.softmax_cross_entropy(z, y, where=where))
    (n,) = export.symbolic_shape("n")
    program = export.export(f)(*(jax.ShapeDtypeStruct((n, *a.shape[1:]), a.dtype) for a in (z, y)))
    np.testing.assert_array_equal(program.call(z, y), f(z, y))
