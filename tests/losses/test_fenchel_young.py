"""The Fenchel-Young losses of a set: values, projections of many kinds, and scores beyond the dtype."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.losses import (
    M,
    examples,
)
from xmcjax import losses, projections


@pytest.mark.parametrize("gamma", [1e-6, 0.1, 1.0])
@pytest.mark.parametrize(
    ("z", "t", "value", "slope"),
    [
        ([1e36, 9e35, -1e36], [0, 0, 1], 2e36, [1, 0, -1]),
        ([1e38, 2e38, 0], [0, 0, 1], 2e38, [0, 1, -1]),
        ([1e38, 2e38, -np.inf], [1, 0, 0], 1e38, [-1, 1, 0]),
    ],
)
def test_fenchel_young_losses_of_scores_beyond_which_their_dtype_has_no_quotient(z, t, value, slope, gamma):
    f = jax.value_and_grad(losses.fenchel_young)
    found, g = f(jnp.asarray(z, jnp.float32), jnp.asarray(t, jnp.float32), projections.simplex, gamma)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    np.testing.assert_array_equal(g, slope)


@pytest.mark.parametrize(
    ("projection", "z", "p"),
    [
        (lambda x: projections.knapsack(x, 2, 0, 1), [1e38, 3, 2.95], [1, 0.75, 0.25]),
        (lambda x: jnp.clip(x, 0, 1), [-1e38, 0.03, 0.05], [0, 0.3, 0.5]),
    ],
    ids=["knapsack", "box"],
)
def test_entries_beside_one_that_has_no_quotient_keep_theirs(projection, z, p):
    scores, none = jnp.asarray(z, jnp.float32), jnp.zeros(3, jnp.float32)
    slope = jax.grad(losses.fenchel_young)(scores, none, projection, 0.1)
    np.testing.assert_allclose(slope, p, rtol=1e-5, atol=1e-6)


def test_fenchel_young_losses_of_a_set():
    """0 at the projection itself, the sparsemax loss for the simplex, and the gradient p − t."""
    z, y = examples()
    t = jnp.asarray(np.eye(M)[np.asarray(y)])
    value, slope = jax.value_and_grad(lambda z: jnp.sum(losses.fenchel_young(z, t, projections.simplex)))(z)
    np.testing.assert_allclose(value, jnp.sum(losses.sparsemax(z, y)), rtol=1e-12)
    np.testing.assert_allclose(slope, projections.simplex(z) - t, atol=1e-14)

    def two(x):
        return projections.knapsack(x, 2.0, 0.0, 1.0)

    closed = losses.fenchel_young(z.at[:, 3].set(-jnp.inf), t.at[:, 3].set(0), projections.simplex)
    alone = losses.fenchel_young(jnp.delete(z, 3, axis=1), jnp.delete(t, 3, axis=1), projections.simplex)
    np.testing.assert_allclose(closed, alone, rtol=1e-12)
    p = two(z / 0.5)
    np.testing.assert_allclose(losses.fenchel_young(z, p, two, 0.5), 0, atol=1e-12)
    assert np.all(losses.fenchel_young(z, two(z[::-1]), two, 0.5) >= 0)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_a_projection_of_fenchel_young_may_depend_on_what_is_differentiated(wrap):
    rng = np.random.default_rng(0)
    z, t = jnp.asarray(rng.normal(size=(5, 4))), jnp.eye(4)[jnp.arange(5) % 4]
    A, change = jnp.eye(4) + 0.1 * rng.normal(size=(4, 4)), jnp.asarray(rng.normal(size=(4, 4)))

    def of_radius(r):
        return jnp.sum(losses.fenchel_young(z, t, lambda x: projections.simplex(x, r)))

    def of_layer(A):
        return jnp.sum(losses.fenchel_young(z, t, lambda x: projections.simplex(x @ A) @ A.T))

    h = 1e-6
    for f, at, direction in ((of_radius, jnp.asarray(1.2), 1.0), (of_layer, A, change)):
        difference = (f(at + h * direction) - f(at - h * direction)) / (2 * h)
        np.testing.assert_allclose(jnp.vdot(wrap(jax.grad(f))(at), direction), difference, rtol=1e-6)
        assert abs(difference) > 0.1


def test_a_projection_of_fenchel_young_may_have_a_mask_or_be_any_callable():
    z, t, mask = jnp.array([[0.5, 2.0, 1.0]]), jnp.array([[1.0, 0.0, 0.0]]), jnp.array([True, False, True])

    def masked(z, mask):
        def projection(x):
            return projections.simplex(jnp.where(mask, x, -jnp.inf))

        return jnp.sum(losses.fenchel_young(z, t, projection))

    expected = jax.grad(masked)(z, mask)
    np.testing.assert_allclose(expected, [[-0.75, 0, 0.75]], atol=1e-15)
    np.testing.assert_allclose(jax.grad(jax.jit(masked))(z, mask), expected, atol=1e-15)
    np.testing.assert_allclose(jax.lax.map(lambda m: jax.grad(masked)(z, m), mask[None])[0], expected)

    @dataclasses.dataclass
    class Simplex:  # no key of a table
        radius: Any

        def __call__(self, x):
            return projections.simplex(x, self.radius)

    changing = Simplex(1.0)
    value = losses.fenchel_young(z, t, changing)

    def of_radius(radius):
        changing.radius = radius
        return losses.fenchel_young(z, t, changing)[0]

    np.testing.assert_allclose(of_radius(1.0), value[0])
    h = 1e-6
    difference = (of_radius(1.2 + h) - of_radius(1.2 - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(of_radius)(1.2), difference, rtol=1e-6)


def test_projections_of_fenchel_young_are_not_kept():
    kept = []
    for _ in range(3):
        A = 2 * jnp.eye(3)
        kept.append(weakref.ref(A))
        jax.grad(
            lambda z, A=A: losses.fenchel_young(z, jnp.eye(3)[0], lambda x: projections.simplex(x @ A) @ A.T)
        )(jnp.array([0.1, 0.2, 0.3]))
    del A
    gc.collect()
    assert not any(reference() is not None for reference in kept)
