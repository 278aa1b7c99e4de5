"""The alternating direction method of multipliers with dense features.

Native steps are those of NumPy, and a fit of any features ends at the gap that is promised.
"""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.internals import (
    admm,
    admm_blocks,
    admm_dense,
    admm_steps,
    certificates,
    certified,
    smoothed,
)
from tests.support.problems import needs_native, svm_problem
from xmcjax.solvers import Status, topk_sdca
from xmcjax.solvers import multiclass_dual as md

# formulations with their k, in problems of six classes
FORMS = [("ww", 1), ("llw", 1), ("cs", 1), ("ovr", 1), ("ovr_squared", 1)]
FORMS += [(f"topk_{variant}", k) for variant in ("alpha", "beta") for k in (1, 2, 4, 5)]
KINDS = {"topk_alpha": "alpha", "topk_beta": "beta"}


def inside(formulation, k, y, m, C, rng):
    """Dual variables in their set, about half of them 0."""
    A = rng.uniform(0, 1, (len(y), m)) * (rng.random((len(y), m)) < 0.5)
    if not formulation.startswith("ovr"):
        A[np.arange(len(y)), y] = 0
    of_rows = C[:, None] if np.ndim(C) else C
    return admm_dense.formulation_of(formulation).inside(sp.csr_array(of_rows * A), C, k)


@needs_native
@pytest.mark.parametrize(("formulation", "k"), FORMS)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-9), (np.float32, 2e-3)])
@pytest.mark.parametrize("n", [3, 600])
def test_native_steps_are_those_of_numpy(formulation, k, dtype, rtol, n):
    compare_steps(formulation, k, dtype, rtol, n, 0.7)


@needs_native
@pytest.mark.parametrize(("formulation", "k"), FORMS)
def test_native_steps_take_a_C_for_each_row(formulation, k):
    C = np.random.default_rng(5).uniform(0.05, 2, 90)
    C[[3, 40]] = 1e-20  # as of rows that fill up a problem
    compare_steps(formulation, k, np.float64, 1e-9, 90, C)


def compare_steps(formulation, k, dtype, rtol, n, C):
    rng, m, rho = np.random.default_rng(k), 6, 0.4
    y = np.concatenate([np.arange(min(m, n)), rng.integers(0, m, max(n - m, 0))]).astype(np.int32)
    X = rng.normal(size=(n, 5)) * rng.uniform(0.2, 3, size=(n, 1))
    X[n // 2] = 0
    form = admm_dense.formulation_of(formulation)
    alpha = inside(formulation, k, y, m, C, rng)
    basis = admm_dense.basis_of(X)
    numpy = admm_dense.Dense(basis, y, alpha, form, C, k)
    ours = [admm_blocks.Blocks(basis, y, m, form, C, k, dtype, threads) for threads in (1, 2)]
    for split in ours:
        split.start(alpha)
        np.testing.assert_allclose(split.begin(), numpy.begin(), rtol=rtol)
        split.use(rho)
    numpy.use(rho)
    for count in (1, 3, 2):
        expected, moved = numpy.look(), numpy.move(count)
        for split in ours:
            np.testing.assert_allclose(split.look(), expected, rtol=rtol)
            split.keep_weights()
            split.keep_alpha(1.0)
            np.testing.assert_allclose(split.move(count), moved, rtol=10 * rtol)
    numpy.look()
    numpy.keep_weights()
    numpy.keep_alpha(1.0)
    W, last = numpy.best()
    bits = []
    for split in ours:
        split.look()
        split.keep_weights()
        split.keep_alpha(1.0)
        found = split.best()
        np.testing.assert_allclose(found[0], W, atol=rtol * np.abs(W).max())
        np.testing.assert_allclose(found[1].toarray(), last.toarray(), atol=rtol * np.max(C))
        bits.append(found)
    np.testing.assert_array_equal(bits[0][0], bits[1][0])
    np.testing.assert_array_equal(bits[0][1].toarray(), bits[1][1].toarray())


@needs_native
@pytest.mark.parametrize(("variant", "k"), [("alpha", 3), ("alpha", 40), ("beta", 20), ("beta", 44)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_thresholds_of_many_classes_and_any_size(variant, k, scale):
    """k above what is kept in order, and rows whose pieces are far from those of the step before."""
    rng, n, m = np.random.default_rng(k), 200, 45
    X, y = rng.normal(size=(n, 4)), np.arange(n, dtype=np.int32) % m
    form, basis = admm_dense.formulation_of(f"topk_{variant}"), admm_dense.basis_of(X)
    alpha = inside(form.name, k, y, m, scale, rng)
    numpy = admm_dense.Dense(basis, y, alpha, form, scale, k)
    ours = admm_blocks.Blocks(basis, y, m, form, scale, k, np.float64)
    ours.start(alpha)
    for rho in (scale, 1e-3 * scale, 1e3 * scale):
        for split in (numpy, ours):
            split.use(rho)
        np.testing.assert_allclose(ours.look(), numpy.look(), rtol=1e-8)
        np.testing.assert_allclose(ours.move(2), numpy.move(2), rtol=1e-6)


# with their k and the smoothing γ; tests/solvers/test_topk_entropy.py has the top-k entropy
OPTIMA = [(name, 1, 0.0) for name in ("ww", "cs", "llw", "ovr", "ovr_squared")]
OPTIMA += [
    (f"topk_{variant}", k, gamma)
    for variant, k in (("alpha", 1), ("alpha", 3), ("beta", 2), ("beta", 4))
    for gamma in (0.0, 0.4)
]


@pytest.mark.parametrize(("formulation", "k", "gamma"), OPTIMA)
def test_the_optimum_is_that_of_an_interior_point_method(formulation, k, gamma):
    """Where features or rows are fewer, of one C and of a C for each row; a smoothing takes long to bound."""
    kind = KINDS.get(formulation, formulation)
    form = smoothed(formulation, gamma) if gamma else formulation
    for size in (dict(n=30, d=4, m=5), dict(n=10, d=15, m=5))[: 1 if gamma else 2]:
        X, y = svm_problem(**size)
        of_rows = np.random.default_rng(5).choice([0.1, 0.7, 3.0], len(y))
        of_rows *= np.random.default_rng(6).random(len(y))
        # C, the gaps that are asked for and certified, and how near the values are
        cases = [(of_rows, 1e-9, 1e-8, 1e-7)]
        cases += [(0.7, 1e-9, 1e-8, 1e-7)] if gamma else [(C, 1e-5, 1e-5, 2e-5) for C in (1e-3, 0.3, 10.0)]
        for C, tol, certain, near in cases:
            found = admm(X, y, 5, form, C, k)(sp.csr_array((len(y), 5)), tol, 20_000)
            least = dual_references.bound(X, y, 5, kind, k, C, gamma)
            proof = certified(X, y, found.alpha, form, C, certain, found.W, k)
            assert found.gap <= tol and proof.gap <= certain
            np.testing.assert_allclose([proof.primal, proof.dual], least, rtol=near)
            if gamma == 0:
                value = dual_references.objective(found.W, X, y, kind, k, C)
                assert value == pytest.approx(least, rel=near)
                assert proof.primal <= value * (1 + 1e-12) and least * (1 - tol) <= proof.dual
            # dual variables stay in sets of their own
            most = proof.alpha.max(axis=1).toarray().ravel()
            assert np.all(most <= (np.inf if "squared" in formulation else C + 1e-12))


def cases():
    """Features that are not as one would like them, by name: X and y."""
    rng = np.random.default_rng(3)
    y = np.concatenate([np.arange(4), rng.integers(0, 4, 26)])
    X = rng.normal(size=(4, 6))[y] + rng.normal(size=(30, 6))
    empty = X.copy()
    empty[::3] = 0
    wide = rng.normal(size=(30, 50)) + np.repeat(rng.normal(size=(4, 5)), 10, axis=1)[y]
    return {
        "unscaled": (X * 10.0 ** np.arange(-2, 4), y),
        "norm 150": (150 * X / np.linalg.norm(X, axis=1, keepdims=True), y),
        "rows of zeros": (empty, y),
        "equal rows": (np.vstack([X[:10]] * 3), np.concatenate([y[:10]] * 3)),
        "equal rows of other classes": (np.vstack([X[:10]] * 3), y),
        "fewer rows than features": (wide, y),
        "two classes": (X, y % 2),
        "equal features": (np.hstack([X[:, :2], np.ones((30, 3)), X[:, :1]]), y),
        "one feature": (X[:, :1], y),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["llw", "alpha", "beta"])
@pytest.mark.parametrize("name", cases())
def test_converged_is_a_promise_of_the_gap(name, method, dtype):
    X, y = cases()[name]
    X, m, converged = X.astype(dtype), int(y.max()) + 1, 0
    k = min(2, m - 1) if method in ("alpha", "beta") else 1
    for C in (1e-3, 1.0, 1e3):
        if method == "llw":
            found = md.run(X, y, formulation="llw", C=C, tol=1e-4)
        else:
            found = topk_sdca.solve(X, y, k, C, variant=method, tol=1e-4)
        value = dual_references.objective(found.W, X, y, method, k, C)
        assert found.primal == pytest.approx(value, rel=1e-6)
        least = dual_references.bound(X, y, m, method, k, C)
        if found.status == Status.CONVERGED:
            converged += 1
            assert value - least <= 1.001e-4 * value
        else:
            assert found.status in (Status.STALLED, Status.MAX_STEPS) and found.gap > 1e-4
    assert converged >= (2 if dtype == np.float32 else 3)


@needs_native
def test_what_float32_leaves_is_done_in_float64():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 60))
    y = np.concatenate([np.arange(10), rng.integers(0, 10, 290)]).astype(np.int32)
    X = 0.3 * centres[y] + rng.normal(size=(300, 60))
    X = 100 * X / np.linalg.norm(X, axis=1, keepdims=True)
    start, basis = sp.csr_array((300, 10)), admm_dense.basis_of(X)
    form = admm_dense.formulation_of("topk_beta")
    narrow = admm_blocks.Blocks(basis, y, 10, form, 10.0, 2, np.float32)
    narrow.start(start)
    assert admm_steps(narrow, 10.0, 1e-6, 20_000).gap > 1e-3
    found = admm(X, y, 10, "topk_beta", 10.0, 2)(start, 1e-6, 20_000)
    assert found.gap <= 1e-6
    assert certified(X, y, found.alpha, "topk_beta", 10.0, 1e-6, found.W, 2).gap <= 2e-6


@needs_native
@pytest.mark.parametrize("C", [1e-3, 10.0])
def test_what_comes_first_is_what_is_expected_to_cost_less(C):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 8
    X = (rng.normal(size=(8, 20))[y] + rng.normal(size=(400, 20))).astype(np.float32)
    found = topk_sdca.solve(X, y, 3, C, tol=1e-3)
    assert found.status == Status.CONVERGED
    assert found.reason.startswith("epochs come first" if C < 1 else "steps for all rows come first")
    # of a sparse matrix there is no choice, and where rows and features are many there are epochs alone
    found = topk_sdca.solve(sp.random_array((40, 90), density=0.1, rng=rng), y[:40], 3)
    assert found.reason == (
        "epochs come first, 400 of them at most where more are allowed: features are sparse"
    )
    for options, why in (
        (dict(gamma=1.0), "epochs come first: native steps for all rows at once have no smoothing"),
        (
            dict(variant="entropy"),
            "L-BFGS for the weights comes first: the loss is smooth, and features are dense",
        ),
    ):
        assert topk_sdca.solve(X[:40], y[:40], 3, **options).reason == why
    found = topk_sdca.solve(sp.eye_array(2001, format="csr"), np.arange(2001) % 3)
    assert found.reason.startswith("epochs alone: rows and features") and found.status == Status.CONVERGED


@pytest.mark.parametrize("more", [{}, {"gamma": 0.5}, {"weight": np.arange(300) % 3 + 1.0}])
@pytest.mark.parametrize("kind", ["csr", "products"])
def test_what_epochs_alone_do_not_solve_is_solved_by_steps_for_all_rows(kind, more):
    """A fifth of the entries is filled: visits of one row after another end at gaps of 0.3 to 0.8."""
    rng = np.random.default_rng(0)
    X = 10 * rng.normal(size=(300, 20)) * (rng.random((300, 20)) < 0.2)
    y = np.concatenate([np.arange(4), rng.integers(0, 4, 296)])
    given = sp.csr_array(X) if kind == "csr" else topk_sdca.Gram(jnp.asarray(np.float32(X @ X.T)))
    seen = []
    found = topk_sdca.solve(given, y, 1, 10.0, **more, observe=lambda now: seen.append(now.method))
    dense = topk_sdca.solve(X, y, 1, 10.0, **more)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and 400 < found.epochs < 600
    assert seen[0] != seen[-1] == "steps for all rows at once"
    # P is strongly convex: each of them is that near to the minimum
    W = (X.T if kind == "products" else np.eye(20)) @ found.W
    assert np.linalg.norm(W - dense.W) <= 2 * np.sqrt(2e-3 * found.primal)
    assert found.primal == pytest.approx(dense.primal, rel=1e-3)


def exact_gap(X, y, C, W, alpha):
    """(P − D) / P of the hinge loss of the largest gain, in fractions."""
    fractions = np.vectorize(Fraction, otypes=[object])
    X, W, alpha = (fractions(np.asarray(a, np.float64)) for a in (X, W, alpha.toarray()))
    rows, Z, of_own = np.arange(len(y)), X @ W, alpha.sum(axis=1)
    gains = 1 + Z - Z[rows, y][:, None]
    gains[rows, y] = 0  # no loss is below
    value = (W * W).sum() / 2 + Fraction(C) * gains.max(axis=1).sum()
    coefficients = -alpha
    coefficients[rows, y] += of_own
    assert (alpha >= 0).all() and of_own.max() <= C
    V = X.T @ coefficients
    return (value - (of_own.sum() - (V * V).sum() / 2)) / value


def test_a_gap_below_the_rounding_of_float64_is_not_promised(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(4), rng.integers(0, 4, 12)])
    X = 1.6e9 * (8 * rng.normal(size=(4, 6))[y] + rng.normal(size=(16, 6)))
    # what is promised of weights that are a little longer holds without any rounding
    found = topk_sdca.solve(X, y, 1, 1e3, variant="beta", tol=1e-3)
    assert found.status == Status.CONVERGED
    assert 0 <= exact_gap(X, y, 1e3, found.W, found.alpha) <= found.gap <= 1e-3
    monkeypatch.setattr(certificates, "_WIDER", ())
    monkeypatch.setattr(certificates, "OF_TOLERANCE", ())
    # the interior-point method has weights that need not be longer
    found = topk_sdca.solve(X, y, 1, 1e3, variant="beta", tol=1e-3)
    assert found.status == Status.CONVERGED
    assert (
        exact_gap(X, y, 1e3, found.W, found.alpha) == pytest.approx(found.gap, rel=1e-6) and found.gap <= 1e-3
    )
    monkeypatch.setattr("xmcjax.solvers._interior._UNKNOWNS", 0)
    found = topk_sdca.solve(X, y, 1, 1e3, variant="beta", tol=1e-3)
    value = dual_references.objective(found.W, X, y, "beta", 1, 1e3)
    least = dual_references.bound(X, y, 4, "beta", 1, 1e3)
    assert found.status != Status.CONVERGED and found.gap > 1e-3 and value - least > 1e-3 * value
    assert topk_sdca.solve(X / 1.6e9, y, 1, 1e3, variant="beta", tol=1e-3).status == Status.CONVERGED


def test_means_of_gains_that_are_zero_but_for_rounding_are_not_promised():
    # of the alpha form the mean of the k largest gains counts, and none of them is near 0 itself
    rng = np.random.default_rng(1)
    y = np.concatenate([np.arange(4), rng.integers(0, 4, 12)])
    X = 1e6 * (rng.normal(size=(4, 6))[y] + rng.normal(size=(16, 6)))
    found = topk_sdca.solve(X, y, 2, 1.0, variant="alpha", tol=1e-4)
    value = dual_references.objective(found.W, X, y, "alpha", 2, 1.0)
    least = dual_references.bound(X, y, 4, "alpha", 2, 1.0)
    assert value > least and found.gap >= (value - least) / value - 1e-12  # the rounding of the lower bound
    assert found.status != Status.CONVERGED or value - least <= 1e-4 * value


@pytest.mark.parametrize("scale", [1e-130, 1e130])
def test_numbers_whose_squares_vanish_are_no_error(scale):
    X, y = svm_problem(n=30, d=4, m=5)
    C = 1.0 if scale > 1 else 1e20
    found = topk_sdca.solve(scale * X, y, 2, C, variant="beta", tol=1e-3)
    steps = admm(scale * X, y, 5, "topk_beta", 1.0, 2)(sp.csr_array((30, 5)), 1e-3, 600)
    assert (found.status == Status.CONVERGED) == (found.gap <= 1e-3)
    if scale < 1:
        assert found.gap <= 1e-3 and steps.gap <= 1e-3
    # no gap is below the true one; of features as long as 1e130 the loss alone counts
    least = 30.0 if scale < 1 else dual_references.bound(X, y, 5, "beta", 2, 1e8) / 1e8
    for W, gap, of_rows in ((found.W, found.gap, C), (steps.W, steps.gap, 1.0)):
        value = dual_references.objective(W, scale * X, y, "beta", 2, of_rows)
        assert gap >= (value - of_rows * least) / value - 1e-9
