"""Whether the columns of each row stand in order, each of them once."""

from __future__ import annotations

import numpy as np


def rises_in_rows(indices: np.ndarray, indptr: np.ndarray) -> bool:
    """Whether each index is above the one before it in its row.

    Args:
        indices: of all rows.
        indptr: where rows begin, or end, among these.
    """
    begins = np.zeros(len(indices) + 1, bool)
    begins[indptr] = True
    return bool((begins[1:-1] | (indices[1:] > indices[:-1])).all())
