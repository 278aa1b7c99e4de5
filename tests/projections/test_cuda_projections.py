"""The kernels in CUDA, compiled for the CPU: vectors of every length and kind against those of the CPU."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.projections.test_weighted import cases as weighted_cases
from tests.support import cuda_builds, cuda_projections
from tests.support.internals import box_projection, topk_projection
from tests.support.projections import COUPLED, SETS, Problem, cases, off_by, project, weighted_by_breakpoints
from tests.support.projections import compiled as of_problem
from xmcjax import native, projections
from xmcjax.native import available, twins


@pytest.fixture(autouse=True)
def kernels():
    cuda_builds.register()


pytestmark = pytest.mark.skipif(
    not available(), reason="the native library, which is compared, was not built"
)

# of warps with 1, 4, 8, 16 and 32 numbers of a thread, of blocks, in memory; in packs of 16 bytes and not
LENGTHS = [1, 2, 31, 32, 33, 128, 200, 300, 512, 1000, 1024, 1025, 5000, 100_003]
FEW = [33, 1024, 100_003]


def size_of(name: str, p: Problem, exact: np.ndarray) -> np.ndarray:
    """What errors are measured by, as in `test_optimality`."""
    scale = np.abs(exact).max(-1)
    coupled = name in COUPLED or name == "topk_simplex_beta"
    return np.maximum(scale, np.abs(p.b).max(-1)) if coupled else scale


@pytest.mark.parametrize(
    ("name", "m"),
    # every length for one set of each kernel
    [(name, m) for name in SETS for m in (LENGTHS if name in ("knapsack", "topk_simplex_alpha") else FEW)],
)
def test_every_length(name, m):
    ks = (1, min(5, m), m) if m < 300 else (5, 20)
    # each way of computing has every k, with one of its lengths or with several
    for k in ks if m in (*FEW, 200) else [ks[(LENGTHS.index(m) + 1) % len(ks)]]:
        p = cases(m, k, 40 if m < 1000 else 6, seed=m)
        x = of_problem("cuda", name, p)
        for i in range(len(x)):
            assert off_by(name, p.row(i), x[i]) < 1e-11
        narrow = p.astype(np.float32)
        narrow = narrow._replace(u=narrow.u * np.float32(1.0001))  # what rounding leaves of the set
        found = of_problem("cuda", name, narrow)
        exact = np.asarray(project(name, narrow.astype(np.float64)))
        assert found.dtype == np.float32
        assert (np.abs(found - exact).max(-1) <= 1e-5 * size_of(name, narrow, exact)).all()
        if not name.startswith("topk"):
            break


def nowhere(x, b):
    """Where vectors without a solution are: XLA for CPUs may overlook a NaN where it takes a maximum."""
    return np.broadcast_to(np.isnan(x).any(-1, keepdims=True) | np.isnan(b).any(-1, keepdims=True), b.shape)


def plain(projection, *arguments):
    with twins():
        return [np.asarray(a) for a in jax.jit(projection)(*arguments)]


@pytest.mark.parametrize(
    ("m", "dtype"),
    [(5, np.float32), (1024, np.float64), (3000, np.float64), (20_000, np.float64), (20_000, np.float32)],
)
def test_the_other_results(m, dtype):
    """Whether the sum is that of the radius, u, and NaN in the same vectors, as in plain JAX."""
    p = cases(m, 3, 40, seed=0).astype(dtype)
    b, near = p.b.copy(), 1e-5 if dtype == np.float32 else 1e-11
    b[3, 0], b[4, m // 2], b[5, 1:], b[6] = np.nan, np.inf, -np.inf, -np.inf
    r, rho = p.r.copy(), p.rho.copy()
    r[7], r[8], rho[9] = 0, -1, -1
    size = abs(np.where(np.isfinite(b), b, 0)).max(-1)
    for at_most in (False, True):
        l, u = (0 * r, p.u) if at_most else (p.l, p.u * dtype(1.0001))
        numbers = b, r, l, u, rho if at_most else 0 * rho
        how = {"at_most": at_most, "by_k": False}
        x, tight = native.projection("project_box", "cuda", **how)(*numbers, 0 * r)
        theirs = plain(functools.partial(box_projection, **how), *numbers, 0 * r)
        np.testing.assert_array_equal(np.isnan(x), nowhere(theirs[0], b))
        sums = np.asarray(x, np.float64).sum(-1)
        assert np.isfinite(sums).sum() > 20 and np.isnan(sums[[3, 4]]).all()
        off = abs(sums - r) > 1e-4 * (abs(r) + abs(u))
        assert not np.asarray(tight)[np.isnan(sums) | off].any()
        np.testing.assert_array_equal(np.asarray(tight)[off], theirs[1][off])
    for radius in (r, np.full_like(r, np.inf)):
        x, width, tight = native.projection("project_topk", "cuda", k=3)(b, radius, rho)
        theirs = plain(functools.partial(topk_projection, k=3), b, radius, rho)
        np.testing.assert_array_equal(np.isnan(x), nowhere(theirs[0], b))
        np.testing.assert_array_equal(np.isnan(width), nowhere(theirs[0], b)[:, 0])
        there = np.isfinite(width)
        assert (abs(width - theirs[1])[there] <= near * np.maximum(size, abs(theirs[1]))[there]).all()
        held = there & np.isfinite(radius)
        assert (np.asarray(x)[held].sum(-1) <= radius[held] * (1 + near) + near * size[held]).all()
        assert not np.asarray(tight)[~np.isfinite(radius)].any()


@pytest.mark.parametrize(("k", "dtype"), [(2, np.float32), (17, np.float32), (60, np.float64)])
def test_ties_at_the_head(k, dtype):
    """k between copies of one number, which is b_[k] and b_[k+1]; and fewer numbers than k."""
    rng = np.random.default_rng(k)
    for m in (70, 300):  # the numbers of most threads are given away before there are k
        b = rng.integers(-2, 3, (50, m)).astype(dtype) + 1
        b[:10, 3:] = -np.inf
        b[20:, ::32] += 2
        r, rho = np.full(50, 2.0, dtype), rng.choice([0.0, 1.0], 50).astype(dtype)
        ours = native.projection("project_topk", "cuda", k=k)(b, r, rho)
        theirs = plain(functools.partial(topk_projection, k=k), b, r, rho)
        for one, other in zip(ours[:2], theirs[:2], strict=True):
            np.testing.assert_allclose(one, other, atol=3e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("name", SETS)
def test_numbers_of_every_size(name):
    """Near the ends of the range of float32, and beside a radius that is tiny or 0."""
    rng = np.random.default_rng(0)
    b = (rng.standard_normal((12, 50)) * 10.0 ** rng.integers(-30, 31, (12, 1))).astype(np.float32)
    size = np.abs(b).max(-1)
    for radius in (0 * size, 1e-7 * size, size):
        p = Problem(b, radius, 0 * size, radius, 0 * size, 3)
        found, exact = of_problem("cuda", name, p), np.asarray(project(name, p.astype(np.float64)))
        assert (np.abs(found - exact).max(-1) <= 1e-6 * size).all()
        if name == "simplex":
            np.testing.assert_allclose(found.astype(np.float64).sum(-1), radius, rtol=1e-5)


@pytest.mark.parametrize("name", SETS)
def test_axes_and_derivatives(name):
    """jit, vmap and gradients are one call for all vectors."""
    p = cases(9, 3, 24, seed=5)
    p = Problem(*(a.reshape(2, 3, 4, *a.shape[1:]) for a in p[:-1]), k=3)
    numbers = p[1:5]

    def whole(b):
        return project(name, p._replace(b=b))

    def one(b, *of):
        return project(name, Problem(b, *of, k=3))

    def slope(f):
        return jax.grad(lambda b: jnp.sum(f(b) ** 2))

    expected, slopes = whole(p.b), slope(whole)(p.b)
    with cuda_projections.kernels():
        mapped = jax.jit(jax.vmap(jax.vmap(jax.vmap(one))))
        text = mapped.lower(p.b, *numbers).as_text()
        assert text.count("stablehlo.custom_call @xmcjax_cuda") == 1 and "stablehlo.while" not in text
        size = p.scale[..., None]
        for found in (mapped(p.b, *numbers), jax.jit(whole)(p.b)):
            assert (abs(found - expected) <= 1e-13 * size).all()
        assert (abs(slope(whole)(p.b) - slopes) <= 1e-12 * size).all()


@pytest.mark.parametrize("m", [1, 2, 7, 32, 40, 256, 1000, 1025, 5000, 10_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weighted(m, dtype):
    arguments = [a.astype(dtype) for a in weighted_cases(120 if m < 1000 else 6, m, seed=m)]
    if dtype == np.float32:
        arguments[3] *= dtype(
            1.0001
        )  # rounding may leave no point where r is at an end of what can be reached
    with cuda_projections.kernels():
        found = np.asarray(jax.jit(projections.knapsack)(*arguments))
    assert found.dtype == dtype
    exact = [a.astype(np.float64) for a in arguments]
    native_ones = np.asarray(projections.knapsack(*exact))
    for i, row in enumerate(zip(*exact, strict=True)):
        b, _, l, u, w = row
        size = max(abs(b).max(), abs(l).max(), abs(u).max())
        moved = max(1, np.finfo(dtype).eps * np.sum(abs(w)) / np.linalg.norm(w)) if dtype == np.float32 else 1
        near = (1e-5 if dtype == np.float32 else 1e-11) * size * moved
        reference = weighted_by_breakpoints(*row) if m <= 40 else native_ones[i]
        np.testing.assert_allclose(found[i], reference, rtol=0, atol=near)


def test_arrays_that_do_not_fit_are_refused():
    with cuda_projections.kernels():
        b, one = jnp.ones((4, 3)), jnp.ones(4)
        with pytest.raises(jax.errors.JaxRuntimeError, match="another shape or type"):
            box = native.projection("project_box", "cuda", at_most=True, by_k=True)
            box(b, one, one, one, one, one.astype(np.float32))[0].block_until_ready()
        with pytest.raises(jax.errors.JaxRuntimeError, match="by_k is of at_most alone"):
            box = native.projection("project_box", "cuda", at_most=False, by_k=True)
            box(b, one, one, one, one, one)[0].block_until_ready()
        with pytest.raises(jax.errors.JaxRuntimeError, match="k is not between"):
            native.projection("project_topk", "cuda", k=4)(b, one, one)[0].block_until_ready()
