"""Hyperparameters learnt by the criterion: the search itself, what it is free to move, and bad input."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.kernel_models import FOLDS, LANES, TIGHT, C, N, data
from xmcjax import kernels
from xmcjax.kernels import RBF, Linear
from xmcjax.solvers import kernel_multinomial
from xmcjax.solvers.kernel_multinomial import CvObjective, KernelModel

LIMITS = kernel_multinomial.HParams(tolerance=1e-9)


def objective(
    likelihood="softmax", groups=None, w=1.0, free=("v", "kernel"), loadings=None, hp=LIMITS, **more
):
    X, y, _ = data()
    model = KernelModel(kernels.points(X), C, np.zeros(C, int) if groups is None else groups)
    at = model.hyperparameters(2.0, RBF(w), 0.6, loadings)
    targets = jnp.asarray(np.eye(C)[y][..., None])
    target = kernel_multinomial.LIKELIHOODS[likelihood](targets)
    return CvObjective(model, target, FOLDS, at, free=free, hp=hp, **more)


class Rosenbrock:
    """As much of an objective as is looked at, with a known minimum; at its start it bends the other way."""

    at = np.array([-1.0, 2.0])
    model = SimpleNamespace(points=SimpleNamespace(dtype=np.float64))

    def __call__(self, x):
        a, b = x
        slope = [-2 * (1 - a) - 40 * a * (b - a * a), 20 * (b - a * a)]
        return 1 + (1 - a) ** 2 + 10 * (b - a * a) ** 2, np.array(slope)

    def pack(self, x):
        return x

    unpack = pack


def test_search_finds_a_minimum():
    seen = []
    x, found = kernel_multinomial.tune(Rosenbrock(), tolerance=1e-8, max_iter=200, watch=seen.append)
    assert found.converged and np.abs(np.asarray(x) - 1).max() < 1e-4
    values = [iterate.value for iterate in seen]
    assert values == sorted(values, reverse=True) and len(seen) == len(found.history)
    nowhere = Rosenbrock()
    nowhere.at = np.array([np.nan, 0.0])
    with pytest.raises(ValueError, match="expected a finite value at the starting point, got nan"):
        kernel_multinomial.tune(nowhere)


@pytest.mark.parametrize(
    ("likelihood", "groups"),
    [
        pytest.param("softmax", np.arange(C), marks=pytest.mark.slow),
        ("softmax", np.zeros(C, int)),
        ("one_vs_rest", None),
    ],
)
def test_tuning_lowers_the_criterion(likelihood, groups):
    groups = np.arange(C) if groups is None else groups  # mc-sep, mc-tied, 1rest
    function = objective(likelihood, groups, w=np.ones(C) if groups.any() else 1.0)
    G = groups.max() + 1
    names = function.names()
    assert len(names) == 2 * G and names[0].startswith("log v") and names[-1].startswith("log w")
    h, found = kernel_multinomial.tune(function, tolerance=1e-3, max_iter=8, progress=True)
    first, last = found.history[0], found.history[-1]
    assert last.value < first.value
    if G == 1:
        assert found.converged and np.abs(last.gradient).max() < 0.1 * np.abs(first.gradient).max()
    np.testing.assert_allclose(np.concatenate([np.log(h.v), np.log(h.kernel.w)]), found.x)
    # a cold evaluation there gives the same value: the starts only save time
    cold = objective(likelihood, groups, w=np.ones(C) if groups.any() else 1.0)
    np.testing.assert_allclose(cold(found.x)[0], found.value, rtol=1e-8)
    assert cold(found.x + 1e4)[0] == np.inf
    assert function.unconverged == 0 and function.fits == LANES * found.history[-1].evaluations
    # and the gradient is the slope of the values: of fits to 1e-9 these show but five digits of it
    tight = objective(likelihood, groups, w=np.ones(C) if groups.any() else 1.0, hp=TIGHT)
    start = tight.pack(tight.at)
    moved = [tight(start + s * 1e-4 * np.ones(2 * G))[0] for s in (1, -1)]
    slope = tight(start)[1].sum()
    np.testing.assert_allclose((moved[0] - moved[1]) / 2e-4, slope, rtol=1e-6)
    np.testing.assert_allclose(first.gradient.sum(), slope, rtol=1e-6)


@pytest.mark.parametrize("kernel", [RBF(1.0), Linear()])
def test_lanes_one_group_after_the_other(kernel, monkeypatch):
    """As 16 arrays of three lanes fit into memory, or as a linear kernel gains nothing by more."""
    X, y, _ = data()
    folds = np.arange(N) % (2 * LANES)
    memory = 16 * 8 * N * C * LANES if isinstance(kernel, RBF) else 2**31
    numbers = "xmcjax.solvers.kernel_multinomial._tuning._LINEAR_NUMBERS"
    monkeypatch.setattr(numbers, N * C * LANES)
    model = KernelModel(kernels.points(X), C, np.zeros(C, int), memory=memory)
    at = model.hyperparameters(2.0, kernel, 0.6)
    target = kernel_multinomial.Softmax(jnp.asarray(np.eye(C)[y][..., None]))
    function = CvObjective(model, target, folds, at, hp=LIMITS)
    value, gradient = function(function.pack(at))
    assert function.fits == 2 * LANES
    values, slopes = 0.0, 0.0
    for half in range(2):
        out = folds[:, None] == np.arange(LANES) + half * LANES
        problem = kernel_multinomial.kernel_problem(model.kernels(at), None, ~out, likelihood=target)
        start = jnp.zeros((N, C, LANES))
        found = kernel_multinomial.cv_criterion(problem, jnp.asarray(out, float), LIMITS, start)
        values += float(found.value.sum())
        slopes += 2.0 * float(found.gradient.v.sum())
    np.testing.assert_allclose(value, values, rtol=1e-12)
    np.testing.assert_allclose(gradient[0], slopes, rtol=1e-12)


def test_folds_without_a_point_that_is_judged():
    X, y, _ = data()
    model = KernelModel(kernels.points(X), C, np.zeros(C, int))
    target = kernel_multinomial.Softmax(jnp.asarray(np.eye(C)[y][..., None]))
    with pytest.raises(ValueError, match="folds: expected a fold of at least one point, got -1 for all"):
        CvObjective(model, target, np.full(N, -1), model.hyperparameters(2.0, RBF(1.0), 0.6))


def test_random_folds_are_of_about_one_size():
    assert sorted(np.bincount(kernel_multinomial.random_folds(11, 3, 0))) == [3, 4, 4]
