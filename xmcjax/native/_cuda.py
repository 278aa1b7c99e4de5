"""The CUDA kernels of the package xmcjax-cuda as JAX functions, where it is installed and a GPU can run them.

The library is looked for when a product first needs it, never at import. Without it the products of
``linops/_spmm.py`` or of plain JAX are used.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._platform import default_platform
from xmcjax._settings import twins_wanted
from xmcjax.native import _library
from xmcjax.native._ffi import varying_results

PACKAGE = "xmcjax_cuda"
# Raised together with XMCJAX_CUDA_ABI in cuda/src/handlers.cc whenever the arrays of a target change.
ABI = 5
TARGETS = (
    "matmat",
    "rmatmat",
    "gram_matmat",
    "cg_product",
    "cg_residual",
    "cg_direction",
    "plane_sums",
    "pairs",
    "topk",
    "project_box",
    "project_topk",
    "project_weighted",
)

# Each number must equal the one in cuda/src/active_rows.h, plane_sums.h or lane_cg.h.
TILE, PANEL = 32, 32  # lanes of a tile; tiles that are processed together
PART = 1024  # pieces that are counted together
SUMMED_ROWS, FOLD = 128, 64  # rows that are added up together; sums of rows that are added up together
CG_ROWS = 64  # rows that are added up together in conjugate gradients
MOST_BEST = 32  # the largest k for which the k best of a row are found at once; in topk.h
# topk reads a long row in parts: as many as make about WARPS warps, which a large GPU holds, each of at least
# PART_OF_ROW entries, so that the k best of the parts, which are searched again, are few; at most MOST_PARTS.
WARPS, PART_OF_ROW, MOST_PARTS = 8192, 4096, 512


class CudaRows(NamedTuple):
    """A sparse matrix [m, p] in pieces of rows, as the kernels take it.

    ``xmcjax.linops.Grouped`` describes the arrays.
    """

    value: jax.Array
    index: jax.Array
    start: jax.Array
    stop: jax.Array
    row: jax.Array
    long: jax.Array
    more: jax.Array  #: int32 [k + 1], where the further pieces of each long row begin, counted from m

    @property
    def pieces(self) -> int:
        return self.start.shape[0]


def cuda_available() -> bool:
    """Whether the default device is a GPU for which the kernels of xmcjax-cuda are there and switched on.

    The first call registers them with JAX. If the package is installed but cannot be used, a
    ``PerformanceWarning`` says so once.
    """
    if twins_wanted.value or default_platform() != "gpu" or _library.switched_off():
        return False
    why = _absence()
    if why and importlib.util.find_spec(PACKAGE) is not None:
        _warn(why)
    return not why


def cuda_absence() -> str:
    """Why the kernels of xmcjax-cuda are not used on this machine; "" where they can be."""
    return "XMCJAX_NATIVE=0 leaves them out" if _library.switched_off() else _absence()


@functools.cache
def _warn(why: str) -> None:
    warnings.warn(
        f"the CUDA kernels of xmcjax-cuda are not used: {why}", _library.PerformanceWarning, stacklevel=3
    )


@functools.cache
def _absence() -> str:
    """See :func:`cuda_absence`; registers the targets."""
    if importlib.util.find_spec(PACKAGE) is None:
        return "xmcjax-cuda is not installed"
    file = str(importlib.import_module(PACKAGE).LIBRARY)
    try:
        library = ctypes.CDLL(file)
    except OSError as error:
        return f"{file} cannot be loaded: {error}"
    abi = library.xmcjax_cuda_abi()
    if abi != ABI:
        return f"{file} has ABI {abi}, expected {ABI}: install xmcjax and xmcjax-cuda of one version"
    return _unusable(library) or register(library, "CUDA")


def _unusable(library: ctypes.CDLL) -> str:
    """What the library itself finds missing: a driver, or a GPU that it was compiled for."""
    library.xmcjax_cuda_unusable.restype = ctypes.c_char_p
    return library.xmcjax_cuda_unusable().decode()


def register(library: ctypes.CDLL, platform: str) -> str:
    """Makes the functions of a library targets of JAX; "" or why JAX refuses them."""
    try:
        for name in TARGETS:
            handler = jax.ffi.pycapsule(getattr(library, f"xmcjax_cuda_{name}"))
            jax.ffi.register_ffi_target(f"xmcjax_cuda_{name}", handler, platform=platform)
    except RuntimeError as error:
        return f"jax {jax.__version__} refuses them: {str(error).splitlines()[0]}"
    return ""


def cuda_matmat(rows: CudaRows, V, m: int, *, square: bool = False) -> jax.Array:
    """A V, [m, B], of A [m, p] and V [p, B]; `square` squares the entries of A."""
    made = _pieces(rows, m, V)
    return cuda_call("matmat", made, *rows, V, rows=m, square=square)[0]


def cuda_rmatmat(columns: CudaRows, C, d: int, *, square: bool = False) -> jax.Array:
    """Xᵀ C, [d, B], of the rows of Xᵀ and C [n, B]; no entry is read where C is zero in a tile of lanes."""
    made = [*_pieces(columns, d, C), _room(C.shape[0], jnp.uint32)]
    return cuda_call("rmatmat", made, *columns, C, rows=d, square=square)[0]


def cuda_gram_matmat(rows: CudaRows, columns: CudaRows, D, V) -> jax.Array:
    """Xᵀ(D ∘ (X V)), [d, B], of D [n, B] and V [d, B], without the lanes whose V is zero."""
    made = _of_active_rows(rows, columns, D, V)
    return cuda_call("gram_matmat", made, *rows, *columns, D, V, jnp.any(V != 0, axis=0))[0]


def cuda_lane_bits(D) -> jax.Array:
    """Where D [n, B] is not 0, as bits: uint32 [n, ⌈B/32⌉]; bit t of word j stands for lane 32 j + t."""
    n, lanes = D.shape
    tiles = -(-lanes // TILE)
    there = jnp.pad(D != 0, ((0, 0), (0, tiles * TILE - lanes))).reshape(n, tiles, TILE)
    bit = jnp.uint32(1) << jnp.arange(TILE, dtype=jnp.uint32)
    return jnp.sum(jnp.where(there, bit, 0), axis=2, dtype=jnp.uint32)


def cuda_cg_product(rows: CudaRows, columns: CudaRows, D, bits, V, is_open, of_bias) -> list[jax.Array]:
    """[Xᵀ(D ∘ e), Σ D s / h, Σ D e²] with s = X V and e = s − Σ D s / h: [d, B], [B], [B].

    Args:
        rows, columns: of X and of Xᵀ.
        D: [n, B].
        bits: of D, by :func:`cuda_lane_bits`.
        V: [d, B].
        is_open: bool [B]; the results for the other lanes are undefined.
        of_bias: [B], 1/h, or 0 for e = s.
    """
    n, lanes = D.shape
    width = min(-(-lanes // TILE), PANEL) * TILE
    sums = [jax.ShapeDtypeStruct((lanes,), D.dtype)] * 2
    made = [*_of_active_rows(rows, columns, D, V), *sums, _parts(n, CG_ROWS, width)]
    found = cuda_call("cg_product", made, *rows, *columns, D, bits, V, is_open, of_bias)
    return [found[0], *found[8:10]]


def cuda_cg_residual(r, p, product, inverse, alpha, l2, preconditioned) -> list[jax.Array]:
    """[the new r, r − α (λ p + product), Σ of the new r times M⁻¹ of it]: [d, B], in the place of r, and [B].

    Args:
        r, p, product: [d, B].
        inverse: M⁻¹, [d, B], which is read where `preconditioned` is not 0.
        alpha: [B]; where it is 0, r is neither read nor written, and the sum is 0.
        l2, preconditioned: [1].
    """
    made = [jax.ShapeDtypeStruct(r.shape, r.dtype), *_sum_of_rows(r)]
    given = r, p, product, inverse, alpha, l2, preconditioned
    return cuda_call("cg_residual", made, *given, in_place={0: 0})[:2]


def cuda_cg_direction(x, p, r, inverse, alpha, beta, is_open, preconditioned) -> list[jax.Array]:
    """[x + α p, the new p, M⁻¹ r + β p, Σ of its squares]: [d, B], [d, B], in the place of x and p, and [B].

    Args:
        x, p, r, inverse, alpha, preconditioned: see :func:`cuda_cg_residual`.
        beta: [B].
        is_open: bool [B]; where it is False, p stays.
    """
    made = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (x, p)] + _sum_of_rows(r)
    given = x, p, r, inverse, alpha, beta, is_open, preconditioned
    return cuda_call("cg_direction", made, *given, in_place={0: 0, 1: 1})[:3]


def cuda_plane_sums(loss: int, parameter: float, z, m, y, weight, shift, t, beta, fresh) -> jax.Array:
    """The six sums of ``solvers/_plane_search.py`` at (t, β), [6, B].

    Args:
        loss: its number in ``native/interface/ids.def``.
        parameter: of the loss.
        z, m: [n, B].
        y: ±1, int8 [n, B].
        weight, shift: c and o, [1 or n, 1 or B].
        t, beta: [B].
        fresh: bool [B]; where it is True, z is taken as 0, and the losses at z are not subtracted.
    """
    n, lanes = z.shape
    made = [jax.ShapeDtypeStruct((6, lanes), z.dtype), _parts(n, SUMMED_ROWS, 6 * lanes)]
    options: dict[str, Any] = dict(loss=int(loss), parameter=float(parameter))
    return cuda_call("plane_sums", made, z, m, y, weight, shift, t, beta, fresh, **options)[0]


def cuda_pairs(x, feature, indptr, value, label, begin, labels: int) -> jax.Array:
    """X W, [n, labels], of sparse rows and of sparse weights that are stored by feature.

    Each score is summed over the entries of its row, in their order.

    Args:
        x, feature: [entries] of X.
        indptr: int32 [n + 1], where the entries of a row begin.
        value, label: of the weights; a feature has no label twice.
        begin: int32 [d + 1], where the weights of a feature begin.
        labels: B.
    """
    made = [jax.ShapeDtypeStruct((indptr.shape[0] - 1, labels), x.dtype)]
    return cuda_call("pairs", made, x, feature, indptr, value, label, begin, labels=labels)[0]


def cuda_topk(a, k: int) -> list[jax.Array]:
    """[the k largest of each row of a [..., m], falling, their places]: [..., k], int32 [..., k].

    In XLA's total order, as :func:`jax.lax.top_k` has it; of equal numbers the first ones; k ≤ MOST_BEST.
    """
    *batch, m = a.shape
    parts, length = parts_of_row(math.prod(batch), m)
    shapes = [(*batch, k), (*batch, parts * k if parts > 1 else 0)]
    made = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes for dtype in (a.dtype, jnp.int32)]
    options: dict[str, Any] = dict(k=k, parts=parts, length=length)
    return cuda_call("topk", varying_results(made, [a]), a, vmap_method="broadcast_all", **options)[:2]


def parts_of_row(rows: int, m: int) -> tuple[int, int]:
    """(number of parts, entries of each part but the last) that each of `rows` rows of m entries has."""
    parts = max(1, min(-(-WARPS // max(rows, 1)), m // PART_OF_ROW, MOST_PARTS))
    length = -(-m // (4 * parts)) * 4 if parts > 1 else m
    return parts, length


def _pieces(rows: CudaRows, m: int, V) -> list[jax.ShapeDtypeStruct]:
    """The results of a product: its rows, and room for the further pieces of long rows."""
    lanes, dtype = V.shape[1], rows.value.dtype
    return [jax.ShapeDtypeStruct((count, lanes), dtype) for count in (m, rows.pieces - m)]


def _of_active_rows(rows: CudaRows, columns: CudaRows, D, V) -> list[jax.ShapeDtypeStruct]:
    """The result of Xᵀ(D ∘ (X V)), and room: scores of active rows, their words, counts, list and total."""
    (n, lanes), d = D.shape, V.shape[0]
    parts = -(-rows.pieces // PART)
    return [
        *_pieces(columns, d, V),
        *_pieces(rows, n, V),
        _room(n, jnp.uint32),
        _room(parts * PANEL, jnp.int32),
        _room(2 * rows.pieces * min(-(-lanes // TILE), PANEL), jnp.int32),
        _room(1, jnp.int32),
    ]


def _sum_of_rows(a) -> list[jax.ShapeDtypeStruct]:
    """The sum over the rows of an array [d, B], and room for its partial sums."""
    d, lanes = a.shape
    return [jax.ShapeDtypeStruct((lanes,), a.dtype), _parts(d, CG_ROWS, lanes)]


def _parts(n: int, together: int, width: int) -> jax.ShapeDtypeStruct:
    """Room for sums of `together` rows each and sums of these, as pairs of int32: JAX may lack float64."""
    count = rows = -(-n // together)
    while count > FOLD:
        count = -(-count // FOLD)
        rows += count
    return _room(2 * rows * width, jnp.int32)


def _room(length: int, dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((length,), dtype)


def cuda_call(
    name: str,
    made: list[jax.ShapeDtypeStruct],
    *arrays,
    in_place: dict[int, int] | None = None,
    vmap_method: str = "sequential",
    **options: Any,
) -> list[jax.Array]:
    """The results of a target, of the shapes and types `made`."""
    how: dict[str, Any] = dict(vmap_method=vmap_method, input_output_aliases=in_place)
    call = jax.ffi.ffi_call(f"xmcjax_cuda_{name}", made, **how)
    return list(call(*(jnp.asarray(a) for a in arrays), **options))
