"""Every method against the minimum by L-BFGS."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from tests.support import multinomial as helpers
from tests.support.problems import needs_native
from xmcjax import linops
from xmcjax.solvers import Status, multinomial
from xmcjax.solvers.multinomial import admm

# G over its minimum, and tolerance of the gradient, where they are not 1e-6. The bound of dm is not tight: it
# ends where the bound is least.
OTHERS = {"admm": (1e-4, 1e-3), "lc": (1e-5, 1e-4), "dm": (0.15, 1e-4)}
METHODS = [pytest.param(m, marks=needs_native) if m == "dual" else m for m in multinomial.CHOICES]


@pytest.mark.parametrize("start", [0.0, 1.0])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_table_finds_the_minimum(method, start):
    """From zero weights, and from random ones with weights of rows and intercepts."""
    X, y = helpers.sparse_set()
    weight = np.random.default_rng(3).choice([0.0, 0.5, 2.0], len(y)) if start else np.ones(len(y))
    weight[:7] = 1
    accuracy, tol = OTHERS.get(method, (1e-6, 1e-6))
    problem = helpers.problem(X, y, 1.0, intercept=start > 0, weight=weight)
    W0 = start * np.random.default_rng(0).normal(size=(40, 7))
    b0 = start * (3 + np.arange(7) % 2)
    solution = multinomial.run(problem, method, multinomial.HParams(tol, 3000), W0=W0, b0=b0)
    assert solution.status == Status.CONVERGED
    W, b = np.asarray(solution.W), np.asarray(solution.bias)
    assert abs(b.mean()) < 1e-9
    found = helpers.objective(X, y, W, b, 1.0, weight)
    expected = helpers.minimum(X, y, 1.0, weight, intercept=start > 0)
    assert expected * (1 - 1e-9) <= found <= expected * (1 + accuracy)
    assert solution.value == pytest.approx(found, rel=1e-9)
    slope, slope_bias = helpers.gradient(X, y, W, b, 1.0, weight)
    norm = np.sqrt(np.sum(slope**2) + (start > 0) * np.sum(slope_bias**2))
    assert solution.gradient_norm == pytest.approx(norm, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("method", ["newton", "block_newton", pytest.param("dual", marks=needs_native)])
@pytest.mark.parametrize("lam", [10.0, 0.01])
def test_much_and_little_regularisation(method, lam):
    X, y = helpers.sparse_set()
    solution = multinomial.run(
        helpers.problem(X, y, lam, intercept=True), method, multinomial.HParams(1e-6, 2000)
    )
    assert solution.status == Status.CONVERGED
    found = helpers.objective(X, y, solution.W, solution.bias, lam)
    assert found == pytest.approx(helpers.minimum(X, y, lam, intercept=True), rel=1e-6)


def test_dual_says_that_it_is_for_sparse_features():
    X, y = helpers.sparse_set()
    with pytest.raises(ValueError, match=r"^dual: expected CSR features .*, found dense ones: give a sparse"):
        multinomial.run(helpers.problem(X.toarray(), y, 1.0), "dual")


@pytest.mark.parametrize("method", ["newton", "block_newton", "lc", pytest.param("dual", marks=needs_native)])
def test_float32_ends_with_a_status(method):
    X, y = helpers.sparse_set(dtype=np.float32)
    solution = multinomial.run(helpers.problem(X, y, 0.1), method, multinomial.HParams(0.0, 500))
    # the gradient never is exactly 0: the run ends at the rounding of float32 or at its limit
    assert solution.status in (Status.LINE_SEARCH_FAILED, Status.MAX_STEPS, Status.CONVERGED)
    expected = helpers.minimum(X.astype(float), y, 0.1)
    assert helpers.objective(X.astype(float), y, solution.W, 0, 0.1) == pytest.approx(
        expected, rel=1e-4 if method == "lc" else 1e-5
    )


def test_features_that_say_nothing_end_before_the_first_step():
    X, y = helpers.sparse_set()
    weight = 1 / np.bincount(y)[y]  # classes of the same size, so that b = 0 is the best
    problem = helpers.problem(0 * X, y, 1.0, intercept=True, weight=weight)
    solution = multinomial.run(problem, "newton", W0=np.zeros((40, 7)))
    assert solution.status == Status.CONVERGED
    assert solution.history[-1].steps == 0


def test_history_is_told_to_the_observer():
    X, y = helpers.sparse_set()
    seen = []
    solution = multinomial.run(
        helpers.problem(X, y, 1.0, intercept=True),
        "newton",
        W0=np.zeros((40, 7)),
        observe=lambda state, record: seen.append(record),
    )
    assert seen == solution.history
    assert [record.steps for record in seen] == list(range(len(seen)))
    values = [record.value for record in seen]
    assert values == sorted(values, reverse=True)
    assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(seen))


def test_admm_counts_weights_as_a_unit():
    """From ρ = 1, with residuals without a unit, weights of 1e-3 took 8,697 iterations, and 1 took 193."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 30
    X = rng.normal(size=(30, 8))[y] + rng.normal(size=(120, 8))
    iterations = []
    for unit in (1.0, 1e-3):
        problem = multinomial.multinomial_problem(linops.make(X), y, unit, weight=unit)
        least = multinomial.run(problem, "newton", multinomial.HParams(1e-9)).value
        hp, step = multinomial.HParams(max_steps=1000), jax.jit(admm.step)
        state, count = admm.init(problem, hp), 0
        while state.value > (1 + 1e-4) * least and count < 1000:
            state, count = step(problem, hp, state), count + 1
        iterations.append(count)
    assert abs(iterations[0] - iterations[1]) <= 2
    assert max(iterations) < 100
