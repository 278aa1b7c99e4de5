"""Features and targets as users give them, checked before scikit-learn or scipy look at them."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from xmcjax import _sparse
from xmcjax._feature_order import moved, places_of
from xmcjax.data import fit_transforms
from xmcjax.estimators._targets import kind_of_object, refuse_kinds

DTYPES = (np.float64, np.float32)
# Kinds of values that are no texts or dates; among these scikit-learn refuses what is no real number.
_LEFT = "biufcO"
_TAGS = (
    "y: expected one class per row or a label matrix of 0 and 1, found {}; "
    "sklearn.preprocessing.MultiLabelBinarizer(sparse_output=True).fit_transform(y) makes a label matrix of "
    "lists of tags"
)

_ONE_CLASS = (
    "y: expected one class per row, found {} of shape {}; label matrices are for OneVsAllClassifier, "
    "MultinomialLogisticRegression and MulticlassSVC(formulation='cs')"
)


def checked_features(estimator, X, *, reset: bool = False) -> Any:
    """X as CSR or an array of float; values that are not finite are left to ``check_features``.

    Raises:
        TypeError: a masked array, a frame that is not collected, or values that are no real numbers, such as
            texts and dates.
        ValueError: a malformed matrix, rows of different length, or another width than that of ``fit``.
    """
    return validate_data(estimator, _entering(X), reset=reset, **_kinds())


def checked_data(estimator, X, y, *, multi_output: bool = False, reset: bool = True) -> tuple[Any, Any]:
    """As :func:`checked_features`, and the targets: a class vector, or a label matrix where `multi_output`.

    With `reset` the estimator forgets what it knew of features, except the names of the transforms that its
    model had: these transforms are fitted on X anew and applied to it.

    Raises:
        TypeError, ValueError: as there; lists of tags, a masked array, a frame that is not collected or a
            malformed matrix as y; y of another length or kind.
    """
    if reset:
        for name in ("_of_training", "_n_labels"):  # of the model that it was loaded from
            estimator.__dict__.pop(name, None)
    X, y = _entering(X), checked_targets(y)
    if sp.issparse(y) and not multi_output:
        raise TypeError(_ONE_CLASS.format("a sparse matrix", list(y.shape)))
    if not multi_output and getattr(y, "ndim", 1) == 2 and y.shape[1] > 1:
        raise ValueError(_ONE_CLASS.format("a label matrix", list(y.shape)))
    X, y = validate_data(estimator, X, y, multi_output=multi_output, reset=reset, **_kinds())
    transforms = getattr(estimator, "transforms_", None)
    if reset and transforms is not None:
        estimator.transforms_ = anew = fit_transforms(transforms.names, X)
        same = transforms.n_features == anew.n_features
        if same and anew.order is not None and hasattr(estimator, "coef_"):  # a warm start begins from these
            coef = _sparse.matrix(estimator.coef_, "coef_")
            estimator.coef_ = moved(coef, places_of(transforms.order, anew.order))
        X = anew.apply(X)
    return X, y


def checked_truth(y, n_labels: int | None) -> Any:
    """The targets that ``score`` compares with predictions.

    Args:
        y: of any kind that scikit-learn knows.
        n_labels: L, where predictions are a label matrix; None where they are classes.

    Returns:
        A sparse y as CSR of ones, of which a stored value that is not 0 is a label, as in ``fit``; another
        one as it is, a label matrix of 0 and 1.

    Raises:
        TypeError: a masked array, or a sparse matrix in place of classes.
        ValueError: lists of tags; a sparse matrix that is malformed, has another number of labels, or holds
            values that are negative or not finite; a dense one of others than 0 and 1.
    """
    y = checked_targets(y)
    if not sp.issparse(y):
        if n_labels is not None and np.ndim(y) == 2:
            values = np.asarray(y)
            _refuse_labels(values[(values != 0) & (values != 1)])
        return y
    if n_labels is None:
        raise TypeError(f"y: expected one class per row, found a sparse matrix of shape {list(y.shape)}")
    if y.shape[1] != n_labels:
        raise ValueError(f"y: expected {n_labels} labels, as in fit, found {y.shape[1]}")
    y = _sparse.canonical_csr(y, "y", zeros=False)
    _refuse_labels(y.data[~((y.data >= 0) & np.isfinite(y.data))])
    return sp.csr_matrix((np.ones(y.nnz, np.int64), y.indices, y.indptr), shape=y.shape)


def _refuse_labels(wrong: np.ndarray) -> None:
    if wrong.size:
        raise ValueError(f"y: expected a matrix of 0 and 1, found {wrong[0]}")


def checked_targets(y) -> Any:
    """y of any kind that scikit-learn knows; lists of tags are refused with the remedy.

    A matrix of numbers comes in a dtype that SciPy has, unlike float16 or another byte order, bfloat16 as
    float32, and texts of NumPy's StringDType as objects.
    """
    if y is None:
        return y  # scikit-learn says what is missing
    _refuse_lazy(y, "y")
    if _sparse.is_sparse(y):
        y = _sparse.csr(y, "y")
        if y.shape[1] == 0:
            raise _no_labels(y)
        return y
    _sparse.refuse_masked(y, "y")
    try:
        given = np.asarray(y)
    except ValueError:  # what NumPy says of rows of different length
        raise ValueError(_TAGS.format("lists of different length")) from None
    array = _sparse.widened(given)
    if array.dtype.kind == "T":  # texts of NumPy's StringDType, which scikit-learn and models do not have
        array = array.astype(object)
    if array.ndim == 1 and array.dtype == object:
        row = next(
            (i for i, tags in enumerate(array) if isinstance(tags, (list, tuple, set, np.ndarray))), None
        )
        if row is not None:
            raise ValueError(_TAGS.format(f"{type(array[row]).__name__} {array[row]!r} in row {row}"))
    texts = array.dtype.kind in "US" or (
        array.dtype == object and any(isinstance(a, str) for a in array.flat)
    )
    if array.ndim == 2 and array.shape[1] > 1 and texts:
        raise ValueError(_TAGS.format(f"texts of shape {list(array.shape)}"))
    if array.ndim == 2 and array.shape[1] == 0:
        raise _no_labels(array)
    if array.dtype == object and array.ndim == 2 and array.shape[1] > 1:
        _refuse_object_matrix(array)
    elif array.dtype == object and array.ndim in (1, 2):
        _refuse_objects(array.ravel())
    elif array.ndim == 1:
        _refuse_mixtures(y, array)
    elif array.ndim == 2 and array.shape[1] > 1 and array.dtype.kind in "iu" and isinstance(y, (list, tuple)):
        rows, columns = np.nonzero((array != 0) & (array != 1))
        if len(rows):
            raise ValueError(_TAGS.format(f"{array[rows[0], columns[0]]} in row {rows[0]}"))
    if array.ndim == 2 and array.dtype.kind in "biuf":
        return _sparse.dense(array, "y")
    return y if array is given else array


def _refuse_mixtures(y, array: np.ndarray) -> None:
    """Refuses a class vector with values that NumPy turns into texts beside texts, or with a missing date."""
    if array.dtype.kind in "US" and isinstance(y, (list, tuple)):
        row = next((i for i, value in enumerate(y) if not isinstance(value, (str, bytes))), None)
        if row is not None:
            found = f"{y[row]!r} in row {row}"
            raise ValueError(
                f"y: expected classes that are all numbers or all texts, found {found} beside texts"
            )
    elif array.dtype.kind == "M" and np.isnat(array).any():
        raise ValueError(f"y: expected a date in each row, found NaT in row {np.argmax(np.isnat(array))}")


def _refuse_objects(classes: np.ndarray) -> None:
    """Refuses classes that are objects, [n], except texts, the one kind that has no other dtype."""
    refuse_kinds(classes, "y", "row")
    kind = kind_of_object(classes[0]) if len(classes) else "texts"
    if kind in ("numbers", "truth values"):
        raise _of_objects(classes, kind)


def _refuse_object_matrix(matrix: np.ndarray) -> None:
    """Refuses any label matrix of objects, which holds no texts."""
    for row, values in enumerate(matrix):
        for value in values:
            if kind_of_object(value) is None or value not in (0, 1):
                raise ValueError(_TAGS.format(f"{value!r} in row {row}"))
    raise _of_objects(matrix, "numbers")


def _of_objects(array: np.ndarray, kind: str) -> ValueError:
    whole = all(isinstance(value, numbers.Integral) for value in array.flat)
    dtype = "bool" if kind == "truth values" else "int" if whole else "float"
    # scikit-learn's checks of estimators look for its own words
    return ValueError(
        "y: expected an array of numbers or of texts, found one of dtype object (scikit-learn: Unknown label "
        f"type) with objects that are {kind}: give y.astype({dtype})"
    )


def _no_labels(y) -> ValueError:
    return ValueError(f"y: expected at least one label, found a label matrix of shape {list(y.shape)}")


def _refuse_lazy(given, name: str) -> None:
    """TypeError for a frame of Polars that is yet to be computed, which no array can be made of."""
    # what NumPy would ask such a frame for computes a part of it, and warns
    if hasattr(type(given), "collect") and hasattr(type(given), "collect_schema"):
        kind = type(given).__name__
        raise TypeError(f"{name}: expected a collected frame, found a {kind}: call {name}.collect()")


def _entering(X) -> Any:
    _refuse_lazy(X, "X")
    if _sparse.is_sparse(X):
        return _sparse.csr(X)
    _sparse.refuse_masked(X, "X")
    if hasattr(X, "dtypes") and not hasattr(X, "dtype"):  # a data frame, of which no array is made here
        kinds = [getattr(kind, "kind", "O") for kind in X.dtypes]
        types = [kind for kind, left in zip(X.dtypes, kinds, strict=True) if left not in _LEFT]
        if types:
            raise _sparse.no_numbers("X", f"values of type {types[0]}")
        objects = [i for i, kind in enumerate(kinds) if kind == "O"]
        if objects:
            _refuse_texts(np.asarray(X.iloc[:, objects] if hasattr(X, "iloc") else X, object))
        return X
    array = _sparse.array(X, "X")
    if array.dtype.kind not in _LEFT:
        raise _sparse.no_numbers("X", f"values of type {array.dtype}")
    if array.dtype == object:
        _refuse_texts(array)
    if array.dtype == np.float16:  # of which scikit-learn would make float64
        array = array.astype(np.float32)
    return array if isinstance(X, (list, tuple)) or array.dtype != getattr(X, "dtype", array.dtype) else X


def _refuse_texts(array: np.ndarray) -> None:
    """TypeError for texts such as "1", of which scikit-learn would make numbers."""
    texts = (type(value).__name__ for value in array.flat if isinstance(value, (str, bytes)))
    found = next(texts, None)
    if found is not None:
        raise _sparse.no_numbers("X", f"values of type {found}")


def _kinds() -> dict[str, Any]:
    return dict(accept_sparse="csr", dtype=DTYPES, ensure_all_finite=False)
