"""Multi-class SVMs by dual ascent, against a QP solver, scikit-learn and each other."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from multiclass_helpers import data, optimum, primal, quadratic_program
from sklearn.svm import LinearSVC

from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md
from xmcjax.solvers.multiclass_dual import _proximal

C = 0.7
TIGHT = md.HParams(tol=1e-12, max_epochs=20000)


def converged(problem, hp=TIGHT, seed=0):
    state = md.run_epochs(problem, hp, md.init(problem, jax.random.key(seed)))
    assert state.status == Status.CONVERGED
    return state


# both kinds of features, with instances, classes and pairs of classes as lanes
@pytest.mark.parametrize(
    ("formulation", "kind"),
    [
        ("ww", np.asarray),
        *((name, np.asarray if name == "cs" else sp.csr_matrix) for name in md.FORMULATIONS),
    ],
)
def test_the_optimum_is_that_of_a_qp_solver(formulation, kind):
    X, y = data()
    W, value = optimum(formulation, C)
    problem = md.multiclass_problem(kind(X), y, formulation=formulation, C=C)
    state = converged(problem)
    np.testing.assert_allclose(state.W, W, atol=1e-5)
    np.testing.assert_allclose(primal(np.asarray(state.W), X, y, formulation, C), value, rtol=1e-9)
    np.testing.assert_allclose(state.primal, value, rtol=1e-9)
    np.testing.assert_allclose(state.dual, value, rtol=1e-6)
    assert abs(state.gap) < 1e-6
    np.testing.assert_allclose(md.weights(problem, state.alpha), state.W, atol=1e-12)


@pytest.mark.parametrize("formulation", ["llw", "cs", "ovr_squared"])
def test_proximal_steps_reach_the_same_optimum(formulation):
    X, y = data()
    problem = md.multiclass_problem(X, y, formulation=formulation, C=C)
    point = _proximal.start(problem, jnp.zeros((len(y), 3)))
    dual = [float(point.dual)]
    while point.violation > 1e-8:
        point = _proximal.advance(problem, 1e-8, point)
        dual.append(float(point.dual))
        assert len(dual) < 20
    assert (np.diff(dual) >= -1e-9).all()  # the dual never falls
    W, value = optimum(formulation, C)
    np.testing.assert_allclose(point.W, W, atol=1e-5)
    np.testing.assert_allclose(md.certificate(problem, point.W, point.alpha).dual, value, rtol=1e-7)


def test_weights_of_llw_sum_to_zero():
    X, y = data()
    problem = md.multiclass_problem(sp.csr_matrix(X), y, formulation="llw", C=C)
    state = md.init(problem, jax.random.key(0))
    for epochs in (1, 2, 5):  # not only at the optimum
        state = md.run_epochs(
            problem, md.HParams(1e-9, epochs), state._replace(status=jnp.int32(Status.RUNNING))
        )
        np.testing.assert_allclose(state.W.sum(axis=1), 0, atol=1e-13)


def test_ww_with_two_classes_is_the_binary_svm_with_twice_the_c():
    X, y = data(m=2)
    state = md.run(X, y, formulation="ww", C=C, tol=1e-8)
    svm = LinearSVC(loss="hinge", C=2 * C, fit_intercept=False, tol=1e-12, max_iter=10**6, random_state=0)
    w = svm.fit(X, y).coef_[0]
    np.testing.assert_allclose(state.W, np.stack([-w / 2, w / 2], axis=1), atol=1e-5)
    binary = w @ w / 2 + 2 * C * np.maximum(0, 1 - np.where(y == 1, 1, -1) * (X @ w)).sum()
    np.testing.assert_allclose(state.primal, binary / 2, rtol=1e-8)


@pytest.mark.parametrize(("formulation", "loss"), [("ovr", "hinge"), ("ovr_squared", "squared_hinge")])
def test_one_against_the_rest_is_scikit_learns(formulation, loss):
    X, y = data()
    svm = LinearSVC(loss=loss, C=C, fit_intercept=False, tol=1e-7, max_iter=10**6, random_state=0)
    ours = md.run(X, y, formulation=formulation, C=C, tol=1e-8)
    np.testing.assert_allclose(ours.W, svm.fit(X, y).coef_.T, atol=1e-5)


def test_crammer_singer_is_scikit_learns():
    X, y = data()
    options = dict(C=C, fit_intercept=False, tol=1e-12, max_iter=10**6, random_state=0)
    svm = LinearSVC(multi_class="crammer_singer", **options).fit(X, y)
    np.testing.assert_allclose(md.run(X, y, formulation="cs", C=C, tol=1e-8).W, svm.coef_.T, atol=1e-5)


@pytest.mark.parametrize("formulation", ["ww", "llw"])
def test_a_row_of_zeros_ends_at_the_bound(formulation):
    X, y = data()
    kind = sp.csr_matrix if formulation == "llw" else np.asarray  # compiled above
    state = converged(md.multiclass_problem(kind(X), y, formulation=formulation, C=C))
    (zero,) = np.flatnonzero(~X.any(axis=1))
    np.testing.assert_array_equal(state.alpha[zero], np.where(np.arange(3) == y[zero], 0, C))


def test_shrinking_changes_the_way_and_not_the_end():
    X, y = data()
    problem = md.multiclass_problem(X, y, formulation="ww", C=C)
    state, shrunk = md.init(problem, jax.random.key(0)), []
    while state.status != Status.CONVERGED:
        state = state._replace(status=jnp.int32(Status.RUNNING))
        state = md.run_epochs(problem, TIGHT._replace(max_epochs=int(state.epoch) + 1), state)
        shrunk.append(float(state.shrunk))
    assert max(shrunk) > 0.1
    assert shrunk[-1] == 0  # an epoch over everything confirms
    full = converged(problem, TIGHT._replace(shrinking=False))
    np.testing.assert_allclose(state.W, full.W, atol=1e-7)
    np.testing.assert_array_equal(md.run_epochs(problem, TIGHT, state).W, state.W)  # a state that has ended


def test_the_order_comes_from_the_key():
    X, y = data()
    problem = md.multiclass_problem(X, y, formulation="ww", C=C)
    hp = TIGHT._replace(max_epochs=2)
    once, again, other = (md.run_epochs(problem, hp, md.init(problem, jax.random.key(k))) for k in (1, 1, 2))
    np.testing.assert_array_equal(once.W, again.W)
    assert np.abs(once.W - other.W).max() > 1e-6
    assert once.status == Status.MAX_STEPS


def test_problems_as_lanes():
    X, y = data()
    problem = md.multiclass_problem(sp.csr_matrix(X), y, formulation="llw", C=C)
    state = md.init(problem, jax.random.key(0))

    def after_an_epoch(C):
        return md.step(dataclasses.replace(problem, C=C), TIGHT, state).W

    both = jax.jit(jax.vmap(after_an_epoch))(jnp.array([0.1, C]))
    one = md.run_epochs(problem, TIGHT._replace(max_epochs=1), state)
    np.testing.assert_allclose(both[1], one.W, atol=1e-12)
    assert np.abs(both[0] - both[1]).max() > 0.01


def test_float32():
    X, y = data(dtype=np.float32)
    with jax.enable_x64(False):
        solution = md.run(X, y, formulation="llw", C=C, tol=1e-5)
    assert solution.W.dtype == np.float32
    assert solution.status == Status.CONVERGED
    np.testing.assert_allclose(solution.W, quadratic_program(X, y, "llw", C)[0], atol=2e-3)


def test_solve_goes_on_by_newtons_method():
    X, y = data()
    X = X * np.geomspace(1e-2, 1e2, 4)  # coordinate ascent would take thousands of epochs
    solution = md.run(X, y, formulation="ww", C=C, tol=1e-5, max_epochs=400)
    assert solution.status == Status.CONVERGED
    assert 0 < solution.newton_steps < 370
    np.testing.assert_allclose(solution.primal, quadratic_program(X, y, "ww", C)[1], rtol=1e-6)
    assert solution.gap < 1e-5
    assert 0 < solution.density_alpha < 1
    assert solution.alpha.shape == (20, 3)
    again = md.run(X, y, formulation="ww", C=C, tol=1e-5, max_epochs=5)
    assert (again.status, again.newton_steps) == (Status.MAX_STEPS, 0)
    assert 5 <= again.epochs <= 10  # five passes over all instances


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(formulation="wwx"), "formulation: expected one of ww, llw, cs, ovr, ovr_squared, got 'wwx'"),
        (dict(C=0.0), "C: expected a finite number above 0, got 0.0"),
        (dict(C=np.nan), "C: expected a finite number above 0, got nan"),
        (
            dict(C=1e-60, X=np.eye(3, 2, dtype=np.float32)),
            r"C: expected a number from 1\.18e-38 to 3\.4e\+38, the range of float32, got 1e-60",
        ),
        (dict(X=1j * np.eye(3, 2)), "X: .* of real numbers, found values of type complex128"),
        (dict(X=np.full((3, 2), np.nan)), "expected finite features, found NaN in row 0, column 0 of X"),
        (dict(X=np.zeros((3, 2))), "expected features that are not all zero, found 3 rows of zeros"),
        (
            dict(X=sp.csr_matrix((3, 2))),
            "expected features that are not all zero, found 3 rows of zeros",
        ),
        (dict(X=np.ones(3)), r"expected a matrix \[n, d\], got 1 dimensions"),
        (dict(y=[0, 1]), r"expected 3 classes, one per row of X, got an array of shape \(2,\)"),
        (dict(y=[0.0, 1.0, 2.0]), "expected classes as whole numbers, got float64"),
        (dict(y=[0, -1, -2]), "expected classes 0 … m−1, found -1 in row 1"),
        (dict(y=[0, 0, 0]), "expected at least two classes, found class 0 alone"),
        (dict(y=[0, 3, 1]), "expected classes 0 … 3, found no row of class 2"),
        (dict(y=[2**62, 3, 1]), f"expected classes 0 … {2**62}, found no row of class 0"),
        (dict(tol=np.inf), "tol: expected a finite number above 0, got inf"),
        (dict(max_epochs=0), "max_epochs: expected at least 1, got 0"),
        (dict(threads=0), "threads: expected at least 1, got 0"),
    ],
)
def test_what_is_wrong_is_said(change, message):
    arguments = dict(X=np.eye(3, 2), y=[0, 1, 2]) | change
    with pytest.raises((ValueError, TypeError), match=f"^{message}$"):
        md.run(arguments.pop("X"), arguments.pop("y"), **arguments)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix])
def test_rows_whose_squares_overflow_are_no_problem_in_jax(convert):
    X = convert(np.array([[1.0, 0], [1e30, 1], [0, 1]], np.float32))
    message = "expected rows whose squared norm is a finite float32, which that of row 1 is not"
    with pytest.raises(ValueError, match=f"^{message}$"):
        md.multiclass_problem(X, [0, 1, 2])


@pytest.mark.parametrize("formulation", md.FORMULATIONS)
def test_a_row_that_is_all_but_zero_in_float32_ends_as_one_of_zeros(formulation):
    X = np.array([[1, 0.5], [-1, 0.3], [1e-18, 0], [0, 0]], np.float32)
    problem = md.multiclass_problem(X, [0, 1, 1, 1], formulation=formulation, C=0.01)
    state = converged(problem, md.HParams(tol=1e-3, max_epochs=500))
    np.testing.assert_array_equal(state.alpha[2], state.alpha[3])
    assert np.isfinite(state.alpha).all() and state.alpha[2].any()
