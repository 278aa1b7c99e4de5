"""Calibrations by a temperature: what held-out scores give."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from xmcjax.models import ArrayModel, HeldOut, fit_temperature

D = 6


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_temperature_is_the_minimum_of_its_definition(classes, scale):
    rng = np.random.default_rng(0)
    W, X = rng.normal(size=(classes, D)), rng.normal(size=(200, D))
    y = (X @ W.T + rng.normal(size=(200, classes))).argmax(axis=1)
    weight = rng.uniform(0.5, 2, 200)
    model = ArrayModel(scale * (W if classes > 2 else W[1:] - W[:1]))
    parts = [HeldOut(rows, X[rows], model) for rows in (np.arange(0, 200, 2), np.arange(1, 200, 2))]
    found = fit_temperature(parts, y, weight)
    z = scale * X @ W.T
    rest = 1 / (weight.sum() + 2)
    targets = np.full((200, classes), rest / (classes - 1))
    targets[np.arange(200), y] = 1 - rest

    def loss(a):
        return -(weight[:, None] * targets * log_softmax(a * z, axis=1)).sum()

    best = minimize_scalar(loss, bounds=(0, 20 / scale), method="bounded", options=dict(xatol=1e-9 / scale)).x
    np.testing.assert_allclose(found.slope, best, rtol=1e-5)
    assert not found.offset.any() and len(found.slope) == model.n_labels


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e160, 1e308])
def test_the_temperature_does_not_depend_on_the_unit_of_the_scores(scale):
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, (200, 3))
    y = (z + rng.normal(size=(200, 3))).argmax(axis=1)
    one, other = (
        fit_temperature([HeldOut(np.arange(200), z * unit, ArrayModel(np.eye(3)))], y)
        for unit in (1.0, scale)
    )
    u = other.apply(z * scale)
    assert np.isfinite(u).all()
    if scale > 1e-308:
        np.testing.assert_allclose(u, one.apply(z), rtol=1e-5)


def test_the_temperature_of_scores_that_are_wrong_stays_above_zero_and_of_right_ones_finite():
    y, X = np.arange(30) % 3, np.eye(3)[np.arange(30) % 3]
    right, wrong = (
        fit_temperature([HeldOut(np.arange(30), X, ArrayModel(s * np.eye(3)))], y) for s in (1, -1)
    )
    assert 0 < wrong.slope[0] < 0.01 < 1 < right.slope[0] < 100


def test_the_temperature_leaves_out_rows_whose_class_has_no_score():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(90, 3)), rng.integers(0, 3, 90)
    never = ArrayModel(np.eye(3), [0, 0, -np.inf])
    some = y < 2
    all_rows = fit_temperature([HeldOut(np.arange(90), X, never)], y)
    fewer = fit_temperature([HeldOut(np.arange(some.sum()), X[some], never)], y[some])
    np.testing.assert_allclose(all_rows.slope, fewer.slope, rtol=2e-2)  # n of the targets is another
    with pytest.raises(ValueError, match=r"^calibration: expected rows whose class has a score, found none$"):
        fit_temperature([HeldOut(np.arange(90), X, never)], np.full(90, 2))
