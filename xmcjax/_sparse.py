"""The one check of matrices, which stands before every conversion and every native call.

scipy and the C++ kernels follow the indices of a matrix without looking where they lead. scipy itself checks
a matrix in part when it is made, and not at all when its arrays are changed afterwards. So every matrix that
comes from outside (`X`, `y`, weights; from a caller, a file or another process) passes :func:`csr` first, and
only what it returns is converted, multiplied, cut into rows or given to native code.

What is promised: a matrix that is malformed when a function is called is refused with a sentence, and no
memory is read or written through it. The check is made in every call anew, because a caller may change a
matrix between two calls; nothing is remembered of the caller's own object. :func:`csr` returns a new object
with the caller's arrays, marked as checked, and that object stays inside the library, where it is checked no
more. A matrix must not be changed by another thread while a call runs: that is not noticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from xmcjax._index_faults import Fault, compressed_fault, first_outside

Sparse: TypeAlias = "sp.sparray | sp.spmatrix"
_MARK = "_xmcjax_checked"
# Numbers of an array that are looked at together.
_PART = 1 << 20


def csr(X, name: str = "X") -> Any:
    """A sparse matrix of any format as CSR whose indices may be followed; the argument is left as it is.

    Args:
        X: a matrix of scipy.sparse, or a BCOO or BCSR of ``jax.experimental.sparse`` without batch and dense
            dimensions, whose padding is dropped.
        name: of the argument, for the sentence.

    Returns:
        CSR, an array or a matrix of scipy as X is, with index arrays of one type. Its rows may be unsorted
        and hold a column more than once; arrays are shared with X where that is possible.

    Raises:
        TypeError: X is no sparse matrix, or one of values that are no real numbers.
        ValueError: X has another number of dimensions than two, or is malformed; where and how.
    """
    if _is_checked(X) and X.format == "csr":
        return X
    X = _of_scipy(X, name)
    shape = _shape(X, name)
    make = sp.csr_array if isinstance(X, sp.sparray) else sp.csr_matrix
    match X.format:
        case "csr":
            matrix = make(_compressed(X, name, shape[0], shape[1], "row"), shape=shape)
        case "csc":
            parts = _compressed(X, name, shape[1], shape[0], "column")
            matrix = make(sp.csc_array(parts, shape=shape))
        case "bsr":
            matrix = make(_blocks(X, name, shape))
        case "coo":
            matrix = make(_entries(X.data, X.coords, name, shape))
        case "dia":
            matrix = make(_diagonals(X, name, shape))
        case "lil":
            matrix = make(_lists(X, name, shape))
        case "dok":
            matrix = make(_keys(X, name, shape))
        case other:
            raise TypeError(f"{name}: expected a format of scipy.sparse, found {other!r}")
    return _passed(matrix)


def csc(X, name: str = "X") -> Any:
    """As :func:`csr`, as CSC."""
    if _is_checked(X) and X.format == "csc":
        return X
    if not (sp.issparse(X) and X.format == "csc"):
        return _passed(sp.csc_array(csr(X, name)))
    rows, columns = shape = _shape(X, name)
    return _passed(sp.csc_array(_compressed(X, name, columns, rows, "column"), shape=shape))


def canonical_csr(X, name: str = "X", *, zeros: bool = True) -> Any:
    """As :func:`csr`, with the columns of a row ascending and none twice; entries of one place are added up.

    Where there are such entries, small whole numbers become float64; of truth values the sum is their "or".

    Args:
        X, name: as there.
        zeros: whether stored zeros are kept.
    """
    X = csr(X, name)
    if X.has_canonical_format and (zeros or X.data.all()):
        return X
    X = X.copy()
    X.sort_indices()
    if not X.has_canonical_format:
        if X.dtype.kind in "iu" and X.dtype.itemsize < 8:  # in which a sum may wrap around
            X = X.astype(np.float64)
        X.sum_duplicates()
    if not zeros:
        X.eliminate_zeros()
    return _passed(X)


def of_dense(X: np.ndarray, dtype=None) -> Any:
    """An array [n, d] as CSR without zeros, made some rows at a time, so that only the result takes memory.

    Args:
        X: real numbers.
        dtype: of the values; None keeps that of X.
    """
    n, d = X.shape
    rows = max(1, _PART // max(1, d))
    parts = [slice(start, min(start + rows, n)) for start in range(0, n, rows)]
    indptr = np.zeros(n + 1, np.int64)
    for part in parts:
        indptr[1:][part] = d if X[part].all() else np.count_nonzero(X[part] != 0, axis=1)
    np.cumsum(indptr, out=indptr)
    index = index_type(n, d, int(indptr[-1]))
    indices, values = np.empty(indptr[-1], index), np.empty(indptr[-1], X.dtype if dtype is None else dtype)
    for part in parts:
        entries = slice(indptr[part.start], indptr[part.stop])
        full = entries.stop - entries.start == X[part].size  # as most are: a fifth of the time
        filled = slice(None) if full else np.flatnonzero(X[part] != 0)
        indices[entries] = np.tile(np.arange(d, dtype=index), len(X[part])) if full else filled % d
        values[entries] = X[part].ravel()[filled]
    matrix = sp.csr_array((values, indices, indptr.astype(index)), shape=(n, d))
    matrix.has_canonical_format = True
    return _passed(matrix)


def stacked(rows: Sequence[tuple[np.ndarray, np.ndarray]], columns: int) -> Any:
    """CSR of trusted rows, at least one, each of its ascending columns and its values."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(indices) for indices, _ in rows], out=indptr[1:])
    index = index_type(int(indptr[-1]), columns)
    indices = np.concatenate([indices for indices, _ in rows], dtype=index, casting="same_kind")
    values = np.concatenate([values for _, values in rows])
    return sp.csr_array((values, indices, indptr.astype(index)), shape=(len(rows), columns))


def rows_of(X, rows: slice) -> Any:
    """Rows side by side, of checked CSR as such, or of an array; they have parts of the arrays of X.

    Args:
        X: the matrix.
        rows: from the first to before the last, in steps of 1.
    """
    if not sp.issparse(X):
        return X[rows]
    require_checked(X)
    first, last, _ = rows.indices(X.shape[0])
    if (first, last) == (0, X.shape[0]):
        return X
    indptr = X.indptr[first : max(first, last) + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    part = sp.csr_array((len(indptr) - 1, X.shape[1]), dtype=X.dtype)
    # scipy would copy what is the smaller part of an array
    part.data, part.indices, part.indptr = X.data[entries], X.indices[entries], indptr - indptr[0]
    return _passed(part)


def trusted_csr(make: type, parts: tuple[np.ndarray, ...], shape: tuple[int, int]) -> Any:
    """CSR of (data, indices, indptr) that were made of a checked matrix and are in range.

    Args:
        make: ``csr_array`` or ``csr_matrix``.
        parts, shape: of it.
    """
    return _passed(make(parts, shape=shape))


def require_checked(X) -> None:
    """Raises TypeError where X does not come from :func:`csr`: the last door before native code."""
    if not _is_checked(X):
        raise TypeError(f"expected a matrix that was checked, found {type(X).__name__}")


def is_sparse(X) -> bool:
    """Whether X is for :func:`csr`: a matrix of scipy.sparse or of ``jax.experimental.sparse``."""
    return sp.issparse(X) or _is_of_jax(X)


def array(X, name: str) -> np.ndarray:
    """An array of anything, as :func:`widened` makes it.

    Raises:
        TypeError: a masked array, or one that JAX traces.
        ValueError: rows of different length.
    """
    refuse_masked(X, name)
    try:
        return widened(np.asarray(X))
    except ValueError as error:
        raise ValueError(f"{name}: expected rows of one length, found a ragged list ({error})") from None
    except TypeError as error:
        if type(error).__name__ != "TracerArrayConversionError":  # of JAX, which is not imported here
            raise
        raise traced(name) from None


def traced(name: str) -> TypeError:
    """The error of an argument that JAX traces where its numbers are looked at."""
    return TypeError(
        f"{name}: expected numbers, found an array that JAX traces: make what takes it outside of jit, "
        "vmap and grad"
    )


def widened(array: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 and the smaller types of JAX, which NumPy does not take for numbers."""
    return array.astype(np.float32) if array.dtype.isbuiltin == 2 and "float" in array.dtype.name else array


def in_byte_order(array: Any) -> Any:
    """An array of NumPy in the byte order of this machine; anything else as it is, a list with its arrays.

    JAX takes the bytes of an array for numbers of its own order.
    """
    if isinstance(array, (list, tuple)):
        return [in_byte_order(part) for part in array]
    other = isinstance(array, np.ndarray) and not array.dtype.isnative
    return array.astype(array.dtype.newbyteorder("=")) if other else array


def dense(X, name: str = "X") -> np.ndarray:
    """An array of real numbers, in the byte order of this machine.

    Raises:
        TypeError: a masked array, a sparse matrix, or values that are no real numbers.
        ValueError: rows of different length.
    """
    refuse_no_array(X, name)
    return _real(X, name, "an array")


def refuse_no_array(X, name: str) -> None:
    """TypeError where X is a sparse matrix or None."""
    if is_sparse(X):
        raise no_numbers(name, f"a sparse matrix ({type(X).__name__})", "a dense array")
    if X is None:
        raise no_numbers(name, "NoneType", "an array")


def _real(X, name: str, expected: str) -> np.ndarray:
    found = array(X, name)
    if found.dtype.kind not in "biuf":
        what = type(X).__name__ if found.ndim == 0 else f"values of type {found.dtype}"
        raise no_numbers(name, what, expected)
    return found.astype(_computed(found.dtype), copy=False)


def no_numbers(name: str, found: str, expected: str = "an array or a sparse matrix") -> TypeError:
    """The error of an argument that holds no real numbers."""
    return TypeError(f"{name}: expected {expected} of real numbers, found {found}")


def numbers(X, name: str) -> np.ndarray:
    """An array of real numbers as float64, such as weights; errors as :func:`dense`."""
    return dense(X, name).astype(np.float64, copy=False)


def matrix(X, name: str = "X") -> Any:
    """Checked CSR of a sparse X, else an array."""
    return csr(X, name) if is_sparse(X) else _real(X, name, "an array or a sparse matrix")


def refuse_masked(X, name: str) -> None:
    """TypeError where X is a masked array: what is behind its mask would be taken for data."""
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: expected an array without a mask, found a masked array: give {name}.filled(value)"
        )


def _compressed(X, name: str, major: int, minor: int, line: str) -> tuple[np.ndarray, ...]:
    """(data, indices, indptr), without what stands behind the last line."""
    data = _numbers(X.data, name)
    indices, indptr = _array(X.indices, name, "indices"), _array(X.indptr, name, "indptr")
    _raise(name, X.format, compressed_fault(indptr, indices, len(data), major, minor, line))
    entries = int(indptr[-1])
    index = index_type(major, minor, entries)
    return data[:entries], indices[:entries].astype(index, copy=False), indptr.astype(index, copy=False)


def _blocks(X, name: str, shape: tuple[int, int]) -> Any:
    """BSR: compressed rows of blocks [blocks, R, C]."""
    data = _numbers(X.data, name, 3)
    size = data.shape[1:]
    if min(size) < 1 or shape[0] % size[0] or shape[1] % size[1]:
        raise ValueError(f"{name}: expected blocks that divide {list(shape)}, found blocks of {list(size)}")
    indices, indptr = _array(X.indices, name, "indices"), _array(X.indptr, name, "indptr")
    major, minor = shape[0] // size[0], shape[1] // size[1]
    _raise(name, X.format, compressed_fault(indptr, indices, len(data), major, minor, "block row"))
    entries = int(indptr[-1])
    index = index_type(*shape, entries * size[0] * size[1])
    parts = (data[:entries], indices[:entries].astype(index), indptr.astype(index))
    return sp.bsr_array(parts, shape=shape)


def _entries(data, places, name: str, shape: tuple[int, int]) -> Any:
    """CSR of values at (row, column), columns ascending; those of one place stay apart, as CSR has them."""
    data = _numbers(data, name)
    index = index_type(*shape, len(data))
    checked = []
    for what, array, size in zip(("rows", "columns"), places, shape, strict=True):
        array = _array(array, name, what)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            fault = Fault(f"{what} of whole numbers in one dimension", f"{array.dtype} {list(array.shape)}")
        elif len(array) != len(data):
            fault = Fault(f"as many {what} as values, {len(data)}", str(len(array)))
        elif (at := first_outside(array, size)) is not None:
            fault = Fault(f"{what} from 0 to {size - 1}", f"{array[at]} at entry {at}")
        else:
            fault = None
        _raise(name, "coo", fault)
        checked.append(array.astype(index, copy=False))
    found = sp.coo_array((data, tuple(checked)), shape=shape)
    found.has_canonical_format = True  # or scipy would add up in the type of the values
    matrix = sp.csr_array(found)
    matrix.sort_indices()
    return matrix


def _diagonals(X, name: str, shape: tuple[int, int]) -> Any:
    """DIA: the row i of the values [k, length] is diagonal offsets[i]."""
    data, offsets = _numbers(X.data, name, 2), _array(X.offsets, name, "offsets")
    fault = None
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
        fault = Fault("offsets of whole numbers in one dimension", f"{offsets.dtype} {list(offsets.shape)}")
    elif len(offsets) != len(data):
        fault = Fault(f"as many offsets as diagonals, {len(data)}", str(len(offsets)))
    elif len(np.unique(offsets)) < len(offsets):
        fault = Fault("each diagonal once", "an offset that stands twice")
    elif ((offsets <= -shape[0]) | (offsets >= shape[1])).any() and len(offsets):
        outside = offsets[(offsets <= -shape[0]) | (offsets >= shape[1])][0]
        fault = Fault(f"offsets from {1 - shape[0]} to {shape[1] - 1}", str(outside))
    _raise(name, "dia", fault)
    return sp.dia_array((data, offsets.astype(np.int64)), shape=shape)


def _lists(X, name: str, shape: tuple[int, int]) -> Any:
    """LIL: a list of columns and one of values for each row."""
    columns, values = np.asarray(X.rows), np.asarray(X.data)
    fault = None
    for what, lists in (("rows", columns), ("data", values)):
        if lists.shape != shape[:1] or not all(isinstance(row, list) for row in lists):
            fault = Fault(f"{shape[0]} lists in {what}", f"{lists.dtype} {list(lists.shape)} of others")
    _raise(name, "lil", fault)
    lengths = [len(row) for row in columns]
    for i, (length, row) in enumerate(zip(lengths, values, strict=True)):
        if length != len(row):
            _raise(
                name,
                "lil",
                Fault("as many columns as values in each row", f"{length}, {len(row)} in row {i}"),
            )
    column = _whole(list(itertools.chain.from_iterable(columns)), name, "rows")
    data = _values(itertools.chain.from_iterable(values), X.dtype, name)
    return _entries(data, (np.repeat(np.arange(shape[0]), lengths), column), name, shape)


def _keys(X, name: str, shape: tuple[int, int]) -> Any:
    """DOK: a dictionary of values by (row, column)."""
    keys = list(X.keys())
    if not all(isinstance(key, tuple) and len(key) == 2 for key in keys):
        _raise(name, "dok", Fault("pairs of a row and a column as keys", "others"))
    places = (_whole([key[axis] for key in keys], name, "keys") for axis in range(2))
    return _entries(_values(X.values(), X.dtype, name), tuple(places), name, shape)


def _whole(numbers: list, name: str, what: str) -> np.ndarray:
    """A list as an array; whole numbers where there are none."""
    return _array(numbers, name, what) if numbers else np.zeros(0, np.int64)


def _values(values: Iterable, dtype, name: str) -> np.ndarray:
    values = list(values)
    for value in values:  # NumPy makes NaN of None, and numbers of texts
        if not isinstance(value, int | float | complex | np.number | np.bool_):
            raise TypeError(f"{name}: expected numbers of {dtype}, found {value!r}")
    try:
        return np.fromiter(values, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name}: expected numbers of {dtype}, found another value ({error})") from None


def _array(array, name: str, what: str) -> np.ndarray:
    refuse_masked(array, f"{name}.{what}")
    try:
        return np.asarray(array)
    except ValueError as error:
        raise ValueError(f"{name}: expected {what} as an array, found a ragged list ({error})") from None


def _numbers(data, name: str, ndim: int = 1) -> np.ndarray:
    """The values of a matrix, of a type that scipy computes with."""
    data = widened(_array(data, name, "data"))
    if data.dtype.kind not in "biuf":
        raise TypeError(f"{name}: expected a matrix of real numbers, found values of type {data.dtype}")
    if data.ndim != ndim:
        raise ValueError(f"{name}: expected values in {ndim} dimension(s), found shape {list(data.shape)}")
    return data.astype(_computed(data.dtype), copy=False)


def _computed(dtype: np.dtype) -> np.dtype:
    """What scipy computes with: it has no halves, and takes no byte order of another machine."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")


def _shape(X, name: str) -> tuple[int, int]:
    if X.ndim != 2:
        raise ValueError(f"{name}: expected a matrix of two dimensions, found {X.ndim}")
    rows, columns = (int(size) for size in X.shape)
    if rows < 0 or columns < 0:
        raise ValueError(f"{name}: expected sizes of at least 0, found shape {[rows, columns]}")
    return rows, columns


def index_type(*sizes: int) -> type[np.signedinteger]:
    """The type of indices that reach such sizes."""
    return np.int32 if max(sizes) <= np.iinfo(np.int32).max else np.int64


def _raise(name: str, form: str, fault: Fault | None) -> None:
    if fault is not None:
        raise ValueError(
            f"{name}: expected {fault.expected}, found {fault.found} (a malformed {form} matrix)"
        )


def _is_of_jax(X) -> bool:
    # without an import of JAX: who has such a matrix has imported it
    return type(X).__module__.startswith("jax.experimental.sparse") and hasattr(X, "todense")


def _of_scipy(X, name: str) -> Any:
    """X itself, or a matrix of JAX with its arrays; its indices are not followed."""
    if sp.issparse(X):
        return X
    if not _is_of_jax(X):
        raise TypeError(f"{name}: expected a sparse matrix, found {type(X).__name__}")
    kind = type(X).__name__
    if kind not in ("BCOO", "BCSR") or X.n_batch or X.n_dense or X.ndim != 2:
        raise TypeError(
            f"{name}: expected a BCOO or BCSR matrix without batch and dense dimensions, "
            f"found {kind} of shape {list(X.shape)}"
        )
    data, indices = np.asarray(X.data), np.asarray(X.indices)
    if kind == "BCOO":
        # an index that is equal to the size fills up: so JAX pads
        real = (indices != np.array(X.shape)).all(axis=1)
        return _entries(data[real], tuple(indices[real].T), name, _shape(X, name))
    indptr = np.asarray(X.indptr)
    matrix = sp.csr_array(_shape(X, name), dtype=data.dtype if data.dtype != np.float16 else np.float32)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


def _passed(matrix) -> Any:
    """Says that the matrix was checked, for as long as it has these arrays."""
    setattr(matrix, _MARK, (matrix.indptr, matrix.indices, matrix.shape, len(matrix.data)))
    return matrix


def _is_checked(X) -> bool:
    mark = getattr(X, _MARK, None)
    if mark is None:
        return False
    indptr, indices, shape, entries = mark
    return X.indptr is indptr and X.indices is indices and X.shape == shape and len(X.data) == entries
