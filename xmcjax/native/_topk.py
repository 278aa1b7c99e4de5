"""The k largest numbers of each row: by a kernel in CUDA, or by one of the host for float64 values.

XLA's own kernel for a GPU sorts what it reads, and takes some ten times as long as reading takes; for rows of
less than 1,024 entries XLA sorts all of them. On a CPU XLA sorts whole rows of float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.native._cuda import MOST_BEST, cuda_available, cuda_topk
from xmcjax.native._ffi import allowed_here, available_here, call
from xmcjax.native._partition import by_rows, over_rows

# The most entries of a row that the CUDA kernel takes.
_LONGEST = 1 << 30
# The platform of programs that call the CUDA kernel.
PLATFORM = "cuda"


def topk(a: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """(The k largest of a [..., m], falling, their places), [..., k] and int32 [..., k].

    The result is that of :func:`jax.lax.top_k`, in XLA's total order: −0 is below +0, and NaN is above ∞, or
    below −∞ if its sign is set; of equal numbers the first ones.
    """
    if not topk_by_kernel(a, k):
        return _sorted(a, k)
    return _by_kernel(a, k, _sorted)


def topk_values(a: jax.Array, k: int, twin: Callable | None = None) -> jax.Array:
    """The k largest of a [..., m], without their places.

    Args:
        a: [..., m].
        k: from 1 to m.
        twin: function (a, k) -> these values, used where there is no kernel; None for that of XLA.
    """
    if twin is None:
        return topk(a, k)[0]
    if not (topk_by_kernel(a, k) or _values_by_kernel(a)):
        return twin(a, k)
    return _by_kernel(a, k, functools.partial(_without_places, twin))[0]


def topk_by_kernel(a: jax.Array, k: int) -> bool:
    """Whether a program for a GPU finds the k largest by the CUDA kernel."""
    m = a.shape[-1]
    fits = 1 <= k <= min(MOST_BEST, m) and m <= _LONGEST and a.dtype in (jnp.float32, jnp.float64)
    return fits and cuda_available() and allowed_here()


def _values_by_kernel(a: jax.Array) -> bool:
    """Whether a program for a CPU finds the k largest values by the kernel of the host."""
    return a.dtype == jnp.float64 and a.shape[-1] < 1 << 31 and available_here()


def _sorted(a: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    # XLA recognises the k largest as a sort whose first k entries are taken. A later slice that takes fewer
    # of them would merge with this one, so that XLA would sort whole rows, a hundred times as slowly; a
    # barrier prevents that. Each result has its own barrier: a common one would get the pair itself, and XLA
    # of jax 0.8 ends the process where the pair is used as a whole.
    values, places = map(jax.lax.optimization_barrier, jax.lax.top_k(a, k))
    return values, places.astype(jnp.int32)


def _without_places(twin: Callable, a: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    values = twin(a, k)
    return values, jnp.zeros_like(values, jnp.int32)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _by_kernel(a: jax.Array, k: int, twin: Callable) -> tuple[jax.Array, jax.Array]:
    def found(a):
        # asked here, within by_rows: for the rows of a device, Explicit axes of the mesh are Manual
        branches: dict[str, Callable] = {"default": functools.partial(twin, k=k)}
        if twin is not _sorted and _values_by_kernel(a):  # places are not needed
            branches["cpu"] = _over_rows_of_host(k)
        if topk_by_kernel(a, k):
            branches[PLATFORM] = _over_rows(k)
        return jax.lax.platform_dependent(a, **branches)

    return by_rows(found, a, results=0, rows=("k", "k"))


@_by_kernel.defjvp
def _(k, twin, primals, tangents):
    values, places = _by_kernel(*primals, k, _sorted)
    change = jnp.take_along_axis(tangents[0], places, axis=-1, mode="promise_in_bounds")
    return (values, places), (change, np.zeros(places.shape, jax.dtypes.float0))


@functools.cache
def _over_rows(k: int) -> Callable:
    """The function a -> the results of the CUDA kernel, which XLA may split by rows."""

    def made(a):
        return tuple(cuda_topk(a, k))

    return over_rows(made, entries=(), results=0, rows=("k", "k"))


@functools.cache
def _over_rows_of_host(k: int) -> Callable:
    """The function a -> values and places that the kernel of the host finds; the place of −∞ is -1."""

    def made(a):
        z = a.reshape(-1, a.shape[-1])
        scores, best = (
            jnp.full((len(z), k), start, kind) for start, kind in ((-jnp.inf, a.dtype), (-1, jnp.int32))
        )
        found = call("best_labels", z=z, first_label=jnp.int32(0), threads=1, scores=scores, best=best)
        # the kernel leaves NaN out: a row with NaN gets NaN in all places
        top = jnp.where(jnp.any(jnp.isnan(z), axis=-1, keepdims=True), jnp.nan, found["scores"])
        return tuple(each.reshape(*a.shape[:-1], k) for each in (top, found["best"]))

    return over_rows(made, entries=(), results=0, rows=("k", "k"))
