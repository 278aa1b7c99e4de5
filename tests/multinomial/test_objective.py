"""G, its gradient and what every method's state says of them; bad input."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import multinomial as helpers
from tests.support.problems import BACKENDS, needs_native
from xmcjax import linops
from xmcjax.solvers import SOLVERS, Status, multinomial

evaluate = jax.jit(multinomial.evaluate)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("intercept", [False, True])
def test_value_and_gradient(backend, intercept):
    X, y = helpers.sparse_set()
    rng = np.random.default_rng(1)
    W, b = rng.normal(size=(40, 7)), intercept * rng.normal(size=7)
    weight = rng.choice([0.0, 0.5, 2.0], len(y))
    problem = helpers.problem(X, y, 0.3, backend=backend, intercept=intercept, weight=weight)
    found = evaluate(problem, jnp.asarray(W), jnp.asarray(b))
    expected_W, expected_b = helpers.gradient(X, y, W, b, 0.3, weight)
    np.testing.assert_allclose(found.value, helpers.objective(X, y, W, b, 0.3, weight), rtol=1e-12)
    np.testing.assert_allclose(found.gradient, expected_W, atol=1e-12)
    np.testing.assert_allclose(found.bias_gradient, expected_b if intercept else 0, atol=1e-12)
    whole = np.sum(expected_W**2) + intercept * np.sum(expected_b**2)
    np.testing.assert_allclose(found.norm, np.sqrt(whole), rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_1e4_neither_overflow_nor_give_nan(backend, dtype):
    X, y = helpers.sparse_set(dtype=dtype)
    rng = np.random.default_rng(1)
    W = rng.choice([-1e4, 1e4], (40, 7)).astype(dtype)
    problem = helpers.problem(X, y, 1e-6, backend=backend)
    found = evaluate(problem, jnp.asarray(W), jnp.zeros(7, dtype))
    assert found.value.dtype == dtype
    np.testing.assert_allclose(found.value, helpers.objective(X.astype(float), y, W, 0, 1e-6), rtol=1e-5)
    assert np.all(np.isfinite(found.gradient))


@needs_native
@pytest.mark.parametrize(
    ("classes", "dtype"), [(2, np.float32), (70, np.float32), (16, np.float64), (33, np.float64)]
)
def test_native_pass_at_every_width_of_a_vector(classes, dtype):
    # widths with and without an incomplete vector, and rows without entries
    X, y = helpers.sparse_set(n=100, d=80, classes=classes)
    X = sp.csr_matrix(X.multiply((np.arange(100) % 9 > 0)[:, None]))
    rng = np.random.default_rng(2)
    W, b = rng.normal(size=(80, classes)), rng.normal(size=classes)
    problem = helpers.problem(X.astype(dtype), y, 0.5, backend="native", intercept=True)
    found = evaluate(problem, jnp.asarray(W, dtype), jnp.asarray(b, dtype))
    expected = (helpers.objective(X, y, W, b, 0.5), *helpers.gradient(X, y, W, b, 0.5))
    accuracy = 1e-5 if dtype == np.float32 else 1e-13
    for mine, other in zip(found, expected, strict=False):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine, other, rtol=accuracy, atol=10 * accuracy)


LAM = "expected lam above 0"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        *((dict(lam=lam), ValueError, LAM) for lam in (0, -1.0, float("nan"), float("inf"), "1")),
        (dict(y=lambda y: 0 * y), ValueError, "at least two classes"),
        (dict(y=lambda y: y + 1), ValueError, "expected labels 0 … 7, found none of 0: give classes"),
        (dict(y=lambda y: y - 1, classes=7), ValueError, "expected labels from 0 to 6, found -1"),
        (dict(classes=5), ValueError, "expected labels from 0 to 4, found 6"),
        (dict(y=lambda y: y.astype(float)), TypeError, "expected labels that are integers, got float64"),
        (dict(y=lambda y: y[1:]), ValueError, "one label for each of 90 rows"),
        (dict(weight=-1.0), ValueError, "expected finite weights"),
    ],
)
def test_bad_problems_get_one_clear_error(change, error, message):
    X, y = helpers.sparse_set()
    arguments = dict(y=lambda y: y, lam=1.0) | change
    y = arguments.pop("y")(y)
    with pytest.raises(error, match=message):
        multinomial.multinomial_problem(linops.make(X), y, arguments.pop("lam"), **arguments)


def test_lam_may_be_an_array_of_one_number():
    X, y = helpers.sparse_set()
    for lam in (np.float32(2), np.array(2.0), jnp.asarray(2.0)):
        assert multinomial.multinomial_problem(linops.make(X), y, lam=lam).l2 == 2
    with pytest.raises(TypeError, match="lam: expected a number, got one that is traced"):
        jax.grad(lambda lam: multinomial.multinomial_problem(linops.make(X), y, lam=lam).l2)(2.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", [sp.csr_matrix, lambda X: X.toarray()])
def test_features_that_are_not_finite(form, bad):
    X, y = helpers.sparse_set()
    features = form(X.copy())
    features[3, 3] = bad
    with pytest.raises(ValueError, match="expected finite features"):
        helpers.problem(features, y)


def test_bad_runs_get_one_clear_error():
    problem = helpers.problem(*helpers.sparse_set())
    with pytest.raises(ValueError, match="method: expected one of auto, "):
        multinomial.run(problem, "sgd")
    with pytest.raises(ValueError, match=r"expected starting weights \[40, 7\]"):
        multinomial.run(problem, "newton", W0=np.zeros((7, 40)))


def test_a_class_without_instances_may_be_asked_for():
    X, y = helpers.sparse_set()
    problem = helpers.problem(X, y % 5, 1.0, classes=7, intercept=True)
    hp = multinomial.HParams(1e-9, 50)
    solution = multinomial.run(problem, "newton", hp, W0=np.zeros((40, 7)))
    assert solution.W.shape == (40, 7)
    # nothing tells the empty classes apart
    np.testing.assert_allclose(solution.W[:, 5], solution.W[:, 6], atol=1e-8)


def test_state_keeps_its_shapes_and_dtypes():
    for dtype in (np.float32, np.float64):
        X, y = helpers.sparse_set(dtype=dtype)
        problem = helpers.problem(X, y, 1.0)
        for method in multinomial.METHODS:
            if method in multinomial.ON_THE_HOST or (method == "dual" and not problem.native):
                continue
            hp = multinomial.HParams()
            initial = functools.partial(multinomial.initial, method=method)
            before = jax.eval_shape(initial, problem, hp, None, None)
            after = jax.eval_shape(functools.partial(multinomial.advance, method=method), problem, hp, before)
            assert after == before, method
            assert after.W.dtype == dtype


@pytest.mark.parametrize("l2", [-1.0, 0.0, np.nan, np.inf])
def test_a_regularisation_put_into_a_problem_is_looked_at(l2):
    solver = SOLVERS["multinomial"]
    problem = solver.problem(linops.make(np.eye(3, dtype=np.float32)), [0, 1, 2], 1.0)
    state = solver.init(problem, solver.hparams())
    problem = dataclasses.replace(problem, l2=jnp.float32(l2))
    for entry in (
        lambda: solver.run(problem),
        lambda: multinomial.run(problem, "newton"),
        lambda: solver.init(problem, solver.hparams()),
    ):
        with pytest.raises(ValueError, match=rf"^{LAM}, got {l2}$"):
            entry()
    if not l2 >= 0:
        assert solver.step(problem, solver.hparams(), state).status == Status.NONFINITE
