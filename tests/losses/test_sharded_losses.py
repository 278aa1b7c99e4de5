"""Losses of scores on several devices, sharded by rows, by classes or by both, on meshes of every kind."""

import pytest

from tests.support.processes import run_program

PROGRAM = """
import os
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.support.losses import CASES, MULTILABEL, compiled, compiled_conjugate, examples, mask, signs
from xmcjax import losses, projections

z, y = examples()
t, where = signs(), mask()
LOSSES = {name: (case.f, y) for name, case in CASES.items()}
LOSSES |= {name: (f, t) for name, (f, *_) in MULTILABEL.items()}
LOSSES["one_vs_all"] = lambda z, t: losses.one_vs_all(z, t, losses.squared_hinge), t
LOSSES["fenchel_young"] = lambda z, t: losses.fenchel_young(z, t / 2, projections.simplex), t
SPECS = ("rows", None), (None, "classes"), ("rows", "classes")
MESHES = {
    kind: jax.make_mesh((2, 3), ("rows", "classes"), axis_types=(kind, kind))
    for kind in (AxisType.Explicit, AxisType.Auto)
}
# one of each algorithm: the others are compiled for long, and tell no more where the compiler decides
AUTO = ("crammer_singer", "topk_hinge_beta", "smooth_topk_hinge_alpha", "softmax_cross_entropy",
        "topk_entropy", "ordered_hinge")

for name, (f, of) in LOSSES.items():
    if os.environ["LOSSES"] == "some" and name not in AUTO and name in CASES:
        continue

    def both(z, of):
        return f(z, of), jax.grad(lambda z: jnp.sum(f(z, of)))(z)

    value, slope = jax.jit(both)(z, of)
    for kind, mesh in MESHES.items():
        explicit = kind == AxisType.Explicit
        if not explicit and name not in AUTO:
            continue

        def put(a, *spec):
            return jax.device_put(a, NamedSharding(mesh, P(*spec)))

        def same(ours, theirs, spec, *where):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14, err_msg=str((name, kind, where)))
            if explicit:
                assert ours.sharding.spec == P(*spec), (name, where, ours.sharding.spec)

        def every(sharded, rows):
            # one program of all: most of the time is what a program costs at least
            found = [both(*one) for one in sharded]
            split = jax.shard_map(f, in_specs=P("rows"), out_specs=P("rows"))
            found += [jax.vmap(f)(*rows), split(*rows), jax.vmap(jax.grad(f))(*rows)]
            if explicit:
                found.append(jax.vmap(split)(*(jnp.stack([a, a]) for a in rows)))
            return found

        with jax.set_mesh(mesh):
            sharded = [(put(z, *spec), put(of, *(spec if of.ndim == 2 else spec[:1]))) for spec in SPECS]
            found = jax.jit(every)(sharded, (put(z, "rows"), put(of, "rows")))
            for spec, (one, gradient) in zip(SPECS, found[:3], strict=True):
                same(one, value, spec[:1], spec, "value")
                same(gradient, slope, spec, spec, "gradient")
            same(found[3], value, ["rows"], "vmap")
            same(found[4], value, ["rows"], "shard_map")
            same(found[5], slope, ("rows", None), "vmap of the gradient")
            if explicit:
                same(found[6], np.stack([value, value]), (None, "rows"), "vmap of shard_map")

def check_masked(name, axes):
    # a mask, the conjugate, and sums over the rows of all devices; over one axis of a mesh or both
    case = CASES[name]

    def row_sums(z, y, where):
        value, slope = jax.value_and_grad(lambda z: jnp.sum(case.f(z, y, where=where)))(z)
        dual = case.conjugate(slope, y, where=where) if case.conjugate else jnp.zeros(y.shape)
        return jax.lax.psum(value, "rows"), slope, dual

    def whole(z, y, where):
        return case.f(z, y, where=where), jax.grad(lambda z: jnp.sum(case.f(z, y, where=where)))(z)

    mesh = MESHES[AxisType.Auto]
    results = P(), P("rows"), P("rows")
    split = jax.shard_map(row_sums, mesh=mesh, in_specs=P("rows"), out_specs=results, axis_names=axes)
    classes = jax.device_put(z, NamedSharding(mesh, P(None, "classes")))
    rest = jax.device_put((y, where), NamedSharding(mesh, P()))
    found = jax.jit(lambda rows, classes, rest: (*split(*rows), *whole(classes, *rest)))(
        (z, y, where), classes, rest
    )
    value, slope = compiled(name)(z, y, where)
    dual = compiled_conjugate(name)(slope, y, where) if case.conjugate else jnp.zeros(y.shape)
    expected = jnp.sum(value), slope, dual, value, slope
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14, err_msg=name)

for name in (*AUTO, "truncated_topk_entropy", "sparsemax", "lc_bound", "dm_bound"):
    check_masked(name, {"rows", "classes"})
check_masked("ordered_hinge", {"rows"})

# the ranks of many weights are found in another way
beta = jnp.linspace(1, 0.1, 70)
wide = jnp.asarray(np.random.default_rng(0).normal(size=(4, 72)))
slopes = jax.vmap(jax.grad(lambda z: losses.ordered_hinge(z, 0, beta)))
with jax.set_mesh(MESHES[AxisType.Explicit]):
    found = jax.jit(slopes)(jax.device_put(wide, P("rows")))
np.testing.assert_allclose(found, slopes(wide), rtol=1e-12)

# rows lie on Explicit axes, beside which others are Auto: a kernel cannot be called there
mixed = jax.make_mesh((2, 3), ("rows", "classes"), axis_types=(AxisType.Explicit, AxisType.Auto))
for name in ("topk_hinge", "topk_entropy", "smooth_topk_hinge"):
    f = jax.jit(lambda z, y: getattr(losses, name)(z, y, k=2))
    with jax.set_mesh(mixed):
        found = f(jax.device_put(wide, P("rows")), jax.device_put(jnp.arange(4), P("rows")))
    np.testing.assert_allclose(found, f(wide, jnp.arange(4)), rtol=1e-12)
print("agree")
"""


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_rows_of_losses_stay_where_they_are(which, monkeypatch):
    monkeypatch.setenv("LOSSES", which)
    # where rows lie does not depend on how well they are compiled
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    assert run_program(PROGRAM, devices=6) == "agree"
