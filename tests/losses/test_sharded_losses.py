"""Losses of scores on several devices, sharded by rows, by classes or by both, on meshes of every kind."""

import pytest

from tests.support.processes import run_program

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.support.losses import CASES, MULTILABEL, examples, signs
from xmcjax import losses, projections

KIND = AxisType.{kind}
mesh = jax.make_mesh((2, 3), ("rows", "classes"), axis_types=(KIND, KIND))
z, y = examples()
t = signs()
LOSSES = {{name: (case.f, y) for name, case in CASES.items()}}
LOSSES |= {{name: (f, t) for name, (f, *_) in MULTILABEL.items()}}
LOSSES["one_vs_all"] = lambda z, t: losses.one_vs_all(z, t, losses.squared_hinge), t
LOSSES["fenchel_young"] = lambda z, t: losses.fenchel_young(z, t / 2, projections.simplex), t

def same(ours, theirs, spec, *where):
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14, err_msg=str(where))
    if KIND == AxisType.Explicit:
        assert ours.sharding.spec == P(*spec), (where, ours.sharding.spec)

def put(a, *spec):
    return jax.device_put(a, NamedSharding(mesh, P(*spec)))

with jax.set_mesh(mesh):
    for name, (f, of) in LOSSES.items():
        both = jax.jit(lambda z, of: (f(z, of), jax.grad(lambda z: jnp.sum(f(z, of)))(z)))
        value, slope = both(z, of)
        for spec in (("rows", None), (None, "classes"), ("rows", "classes")):
            found = both(put(z, *spec), put(of, *(spec if of.ndim == 2 else spec[:1])))
            same(found[0], value, spec[:1], name, spec, "value")
            same(found[1], slope, spec, name, spec, "gradient")
        rows = put(z, "rows"), put(of, "rows")
        same(jax.jit(jax.vmap(f))(*rows), value, ["rows"], name, "vmap")
        split = jax.shard_map(f, in_specs=P("rows"), out_specs=P("rows"))
        same(jax.jit(split)(*rows), value, ["rows"], name, "shard_map")
        if KIND == AxisType.Explicit:
            batches = [jnp.stack([a, a]) for a in rows]
            twice = jax.jit(jax.vmap(split))(*batches)
            same(twice, np.stack([value, value]), (None, "rows"), name, "vmap of shard_map")
print("agree")
"""


@pytest.mark.parametrize("kind", ["Explicit", "Auto"])
def test_rows_of_losses_stay_where_they_are(kind, monkeypatch):
    # where rows lie does not depend on how well they are compiled
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    assert run_program(PROGRAM.format(kind=kind), devices=6) == "agree"
