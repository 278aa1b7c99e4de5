"""Transforms: values by their definitions, sparse equal to dense, recorded and repeated."""

import copy
import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax.data import TRANSFORMS, Transforms, fit_transforms, parse_transforms

# 4 rows, 5 features: df = 3, 4, 1, 0, 2.
COUNTS = np.array([[1, 2, 0, 0, 3], [0, 1, 0, 0, 1], [5, 1, 7, 0, 0], [1, 4, 0, 0, 0]], float)


def _random(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 6, (30, 20)) * (rng.random((30, 20)) < 0.3)).astype(dtype)


def test_definitions():
    nonzero = COUNTS > 0
    log = np.where(nonzero, 1 + np.log(np.where(nonzero, COUNTS, 1)), 0)
    # ln(n/df), and 0 for the feature that no row has
    idf = np.array([np.log(4 / 3), 0, np.log(4), 0, np.log(2)])
    unit = COUNTS / np.sqrt((COUNTS**2).sum(axis=1, keepdims=True))
    expected = {
        "log": log,
        "idf": COUNTS * idf,
        "tfidf": COUNTS * idf,
        "sqrt": np.sqrt(COUNTS),
        "unit": unit,
        "frequency": COUNTS[:, [1, 0, 4, 2, 3]],
    }
    assert set(expected) == set(TRANSFORMS)
    for name, values in expected.items():
        transformed = fit_transforms(name, COUNTS).apply(COUNTS)
        np.testing.assert_allclose(transformed, values, rtol=1e-15, err_msg=name)


def test_order_of_application():
    log_idf = fit_transforms("log", COUNTS).apply(COUNTS) * [np.log(4 / 3), 0, np.log(4), 0, np.log(2)]
    norms = np.sqrt((log_idf**2).sum(axis=1, keepdims=True))
    expected = log_idf / np.where(norms == 0, 1, norms)
    np.testing.assert_allclose(fit_transforms("log,idf,unit", COUNTS).apply(COUNTS), expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "names", [*TRANSFORMS, "log,idf,unit", "frequency,sqrt,idf", "unit,frequency,idf", ""]
)
def test_sparse_equals_dense(names, dtype):
    X = _random(dtype=dtype)
    unseen = _random(1, dtype)
    transforms = fit_transforms(names, sp.csr_array(X))
    dense = fit_transforms(names, X)
    assert transforms.names == dense.names
    for matrix in (X, unseen, np.zeros_like(X)):
        sparse = sp.coo_array(matrix)
        before = sparse.copy()
        result = transforms.apply(sparse)
        assert isinstance(result, sp.csr_matrix)
        assert result.dtype == dtype
        result.check_format(full_check=True)
        assert result.has_canonical_format
        assert (result.data != 0).all()
        np.testing.assert_array_equal(sparse.toarray(), before.toarray())
        copy = matrix.copy()
        plain = dense.apply(matrix)
        assert plain.dtype == dtype
        np.testing.assert_array_equal(matrix, copy)
        np.testing.assert_allclose(result.toarray(), plain, rtol=4 * np.finfo(dtype).eps)


def test_features_unseen_in_training_count_for_nothing():
    train = np.array([[1.0, 1, 0], [1, 0, 0]])
    transforms = fit_transforms("idf,unit", train)
    result = transforms.apply(np.array([[3.0, 2, 9]]))
    np.testing.assert_allclose(result, [[0, 1, 0]])


def test_rows_of_zeros_stay_and_extreme_rows_have_norm_one():
    X = np.array([[0, 0, 0], [1e30, 1e30, 0], [1e-30, 0, 0], [3e-41, 4e-41, 0]], np.float32)
    transforms = fit_transforms("unit", X)
    for result in (transforms.apply(X), transforms.apply(sp.csr_matrix(X)).toarray()):
        np.testing.assert_allclose(np.linalg.norm(result, axis=1), [0, 1, 1, 1], rtol=1e-6)


@pytest.mark.parametrize("names", ["log", "sqrt", "unit,log"])
def test_negative_values_are_refused(names):
    X = np.array([[1.0, 2.0], [3.0, -4.0]])
    for matrix in (X, sp.csr_matrix(X)):
        with pytest.raises(
            ValueError, match=r"'(log|sqrt)' is for values that are not negative, got -.* in row 1, column 1 "
        ):
            fit_transforms(names, matrix).apply(matrix)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("log,bm25", "a transform must be one of log, idf, tfidf, sqrt, unit, frequency, got 'bm25'"),
        ("log,,unit", "got ''"),
        ("log,log", "each transform can be given once, got log,log"),
        ("log,tfidf", "give tfidf or log,idf, got log,tfidf"),
        (("tfidf", "idf"), "give tfidf or log,idf, got tfidf,idf"),
    ],
)
def test_names_are_checked(names, message):
    with pytest.raises(ValueError, match=message):
        fit_transforms(names, COUNTS)


def test_names_in_every_spelling():
    assert (
        parse_transforms("log, idf ,unit")
        == parse_transforms(["log", "idf", "unit"])
        == ("log", "idf", "unit")
    )
    assert parse_transforms("") == parse_transforms(()) == parse_transforms(" ") == ()


def test_recorded_and_repeated():
    X = sp.csr_matrix(_random())
    fitted = fit_transforms("log,idf,frequency,unit", X)
    assert set(fitted.arrays) == {"idf.weight", "frequency.order"}
    assert {array.dtype.kind for array in fitted.arrays.values()} == {"f", "i"}
    assert fitted.n_features == 20
    again = Transforms.from_arrays(
        list(fitted.names), {key: array.copy() for key, array in fitted.arrays.items()}
    )
    difference = again.apply(X) != fitted.apply(X)
    assert difference.nnz == 0
    assert fit_transforms("unit", X).n_features is None


def test_recorded_arrays_are_checked():
    weight, order = np.ones(5), np.arange(5)
    for arrays, message in [
        (
            {"idf.weight": weight},
            r"need the arrays \['frequency.order', 'idf.weight'\], got \['idf.weight'\]",
        ),
        ({"idf.weight": weight, "frequency.order": order, "x": order}, "need the arrays"),
        ({"idf.weight": np.ones(4), "frequency.order": order}, r"must all be \[d\]"),
        ({"idf.weight": np.ones((5, 1)), "frequency.order": np.ones((5, 1))}, r"must all be \[d\]"),
        ({"idf.weight": weight, "frequency.order": np.zeros(5, int)}, "must hold each feature once"),
        ({"idf.weight": weight, "frequency.order": np.arange(5.0)}, "must hold each feature once"),
        ({"idf.weight": weight * np.nan, "frequency.order": order}, "idf.weight: expected finite numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            Transforms.from_arrays("idf,frequency", arrays)
    with pytest.raises(TypeError, match=r"idf.weight: .* of real numbers, found values of type complex128"):
        Transforms.from_arrays("idf", {"idf.weight": weight + 1j})
    for wrong in (-1e-3, 1e30):  # 0/0 and inf/inf in rows of length 1
        with pytest.raises(ValueError, match=r"^idf\.weight: expected numbers from 0 to 64, found"):
            Transforms.from_arrays("idf", {"idf.weight": np.r_[weight[:-1], wrong]})
    with pytest.raises(ValueError, match="'idf' was fitted on 5 features, got 3"):
        Transforms.from_arrays("idf", {"idf.weight": weight}).apply(np.ones((2, 3)))


def test_frozen():
    fitted = fit_transforms("idf", COUNTS)
    with pytest.raises(AttributeError):
        fitted.names = ()  # pyright: ignore[reportAttributeAccessIssue] – refused here, too
    with pytest.raises(TypeError):
        fitted.arrays["idf.weight"] = np.ones(5)  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize("names", ["", "unit", "log,idf,frequency,unit"])
def test_pickled_and_copied(names):
    X = sp.csr_matrix(_random())
    fitted = fit_transforms(names, X)
    for again in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted), copy.copy(fitted)):
        assert type(again) is Transforms and again.names == fitted.names
        assert (again.apply(X) != fitted.apply(X)).nnz == 0
        with pytest.raises(TypeError):
            again.arrays["idf.weight"] = np.ones(5)  # pyright: ignore[reportIndexIssue]


def test_integers_become_float32():
    result = fit_transforms("log", COUNTS.astype(np.int64)).apply(sp.csr_matrix(COUNTS.astype(np.uint8)))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result[0, 1], 1 + np.log(2), rtol=1e-6)


def test_frequency_keeps_order_of_ties():
    X = np.array([[0, 1, 1, 0], [0, 1, 1, 1]], float)
    order = fit_transforms("frequency", sp.csr_matrix(X)).arrays["frequency.order"]
    np.testing.assert_array_equal(order, [1, 2, 3, 0])


def test_rows_beyond_the_range_of_squares_have_norm_one():
    # of 1 row in 3, between rows that are worked on together with them; sums of float64 lose them
    X = np.tile([[3.0, 0, 4], [0, 0, 0], [1, 2, 2]], (20_000, 1))
    factors = np.tile([1e-308, 1e-170, 1e-90, 1, 1e90, 1e170, 2e307], 60_000)[: len(X), None]
    unit = np.tile([[0.6, 0, 0.8], [0, 0, 0], [1 / 3, 2 / 3, 2 / 3]], (20_000, 1))
    extreme, transforms = X * factors, fit_transforms("unit", X)
    for given in (extreme, np.asfortranarray(extreme), sp.csr_array(extreme)):
        result = transforms.apply(given)
        result = result.toarray() if sp.issparse(result) else result
        np.testing.assert_allclose(result, unit, rtol=1e-15)
        # a row is what it is alone
        np.testing.assert_array_equal(result[21:42], transforms.apply(extreme[21:42]))


def test_a_value_that_vanishes_beside_another_is_dropped():
    X = np.array([[1e-300, 1e300, 0], [0, 5e-324, 0]])
    result = fit_transforms("unit", X).apply(sp.csr_array(X))
    assert result.nnz == 2
    np.testing.assert_array_equal(result.toarray(), [[0, 1, 0], [0, 1, 0]])
    np.testing.assert_array_equal(fit_transforms("unit", X).apply(X), [[0, 1, 0], [0, 1, 0]])


@pytest.mark.parametrize("names", ["idf", "log,idf,unit", "frequency,sqrt", "unit"])
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_])
def test_stored_zeros_and_duplicates_count_as_their_sums(names, dtype):
    rows, columns = np.array([0, 2, 2, 2, 3, 3, 4]), np.array([1, 3, 0, 3, 2, 2, 1])
    values = np.array([1, 1, 1, 0, 0, 0, 1]).astype(dtype)
    indptr = np.searchsorted(rows, np.arange(6))
    X = sp.csr_array((values, columns, indptr), shape=(5, 4))  # not sorted, entries twice, rows without any
    before = [array.copy() for array in (X.data, X.indices, X.indptr)]
    dense = X.toarray()
    fitted, of_dense = fit_transforms(names, X), fit_transforms(names, dense)
    for key, array in of_dense.arrays.items():
        np.testing.assert_array_equal(fitted.arrays[key], array)
    result = fitted.apply(X)
    assert result.has_canonical_format and result.data.all()
    assert result.dtype == (np.float64 if dtype is np.float64 else np.float32)
    np.testing.assert_allclose(result.toarray(), of_dense.apply(dense), rtol=1e-6)
    for array, known in zip((X.data, X.indices, X.indptr), before, strict=True):
        np.testing.assert_array_equal(array, known)


def test_log_of_zero_and_of_less_than_one():
    X = np.tile([[0, -0.0, 0.1, 1, np.e]], (10_000, 1))  # more than is worked on together
    expected = np.tile([[0, 0, 1 + np.log(0.1), 1, 2]], (10_000, 1))
    for given in (X, np.asfortranarray(X), sp.csr_array(X)):
        result = fit_transforms("log", X).apply(given)
        np.testing.assert_array_equal(result.toarray() if sp.issparse(result) else result, expected)
    X[9_999, 2] = -2
    for given in (X, sp.csr_array(X)):
        with pytest.raises(ValueError, match=r"not negative, got -2.0 in row 9999, column 2"):
            fit_transforms("log", X).apply(given)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_number_that_is_not_finite_is_found_beside_the_largest(wrong, dtype):
    X = np.full((3, 4), np.finfo(dtype).max, dtype)
    np.testing.assert_allclose(fit_transforms("unit", X).apply(X), 0.5)  # their sum is infinite
    X[2, 1] = wrong
    for given in (X, sp.csr_array(X)):
        with pytest.raises(ValueError, match=f"expected finite features, got {wrong} in row 2, column 1"):
            fit_transforms("unit", X).apply(given)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("names", ["idf", "tfidf", "idf,unit"])
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_that_overflow_under_idf_are_refused(form, names, sign):
    for dtype in (np.float32, np.float64):
        most = np.finfo(dtype).max
        X = np.array([[1, 0], [0, 1], [sign * (most * 0.95), 1], [0, 0], [0, 0], [0, 0]], dtype)
        said = rf"finite {np.dtype(dtype)}, got one beyond {most / np.log(3):.3g} in row 2, column 0"
        with pytest.raises(ValueError, match=f"^X: expected features whose .* {re.escape(said)}$"):
            fit_transforms(names, form(X)).apply(form(X))
        X[2, 0] = sign * (most / 2)
        found = fit_transforms(names, form(X)).apply(form(X))
        assert np.isfinite([found.min(), found.max()]).all()


@pytest.mark.parametrize("name", ["idf", "tfidf", "unit,idf"])
def test_idf_is_not_learnt_without_rows(name):
    with pytest.raises(ValueError, match=r"^X: expected at least one row to learn idf from, found none$"):
        fit_transforms(name, np.zeros((0, 3)))
