"""The knapsack problem with bounds and weights of each entry, and projections of pytrees."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import cuda_projections
from tests.support.projections import weighted_by_breakpoints
from xmcjax import projections
from xmcjax.native import twins


def cases(count: int, m: int, seed: int):
    """(b, r, l, u, w) random and degenerate, of every scale, with a point in each set."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-6, 7, (count, 1))
    b, w = rng.standard_normal((2, count, m))
    b = np.where(rng.random((count, 1)) < 0.3, np.round(b), b)
    w = np.where(rng.random((count, 1)) < 0.3, np.round(w), w) * 10.0 ** rng.integers(-3, 4, (count, 1))
    w = np.where(rng.random((count, 1)) < 0.3, 1.0, w)
    l, u = -rng.uniform(size=b.shape), rng.uniform(size=b.shape)
    inside = np.where(
        rng.random((count, 1)) < 0.2, u, rng.uniform(l, u)
    )  # some at an end of what can be reached
    w[:, 0] = np.where(w.any(axis=1), w[:, 0], 1)
    l, u, inside = l * scale, u * scale, inside * scale
    return b * scale, (w * inside).sum(axis=1), l, u, w


@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_against_the_breakpoints(m):
    arguments = cases(300, m, seed=m)
    found = np.asarray(projections.knapsack(*arguments))
    for i, row in enumerate(zip(*arguments, strict=True)):
        size = max(abs(row[0]).max(), abs(row[2]).max(), abs(row[3]).max())
        np.testing.assert_allclose(found[i], weighted_by_breakpoints(*row), rtol=0, atol=1e-11 * size)


def test_float32_is_the_rounded_result():
    arguments = [a.astype(np.float32) for a in cases(500, 12, seed=3)]
    arguments[3] *= np.float32(
        1.0001
    )  # rounding may leave no point where r is at the end of what can be reached
    wide = [a.astype(np.float64) for a in arguments]
    found, exact = (np.asarray(projections.knapsack(*a)) for a in (arguments, wide))
    assert found.dtype == np.float32
    size = np.maximum(abs(wide[0]), np.maximum(-wide[2], wide[3])).max(axis=1, keepdims=True)
    # what r was rounded by moves entries by r over the norm of their weights
    moved = np.finfo(np.float32).eps * np.sum(abs(wide[4]), axis=1) / np.linalg.norm(wide[4], axis=1)
    assert (abs(found - exact) <= 1e-5 * size * np.maximum(1, moved[:, None])).all()


def test_bounds_of_each_entry_that_are_equal_are_one_number():
    rng = np.random.default_rng(0)
    b = 3 * rng.standard_normal((50, 9))
    plain = projections.knapsack(b, 1.0, -0.5, 0.75)
    np.testing.assert_allclose(projections.knapsack(b, 1.0, np.full_like(b, -0.5), 0.75), plain, atol=1e-14)
    np.testing.assert_allclose(projections.knapsack(b, 1.0, -0.5, 0.75, np.ones((1, 9))), plain, atol=1e-14)
    np.testing.assert_allclose(projections.knapsack(b, 2.0, -0.5, 0.75, np.full(50, 2.0)), plain, atol=1e-14)
    without = projections.knapsack(b, 1.0, np.full_like(b, -np.inf), np.inf)
    np.testing.assert_allclose(without, b + (1 - b.sum(axis=1, keepdims=True)) / 9, atol=1e-13)


@pytest.mark.parametrize("path", ["public", "twins"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_of_both_signs_and_a_radius_of_0(path, dtype):
    """As in the dual of an SVM with an intercept: yᵀα = 0. No rest is small beside the radius."""
    rng = np.random.default_rng(0)
    b, y = rng.normal(size=(40, 30)).astype(dtype), np.sign(rng.normal(size=(1, 30))).astype(dtype)
    with jax.enable_x64(dtype == np.float64), twins() if path == "twins" else contextlib.nullcontext():
        found = np.asarray(jax.jit(projections.knapsack)(b, 0.0, 0.0, 1.0, y), np.float64)
    low, high = np.zeros(30), np.ones(30)
    exact = [weighted_by_breakpoints(row, 0.0, low, high, y[0]) for row in b.astype(np.float64)]
    np.testing.assert_allclose(found, exact, atol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("path", [contextlib.nullcontext, twins, cuda_projections.kernels])
def test_improper_vectors(path):
    b = np.array([[1.0, -np.inf, 0.5], [1, np.nan, 0.5], [1, np.inf, 0.5], [1, 0, 0.5], [0, 0, 0], [1, 2, 3]])
    r, w = np.array([1.0, 1, 1, 9, 0, 1]), np.ones_like(b)
    w[4], w[5, 0] = 0, np.inf
    with path():
        found = np.asarray(jax.jit(projections.knapsack)(b, r, np.zeros_like(b), np.ones_like(b), w))
        slope = jax.grad(lambda b: jnp.sum(projections.knapsack(b, 1.0, np.zeros(3), 1.0, np.ones(3)) ** 2))(
            b[0]
        )
    np.testing.assert_allclose(found[0], [0.75, 0, 0.25], atol=1e-15)  # as if it were not there
    assert np.isnan(found[[1, 2, 3, 5]]).all() and not found[4].any()
    assert np.isfinite(slope).all() and slope[1] == 0


def test_the_projection_of_a_tree_is_that_of_all_its_entries():
    rng = np.random.default_rng(0)
    flat = rng.standard_normal(11)
    tree = {"a": jnp.asarray(flat[:6].reshape(2, 3)), "b": (jnp.asarray(flat[6]), jnp.asarray(flat[7:]))}

    def ravel(tree):
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])

    found = projections.over_tree(projections.simplex)(tree, 2.0)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, tree)
    np.testing.assert_array_equal(ravel(found), projections.simplex(flat, 2.0))
    lower = jax.tree.map(lambda leaf: -abs(leaf), tree)
    weights = {"a": 2.0, "b": (0.5, jnp.ones(4))}  # one number of a leaf, or one of each entry
    found = projections.over_tree(projections.knapsack)(tree, 1.0, lower, upper=1.0, weights=weights)
    w = np.array([2.0] * 6 + [0.5] + [1.0] * 4)
    np.testing.assert_allclose(ravel(found), projections.knapsack(flat, 1.0, -abs(flat), 1.0, w), rtol=1e-14)
    slope = jax.jit(jax.grad(lambda t: jnp.sum(projections.over_tree(projections.simplex)(t)["a"] ** 2)))(
        tree
    )
    same = jax.grad(lambda x: jnp.sum(projections.simplex(x)[:6] ** 2))(jnp.asarray(flat))
    np.testing.assert_allclose(ravel(slope), same, atol=1e-14)
    one = projections.over_tree(projections.simplex)(jnp.asarray(flat.reshape(1, 11)), 2.0)
    np.testing.assert_array_equal(one[0], projections.simplex(flat, 2.0))
    half = projections.over_tree(projections.simplex)({"a": jnp.ones(2, jnp.bfloat16)})["a"]
    assert half.dtype == jnp.bfloat16 and half.tolist() == [0.5, 0.5]
