"""What is said to have converged is within the tolerance of the minimum, and the bound of that is one."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import multinomial as helpers
from tests.support.internals import multinomial_certificate, multinomial_judge
from tests.support.memory import peak_of
from xmcjax.lanes import precision
from xmcjax.native import available
from xmcjax.solvers import Status, multinomial

METHODS = [m for m in multinomial.METHODS if m not in ("dm", *([] if available() else ["dual"]))]


def clusters(seed=0):
    """Four of them in five dimensions that overlap."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(4), rng.integers(0, 4, 60)]).astype(np.int32)
    return rng.normal(size=(4, 5))[y] + rng.normal(size=(64, 5)), y


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scale", [1e-8, 1.0])
def test_converged_means_within_the_tolerance(method, intercept, scale):
    X, y = clusters()
    X = (scale * X).astype(np.float32)
    lam = 100 * scale**2
    with precision(np.float32):
        problem = helpers.problem(sp.csr_matrix(X), y, lam, intercept=intercept)
        solution = multinomial.run(problem, method, multinomial.HParams(1e-4, 300))
    least = helpers.minimum(X.astype(float), y, float(problem.l2), intercept=intercept)
    W, bias = (np.asarray(a, np.float64) for a in (solution.W, solution.bias))
    found = helpers.objective(X.astype(float), y, W, bias, float(problem.l2))
    if method == "admm" and scale < 1:  # whose penalty begins at 1
        assert solution.status in (Status.CONVERGED, Status.MAX_STEPS)
        return
    assert found - least <= solution.gap * found + 1e-8 * found
    assert solution.status == Status.CONVERGED
    assert solution.gap <= 1e-4
    assert abs(np.mean(solution.bias)) <= 1e-5


@pytest.mark.parametrize("intercept", [False, True])
def test_the_bound_is_above_what_is_left_and_not_far(intercept):
    X, y = clusters()
    lam = 1e-3
    least = helpers.minimum(X, y, lam, intercept=intercept)
    with precision(np.float64):
        problem = helpers.problem(X, y, lam, intercept=intercept)
        best = multinomial.run(problem, "newton", multinomial.HParams(1e-9))
        certifier = multinomial_certificate.Certifier(problem)
    assert best.value == pytest.approx(least, rel=1e-6)
    rng = np.random.default_rng(0)
    for far in (1e-3, 1e-2, 0.1):
        W = np.asarray(best.W) + far * rng.normal(size=best.W.shape)
        bias = np.asarray(best.bias) + (far * rng.normal(size=4) if intercept else 0)
        found = certifier.certified(W, bias, 1e-8, newton_steps=0)
        left = found.value - best.value
        assert left <= found.gap * found.value + 1e-9
        # ‖∇G‖²/(2λ) alone is far above it
        assert found.gradient_norm**2 / (2 * lam) > 20 * left
        tight = certifier.certified(W, bias, left / found.value, newton_steps=0)
        assert tight.gap * found.value <= 2.5 * left
        # weights may be improved too
        better = certifier.certified(W, bias, 1e-10, newton_steps=30)
        assert better.gap <= 1e-10
        assert better.value == pytest.approx(best.value, rel=1e-8)


def test_float32_that_cannot_keep_the_tolerance_says_so():
    X, y = clusters()
    with precision(np.float32):
        problem = helpers.problem(X.astype(np.float32), y, 1e-3)
        solution = multinomial.run(problem, "newton", multinomial.HParams(1e-15))
    assert solution.status == Status.STALLED
    assert solution.gap > 1e-15


def test_intercepts_do_not_drift_together():
    X, y = clusters()
    with precision(np.float32):
        problem = helpers.problem(X.astype(np.float32), y, 1e-3, intercept=True)
        solution = multinomial.run(
            problem, "newton", multinomial.HParams(0.0, 200), b0=np.full(4, 0.0, np.float32)
        )
    assert np.abs(solution.bias).max() < 20
    assert abs(np.mean(solution.bias)) <= 1e-5


def test_weights_may_be_evaluated_where_they_separate_the_classes():
    # P is 0 and 1 in float64 in most places
    X, y = np.diag([1e3, 1e3, 1e3]), np.arange(3, dtype=np.int32)
    with precision(np.float64):
        certifier = multinomial_certificate.Certifier(helpers.problem(X, y, 1.0, intercept=True))
        found = certifier.certified(np.eye(3), np.zeros(3), 1e-3, newton_steps=40)
    assert found.gap <= 1e-3 and np.isfinite(found.value)


def test_weights_of_a_huge_objective_bound_nothing_by_their_rounding():
    # classes that can be told apart, so that the minimum is far below the rounding of what it starts with
    X, y = clusters()
    X = X + 20 * np.eye(4, 5)[y]
    with precision(np.float64):
        problem = helpers.problem(X, y, 1e-12)
        certifier = multinomial_certificate.Certifier(problem)
        best = multinomial.run(problem, "newton", multinomial.HParams(1e-3))
    assert best.value < 1e-9
    far = 1e14 * np.random.default_rng(0).normal(size=best.W.shape)
    before = certifier.certified(far, np.zeros(4), 1e-2)
    assert before.value > 1e15
    for steps in (0, 1, 5, 20):
        found = certifier.certified(far, np.zeros(4), 1e-2, steps)
        assert (1 - found.gap) * found.value <= best.value


@pytest.mark.parametrize("status", [Status.LINE_SEARCH_FAILED, Status.CONVERGED])
def test_weights_that_are_not_finite_are_called_so(status):
    X, y = clusters()
    with precision(np.float32):
        problem, hp = helpers.problem(sp.csr_matrix(X, dtype=np.float32), y, 1.0), multinomial.HParams()
        state = multinomial.initial(problem, hp, None, None, method="lbfgs")
        state = state._replace(W=state.W + np.nan, status=state.status * 0 + status)
        verdict = multinomial_judge.Judge(problem, hp, False).verdict("lbfgs", state)
    assert verdict.status == Status.NONFINITE and verdict.better is None


@pytest.mark.parametrize("kind", [np.array, sp.csr_matrix])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_direction_bounds_alike_at_once_and_later(kind, intercept):
    X, y = clusters()
    with precision(np.float32):
        problem = helpers.problem(kind(X.astype(np.float32)), y, 1e-2, intercept=intercept)
        best = multinomial.run(problem, "block_newton", multinomial.HParams(1e-6))
        W = 1.05 * np.asarray(best.W)
        made = []

        def make(wanted):
            made.append(wanted)
            return np.vstack([np.asarray(best.W) - W, np.zeros((1, 4))])

        found = [
            multinomial_certificate.Certifier(problem).certified(
                W, best.bias, 1e-9, given=multinomial_certificate.Direction(make, best.value, bound)
            )
            for bound in (0.0, np.inf)
        ]
    assert len(made) == 2
    assert found[0].gap == pytest.approx(found[1].gap, rel=1e-9)
    assert found[0].value == found[1].value and found[0].gradient_norm == found[1].gradient_norm
    assert found[0].value * (1 - found[0].gap) <= best.value


def test_no_copy_of_dense_features_is_made():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 400)).astype(np.float32), rng.integers(0, 3, 4000).astype(np.int32)
    with precision(np.float32):
        problem = helpers.problem(X, y, 1.0)
        W = 1e-3 * rng.normal(size=(400, 3))
        certifier = multinomial_certificate.Certifier
        _, peak = peak_of(lambda: certifier(problem).certified(W, np.zeros(3), 1e-3))
    assert peak < X.nbytes
