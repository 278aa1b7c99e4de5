"""The k largest of each row by the kernel in CUDA, compiled for the CPU: to the bit what XLA finds there."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import cuda_builds
from tests.support.internals import cuda, entropic
from tests.support.processes import run_program
from xmcjax import losses, native, projections

DTYPES = [np.float32, np.float64]
# a few, those of a warp and of a pack more or less, read entry by entry and in packs, in chunks and parts
LENGTHS = (1, 2, 5, 31, 32, 33, 101, 256, 257, 258, 1000, 1023, 1025, 2050, 8195, 40_003)
SPECIAL = np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1.0])


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    cuda_builds.found_by_kernel(monkeypatch)


def of_key(number, dtype):
    """The number with the bits of that integer, which fits into 32 bits or is their most."""
    whole = np.dtype(f"i{np.dtype(dtype).itemsize}")
    return whole.type(np.iinfo(whole).max if number is None else number).view(dtype)


ROWS = {
    "random": lambda rng, shape, dtype: rng.normal(size=shape),
    "tied": lambda rng, shape, dtype: rng.integers(-2, 3, shape),
    "rising": lambda rng, shape, dtype: np.sort(rng.normal(size=shape), axis=1),
    "falling": lambda rng, shape, dtype: -np.sort(rng.normal(size=shape), axis=1),
    "constant": lambda rng, shape, dtype: np.full(shape, rng.normal()),
    "nothing but one": lambda rng, shape, dtype: np.where(np.arange(shape[1]) == shape[1] // 2, 1, -np.inf),
    "special": lambda rng, shape, dtype: rng.choice(SPECIAL, shape),
    "bits": lambda rng, shape, dtype: np.frombuffer(
        rng.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype
    ).reshape(shape),
    # NaN of the least and of the most key
    "least": lambda rng, shape, dtype: np.where(rng.random(shape) < 0.1, 0, of_key(-1, dtype)),
    "most": lambda rng, shape, dtype: np.full(shape, of_key(None, dtype)),
}


def rows(kind, shape, dtype, seed=0):
    made = np.asarray(ROWS[kind](np.random.default_rng(seed), shape, dtype), dtype)
    return np.ascontiguousarray(np.broadcast_to(made, shape))


def check(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ROWS)
def test_every_order_of_rows(kind, dtype):
    for m in LENGTHS:
        a = rows(kind, (3, m), dtype, m)
        for k in sorted({1, min(5, m), min(cuda.MOST_BEST, m)}):
            check(cuda.cuda_topk(a, k), jax.lax.top_k(a, k))


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_in_any_company(dtype):
    """The numbers of a row do not depend on the rows around it, nor on the parts in which it is read."""
    a = rows("random", (70, 10_001), dtype)
    whole = cuda.cuda_topk(a, 7)
    check(whole, jax.lax.top_k(a, 7))
    check(cuda.cuda_topk(a[40:41], 7), [one[40:41] for one in whole])
    check(cuda.cuda_topk(a.reshape(7, 10, -1), 7), [one.reshape(7, 10, 7) for one in whole])
    check(cuda.cuda_topk(a[:0], 7), [one[:0] for one in whole])


@pytest.mark.parametrize("n", [0, 1, 3, 2000, 10**6])
@pytest.mark.parametrize("m", [1, 1000, 8191, 8192, 131_072, 10**7, 2**30])
def test_parts_cover_a_row(n, m):
    parts, length = cuda.parts_of_row(n, m)
    assert (parts - 1) * length < m <= parts * length
    if parts > 1:
        assert m - (parts - 1) * length >= cuda.MOST_BEST and length % 4 == 0
        assert (parts - 1) * n <= cuda.WARPS  # no more than the warps that are wanted
    if n == 2000 and m == 131_072:
        assert n * parts > cuda.WARPS


def test_numbers_that_do_not_fit_are_refused():
    """By the library itself, which else would read beyond them."""
    a = jnp.ones((2, 10), jnp.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="do not fit"):
        cuda.cuda_topk(a, 33)
    with pytest.raises(jax.errors.JaxRuntimeError, match="do not fit"):
        cuda.cuda_topk(a, 11)
    with pytest.raises(jax.errors.JaxRuntimeError, match="float32 or float64"):
        cuda.cuda_topk(a.astype(jnp.int32), 3)


def test_the_numbers_of_the_kernel_are_those_of_python():
    text = (cuda_builds.SOURCES / "topk.h").read_text()
    assert "kMostBest = kWarp" in text and cuda.MOST_BEST == cuda.TILE


def calls(function, *args) -> int:
    return jax.jit(function).lower(*args).as_text().count("xmcjax_cuda_topk")


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_it_is_used(dtype):
    a = rows("random", (4, 50), dtype)
    find = functools.partial(native.topk, k=32)
    assert calls(find, a) == 1
    with native.twins():
        assert calls(find, a) == 0
    assert calls(functools.partial(native.topk, k=33), a) == 0
    assert calls(find, a.astype(np.float16)) == 0
    check(native.topk(a, 33), jax.lax.top_k(a, 33))
    # one call of all rows under vmap, whatever is mapped
    a = a.reshape(2, 2, 50)
    for axes in (0, 1):
        mapped = jax.vmap(find, in_axes=axes)
        assert calls(mapped, a) == 1 and "while" not in jax.jit(mapped).lower(a).as_text()
        check(mapped(a), jax.vmap(lambda a: jax.lax.top_k(a, 32), axes)(a))


def test_derivatives():
    a, c = rows("random", (6, 40), np.float64), rows("random", (6, 4), np.float64, 1)
    theirs = lambda a: jax.lax.top_k(a, 4)[0]  # noqa: E731
    for ours in (lambda a: native.topk(a, 4)[0], lambda a: native.topk_values(a, 4)):
        slopes = (jax.jit(jax.grad(lambda a, f=f: jnp.sum(f(a) * c)))(a) for f in (ours, theirs))
        check([next(slopes)], [next(slopes)])
        direction = rows("random", a.shape, np.float64, 2)
        check(*(jax.jvp(f, (a,), (direction,)) for f in (ours, theirs)))
        mapped = (jax.vmap(jax.grad(lambda a, f=f: f(a)[1]))(a) for f in (ours, theirs))
        check([next(mapped)], [next(mapped)])


LOSSES = {
    "alpha": lambda z, y: losses.topk_hinge(z, y, 3),
    "beta": lambda z, y: losses.topk_hinge(z, y, 3, "beta"),
    "masked": lambda z, y: losses.topk_hinge(z, y, 3, where=z[0] < 1),
    "open": lambda z, y: losses.topk_hinge(z, y, 3, where=jnp.ones(z.shape, bool)),
    "entropy, open": lambda z, y: losses.topk_entropy(z, y, 4, where=jnp.ones(z.shape, bool)),
    "entropy": lambda z, y: losses.topk_entropy(z, y, 4),
    "truncated": lambda z, y: losses.truncated_topk_entropy(z, y, 4),
    "ordered": lambda z, y: losses.ordered_hinge(z, y, np.array([1.0, 0.5, 0.25])),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, dtype):
    """Values, gradients and tangents by the kernel and by XLA, of one row after another too."""
    y = jnp.arange(23) % 37
    loss = LOSSES[name]

    def all_of(z):
        slope = jax.grad(lambda z: jnp.sum(loss(z, y)))(z)
        return loss(z, y), slope, jax.jvp(lambda z: loss(z, y), (z,), (slope + 1,))[1]

    by_kernel, by_xla = jax.jit(all_of), jax.jit(lambda z: all_of(z))
    row_by_row = jax.jit(jax.vmap(jax.value_and_grad(loss)))
    for kind in ("random", "tied", "constant"):
        z = jnp.asarray(rows(kind, (23, 37), dtype, 5))
        assert kind != "random" or calls(all_of, z) > 0
        found = by_kernel(z)
        with native.twins():
            expected = by_xla(z)
        for ours, theirs in zip(found, expected, strict=True):
            tight = 1e-6 if dtype == np.float32 else 1e-13
            np.testing.assert_allclose(ours, theirs, rtol=tight, atol=tight, err_msg=kind)
        if name != "masked":
            mapped = row_by_row(z, y)
            for ours, theirs in zip(mapped, expected[:2], strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "masked"])
def test_losses_hand_on_nan_of_either_sign(name, dtype):
    z, y = rows("random", (4, 37), dtype, 5), jnp.arange(4)
    for sign in (1, -1):
        bad = z.copy()
        bad[:, 9] = np.copysign(dtype(np.nan), dtype(sign))
        assert np.isnan(jax.jit(LOSSES[name])(bad, y)).all()


def test_projections_and_their_derivatives():
    x, c = (jnp.asarray(rows("random", (19, 43), np.float64, seed)) for seed in (0, 1))
    for work in (
        lambda x: projections.topk_simplex(x, 3),
        lambda x: projections.topk_cone(x, 16, 1.0),
        lambda x: projections.topk_cone(x[:, :4], 4) @ jnp.ones((4, 43)),
    ):

        def both(x, work=work):
            p, back = jax.vjp(work, x)
            return p, back(c)[0]

        found = jax.jit(both)(x)
        with native.twins():
            expected = jax.jit(both)(x)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_entropic_projection():
    a = jnp.asarray(rows("random", (11, 29), np.float64))
    find = jax.jit(lambda a: entropic.entropic(a, jnp.full((11, 1), 0.5), 3))
    assert calls(find, a) == 1
    found = find(a)
    with native.twins():
        np.testing.assert_allclose(found, find(a), rtol=1e-12, atol=1e-12)


PROGRAM = """
import jax, jax.numpy as jnp, numpy as np, pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.support import cuda_builds
from xmcjax import losses, native

cuda_builds.found_by_kernel(pytest.MonkeyPatch())
a = np.random.default_rng(0).normal(size=(8, 50)).astype(np.float32)
y = np.arange(8)
expected = jax.lax.top_k(a, 5)

def same(found):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)

find = lambda a: native.topk(a, 5)
with native.twins():
    hinge = losses.topk_hinge(a, y, 3)
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((2, 2), ("rows", "classes"), axis_types=(kind, kind))
    with jax.set_mesh(mesh):
        for spec in (P("rows", None), P(("rows", "classes"), None), P("rows", "classes")):
            placed = jax.device_put(a, NamedSharding(mesh, spec))
            program = jax.jit(find).lower(placed).compile()
            text = program.as_text()
            assert "xmcjax_cuda_topk" in text
            if spec[1] is None:  # rows stay where they are
                assert "all-gather" not in text and "all-reduce" not in text
            found = program(placed)
            same(found)
            assert found[0].sharding.is_equivalent_to(NamedSharding(mesh, P(spec[0], None)), 2)
            loss = jax.jit(lambda a: losses.topk_hinge(a, y, 3))(placed)
            np.testing.assert_allclose(loss, hinge, rtol=1e-6)
        placed = jax.device_put(a, NamedSharding(mesh, P("rows", None)))
        split = jax.shard_map(find, in_specs=P("rows"), out_specs=P("rows"))
        same(jax.jit(split)(placed))
        same([one[0] for one in jax.jit(jax.vmap(find))(placed[None])])
print("agree")
"""


def test_rows_on_several_devices():
    assert run_program(PROGRAM, devices=4) == "agree"
