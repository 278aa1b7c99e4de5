"""Transforms of features, fitted on the training part and repeated at prediction.

| name | what it does to X |
|---|---|
| ``log`` | x → 1 + ln x on the non-zeros |
| ``idf`` | x → x · ln(n / df), df = rows of the training part where the feature is not zero |
| ``tfidf`` | as ``idf``, on raw counts: tf · ln(n / df), used without ``log`` and ``idf`` |
| ``sqrt`` | x → √x |
| ``unit`` | rows of Euclidean norm 1; a row of zeros stays one |
| ``frequency`` | features reordered by falling df |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._finite import first_place, place_not_finite
from xmcjax._sparse import Sparse

Matrix: TypeAlias = Any  # csr_matrix or ndarray: sp.issparse tells
Arrays = Mapping[str, np.ndarray]
# The largest valid ln(n / df): no training set gives a larger one.
_MOST_IDF = 64
# How many numbers are worked on at a time, so that they stay in the cache of a core.
_BLOCK = 1 << 16
# Sums of squares between this and its inverse have lost nothing to overflow or underflow.
_LEAST = 1e-200


@dataclasses.dataclass(frozen=True)
class Transform:
    """One entry of ``TRANSFORMS``.

    Attributes:
        apply: function (X, arrays) -> X; it may overwrite X, and returns it without explicit zeros.
        fit: function X -> the arrays that ``apply`` needs, each of d entries.
        arrays: the names of these arrays.

    Example:
        >>> sorted(TRANSFORMS), TRANSFORMS["idf"].arrays
        (['frequency', 'idf', 'log', 'sqrt', 'tfidf', 'unit'], ('weight',))
    """

    apply: Callable[[Matrix, Arrays], Matrix]
    fit: Callable[[Matrix], dict[str, np.ndarray]] = lambda X: {}
    arrays: tuple[str, ...] = ()


def _log(X: Matrix, arrays: Arrays) -> Matrix:
    _refuse_negative("log", X)
    values = _values(X)
    # 1 + ln(tf) on the non-zeros
    for some in _blocks(len(values), values[:1].size):
        part = values[some]
        zero = part == 0
        np.copyto(part, 1, where=zero)
        np.log(part, out=part)
        part += 1
        np.copyto(part, 0, where=zero)
    return X


def _sqrt(X: Matrix, arrays: Arrays) -> Matrix:
    values = _values(X)
    _refuse_negative("sqrt", X)
    np.sqrt(values, out=values)
    return X


def _unit(X: Matrix, arrays: Arrays) -> Matrix:
    if not sp.issparse(X):
        for rows in _blocks(*X.shape):
            _divide_by_norms(
                X[rows],
                lambda part: np.einsum("ij,ij->i", part, part),
                lambda part: np.abs(part).max(axis=1, initial=0),
                lambda of_rows: of_rows[:, None],
            )
        return X
    lengths = np.diff(X.indptr)
    starts, lengths = X.indptr[:-1][lengths > 0], lengths[lengths > 0]
    for rows in _blocks(len(starts), len(X.data) // max(1, len(starts))):
        first, last = starts[rows][0], starts[rows][-1] + lengths[rows][-1]
        begin, counts = starts[rows] - first, lengths[rows]
        _divide_by_norms(
            X.data[first:last],
            lambda part, begin=begin: np.add.reduceat(part * part, begin),
            lambda part, begin=begin: np.maximum.reduceat(np.abs(part), begin),
            lambda of_rows, counts=counts: np.repeat(of_rows, counts),
        )
    return X


def _divide_by_norms(
    values: np.ndarray,
    squares: Callable[[np.ndarray], np.ndarray],
    largest: Callable[[np.ndarray], np.ndarray],
    spread: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Gives some rows the norm 1, in place; rows of zeros stay.

    Args:
        values: the values of the rows.
        squares: function values (float64) -> the sum of squares of each row.
        largest: function values -> the largest absolute value of each row.
        spread: function of a number per row -> that number repeated for each value of the row.
    """
    wide = values.astype(np.float64, copy=False)
    with np.errstate(over="ignore", under="ignore"):  # the sums show which rows overflow or underflow
        sums = squares(wide)
    extreme = ~((sums > _LEAST) & (sums < 1 / _LEAST))
    if extreme.any() and wide is values:  # no square of float32 overflows or vanishes in float64
        # extreme rows are divided by their largest value, the other rows by 1
        scale = np.where(extreme, largest(wide), 1)
        wide /= spread(np.where(scale == 0, 1, scale))
        sums = squares(wide)
    norms = np.sqrt(np.where(sums == 0, 1, sums))
    if wide is values:
        values /= spread(norms)
    else:  # the rounding error of the inverse is far below that of float32
        wide *= spread(1 / norms)
        values[...] = wide


def _document_frequency(X: Matrix) -> np.ndarray:
    """df: the rows in which each feature is not zero, int64 [d]."""
    if sp.issparse(X):
        return np.bincount(X.indices, minlength=X.shape[1])
    df = np.zeros(X.shape[1], np.int64)
    for rows in _blocks(*X.shape):
        df += np.count_nonzero(X[rows], axis=0)
    return df


def _fit_idf(X: Matrix) -> dict[str, np.ndarray]:
    if not X.shape[0]:
        raise ValueError("X: expected at least one row to learn idf from, found none")
    df = _document_frequency(X)
    # No weight can be learnt for a feature that never occurs in the training part: it gets weight 0, and
    # so it does not count in the norm of a row either.
    return {"weight": np.where(df > 0, np.log(X.shape[0] / np.maximum(df, 1)), 0.0)}


def _idf(X: Matrix, arrays: Arrays) -> Matrix:
    # x · ln(n / df)
    values = _values(X)
    weight = arrays["weight"].astype(values.dtype)
    try:
        with np.errstate(over="raise"):
            if not sp.issparse(X):
                values *= weight
                return X
            for some in _blocks(len(values)):
                values[some] *= weight[X.indices[some]]
            return X
    except FloatingPointError as error:
        place, overflow = place_not_finite(X), error
    assert place is not None
    row, column, _ = place
    most = np.finfo(weight.dtype).max / weight[column]
    raise ValueError(
        f"X: expected features whose product with ln(n / df) is a finite {weight.dtype}, got one beyond "
        f"{most:.3g} in row {row}, column {column}"
    ) from overflow


def _fit_frequency(X: Matrix) -> dict[str, np.ndarray]:
    # Stable, so that features of equal df keep their order.
    return {"order": np.argsort(-_document_frequency(X), kind="stable")}


def _frequency(X: Matrix, arrays: Arrays) -> Matrix:
    order = arrays["order"]
    if not sp.issparse(X):
        return X[:, order]
    rank = np.empty(order.size, X.indices.dtype)
    rank[order] = np.arange(order.size)
    X.indices[...] = rank[X.indices]
    X.has_sorted_indices = False
    X.sort_indices()
    return X


TRANSFORMS: dict[str, Transform] = {
    "log": Transform(_log),
    "idf": Transform(_idf, _fit_idf, ("weight",)),
    "tfidf": Transform(_idf, _fit_idf, ("weight",)),
    "sqrt": Transform(_sqrt),
    "unit": Transform(_unit),
    "frequency": Transform(_frequency, _fit_frequency, ("order",)),
}


@dataclasses.dataclass(frozen=True)
class Transforms:
    """Fitted transforms, applied in the order of ``names``.

    A model records ``names`` and ``arrays`` (with keys like ``idf.weight``); ``from_arrays`` makes
    the same object of them again.

    Example:
        >>> from xmcjax.data import fit_transforms
        >>> fitted = fit_transforms("unit", np.float32([[3.0, 4.0]]))
        >>> fitted.names, fitted.apply(np.float32([[3.0, 4.0]])).tolist()
        (('unit',), [[0.6000000238418579, 0.800000011920929]])
    """

    names: tuple[str, ...]
    arrays: Arrays

    @classmethod
    def from_arrays(cls, names: str | Iterable[str], arrays: Arrays) -> Transforms:
        """The transforms that a model recorded.

        Raises:
            ValueError: an unknown name; arrays missing, left over, of the wrong shape, not finite or out of
                range.
            TypeError: arrays of anything but real numbers.
        """
        names = parse_transforms(names)
        wanted = {f"{name}.{array}" for name in names for array in TRANSFORMS[name].arrays}
        if wanted != set(arrays):
            raise ValueError(
                f"transforms {','.join(names)} need the arrays {sorted(wanted)}, got {sorted(arrays)}"
            )
        checked = {key: _sparse.dense(array, key) for key, array in arrays.items()}
        if len({array.shape for array in checked.values()}) > 1 or any(a.ndim != 1 for a in checked.values()):
            shapes = {key: list(array.shape) for key, array in checked.items()}
            raise ValueError(f"the arrays of transforms must all be [d], got {shapes}")
        for key, array in checked.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{key}: expected finite numbers, found NaN or infinity")
        for key in ("idf.weight", "tfidf.weight"):
            weight = checked.get(key, np.zeros(0))
            wrong = weight[(weight < 0) | (weight > _MOST_IDF)]
            if wrong.size:
                raise ValueError(f"{key}: expected numbers from 0 to {_MOST_IDF}, found {wrong[0]:g}")
        order = checked.get("frequency.order")
        if order is not None and (
            order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(order.size))
        ):
            raise ValueError("frequency.order must hold each feature once")
        return cls(names, MappingProxyType(checked))

    def __reduce__(self):
        # a read-only view of a dict cannot be pickled
        return Transforms.from_arrays, (self.names, dict(self.arrays))

    @property
    def n_features(self) -> int | None:
        """d of the training part, or None where no transform depends on it."""
        return next((array.size for array in self.arrays.values()), None)

    @property
    def order(self) -> np.ndarray | None:
        """The raw feature that each transformed feature stems from, [d]; None where all keep their places."""
        return self.arrays.get("frequency.order")

    def apply(self, X: np.ndarray | Sparse) -> Matrix:
        """The transformed features; X itself is left as it is.

        Args:
            X: [n, d], sparse or dense. float32 and float64 are kept, integers become float32.

        Returns:
            CSR, rows sorted and without explicit zeros, or an array where X is one.

        Raises:
            TypeError: X is no matrix of real numbers.
            ValueError: another d than in training, a malformed X, a value that is not finite in X or after
                the product with ln(n / df), or a negative value under ``log`` or ``sqrt``.
        """
        X = _floats(X, copy=True)
        for name in self.names:
            X = self._apply_one(name, X)
        return X

    def _apply_one(self, name: str, X: Matrix) -> Matrix:
        transform = TRANSFORMS[name]
        arrays = {array: self.arrays[f"{name}.{array}"] for array in transform.arrays}
        for array in arrays.values():
            if array.size != X.shape[1]:
                raise ValueError(f"{name!r} was fitted on {array.size} features, got {X.shape[1]}")
        X = transform.apply(X, arrays)
        return _without_zeros(X)


def parse_transforms(names: str | Iterable[str]) -> tuple[str, ...]:
    """The names in a text such as "log,idf,unit" or in a sequence, checked; "" and () mean no transform.

    Raises:
        TypeError: neither a text nor a sequence of names.
        ValueError: an unknown name, a name given twice, or ``tfidf`` beside ``log`` or ``idf``.

    Example:
        >>> parse_transforms("log,idf,unit")
        ('log', 'idf', 'unit')
    """
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")] if names.strip() else []
    listed = tuple(names) if isinstance(names, Iterable) else (names,)
    if not all(isinstance(name, str) for name in listed):
        raise TypeError(f"transforms: expected names such as 'log,idf,unit', got {names!r}")
    names = listed
    for name in names:
        if name not in TRANSFORMS:
            raise ValueError(f"a transform must be one of {', '.join(TRANSFORMS)}, got {name!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"each transform can be given once, got {','.join(names)}")
    if "tfidf" in names and {"log", "idf"} & set(names):
        raise ValueError(
            f"tfidf is tf·ln(n/df) of the raw counts: give tfidf or log,idf, got {','.join(names)}"
        )
    return names


def fit_transforms(names: str | Iterable[str], X: np.ndarray | Sparse) -> Transforms:
    """Fits transforms on the training part.

    Each transform works on the result of the previous ones. See ``Transforms.apply`` for what X may be.

    Args:
        names: "log,idf,unit" or ("log", "idf", "unit"); the names are those of ``TRANSFORMS``.
        X: features of the training part, [n, d].

    Raises:
        ValueError: as in ``parse_transforms`` and ``Transforms.apply``.

    Example:
        >>> transforms = fit_transforms("log,unit", np.float32([[1.0, 0.0], [2.0, 1.0]]))
        >>> transforms.apply(np.float32([[1.0, 0.0]])).tolist()
        [[1.0, 0.0]]
    """
    names = parse_transforms(names)
    # A transform is applied here only if a later one has to be fitted.
    last = max((i for i, name in enumerate(names) if TRANSFORMS[name].arrays), default=-1)
    fitted: dict[str, np.ndarray] = {}
    if last >= 0:
        X = _floats(X, copy=last > 0)
    for position, name in enumerate(names[: last + 1]):
        fitted |= {f"{name}.{key}": array for key, array in TRANSFORMS[name].fit(X).items()}
        if position < last:
            X = Transforms(names, fitted)._apply_one(name, X)  # noqa: SLF001 - of this file
    return Transforms.from_arrays(names, fitted)


def _floats(X: np.ndarray | Sparse, *, copy: bool) -> Matrix:
    """Checked CSR without zeros, its rows sorted, or an array; float32 or float64.

    With `copy` the result may be overwritten; without, it may share its arrays with X.
    """
    X = _sparse.matrix(X)
    if X.ndim != 2:
        raise ValueError(f"X: expected a matrix [n, d], got {X.ndim} dimension(s)")
    place = place_not_finite(X)
    if place is not None:
        raise ValueError(f"X: expected finite features, got {place[2]} in row {place[0]}, column {place[1]}")
    dtype = X.dtype if X.dtype in (np.dtype(np.float32), np.dtype(np.float64)) else np.dtype(np.float32)
    if not sp.issparse(X):
        return np.array(X, dtype) if copy else X.astype(dtype, copy=False)
    if not copy:
        return _sparse.canonical_csr(X.astype(dtype, copy=False), zeros=False)
    csr = sp.csr_matrix(X, dtype=dtype, copy=True)
    csr.sum_duplicates()
    return _without_zeros(csr)


def _without_zeros(X: Matrix) -> Matrix:
    """X without explicit zeros, which are few where there are any."""
    if sp.issparse(X) and not X.data.all():
        X.eliminate_zeros()
    return X


def _blocks(rows: int, width: int = 1) -> Iterator[slice]:
    """Slices of rows of `width` numbers each; the rows of a slice are worked on together."""
    step = max(1, _BLOCK // max(1, width))
    return (slice(first, first + step) for first in range(0, rows, step))


def _values(X: Matrix) -> np.ndarray:
    return X.data if sp.issparse(X) else X


def _refuse_negative(name: str, X: Matrix) -> None:
    values = _values(X)
    if values.min(initial=0) >= 0:
        return
    place = first_place(X, values < 0)
    assert place is not None
    row, column, value = place
    raise ValueError(
        f"{name!r} is for values that are not negative, got {value} in row {row}, column {column} (from 0)"
    )
