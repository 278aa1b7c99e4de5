"""Sigmoid calibrations: what held-out scores give."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration

from tests.support.internals import calibration
from xmcjax.models import ArrayModel, Calibration, Calibrator, HeldOut

D = 6


def problem(rows=300, labels=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, D))
    Y = np.zeros((rows, labels), bool)
    for label, count in enumerate([0, 1, 2, 3, 9, 10, 20, 60, 150][:labels]):
        Y[rng.choice(rows, count, replace=False), label] = True
    return X, sp.csr_array(Y.astype(float))


def parts_of(X, Y, fold, seed=1):
    """Weights at random, none for labels that the other rows lack; scores of all rows, NaN for none."""
    rng, parts, z = np.random.default_rng(seed), [], np.full(Y.shape, np.nan)
    for number in range(fold.max() + 1):
        rows, other = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        W, b = rng.normal(size=(Y.shape[1], D)), rng.normal(size=Y.shape[1])
        there = np.asarray(Y[other].sum(axis=0)).ravel() > 0
        parts.append(HeldOut(rows, X[rows], ArrayModel(W, np.where(there, b, -np.inf))))
        z[np.ix_(rows, there)] = X[rows] @ W[there].T + b[there]
    return parts, z


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_labels_have_scikit_learns_fit_and_rare_ones_share_one_of_all_their_pairs(
    weighted, at_once, monkeypatch
):
    X, Y = problem()
    monkeypatch.setattr(calibration, "_SCORES", at_once * X.shape[0])
    weight = np.random.default_rng(2).uniform(0.5, 2, len(X)) if weighted else None
    fold = Calibrator.folds(Y, 4)
    parts, z = parts_of(X, Y, fold)
    calibrator = Calibrator(Y.shape[1], weight)
    calibrator.add(np.arange(4), Y[:, :4], [p._replace(model=some(p.model, 0, 4)) for p in parts])
    calibrator.add(np.arange(4, 9), Y[:, 4:], [p._replace(model=some(p.model, 4, 9)) for p in parts])
    found = calibrator.finish()
    w, dense = np.ones(len(X)) if weight is None else weight, Y.toarray() != 0
    np.testing.assert_array_equal(found.shared, [False, *[True] * 4, *[False] * 4])
    assert (found.slope[0], found.offset[0]) == (1, 0)  # no row has it
    for label in (5, 6, 7, 8):
        assert_alike(found, label, z[:, label], dense[:, label], w)
    rare = [2, 3, 4]  # the one row of label 1 has no score
    pairs = np.isfinite(z[:, rare])
    everywhere = np.broadcast_to(w[:, None], pairs.shape)
    assert_alike(found, 1, z[:, rare][pairs], dense[:, rare][pairs], everywhere[pairs])
    assert len({*found.slope[1:5]}) == len({*found.offset[1:5]}) == 1


def some(model, first, last):
    return ArrayModel(model.weights(first, last), model.intercept_of(first, last))


def assert_alike(found, label, z, positive, weight):
    other = _SigmoidCalibration().fit(z, positive, weight)
    p, expected = expit(found.slope[label] * z + found.offset[label]), other.predict(z)
    if other.a_ < 0:
        np.testing.assert_allclose(p, expected, rtol=2e-3, atol=1e-5)
    else:  # the order of scores is kept: all that is left is the share of the positives
        np.testing.assert_allclose(p.mean(), expected.mean(), rtol=1e-2)


def test_rare_labels_take_the_medians_where_none_of_their_rows_has_a_score():
    X, Y = problem()
    Y = Y[:, [1, 6, 7, 8]]
    parts, _ = parts_of(X, Y, Calibrator.folds(Y, 3))
    calibrator = Calibrator(4)
    calibrator.add(np.arange(4), Y, parts)
    found = calibrator.finish()
    assert found.shared.tolist() == [True, False, False, False]
    medians = [np.median(found.slope[1:]), np.median(found.offset[1:])]
    np.testing.assert_array_equal([found.slope[0], found.offset[0]], medians)


def test_folds_are_even_for_each_class_and_part_the_rows_of_rare_labels():
    y = np.repeat(np.arange(5), [2, 4, 11, 30, 53])
    fold = Calibrator.folds(sp.csr_array((np.ones(100), (np.arange(100), y))), 4)
    for kind in range(5):
        counts = np.bincount(fold[y == kind], minlength=4)
        assert counts.max() - counts.min() <= 1
    assert len({tuple(Calibrator.folds(sp.csr_array(np.eye(3)[y % 3]), 4)) for _ in range(2)}) == 1
    rng = np.random.default_rng(0)
    Y = sp.csr_array(rng.random((200, 30)) < np.geomspace(0.5, 0.01, 30))
    folds = [len(np.unique(Calibrator.folds(Y, 5)[Y[:, [label]].toarray()[:, 0]])) for label in range(30)]
    counts = np.asarray(Y.sum(axis=0)).ravel()
    assert all(found > 1 for found, count in zip(folds, counts, strict=True) if count > 2)


def test_folds_that_nothing_can_be_calibrated_by_are_refused():
    with pytest.raises(ValueError, match=r"^cv: expected at most 3, the number of rows, got 4$"):
        Calibrator.folds(np.ones((3, 1)), 4)
    for n in (0, 1):
        with pytest.raises(ValueError, match=f"^calibration: expected at least 2 rows, .* got {n}$"):
            Calibrator.folds(np.ones((n, 1)), 5)
    with pytest.raises(ValueError, match=r"^calibration: expected a label with positive rows in two folds"):
        Calibrator.folds(np.eye(4), 2)
    Calibrator.folds(np.array([[1, 0], [1, 0], [0, 1], [0, 0]]), 2, [0])
    with pytest.raises(ValueError, match=r"^calibration: expected a label with positive rows in two folds"):
        Calibrator.folds(np.array([[1, 0], [1, 0], [0, 1], [0, 0]]), 2, [1])
    Calibrator.folds(
        np.array([[1, 0], [1, 0], [0, 0], [0, 0]]), 2, [1]
    )  # which no row has, and stays as it is
    with pytest.raises(ValueError, match=r"^calibration: expected a label with positive rows in two folds"):
        Calibrator.folds(np.zeros((4, 2)), 2)
    for Y, labels in ((np.zeros((4, 2)), [0, 1]), (np.zeros((4, 2)), [1]), (np.eye(4)[:, :2], [0])):
        with pytest.raises(ValueError, match=r"^calibration: expected .* in two folds, found none$"):
            Calibrator.folds(Y, 2, labels)
    nothing = Calibrator(1)
    nothing.add([0], np.eye(4)[:, :1], [HeldOut(np.arange(1, 4), np.ones((3, 1)), ArrayModel([[1.0]]))])
    with pytest.raises(ValueError, match=r"^calibration: expected a label with positive rows in two folds"):
        nothing.finish()


def test_labels_of_a_part_are_refused_alike_with_a_number_of_folds_and_with_pairs():
    Y = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]])
    pairs = [([0, 2], [1, 3]), ([1, 3], [0, 2])]
    for cv in (2, pairs):
        for labels in (None, [0], [2], [1, 0]):
            assert len(Calibrator.splits(Y, cv, labels)) == 2
        for labels in ([1], [1, 2]):
            with pytest.raises(ValueError, match=r"in two folds, found none among the labels to calibrate$"):
                Calibrator.splits(Y, cv, labels)
        for labels in (None, [0], [0, 1, 2]):
            with pytest.raises(ValueError, match=r"in two folds, found none$"):
                Calibrator.splits(np.zeros((4, 3)), cv, labels)


@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-200, 1e-44, 1e39, 1e160, 1e300])
def test_probabilities_do_not_depend_on_the_unit_of_the_scores(scale, rare):
    rng = np.random.default_rng(0)
    z, rows = rng.normal(size=(200, 1)), np.arange(200)
    Y = sp.csr_array((z + rng.normal(size=(200, 1)) > 0).astype(float))
    if rare:  # a hundred labels of a few rows each, which share a fit
        z, Y = rng.normal(size=(30, 100)), np.zeros((30, 100))
        for label in range(100):
            Y[np.argsort(-z[:, label] + rng.normal(size=30))[:4], label] = 1
        rows = np.arange(30)
    p = []
    for unit in (1.0, scale):
        calibrator = Calibrator(z.shape[1])
        part = HeldOut(rows, z * unit, ArrayModel(np.eye(z.shape[1])))
        calibrator.add(np.arange(z.shape[1]), Y, [part])
        found = calibrator.finish()
        assert found.shared.all() == rare
        p.append(expit(found.apply(z * unit)))
        order = np.argsort(z[:, 0])
        assert (np.diff(p[-1][order, 0]) >= 0).all() and np.isfinite(p[-1]).all()
        # far from the scores of the fit too
        far = found.apply(np.tile([[-1e308], [0.0], [1e308]], z.shape[1]))
        assert np.isfinite(far).all() and (np.diff(far, axis=0) >= 0).all()
    if scale > 1e-308:  # below, numbers have fewer digits, and their inverse is none
        np.testing.assert_allclose(p[1], p[0], rtol=2e-3, atol=2e-3)


def test_rows_of_weight_zero_have_no_label_and_no_score():
    X, Y = problem()
    fold = Calibrator.folds(Y, 3)
    weight = np.random.default_rng(2).uniform(0.5, 2, len(fold))
    weight[::3] = 0
    parts, _ = parts_of(X, Y, fold)
    kept = [HeldOut(r[weight[r] > 0], x[weight[r] > 0], model) for r, x, model in parts]
    one, other = Calibrator(9, weight), Calibrator(9, np.where(weight > 0, weight, 1))
    one.add(np.arange(9), Y, parts)
    without = sp.csr_array(Y.toarray() * (weight > 0)[:, None])
    other.add(np.arange(9), without, kept)
    for field in ("slope", "offset", "shared"):
        np.testing.assert_array_equal(getattr(one.finish(), field), getattr(other.finish(), field))


def test_a_label_that_is_given_again_is_refused():
    calibrator = Calibrator(3)
    part = HeldOut(np.arange(4), np.ones((4, 1)), ArrayModel([[1.0], [1.0]]))
    calibrator.add([0, 2], np.ones((4, 2)), [part])
    with pytest.raises(ValueError, match=r"^labels: expected each label once, found 2 again$"):
        calibrator.add([1, 2], np.ones((4, 2)), [part])


def test_what_is_no_calibration_is_refused():
    for wrong, said in [
        (
            dict(slope=[1.0, 0.0]),
            "expected finite slopes above 0 and finite offsets, found 0.0 and 0.0 for label 1",
        ),
        (dict(offset=[0.0, np.nan]), "found 1.0 and nan for label 1"),
        (dict(offset=[0.0]), r"offset: expected \[2\], one a label, found \(1,\)"),
    ]:
        given = dict(slope=[1.0, 1.0], offset=[0.0, 0.0], shared=[False, True]) | wrong
        with pytest.raises(ValueError, match=said):
            Calibration(**{name: np.array(value) for name, value in given.items()})
    with pytest.raises(TypeError, match="shared: expected bool, found float64"):
        Calibration(np.ones(2), np.ones(2), np.ones(2))


def test_labels_that_are_never_predicted_stay_so():
    numbers = np.arange(1.0, 6)
    found = Calibration(numbers, -numbers, numbers > 3)
    assert found.apply(np.full((1, 5), -np.inf)).max() == -np.inf
