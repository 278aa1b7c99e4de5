"""The CUDA kernels of the package xmcjax-cuda as JAX functions, where it is installed and a GPU can run them.

The library is looked for when a product first asks for it, never at import. Without it the products are those
of ``linops/_spmm.py`` or plain JAX.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xmcjax._platform import default_platform
from xmcjax.native import _library
from xmcjax.native._ffi import twins_wanted

PACKAGE = "xmcjax_cuda"
# Raised together with XMCJAX_CUDA_ABI in cuda/src/handlers.cc whenever the arrays of a target change.
ABI = 1
TARGETS = ("matmat", "rmatmat", "gram_matmat", "plane_sums")

# The same numbers in cuda/src/active_rows.h and plane_sums.h.
TILE, PANEL = 32, 32  # lanes of a tile; tiles that are done together
PART = 1024  # pieces that are counted together
SUMMED_ROWS, FOLD = 128, 64  # rows, and sums of rows, that are added up together


class CudaRows(NamedTuple):
    """A sparse matrix [m, p] in pieces of rows, as the kernels take it.

    ``xmcjax.linops.Grouped`` says what the arrays are.
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
    """Whether the default device is a GPU for which the kernels of xmcjax-cuda are there and wanted.

    The first call registers them with JAX. A package that is installed and cannot be used is told once
    (``PerformanceWarning``).
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
    return _call("matmat", made, *rows, V, rows=m, square=square)[0]


def cuda_rmatmat(columns: CudaRows, C, d: int, *, square: bool = False) -> jax.Array:
    """Xᵀ C, [d, B], of the rows of Xᵀ and C [n, B]; where C is zero in a tile of lanes, no entry is read."""
    made = [*_pieces(columns, d, C), _room(C.shape[0], jnp.uint32)]
    return _call("rmatmat", made, *columns, C, rows=d, square=square)[0]


def cuda_gram_matmat(rows: CudaRows, columns: CudaRows, D, V) -> jax.Array:
    """Xᵀ(D ∘ (X V)), [d, B], of D [n, B] and V [d, B], without the lanes whose V is zero."""
    (n, lanes), d = D.shape, V.shape[0]
    parts = -(-rows.pieces // PART)
    made = [
        *_pieces(columns, d, V),
        *_pieces(rows, n, V),  # D ∘ (X V) of active rows
        _room(n, jnp.uint32),
        _room(parts * PANEL, jnp.int32),
        _room(2 * rows.pieces * min(-(-lanes // TILE), PANEL), jnp.int32),
        _room(1, jnp.int32),
    ]
    return _call("gram_matmat", made, *rows, *columns, D, V, jnp.any(V != 0, axis=0))[0]


def cuda_plane_sums(loss: int, parameter: float, z, m, y, weight, shift, t, beta, fresh) -> jax.Array:
    """The six sums of ``solvers/_plane_search.py`` at (t, β), [6, B].

    Args:
        loss: its number in ``native/interface/ids.def``.
        parameter: of the loss.
        z, m: [n, B].
        y: ±1, int8 [n, B].
        weight, shift: c and o, [1 or n, 1 or B].
        t, beta: [B].
        fresh: bool [B]; there z is taken as 0, and its losses are not subtracted.
    """
    n, lanes = z.shape
    count = rows = -(-n // SUMMED_ROWS)
    while count > FOLD:
        count = -(-count // FOLD)
        rows += count
    # numbers of float64, which JAX may not have
    made = [jax.ShapeDtypeStruct((6, lanes), z.dtype), _room(2 * 6 * rows * lanes, jnp.int32)]
    options = dict(loss=int(loss), parameter=float(parameter))
    return _call("plane_sums", made, z, m, y, weight, shift, t, beta, fresh, **options)[0]


def _pieces(rows: CudaRows, m: int, V) -> list[jax.ShapeDtypeStruct]:
    """Of a product: its rows, and beside them the further pieces of long ones."""
    lanes, dtype = V.shape[1], rows.value.dtype
    return [jax.ShapeDtypeStruct((count, lanes), dtype) for count in (m, rows.pieces - m)]


def _room(length: int, dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((length,), dtype)


def _call(name: str, made: list[jax.ShapeDtypeStruct], *arrays, **options: Any) -> list[jax.Array]:
    call = jax.ffi.ffi_call(f"xmcjax_cuda_{name}", made, vmap_method="sequential")
    return list(call(*(jnp.asarray(a) for a in arrays), **options))
