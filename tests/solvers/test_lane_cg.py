"""Conjugate gradients for lanes by the CUDA kernels, compiled for the CPU, beside those in plain JAX."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import cuda_builds
from tests.support.internals import cuda
from xmcjax import linops
from xmcjax.solvers import newton_cg

N, D = 300, 150


@pytest.fixture(autouse=True)
def kernels():
    cuda_builds.register()


def features(kind: str, dtype=np.float32, n=N, d=D):
    """Rows of one entry to a hundred, which are long ones, and an empty one."""
    rng = np.random.default_rng(0)
    filled = rng.random((n, d)) < 0.7 * rng.random((n, 1)) ** 3
    filled[[0, n - 1]] = False
    X = sp.csr_matrix(np.where(filled, rng.normal(size=(n, d)), 0).astype(dtype))
    if kind == "cuda":
        return dataclasses.replace(linops.make(X, dtype, backend="gpu"), kernels="cuda")
    return linops.make(X, dtype, backend=kind)


def operands(lanes: int, dtype=np.float32, n=N, d=D, active=0.2):
    """D, the gradient, that of the bias, and which lanes are running; the last has no active row."""
    rng = np.random.default_rng(1)
    curvature = np.where(rng.random((n, lanes)) < active, rng.random((n, lanes)) + 0.5, 0)
    curvature[:, -1] = 0
    gradient, of_bias = rng.normal(size=(d, lanes)), rng.normal(size=lanes)
    return curvature.astype(dtype), gradient.astype(dtype), of_bias.astype(dtype), rng.random(lanes) < 0.8


def solved(op, given, l2=0.3, l2_bias=0.5, enough=0.0, **more):
    curvature, gradient, of_bias, lanes = map(jnp.asarray, given)
    dtype = gradient.dtype
    hp = newton_cg.HParams(**more)
    numbers = jnp.asarray(l2, dtype), jnp.maximum(jnp.asarray(l2_bias, dtype), 0), jnp.asarray(l2_bias >= 0)
    small = jnp.full(lanes.shape, enough, dtype)
    work = jax.jit(newton_cg.newton_direction)
    return [np.asarray(a) for a in work(op, curvature, gradient, of_bias, *numbers, lanes, small, hp)]


def by_numpy(op, given, l2, l2_bias):
    """The directions of all lanes from the systems as matrices of float64."""
    X = op.to_scipy().toarray().astype(np.float64)
    curvature, gradient, of_bias, lanes = given
    directions = np.zeros((X.shape[1], len(lanes)))
    for lane in np.flatnonzero(lanes):
        A = np.column_stack([X, np.ones(len(X))]) if l2_bias >= 0 else X
        H = A.T @ (curvature[:, [lane]] * A) + np.diag([l2] * X.shape[1] + [l2_bias] * (l2_bias >= 0))
        right = [*gradient[:, lane], *([of_bias[lane]] if l2_bias >= 0 else [])]
        directions[:, lane] = np.linalg.solve(H, -np.array(right, np.float64))[: X.shape[1]]
    return directions


@pytest.mark.parametrize(
    ("lanes", "l2_bias", "preconditioner"),
    [
        (3, 0.5, 0.1),
        (32, -1.0, 0.0),
        (70, 0.5, 0.0),
        (70, -1.0, 0.1),
        (cuda.TILE * cuda.PANEL + 35, 0.5, 0.0),
    ],
)
def test_the_direction_is_that_of_the_systems(lanes, l2_bias, preconditioner):
    size = dict(n=N, d=D) if lanes < 100 else dict(n=60, d=40)  # the threads of a CPU take turns
    op, given = features("cuda", **size), operands(lanes, **size)
    more = dict(cg_progress=0.0, cg_tolerance=1e-5, preconditioner=preconditioner)
    direction, of_bias, steps, _ = solved(op, given, l2_bias=l2_bias, **more)
    expected = by_numpy(op, given, 0.3, l2_bias)
    np.testing.assert_allclose(direction, expected, atol=2e-4 * np.abs(expected).max())
    assert (steps[given[3]] > 0).all() and (steps[~given[3]] == 0).all()
    assert (direction[:, ~given[3]] == 0).all()
    assert np.any(of_bias != 0) == (l2_bias >= 0)


@pytest.mark.parametrize("enough", [0.0, 1.5])
@pytest.mark.parametrize("preconditioner", [0.0, 0.1])
def test_lanes_stop_where_those_in_plain_jax_do(enough, preconditioner):
    """In float64, where rounding does not decide: by slow progress, what is enough, the number of steps."""
    with jax.enable_x64(True):
        given = operands(40, np.float64)
        for more in (dict(), dict(max_cg=3), dict(cg_progress=0.0, cg_tolerance=0.05)):
            options = dict(l2=30.0, enough=enough, preconditioner=preconditioner, **more)
            ours = solved(features("cuda", np.float64), given, **options)
            theirs = solved(features("jnp", np.float64), given, **options)
            np.testing.assert_array_equal(ours[2], theirs[2])
            np.testing.assert_array_equal(ours[3], theirs[3])
            for mine, other in zip(ours[:2], theirs[:2], strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
    assert ours[3].any() == (enough > 0 and preconditioner == 0)


def test_the_same_bits_twice_and_in_any_company():
    """Of a lane, whatever its neighbours have."""
    op, given = features("cuda"), operands(70)
    whole = solved(op, given)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(whole, solved(op, given), strict=True))
    for lane in np.flatnonzero(given[3])[[0, 20]]:
        others = np.arange(70) != lane
        curvature, gradient, of_bias, lanes = given
        other = (
            np.where(others, np.roll(curvature, 7, axis=0), curvature),
            np.where(others, -gradient, gradient),
        )
        alone = *other, np.where(others, -of_bias, of_bias), lanes ^ others
        assert solved(op, alone)[0][:, lane].tobytes() == whole[0][:, lane].tobytes()


def test_what_is_solved_is_not_read():
    """Lanes that are not running may hold anything; NaN in their curvature and gradient goes nowhere."""
    op, (curvature, gradient, of_bias, lanes) = features("cuda"), operands(70)
    expected = solved(op, (curvature, gradient, of_bias, lanes))
    curvature[:, ~lanes], gradient[:, ~lanes] = np.nan, np.nan
    ours = solved(op, (curvature, gradient, of_bias, lanes))
    np.testing.assert_array_equal(ours[0][:, lanes], expected[0][:, lanes])
    np.testing.assert_array_equal(ours[2], expected[2])


def test_bits_of_lanes():
    rng = np.random.default_rng(0)
    for lanes in (1, 32, 70):
        there = rng.random((9, lanes)) < 0.4
        bits = np.asarray(cuda.cuda_lane_bits(jnp.asarray(there * -0.5)))
        assert bits.dtype == np.uint32 and bits.shape == (9, -(-lanes // 32))
        read = (bits[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(9, -1)
        np.testing.assert_array_equal(read[:, :lanes], there)
        assert not read[:, lanes:].any()


def test_one_active_row_has_no_curvature_beside_a_free_bias():
    """Σ D (s − q)² is 0 where one row is active; what is left is λ ‖p‖²."""
    given = operands(4)
    given[0][1:, 0] = 0
    given[0][5, 0] = 2
    given = *given[:3], np.arange(4) == 0
    direction, _, steps, _ = solved(features("cuda"), given, l2_bias=0.0, cg_progress=0.0, cg_tolerance=1e-6)
    assert steps.tolist() == [1, 0, 0, 0]
    expected = by_numpy(features("cuda"), given, 0.3, 0.0)[:, 0]
    np.testing.assert_allclose(direction[:, 0], expected, rtol=1e-4, atol=1e-4)


def test_arrays_that_are_not_given_away_stay():
    """XLA copies what a call changes in place where something else reads it."""
    rng = np.random.default_rng(0)
    r, p, product, inverse = (jnp.asarray(rng.normal(size=(90, 5)), jnp.float32) for _ in range(4))
    alpha, scale, none = jnp.float32([0.5, 0, 1, 2, 3]), jnp.float32([0.3]), jnp.zeros(1, jnp.float32)
    before = np.array(r)

    @jax.jit
    def work(r):
        moved, total = cuda.cuda_cg_residual(r, p, product, inverse, alpha, scale, none)
        return moved, total, r

    moved, total, kept = work(r)
    np.testing.assert_array_equal(kept, before)
    np.testing.assert_array_equal(r, before)
    expected = before - np.asarray(alpha) * (0.3 * np.asarray(p) + np.asarray(product))
    np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total[0], np.sum(expected[:, 0] ** 2), rtol=1e-5)
    assert total[1] == 0  # nothing of it is read
