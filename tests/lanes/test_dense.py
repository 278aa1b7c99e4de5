"""Dense features and every smooth loss, at ε₀ = 1 (Schultheis and Babbar, dense sets) and at the default."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from tests.support.lanes import train, vector
from tests.support.problems import needs_native
from xmcjax import inits, losses
from xmcjax.data import load_xmc
from xmcjax.solvers import Status

LOSSES = ["squared_hinge", "logistic", "huber_hinge"]
pytestmark = needs_native


def made(kind, n=250, d=30, labels=8):
    """Rows of norm 1 around zero, or features far from it on scales that differ by ten."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, labels)) + 2 * rng.normal(size=(n, labels))
    Y = scores > np.quantile(scores, np.linspace(0.5, 0.99, labels), axis=0).diagonal()
    if kind == "unit":
        return X / np.linalg.norm(X, axis=1, keepdims=True), sp.csr_matrix(Y)
    return (X + 5) * np.geomspace(0.3, 3, d), sp.csr_matrix(Y)


def optimum(X, y, loss):
    """The objective of scipy's minimum, the bias as the weight of a feature of value 1."""
    ones, phi = np.hstack([X, np.ones((len(X), 1))]), losses.MARGIN_LOSSES[loss]
    scale = np.sqrt((ones**2).sum(0))  # of the variables, for the sake of L-BFGS

    def f(v):
        w = v / scale
        m = jnp.asarray(y * (ones @ w))
        value = w @ w / 2 + float(phi.value(m).sum())
        return value, (w + ones.T @ (y * np.asarray(phi.grad(m)))) / scale

    options = dict(maxiter=20_000, maxfun=40_000, ftol=1e-15, gtol=1e-9)
    return scipy.optimize.minimize(f, 0 * scale, jac=True, method="L-BFGS-B", options=options).fun


@pytest.fixture(scope="module", params=["unit", "far from zero"])
def problem(request):
    X, Y = made(request.param)
    with jax.enable_x64(True):
        targets = 2 * Y.toarray() - 1
        best = {loss: [optimum(X, y, loss) for y in targets.T] for loss in LOSSES}
    return request.param, X, Y, best


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("init", ["mean_separating", "zero", "ova_primal"])
@pytest.mark.parametrize(
    ("dtype", "eps", "relative"),
    [(np.float32, 1.0, 1e-3), (np.float32, 0.01, 1e-3), (np.float64, 1.0, 1e-3), (np.float64, 1e-6, 1e-6)],
)
def test_every_label_converges_to_its_optimum(problem, loss, init, dtype, eps, relative):
    """The decrement rule holds where a gradient of ε₀ = 1 would stop too early."""
    kind, X, Y, best = problem
    results, summary = train(
        X.astype(dtype), Y, loss=losses.MARGIN_LOSSES[loss], init=inits.INITS[init](), tol=eps, clip=0.0
    )
    assert summary.statuses == {Status.CONVERGED: Y.shape[1]}
    if eps == 1 and "far" in kind:
        relative = 3e-3  # the decrement of a direction that CG ends early says a little too little
    ours = [results[label].value for label in range(Y.shape[1])]
    np.testing.assert_allclose(ours, best[loss], rtol=relative)


@pytest.mark.parametrize("backend", ["native", "jnp"])
def test_a_search_that_ends_with_the_bias_alone_has_not_failed(backend):
    """At ε₀ = 1 the bias of a start is far from its minimum, which may lie at t = 0 of the first plane."""
    X, Y = made("far from zero")
    options = dict(init=inits.OvaPrimal(), labels=[5], clip=0.0, backend=backend)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        results, _ = train(X.astype(np.float32), Y, tol=1.0, **options)
    best, _ = train(X, Y, tol=1e-6, **options | dict(backend="native"))
    assert results[5].status == Status.CONVERGED
    assert results[5].value <= best[5].value * (1 + 3e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("eps", [1.0, 0.01])
def test_real_dense_data(data_folder, loss, eps):
    """yeast_gasch1_go: expression levels of mean 0 and deviation 1, rows of norm 1; each hundredth label."""
    X, Y = load_xmc(data_folder / "yeast_gasch1_go" / "train.txt.xz")
    X = X.toarray().astype(np.float64)
    X = (X - X.mean(0)) / X.std(0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    chosen = np.flatnonzero(np.asarray(Y.sum(0)).ravel())[::100]
    options = dict(loss=losses.MARGIN_LOSSES[loss], clip=0.0)
    best, _ = train(X, Y, labels=chosen, tol=1e-5, **options)
    ours, summary = train(X.astype(np.float32), Y, labels=chosen, tol=eps, **options)
    assert summary.statuses == {Status.CONVERGED: len(chosen)}
    for label in chosen.tolist():
        assert ours[label].value <= best[label].value * (1 + 1e-3)


@pytest.mark.parametrize(("loss", "t"), [("squared_hinge", -2.0), ("logistic", -3.0), ("huber_hinge", -2.0)])
def test_the_start_of_a_loss_has_its_own_target(loss, t):
    """⟨w0, p̄⟩ = 1 and ⟨w0, n̄⟩ = t in a dense set."""
    X, Y = made("unit")
    results, _ = train(X, Y, loss=losses.MARGIN_LOSSES[loss], max_iter=0, clip=0.0)
    for label, result in results.items():
        scores, has = X @ vector(result, X.shape[1]) + result.bias, Y[:, [label]].toarray().ravel() > 0
        np.testing.assert_allclose([scores[has].mean(), scores[~has].mean()], [1, t], atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_steps_that_were_not_enough_are_said(loss):
    X, Y = made("far from zero")
    _, summary = train(X, Y, loss=losses.MARGIN_LOSSES[loss], init=inits.Zero(), max_iter=1, tol=1e-6)
    assert summary.statuses == {Status.MAX_STEPS: Y.shape[1]}
