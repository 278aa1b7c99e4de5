"""Propensities, binary precision and recall, F1 and density against definitions and scikit-learn."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax import metrics


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.6, 2.6), (0.5, 0.4)])
def test_inverse_propensities_equal_the_formula(a, b):
    rng = np.random.default_rng(0)
    Y = sp.random_array((200, 17), density=0.05, rng=rng, format="csr")
    Y.data[:] = 1
    n = 200
    counts = np.asarray(Y.toarray().sum(axis=0))
    expected = [1 + (math.log(n) - 1) * (b + 1) ** a * (c + b) ** -a for c in counts]
    np.testing.assert_allclose(metrics.inverse_propensities(Y, a, b), expected, rtol=1e-14)
    # 20 rows, one positive each: 1 + (ln 20 − 1)·2.5^0.55·2.5^−0.55 = ln 20.
    np.testing.assert_allclose(metrics.inverse_propensities(np.eye(20)), math.log(20), rtol=1e-14)


def test_presets_by_name():
    Y = np.eye(20)
    assert metrics.propensity_preset("AmazonCat-13K") == (0.55, 1.5)
    assert metrics.propensity_preset("amazon_670k") == (0.6, 2.6)
    assert metrics.propensity_preset("WikiLSHTC-325K") == (0.5, 0.4)
    assert metrics.propensity_preset("EURLex-4K") == (0.55, 1.5)
    np.testing.assert_array_equal(
        metrics.inverse_propensities(Y, dataset="Amazon-670K"), metrics.inverse_propensities(Y, 0.6, 2.6)
    )
    keys = {name.lower().replace("-", "") for name in metrics.PROPENSITY_PRESETS}
    assert len(keys) == len(metrics.PROPENSITY_PRESETS)
    with pytest.raises(ValueError, match=r"found 'nosuch'.*give a and b"):
        metrics.inverse_propensities(Y, dataset="nosuch")
    with pytest.raises(ValueError, match="either dataset or a and b"):
        metrics.inverse_propensities(Y, 0.5, 0.4, dataset="Amazon")


def test_the_guide_has_every_preset_and_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "evaluate.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| (.*) \|$", page, re.MULTILINE)
    shown = {name: (float(a), float(b)) for a, b, names in rows for name in re.findall(r"`(.*?)`", names)}
    assert shown == metrics.PROPENSITY_PRESETS
    columns = {}
    for functions, _, headings in re.findall(r"^\| (`.*) \| (.*) \| (`.*) \|$", page, re.MULTILINE):
        columns |= dict(zip(re.findall(r"`(\w+)`", headings), re.findall(r"`(\w+)`", functions), strict=True))
    tables = metrics.RANKING_METRICS | metrics.PROPENSITY_METRICS
    assert columns == {heading: metric.__name__ for heading, metric in tables.items()}


def test_inverse_propensities_refuse_bad_input():
    with pytest.raises(ValueError, match="at least 3 rows, found 2"):
        metrics.inverse_propensities(np.eye(2))
    for a, b, name in [(0, 1.5, "a"), (-1, 1.5, "a"), (0.5, 0, "b"), (0.5, math.nan, "b")]:
        with pytest.raises(ValueError, match=f"^{name}: expected a positive number"):
            metrics.inverse_propensities(np.eye(20), a, b)


def loop_precision_recall(Y, scores, threshold, undefined):
    precisions, recalls = [], []
    for l in range(Y.shape[1]):
        predicted = [i for i in range(len(Y)) if scores[i, l] > threshold]
        true = [i for i in range(len(Y)) if Y[i, l]]
        both = set(predicted) & set(true)
        if predicted or undefined is not None:
            precisions.append(len(both) / len(predicted) if predicted else undefined)
        if true or undefined is not None:
            recalls.append(len(both) / len(true) if true else undefined)
    return np.mean(precisions), np.mean(recalls)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("undefined", [None, 0.0, 1.0])
@pytest.mark.parametrize("threshold", [0.0, 0.7])
def test_label_precision_recall_equals_the_definition(seed, undefined, threshold):
    rng = np.random.default_rng(seed)
    Y = (rng.random((30, 20)) < 0.08).astype(int)
    Y[:, 4] = 0
    scores = rng.standard_normal((30, 20)) - 1
    scores[:, 7] = -5
    scores[0, 0] = threshold  # not above it
    expected = loop_precision_recall(Y, scores, threshold, undefined)
    got = metrics.label_precision_recall(Y, scores, threshold, undefined=undefined)
    assert got == pytest.approx(expected, abs=1e-12)
    assert (got.precision, got.recall) == got
    sparse = sp.csr_array(Y), sp.csr_array(scores)
    assert metrics.label_precision_recall(*sparse, threshold, undefined=undefined) == got


def test_label_precision_recall_by_hand():
    Y = np.array([[1, 0, 0], [1, 1, 0]])
    predicted = np.array([[1, 1, 0], [0, 1, 0]])
    # Precision: 1/1, 1/2, undefined. Recall: 1/2, 1/1, undefined.
    assert metrics.label_precision_recall(Y, predicted) == (0.75, 0.75)
    assert metrics.label_precision_recall(Y, predicted, undefined=0.0) == (0.5, 0.5)
    assert metrics.label_precision_recall(np.zeros((2, 3)), np.zeros((2, 3))) == (0.0, 0.0)


def test_label_precision_recall_refuses_bad_input():
    Y = np.array([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="expected shape"):
        metrics.label_precision_recall(Y, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="found nan"):
        metrics.label_precision_recall(Y, np.array([[np.nan, 0], [0, 0]]))
    with pytest.raises(ValueError, match="at least 0 with sparse scores"):
        metrics.label_precision_recall(Y, sp.csr_array((2, 2)), -1.0)


@pytest.mark.parametrize("seed", range(3))
def test_f1_equals_scikit_learn(seed):
    from sklearn.metrics import f1_score

    rng = np.random.default_rng(seed)
    # Classes with gaps, one of them only predicted.
    y_true = rng.choice([2, 5, 9, 40], 60)
    y_pred = np.where(rng.random(60) < 0.6, y_true, rng.choice([2, 5, 9, 40, 77], 60))
    Y_true = (rng.random((60, 9)) < 0.3).astype(int)
    Y_pred = (rng.random((60, 9)) < 0.3).astype(int)
    Y_true[:, 3] = Y_pred[:, 3] = 0
    for truth, predicted in [(y_true, y_pred), (y_true.astype(str), y_pred.astype(str)), (Y_true, Y_pred)]:
        for average, function in [("micro", metrics.micro_f1), ("macro", metrics.macro_f1)]:
            expected = f1_score(truth, predicted, average=average, zero_division=0)
            assert function(truth, predicted) == pytest.approx(expected, abs=1e-12)
    assert metrics.micro_f1(sp.csr_array(Y_true), Y_pred) == metrics.micro_f1(Y_true, Y_pred)
    assert metrics.micro_f1(y_true, y_pred) == pytest.approx(np.mean(y_true == y_pred))


@pytest.mark.parametrize(
    ("y_true", "y_pred", "words"),
    [
        ([1, 2], [1, 2, 3], "of one length"),
        ([1, 2], [[1, 0], [0, 1]], "one of each"),
        ([[1, 0]], [[1, 0], [0, 1]], "expected shape"),
        ([], [], "at least one row"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "at least one row"),
    ],
)
def test_f1_refuses_what_does_not_fit(y_true, y_pred, words):
    for function in (metrics.micro_f1, metrics.macro_f1):
        assert function(np.zeros((2, 3)), np.zeros((2, 3))) == 0.0
        with pytest.raises(ValueError, match=words):
            function(np.asarray(y_true), np.asarray(y_pred))


@pytest.mark.parametrize(
    ("y_true", "y_pred", "words"),
    [
        (["1", "2"], [1, 2], "y_pred: expected classes that are texts as in y_true, found numbers"),
        ([True, False], ["True", "False"], "as in y_true, found texts"),
        (
            np.array(["a", 1], object),
            ["a", "b"],
            "y_true: expected classes of one kind, found numbers and texts",
        ),
    ],
)
def test_texts_are_no_other_names_of_numbers(y_true, y_pred, words):

    def reject_curve(true, predicted):
        return metrics.reject_curve(true, predicted, [0.1, 0.2])

    for function in (metrics.micro_f1, metrics.macro_f1, reject_curve):
        with pytest.raises(TypeError, match=words):
            function(y_true, y_pred)
        assert function([True, False], [1, 0]) is not None  # as in scikit-learn


def test_density():
    W = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    assert metrics.density(W) == pytest.approx(2 / 6)
    stored_zero = sp.csr_array((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 4))
    assert metrics.density(stored_zero) == 0.25
    assert metrics.density(sp.csr_matrix(W)) == pytest.approx(2 / 6)
    assert metrics.density(np.zeros((0, 3))) == 0.0

    class Model:
        def density(self):
            return 0.125

    assert metrics.density(Model()) == 0.125


def test_large_classes_of_two_dtypes_are_not_merged():
    """float64, in which NumPy joins int64 and uint64, has no 2^53 + 1."""
    true, predicted = np.array([2**53 + 1, 5]), np.array([2**53, 5], np.uint64)
    assert metrics.micro_f1(true, predicted) == 0.5
    assert metrics.macro_f1(true, predicted) == pytest.approx(1 / 3)
    np.testing.assert_array_equal(metrics.reject_curve(true, predicted, [1.0, 0.5]), [0.5, 0.5])
    # and what neither of them has both of
    beside = np.array([-1, 2**63 - 1]), np.array([2**63, 2**64 - 1], np.uint64)
    assert metrics.micro_f1(*beside) == 0 and metrics.macro_f1(beside[0], beside[0]) == 1


def test_what_is_no_class():
    nan, one = [np.nan, 1.0], [1.0, 1.0]
    dates = np.array(["2026-01-01", "NaT"], "datetime64[D]")
    texts, without = np.array(["a", "b"], object), np.array(["a", None], object)
    for function in (
        metrics.micro_f1,
        metrics.macro_f1,
        lambda a, b: metrics.reject_curve(a, b, range(len(a))),
    ):
        with pytest.raises(ValueError, match="y_pred: expected classes, found nan"):
            function(one, nan)
        with pytest.raises(ValueError, match="y_true: expected classes, found nan"):
            function(dates, dates)
        with pytest.raises(TypeError, match="expected classes that are dates as in y_true, found texts"):
            function(dates[:1], texts[:1])
        with pytest.raises(TypeError, match="y_true: expected classes of one kind, found objects"):
            function(without, texts)


@pytest.mark.parametrize(
    "classes",
    [
        np.int64([-1, 1]),
        np.int8([-128, 127, 0]),
        np.uint8([0, 255, 3]),
        np.int64([0, 10**15]),
        np.int64([-(2**63), 2**63 - 1]),
        np.uint64([2**64 - 1, 2**63, 1]),
        np.array([False, True]),
        np.array([0.0, 0.5, 2.0]),
        np.array(["a", "b", "aa"]),
    ],
    ids=str,
)
def test_f1_of_any_classes_is_that_of_their_places(classes):
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, len(classes), (2, 40))
    predicted[truth == 1] = 0  # a class without a true positive
    # as objects they are sorted, as numbers from 0 they are counted
    expected = [f(truth, predicted) for f in (metrics.micro_f1, metrics.macro_f1)]
    assert expected[0] == np.mean(truth == predicted)
    for dtype in (classes.dtype, object):
        given = classes[truth].astype(dtype), classes[predicted].astype(dtype)
        assert metrics.micro_f1(*given) == expected[0]
        assert metrics.macro_f1(*given) == pytest.approx(expected[1], abs=1e-15)


def test_f1_refuses_classes_that_have_no_order():
    for f1 in (metrics.micro_f1, metrics.macro_f1):
        with pytest.raises(TypeError):
            f1(np.array([None, None], object), np.array([None, None], object))


@pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sp.csr_array], ids=["C", "F", "sparse"])
def test_label_precision_recall_takes_every_form_of_truth(form):
    rng = np.random.default_rng(5)
    Y = rng.random((50, 6)) < 0.3
    scores = rng.standard_normal((50, 6))
    expected = loop_precision_recall(Y, scores, -0.5, None)
    for dtype in (bool, np.uint8, np.float32):
        for given in (scores, np.asfortranarray(scores)):
            got = metrics.label_precision_recall(form(Y.astype(dtype)), given, -0.5)
            assert got == pytest.approx(expected, abs=1e-12)
    for wrong in (2.0, -1.0, math.nan):
        refused = Y.astype(float)
        refused[7, 4] = wrong
        with pytest.raises(ValueError, match=rf"expected 0 and 1, found {wrong} in row 7, label 4"):
            metrics.label_precision_recall(form(refused), scores)


def test_f1_is_a_number_of_python():
    for y_true, y_pred in (([1, 0], [1, 1]), ([[1, 0]], [[1, 1]])):
        assert type(metrics.micro_f1(y_true, y_pred)) is float
        assert type(metrics.macro_f1(y_true, y_pred)) is float
