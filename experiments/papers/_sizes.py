"""Sizes of the sets of a paper's experiments, ours beside those of the paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from experiments import _multiclass


def sizes(names: Sequence[str]) -> list[dict]:
    """Rows, classes, features and bytes of sets of experiments._multiclass."""
    found = []
    for name in names:
        parts = _multiclass.load(name)
        X = parts.X
        arrays = (X.data, X.indices, X.indptr) if sp.issparse(X) else (np.asarray(X),)
        classes, features = int(parts.y.max()) + 1, int(X.shape[1])
        found.append(
            {
                "set": name,
                "train": int(X.shape[0]),
                "test": int(parts.X_test.shape[0]),
                "classes": classes,
                "features": features,
                "entries": float(X.nnz / X.shape[0] if sp.issparse(X) else features),
                "train_mb": sum(array.nbytes for array in arrays) / 1e6,
                "weights_mb": 4 * classes * features / 1e6,
            }
        )
    return found
