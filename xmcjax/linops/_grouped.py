"""Sparse features in the form that a GPU multiplies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import native
from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax._settings import settings_here
from xmcjax.linops._base import LinOp, SparseProducts
from xmcjax.linops._checks import canonical_csr, check_arrays
from xmcjax.linops._csr import CHUNK, Csr

# Entries of a row that are read at once; a row is filled up to a multiple of them.
GROUP = 8
# Groups that one program of a kernel adds up. A longer row is summed in pieces, which are then added up.
PIECE = 64
# For the kernels in CUDA a piece of a column has fewer than PIECE groups, but at least SHORTEST, where X has
# too few entries for PIECES pieces: a warp adds up a piece one tile after the other, which takes long.
SHORTEST, PIECES = 16, 1 << 12


@pytree(
    data_fields=["value", "index", "start", "stop", "row", "long", "more", "sums"],
    meta_fields=["shape"],
)
@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a sparse matrix A [m, p], in groups of entries and in pieces of groups.

    Groups are counted, not entries, so that 2^34 entries have numbers of 32 bits.

    Attributes:
        value: [groups, 8], filled up with zeros.
        index: int32 [groups, 8], the columns.
        start, stop: int32 [pieces], the groups of a piece. Piece i < m begins row i; the further pieces
            of long rows follow, those of one row after the other.
        row: int32 [pieces].
        long: int32 [k], the rows of several pieces, ascending.
        more: int32 [k + 1], where the further pieces of each of them begin, counted from m.
        sums: [k, pieces], which adds up their pieces; None where all rows are short.
        shape: (m, p).
    """

    value: jax.Array
    index: jax.Array
    start: jax.Array
    stop: jax.Array
    row: jax.Array
    long: jax.Array
    more: jax.Array
    sums: Rows | None
    shape: tuple[int, int]

    @classmethod
    def of(cls, X: sp.csr_array | sp.csr_matrix, piece: int = PIECE) -> Rows:
        """The rows of a CSR matrix whose rows are sorted; `piece` is the number of groups in a piece."""
        return jax.tree.map(jax.device_put, cls.on_host(X, piece))

    @classmethod
    def on_host(cls, X: sp.csr_array | sp.csr_matrix, piece: int = PIECE) -> Rows:
        """The rows as :meth:`of` gives them, in arrays of NumPy."""
        m = X.shape[0]
        counts = np.diff(X.indptr).astype(np.int64)
        groups = -(-counts // GROUP)
        first = np.concatenate([[0], np.cumsum(groups)])
        if first[-1] > np.iinfo(np.int32).max:
            raise ValueError(f"expected at most 2^31-1 groups of {GROUP} entries, got {first[-1]}")
        # A kernel is never given an array of no entries.
        value = np.zeros(max(first[-1], 1) * GROUP, X.dtype)
        index = np.zeros(len(value), np.int32)
        place = np.arange(X.nnz) + np.repeat(first[:-1] * GROUP - X.indptr[:-1], counts)
        value[place], index[place] = X.data, X.indices
        further = np.maximum(-(-groups // piece) - 1, 0)
        row = np.repeat(np.arange(m), further)
        number = np.arange(len(row)) - np.repeat(np.cumsum(further) - further, further) + 1
        start = np.concatenate([first[:-1], first[row] + number * piece])
        row = np.concatenate([np.arange(m), row])
        stop = np.minimum(start + piece, first[row + 1])
        long = np.flatnonzero(further)
        more = np.concatenate([[0], np.cumsum(further[long])])
        sums = None
        if len(long):
            # the pieces of each long row: the first, and the further ones, which are consecutive
            indptr = np.concatenate([[0], np.cumsum(further[long] + 1)])
            pieces = np.empty(indptr[-1], np.int64)
            begins = indptr[:-1]
            pieces[begins] = long
            pieces[np.setdiff1d(np.arange(len(pieces)), begins)] = np.arange(m, len(row))
            ones = np.ones(len(pieces), X.dtype)
            sums = cls.on_host(sp.csr_array((ones, pieces, indptr), shape=(len(long), len(row))), piece)
        of_groups = (a.reshape(-1, GROUP) for a in (value, index))
        arrays: list[Any] = [*of_groups, *(a.astype(np.int32) for a in (start, stop, row, long, more))]
        return cls(*arrays, sums=sums, shape=(m, X.shape[1]))

    def filled_up(self, groups: int, pieces: int, long: int) -> Rows:
        """The same rows, on the host, in arrays of these lengths, for the kernels in CUDA."""

        def filled(name: str, length: int, fill: Any = 0) -> Any:
            a = np.asarray(getattr(self, name))
            longer = np.full((length, *a.shape[1:]), fill, a.dtype)
            longer[: len(a)] = a
            return longer

        arrays = {name: filled(name, groups) for name in ("value", "index")}
        arrays |= {name: filled(name, pieces) for name in ("start", "stop", "row")}
        # rows without further pieces
        arrays |= {"long": filled("long", long), "more": filled("more", long + 1, self.more[-1])}
        return dataclasses.replace(self, **arrays, sums=None)

    @property
    def cuda(self) -> native.CudaRows:
        """What the kernels in CUDA take."""
        return native.CudaRows(self.value, self.index, self.start, self.stop, self.row, self.long, self.more)


@functools.partial(methods_need_threads_of_jax, but=("take_rows", "to_scipy"))
@pytree(
    data_fields=["rows", "columns"],
    meta_fields=["shape", "kernels"],
)
@dataclasses.dataclass(frozen=True)
class Grouped(SparseProducts):
    """X and Xᵀ as ``Rows``, for kernels that a GPU runs; made by :func:`xmcjax.linops.make`.

    Each product has one program, or warp, for a piece of a row and a tile of lanes, and no two of them write
    to the same place: each sum is computed in one fixed order. Xᵀ C and Xᵀ(D ∘ (X V)) skip
    rows in whose tile of lanes C is zero, or D in the lanes where V is not.

    Attributes:
        rows, columns: of X and of Xᵀ.
        shape: (n, d).
        kernels: "cuda", those of the package xmcjax-cuda; "triton", those of ``_spmm.py``, which this JAX
            compiles; "interpreted", the same, interpreted on devices that cannot run them.

    Example:
        >>> from xmcjax import linops
        >>> op = linops.make(sp.csr_array(np.float32([[1, 0], [2, 3]])), backend="gpu")
        >>> type(op).__name__, op.matmat(np.float32([[1], [1]])).tolist()
        ('Grouped', [[1.0], [5.0]])
    """

    rows: Rows
    columns: Rows
    shape: tuple[int, int]
    kernels: str

    def __reduce__(self):
        # what was pickled on a machine with a GPU may be read on one without
        return _read, (self.to_scipy(), self.kernels)

    @property
    def interpret(self) -> bool:
        """Whether the kernels are interpreted."""
        return self.kernels == "interpreted"

    @property
    def dtype(self):
        return self.rows.value.dtype

    @property
    def entries(self) -> int:
        """Numbers of X that a product reads."""
        return self.rows.value.size

    values_vary = False  # the values are stored twice, in rows and in columns

    @property
    def _in_plain_jax(self) -> bool:
        return False

    def _matmat(self, V: jax.Array, square: bool = False) -> jax.Array:
        if self.kernels == "cuda":
            return native.cuda_matmat(self.rows.cuda, V, self.shape[0], square=square)
        from xmcjax.linops import _spmm

        T = _spmm.tile(V.shape[1], _spmm.FULL)
        full = _spmm.product(self.rows, _spmm.padded(V, T), T, interpret=self.interpret, square=square)
        return full[:, : V.shape[1]]

    def _rmatmat(self, C: jax.Array, square: bool = False) -> jax.Array:
        if self.kernels == "cuda":
            return native.cuda_rmatmat(self.columns.cuda, C, self.shape[1], square=square)
        from xmcjax.linops import _spmm

        T = _spmm.tile(C.shape[1], _spmm.SKIPPING)
        wide = _spmm.padded(C, T)
        full = _spmm.product(
            self.columns,
            wide,
            T,
            interpret=self.interpret,
            of_entries=_spmm.nonzero_tiles(wide, T),
            square=square,
        )
        return full[:, : C.shape[1]]

    def _gram_matmat(self, D: jax.Array, V: jax.Array) -> jax.Array:
        if self.kernels == "cuda":
            return native.cuda_gram_matmat(self.rows.cuda, self.columns.cuda, D, V)
        from xmcjax.linops import _spmm

        lanes, T = V.shape[1], _spmm.tile(V.shape[1], _spmm.SKIPPING)
        D, V = _spmm.padded(D, T), _spmm.padded(V, T)
        # a lane whose V is zero, such as that of a solved system, needs no row
        active = _spmm.nonzero_tiles((D != 0) & jnp.any(V != 0, axis=0), T)
        # D ∘ (X V)
        scores = _spmm.product(self.rows, V, T, interpret=self.interpret, scale=D, of_rows=active)
        full = _spmm.product(self.columns, scores, T, interpret=self.interpret, of_entries=active)
        return full[:, :lanes]

    def squared_rmatmat(self, D: jax.Array) -> jax.Array:
        check_arrays(self, "squared_rmatmat", D=D)
        return self._differentiable("_squared_rmatmat", D)

    def _squared_rmatmat(self, D: jax.Array) -> jax.Array:
        return self._rmatmat(D, square=True)

    def row_norms2(self) -> jax.Array:
        return self._differentiable("_row_norms2")

    def _row_norms2(self) -> jax.Array:
        return self._matmat(jnp.ones((self.shape[1], 1), self.dtype), square=True)[:, 0]

    def take_rows(self, rows) -> Grouped:
        return from_scipy(self.to_scipy()[np.asarray(rows)], kernels=self.kernels)

    def in_jax(self) -> Csr:
        """The same matrix with products in plain JAX, which can be differentiated in what they multiply."""
        groups, n = self.rows.value.shape[0], self.shape[0]
        # among rows that begin at the same group, only the last has entries
        row = jnp.searchsorted(self.rows.start[:n], jnp.arange(groups, dtype=jnp.int32), side="right") - 1
        row = jnp.broadcast_to(row.astype(jnp.int32)[:, None], (groups, GROUP))
        size = min(CHUNK // GROUP, groups)

        def chunked(a):
            return jnp.pad(a, ((0, -groups % size), (0, 0))).reshape(-1, size * GROUP)

        value, column, row = (chunked(a) for a in (self.rows.value, self.rows.index, row))
        return Csr(value, column, None, row, self.shape, False, 1)

    def to_scipy(self) -> sp.csr_matrix:
        """The matrix as scipy.sparse CSR on the host."""
        n = self.shape[0]
        first, stop = np.asarray(self.rows.start)[:n], np.asarray(self.rows.stop)
        groups = np.diff(first, append=stop.max(initial=0))
        row = np.repeat(np.arange(n), groups * GROUP)
        value, index = (np.asarray(a).ravel()[: len(row)] for a in (self.rows.value, self.rows.index))
        kept = value != 0
        return sp.csr_matrix((value[kept], (row[kept], index[kept])), shape=self.shape)


def from_scipy(X, *, kernels: str) -> Grouped:
    """The operator of a scipy.sparse matrix whose values have the dtype wanted."""
    X = canonical_csr(X)
    piece = of_columns(X.nnz) if kernels == "cuda" else PIECE
    here = settings_here()

    def transposed() -> Rows:
        with here(None):
            return Rows.of(X.T.tocsr(), piece)

    with ThreadPoolExecutor(1, "xmcjax-columns") as beside:
        columns = beside.submit(transposed)
        rows = Rows.of(X)
    return Grouped(rows, columns.result(), X.shape, kernels)


def of_columns(entries: int) -> int:
    """Groups per piece of a column, for X with so many entries."""
    return min(max(1 << (entries // (GROUP * PIECES)).bit_length(), SHORTEST), PIECE)


def _read(X, kernels: str) -> LinOp:
    """The operator of a pickle, by the kernels that this machine has; interpreted ones are everywhere."""
    from xmcjax import linops

    backend = "gpu" if kernels == "interpreted" else linops.products_backend(X)
    return linops.make(X, X.dtype, backend=backend)


@methods_need_threads_of_jax
@pytree(data_fields=["rows"], meta_fields=["shape"])
@dataclasses.dataclass(frozen=True)
class ScoredRows:
    """Rows of X for scores X W alone, by the kernels in CUDA; made by :func:`scored_rows`."""

    rows: Rows
    shape: tuple[int, int]

    def matmat(self, V: jax.Array) -> jax.Array:
        """X V, [n, B]."""
        return native.cuda_matmat(self.rows.cuda, V, self.shape[0])


def scored_rows(blocks: Sequence, height: int) -> list[ScoredRows]:
    """Operators of matrices of at most `height` rows, filled up to that, with arrays of the same shapes.

    A program that takes one of them is compiled once for all.
    """
    rows = [_rows_of_height(X, height) for X in blocks]
    lengths = [max(len(getattr(r, name)) for r in rows) for name in ("value", "start", "long")]
    return [ScoredRows(jax.tree.map(jax.device_put, r.filled_up(*lengths)), r.shape) for r in rows]


def _rows_of_height(X, height: int) -> Rows:
    """The rows of X on the host, with empty rows behind them."""
    X = canonical_csr(X)
    indptr = np.pad(X.indptr, (0, height - X.shape[0]), "edge")
    return Rows.on_host(sp.csr_array((X.data, X.indices, indptr), shape=(height, X.shape[1])))
