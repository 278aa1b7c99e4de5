"""Coordinate ascent of the multi-label SVM."""

from __future__ import annotations

import numpy as np

from xmcjax.native._separate_ascent import Advancing


class RankingAscent(Advancing):
    """Coordinate ascent of the multi-label SVM. ``alpha`` has signs: W = Xᵀ α.

    Args:
        X, seed, threads: as in :class:`DualPoint`.
        labels: CSR [n, L], each stored entry a label of its row, ascending in a row and none twice.
        cost: weights C of the losses of the rows, from 0, [n]; or one number.
        dense: whether to multiply rows as dense vectors instead of by their non-zeros.
    """

    def __init__(self, X, labels, cost, *, dense: bool = False, seed: int = 0, threads: int = 1):
        n, m = labels.shape
        self._make(
            "ranking_new",
            X,
            m,
            offset=labels.indptr.astype(np.int64),
            label=np.ascontiguousarray(labels.indices, np.int32),
            cost=np.ascontiguousarray(np.broadcast_to(np.asarray(cost, np.float64), n)),
            dense=dense,
            seed=seed,
            threads=threads,
        )
