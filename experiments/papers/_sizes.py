"""Sizes of the sets of a paper's experiments, ours beside those of the paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments import _multiclass


def sizes(names: Sequence[str]) -> list[dict]:
    """Rows, classes, features and bytes of sets of experiments._multiclass."""
    found = []
    for name in names:
        parts = _multiclass.load(name)
        X = parts.X
        arrays = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)
        classes, features = int(parts.y.max()) + 1, int(X.shape[1])
        found.append(
            {
                "set": name,
                "train": int(X.shape[0]),
                "test": int(parts.X_test.shape[0]),
                "classes": classes,
                "features": features,
                "entries": float(features if isinstance(X, np.ndarray) else X.nnz / X.shape[0]),
                "train_mb": sum(array.nbytes for array in arrays) / 1e6,
                "weights_mb": 4 * classes * features / 1e6,
            }
        )
    return found
