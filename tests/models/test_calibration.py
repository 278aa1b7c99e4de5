"""Calibrations: what held-out scores give, and how they are stored."""

import dataclasses
import json
import os

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax
from sklearn.calibration import _SigmoidCalibration

from tests.support.internals import calibration
from tests.support.processes import python
from xmcjax.data import atomic_write
from xmcjax.models import (
    ArrayModel,
    Calibration,
    Calibrator,
    HeldOut,
    IncompleteModelError,
    LinearModel,
    ModelError,
    ModelFormatError,
    Predictor,
    ShardWriter,
    fit_temperature,
    merge_models,
    write_calibration,
)

D, L = 6, 5
META = {"n_features": D, "n_labels": L, "dtype": "float32"}
NUMBERS = np.arange(1.0, L + 1)
CALIBRATION = Calibration(NUMBERS, -NUMBERS, NUMBERS > 3)


def write(directory, label_range=None, meta=META, **more):
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(L, D)).astype(np.float32), rng.normal(size=L)
    with ShardWriter(directory, meta, label_range, 2, **more) as writer:
        for label in writer.missing().tolist():
            writer.add(label, np.arange(D), W[label], float(b[label]), 5 if label == 1 else 1)
    return directory


# Fitting


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


@pytest.mark.parametrize(
    ("system", "method"),
    [
        ({}, "sigmoid"),
        ({"target": "classes"}, "temperature"),
        ({"system": "multiclass"}, "temperature"),
        ({"system": "top-k"}, "temperature"),
    ],
)
def test_a_model_says_what_its_calibration_is(tmp_path, system, method):
    write(tmp_path / "m", meta=META | system)
    same = Calibration(np.full(L, 2.0), np.zeros(L), np.zeros(L, bool))
    for made, said in ((same, method), (CALIBRATION, "sigmoid"), (same, method)):
        write_calibration(tmp_path / "m", made)
        assert LinearModel.load(tmp_path / "m").meta["calibration"] == {"method": said}


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


# The object


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
    assert CALIBRATION.apply(np.full((1, L), -np.inf)).max() == -np.inf


# Files


def test_it_is_read_as_it_was_written_by_both_ways(tmp_path):
    write(tmp_path / "at once", calibration=CALIBRATION, meta=META | {"calibration": {"method": "sigmoid"}})
    write_calibration(write(tmp_path / "later"), CALIBRATION)
    for name in ("at once", "later"):
        model = LinearModel.load(tmp_path / name, verify="full")
        found = model.calibration()
        assert model.calibrated
        for field in ("slope", "offset", "shared"):
            np.testing.assert_array_equal(getattr(found, field), getattr(CALIBRATION, field))
        content = json.loads((tmp_path / name / "manifest.json").read_text())
        assert content["schema_version"] == 3 and content["calibration"]["file"] == "calibration.safetensors"
    one, two = (
        {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("at once", "later")
    )
    assert one == two


def test_models_without_one_are_of_the_older_schema(tmp_path):
    content = json.loads((write(tmp_path / "m") / "manifest.json").read_text())
    assert content["schema_version"] == 1 and "calibration" not in content
    model = LinearModel.load(tmp_path / "m")
    assert model.calibration() is None and not model.calibrated
    with pytest.raises(ValueError, match="or that is calibrated, found another one"):
        Predictor(model).predict_topk(np.ones((1, D), np.float32), 1, probabilities=True)


def test_probabilities_are_those_of_the_definition_and_labels_those_of_the_scores(tmp_path):
    model = LinearModel.load(write(tmp_path / "m", calibration=CALIBRATION, meta=META | {"calibration": {}}))
    X = np.random.default_rng(1).normal(size=(40, D)).astype(np.float32)
    best, z = Predictor(model).predict_topk(X, L)
    labels, p = Predictor(model).predict_topk(X, L, probabilities=True)
    np.testing.assert_array_equal(labels, best)
    assert (labels[:, -1] == -1).all() and (p[:, -1] == 0).all()  # one label is never predicted
    expected = expit(CALIBRATION.slope[labels] * z + CALIBRATION.offset[labels])
    np.testing.assert_allclose(p[:, :-1], expected[:, :-1], rtol=1e-6)


def test_a_part_has_those_of_its_labels_and_merges_to_the_whole(tmp_path):
    meta = META | {"calibration": {"method": "sigmoid", "cv": 5}}
    whole = write(tmp_path / "whole", meta=meta, calibration=CALIBRATION)
    for name, low, high in (("a", 0, 2), ("b", 2, L)):
        write(tmp_path / name, (low, high), meta=meta)
        write_calibration(tmp_path / name, CALIBRATION.at(np.arange(low, high)))
    part = LinearModel.load(tmp_path / "b").calibration()
    assert part is not None
    np.testing.assert_array_equal(part.slope, [1, 1, 3, 4, 5])
    merge_models([tmp_path / "b", tmp_path / "a"], tmp_path / "merged")
    one, two = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (whole, tmp_path / "merged"))
    assert one == two
    write(tmp_path / "without", (0, 2), meta=meta)
    with pytest.raises(IncompleteModelError, match="expected a calibration, found none yet"):
        merge_models([tmp_path / "without", tmp_path / "b"], tmp_path / "other")
    write(tmp_path / "another", (0, 2))
    with pytest.raises(ModelError, match=r"expected calibration = "):
        merge_models([tmp_path / "another", tmp_path / "b"], tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "folder"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    file = write(tmp_path / "m", calibration=CALIBRATION) / "calibration.safetensors"
    raw = file.read_bytes()
    if damage == "flip":
        file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif damage == "cut":
        file.write_bytes(raw[:-5])
    else:
        file.unlink()
        if damage == "folder":
            file.mkdir()
    with pytest.raises(ModelFormatError, match=r"calibration\.safetensors: expected "):
        LinearModel.load(tmp_path / "m")
    with pytest.raises(ModelFormatError, match=r"calibration\.safetensors: expected "):
        LinearModel.load(tmp_path / "m", verify="none").calibration()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(slope=np.zeros(L)), "slopes above 0 and finite offsets"),
        (dict(offset=np.full(L, np.inf)), "slopes above 0 and finite offsets"),
        (dict(slope=np.ones(L, np.float32)), r"slope as float64 \[5\], found float32"),
        (dict(shared=np.ones(L)), r"shared as bool \[5\], found float64"),
        (dict(offset=np.ones(L - 1)), r"offset as float64 \[5\], found float64 \[4\]"),
        (dict(offset=None), r"offset as float64 \[5\], found none"),
    ],
)
def test_a_file_with_other_arrays_is_refused(tmp_path, change, said, monkeypatch):
    from safetensors.numpy import save

    arrays = {"slope": np.ones(L), "offset": np.ones(L), "shared": np.zeros(L, bool)} | change
    content = save({name: array for name, array in arrays.items() if array is not None})
    monkeypatch.setattr(Calibration, "encode", lambda self: content)
    write(tmp_path / "m", calibration=CALIBRATION)
    with pytest.raises(ModelFormatError, match=said):
        LinearModel.load(tmp_path / "m").calibration()


def test_a_resumed_writer_takes_a_damaged_one_out_and_the_old_one_is_replaced(tmp_path):
    directory = write(tmp_path / "m")
    write_calibration(directory, CALIBRATION)
    write_calibration(directory, CALIBRATION.opposite())
    found = LinearModel.load(directory).calibration()
    assert found is not None and (found.offset > 0).all()
    (file,) = directory.glob("calibration-*.safetensors")
    file.write_bytes(b"other")
    meta = META | {"calibration": {"method": "sigmoid"}}
    write(directory, meta=meta, resume=True)
    model = LinearModel.load(directory)
    assert not model.calibrated
    with pytest.raises(IncompleteModelError, match="finish the training with --resume"):
        model.calibration()


def test_a_model_has_the_old_one_or_the_new_one_and_who_has_it_open_keeps_its_own(tmp_path, monkeypatch):
    directory = write(tmp_path / "m", calibration=CALIBRATION)
    model, names = LinearModel.load(directory), set(os.listdir(directory))

    def slope() -> float:
        found = LinearModel.load(directory).calibration()
        assert found is not None
        return found.slope[0]

    def killed(path):
        if path.name == "manifest.json":
            raise KeyboardInterrupt
        return atomic_write(path)

    with monkeypatch.context() as patch:
        patch.setattr("xmcjax.models._calibration.atomic_write", killed)
        with pytest.raises(KeyboardInterrupt):
            write_calibration(directory, CALIBRATION.opposite())
    assert slope() == CALIBRATION.slope[0]
    for factor in (2.0, 3.0):
        write_calibration(directory, dataclasses.replace(CALIBRATION, slope=factor * CALIBRATION.slope))
        assert slope() == factor * CALIBRATION.slope[0]
        manifest = (directory / "manifest.json").read_bytes()
        write_calibration(directory, dataclasses.replace(CALIBRATION, slope=factor * CALIBRATION.slope))
        assert (directory / "manifest.json").read_bytes() == manifest  # an index stays that of the model
        if factor == 2:
            found = model.calibration()
            assert found is not None and found.slope[0] == CALIBRATION.slope[0]
    assert len(set(os.listdir(directory)) - names) == 2  # the one before the last stays, others are gone


def test_what_cannot_be_calibrated_is_refused(tmp_path):
    write(tmp_path / "m")
    with pytest.raises(ValueError, match=r"calibration: expected 5 labels as in .*, found 4"):
        write_calibration(tmp_path / "m", CALIBRATION.at(np.arange(4)))
    with pytest.raises(ValueError, match="calibration: expected 5 labels, found 4"):
        ShardWriter(tmp_path / "n", META, calibration=CALIBRATION.at(np.arange(4)))
    with pytest.raises(TypeError, match=r"^calibration: expected "):
        write_calibration(tmp_path / "m", None)
    with pytest.raises(FileNotFoundError, match="expected a model, found no manifest"):
        write_calibration(tmp_path, CALIBRATION)
    with ShardWriter(tmp_path / "part", META, shard_size=2) as writer:
        writer.add(0, [0], np.ones(1, np.float32))
    with pytest.raises(ValueError, match="expected a complete model, found labels missing"):
        write_calibration(tmp_path / "part", CALIBRATION)
    assert not (tmp_path / "part" / "calibration.safetensors").exists()


def test_it_opens_and_predicts_without_jax(tmp_path):
    write(tmp_path / "m", calibration=CALIBRATION, meta=META | {"calibration": {}})
    code = f"""
import sys
sys.modules["jax"] = None
import numpy as np
from xmcjax.models import Predictor
X = np.ones((2, {D}), np.float32)
labels, p = Predictor({str(tmp_path / "m")!r}).predict_topk(X, 2, probabilities=True)
assert (0 < p).all() and (p < 1).all()
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
