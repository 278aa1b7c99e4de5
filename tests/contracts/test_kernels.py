"""What products with kernels keep where JAX is set or transformed in another way."""

from __future__ import annotations

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.sharding import PartitionSpec as P

from xmcjax import kernels
from xmcjax.kernels import RBF, Linear, Matern, Scaled
from xmcjax.native import twins
from xmcjax.solvers import kernel_multinomial

C, EDGES = 3, [(0, 1), (0, 2), (2, 3), (2, 4)]
X = np.random.default_rng(0).standard_normal((6, 3)) + 2
Y = np.arange(6) % C
# what makes base kernels, given a kernel and points
APPROXIMATIONS = {
    "stored": kernels.gram,
    "in tiles": lambda kernel, points: kernels.gram(kernel, points, memory=0),
    "low rank": lambda kernel, points: kernels.low_rank(kernel, points, 3, method="nystrom"),
    "fourier": lambda kernel, points: kernels.fourier(kernel, points, rank=8),
}
FAMILIES = {
    "independent": {},
    "loadings": {"loadings": np.ones((C, 2))},
    "tree": {"hierarchy": EDGES},
    "shared": {"share": [0, 1, 0]},
}


def total(kernel, made, S):
    base = dataclasses.replace(made.gram, kernel=kernel)
    return jnp.sum(dataclasses.replace(made, gram=base).matmat(S) ** 2)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("name", [*APPROXIMATIONS, "through features"])
def test_products_do_not_depend_on_rank_promotion(name, form):
    """Shapes tell: what is compiled is not run."""
    S = jax.ShapeDtypeStruct((len(X), C, 2), jnp.float64)
    make = APPROXIMATIONS.get(name, APPROXIMATIONS["in tiles"])
    with jax.numpy_rank_promotion("raise"):
        points = kernels.points(form(X))
        test = kernels.points(form(X[:2] + 1), like=points)
        for family, options in FAMILIES.items():
            w = [1.0, 2.0] if family == "shared" else 1.0
            base = make(Scaled(w, Linear()) if name == "through features" else RBF(w), points)
            made = kernels.class_kernels(base, 1.5, 0.1, C, **options)
            for calls in (contextlib.nullcontext, twins):
                with calls():
                    jax.eval_shape(lambda made, S: made.matmat(S), made, S)
                    jax.eval_shape(lambda made, S: made.cross(test, S), made, S)
                    jax.eval_shape(jax.grad(total), base.kernel, made, S)
            jax.eval_shape(lambda made: made.gram.matrices(), made)
            problem = kernel_multinomial.kernel_problem(made, Y)
            assert kernel_multinomial.fit(problem, kernel_multinomial.HParams()).shape == (len(X), C, 1)


@pytest.mark.parametrize("name", ["stored", "in tiles", "fourier"])
def test_hyperparameters_may_vary_over_a_mesh(name):
    """In shard_map with its check, which looks at what loops begin with."""

    def value(w):
        base = APPROXIMATIONS[name](Matern(w), kernels.points(X))
        family = kernels.class_kernels(base, 1.5, 0.1, C)
        alpha = kernel_multinomial.fit(
            kernel_multinomial.kernel_problem(family, Y), kernel_multinomial.HParams()
        )
        return jnp.sum(base.matrices()), jnp.sum(family.matmat(alpha) ** 2)

    w = jnp.asarray([1.0, 2.0])
    both = jax.vmap(jax.value_and_grad(lambda w: sum(value(w))))
    mesh = jax.make_mesh((1,), ("w",), axis_types=(jax.sharding.AxisType.Auto,))
    sharded = jax.shard_map(both, mesh=mesh, in_specs=P("w"), out_specs=P("w"))
    for found, expected in zip(jax.jit(sharded)(w), jax.jit(both)(w), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
