"""Dtypes, masked and improper entries, extreme lengths, boundaries of the numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.projections import PATHS, SETS, Problem, compiled, project
from xmcjax import projections
from xmcjax.native import available

ROWS = 4


@pytest.fixture(params=PATHS)
def on(request):
    """The projection on either path; batches are filled up to one size, so that little is compiled."""

    def call(name: str, rows, k: int = 2, **numbers):
        b = np.zeros((ROWS, 3))
        b[: len(rows)] = rows
        p = Problem(b, np.ones(ROWS), np.zeros(ROWS), np.full(ROWS, 0.75), np.ones(ROWS), k)
        for field, value in numbers.items():
            filled = getattr(p, field).copy()
            filled[: len(rows)] = value
            p = p._replace(**{field: filled})
        # Under jit nothing can be refused: what a trace cannot see is the same on both paths.
        return compiled(request.param, name, p)[: len(rows)]

    return call


@pytest.mark.parametrize("name", SETS)
def test_masked_bfloat16_batch(name):
    """Entries that are masked out by −inf: the others are projected as if alone."""
    rng = np.random.default_rng(0)
    b = jnp.asarray(rng.standard_normal((8, 12)), jnp.bfloat16)
    masked = b.at[:, 7:].set(-jnp.inf)
    one = np.ones(8, np.float32)
    p = Problem(masked, one, 0 * one, one / 2, one, 3)
    x, alone = project(name, p), project(name, p._replace(b=b[:, :7].astype(jnp.float32)))
    assert np.isfinite(x.astype(jnp.float32)).all()
    assert not x[:, 7:].any()
    worst = np.abs(np.asarray(x[:, :7].astype(jnp.float32)) - np.asarray(alone)).max()
    assert worst <= 2e-2
    gradient = jax.grad(lambda b: (project(name, p._replace(b=b)).astype(jnp.float32) ** 2).sum())(masked)
    assert np.isfinite(gradient.astype(jnp.float32)).all() and not gradient[:, 7:].any()


@pytest.mark.parametrize("name", SETS)
def test_masked_entries(on, name):
    # Two entries left, of which the coupled sets would need k = 3: they have only the origin.
    x = on(name, [[1.0, 0.5, -np.inf]], k=3)
    expected = {
        "simplex": [0.75, 0.25],
        "capped_simplex": [0.75, 0.25],
        "knapsack": [0.75, 0.25],
        "topk_simplex_beta": [1 / 3, 1 / 12],
    }.get(name, [0, 0])
    np.testing.assert_allclose(x, [[*expected, 0]], rtol=0, atol=1e-15)
    nothing = on(name, [[-np.inf] * 3], k=3)
    assert np.isnan(nothing).all() if name in ("simplex", "knapsack") else not nothing.any()


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("entry", [np.nan, np.inf])
def test_improper_vectors_are_nan_as_a_whole(on, name, entry):
    x = on(name, [[1.0, 0.5, 0.0], [1.0, entry, 0.0], [0.2, 0.1, 0.3]])
    assert np.isnan(x[1]).all() and np.isfinite(x[[0, 2]]).all()


@pytest.mark.parametrize("name", SETS)
def test_improper_vectors_have_no_derivative(name):
    """NaN forward and in reverse, beside numbers for the vectors that have one."""
    b = jnp.asarray([[1.0, 0.5, 0.0], [1.0, np.nan, 0.0], [0.2, 0.1, 0.3]])
    one = np.ones(3)
    p = Problem(b, one, 0 * one, 0.75 * one, one, 2)
    x, pulled = jax.vjp(lambda b: project(name, p._replace(b=b)), b)
    for slope in (
        pulled(jnp.ones_like(x))[0],
        jax.jvp(lambda b: project(name, p._replace(b=b)), (b,), (b,))[1],
    ):
        assert np.isnan(slope[1]).all() and np.isfinite(slope[jnp.array([0, 2])]).all()


def test_what_a_trace_cannot_see_is_nan(on):
    b = np.ones((2, 3))
    for name in SETS:
        x = on(name, b, **{"rho" if name == "topk_cone" else "r": [-1.0, 1.0]})
        assert np.isnan(x[0]).all() and np.isfinite(x[1]).all()
    assert np.isnan(on("knapsack", b, r=10.0)).all()
    assert np.isnan(on("knapsack", b, l=2.0)).all()


def test_k_is_the_length(on):
    # All entries are equal.
    b = np.array([[3.0, 1.0, -1.0], [-3.0, 1.0, 1.0]])
    for rho in (0.0, 2.0):
        for name in ("topk_cone", "topk_simplex_alpha"):
            x = on(name, b, k=3, r=100.0, rho=rho)
            np.testing.assert_allclose(x, [[3.0 / (3 + 9 * rho)] * 3, [0] * 3], atol=1e-15)


def test_the_derivative_with_a_k_whose_square_exceeds_32_bits():
    x = jnp.linspace(0, 1, 50_000)
    slope = jax.grad(lambda x: projections.topk_simplex(x, 50_000, 1.0).sum())(x)
    np.testing.assert_allclose(slope, 0, atol=1e-6)  # the sum is the radius
    slope = jax.grad(lambda x: projections.topk_cone(x, 50_000).sum())(x)
    np.testing.assert_allclose(slope, 1, rtol=1e-5)  # all entries are the mean of x


def test_one_entry():
    for name in SETS:
        one = np.ones(2)
        x = project(name, Problem(np.array([[3.0], [-3.0]]), one, 0 * one, one, one, 1))
        low = 1.0 if name in ("simplex", "knapsack") else 0.0
        np.testing.assert_allclose(x, [[1.5 if name == "topk_cone" else 1.0], [low]])


def test_boundaries_of_the_radius(on):
    b = [[0.3, -2.0, 1.0]]
    for name in SETS:
        if name != "topk_cone":
            assert not on(name, b, r=0.0).any(), name
    np.testing.assert_allclose(on("knapsack", b, r=0.3, u=0.1), [[0.1] * 3], rtol=1e-15)
    np.testing.assert_allclose(on("knapsack", b, r=-0.3, l=-0.1), [[-0.1] * 3], rtol=1e-15)
    np.testing.assert_allclose(on("knapsack", b, r=0.6, l=0.2, u=0.2), [[0.2] * 3], rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 3, 5, 6, 9])
def test_a_radius_that_rounding_has_below_its_limits(m, dtype):
    rng = np.random.default_rng(m)
    lower, x = -rng.random(200), rng.standard_normal((200, m)) * 10.0 ** rng.integers(-3, 3, (200, 1))
    # m l, a rounding less, and more, of numbers of the dtype
    lower, x = lower.astype(dtype), x.astype(dtype)
    radius = (m * lower).astype(dtype)
    radius[::3] = np.nextafter(radius[::3], dtype(-np.inf))
    radius[1::3] = np.nextafter(radius[1::3], dtype(np.inf))
    numbers = jnp.zeros(200, dtype), lower, lower + 1, jnp.zeros(200, dtype)
    p = Problem(x, radius, *numbers[1:], 1)
    for path in PATHS:
        found = compiled(path, "knapsack", p)
        np.testing.assert_allclose(found, np.repeat(lower[:, None], m, 1), atol=8 * np.finfo(dtype).eps * m)


def test_unbounded(on):
    # The hyperplane, and the box alone
    b = np.array([[0.5, -2.0, 1.0]])
    np.testing.assert_allclose(on("knapsack", b, l=-np.inf, u=np.inf), b + 0.5, atol=1e-15)
    np.testing.assert_allclose(on("capped_simplex", b, r=np.inf), np.clip(b, 0, 0.75), atol=0)


def test_numbers_for_each_vector():
    rng = np.random.default_rng(0)
    b = rng.standard_normal((2, 3, 5))
    r = np.array([0.5, 1.0, 2.0])
    x = projections.simplex(b, r)
    np.testing.assert_allclose(x.sum(-1), np.broadcast_to(r, (2, 3)), rtol=1e-14)
    column = np.array([[0.5], [2.0]])
    x = projections.topk_simplex(b + 3, 2, radius=column, rho=0)
    np.testing.assert_allclose(x.sum(-1), np.broadcast_to(column, (2, 3)), rtol=1e-14)
    assert (projections.capped_simplex(b, 1, upper=1).max() <= 1) and projections.simplex(
        b, np.int32(2)
    ).any()


@pytest.mark.skipif(not available(), reason="the native library was not built")
def test_on_a_cpu_the_native_search_runs():
    lowered = jax.jit(lambda x: projections.simplex(x) + projections.topk_cone(x, 2)).lower(np.ones((2, 4)))
    text = lowered.as_text()
    assert "xmcjax_project_box" in text and "xmcjax_project_topk" in text and "stablehlo.while" not in text


@pytest.mark.parametrize("name", ["upper", "weights"])
def test_numbers_per_entry_have_as_many_axes(name):
    x = jnp.zeros((6, 5))
    rest = dict(lower=0.0, upper=1.0) | {name: np.ones(5)}
    with pytest.raises(ValueError, match=r"or, with as many axes as x, to \(6, 5\), got shape \(5,\)$"):
        projections.knapsack(x, 1.0, **rest)
    rest[name] = np.ones((1, 5))
    np.testing.assert_allclose(projections.knapsack(x, 1.0, **rest), 0.2)
