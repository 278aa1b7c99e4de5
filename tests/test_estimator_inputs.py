"""What estimators are given: each method stands in the table of matrices, and what is none is refused."""

from __future__ import annotations

import datetime
import functools
import inspect
import warnings
from decimal import Decimal
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from tests.support.entries import entries
from tests.support.estimators import ESTIMATORS
from tests.support.matrices import MALFORMED, classes, features, labels
from xmcjax import estimators

pytestmark = pytest.mark.usefixtures("default_settings")

# Public methods, inherited ones included, that take no matrix.
NO_MATRIX = {
    "get_metadata_routing": "tells what is asked for",
    "get_params": "names of arguments",
    "save": "a path",
    "load": "a path",
    "set_params": "values of arguments, which fit checks",
}
OF_LABELS = ("OneVsAllClassifier", "MultinomialLogisticRegression")  # take matrices of labels as well
CLASSES = [name for name in ESTIMATORS if name not in OF_LABELS]


@functools.cache
def fitted(name: str):
    return ESTIMATORS[name].fit(features(), classes())


def public_methods(kind) -> dict[str, set[str]]:
    """The arguments of every method, by name."""
    return {
        name: set(inspect.signature(getattr(kind, name)).parameters) - {"self"}
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_every_estimator_is_known():
    public = {
        name for name, kind in vars(estimators).items() if inspect.isclass(kind) and hasattr(kind, "fit")
    }
    # the one of sequences has tests of its own, tests/estimators/test_kernel_chains.py
    assert public - {"KernelChainClassifier"} == set(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_method_that_takes_a_matrix_is_in_the_table(name, tmp_path):
    known = {entry.removesuffix(" beside a dense X") for entry in entries(tmp_path)}
    for method, arguments in public_methods(getattr(estimators, name)).items():
        if method in NO_MATRIX or (method.startswith("set_") and method.endswith("_request")):
            assert not arguments & {"X", "y", "Y"}, method
            continue
        assert "X" in arguments, f"{name}.{method} is in no table"
        for argument in arguments & {"X", "y", "Y"}:
            # classes are no sparse matrix: the test below shows that one is refused
            if argument != "y" or name not in CLASSES:
                assert f"estimators.{name}.{method} {argument}" in known, f"{method} {argument}"


def methods_of_classes():
    for name in CLASSES:
        for method, arguments in public_methods(getattr(estimators, name)).items():
            if "y" in arguments:
                yield name, method


@pytest.mark.parametrize(("name", "method"), list(methods_of_classes()))
def test_a_sparse_matrix_is_no_class_vector(name, method):
    estimator = fitted(name) if method == "score" else getattr(estimators, name)()
    with pytest.raises(TypeError, match=r"^y: expected one class per row, found a sparse matrix of shape"):
        getattr(estimator, method)(features(), labels())
    for case, malform in MALFORMED.items():
        with pytest.raises((ValueError, TypeError), match=r"^y(\.\w+)?: expected .*found"):
            getattr(estimator, method)(features(), malform(labels()))
            pytest.fail(f"{name}.{method} took as y a matrix: {case}")


def test_score_compares_with_labels_as_fit_has_them():
    estimator = estimators.OneVsAllClassifier().fit(features(), labels())
    plain = labels()
    expected = (estimator.predict(features()) != plain).sum(axis=1).A1 == 0
    weight = np.arange(1.0, len(expected) + 1)
    for y in (plain, 3 * plain, plain.toarray(), sp.dok_array(plain)):
        assert estimator.score(features(), y) == pytest.approx(expected.mean())
        assert estimator.score(features(), y, weight) == pytest.approx(np.average(expected, weights=weight))
    for y, said in (
        (plain[:, :3], r"^y: expected 4 labels, as in fit, found 3$"),
        (-plain, r"^y: expected a matrix of 0 and 1, found -1\.0$"),
        (plain * np.float32(np.nan), r"^y: expected a matrix of 0 and 1, found nan$"),
    ):
        with pytest.raises(ValueError, match=said):
            estimator.score(features(), y)
    by_class = estimators.OneVsAllClassifier().fit(features(), classes())
    with pytest.raises(TypeError, match=r"^y: expected one class per row, found a sparse matrix"):
        by_class.score(features(), plain)


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, *columns):
        self.columns = [np.asarray(column) for column in columns]
        self.dtypes = [column.dtype for column in self.columns]
        self.shape = (len(columns[0]), len(columns))

    def __array__(self, dtype=None, copy=None):
        return np.stack(self.columns, axis=1).astype(dtype)


DATES = np.array(["2020-01-01", "2020-01-02", "2020-01-05", "2020-01-09"], "M8[D]")
NO_NUMBERS = {
    "texts": ([["1", "2"]] * 4, "<U1"),
    "bytes": (np.full((4, 2), b"1"), r"\|S1"),
    "dates": (np.stack([DATES, DATES], axis=1), r"datetime64\[D\]"),
    "durations": (np.stack([DATES - DATES[0]] * 2, axis=1), r"timedelta64\[D\]"),
    "texts among objects": (np.array([[1.0, "2"]] * 4, dtype=object), "str"),
    "records": (np.zeros((4, 2), "i4,i4"), r"\[\('f0', '<i4'\), \('f1', '<i4'\)\]"),
    "a frame of texts": (Frame([1.0, 2.0, 3.0, 4.0], np.array(["1", "2", "3", "4"], object)), "str"),
    "a frame of dates": (Frame([1.0, 2.0, 3.0, 4.0], DATES), r"datetime64\[D\]"),
}
RAGGED = [[1.0, 2.0], [1.0], [2.0, 1.0], [0.0, 1.0]]
REFUSED = {
    case: (X, f"an array or a sparse matrix of real numbers, found values of type {found}$", TypeError)
    for case, (X, found) in NO_NUMBERS.items()
} | {
    "rows of different length": (RAGGED, "rows of one length, found a ragged list", ValueError),
    "masked": (np.ma.masked_greater(np.eye(4), 0.5), "an array without a mask", TypeError),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_features_that_are_no_numbers_are_refused(name):
    for X, expected, error in REFUSED.values():
        with pytest.raises(error, match=rf"^X: expected {expected}"):
            getattr(estimators, name)().fit(X, [0, 1, 0, 1])
        with pytest.raises(error, match=rf"^X: expected {expected}"):
            fitted(name).predict(X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_masked_classes_are_refused(name):
    with pytest.raises(TypeError, match=r"^y: expected an array without a mask"):
        getattr(estimators, name)().fit(np.eye(4), np.ma.masked_greater([0, 1, 0, 1], 0))


class LazyFrame:
    """As much of a frame of Polars that is not computed yet as is looked at; all else warns there."""

    shape = property(lambda self: warnings.warn("computes", UserWarning, stacklevel=2))
    dtypes = columns = shape

    def collect(self):
        raise AssertionError("is the user's to ask for")

    def collect_schema(self):
        raise AssertionError("is the user's to ask for")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_frames_that_are_not_collected_are_refused(name):
    said = "expected a collected frame, found a LazyFrame: call"
    with pytest.raises(TypeError, match=rf"^X: {said} X.collect\(\)$"):
        getattr(estimators, name)().fit(LazyFrame(), [0, 1, 0, 1])
    with pytest.raises(TypeError, match=rf"^X: {said} X.collect\(\)$"):
        fitted(name).predict(LazyFrame())
    with pytest.raises(TypeError, match=rf"^y: {said} y.collect\(\)$"):
        getattr(estimators, name)().fit(np.eye(4), LazyFrame())
    with pytest.raises(TypeError, match=rf"^y: {said} y.collect\(\)$"):
        fitted(name).score(features(), LazyFrame())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_weights_among_objects_are_those_of_an_array(name):
    weight = np.random.default_rng(0).integers(1, 4, len(classes())) / 2
    objects = weight.astype(object)
    objects[:4] = [np.float32(weight[0]), Fraction(weight[1]), Decimal(weight[2]), np.float64(weight[3])]
    expected, model = (clone(ESTIMATORS[name]).fit(features(), classes(), s) for s in (weight, objects))
    np.testing.assert_array_equal(model.decision_function(features()), expected.decision_function(features()))
    scores = {model.score(features(), classes(), s) for s in (weight, objects)}
    assert len(scores) == 1


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("wrong", "found", "error"),
    [
        ("1", "an array of real numbers, found values of type str", TypeError),
        (None, "an array of real numbers, found values of type NoneType", TypeError),
        (1j, "an array of real numbers, found values of type complex", TypeError),
        (
            np.timedelta64(1, "s"),
            "an array of real numbers, found values of type timedelta64",
            TypeError,
        ),
        (10**400, "numbers within the range of float64", ValueError),
        pytest.param(
            np.longdouble("1e400"),
            "numbers within the range of float64",
            ValueError,
            marks=pytest.mark.skipif(np.isinf(np.longdouble("1e400")), reason="long double is float64"),
        ),
        (Decimal("sNaN"), "numbers that float64 has, found sNaN", ValueError),
    ],
)
def test_weights_that_are_no_numbers_are_refused(name, wrong, found, error):
    weight = np.array([1.0, wrong] * (len(classes()) // 2) + [1.0] * (len(classes()) % 2), object)
    for call in (getattr(estimators, name)().fit, fitted(name).score):
        with pytest.raises(error, match=f"^sample_weight: expected {found}$"):
            call(features(), classes(), sample_weight=weight)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_single_object_as_weights_is_named_by_its_type(name):
    one = np.empty((), object)
    for call in (getattr(estimators, name)().fit, fitted(name).score):
        with pytest.raises(TypeError, match=r"^sample_weight: .*, found values of type NoneType$"):
            call(features(), classes(), sample_weight=one)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("classes", "found"), [(["a", 1], "1 in row 1 beside texts"), (["a", None], "None in row 1")]
)
def test_classes_of_several_kinds_are_refused(name, classes, found):
    with pytest.raises(ValueError, match=rf"^y: expected classes that are all .*, found {found}$"):
        getattr(estimators, name)().fit(np.eye(4), np.array(classes * 2, object))


@pytest.mark.parametrize("name", CLASSES)
def test_a_matrix_of_labels_is_no_class_vector_and_has_estimators(name):
    for y in (labels().toarray(), labels().toarray().tolist()):
        with pytest.raises(ValueError, match=r"^y: .* a label matrix of shape \[\d+, 4\]; .* for OneVsAllC"):
            getattr(estimators, name)().fit(features(), y)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_labels_that_are_none(name):
    for y in (sp.csr_matrix((len(classes()), 0)), np.zeros((len(classes()), 0))):
        with pytest.raises((TypeError, ValueError), match=r"^y: expected at least one label, found a label"):
            getattr(estimators, name)().fit(features(), y)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_classes_of_numpys_texts_are_stored(name, tmp_path):
    y = np.array(["b", "a", "c ä"])[classes() % 3]
    texts = y.astype(np.dtypes.StringDType())
    model = getattr(estimators, name)().fit(features(), texts)
    model.save(tmp_path / "model")
    loaded = getattr(estimators, name).load(tmp_path / "model")
    assert loaded.classes_.tolist() == ["a", "b", "c ä"]
    assert (loaded.predict(features()) == model.predict(features())).all()
    assert model.score(features(), texts) == model.score(features(), y)


@pytest.mark.parametrize("name", OF_LABELS)
def test_half_precision_is_single_precision(name):
    X, make = features().toarray(), getattr(estimators, name)
    expected, found = (
        make().fit(X.astype(np.float16).astype(t), classes()) for t in (np.float32, np.float16)
    )
    assert found.coef_.dtype == np.float32 and (found.coef_ != expected.coef_).sum() == 0


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, ">i4", ">f8"])
@pytest.mark.parametrize(
    "make",
    [
        estimators.OneVsAllClassifier,
        estimators.MultinomialLogisticRegression,
        lambda: estimators.MulticlassSVC("cs", random_state=0),
    ],
)
def test_label_matrices_of_dtypes_that_scipy_has_not(make, dtype):
    X, Y = features(), labels().toarray().astype(int)
    plain, found = make().fit(X, Y), make().fit(X, Y.astype(dtype))
    np.testing.assert_array_equal(found.decision_function(X), plain.decision_function(X))
    assert found.score(X, Y.astype(dtype)) == plain.score(X, Y)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_features_and_classes_of_bfloat16_are_those_of_float32(name):
    X, y = np.float32([[0, 1], [1, 0], [0.5, 1], [1, 0.25]]), np.float32([0, 1, 0, 1])
    model = getattr(estimators, name)()
    model.set_params(**{"random_state": 0} if "random_state" in model.get_params() else {})
    expected, found = (clone(model).fit(X.astype(t), y.astype(t)) for t in (np.float32, jnp.bfloat16))
    np.testing.assert_array_equal(found.decision_function(X), expected.decision_function(X))
    np.testing.assert_array_equal(found.predict(jnp.asarray(X, jnp.bfloat16)), expected.predict(X))


def test_objects_and_frames_of_numbers_are_features():
    X, y = np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 1.0], [1.0, 0.2]]), [0, 1, 0, 1]
    expected = estimators.MulticlassSVC(random_state=0).fit(X, y).coef_
    for form in (X.astype(object), X.tolist(), Frame(*X.T)):
        found = estimators.MulticlassSVC(random_state=0).fit(form, y).coef_
        np.testing.assert_array_equal(found, expected)


class Missing:
    """As pandas.NA, which says of no comparison whether it is true."""

    def __eq__(self, other):
        return self

    __ne__ = __lt__ = __gt__ = __eq__  # pyright: ignore[reportAssignmentType]
    __hash__ = object.__hash__

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self):
        return "<NA>"


MISSING = Missing()


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (["a", "b", float("nan"), "a"], "all numbers or all texts, found nan in row 2 beside texts$"),
        (["a", "b", 3, 4.5], "all numbers or all texts, found 3 in row 2 beside texts$"),
        (
            np.array(["2020-01-01", "2020-01-02", "NaT", "NaT"], "M8[D]"),
            "a date in each row, found NaT in row 2$",
        ),
        (
            [datetime.date(2020, 1, 1 + i % 2) for i in range(4)],
            "found datetime.date.2020, 1, 1. in row 0: give",
        ),
        ([[2, 3], [0, 1], [1, 2], [0, 3]], "found 2 in row 0; sklearn.preprocessing.MultiLabelBinarizer"),
        (np.array(["a", "b", 3, "a"], object), "all numbers or all texts, found 3 in row 2 beside texts$"),
        (np.array([[1], [2], ["a"], [2]], object), "all texts, found 'a' in row 2 beside numbers$"),
        (np.array([True, 2, True, 2], object), "all texts, found 2 in row 1 beside truth values$"),
        (["a", "b", MISSING, "a"], "all numbers or all texts, found <NA> in row 2$"),
        ([MISSING, 1, 2, 1], "all numbers or all texts, found <NA> in row 0$"),
        (np.array(["a", np.nan, "b", "a"], object), "all numbers or all texts, found nan in row 1$"),
        ([1, 2, None, 1], "all numbers or all texts, found None in row 2$"),
        (np.array([1, 2, 1, 2], object), r"objects that are numbers: give y.astype\(int\)$"),
        (np.array([1, 2.5, 1, 2], object), r"objects that are numbers: give y.astype\(float\)$"),
        (np.array([True, False] * 2, object), r"objects that are truth values: give y.astype\(bool\)$"),
        (np.array([[0, 1], [1, 0]] * 2, object), r"objects that are numbers: give y.astype\(int\)$"),
        (np.array([[0, 1], [1, MISSING]] * 2, object), "a label matrix of 0 and 1, found <NA> in row 1;"),
        (np.array([[0, 1], [1, None]] * 2, object), "a label matrix of 0 and 1, found None in row 1;"),
        (np.array([[0, 1], [1, 2]] * 2, object), "a label matrix of 0 and 1, found 2 in row 1;"),
    ],
    ids=[
        *("missing", "numbers", "no-date", "date", "tags", "object-numbers", "object-texts", "object-truth"),
        *("NA", "NA-first", "object-nan", "None", "objects", "objects-float", "objects-bool"),
        *("object-matrix", "matrix-NA", "matrix-None", "matrix-numbers"),
    ],
)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_classes_that_are_none_are_named(name, y, said):
    with pytest.raises(ValueError, match=f"^y: expected .*{said}"):
        clone(ESTIMATORS[name]).fit(np.eye(4), y)
