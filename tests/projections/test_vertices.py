"""Derivatives at vertices, where no entry lies between its bounds, and entries far larger than the radius."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import cuda_projections
from tests.support.problems import needs_native
from xmcjax import projections
from xmcjax.native import twins

H = 1e-6


def knapsack(x, radius, lower, upper):
    return projections.knapsack(x, radius, lower, upper)


def weighted(x, radius, lower, upper):
    return projections.knapsack(x, radius, lower, upper, weights=jnp.ones_like(x))


def capped(x, radius, lower, upper):
    return projections.capped_simplex(x, radius, upper)


def vertices(f, count: int, seed: int):
    """Vectors whose projection with r = 2, l = 0, u = 1 is a vertex, all of it."""
    x = 3 * np.random.default_rng(seed).normal(size=(40 * count, 6))
    p = f(jnp.asarray(x), 2.0, 0.0, 1.0)
    at_bound = np.all((p == 0) | (p == 1), axis=1) & (p.sum(1) == 2)
    assert at_bound.sum() >= count
    return jnp.asarray(x[at_bound][:count])


@pytest.fixture(
    params=[contextlib.nullcontext, twins, cuda_projections.kernels], ids=["native", "twins", "cuda"]
)
def path(request):
    return request.param


CASES = [(f, place) for f in (knapsack, capped, weighted) for place in (1, 2, 3)]
CASES.remove((capped, 2))  # its lower bound is 0


@pytest.mark.parametrize(("f", "place"), CASES)
def test_the_derivative_is_that_of_a_side(f, place):
    x = vertices(f, 100, place)
    numbers = [x, jnp.asarray(2.0), jnp.asarray(0.0), jnp.asarray(1.0)]

    def rows(derivative, place):
        return jax.jit(jax.vmap(derivative(f, place), (0, None, None, None)))(*numbers)

    found = rows(jax.jacfwd, place)
    np.testing.assert_allclose(rows(jax.jacrev, place), found, rtol=0, atol=1e-12)
    errors = []
    for sign in (1, -1):
        moved = [*numbers]
        moved[place] = moved[place] + sign * H
        errors.append(np.abs(found - sign * (f(*moved) - f(*numbers)) / H).max(axis=1))
    assert np.max(np.minimum(*errors)) < 1e-6
    # one whose entries have a sum below the radius does not follow it; one of the same sum may do either
    follows = np.clip(x, 0, 1).sum(1) > 2 if f is capped and place == 1 else np.full(len(x), True)
    assert follows.sum() > 50 and np.all(np.any(found != 0, axis=1) | ~follows)
    # they stay where they are when x moves
    assert not np.any(rows(jax.jacfwd, 0))


@pytest.mark.parametrize("f", [knapsack, capped, weighted])
def test_the_only_point_that_there_is_stays(f, path):
    """All entries at the upper bound, whose multiple the radius is: b − t is a rounding off the bound."""
    rng = np.random.default_rng(0)
    upper = jnp.asarray(rng.choice([0.1, 0.2, 0.3, 0.7], 50))
    sizes = (3, 7) if path is twins else (2, 3, 5, 6, 7, 10)
    points = [jnp.max(upper) + jnp.asarray(rng.choice([1.0, 2.0, 4.0], (50, m))) for m in sizes]

    @jax.jit  # one program of all sizes: most of the time is what a program costs at least
    def derivatives(points):
        return [jax.vmap(jax.jacfwd(lambda x, u: f(x, x.size * u, 0.0, u)))(x, upper) for x in points]

    with path():
        assert not any(np.any(found) for found in derivatives(points))


def test_the_sum_moves_with_the_radius():
    x = 3 * jnp.asarray(np.random.default_rng(0).normal(size=(1000, 20)))
    rows = jax.jit(jax.vmap(jax.grad(lambda r, x: projections.knapsack(x, r, 0.0, 1.0).sum()), (None, 0)))
    np.testing.assert_allclose(rows(4.0, x), 1, rtol=1e-12)
    rows = jax.jit(jax.vmap(jax.grad(lambda u, x: projections.knapsack(x, 4.0, 0.0, u).sum()), (None, 0)))
    np.testing.assert_allclose(rows(1.0, x), 0, atol=1e-12)


def test_entries_that_leave_together_share():
    x = jnp.array([5.0, 1.0, 1.0, -3.0])
    np.testing.assert_array_equal(jax.jacfwd(lambda r: knapsack(x, r, 0.0, 1.0))(1.0), [0, 0.5, 0.5, 0])
    # all at the upper bound: the sum can but fall
    np.testing.assert_array_equal(jax.jacfwd(lambda r: knapsack(x, r, 0.0, 1.0))(4.0), [0, 0, 0, 1])
    np.testing.assert_array_equal(jax.jacfwd(lambda r: projections.simplex(x, r))(0.0), [1, 0, 0, 0])


def _errors_by_side(numbers, place, direction):
    """How far the derivative is from the difference to each side; none where the bounds leave no point."""

    def moved(number):
        x, radius, lower, upper, weights = (*numbers[:place], number, *numbers[place + 1 :])
        return projections.knapsack(x, radius, lower, upper, weights)

    here, found = jax.jvp(moved, (numbers[place],), (direction,))
    for sign in (1, -1):
        with contextlib.suppress(ValueError):
            side = sign * (moved(numbers[place] + sign * H * direction) - here) / H
            yield float(jnp.max(jnp.abs(found - side)))


@pytest.mark.parametrize("vertex", [True, False])
@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_weights_of_either_sign(place, vertex, path):
    rng = np.random.default_rng(place)
    for _ in range(20):
        weights = rng.choice([1.0, 2.0, -1.0, 0.5, 0.0], 6)
        weights[:2] = 1.0, 0.0
        at_upper = rng.integers(0, 2, 6)
        at_upper[0] = 0
        x = 4 * rng.normal(size=6)
        x[1] = 0.5  # free, and no part of the sum
        x, off = jnp.asarray(x), 0 if vertex else 0.3
        numbers = [
            x,
            jnp.asarray(float(weights @ at_upper) + off),
            jnp.zeros(6),
            jnp.ones(6),
            jnp.asarray(weights),
        ]
        direction = jnp.asarray(rng.normal(size=numbers[place].shape))
        with path():
            errors = list(_errors_by_side(numbers, place, direction))
        assert errors and min(errors) < 1e-4


# x over a large number, the rest of x, and its projection onto the simplex, the knapsack and the capped
# simplex with r = 1 and u = 3/4, and the knapsack with the weights 1, 2, 3
FAR = {
    "two alike": ([1, 1, -1], [0, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, 0.5, 0], [0.75, 0.125, 0]),
    "masked": ([0, -1, -1], [20, 0, 0], [1, 0, 0], [0.75, 0.125, 0.125], [0.75, 0, 0], [0.75, 0, 1 / 12]),
}


def off_when_far(name: str, scale: float, dtype) -> float:
    """The error of the projections of :data:`FAR`."""
    large, rest, *expected = FAR[name]
    x = jnp.asarray(np.array(large) * scale + np.array(rest), dtype)
    found = [
        projections.simplex(x),
        projections.knapsack(x, 1.0, 0.0, 0.75),
        projections.capped_simplex(x, 1.0, 0.75),
        projections.knapsack(x, 1.0, 0.0, 0.75, weights=jnp.array([1.0, 2.0, 3.0], dtype)),
    ]
    return np.abs(np.subtract(found, expected)).max()


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("scale", [1e8, 1e14, 1e20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_entries_leave_the_sum_right(dtype, scale, name, path):
    with path():
        assert off_when_far(name, scale, dtype) < 1e-5


@pytest.mark.parametrize("scale", [1e20, 1e24, 1e25, 1e30, 3e37])
def test_the_largest_entries_leave_the_sum_right(scale, path):
    x = np.array([[1, -1, -1, -1], [1, 1, 1, -1], [1, 1, 0.99999, -1], [1, 0.9999999, 0.9999998, 0]]) * scale
    x = x.astype(np.float32)
    with path():
        np.testing.assert_allclose(projections.simplex(x).sum(axis=-1), 1, rtol=1e-5)
        np.testing.assert_allclose(projections.knapsack(x, 1.0, 0.0, 0.75).sum(axis=-1), 1, rtol=1e-5)
        w = np.arange(1.0, 5.0, dtype=np.float32)
        np.testing.assert_allclose(projections.knapsack(x, 1.0, 0.0, 0.75, w[None]) @ w, 1, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e8, 1e14, 1e17, 1e20])
@pytest.mark.parametrize("radius", [1.0, 1e-3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_far_above_the_radius_leave_the_others_right(dtype, radius, scale, path):
    # half of the radius goes to the far entry, and half to these: their threshold is −0.53/3
    rest = [-0.03, 0, 0]
    x, expected = np.array([scale, *rest]) * radius, np.array([0.5, *(np.array(rest) + 0.53 / 3)]) * radius
    far = [[2 * scale, scale, *rest], [2 * scale, scale, -1, -1, -1]]
    with path():
        found = projections.topk_simplex(x.astype(dtype), 2, radius)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for b in far:  # the k far entries alone
            found = projections.topk_simplex((np.array(b) * radius).astype(dtype), 2, radius)
            np.testing.assert_allclose(found, np.array([0.5, 0.5, 0, 0, 0]) * radius, rtol=1e-6)


@needs_native
@pytest.mark.parametrize("scale", [1e30, 1e100, 1e200, 1e307])
def test_weighted_entries_of_any_size_leave_the_sum_right(scale):
    x, w = scale * np.random.default_rng(0).normal(size=(200, 6)).clip(-10, 10), np.arange(1.0, 7.0)
    np.testing.assert_allclose(projections.knapsack(x, 1.0, 0.0, 0.7, w[None]) @ w, 1, rtol=1e-14)
