"""Whether the columns of each row stand in order, each of them once."""

from __future__ import annotations

import numpy as np


def rises_in_rows(indices: np.ndarray, indptr: np.ndarray) -> bool:
    """Whether each index is above the one before it in its row.

    Args:
        indices: of all rows.
        indptr: where rows begin, or end, among these.
    """
    rises = np.empty(len(indices) + 1, bool)
    np.greater(indices[1:], indices[:-1], out=rises[1:-1])
    rises[indptr] = True  # a row begins
    return bool(rises[1:-1].all())
