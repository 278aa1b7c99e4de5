"""On a mesh of several devices: rows sharded by shard_map, classes sharded by the compiler."""

from __future__ import annotations

from tests.support.processes import run_program

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.support.losses import CASES, ROWS, compiled, compiled_conjugate, examples, mask

assert len(jax.devices()) == 4
rows, classes = Mesh(np.array(jax.devices()), ("rows",)), Mesh(np.array(jax.devices()[:3]), ("classes",))
some = Mesh(np.array(jax.devices()).reshape(2, 2), ("rows", "more"))
z, y = examples()
where = mask()
for name, case in CASES.items():
    value, slope = compiled(name)(z, y, where)

    def row_sums(z, y, where):
        value, slope = jax.value_and_grad(lambda z: jnp.sum(case.f(z, y, where=where)))(z)
        dual = case.conjugate(slope, y, where=where) if case.conjugate else jnp.zeros(y.shape)
        return jax.lax.psum(value, "rows"), slope, dual

    specs = P("rows"), P("rows"), P("rows")
    results = P(), P("rows"), P("rows")
    # over all axes of a mesh, and over one of them
    for mesh in (rows, some) if name == "ordered_hinge" else (rows,):
        split = jax.shard_map(row_sums, mesh=mesh, in_specs=specs, out_specs=results, axis_names={"rows"})
        total, g, dual = jax.jit(split)(z, y, where)
        np.testing.assert_allclose(total, jnp.sum(value), rtol=1e-12)
        np.testing.assert_allclose(g, slope, rtol=1e-12, atol=1e-14)
        if case.conjugate:
            theirs = compiled_conjugate(name)(slope, y, where)
            np.testing.assert_allclose(dual, theirs, rtol=1e-12, atol=1e-14)

    if name not in ("crammer_singer", "topk_hinge_beta", "topk_entropy"):
        continue
    split = jax.device_put(z, NamedSharding(classes, P(None, "classes")))
    y_all, where_all = jax.device_put((y, where), NamedSharding(classes, P()))
    both = jax.jit(lambda z: (case.f(z, y_all, where=where_all),
                              jax.grad(lambda z: jnp.sum(case.f(z, y_all, where=where_all)))(z)))
    for a, b in zip(both(split), (value, slope), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
print("agree")
"""


def test_on_a_mesh():
    assert run_program(PROGRAM, devices=4) == "agree"
