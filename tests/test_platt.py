"""Platt's scaling against scikit-learn's, the definition and finite differences."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration

from tests.support.internals import platt


def drawn(seed: int, labels: int = 8, rows: int = 400):
    """Scores [B, n], and which are of positive pairs."""
    rng = np.random.default_rng(seed)
    positive = rng.random((labels, rows)) < rng.uniform(0.02, 0.5, (labels, 1))
    positive[:, :2] = [True, False]
    apart = np.where(positive, 1.0, -1.0) * rng.uniform(0.2, 2, (labels, 1))
    return apart + rng.normal(size=(labels, rows)), positive


def of_definition(positive, weight):
    """c and T of each score."""
    plus, minus = (weight * positive).sum(axis=1), (weight * ~positive).sum(axis=1)
    one, zero = (plus + 1) / (plus + 2), 1 / (minus + 2)
    return weight, weight * np.where(positive, one[:, None], zero[:, None])


def objective(point, z, count, target):
    u = point[0] * z + point[1]
    return float((count * np.logaddexp(0, u) - target * u).sum())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_scikit_learns(scale, weighted):
    z, positive = drawn(0)
    weight = np.random.default_rng(1).uniform(0.5, 2, z.shape) if weighted else np.ones(z.shape)
    found = platt.fit_sigmoids(scale * z, *of_definition(positive, weight))
    assert (found.slope > 0).all()
    for label in range(len(z)):
        # scikit-learn ends its search early where scores are large
        other = _SigmoidCalibration().fit(z[label], positive[label], weight[label])
        ours = expit(found.slope[label] * scale * z[label] + found.offset[label])
        np.testing.assert_allclose(ours, other.predict(z[label]), rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_is_zero_by_finite_differences_and_nothing_is_lower(seed):
    z, positive = drawn(seed)
    count, target = of_definition(positive, np.ones(z.shape))
    found = platt.fit_sigmoids(z, count, target)
    for label in range(len(z)):
        given = z[label], count[label], target[label]
        at = np.array([found.slope[label], found.offset[label]])
        assert np.abs(approx_fprime(at, objective, 1e-7, *given)).max() < 1e-3
        lowest = minimize(objective, [0.0, 0.0], given, method="Nelder-Mead", options=dict(xatol=1e-9)).fun
        assert objective(at, *given) <= lowest + 1e-9 * abs(lowest)


def test_targets_are_those_of_the_paper():
    np.testing.assert_allclose(platt.targets(np.array([3.0]), np.array([8.0])), [[4 / 5], [1 / 10]])


def test_the_slope_stays_above_zero_where_scores_are_of_the_wrong_sign_and_the_offset_is_best():
    z, positive = drawn(2)
    count, target = of_definition(positive, np.ones(z.shape))
    found = platt.fit_sigmoids(-z, count, target)
    np.testing.assert_allclose(found.slope * z.std(axis=1), 1e-3, rtol=1e-9)
    for label in range(len(z)):
        # Σ p = Σ T, the condition of the offset alone
        p = expit(-found.slope[label] * z[label] + found.offset[label])
        np.testing.assert_allclose(p.sum(), target[label].sum(), rtol=1e-6)


def test_scores_that_are_all_the_same_get_the_share_of_the_positives():
    positive = np.arange(40)[None] < 10
    count, target = of_definition(positive, np.ones((1, 40)))
    found = platt.fit_sigmoids(np.full((1, 40), 7.0), count, target)
    p = expit(found.slope * 7 + found.offset)
    np.testing.assert_allclose(p, target.sum() / 40, rtol=1e-8)
    assert found.slope[0] > 0


@pytest.mark.parametrize("apart", [1e-16, 1e-9, 1e-5])
def test_scores_that_are_all_but_the_same_and_tell_nothing_leave_other_scores_their_share(apart):
    fold = np.arange(100) % 5
    z = -0.7 + apart * np.array([0.0, 1, -1, 0.5, 2])[fold][None]
    positive = np.arange(100)[None] < 20  # as many of each fold
    count, target = of_definition(positive, np.ones((1, 100)))
    found = platt.fit_sigmoids(z, count, target)
    p = expit(found.slope * np.array([-0.9, -0.7, -0.5]) + found.offset)  # of the final model
    np.testing.assert_allclose(p, target.sum() / 100, rtol=1e-3)
    assert found.slope[0] > 0


@pytest.mark.parametrize("apart", [1e-9, 1e-5])
def test_scores_that_are_all_but_the_same_and_tell_the_rows_apart_keep_their_slope(apart):
    z, positive = drawn(5)
    count, target = of_definition(positive, np.ones(z.shape))
    wide, found = (platt.fit_sigmoids(scale * z - 1, count, target) for scale in (1, apart))
    np.testing.assert_allclose(found.slope * apart, wide.slope, rtol=1e-4)


@pytest.mark.parametrize("rows", [20, 100, 500])
def test_rounding_of_scores_tells_nothing_whatever_the_folds(rows):
    rng = np.random.default_rng(rows)
    positive = rng.random((40, rows)) < 0.3
    positive[:, :2] = [True, False]
    z = 1 + 1e-9 * rng.normal(size=(40, rows))
    count, target = of_definition(positive, np.ones(z.shape))
    found = platt.fit_sigmoids(z, count, target)
    p = expit(found.slope * (1 + 1e-6) + found.offset)  # of another model
    np.testing.assert_allclose(p, target.sum(axis=1) / rows, rtol=1e-2)


@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e3])
def test_many_rows_whose_close_scores_tell_little_keep_their_slope(weight):
    rng = np.random.default_rng(3)
    positive = rng.random((4, 20_000)) < 0.3
    z = 0.12 * positive + rng.normal(size=positive.shape)
    count, target = of_definition(positive, np.full(z.shape, weight))
    wide, found = (platt.fit_sigmoids(scale * z - 1, count, target) for scale in (1, 1e-4))
    np.testing.assert_allclose(found.slope * 1e-4, wide.slope, rtol=1e-4)


def test_scores_that_divide_the_rows_have_finite_numbers():
    positive = np.arange(60)[None] < 20
    z = np.where(positive, 1.0, -1.0)
    found = platt.fit_sigmoids(z, *of_definition(positive, np.ones(z.shape)))
    np.testing.assert_allclose(expit(found.slope * [1, -1] + found.offset), [21 / 22, 1 / 42], rtol=1e-6)


def test_labels_do_not_depend_on_their_neighbours(monkeypatch):
    z, positive = drawn(3, labels=7)
    given = of_definition(positive, np.ones(z.shape))
    whole = platt.fit_sigmoids(z, *given)
    monkeypatch.setattr(platt, "_AT_ONCE", 900)  # two labels at a time
    parts = platt.fit_sigmoids(z, *given)
    np.testing.assert_array_equal(whole.slope, parts.slope)
    np.testing.assert_array_equal(whole.offset, parts.offset)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_a_pool_fits_what_all_of_its_scores_together_do(scale):
    z, positive = drawn(4, labels=20, rows=3_000)
    z = (scale * z).astype(np.float32)
    weight = np.random.default_rng(0).uniform(0.5, 2, z.shape)
    pool = platt.Pool()
    for label in range(len(z)):
        pool.add(z[label], positive[label], weight[label])
    flat = positive.reshape(1, -1), weight.reshape(1, -1)
    exact = platt.fit_sigmoids(z.reshape(1, -1).astype(float), *of_definition(*flat))
    slope, offset = pool.fit()
    assert pool.positive == pytest.approx(weight[positive].sum())
    p = expit(exact.slope * z + exact.offset)
    np.testing.assert_allclose(expit(slope * z + offset), p, rtol=1e-4)
