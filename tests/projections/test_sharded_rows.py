"""Vectors on several devices: every device projects its own, on meshes of every kind."""

from __future__ import annotations

import pytest

from tests.support.processes import run_program
from xmcjax.linops import native_ready

PROGRAM = """
import os, re
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from xmcjax import losses, projections

NATIVE = os.environ.get("XMCJAX_NATIVE") != "0"
x = np.random.default_rng(0).normal(size=(4, 6, 8))
r = np.random.default_rng(1).uniform(0.5, 2, (4, 6))
y = np.random.default_rng(2).integers(0, 8, (4, 6))
FUNCTIONS = dict(
    simplex=projections.simplex,
    radii=lambda x: projections.simplex(x, jnp.asarray(r)),
    own_radii=lambda x: projections.simplex(x, jnp.max(jnp.abs(x), axis=-1)),
    capped=lambda x: projections.capped_simplex(x, 1.0, 0.4),
    knapsack=lambda x: projections.knapsack(x, 0.0, -1.0, 1.0),
    cone=lambda x: projections.topk_cone(x, 2),
    alpha=lambda x: projections.topk_simplex(x, 2, rho=1.0),
    beta=lambda x: projections.topk_simplex(x, 2, variant="beta"),
)
if not NATIVE:  # programs that compile for long, and of which one of each algorithm tells as much
    FUNCTIONS = {name: FUNCTIONS[name] for name in ("own_radii", "alpha")}

PLAIN = {}  # the same function of an array on one device, compiled once

def spec_of(array):
    return [*array.sharding.spec, *[None] * (array.ndim - len(array.sharding.spec))]

def same(ours, theirs, spec):
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    assert spec_of(ours) == spec, (spec_of(ours), spec)

def slope_of(f):
    return jax.grad(lambda x: jnp.sum(f(x) ** 2))

def check(name, spec, gathers=False):
    f = FUNCTIONS[name]
    xs = jax.device_put(x, NamedSharding(mesh, P(*spec)))
    compiled = jax.jit(f).lower(xs).compile()
    same(compiled(xs), PLAIN[name][0], spec)
    same(jax.jit(slope_of(f))(xs), PLAIN[name][1], spec)
    if gathers or not NATIVE:  # XLA gathers for the top_k of the twins
        return
    moved = re.findall("all-gather|all-to-all|collective-permute", compiled.as_text())
    assert not moved, moved

def rows_stay(kind):
    # where the compiler says where rows lie, one of each algorithm tells as much
    names = FUNCTIONS if kind == AxisType.Explicit else FUNCTIONS.keys() & {"radii", "own_radii", "alpha"}
    with jax.set_mesh(mesh):
        for name in names:
            check(name, ["rows", None, None], gathers=name == "radii")
        for spec in ([None, "more", None], [("rows", "more"), None, None], [None, None, None]):
            check("own_radii", spec)
        check("own_radii", ["rows", None, "more"], gathers=True)
        spec = ["rows", None, None]
        xs = jax.device_put(x, NamedSharding(mesh, P("rows")))
        f, plain = FUNCTIONS["own_radii"], PLAIN["own_radii"]
        same(f(xs), plain[0], spec)
        np.testing.assert_allclose(jax.jit(jax.vmap(f, 1, 1))(xs), plain[0], rtol=1e-12, atol=1e-14)
        # what vmap takes from an array that is sharded
        for name in ("own_radii", "alpha"):
            same(jax.jit(jax.vmap(jax.vmap(FUNCTIONS[name])))(xs), PLAIN[name][0], spec)
        same(jax.vmap(f)(xs), plain[0], spec)
        same(jax.jit(jax.vmap(slope_of(f)))(xs), plain[1], spec)
        tangent = jax.jit(lambda x: jax.jvp(f, (x,), (x,))[1])
        same(tangent(xs), tangent(x), spec)
        ys = jax.device_put(y, NamedSharding(mesh, P("rows")))
        value, slope = jax.jit(LOSS)(xs, ys)
        same(value, PLAIN["loss"][0], [])
        same(slope, PLAIN["loss"][1], spec)
        same(jax.jit(ROWS)(xs, ys), PLAIN["rows"], spec[:2])

    # In shard_map, over all axes and over one of them
    for axes in ({"rows"}, {"rows", "more"}):
        for name in ("whole", "weighted"):
            split = jax.shard_map(
                WHOLE[name], mesh=mesh, in_specs=P("rows"), out_specs=P("rows"), axis_names=axes
            )
            with jax.set_mesh(mesh):
                there = jax.device_put(x, NamedSharding(mesh, P("rows")))
                np.testing.assert_allclose(jax.jit(split)(there), PLAIN[name], atol=1e-15)

LOSS = jax.value_and_grad(lambda x, y: jnp.sum(losses.smooth_topk_hinge(x, y, 2, 0.5)))
ROWS = jax.vmap(lambda x, y: losses.smooth_topk_hinge(x, y, 2, 0.5))
for name, f in FUNCTIONS.items():
    PLAIN[name] = jax.jit(f)(x), jax.jit(slope_of(f))(x)
PLAIN |= {"loss": jax.jit(LOSS)(x, y), "rows": jax.jit(ROWS)(x, y)}
WEIGHTS = jnp.arange(1.0, 1.0 + x.shape[-1])[None, None]
WHOLE = {"whole": projections.simplex, "weighted": lambda x: projections.knapsack(x, 1.0, 0.0, 0.5, WEIGHTS)}
PLAIN |= {name: jax.jit(f)(x) for name, f in WHOLE.items()}
for kind in (AxisType.Explicit, AxisType.Auto):
    mesh = jax.make_mesh((2, 2), ("rows", "more"), axis_types=(kind, kind))
    rows_stay(kind)
print("agree")
"""


@pytest.mark.parametrize(
    "native",
    [
        pytest.param("native", marks=pytest.mark.skipif(not native_ready(), reason="no kernels")),
        pytest.param("twins", marks=pytest.mark.slow),
    ],
)
def test_rows_stay_where_they_are(native, monkeypatch):
    if native == "twins":
        monkeypatch.setenv("XMCJAX_NATIVE", "0")
    # where rows lie does not depend on how well they are compiled
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    assert run_program(PROGRAM, devices=4) == "agree"
