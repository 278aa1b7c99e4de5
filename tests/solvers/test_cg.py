"""Conjugate gradients by lane: the solution and where they stop, beside NumPy and Lanczos."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.internals import cg as module

PART_OF_BOUND, SURE, Progress, cg = module.PART_OF_BOUND, module.SURE, module.Progress, module.cg

D, LANES, LEAST = 12, 5, 0.7


def systems(spread=1.0):
    """Matrices with eigenvalues of at least LEAST, [LANES, D, D], and right-hand sides [D, LANES]."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(LANES, D, 4 * D)) * 10 ** np.linspace(-spread, spread, D)[:, None]
    return LEAST * np.eye(D) + roots @ roots.swapaxes(1, 2), rng.normal(size=(D, LANES))


def solve(A, b, **options):
    def product(V):
        return jnp.einsum("lij,jl->il", A, V)

    with jax.enable_x64(True):
        found = cg(product, jnp.asarray(b), jnp.ones((1, 1)), jnp.ones(LANES, bool), max_steps=50, **options)
        return jax.tree.map(np.asarray, found)


def falls(A, b):
    """½ (bᵀA⁻¹b)_k after k = 1, 2, … steps and the bound above bᵀA⁻¹b, from matrices T_k of Lanczos.

    (bᵀA⁻¹b)_k = ‖b‖² (T_k⁻¹)₁₁; with the last entry of T_{k+1} such that LEAST is an eigenvalue of it,
    that is the rule of Gauss and Radau (G. Golub, G. Meurant, "Matrices, moments and quadrature", 1994).
    """
    vectors, alphas, betas = [b / np.linalg.norm(b)], [], []
    lower, upper = [], []
    for k in range(1, 8):
        q = A @ vectors[-1]
        alphas.append(q @ vectors[-1])
        for v in [*vectors, *vectors]:
            q = q - (q @ v) * v
        betas.append(np.linalg.norm(q))
        vectors.append(q / betas[-1])
        T = np.diag(alphas) + np.diag(betas[:-1], 1) + np.diag(betas[:-1], -1)
        lower.append(np.linalg.inv(T)[0, 0])
        last = LEAST + betas[-1] ** 2 * np.linalg.inv(T - LEAST * np.eye(k))[-1, -1]
        more = np.diag([*alphas, last]) + np.diag(betas, 1) + np.diag(betas, -1)
        upper.append(np.linalg.inv(more)[0, 0])
    return np.array(lower) * (b @ b) / 2, np.array(upper) * (b @ b) / 2


def test_solution_equals_numpy():
    A, b = systems()
    x = solve(A, b, tolerance=1e-12).x
    np.testing.assert_allclose(x.T, np.linalg.solve(A, b.T[..., None])[..., 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("part", [0.1, 0.3, 0.8])
def test_ends_where_a_step_makes_little_progress(part):
    A, b = systems(0.2)
    never = np.zeros(LANES)
    steps = solve(A, b, tolerance=0.0, progress=Progress(part, LEAST, never)).steps
    for lane in range(LANES):
        fall, _ = falls(A[lane], b[:, lane])
        last = np.diff(fall, prepend=0)
        slow = np.flatnonzero(np.arange(1, 8) * last <= part * fall)
        assert steps[lane] == slow[0] + 1
    assert steps.max() > 1


def enough(lower, upper, kept, slow=False):
    """Whether the whole fall is known to be enough; less is asked where progress is slow."""
    whole = lower + PART_OF_BOUND * (upper - lower)
    return (whole <= kept) | (slow & (lower <= kept) & (whole <= SURE * kept))


@pytest.mark.parametrize("kept", [1.02, 1.3, 3.0])
def test_ends_where_the_bounds_show_enough(kept):
    A, b = systems()
    whole = np.einsum("il,il->l", b, np.linalg.solve(A, b.T[..., None])[..., 0].T) / 2
    steps = solve(A, b, tolerance=0.0, progress=Progress(1e-12, LEAST, kept * whole)).steps
    for lane in range(LANES):
        lower, upper = falls(A[lane], b[:, lane])
        assert (lower <= whole[lane] * (1 + 1e-9)).all() and (upper >= whole[lane] * (1 - 1e-9)).all()
        shown = np.flatnonzero(enough(lower, upper, kept * whole[lane]))
        assert steps[lane] == shown[0] + 1


@pytest.mark.parametrize("kept", [0.05, 0.2, 1.5])
def test_slow_progress_decides_nothing_before_it_is_known_whether_it_is_enough(kept):
    A, b = systems()
    whole = np.einsum("il,il->l", b, np.linalg.solve(A, b.T[..., None])[..., 0].T) / 2
    # a part of 100 ends every lane after its first step
    found = solve(A, b, tolerance=0.0, progress=Progress(100.0, LEAST, kept * whole))
    for lane in range(LANES):
        lower, upper = falls(A[lane], b[:, lane])
        shown = enough(lower, upper, kept * whole[lane], slow=True)
        first = np.flatnonzero(shown | (lower > kept * whole[lane]))[0]
        assert found.steps[lane] == first + 1 and found.settled[lane] == shown[first]
    assert found.settled.all() == (kept > 1)


def test_without_a_part_the_tolerance_decides():
    A, b = systems()
    plain = solve(A, b, tolerance=0.1)
    same = solve(A, b, tolerance=0.1, progress=Progress(0.0, LEAST, np.zeros(LANES)))
    np.testing.assert_array_equal(plain.steps, same.steps)
    np.testing.assert_array_equal(plain.x, same.x)
