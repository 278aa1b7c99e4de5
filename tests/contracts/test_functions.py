"""What losses and projections keep: values, dtypes, batches, transformations, derivatives."""

from __future__ import annotations

import contextlib
import functools
import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import calls_formulas, calls_parts
from tests.support.calls import Table
from tests.support.functions import FUNCTIONS, ROWS
from xmcjax.native import twins

PATHS = [(name, "public") for name in FUNCTIONS if FUNCTIONS[name].oracle]
PATHS += [(name, "twins") for name in FUNCTIONS if name.startswith("projection")]
# Margin losses take each number by itself, and tests/losses/test_margin_losses.py has both derivatives that
# each of them gives: of JAX's own derivatives, and of transformations, one loss tells as much.
OF_ROWS = [name for name in FUNCTIONS if not name.startswith(("margin loss", "slopes of"))]
OF_ROWS += ["margin loss logistic", "slopes of logistic"]


TABLE = Table()
for calls in (calls_formulas, calls_parts):
    calls.add(TABLE)
FORMULAS = [name for name in TABLE if name.split(".")[1] in ("losses", "penalties", "projections")]


def floats(arguments):
    return [a for a in arguments if a.dtype == jnp.float64]


def of_floats(name, arguments):
    """The function of its differentiable arguments alone."""
    rest = arguments[len(floats(arguments)) :]
    return lambda *given: FUNCTIONS[name].call(*given, *rest)


@functools.cache
def slopes(name):
    """(arguments, tangents, cotangent) -> (value, its change, the pulled back cotangent), compiled."""

    @jax.jit
    def all_three(arguments, tangents, weight):
        f, given = of_floats(name, arguments), floats(arguments)
        value, change = jax.jvp(f, tuple(given), tuple(tangents))
        return value, change, jax.vjp(f, *given)[1](weight)

    return all_three


@functools.cache
def gradient(name):
    """(differentiable arguments, others, target) -> the gradient of Σ (f − target)², compiled."""

    def squares(given, rest, target):
        return jnp.sum((FUNCTIONS[name].call(*given, *rest) - target) ** 2)

    return jax.jit(jax.grad(squares))


def random_like(arrays, rng):
    return [jnp.asarray(rng.standard_normal(a.shape)) for a in arrays]


@pytest.mark.parametrize(("name", "path"), PATHS)
def test_the_value_is_that_of_the_oracle(name, path):
    function = FUNCTIONS[name]
    arguments = function.arguments(0)
    assert function.oracle is not None
    with twins() if path == "twins" else contextlib.nullcontext():
        found = jax.jit(function.call)(*arguments)
    expected = function.oracle(*map(np.asarray, arguments))
    np.testing.assert_allclose(found, expected, rtol=function.accuracy, atol=function.accuracy)
    assert len(np.unique(np.round(expected, 6))) > 3


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_dtype_is_kept_and_the_value_is_close(name, dtype):
    function = FUNCTIONS[name]
    arguments = [a.astype(dtype) if a.dtype == jnp.float64 else a for a in function.arguments(5)]
    wide = [a.astype(jnp.float64) if a.dtype == dtype else a for a in arguments]
    found, exact = function.call(*arguments), function.call(*wide)
    assert found.dtype == dtype and exact.dtype == jnp.float64
    eps = (40 if dtype == jnp.float32 else 2) * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(
        found.astype(jnp.float64), exact, rtol=eps, atol=eps * max(function.floor, 0.2)
    )


@pytest.mark.parametrize("name", OF_ROWS)
def test_batches_and_transformations(name, compilations):
    f, arguments = FUNCTIONS[name].call, FUNCTIONS[name].arguments(6)
    plain, other = f(*arguments), FUNCTIONS[name].arguments(7)
    f(
        *arguments
    )  # what the very first call of a process traced, before the library was loaded, is traced again
    assert not compilations(lambda: f(*other))

    def boxes(a):
        return a.reshape(4, ROWS // 4, *a.shape[1:])

    @jax.jit  # one program of all: most of the time is what a program costs at least
    def every(arguments, whole):
        of_rows = f(*arguments), jax.vmap(f)(*arguments)
        return of_rows, (f(*whole), jax.vmap(jax.vmap(f), 1, 1)(*whole))

    of_rows, of_boxes = every(arguments, [boxes(a) for a in arguments])
    for found in of_rows:
        np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-14)
    for found in of_boxes:
        np.testing.assert_allclose(found, boxes(plain), rtol=1e-12, atol=1e-14)
    with jax.numpy_rank_promotion("raise"):
        assert jax.eval_shape(f, *(a[0] for a in arguments)).shape == plain.shape[1:]
        assert jax.eval_shape(f, *(a[:0] for a in arguments)).shape == (0, *plain.shape[1:])
        *others, last = arguments
        if last.dtype == bool:  # a mask of all rows
            assert jax.eval_shape(f, *others, last[0]).shape == plain.shape


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_finite_differences(name):
    rng, h = np.random.default_rng(1), 1e-6
    checked, worst = 0, 0.0
    for seed in range(4):
        arguments = FUNCTIONS[name].arguments(seed)
        f, given = of_floats(name, arguments), floats(arguments)
        tangents = random_like(given, rng)
        (weight,) = random_like([f(*given)], rng)
        value, change, pulled = slopes(name)(arguments, tangents, weight)
        # reverse mode is the transpose of forward mode
        forward = float(jnp.sum(weight * change))
        reverse = sum(float(jnp.sum(p * t)) for p, t in zip(pulled, tangents, strict=True))
        assert abs(forward - reverse) < 1e-11 * (1 + abs(forward))
        ahead, behind = (f(*(a + s * h * t for a, t in zip(given, tangents, strict=True))) for s in (1, -1))
        up, down = (ahead - value) / h, (value - behind) / h
        # at a kink they disagree
        smooth = jnp.abs(up - down).reshape(ROWS, -1).max(1) < 1e-4
        error = jnp.abs((up + down) / 2 - change).reshape(ROWS, -1).max(1)
        checked += int(smooth.sum())
        worst = max(worst, float(jnp.max(jnp.where(smooth, error, 0)) / (1 + jnp.abs(change).max())))
    assert worst < 1e-7 and checked >= 3 * ROWS


@pytest.mark.parametrize("name", OF_ROWS)
def test_second_derivatives_are_finite_differences(name):
    rng, h = np.random.default_rng(2), 1e-6
    arguments = FUNCTIONS[name].arguments(8)
    given = floats(arguments)
    rest = arguments[len(given) :]
    (target,) = random_like([FUNCTIONS[name].call(*arguments)], rng)
    tangents = random_like(given, rng)
    slope = functools.partial(gradient(name), rest=rest, target=target)

    @jax.jit
    def products(given, tangents):
        _, product = jax.jvp(lambda *given: slope(given), given, tangents)
        return product, jax.vjp(lambda *given: slope(given), *given)[1](tangents)

    # the Hessian is symmetric
    product, again = products(tuple(given), tuple(tangents))
    chex.assert_trees_all_close(again, product, rtol=1e-9, atol=1e-9)
    at = slope(given)
    ahead, behind = (slope([a + s * h * t for a, t in zip(given, tangents, strict=True)]) for s in (1, -1))
    for found, here, up, down in zip(product, at, ahead, behind, strict=True):
        # rows at a kink
        smooth = jnp.abs(up + down - 2 * here).reshape(ROWS, -1).max(1) < 1e-9
        error = jnp.abs(found - (up - down) / (2 * h)).reshape(ROWS, -1).max(1)
        assert int(smooth.sum()) > ROWS / 2
        assert jnp.max(jnp.where(smooth, error, 0)) < 1e-5 * (1 + jnp.abs(found).max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_no_number_on_the_way(name):
    """With jax_debug_nans a program ends at the first NaN, wherever it goes."""
    arguments = FUNCTIONS[name].arguments(9)
    (target,) = random_like([FUNCTIONS[name].call(*arguments)], np.random.default_rng(3))
    given, rest = floats(arguments), arguments[len(floats(arguments)) :]
    with jax.debug_nans(True):
        slope = functools.partial(gradient(name), rest=rest, target=target)
        value, change = jax.jvp(lambda *given: slope(given), tuple(given), tuple(given))
    chex.assert_tree_all_finite((value, change))


@pytest.mark.parametrize("name", FORMULAS)
def test_lists_and_other_byte_orders_are_the_same_numbers(name):
    function, arguments = TABLE[name].function, TABLE[name].arguments
    if not arguments:
        names = inspect.signature(function.func).parameters
        function, arguments = function.func, dict(zip(names, function.args, strict=True))
    arrays = {key: a for key, a in arguments.items() if isinstance(a, np.ndarray)}
    assert arrays
    expected = function(**arguments)
    for key, array in arrays.items():
        other = array.astype(array.dtype.newbyteorder())
        # JAX may know the shape and dtype of a second call
        for given in (other, other, array.tolist(), [*other]):
            found = function(**arguments | {key: given})
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
