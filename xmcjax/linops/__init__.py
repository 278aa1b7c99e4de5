"""Feature matrices as linear operators: the only way a solver touches X.

:func:`make` chooses the backend. All backends pass the same tests and give the same products;
see :class:`LinOp` for the protocol.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import jax
import numpy as np
import scipy.sparse

from xmcjax import _device_memory, _sparse
from xmcjax._arguments import name_of, thread_count
from xmcjax._device_memory import DeviceMemoryError, smaller, used_device
from xmcjax._fork import check_threads_of_jax
from xmcjax._memory import size
from xmcjax._platform import default_platform
from xmcjax._pytrees import is_traced
from xmcjax.linops._base import LinOp, put
from xmcjax.linops._base import constant_values as constant_values
from xmcjax.linops._checks import check_features, check_operator, computed_dtype, real_array
from xmcjax.linops._csr import Csr, from_scipy
from xmcjax.linops._dense import Dense, on_the_device
from xmcjax.linops._grouped import Grouped
from xmcjax.linops._grouped import from_scipy as grouped_from_scipy
from xmcjax.linops._grouped import scored_rows as scored_rows
from xmcjax.native import available, cuda_available

BACKENDS = ("auto", "dense", "native", "gpu", "jnp")
# The sentence where native kernels are asked for and there are none.
NO_NATIVE = "expected the native kernels on a CPU device, but they are not built or not its own"

__all__ = [
    "BACKENDS",
    "Csr",
    "Dense",
    "DeviceMemoryError",
    "Grouped",
    "LinOp",
    "check_features",
    "check_operator",
    "computed_dtype",
    "gpu_ready",
    "make",
    "native_ready",
    "put",
    "real_array",
]


def native_ready() -> bool:
    """Whether the native kernels are built and the default device is a CPU, on which they run.

    Example:
        >>> backend = "native" if native_ready() else "jnp"
        >>> make(scipy.sparse.eye_array(3, format="csr"), np.float32, backend=backend).shape
        (3, 3)
    """
    return default_platform() == "cpu" and available()


def gpu_ready() -> bool:
    """Whether the default device is a GPU with kernels of the "gpu" backend.

    These are the kernels in CUDA of the package xmcjax-cuda where it is installed, else those for the Triton
    backend of Pallas, which later releases of JAX may not have.

    Example:
        >>> gpu_ready() and native_ready()  # each is for one kind of device
        False
    """
    return _kernels() != "interpreted"


def products_backend(X) -> str:
    """The backend that :func:`make` is asked for by callers that need products alone: "gpu" or "auto".

    On a GPU sparse features are multiplied by its kernels, which have no derivatives in the values of X.
    """
    return "gpu" if _sparse.is_sparse(X) and gpu_ready() else "auto"


def host_features(op: LinOp) -> Any:
    """X of an operator as an array of NumPy, or as a matrix of scipy."""
    return np.asarray(op.X) if isinstance(op, Dense) else op.to_scipy()  # type: ignore[attr-defined]


def _kernels() -> str:
    """Which kernels the "gpu" backend has on the default device, see :class:`Grouped`."""
    if cuda_available():
        return "cuda"
    has_triton = importlib.util.find_spec("jax.experimental.pallas.triton") is not None
    return "triton" if default_platform() == "gpu" and has_triton else "interpreted"


def make(X, dtype=None, *, backend: str = "auto", threads: int = 1) -> LinOp:
    """The operator of a feature matrix on the default device.

    Args:
        X: [n, d], dense (numpy or jax), of scipy.sparse, or a BCOO or BCSR of ``jax.experimental.sparse``
            without batch and dense dimensions.
        dtype: float32 or float64 (which needs ``jax_enable_x64``); None keeps a float dtype
            that JAX holds and makes float32 of anything else.
        backend: "dense"; "native", CSR through the C++ kernels (CPU only); "gpu", rows in groups
            and their transpose, through kernels for a GPU, which are interpreted, slowly, on another
            device; "jnp", CSR in plain JAX; "auto", dense for a dense X, else native where it is built
            and the default device is a CPU, else jnp. Callers that need only the products use "gpu" where
            :func:`gpu_ready`.
        threads: of one product in the native kernels; None takes one per core. The sums do not depend on it.

    Raises:
        ValueError: an unknown backend, X not of two dimensions or malformed, or the native kernels asked for
            where there are none.
        TypeError: X is no matrix of real numbers, or JAX traces X, and X is not dense or the backend is not
            a dense one.
        RuntimeError: in a process that was forked from one in which JAX had computed, unless features are
            sparse and on the native kernels.
        DeviceMemoryError: X does not fit into what is free on the device, where that tells.

    Example:
        >>> op = make(np.float32([[1, 0], [2, 3]]))
        >>> op.matmat(np.float32([[1], [1]])).tolist()
        [[1.0], [5.0]]
    """
    name_of("backend", backend, BACKENDS)
    threads = thread_count(threads)
    if is_traced(X) and not (isinstance(X, jax.Array) and backend in ("auto", "dense")):
        raise _sparse.traced("X")
    if not isinstance(X, jax.Array):
        X = _sparse.matrix(X)
    if X.ndim != 2:
        raise ValueError(f"expected a matrix [n, d], got {X.ndim} dimensions")
    if dtype is None:
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float32
    dtype = computed_dtype(dtype)
    sparse = scipy.sparse.issparse(X)
    if backend in ("dense", "gpu", "jnp") or not sparse or not native_ready():
        check_threads_of_jax()
    if backend == "dense" or (backend == "auto" and not sparse):
        check_room(X.shape, np.dtype(dtype), None)
        return Dense(on_the_device(X.toarray() if sparse else X, dtype))  # type: ignore[union-attr]
    if backend == "native" and not native_ready():
        raise ValueError(NO_NATIVE)
    native = backend == "native" or (backend == "auto" and native_ready())
    matrix: Any = X.astype(dtype, copy=False) if sparse else _sparse.of_dense(np.asarray(X), dtype)
    check_room(matrix.shape, np.dtype(dtype), matrix.nnz * (2 if backend == "gpu" else 1))
    if backend == "gpu":
        return grouped_from_scipy(matrix, kernels=_kernels())
    return from_scipy(matrix, native=native, threads=threads)


def check_room(shape: Any, dtype: np.dtype, entries: int | None) -> None:
    """Checks that a matrix fits onto the device.

    Args:
        shape: [n, d].
        dtype: of its values there.
        entries: number of stored entries, those of the transpose included; None for a dense matrix.
    """
    free = _device_memory.free_memory()
    if free is None:
        return
    n, d = shape
    least = dtype.itemsize * n * d if entries is None else (dtype.itemsize + 4) * entries
    if least > free:
        raise DeviceMemoryError(
            f"expected X to fit into the memory of {used_device()}: {n} rows of {d} features take "
            f"{size(least)} or more, and {size(free)} are free: {smaller(dtype)}"
        )
