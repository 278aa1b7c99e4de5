"""Optimality over random and degenerate cases, float32 against float64."""

import functools
import math

import jax
import numpy as np
import pytest

from tests.support.projections import (
    COUPLED,
    PATHS,
    SETS,
    Problem,
    cases,
    compiled,
    off_by,
    project,
)
from xmcjax import projections
from xmcjax.native import available, twins

# (m, k, vectors): 1,008 of every set
GROUPS = [(1, 1, 126), (2, 2, 126), (7, 1, 126), (7, 3, 126), (7, 7, 126), (40, 1, 126), (40, 5, 126)]
GROUPS += [(40, 40, 126)]
# The same number in fewer shapes where each is compiled.
GROUPS_OF = {"public": GROUPS, "cuda": GROUPS, "twins": [(7, 3, 504), (40, 5, 504)]}


@functools.cache
def groups(path: str, seed: int):
    return [cases(m, k, count, seed + i) for i, (m, k, count) in enumerate(GROUPS_OF[path])]


def run(path: str, name: str, problem):
    return np.asarray(project(name, problem)) if path == "public" else compiled(path, name, problem)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("path", PATHS)
def test_optimality_conditions(path, name):
    worst = 0.0
    for problem in groups(path, 0):
        x = run(path, name, problem)
        for i in range(len(x)):
            worst = max(worst, off_by(name, problem.row(i), x[i]))
    assert worst < 1e-12


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", SETS)
def test_float32_against_float64(path, name):
    worst = 0.0
    for problem in groups(path, 1000)[:: 4 if path == "twins" else 2]:
        narrow = problem.astype(np.float32)
        # Where the bounds leave hardly any room, rounding them to float32 leaves none.
        narrow = narrow._replace(u=narrow.u * np.float32(1.0001))
        x, exact = run(path, name, narrow), run("public", name, narrow.astype(np.float64))
        assert x.dtype == np.float32
        scale = np.abs(exact).max(-1)
        if name in COUPLED or name == "topk_simplex_beta":
            # Where t = ρ 1ᵀx, x is a small difference of entries of the size of b.
            scale = np.maximum(scale, np.abs(narrow.b).max(-1))
        off = np.abs(x - exact).max(-1)
        worst = max(worst, (off / np.where(scale > 0, scale, 1)).max())
        assert (off <= 1e-5 * scale).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("m", [10, 1000, 100_000])
def test_sum_of_the_simplex_in_float32(m, path):
    rng = np.random.default_rng(m)
    r = (10.0 ** np.arange(-6, 7)).astype(np.float32)
    spread = 10.0 ** rng.uniform(-3, 1, (len(r), 1))
    b = (r[:, None] * spread * rng.standard_normal((len(r), m))).astype(np.float32)
    # One large entry and many small ones far below it: a rounded threshold would be felt m times.
    b[::2, 1:] = b[::2, :1] - 0.9 * r[::2, None]
    x = np.asarray(run(path, "simplex", cases(m, 1, len(r), 0)._replace(b=b, r=r)))
    off = np.abs(x.astype(np.float64).sum(-1) - r)
    unit = np.finfo(np.float32).eps * r * np.sqrt(m)
    assert (off <= 4 * unit).all()


@pytest.mark.parametrize("name", SETS)
def test_a_million_entries(name):
    rng = np.random.default_rng(0)
    m = 1_000_000
    problem = cases(m, 1000, 2, seed=0)
    one = np.ones(2)
    problem = problem._replace(
        b=rng.standard_normal((2, m)), r=np.array([1.0, 1e5]), u=np.array([0.01, 2.0]), l=-0.5 * one, rho=one
    )
    x = run("public", name, problem)
    for i in range(2):
        # The sum alone rounds by 1e6 halves of an ulp.
        assert off_by(name, problem.row(i), x[i]) < 1e-11


@pytest.mark.skipif(not available(), reason="of the native search")
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("variant", ["alpha", "beta"])
@pytest.mark.parametrize("m", [1000, 100_000, 1_000_003])
def test_the_sum_of_a_wide_row_of_nearly_equal_entries(m, variant, k):
    """All entries are free: what rounding leaves of the threshold is felt once for each of them."""
    near = 1e-9 * np.random.default_rng(0).random(m) / m
    for b in (np.full(m, 0.37), 0.37 + near, -0.37 + near):
        x = np.asarray(projections.topk_simplex(b, k, 1.0, variant=variant))
        if b[0] > 0:
            assert abs(math.fsum(x) - 1) < 1e-14
        else:
            assert not x.any()
    # between a bias and the radius, where neither of the equations is that of the sum
    x = np.asarray(projections.topk_simplex(np.full(m, 0.37), k, 1.0, 1.0, variant=variant))
    assert math.fsum(x) == pytest.approx(0.37 * m / (1 + m), rel=1e-13)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("k", [1, 2])
def test_a_radius_below_the_rounding_of_the_entries(path, k):
    """Entries equal up to an ulp, whose threshold is one of them: the sum is the radius all the same."""
    rng = np.random.default_rng(0)
    b = np.abs(rng.normal(size=(200, 1))) + np.zeros((1, 3))
    b = np.where(rng.random(b.shape) < 0.5, np.nextafter(b, 9), b)
    one = np.ones(200)
    for r in (1e-16, 1e-18, 1e-30):
        p = Problem(b, r * one, 0 * one, one, one, k)
        np.testing.assert_allclose(run(path, "topk_simplex_alpha", p).sum(-1), r, rtol=1e-13)


@pytest.mark.parametrize(("m", "k", "dtype"), [(9, 3, np.float64), (40, 20, np.float32)])
def test_the_twin_is_optimal_as_users_compile_it(m, k, dtype):
    """Where an entry of x is the end of the first interval only before rounding."""
    rng = np.random.default_rng(0)
    b, rho = rng.normal(size=(2000, m)).astype(dtype), rng.choice([0.0, 0.2, 1.0], 2000).astype(dtype)
    options = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}

    def both(b, rho):
        return projections.topk_cone(b, k, rho), projections.topk_simplex(b, k, 1.0, rho)

    with twins():
        found = jax.jit(both, compiler_options=options)(b, rho)
    for p in map(np.asarray, found):
        p = p.astype(float)
        # no point of the segment to another one of the set is nearer
        worst = 0.0
        for other in (*(np.roll(p, shift, axis=0) for shift in range(1, 40)), 0 * p, 2 * p):
            if other.sum(1).max() > 1 and p.sum(1).max() <= 1 + 1e-6:
                continue  # outside the simplex
            slope = (p - b) * (other - p)
            worst = min(worst, (slope.sum(1) + rho * p.sum(1) * (other - p).sum(1)).min())
        assert worst >= -(1e-4 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", COUPLED)
def test_many_entries_that_are_zero(path, name):
    """b_[k] beside zeros: where the numbers next to 0 count as 0, it has none."""
    b, one = np.random.default_rng(60).integers(-1, 4, (50, 70)).astype(float), np.ones(50)
    for k in (50, 60, 70):
        problem = Problem(b, 2 * one, 0 * one, one, one, k)
        x = run(path, name, problem)
        assert max(off_by(name, problem.row(i), x[i]) for i in range(50)) < 1e-12


@pytest.mark.parametrize("k", [1001, 30_001])
@pytest.mark.parametrize("path", PATHS)
def test_what_many_entries_at_the_bound_leave_to_the_others(path, k):
    """Three share the k-th part of the radius, which is less than k times what r/k is rounded by."""
    b = np.full((2, 40_000), -1, np.float32)
    b[:, : k - 1] = 1
    b[:, k - 1 : k + 2] = np.float32(0.5) + np.float32([1.2e-7, 6e-8, 0])
    one = np.ones(2, np.float32)
    p = Problem(b, one, 0 * one, one, np.float32([0, 1e-3]), k)
    x = run(path, "topk_simplex_beta", p)
    exact = run("public", "topk_simplex_beta", p.astype(np.float64))
    assert x.dtype == np.float32 and (exact[:, k - 1 : k + 2] > 0).all()
    np.testing.assert_allclose(x, exact, rtol=3e-7)
