"""Nonlinear CG for kernel multinomial regression with many classes, and Newton's method where it stalls."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from tests.support.internals import Hierarchy
from tests.support.kernel_models import TIGHT, D, N, data
from xmcjax import kernels
from xmcjax.kernels import RBF, Linear
from xmcjax.solvers import Status, kernel_multinomial
from xmcjax.solvers.kernel_multinomial import Phase, partial_labels

C, LANES = 32, 2
# 32 leaves below eight nodes below two
EDGES = [
    (0, 50),
    (0, 51),
    *((50 + k % 2, 40 + k) for k in range(8)),
    *((40 + c % 8, 1 + c) for c in range(C)),
]
TREE = Hierarchy.from_edges(EDGES)


def many(name="tree", dtype=np.float64, v=3.0, memory=2**20):
    """(K̃, classes, weights of two lanes)."""
    X, _, weight = data(dtype)
    y = np.arange(N) * 7 % C
    hierarchy = TREE if name == "tree" else None
    base = kernels.gram(RBF(1.0), kernels.points(X), memory=memory)
    return kernels.class_kernels(base, v, 0.7, C, hierarchy=hierarchy), y, weight[:, 1:]


def matrix(kernel):
    """K̃ written out, over (i, c)."""
    X, _, _ = data()
    M = np.exp(-1.0 / (2 * D) * ((X[:, None] - X[None]) ** 2).sum(-1))
    Phi = np.eye(C) if kernel.chains is None else TREE.members().T.astype(float)
    mixed = (Phi * np.asarray(kernel.v)) @ Phi.T
    return np.kron(M, mixed) + 0.7 * np.kron(np.ones((N, N)), np.eye(C))


def at_optimum(kernel, allowed, weight, state, atol):
    """Asserts the condition of the optimum of every lane, in NumPy."""
    K = matrix(kernel)
    for lane in range(state.alpha.shape[2]):
        alpha = np.asarray(state.alpha[..., lane], np.float64)
        u = (K @ alpha.ravel()).reshape(N, C)
        inside, s = np.where(allowed, u, -np.inf), np.asarray(weight[:, lane], np.float64)
        r = alpha + s[:, None] * (softmax(u, axis=1) - softmax(inside, axis=1))
        assert np.abs(r).max() < atol
        value = s @ (logsumexp(u, axis=1) - logsumexp(inside, axis=1)) + np.vdot(alpha, u) / 2
        np.testing.assert_allclose(state.value[lane], value, rtol=max(1e-10, 100 * atol**2))
        np.testing.assert_allclose(state.u[..., lane], u, atol=100 * atol)


@functools.cache
def fitted(name):
    with jax.enable_x64(True):
        kernel, y, weight = many(name)
        problem = kernel_multinomial.kernel_problem(kernel, y, weight)
        return problem, kernel_multinomial.run(problem, TIGHT, kernel_multinomial.init(problem))


@pytest.mark.parametrize("name", ["flat", "tree"])
def test_optimum_is_reached_without_newton_steps(name):
    problem, state = fitted(name)
    assert (np.asarray(state.status) == Status.CONVERGED).all() and state.fresh.all()
    assert (state.phase == Phase.CONJUGATE).all() and (state.steps == 0).all()
    assert ((state.cg_steps > 5) & (state.cg_steps < 150)).all()
    y = many(name)[1]
    at_optimum(problem.kernel, np.eye(C, dtype=bool)[y], problem.weight, state, 1e-11)
    again = kernel_multinomial.run(problem, TIGHT, kernel_multinomial.init(problem, state.alpha))
    assert (again.cg_steps == 0).all() and (np.asarray(again.status) == Status.CONVERGED).all()


def test_single_precision():
    kernel, y, weight = many(dtype=np.float32)
    problem = kernel_multinomial.kernel_problem(kernel, y, weight)
    hp = kernel_multinomial.HParams(tolerance=1e-5)
    state = kernel_multinomial.run(problem, hp, kernel_multinomial.init(problem))
    assert (np.asarray(state.status) == Status.CONVERGED).all() and (state.steps == 0).all()
    at_optimum(kernel, np.eye(C, dtype=bool)[y], weight, state, 1e-4)


def test_sets_of_classes():
    kernel, y, weight = many()
    allowed = np.eye(C, dtype=bool)[y]
    some = np.arange(0, N, 4)
    allowed[some] = TREE.members()[np.asarray(TREE.parent)[TREE.leaves[y[some]]]]
    allowed[5] = True
    likelihood = partial_labels(allowed)
    problem = kernel_multinomial.kernel_problem(kernel, None, weight, likelihood=likelihood)
    state = kernel_multinomial.run(problem, TIGHT, kernel_multinomial.init(problem))
    assert (np.asarray(state.status) == Status.CONVERGED).all()
    at_optimum(kernel, allowed, weight, state, 1e-11)


def test_a_lone_lane_is_solved_as_beside_others():
    problem, beside = fitted("tree")
    for lane in range(LANES):
        alone = dataclasses.replace(problem, weight=problem.weight[:, lane : lane + 1])
        state = kernel_multinomial.run(alone, TIGHT, kernel_multinomial.init(alone))
        assert state.status[0] == Status.CONVERGED
        np.testing.assert_allclose(state.alpha[..., 0], beside.alpha[..., lane], atol=1e-11)


def test_steps_and_traced_runs_end_where_a_run_does():
    problem, state = fitted("tree")
    hp = TIGHT._replace(tolerance=1e-9)
    step = jax.jit(kernel_multinomial.step)
    stepped = kernel_multinomial.init(problem)
    for _ in range(150):
        stepped = step(problem, hp, stepped)
    assert (np.asarray(stepped.status) == Status.CONVERGED).all() and (stepped.steps == 0).all()
    traced = jax.jit(lambda problem: kernel_multinomial.run(problem, hp, kernel_multinomial.init(problem)))
    for other in (stepped, traced(problem)):
        np.testing.assert_allclose(other.alpha, state.alpha, atol=1e-7)
        np.testing.assert_allclose(other.value, state.value, rtol=1e-12)


# (kernel, its variance, tolerance, the phase in which the first lane ends): K̃ of few large eigenvalues
STALLS = {
    "float64": (Linear(), 1e3, 1e-6, Phase.NEWTON),
    "float32": (Linear(), 1e3, 1e-3, Phase.NEWTON),
    "beyond single precision": (RBF(0.01), 1e6, 1e-6, Phase.PRECISE),
}


@pytest.mark.parametrize("name", STALLS)
def test_newton_steps_where_conjugate_ones_stall(name):
    base, v, tolerance, phase = STALLS[name]
    dtype = np.float32 if name == "float32" else np.float64
    X, _, weight = data(dtype)
    _, y, _ = many()
    kernel = kernels.class_kernels(kernels.gram(base, kernels.points(X)), v, 0.7, C)
    problem = kernel_multinomial.kernel_problem(kernel, y, weight[:, 1:])
    hp = kernel_multinomial.HParams(tolerance=tolerance)
    state = kernel_multinomial.run(problem, hp, kernel_multinomial.init(problem))
    assert (np.asarray(state.status) == Status.CONVERGED).all() and (state.residual <= tolerance).all()
    assert (state.steps > 0).all() and (state.phase > Phase.CONJUGATE).all() and phase in state.phase
    newton = kernel_multinomial.init(problem)._replace(phase=jnp.full(LANES, Phase.PRECISE, jnp.int32))
    newton = kernel_multinomial.run(problem, hp, newton)
    assert (np.asarray(newton.status) == Status.CONVERGED).all()
    np.testing.assert_allclose(state.value, newton.value, rtol=1e-4 if dtype == np.float32 else 1e-7)


def test_limits():
    problem, state = fitted("tree")
    cold = kernel_multinomial.init(problem)
    few = kernel_multinomial.run(problem, TIGHT._replace(max_steps=2, max_cg=3), cold)
    assert (np.asarray(few.status) == Status.MAX_STEPS).all() and (few.cg_steps == 6).all()
    # the value is that of the coefficients, with u multiplied out
    u = problem.kernel.matmat(few.alpha)
    np.testing.assert_allclose(few.u, u, atol=1e-12)
    losses = jnp.sum(problem.weight * problem.likelihood.losses(u), axis=0)
    np.testing.assert_allclose(few.value, losses + jnp.sum(few.alpha * u, axis=(0, 1)) / 2, rtol=1e-12)
    assert (state.value < few.value).all() and (few.value < cold.value).all()


def test_single_precision_is_for_stored_numbers_in_its_range():
    def single(kernel, weight=None):
        return kernel_multinomial.kernel_problem(kernel, np.zeros(N, int), weight).with_single().single

    kernel, _, _ = many()
    stored = single(kernel)
    assert stored is not None and stored.dtype == np.float32
    assert single(many(v=1e28)[0]) is None and single(kernel, np.full(N, 1e30)) is None
    assert single(many(v=1e-35)[0]) is not None  # beside σ²
    assert single(many(memory=0)[0]) is None
    assert single(many(dtype=np.float32)[0]) is None
    points = kernels.points(data()[0])
    assert single(kernels.class_kernels(kernels.gram(Linear(), points), 1.0, 0.1, C)) is not None
    assert single(kernels.class_kernels(kernels.low_rank(RBF(1.0), points, 5), 1.0, 0.1, C)) is not None


def test_numbers_that_are_not_finite_are_said():
    problem, _ = fitted("tree")
    wrong = dataclasses.replace(problem, weight=problem.weight.at[3].set(jnp.nan))
    state = kernel_multinomial.run(wrong, TIGHT, kernel_multinomial.init(wrong))
    assert (np.asarray(state.status) == Status.NONFINITE).all()
