"""SVMs filled up to common numbers of rows: a program of JAX is compiled for each number of rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from xmcjax._sizes import filled_length, rows_and_entries, with_rows

# Up to _ROWS rows are filled up, to at least _LEAST; new rows have _LITTLE times the least weight.
_ROWS, _LEAST, _LITTLE = 4096, 128, 1e-20


def of_common_size(
    X: Any, y: np.ndarray, C: float | np.ndarray
) -> tuple[Any, np.ndarray, float | np.ndarray]:
    """The problem with rows of zeros appended, where rows are few: programs are likely to be there for it.

    Their weight is so small that it changes no digit; with a weight of 0 their dual sets would be points.

    Args:
        X: features [n, d], CSR or an array.
        y: the class of each row, [n].
        C: weight of the losses, a number or [n].
    """
    # rows of weight 0 have no loss
    n, little = len(y), _LITTLE * float(np.min(C, where=np.greater(C, 0), initial=np.inf))
    if not X.shape[1] or n > _ROWS or not np.finfo(np.float32).tiny <= little < np.inf:
        return X, y, C
    length = functools.partial(filled_length, least=_LEAST)
    rows, entries = rows_and_entries(X, length)
    rows = length(rows)
    behind = (0, rows - n)
    C = np.broadcast_to(C, n)
    return with_rows(X, rows, entries), np.pad(y, behind), np.pad(C, behind, constant_values=little)
