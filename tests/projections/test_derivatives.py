"""The closed derivatives against finite differences, every transformation, and no NaN at the kinks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from projection_helpers import SETS, Problem, project

from xmcjax import projections

M, K = 9, 3


def function(name: str):
    """x, radius, lower, upper, ρ -> projection; numbers that a set does not have are left alone."""

    def f(b, r, l, u, rho):
        match name:
            case "simplex":
                return projections.simplex(b, r)
            case "capped_simplex":
                return projections.capped_simplex(b, r, u)
            case "knapsack":
                return projections.knapsack(b, r, l, u)
            case "topk_cone":
                return projections.topk_cone(b, K, rho)
            case _:
                return projections.topk_simplex(b, K, r, rho, name.rsplit("_")[-1])

    return f


def arguments(seed: int):
    """A batch of four, of which the radius holds some and not others."""
    rng = np.random.default_rng(seed)
    b = rng.standard_normal((4, M)) + rng.choice([0, 1], (4, 1))
    r = np.array([0.3, 1.5, 4.0, 30.0])
    return tuple(map(jnp.asarray, (b, r, -0.4 * r / M, 2.2 * r / M, np.array([0.2, 0.5, 1.0, 3.0]))))


@pytest.mark.parametrize("name", SETS)
def test_against_finite_differences(name):
    f = jax.jit(function(name))
    rng = np.random.default_rng(1)
    checked, worst = 0, 0.0
    for seed in range(12):
        primals = arguments(seed)
        tangents = tuple(jnp.asarray(rng.standard_normal(p.shape)) for p in primals)
        x, dx = jax.jvp(f, primals, tangents)

        def moved(h, primals=primals, tangents=tangents):
            return f(*(p + h * t for p, t in zip(primals, tangents, strict=True)))

        h = 1e-6
        forward, backward = (moved(h) - x) / h, (x - moved(-h)) / h
        # At a kink the one-sided differences disagree.
        smooth = np.asarray(jnp.abs(forward - backward).max(-1) < 1e-4)
        checked += smooth.sum()
        error = np.asarray(jnp.abs((forward + backward) / 2 - dx).max(-1))
        worst = max(worst, error[smooth].max(initial=0) / (1 + float(jnp.abs(dx).max())))
    print(f"{name}: worst difference from finite differences {worst:.1e}, of {checked} vectors")
    assert worst < 1e-7 and checked >= 40


@pytest.mark.parametrize("name", SETS)
def test_reverse_is_the_transpose_of_forward(name):
    f = function(name)
    primals = arguments(5)
    rng = np.random.default_rng(2)
    tangents = tuple(jnp.asarray(rng.standard_normal(p.shape)) for p in primals)
    x, dx = jax.jvp(f, primals, tangents)
    weight = jnp.asarray(rng.standard_normal(x.shape))
    pulled = jax.vjp(f, *primals)[1](weight)
    forward = float((weight * dx).sum())
    reverse = sum(float((p * t).sum()) for p, t in zip(pulled, tangents, strict=True))
    assert abs(forward - reverse) < 1e-12 * (1 + abs(forward))


@pytest.mark.parametrize("name", SETS)
def test_jit_vmap_and_batches_agree(name):
    f = function(name)
    primals = arguments(6)
    batch = f(*primals)
    stacked = tuple(jnp.stack([p, p[::-1]]) for p in primals)
    for other in (
        jax.jit(f)(*primals),
        jax.vmap(f)(*primals),
        jnp.stack([f(*(p[i] for p in primals)) for i in range(4)]),
        jax.vmap(f)(*stacked)[0],
        f(*stacked)[1, ::-1],
    ):
        np.testing.assert_allclose(other, batch, rtol=0, atol=1e-14)
    # Numbers that are not mapped
    one = jax.vmap(f, in_axes=(0, None, None, None, None))(primals[0], *(p[1] for p in primals[1:]))
    np.testing.assert_allclose(one[1], batch[1], rtol=0, atol=1e-14)
    jacobian = jax.vmap(jax.jacrev(f))(*primals)
    np.testing.assert_allclose(jacobian, jax.vmap(jax.jacfwd(f))(*primals), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SETS)
def test_forward_over_reverse(name):
    f = function(name)
    b, *numbers = arguments(7)
    target = jnp.asarray(np.random.default_rng(3).standard_normal(b.shape))

    def value(b, rho):
        return ((f(b, *numbers[:-1], rho) - target) ** 2).sum()

    gradient = jax.grad(value, (0, 1))
    direction = jnp.asarray(np.random.default_rng(4).standard_normal(b.shape))
    _, product = jax.jvp(gradient, (b, numbers[-1]), (direction, 0.3 * numbers[-1]))
    h = 1e-6
    ahead = gradient(b + h * direction, numbers[-1] * (1 + 0.3 * h))
    behind = gradient(b - h * direction, numbers[-1] * (1 - 0.3 * h))
    for got, up, down in zip(product, ahead, behind, strict=True):
        np.testing.assert_allclose(got, (up - down) / (2 * h), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "b",
    [np.zeros(M), np.ones(M), -np.ones(M), np.repeat([2.0, 1.0, 0.0], 3), np.eye(M)[0]],
    ids=["zero", "one", "negative", "ties", "unit"],
)
def test_finite_at_the_kinks(name, b):
    one = np.float64(1.0)
    problem = Problem(b, one, np.float64(0.0), np.float64(1 / 3), one, K)
    gradient = jax.grad(lambda b: (project(name, problem._replace(b=b)) ** 2).sum())(jnp.asarray(b))
    assert np.isfinite(gradient).all()


def test_as_the_head_of_a_network():
    """Gradient descent through a projection fits the weights below it and its radius."""
    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.standard_normal((16, 5)))
    head = functools.partial(projections.topk_simplex, k=K, rho=0.1)
    Y = head(X @ jnp.asarray(0.1 * rng.standard_normal((5, M))), radius=0.5)

    @jax.jit
    @jax.value_and_grad
    def value(parameters):
        W, radius = parameters
        return ((head(X @ W, radius=radius) - Y) ** 2).mean()

    parameters = (jnp.asarray(0.1 * rng.standard_normal((5, M))), jnp.asarray(0.2))
    first, gradient = value(parameters)
    for _ in range(400):
        parameters = jax.tree.map(lambda p, g: p - 30 * g, parameters, gradient)
        last, gradient = value(parameters)
    assert last < first / 3 and 0.3 < parameters[1] < 0.6
