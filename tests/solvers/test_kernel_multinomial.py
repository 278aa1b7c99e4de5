"""Kernel multinomial regression against its definition in NumPy and against scikit-learn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.kernel_models import LANES, TIGHT, TREE, C, D, N, data, dense, model, sets
from xmcjax import kernels
from xmcjax.kernels import RBF
from xmcjax.solvers import Status, kernel_multinomial
from xmcjax.solvers.kernel_multinomial import partial_labels

NAMES = ["flat", "tree", "shared"]


def written_out(name):
    """The same matrix from its definition."""
    X, _, _ = data()
    distance2 = ((X[:, None] - X[None]) ** 2).sum(-1)
    P = C if name == "flat" else TREE.n_nodes
    own = {
        "flat": np.linspace(0.3, 3, C),
        "tree": np.ones(P),
        "shared": np.array([0.1, 1.0, 4.0])[np.arange(P) % 3],
    }
    w = own[name]
    v = np.arange(3.0, 3 + C) if name == "flat" else np.linspace(1, 9, P)
    Phi = np.eye(C) if name == "flat" else TREE.members().T
    M = np.exp(-w[:, None, None] / (2 * D) * distance2)
    K = np.einsum("cp,pij,ep->icje", Phi, v[:, None, None] * M, Phi)
    return (K + 0.7 * np.einsum("ij,ce->icje", np.ones((N, N)), np.eye(C))).reshape(N * C, N * C)


@functools.cache
def fitted(name):
    with jax.enable_x64(True):
        _, y, weight = data()
        problem = kernel_multinomial.kernel_problem(model(name), y, weight)
        return problem, kernel_multinomial.run(problem, TIGHT, kernel_multinomial.init(problem))


@pytest.mark.parametrize("name", NAMES)
def test_kernel_of_all_classes(name):
    np.testing.assert_allclose(dense(model(name)), written_out(name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["flat", "tree", pytest.param("shared", marks=pytest.mark.slow)])
def test_optimum_of_every_lane(name):
    problem, state = fitted(name)
    _, y, weight = data()
    K = dense(problem.kernel)
    assert (np.asarray(state.status) == Status.CONVERGED).all()
    alpha, u = np.asarray(state.alpha), np.asarray(state.u)
    # the condition of the optimum, which is one for K̃ written out, and what is kept on the way
    pi = np.exp(u - u.max(1, keepdims=True))
    pi /= pi.sum(1, keepdims=True)
    residual = alpha + weight[:, None] * (pi - np.eye(C)[y][..., None])
    assert np.abs(residual).max() < 1e-8
    np.testing.assert_allclose(state.residual, np.abs(residual).max((0, 1)), atol=1e-10)
    np.testing.assert_allclose(u.reshape(N * C, LANES), K @ alpha.reshape(N * C, LANES), atol=1e-9)
    np.testing.assert_allclose(alpha.sum(1), 0, atol=1e-12)
    assert (alpha[:, :, 0][weight[:, 0] == 0] == 0).all()
    value = (weight * (np.log(np.exp(u).sum(1)) - u[np.arange(N), y])).sum(0) + (alpha * u).sum((0, 1)) / 2
    np.testing.assert_allclose(state.value, value, rtol=1e-9)


@pytest.mark.parametrize("likelihood", ["softmax", "one_vs_rest", "partial_labels"])
def test_a_lone_lane_is_solved_as_beside_others(likelihood):
    """One lane has loops of its own, without the axis of lanes."""
    _, y, weight = data()
    if likelihood == "partial_labels":
        y, likelihood = None, partial_labels(sets())
    kernel = model("tree")
    together = kernel_multinomial.kernel_problem(kernel, y, weight, likelihood=likelihood)
    test_weight = jnp.asarray(1 - weight)
    beside = kernel_multinomial.cv_criterion(together, test_weight, TIGHT)
    assert (np.asarray(beside.state.status) == Status.CONVERGED).all()
    gradient = 0.0
    for lane in range(LANES):
        problem = kernel_multinomial.kernel_problem(kernel, y, weight[:, lane], likelihood=likelihood)
        alone = kernel_multinomial.cv_criterion(problem, test_weight[:, lane : lane + 1], TIGHT)
        gradient = gradient + alone.gradient.v
        assert alone.state.alpha.shape == alone.state.u.shape == (N, C, 1)
        assert all(field.shape[-1:] == (1,) for field in alone.state)
        assert alone.state.status[0] == Status.CONVERGED
        np.testing.assert_allclose(alone.value[0], beside.value[lane], rtol=1e-9)
        np.testing.assert_allclose(alone.state.alpha[..., 0], beside.state.alpha[..., lane], atol=1e-10)
    np.testing.assert_allclose(gradient, beside.gradient.v, rtol=1e-7)


def test_rounding_of_products_is_no_failure():
    """In float32, u of variances in the thousands is not known to the tolerance that is asked for."""
    _, y, weight = data(np.float32)
    problem = kernel_multinomial.kernel_problem(model("flat", np.float32, scale=1e3), y, weight)

    def ended(tolerance):
        hp = kernel_multinomial.HParams(tolerance=tolerance)
        return kernel_multinomial.run(problem, hp, kernel_multinomial.init(problem))

    state = ended(1e-6)
    assert (np.asarray(state.status) == Status.CONVERGED).all()
    assert (np.asarray(state.residual) <= 1e-5).all()
    assert (np.asarray(ended(1e-9).status) == Status.LINE_SEARCH_FAILED).all()


def test_starts_and_limits():
    problem, state = fitted("flat")
    again = kernel_multinomial.run(problem, TIGHT, kernel_multinomial.init(problem, state.alpha))
    assert (again.steps == 0).all() and (np.asarray(again.status) == Status.CONVERGED).all()
    # a start outside the range of W, with weight on rows that the lane leaves out
    start = state.alpha * 0.9 + 0.3
    warm = kernel_multinomial.run(problem, TIGHT, kernel_multinomial.init(problem, start))
    np.testing.assert_allclose(warm.alpha, state.alpha, atol=1e-8)
    assert (np.asarray(warm.steps) < np.asarray(state.steps)).all()

    cold = kernel_multinomial.init(problem)
    # a start worse than 0 is not taken
    worse = kernel_multinomial.init(problem, -state.alpha)
    assert (worse.alpha == 0).all() and (worse.value == cold.value).all()
    few = kernel_multinomial.run(problem, TIGHT._replace(max_steps=2), cold)
    assert (np.asarray(few.status) == Status.MAX_STEPS).all() and (few.steps == 2).all()
    assert (np.asarray(few.value) < np.asarray(cold.value)).all()
    short = kernel_multinomial.run(problem, TIGHT._replace(max_cg=2), cold)
    assert (short.cg_steps <= 2 * short.steps).all()
    np.testing.assert_allclose(short.alpha, state.alpha, atol=1e-8)


def test_the_end_of_a_run_has_the_objective_of_its_alpha():
    with jax.enable_x64(True):
        X = jnp.asarray(np.random.default_rng(0).normal(size=(40, 3)))
        products = kernels.class_kernels(kernels.gram(kernels.Linear(), kernels.points(X)), 2.0, 1.0, 3)
        problem = kernel_multinomial.kernel_problem(products, np.arange(40) % 3)
        begin = kernel_multinomial.init(problem)
        few = kernel_multinomial.HParams(max_steps=3, max_cg=2)
        drifted = kernel_multinomial.run(problem, few, begin)
        # what was added up is off, as where products are rounded too much
        drifted = drifted._replace(u=drifted.u + 0.1, value=drifted.value - 1, status=begin.status)
        end = kernel_multinomial.run_to_excess(problem, few, drifted, 1e-4)
        u = problem.kernel.matmat(end.alpha)
        assert end.status[0] == Status.MAX_STEPS
        np.testing.assert_allclose(end.u, u, atol=1e-12)
        value = problem.likelihood.losses(u).sum() + (end.alpha * u).sum() / 2
        np.testing.assert_allclose(end.value, [value])


def test_lanes_reach_the_excess_by_themselves():
    """Of a large kernel and a small one side by side, only the first goes on; each ends as it does alone."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    X = np.eye(3)[y] @ rng.normal(size=(3, 5)) * 2 + rng.normal(size=(60, 5))
    hp = kernel_multinomial.HParams(tolerance=1e-5)
    with jax.enable_x64(True):
        products = kernels.gram(kernels.RBF(0.05), kernels.points(X))
        weight = np.ones((60, 3))
        weight[:20, 0], weight[20:, 1], weight[:, 2] = 0, 1e-6, 3
        family = kernels.class_kernels(products, 1e6, 1.0, 3)

        def end(lanes):
            problem = kernel_multinomial.kernel_problem(family, y, weight[:, lanes])
            return problem, kernel_multinomial.run_to_excess(problem, hp, kernel_multinomial.init(problem))

        problem, state = end([0, 1, 2])
        assert (np.asarray(state.status) == Status.CONVERGED).all()
        r = state.alpha + weight[:, None] * (
            problem.likelihood.probabilities(state.u) - jax.nn.one_hot(y, 3)[..., None]
        )
        above = jnp.sum(r * family.matmat(r), axis=(0, 1)) / 2
        assert (np.asarray(above) <= 10 * hp.tolerance * np.asarray(state.value)).all()
        for lane in range(3):
            _, alone = end([lane])
            np.testing.assert_allclose(state.value[lane], alone.value[0], rtol=1e-4)
        plain = kernel_multinomial.run(problem, hp, kernel_multinomial.init(problem))
        more = np.asarray(state.steps) > np.asarray(plain.steps)
        assert more.any() and not more.all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_that_vanish(dtype):
    # every row an outlier, with log π far below what exp holds; two equal rows of different classes
    X, y, weight = data(dtype)
    X[1], y[:2] = X[0], (0, 1)
    gram = kernels.gram(RBF(np.linspace(0.3, 3, C)), kernels.points(X))
    kernel = kernels.class_kernels(gram, np.full(C, 300.0), 0.7, C)
    problem = kernel_multinomial.kernel_problem(kernel, y, weight)
    state = kernel_multinomial.init(problem)
    alpha = np.where(np.eye(C)[y][..., None] == 1, -1.0, 0.2).astype(dtype) * weight[:, None]
    u = dense(kernel) @ alpha.reshape(N * C, LANES)
    state = state._replace(alpha=jnp.asarray(alpha), u=jnp.asarray(u.reshape(N, C, LANES)))
    assert np.min(jax.nn.log_softmax(state.u, axis=1)) < -1000
    state = state._replace(value=jnp.full(LANES, 1e9, dtype))
    hp = kernel_multinomial.HParams(tolerance=1e-3 if dtype == np.float32 else 1e-10)
    state = kernel_multinomial.run(problem, hp, state)
    assert state.alpha.dtype == dtype
    assert (np.asarray(state.status) == Status.CONVERGED).all()
    assert (np.asarray(state.residual) <= hp.tolerance).all()
    assert np.isfinite(state.u).all() and np.isfinite(state.value).all()


@pytest.mark.parametrize("name", ["flat", "tree"])
def test_cg_stops_at_the_radius(name):
    _, y, weight = data()
    kernel = model(name)
    problem = kernel_multinomial.kernel_problem(kernel, y, weight)
    u = jnp.asarray(np.random.default_rng(2).standard_normal((N, C, LANES)))
    pi = problem.likelihood.probabilities(u)
    b = problem.weight[:, None] * problem.likelihood.slope(u, pi)
    curvature = problem.likelihood.curvature(u, pi)

    def W(x):
        return problem.weight[:, None] * curvature(x)

    def inner(a, c):
        return np.asarray(jnp.sum(a * kernel.matmat(c), axis=(0, 1)))

    @jax.jit
    def solved(radius, max_steps):
        return kernel_multinomial.cg_in_functions(
            kernel.matmat, W, b, kernel.matmat(b), jnp.ones(LANES, bool), tolerance=1e-12,
            max_steps=max_steps, radius=radius,
        )  # fmt: skip

    def value(x):  # of the quadratic that CG minimises
        return inner(x, x + W(kernel.matmat(x))) / 2 - inner(x, b)

    free = solved(jnp.full(LANES, jnp.inf), 300)
    length = np.sqrt(inner(free.x, free.x))
    assert not free.cut.any()
    radius = length * np.array([0.3, 0.8, 1.01])
    short = solved(jnp.asarray(radius), 300)
    np.testing.assert_array_equal(short.cut, [True, True, False])
    np.testing.assert_allclose(np.sqrt(inner(short.x, short.x)), np.minimum(radius, length), rtol=1e-8)
    np.testing.assert_allclose(short.Kx, kernel.matmat(short.x), rtol=0, atol=1e-8)
    np.testing.assert_allclose(short.x[..., 2], free.x[..., 2], rtol=0, atol=1e-8)
    assert (short.steps[:2] < free.steps[:2]).all()
    # not above the best point of that length along b, where CG ends at once, and not below the minimum
    along_b = b * (radius / np.sqrt(inner(b, b)))
    np.testing.assert_allclose(short.x[..., 0], along_b[..., 0], rtol=1e-8)
    assert (value(short.x) < value(along_b))[1:].all() and (value(short.x) > value(free.x))[:2].all()


@pytest.mark.parametrize("weight", [-np.ones(40), np.full((40, 2), np.nan), np.ones(3)])
def test_weights_that_are_none_are_refused(weight):
    products = kernels.class_kernels(
        kernels.gram(kernels.RBF(1.0), kernels.points(np.ones((40, 1)))), 2.0, 1.0, 3
    )
    with pytest.raises(ValueError, match="weight"):
        kernel_multinomial.kernel_problem(products, np.arange(40) % 3, weight)
