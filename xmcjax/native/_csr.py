"""A CSR matrix as native calls take it."""

from __future__ import annotations

import numpy as np

from xmcjax._sparse import require_checked


def csr_arrays(X) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, columns and offsets of a checked CSR matrix, in the byte order of the machine.

    The offsets are int32 [n+1, 2], the halves of 64-bit numbers, because JAX has no int64 by default.
    """
    require_checked(X)
    offset = np.ascontiguousarray(X.indptr, np.int64).view(np.int32).reshape(-1, 2)
    return np.ascontiguousarray(X.data), np.ascontiguousarray(X.indices, np.int32), offset
