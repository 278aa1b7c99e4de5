"""Derivatives of the solutions of ``SOLVERS``: forward, in reverse, and by finite differences."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.processes import run_program
from tests.support.solvers import CASES, SIGNS, C, X, Y
from xmcjax import kernels, linops
from xmcjax.kernels import GivenProducts
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.penalties import L1
from xmcjax.solvers import SOLVERS, Status

STEP = 1e-5
N, D = X.shape


def with_values(op, values):
    """The same operator with other values."""
    return dataclasses.replace(op, **{"X" if isinstance(op, linops.Dense) else "value": values})


def values_of(op):
    return op.X if isinstance(op, linops.Dense) else op.value


def newton_cg(loss, path, l2_bias):
    X_ = X if path == "dense" else sp.csr_matrix(X)
    op = linops.make(X_, backend=path)
    made = SOLVERS["newton_cg"].problem(
        op, SIGNS, MARGIN_LOSSES[loss], tolerance=1e-12, shift=np.zeros((N, 1))
    )
    hp = SOLVERS["newton_cg"].hparams(l2_bias=l2_bias, decrement=1e-24)

    def arguments(values, weight, shift, l2, r):
        problem = dataclasses.replace(made, op=with_values(op, values), weight=weight, shift=shift)
        return problem, hp._replace(l2=l2, l2_bias=r if l2_bias > 0 else l2_bias)

    return arguments, (values_of(op), np.linspace(0.5, 2, N)[:, None], np.zeros((N, 1)), 0.6, 0.3)


def multinomial(path, intercept):
    op = linops.make(X if path == "dense" else sp.csr_matrix(X), backend=path)
    made = SOLVERS["multinomial"].problem(op, Y, 1.0, intercept=intercept)
    hp = SOLVERS["multinomial"].hparams(tolerance=1e-13)

    def arguments(values, weight, l2):
        return dataclasses.replace(made, op=with_values(op, values), weight=weight, l2=l2), hp

    return arguments, (values_of(op), np.linspace(0.5, 2, N), 0.4)


def kernel_of_points(memory, exact):
    hp = SOLVERS["kernel_multinomial"].hparams(tolerance=1e-13)

    def arguments(points, gamma, v, sigma2, weight, logits):
        gram = kernels.gram(kernels.RBF(gamma), kernels.points(points), memory=memory)
        K = dataclasses.replace(kernels.class_kernels(gram, np.ones(3), 1.0, 3), v=v, sigma2=sigma2)
        made = SOLVERS["kernel_multinomial"].problem(K, jax.nn.softmax(logits), exact=exact)
        return dataclasses.replace(made, weight=weight[:, None]), hp

    logits = 4 * np.eye(3)[Y] + np.linspace(0, 1, 3)
    return arguments, (X, 0.4, np.array([1.0, 2.0, 1.5]), 0.3, np.linspace(0.5, 2, N), logits)


CASES_OF_DERIVATIVES = {
    **{
        f"newton_cg {loss} {path} {r}": (newton_cg, (loss, path, r))
        for loss, path, r in [
            ("logistic", "dense", 0.3),
            ("logistic", "dense", 0.0),
            ("logistic", "jnp", -1.0),
            ("squared_hinge", "dense", 0.3),
            ("huber_hinge", "dense", 0.3),
            *([("logistic", "native", 0.3)] if linops.native_ready() else []),
        ]
    },
    **{
        f"multinomial {path} {intercept}": (multinomial, (path, intercept))
        for path, intercept in [
            ("dense", True),
            ("dense", False),
            *([("native", True)] if linops.native_ready() else [("jnp", True)]),
        ]
    },
    "kernel_multinomial stored": (kernel_of_points, (2**20, False)),
    "kernel_multinomial tiles": (kernel_of_points, (0, False)),
    "kernel_multinomial exact": (kernel_of_points, (2**20, True)),
}


# Of a curvature that jumps, as that of the Huber hinge, and of fewer weights.
SLOW = "newton_cg squared_hinge dense 0.3", "multinomial dense False"
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES_OF_DERIVATIVES
]


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_those_of_finite_differences(name, compilations):
    made, options = CASES_OF_DERIVATIVES[name]
    arguments, given = made(*options)
    given = tuple(jnp.asarray(a, jnp.float64) for a in given)
    solver = SOLVERS[name.split()[0]]
    found = solver.run(*arguments(*given))
    assert np.all(np.asarray(found.status) == Status.CONVERGED)
    rng = np.random.default_rng(5)
    # one number of all weights and objectives
    mix = jax.tree.map(lambda a: rng.normal(size=a.shape), (found.weights, found.value))

    def number(*given):
        found = solver.run(*arguments(*given))
        parts = jax.tree.map(lambda m, a: jnp.sum(m * a), mix, (found.weights, found.value))
        return sum(jax.tree.leaves(parts))

    slopes = jax.grad(number, tuple(range(len(given))))
    gradient = slopes(*given)
    assert not compilations(lambda: slopes(*given))
    # one program, in place of one for each argument; "multinomial" is solved on the host
    compiled = (lambda f: f) if name.startswith("multinomial") else jax.jit
    forwards = compiled(lambda tangents: jax.jvp(number, given, tangents)[1])
    for place, (a, slope) in enumerate(zip(given, gradient, strict=True)):
        # places of padding are no values of the features
        direction = jnp.asarray(np.where((a != 0) | (place > 0), rng.normal(size=a.shape), 0))

        def along(t, place=place, direction=direction):
            return number(*given[:place], given[place] + t * direction, *given[place + 1 :])

        difference = (along(STEP) - along(-STEP)) / (2 * STEP)
        scale = max(1.0, float(jnp.linalg.norm(slope)))
        assert abs(float(jnp.sum(slope * direction)) - difference) <= 1e-6 * scale
        if place == 0:
            forward = jax.jvp(along, (0.0,), (1.0,))[1]
            assert not compilations(lambda along=along: jax.jvp(along, (0.0,), (1.0,)))
        else:
            forward = forwards(tuple(direction if i == place else 0 * b for i, b in enumerate(given)))
        np.testing.assert_allclose(forward, jnp.sum(slope * direction), rtol=1e-8, atol=1e-8 * scale)


def test_the_derivative_where_the_bias_begins_to_be_regularised():
    """Below 0 there is no bias: at 0 the derivative is that to the right."""
    arguments, given = newton_cg("logistic", "dense", 0.3)
    values, weight, shift, l2, _ = (jnp.asarray(a) for a in given)

    def number(r):
        found = SOLVERS["newton_cg"].run(*arguments(values, weight, shift, l2, r))
        return jnp.sum(found.value) + jnp.sum(found.weights.bias)

    difference = (-3 * number(0.0) + 4 * number(STEP) - number(2 * STEP)) / (2 * STEP)
    assert abs(difference) > 0.1
    np.testing.assert_allclose(jax.grad(number)(0.0), difference, rtol=1e-5)
    np.testing.assert_allclose(jax.jvp(number, (0.0,), (1.0,))[1], difference, rtol=1e-5)


def test_kernel_values_that_were_given():
    hp = SOLVERS["kernel_multinomial"].hparams(tolerance=1e-13)
    matrix = X @ X.T + np.eye(N)
    mix = np.random.default_rng(6).normal(size=(N, 3, 1))

    def number(matrix):
        gram = kernels.gram(kernels.Linear(), GivenProducts(matrix, jnp.diagonal(matrix)))
        K = kernels.class_kernels(gram, 0.5, 0.3, 3)
        return jnp.sum(
            mix * SOLVERS["kernel_multinomial"].run(SOLVERS["kernel_multinomial"].problem(K, Y), hp).weights
        )

    change = np.random.default_rng(7).normal(size=(N, N))
    change = change + change.T
    slope = jnp.sum(jax.grad(number)(jnp.asarray(matrix)) * change)
    difference = (number(matrix + STEP * change) - number(matrix - STEP * change)) / (2 * STEP)
    assert abs(slope - difference) <= 1e-6 * max(1.0, abs(slope))


def test_jit_and_vmap_of_a_derivative():
    arguments, given = newton_cg("logistic", "dense", 0.3)
    values, weight, shift, _, r = (jnp.asarray(a) for a in given)

    def norm(l2):
        found = SOLVERS["newton_cg"].run(*arguments(values, weight, shift, l2, r))
        return jnp.sum(found.weights.w**2)

    l2 = jnp.array([0.3, 0.6])
    apart = jnp.stack([jax.grad(norm)(one) for one in l2])
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(norm)))(l2), apart, rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(jax.jacfwd(norm))(l2), apart, rtol=1e-9)


def test_jacobians():
    arguments, given = multinomial("dense", True)
    values, weight, l2 = (jnp.asarray(a) for a in given)

    def weights(weight):
        return SOLVERS["multinomial"].run(*arguments(values, weight, l2)).weights.w

    np.testing.assert_allclose(
        jax.jacrev(weights)(weight), jax.jacfwd(weights)(weight), rtol=1e-8, atol=1e-10
    )


def test_second_derivatives_and_other_penalties_are_refused():
    arguments, given = newton_cg("logistic", "dense", 0.3)
    values, weight, shift, _, r = (jnp.asarray(a) for a in given)

    def value(l2, penalty=None):
        problem, hp = arguments(values, weight, shift, l2, r)
        problem = problem if penalty is None else dataclasses.replace(problem, penalty=penalty)
        return jnp.sum(SOLVERS["newton_cg"].run(problem, hp).value)

    with pytest.raises(NotImplementedError, match="got a second"):
        jax.grad(jax.grad(value))(0.6)
    with pytest.raises(TypeError, match="expected the penalty l2 for derivatives of a solution, got l1"):
        jax.grad(value)(0.6, L1())


@pytest.mark.parametrize("name", [name for name in SOLVERS if isinstance(SOLVERS[name].derivative, str)])
def test_solvers_without_a_derivative_say_so(name):
    case = CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    field = "C" if name == "multiclass_dual" else "bound"

    def value(number):
        moved = dataclasses.replace(problem, **{field: jnp.asarray(getattr(problem, field)) * number})
        return jnp.sum(SOLVERS[name].run(moved, case.loose).value)

    assert np.isfinite(value(C))
    for derivative in (jax.grad, jax.jacfwd):
        with pytest.raises(TypeError, match=f"expected a solver with a derivative, got {name}"):
            derivative(value)(1.0)


def test_tangents_that_are_numbers_of_python():
    arguments, given = newton_cg("logistic", "dense", 0.3)
    values, weight, shift, l2, r = (jnp.asarray(a) for a in given)

    def norm(l2):
        return jnp.sum(SOLVERS["newton_cg"].run(*arguments(values, weight, shift, l2, r)).weights.w ** 2)

    np.testing.assert_allclose(jax.jvp(norm, (float(l2),), (1.0,))[1], jax.grad(norm)(l2), rtol=1e-9)


@pytest.mark.parametrize(("name", "path"), [("newton_cg", "jnp"), ("multinomial", "dense")])
def test_numbers_of_another_dtype_than_the_features(name, path):
    """A weight, and a λ, of float64 beside features of float32."""
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float32, path)
    wide = jnp.asarray(problem.weight, jnp.float64)

    def value(weight, l2, problem=problem):
        if name == "multinomial":
            return solver.run(dataclasses.replace(problem, weight=weight, l2=l2), case.loose).value.sum()
        return solver.run(dataclasses.replace(problem, weight=weight), case.loose._replace(l2=l2)).value.sum()

    expected = jax.value_and_grad(value, (0, 1))(problem.weight, jnp.float32(0.5))
    found = jax.value_and_grad(value, (0, 1))(wide, jnp.float64(0.5))
    assert found[0].dtype == jnp.float32 and found[1][0].dtype == found[1][1].dtype == jnp.float64
    _, moved = jax.jvp(lambda l2: value(wide, l2), (jnp.float64(0.5),), (jnp.float64(1.0),))
    slopes = zip(found[1], expected[1], strict=True)
    for ours, theirs in ((found[0], expected[0]), (moved, expected[1][1]), *slopes):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_problem_that_is_made_within_the_function():
    """Features and weights that are traced; λ is given afterwards."""
    solver, weight = SOLVERS["multinomial"], np.linspace(0.5, 2, N)
    given = jnp.asarray(X), jnp.asarray(weight), 0.4

    def value(values, weight, l2, inside=True):
        made = solver.problem(linops.make(values if inside else X), Y, 1.0, weight=weight if inside else 1.0)
        made = dataclasses.replace(made, op=linops.make(values), weight=weight, l2=jnp.asarray(l2))
        return solver.run(made, solver.hparams(tolerance=1e-10)).value

    found = jax.grad(value, (0, 1, 2))(*given)
    expected = jax.grad(lambda *some: value(*some, inside=False), (0, 1, 2))(*given)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="expected finite weights"):
        jax.grad(lambda c: solver.problem(linops.make(X), Y, 1.0, weight=c).weight.sum())(-given[1])
    with pytest.raises(ValueError, match="expected finite features"):
        jax.grad(lambda x: solver.problem(linops.make(x), Y, 1.0).op.X.sum())(jnp.nan * given[0])
    with pytest.raises(TypeError, match=r"^lam: expected a number, got one that is traced: make the problem"):
        jax.grad(lambda l2: solver.problem(linops.make(X), Y, l2).l2)(0.5)


SHARED = """
import dataclasses
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from tests.support.solvers import CASES, N
from xmcjax.solvers import SOLVERS

LANES = 4
mesh = Mesh(np.array(jax.devices()), ("lanes",))
for name, path in (("newton_cg", "dense"), ("newton_cg", "jnp"), ("kernel_multinomial", "stored"),
                   ("kernel_multinomial", "tiles"), ("kernel_multinomial", "exact")):
    solver, case = SOLVERS[name], CASES[name]
    problem, hp = case.problem(np.float64, path), case.tight
    if name == "newton_cg":
        y = jnp.tile(problem.y, 2), jnp.tile(problem.tolerance, 2)
        part, specs = ("y", "tolerance"), (P(None, "lanes"), P("lanes"))
    else:
        y, part, specs = (jnp.tile(problem.weight, 2),), ("weight",), (P(None, "lanes"),)

    def value(weight, *of_lanes):
        made = dataclasses.replace(problem, **dict(zip(part, of_lanes)))
        made = dataclasses.replace(made, weight=weight * made.weight)
        return solver.run(made, hp).value

    def both(scale, *of_lanes):
        return value(scale, *of_lanes), jax.grad(lambda s: value(s[0], *of_lanes).sum())(scale[None])

    run = jax.jit(jax.shard_map(both, mesh=mesh, in_specs=(P(), *specs), out_specs=(P("lanes"), P())))
    found, slope = run(jnp.float64(1.3), *y)
    optimum = jax.jit(lambda s, *y: (value(s, *y), jax.grad(lambda s: value(s, *y).sum())(s)))(1.3, *y)
    np.testing.assert_allclose(found, optimum[0], rtol=1e-9)
    np.testing.assert_allclose(slope[0], optimum[1], rtol=1e-6)
print("agree")
"""


def test_the_devices_of_a_mesh_share_the_lanes():
    """With the check of JAX of what varies over the devices, which is on by default."""
    assert run_program(SHARED, devices=2) == "agree"
