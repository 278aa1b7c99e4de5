"""The top-k entropy in dual ascent over instances: its row map, the optimum, native epochs against JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.internals import entropic
from tests.support.problems import svm_problem
from tests.support.topk import plogp
from xmcjax import linops, losses
from xmcjax.solvers import Status, multinomial, topk_sdca


def test_the_row_map_is_a_maximum():
    """No step towards a vertex of the set raises the objective, which is strictly concave."""
    rng = np.random.default_rng(0)
    run = jax.jit(entropic.entropic, static_argnums=2)
    for k in (1, 3, 6):
        scale = np.array([0.1, 1, 5, 20, 100, 1, 700, 1])[:, None]
        a = rng.normal(size=(8, 6)) * scale
        a[-1] = 0.5  # all alike
        c = np.array([1e-9, 1, 10, 1e3, 2, 1e6, 1, 3.0])[:, None]
        u = np.asarray(run(jnp.asarray(a), jnp.asarray(c), k))

        def value(u, a=a, c=c):
            s = u.sum(axis=1)
            concave = c[:, 0] / 2 * ((u**2).sum(axis=1) + s**2) + plogp(u).sum(axis=1) + plogp(1 - s)
            return (a * u).sum(axis=1) - concave

        assert np.all(u >= 0) and np.all(u.sum(axis=1) <= 1 + 1e-12)
        assert np.all(u.max(axis=1) <= u.sum(axis=1) / k * (1 + 1e-12))
        base = value(u)
        for _ in range(500):
            vertex = np.zeros(6)
            vertex[rng.permutation(6)[:k]] = rng.integers(0, 2) / k
            step = 10 ** rng.uniform(-8, 0)
            assert np.all(value(u + step * (vertex - u)) <= base + 1e-12 * (1 + np.abs(base)))


def test_without_a_curvature_the_row_map_is_the_slope_of_the_loss():
    rng = np.random.default_rng(1)
    z = np.concatenate([np.zeros((20, 1)), rng.normal(size=(20, 6)) * 3], axis=1)
    for k in (1, 3, 6):
        slope = jax.grad(lambda z, k=k: losses.topk_entropy(z, np.zeros(20, int), k).sum())(jnp.asarray(z))
        u = entropic.entropic(jnp.asarray(z[:, 1:]), jnp.full((20, 1), 1e-13), k)
        np.testing.assert_allclose(u, slope[:, 1:], atol=1e-11)


def test_where_a_step_rounds_to_nothing_the_row_map_ends():
    """Newton's method ends at a bound of its bracket, and a step out of it is no reason for a bisection."""
    a = [-5.26570568, -9.84034065, -14.66159018, -6.57822675, -12.60571104, -12.59182208, -8.46986974]
    a, c = np.array([[*a, -7.59349839, 2.59173686]]), 61.48109026
    u = np.asarray(jax.jit(entropic.entropic, static_argnums=2)(jnp.asarray(a), jnp.full((1, 1), c), 1))
    s = u.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.log(u) + c * (u + s) - np.log1p(-s), a, atol=1e-11)


@pytest.mark.parametrize("k", [1, 3])
def test_the_row_map_takes_few_passes(k, monkeypatch):
    rng, passes, at = np.random.default_rng(0), [], entropic._at
    monkeypatch.setattr(entropic, "_at", lambda *given: passes.append(0) or at(*given))
    scale, c = (x.reshape(-1, 1) for x in np.meshgrid([0.1, 1, 10, 100, 1e5], [1e-9, 1e-3, 1, 30, 1e3, 1e7]))
    a = rng.normal(size=(30, 8)) * scale + rng.normal(size=(30, 1)) * scale
    a[::4] = a[::4, :1]  # all alike
    a[1, 2] = np.nan
    with jax.disable_jit():
        u = entropic.entropic(jnp.asarray(a), jnp.asarray(c), k)
    assert len(passes) <= 25 and np.all(np.isfinite(np.delete(u, 1, axis=0)))


def test_of_one_class_it_is_the_multinomial_regression():
    X, y = svm_problem(n=60, d=5, m=4)
    found = topk_sdca.solve(X, y, 1, 0.7, variant="entropy", tol=1e-8)
    problem = multinomial.multinomial_problem(linops.make(X), y, 1 / 0.7, intercept=False)
    other = multinomial.run(problem, "newton", multinomial.HParams(tolerance=1e-10))
    assert found.status == Status.CONVERGED
    np.testing.assert_allclose(found.W, other.W, atol=1e-4)
