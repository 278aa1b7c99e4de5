"""Wide dense features: block_newton begins about the minimum, which it finds in the span of the rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import multinomial as helpers
from xmcjax.lanes import precision
from xmcjax.solvers import Status, multinomial

N, D, K = 60, 400, 3


def wide(dtype=np.float64):
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(K), rng.integers(0, K, N - K)]).astype(np.int32)
    return (rng.normal(size=(N, D)) + 0.3 * rng.normal(size=(K, D))[y]).astype(dtype), y


def centred(X):
    return X - X.mean(axis=0)


def twice(X):
    return np.vstack([X[: N // 2], X[: N // 2]])


def with_zeros(X):
    return X * (np.arange(N) % 4 > 0)[:, None].astype(X.dtype)


@pytest.fixture
def sparse(monkeypatch):
    """Features as CSR that stay so, for which there is no such start."""
    monkeypatch.setattr("xmcjax.solvers.multinomial._costs.in_its_form", lambda problem: problem)
    return sp.csr_matrix


@pytest.mark.parametrize("make", [np.array, centred, twice, with_zeros])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_steps_are_left(make, intercept, dtype, sparse):
    X, y = wide(dtype)
    X = make(X)
    weight = np.arange(N) % 3 + 0.5
    with precision(dtype):
        given = dict(intercept=intercept, weight=weight)
        found = multinomial.run(helpers.problem(X, y, 0.5, **given), "block_newton")
        other = multinomial.run(helpers.problem(sparse(X), y, 0.5, **given), "block_newton")
    assert found.status == Status.CONVERGED and found.gap <= 1e-4
    assert found.history[-1].steps <= 2 < other.history[-1].steps
    assert found.value <= (1 + 1e-4) * other.value


@pytest.mark.parametrize("lam", [1e-2, 1e-4])
def test_few_steps_are_left_in_float32_with_a_small_lambda(lam):
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(K), rng.integers(0, K, 100 - K)]).astype(np.int32)
    X = (rng.normal(size=(100, 4000)) + 0.6 * rng.normal(size=(K, 4000))[y]).astype(np.float32)
    with precision(np.float32):
        found = multinomial.run(helpers.problem(X, y, lam, intercept=True), "block_newton")
    assert found.status == Status.CONVERGED and found.gap <= 1e-4
    assert found.history[-1].steps <= 4


@pytest.mark.parametrize("scale", [1e-25, 1e15, 1e20])
def test_inner_products_that_no_float32_holds_do_no_harm(scale, sparse):
    X, y = wide(np.float32)
    X = X * np.float32(scale)
    lam = 0.5 * float(np.float32(scale)) * min(scale, 1.0)
    ends = []
    for kind in (np.array, sparse):
        problem = helpers.problem(kind(X), y, max(lam, 1e-37), intercept=True)
        ends.append(multinomial.run(problem, "block_newton", multinomial.HParams(1e-3, 200)))
    assert ends[0].status == ends[1].status
    if ends[1].status == Status.CONVERGED:
        assert ends[0].value <= (1 + 1e-3) * ends[1].value


def test_a_run_of_few_steps_begins_where_it_did():
    X, y = wide()
    found = multinomial.run(helpers.problem(X, y, 0.5), "block_newton", multinomial.HParams(1e-4, 1))
    assert found.status == Status.MAX_STEPS and found.history[0].value > found.history[1].value
    assert found.history[0].value == pytest.approx(N * np.log(K))
