"""The product of a sparse matrix with lanes as a GPU kernel, written in Pallas.

This module is imported only where a product is computed, because importing Pallas takes a while.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from xmcjax.native import varying_results

if TYPE_CHECKING:
    from xmcjax.linops._grouped import Rows

# Lanes of one program, which one warp holds. FULL, for a full product: four lanes per thread, so that an
# entry of the matrix is a load of 16 bytes per thread. SKIPPING, for a product that skips zeros: the
# 128 bytes that the memory delivers at once.
FULL, SKIPPING = 128, 32


def tile(lanes: int, most: int) -> int:
    """Lanes of one program: a power of two of at most `most`."""
    return min(most, 1 << max(lanes - 1, 0).bit_length())


def padded(V: jax.Array, T: int) -> jax.Array:
    """V filled up with zero lanes to a multiple of T."""
    return jnp.pad(V, ((0, 0), (0, -V.shape[1] % T)))


def nonzero_tiles(C: jax.Array, T: int) -> jax.Array:
    """Which rows of C [n, B], numbers or bool, have an entry in each tile of lanes: int8 [B / T, n]."""
    nonzero = C if C.dtype == bool else C != 0
    return jnp.any(nonzero.reshape(C.shape[0], C.shape[1] // T, T), axis=2).astype(jnp.int8).T


def product(
    rows: Rows,
    V: jax.Array,
    T: int,
    *,
    interpret: bool,
    scale: jax.Array | None = None,
    of_rows: jax.Array | None = None,
    of_entries: jax.Array | None = None,
    square: bool = False,
) -> jax.Array:
    """S ∘ (A V), [m, B], of A [m, p] and V [p, B] with B a multiple of T.

    Args:
        rows: A.
        V: the lanes.
        T: lanes of a program.
        interpret: whether the kernel is interpreted, which any device can do.
        scale: S, [m, B]; None for ones.
        of_rows: int8 [B / T, m]; where 0, the row is not computed for these lanes and the result is 0.
        of_entries: int8 [B / T, p]; where 0, V is known to be 0 there and is not read.
        square: whether the entries of A are squared.
    """
    m, lanes = rows.shape[0], V.shape[1]
    if 0 in (m, lanes, V.shape[0]):  # with no row of V there are no entries
        return jnp.zeros((m, lanes), V.dtype)
    out = _pieces(rows, V, T, interpret, scale, of_rows, of_entries, square)
    if rows.sums is None:
        return out
    long = product(rows.sums, out, T, interpret=interpret)
    return out[:m].at[rows.long].set(long, unique_indices=True, indices_are_sorted=True)


def _pieces(rows, V, T, interpret, scale, of_rows, of_entries, square):
    """The sums of all pieces of rows, [pieces, B]."""
    operands = {
        "start": rows.start,
        "stop": rows.stop,
        "index": rows.index,
        "value": rows.value,
        "V": V,
        # the row of a piece is loaded only where something depends on it
        "row": None if scale is None and of_rows is None else rows.row,
        "scale": scale,
        "of_rows": of_rows,
        "of_entries": of_entries,
    }
    operands = {name: a for name, a in operands.items() if a is not None}
    pieces, lanes = rows.start.shape[0], V.shape[1]
    out = jax.ShapeDtypeStruct((pieces, lanes), V.dtype)
    # One program after another takes the next piece and the same lanes: V of a tile stays in the cache.
    return pl.pallas_call(
        functools.partial(_kernel, names=tuple(operands), T=T, square=square),
        grid=(pieces, lanes // T),
        in_specs=[_whole(a) for a in operands.values()],
        out_specs=pl.BlockSpec((1, T), lambda i, j: (i, j)),
        out_shape=varying_results([out], tuple(operands.values()))[0],
        compiler_params=gpu.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="xmcjax_spmm",
    )(*operands.values())


def _whole(a: jax.Array) -> pl.BlockSpec:
    zeros = (0,) * a.ndim
    return pl.BlockSpec(a.shape, lambda i, j: zeros)


def _kernel(*references, names, T, square):
    """Piece i, lanes j T to (j + 1) T: Σ_g Σ_k value[g, k] V[index[g, k]] over the groups g of the piece."""
    ref = dict(zip(names, references, strict=False))
    out = references[-1]
    i, j = pl.program_id(0), pl.program_id(1)
    group = ref["value"].shape[1]
    lanes = j * T + jnp.arange(T, dtype=jnp.int32)
    lanes = jnp.broadcast_to(lanes[None, :], (group, T))
    start, stop = ref["start"][i], ref["stop"][i]
    row = ref["row"][i] if "row" in ref else i
    if "of_rows" in ref:
        stop = jnp.where(ref["of_rows"][j, row] != 0, stop, start)

    def add(g, total):
        at, x = ref["index"][g, :], ref["value"][g, :]
        counts = x != 0  # without the zeros that fill a group up
        if "of_entries" in ref:
            flags = ref["of_entries"].at[jnp.broadcast_to(j, (group,)), at]
            counts &= gpu.load(flags, mask=counts, other=jnp.zeros((group,), jnp.int8)) != 0
        # A masked load moves no data.
        there = gpu.load(
            ref["V"].at[jnp.broadcast_to(at[:, None], (group, T)), lanes],
            mask=jnp.broadcast_to(counts[:, None], (group, T)),
            other=jnp.zeros((group, T), x.dtype),
        )
        return total + (x * x if square else x)[:, None] * there

    total = jax.lax.fori_loop(start, stop, add, jnp.zeros((group, T), out.dtype))
    result = jnp.sum(total, axis=0)
    if "scale" in ref:
        result = result * ref["scale"][row, pl.ds(j * T, T)]
    out[0, :] = result
