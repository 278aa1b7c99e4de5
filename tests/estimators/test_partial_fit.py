"""``partial_fit`` of one-vs-all: more labels, and the weights of the others to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import objectives
from tests.support.estimators import clusters
from xmcjax import OneVsAllClassifier
from xmcjax.data import fit_transforms
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status


def problem(dtype=np.float64, n_labels=7):
    X, _ = clusters(90, 6, dtype=dtype)
    Y = np.random.default_rng(1).random((90, n_labels)) < 0.3
    return X, sp.csr_matrix(Y.astype(float))


def dense(model):
    return model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_


def same(one, other):
    assert type(one.coef_) is type(other.coef_) and one.coef_.dtype == other.coef_.dtype
    np.testing.assert_array_equal(dense(one), dense(other))
    for name in ("intercept_", "classes_", "status_", "n_iter_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("options", [{}, dict(clip=0), dict(loss="logistic", class_weight="balanced")])
def test_labels_in_parts_are_those_of_one_fit(options, container, dtype):
    X, Y = problem(dtype)
    X, weight = container(X), np.random.default_rng(0).random(90)
    whole = OneVsAllClassifier(**options).fit(X, Y, weight)
    parts = OneVsAllClassifier(**options)
    for count in (2, 3, 7):
        before = dense(parts).copy() if count > 2 else np.zeros((0, 6))
        assert parts.partial_fit(X, Y[:, :count], sample_weight=weight) is parts
        np.testing.assert_array_equal(dense(parts)[: len(before)], before)
    same(parts, whole)
    assert (parts.predict(X) != whole.predict(X)).nnz == 0


@pytest.mark.parametrize("loss", [loss for loss in MARGIN_LOSSES if loss != "hinge"])
def test_any_number_of_labels_gives_the_bits_of_one_fit(loss):
    X, Y = problem(n_labels=8)
    parts = OneVsAllClassifier(loss, C=100.0).fit(X, Y[:, :5]).partial_fit(X, Y)
    same(parts, OneVsAllClassifier(loss, C=100.0).fit(X, Y))


@pytest.mark.parametrize("options", [dict(loss="hinge"), dict(init="ova_primal_pp")])
def test_where_a_label_starts_from_others_both_fits_are_at_the_optimum(options):
    X, _ = problem()
    Y = X @ np.random.default_rng(1).normal(size=(6, 8)) > 1  # labels that occur together
    parts = OneVsAllClassifier(C=100.0, clip=0, **options).fit(X, Y[:, :5])
    before = parts.coef_.copy()
    parts.partial_fit(X, Y)
    np.testing.assert_array_equal(parts.coef_[:5], before)
    whole = OneVsAllClassifier(C=100.0, clip=0, **options).fit(X, Y)
    assert np.all(parts.status_ == Status.CONVERGED) and np.all(whole.status_ == Status.CONVERGED)
    signs = np.where(Y, 1, -1)
    of_parts, of_whole = (
        objectives.lanes(X, signs, model.coef_.T, model.intercept_, whole.loss, weight=100.0)
        for model in (parts, whole)
    )
    np.testing.assert_allclose(of_parts, of_whole, rtol=0.005)


def test_a_label_that_had_no_rows_is_trained_later():
    X, Y = problem()
    empty = Y.toarray()
    empty[:, 2] = 0
    with pytest.warns(UserWarning, match="1 of 7 labels have no positive rows"):
        model = OneVsAllClassifier().partial_fit(X, sp.csr_matrix(empty))
    assert model.status_[2] == Status.NO_POSITIVES and model.intercept_[2] == -np.inf
    same(model.partial_fit(X, Y), OneVsAllClassifier().fit(X, Y))


@pytest.mark.parametrize("names", [("ant", "bee", "cow", "dragonfly"), (-7, 3, 1000, 2000)])
def test_classes_in_parts(names):
    X, number = clusters(90, 6, classes=4)
    names = np.array(names)
    y = names[number]
    whole = OneVsAllClassifier().fit(X, y)
    two, three = number < 2, number < 3
    model = OneVsAllClassifier().partial_fit(X[two], y[two])
    assert model.coef_.shape == (1, 6)
    first = dense(model)[0]
    model.partial_fit(X[three], y[three])
    # one weight vector of two classes is −w of the first and w of the second
    np.testing.assert_array_equal(dense(model)[:2], [-first, first])
    third = dense(model)[2]
    np.testing.assert_array_equal(model.classes_, names[:3])
    model.partial_fit(X, y)
    np.testing.assert_array_equal(dense(model)[:3], [-first, first, third])
    np.testing.assert_array_equal(dense(model)[3], dense(whole)[3])
    assert model.intercept_[3] == whole.intercept_[3] and model.score(X, y) > 0.5
    np.testing.assert_array_equal(model.classes_, names)


def test_classes_that_are_named_before_they_come():
    X, y = clusters(90, 6, classes=4)
    some = y < 3
    with pytest.warns(UserWarning, match="1 of 4 labels have no positive rows"):
        model = OneVsAllClassifier().partial_fit(X[some], y[some], classes=[3, 2, 1, 0])
    assert model.coef_.shape == (4, 6) and model.intercept_[3] == -np.inf
    assert set(model.predict(X)) <= {0, 1, 2}
    model.partial_fit(X, y)
    np.testing.assert_array_equal(dense(model)[3], dense(OneVsAllClassifier().fit(X, y))[3])


def test_the_dtype_and_the_form_of_the_weights_stay():
    X, Y = problem(np.float32)
    model = OneVsAllClassifier(clip=0).fit(X, Y[:, :3])
    before = model.coef_.copy()
    model.partial_fit(X.astype(np.float64), Y)
    assert isinstance(model.coef_, np.ndarray) and model.coef_.dtype == np.float32
    np.testing.assert_array_equal(model.coef_[:3], before)
    assert model.decision_function(X).dtype == np.float32


def test_a_stored_model_is_trained_on(tmp_path):
    X, Y = problem()
    OneVsAllClassifier().fit(X, Y[:, :4]).save(tmp_path / "m")
    model = OneVsAllClassifier.load(tmp_path / "m").partial_fit(X, Y)
    same(model, OneVsAllClassifier().fit(X, Y))
    model.save(tmp_path / "more")
    same(OneVsAllClassifier.load(tmp_path / "more"), model)


def test_the_transforms_of_a_stored_model_are_kept():
    X, Y = problem()
    X = sp.csr_matrix(np.abs(X))
    transforms = fit_transforms("log,unit", X)
    whole = OneVsAllClassifier().fit(transforms.apply(X), Y)
    model = OneVsAllClassifier().fit(transforms.apply(X), Y[:, :4])
    model.transforms_ = transforms
    same(model.partial_fit(X, Y), whole)
    assert model.transforms_ is transforms


def test_further_rows_of_labels_that_have_weights_are_not_passed_over_in_silence():
    X, Y = problem()
    for y in (Y, np.arange(90) % 3):
        model = OneVsAllClassifier().fit(X, y)
        before = dict(vars(model))
        with pytest.warns(UserWarning, match=r"^nothing was trained: each label of y has weights") as caught:
            assert model.partial_fit(X[:45], y[:45]) is model
        assert vars(model) == before and [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            dict(y=lambda Y: Y[:, :2]),
            ValueError,
            "^y: expected the 3 labels that are there and more",
        ),
        (dict(y=lambda Y: np.arange(90) % 4), ValueError, "^y: expected a label matrix, as in the last fit"),
        (dict(X=lambda X: X[:, 1:]), ValueError, "X has 5 features"),
        (dict(X=lambda X: X * np.nan), ValueError, "found NaN in row 0"),
        (dict(classes=[0, 1]), ValueError, "^classes: expected None or 0 … 6, the columns of y"),
        (
            dict(loss="logistic"),
            ValueError,
            "^loss: expected that of the weights that are there",
        ),
        (dict(sample_weight=[1.0]), ValueError, r"sample_weight of shape \(90,\)"),
    ],
)
def test_what_does_not_go_on_is_said_and_changes_nothing(change, error, message):
    X, Y = problem()
    model = OneVsAllClassifier().fit(X, Y[:, :3])
    if "loss" in change:
        model.set_params(loss=change["loss"])
    before = dict(vars(model))
    given = {name: value for name, value in change.items() if name in ("classes", "sample_weight")}
    with pytest.raises(error, match=message):
        model.partial_fit(change.get("X", lambda X: X)(X), change.get("y", lambda Y: Y)(Y), **given)
    assert vars(model) == before


def test_classes_that_do_not_go_on():
    X, y = clusters(90, 6, classes=4)
    model = OneVsAllClassifier().fit(X, y)
    with pytest.raises(TypeError, match=r"^y: expected classes such as 0, found '0'"):
        model.partial_fit(X, y.astype(str))
    with pytest.raises(ValueError, match=r"^y: expected classes that are in classes, found 3"):
        OneVsAllClassifier().partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"^classes: expected a vector of classes, found shape \[1, 4\]"):
        OneVsAllClassifier().partial_fit(X, y, classes=[[0, 1, 2, 3]])
    for classes, found in ((["0", None], "None in place 1"), (["0", 1], "1 in place 1 beside texts")):
        with pytest.raises(ValueError, match=f"^classes: .* all numbers or all texts, found {found}$"):
            OneVsAllClassifier().partial_fit(X, y.astype(str), classes=np.array(classes, object))
    with pytest.raises(ValueError, match=r"^y: expected a class vector, as in the last fit"):
        model.partial_fit(X, np.eye(5, dtype=int)[y])
    with pytest.raises(ValueError, match="at least two classes"):
        OneVsAllClassifier().partial_fit(X, 0 * y, classes=[0, 1])


def test_a_label_that_is_trained_again_keeps_nothing():
    X, Y = problem()
    model = OneVsAllClassifier(clip=0).fit(X, Y)
    before = model.coef_.copy()
    model.intercept_[0] = -np.inf  # as of a label without weights
    model.partial_fit(X, Y)
    np.testing.assert_array_equal(model.coef_, before)


def test_no_classes_are_refused():
    X, _ = problem()
    with pytest.raises(ValueError, match=r"^classes: expected None or the classes that there are"):
        OneVsAllClassifier().partial_fit(X, np.arange(90) % 3, classes=[])


@pytest.mark.parametrize("key", [True, 1.0])
def test_weights_of_labels_are_by_number(key):
    X, Y = problem()
    with pytest.raises(ValueError, match=f"^class_weight: expected labels 0 … 6, found {key}"):
        OneVsAllClassifier(class_weight={key: 5.0}).fit(X, Y)


def test_truth_values_are_no_numbers():
    X, y = clusters(60, 3)
    model = OneVsAllClassifier().partial_fit(X, y > 0)
    with pytest.raises(TypeError, match="expected classes such as False, found 0"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="classes: expected finite numbers, found nan"):
        OneVsAllClassifier().partial_fit(X, y, classes=[0, 1, 2, np.nan])
    np.testing.assert_array_equal(model.classes_, [False, True])


def test_large_classes_of_two_dtypes_are_not_merged():
    X, y = clusters(90, 6, classes=4)
    large = y + 2**60
    model = OneVsAllClassifier().partial_fit(X, large, classes=np.arange(4, dtype=np.uint64) + 2**60)
    np.testing.assert_array_equal(model.classes_, np.arange(4) + 2**60)
    some = y < 3
    model = OneVsAllClassifier().partial_fit(X[some], large[some])
    model.partial_fit(X, large.astype(np.uint64))
    assert model.coef_.shape == (4, 6) and set(model.predict(X).tolist()) == set(range(2**60, 2**60 + 4))
    model = OneVsAllClassifier().partial_fit(X[some], y[some]).partial_fit(X, y.astype(np.uint64))
    assert model.classes_.dtype == np.int64 and model.classes_.tolist() == [0, 1, 2, 3]
