"""Where a label starts decides the time, not the result."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from tests.support.estimators import linear_svc, with_ones
from xmcjax import inits, losses
from xmcjax.data import load_xmc, make_power_law
from xmcjax.lanes import OneVsAll, train_one_vs_all
from xmcjax.models import ShardWriter
from xmcjax.solvers import Status

INITS = [name for name in inits.INITS if name != "zero"]


def unit_rows(X):
    return sp.csr_matrix(sp.diags_array(1 / np.sqrt(X.power(2).sum(1).ravel()).A1) @ X)


@pytest.fixture(scope="module", params=["unit rows", "counts"])
def problem(request):
    X, Y = make_power_law(300, 150, 20, labels_per_row=2, seed=4, dtype=np.float64)
    Y = sp.csr_array(Y[:, np.flatnonzero(np.asarray(Y.sum(0)).ravel())])
    return (unit_rows(X) if request.param == "unit rows" else sp.csr_matrix(X)), Y


@pytest.fixture(scope="module")
def saved(problem, tmp_path_factory):
    """The directory of a model, trained loosely."""
    X, Y = problem
    directory = tmp_path_factory.mktemp("saved") / "model"
    meta = {"n_features": X.shape[1], "n_labels": Y.shape[1], "dtype": "float64"}
    with ShardWriter(directory, meta) as writer:
        for r in train(problem, "zero", directory, tol=0.3, clip=0.05).values():
            writer.add(r.label, r.indices, r.values, r.bias, r.status)
    return directory


def train(problem, init, saved=None, **options):
    """Results by label; `init` by its name or itself."""
    if isinstance(init, str):
        init = inits.Pretrained(saved) if init == "pretrained" else inits.INITS[init]()
    results = {}
    options = OneVsAll(**dict(init=init, clip=0.0) | options)
    with jax.enable_x64(True):  # fixtures of a module are made before those of a test
        X, Y = problem
        train_one_vs_all(X, Y, options, lambda result: results.__setitem__(result.label, result))
    return results


def values(results):
    assert {r.status for r in results.values()} == {Status.CONVERGED}
    return np.array([results[label].value for label in sorted(results)])


@pytest.fixture(scope="module")
def zero_start(problem):
    """Objectives from a zero start, at the default tolerance and at a tight one."""
    return {eps: values(train(problem, "zero", tol=eps)) for eps in (0.01, 1e-6)}


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize(("eps", "relative"), [(0.01, 1e-3), (1e-6, 1e-6)])
def test_every_start_ends_at_the_same_objective(problem, init, eps, relative, saved, zero_start):
    ours = values(train(problem, init, saved, tol=eps))
    np.testing.assert_allclose(ours, zero_start[eps], rtol=relative)
    np.testing.assert_allclose(ours, zero_start[1e-6], rtol=relative)


@pytest.mark.parametrize("loss", ["logistic", "huber_hinge"])
def test_the_other_losses_likewise(problem, loss):
    loss = losses.MARGIN_LOSSES[loss]
    for eps, relative in ((0.01, 1e-3), (1e-6, 1e-6)):
        a, b = (values(train(problem, init, loss=loss, tol=eps)) for init in ("zero", "mean_separating"))
        np.testing.assert_allclose(a, b, rtol=relative)


def minima(X, Y):
    """Of the labels, by scikit-learn's solver."""
    targets, ones = 2 * Y.toarray() - 1, with_ones(X)
    best = [np.append(*linear_svc(X, y, tol=1e-8)) for y in targets.T]
    return [
        v @ v / 2 + (np.maximum(1 - y * (ones @ v), 0) ** 2).sum()
        for v, y in zip(best, targets.T, strict=True)
    ]


def test_the_objective_is_that_of_linear_svc(problem, zero_start):
    theirs = minima(*problem)
    np.testing.assert_allclose(zero_start[1e-6], theirs, rtol=1e-6)
    np.testing.assert_allclose(zero_start[0.01], theirs, rtol=1e-3)


@pytest.mark.parametrize(
    ("precision", "eps", "relative"),
    [(np.float32, 0.01, 1e-3), (np.float64, 0.01, 1e-3), (np.float64, 1e-6, 1e-6)],
)
def test_real_data(data_folder, precision, eps, relative):
    """bibtex: each fifth label, from every start, against LinearSVC."""
    X, Y = load_xmc(data_folder / "bibtex" / "train.txt.xz")
    X = unit_rows(X.astype(np.float64)).astype(precision)
    Y = sp.csr_array(Y)[:, ::5]
    theirs = minima(X.astype(np.float64), Y)
    for init in ("zero", *INITS[:-1]):
        np.testing.assert_allclose(values(train((X, Y), init, tol=eps)), theirs, rtol=relative, err_msg=init)


def test_the_solution_without_positives(problem):
    """What ova_primal starts from, strict at a tight tolerance: min ½‖(w, b)‖² + Σ max(0, 1 + z)²."""
    X, _ = problem
    start = train(problem, inits.OvaPrimal("strict"), max_iter=0, tol=1e-8)[0]
    w = np.zeros(X.shape[1])
    w[start.indices] = start.values
    ones = with_ones(X)

    def f(v):
        slack = np.maximum(1 + ones @ v, 0)
        return v @ v / 2 + slack @ slack, v + 2 * (ones.T @ slack)

    options = dict(maxiter=10000, ftol=0, gtol=1e-10)
    best = scipy.optimize.minimize(f, np.zeros(X.shape[1] + 1), jac=True, method="L-BFGS-B", options=options)
    np.testing.assert_allclose(np.append(w, start.bias), best.x, atol=1e-5)
    loose = train(problem, inits.OvaPrimal("loose"), max_iter=0)[0]
    v = np.zeros_like(best.x)
    v[loose.indices], v[-1] = loose.values, loose.bias
    assert best.fun < f(v)[0] <= best.fun * 1.1
    assert np.linalg.norm(f(v)[1]) <= 0.01 * np.linalg.norm(f(0 * v)[1])


def test_the_tree_starts_at_the_solution_without_positives(problem):
    """With max_iter=0 no parent is solved."""
    tree, plain = (train(problem, init, max_iter=0) for init in ("ova_primal_pp", "ova_primal"))
    for label in plain:
        np.testing.assert_array_equal(tree[label].values, plain[label].values)
