"""Malformed matrices of every format, made of valid ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from jax.experimental import sparse as jax_sparse

ROWS, FEATURES, LABELS = 12, 30, 4


def features() -> sp.csr_matrix:
    """[12, 30], each row with three entries above 0."""
    rng = np.random.default_rng(0)
    columns = np.array([rng.choice(FEATURES, 3, replace=False) for _ in range(ROWS)])
    return _matrix(columns, rng.uniform(0.5, 2, ROWS * 3).astype(np.float32), FEATURES)


def labels() -> sp.csr_matrix:
    """[12, 4] of ones, each row with three labels."""
    columns = np.array([np.roll(np.arange(LABELS), i)[:3] for i in range(ROWS)])
    return _matrix(columns, np.ones(ROWS * 3, np.float32), LABELS)


def weights() -> sp.csr_matrix:
    """[4, 30], weights of each label."""
    return features()[:LABELS]


def classes() -> np.ndarray:
    return np.arange(ROWS) % LABELS


def _matrix(columns, values, width) -> sp.csr_matrix:
    columns = np.sort(columns, axis=1)
    indptr = np.arange(len(columns) + 1) * columns.shape[1]
    return sp.csr_matrix((values, columns.ravel(), indptr), shape=(len(columns), width))


def assert_same(matrix, expected):
    """The same arrays, which may be written to."""
    assert (matrix.shape, matrix.dtype) == (expected.shape, expected.dtype)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(matrix, part), getattr(expected, part))
        assert getattr(matrix, part).flags.writeable


# --- Malformed matrices: each takes a valid CSR matrix with three entries per row and returns another


def replaced(A, **arrays) -> Any:
    """A copy with other arrays, which no one has looked at."""
    A = A.copy()
    for name, array in arrays.items():
        setattr(A, name, array)
    return A


def _at(array: np.ndarray, place: int, value) -> np.ndarray:
    array = array.copy()
    array[place] = value
    return array


def _index(value, form: str = "csr") -> Callable[[Any], Any]:
    def make(A):
        A = A.asformat(form)
        end = A.shape[1 if form == "csr" else 0]
        return replaced(A, indices=_at(A.indices, 1, end if value == "end" else value))

    return make


def _offset(change: Callable[[np.ndarray], np.ndarray], form: str = "csr") -> Callable[[Any], Any]:
    def make(A):
        A = A.asformat(form)
        return replaced(A, indptr=change(A.indptr.copy()))

    return make


def _wrapped(kind) -> Callable[[Any], Any]:
    """Neighbours fall, and their differences do not, because they wrap around."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max

    def make(A):
        indptr = A.indptr.astype(kind)
        indptr[1:4] = high, low, -1
        return replaced(A, indptr=indptr)

    return make


def _places(
    axis: int, change: Callable[[np.ndarray], np.ndarray], form=sp.coo_matrix
) -> Callable[[Any], Any]:
    """Another array of rows (axis 0) or columns."""

    def make(A):
        A = form(A)
        coords = list(A.coords)
        coords[axis] = change(coords[axis])
        return replaced(A, coords=tuple(coords))

    return make


def _place(axis: int, value, form=sp.coo_matrix) -> Callable[[Any], Any]:
    return _places(axis, lambda places: _at(places, 2, value), form)


def _list(change: Callable[[Any], None]) -> Callable[[Any], Any]:
    def make(A):
        A = A.tolil()
        change(A)
        return A

    return make


def _key(key) -> Callable[[Any], Any]:
    def make(A):
        A = A.todok()
        A._dict[key] = A.dtype.type(1)
        return A

    return make


def _blocks(value) -> Callable[[Any], Any]:
    def make(A):
        A = A.tobsr((2, 2))
        return replaced(A, indices=_at(A.indices, 1, value))

    return make


def _fewer(A) -> Any:
    return replaced(A, indices=A.indices[:-1])


def _diagonal(**arrays) -> Callable[[Any], Any]:
    def make(A):
        A = A.todia()
        return replaced(A, **{name: change(getattr(A, name).copy()) for name, change in arrays.items()})

    return make


def _of_jax(value, kind=jax_sparse.BCOO) -> Callable[[Any], Any]:
    def make(A):
        X = kind.from_scipy_sparse(A)
        arrays = [np.asarray(X.data), _at(np.asarray(X.indices), 1, value)]
        return kind((*arrays, *([X.indptr] if isinstance(X, jax_sparse.BCSR) else [])), shape=X.shape)

    return make


MALFORMED: dict[str, Callable[[Any], Any]] = {
    "csr: an index of d": _index("end"),
    "csr: an index of -5": _index(-5),
    "csr: an index of 1e5": _index(10**5),
    "csr: an index of 1e9": _index(10**9),
    "csr array: an index of 1e9": lambda A: _index(10**9)(sp.csr_array(A)),
    "csr: float indices": lambda A: replaced(A, indices=A.indices.astype(np.float64)),
    "csr: float offsets": lambda A: replaced(A, indptr=A.indptr.astype(np.float64)),
    "csr: boolean indices": lambda A: replaced(A, indices=A.indices > 0),
    "csr: indices of two dimensions": lambda A: replaced(A, indices=A.indices[None]),
    "csr: indices of 64 bits, one of 2^40": lambda A: replaced(
        A, indices=_at(A.indices.astype(np.int64), 1, 2**40)
    ),
    "csr: indices of 64 bits, one that is 0 in 32": lambda A: replaced(
        A, indices=_at(A.indices.astype(np.int64), 1, 2**32)
    ),
    "csr: unsigned indices, one of 2^64 - 1": lambda A: replaced(
        A, indices=_at(A.indices.astype(np.uint64), 1, 2**64 - 1)
    ),
    "csr: fewer indices than values": lambda A: _fewer(A),
    "csr: fewer values than indices": lambda A: replaced(A, data=A.data[:-1]),
    "csr: offsets fall": _offset(lambda p: _at(p, 2, 1)),
    "csr: offsets below 0": _offset(lambda p: _at(p, 1, -3)),
    "csr: the first offset is not 0": _offset(lambda p: _at(p, 0, 1)),
    "csr: the last offset is beyond the values": _offset(lambda p: _at(p, -1, p[-1] + 7)),
    "csr: the last offset is 1e9": _offset(lambda p: _at(p, -1, 10**9)),
    "csr: an offset too few": _offset(lambda p: p[:-1]),
    "csr: an offset too many": _offset(lambda p: np.append(p, p[-1])),
    "csr: no offsets": _offset(lambda p: p[:0]),
    "csr: offsets wrap around in 8 bits": _wrapped(np.int8),
    "csr: offsets wrap around in 32 bits": _wrapped(np.int32),
    "csr: offsets wrap around in 64 bits": _wrapped(np.int64),
    "csr: values of text": lambda A: replaced(A, data=np.full(len(A.data), "a")),
    "csr: complex values": lambda A: replaced(A, data=A.data + 1j),
    "csr: objects as values": lambda A: replaced(A, data=A.data.astype(object)),
    "csr: masked values": lambda A: replaced(A, data=np.ma.masked_greater(A.data, 0.9)),
    "csr: masked indices": lambda A: replaced(A, indices=np.ma.masked_greater(A.indices, 1)),
    "csc: an index of n": _index("end", "csc"),
    "csc: an index of -1": _index(-1, "csc"),
    "csc: an index of 1e9": _index(10**9, "csc"),
    "csc array: an index of 1e9": lambda A: _index(10**9, "csc")(sp.csc_array(A)),
    "csc: offsets fall": _offset(lambda p: _at(p, 2, p[1] - 1), "csc"),
    "csc: the last offset is 1e9": _offset(lambda p: _at(p, -1, 10**9), "csc"),
    "coo: a row of n": lambda A: _place(0, A.shape[0])(A),
    "coo: a row of -1": _place(0, -1),
    "coo: a row of 1e9": _place(0, 10**9),
    "coo: a column of d": lambda A: _place(1, A.shape[1])(A),
    "coo: a column of -1": _place(1, -1),
    "coo: a column of 1e9": _place(1, 10**9),
    "coo: float rows": _places(0, lambda rows: rows.astype(np.float32)),
    "coo: fewer rows than values": _places(0, lambda rows: rows[:-1]),
    "coo array: a row of 1e9": _place(0, 10**9, sp.coo_array),
    "coo array: a row of -1": _place(0, -1, sp.coo_array),
    "bsr: an index of 1e9": _blocks(10**9),
    "bsr: an index of -1": _blocks(-1),
    "bsr: fewer indices than blocks": lambda A: replaced(
        A.tobsr((2, 2)), indices=A.tobsr((2, 2)).indices[:-1]
    ),
    "bsr: the last offset is 1e9": lambda A: _offset(lambda p: _at(p, -1, 10**9), "bsr")(A),
    "dia: an offset too many": _diagonal(offsets=lambda o: np.append(o, o[-1] + 1)),
    "dia: an offset of 1e9": _diagonal(offsets=lambda o: _at(o, 0, 10**9)),
    "dia: an offset twice": _diagonal(offsets=lambda o: _at(o, 0, o[1])),
    "dia: float offsets": _diagonal(offsets=lambda o: o.astype(np.float64)),
    "lil: a column of 1e9": _list(lambda A: A.rows[1].__setitem__(0, 10**9)),
    "lil: a column of -1": _list(lambda A: A.rows[1].__setitem__(0, -1)),
    "lil: a column of 0.5": _list(lambda A: A.rows[1].__setitem__(0, 0.5)),
    "lil: more columns than values": _list(lambda A: A.rows[1].append(0)),
    "lil: a row of text": _list(lambda A: A.rows.__setitem__(1, "ab")),
    "lil: a value of None": _list(lambda A: A.data[1].__setitem__(0, None)),
    "lil: a number as text": _list(lambda A: A.data[1].__setitem__(0, "1.5")),
    "lil: a value of text": _list(lambda A: A.data[1].__setitem__(0, "ab")),
    "dok: a row of 1e9": _key((10**9, 0)),
    "dok: a column of -1": _key((0, -1)),
    "dok: a key of three": _key((0, 0, 0)),
    "BCOO: a column of -1": _of_jax((0, -1)),
    "BCOO: a row of 1e9": _of_jax((10**9, 0)),
    "BCSR: an index of 1e9": _of_jax(10**9, jax_sparse.BCSR),
    "BCOO with a batch dimension": lambda A: jax_sparse.BCOO.fromdense(A.toarray(), n_batch=1),
}
