"""Starts from the solution of another label.

Fang et al., "Fast training for large-scale one-versus-all linear classifiers using
tree-structured initialization", 2019; OvAP and OvAP++ in Schultheis and Babbar, 2022, eqs. 14 to 16.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import name_of
from xmcjax._labels import row_weights
from xmcjax.inits._base import Init, Starts


@dataclasses.dataclass(frozen=True)
class OvaPrimal(Init):
    """The solution of a label without positives (eq. 15), computed once for all labels.

    Attributes:
        ova_primal: "strict" solves it to the tolerance of a label, "loose" stops at ε₀ ‖∇f(0)‖, which
            leaves fewer rows right at the hinge (Schultheis and Babbar, appendix 7.2).

    Example:
        >>> OvaPrimal("strict")
        OvaPrimal(ova_primal='strict')
    """

    ova_primal: Literal["loose", "strict"] = "loose"

    name: ClassVar[str] = "ova_primal"

    def __post_init__(self):
        name_of("ova_primal", self.ova_primal, ("loose", "strict"))

    def prepare(self, data):
        w, b = data.solve(np.zeros(0, np.int64), self.ova_primal == "loose")
        return lambda labels: Starts.constant(len(labels.ids), len(w), np.asarray(w, float), b)


@dataclasses.dataclass(frozen=True)
class OvaPrimalTree(OvaPrimal):
    """OvA-Primal++: a label starts from the solution of its parent in a minimum spanning tree.

    The distance of two labels is the Hamming distance of their label vectors; the root is the
    empty label, whose children start as with :class:`OvaPrimal`.

    Example:
        >>> import scipy.sparse as sp
        >>> from xmcjax.lanes import OneVsAll, train_one_vs_all
        >>> X, Y, results = np.eye(4, dtype=np.float32), sp.csc_array(np.tri(4)), []
        >>> summary = train_one_vs_all(X, Y, OneVsAll(init=OvaPrimalTree()), results.append)
        >>> sorted(result.label for result in results)
        [0, 1, 2, 3]
    """

    name: ClassVar[str] = "ova_primal_pp"
    tree: ClassVar[bool] = True


def label_tree(Y: sp.csc_array, weight: np.ndarray | None = None) -> np.ndarray:
    """The parent of each label in the minimum spanning tree; −1 is the root, the empty label.

    Two labels without a common row are as far apart as both are from the root together, so the
    tree needs the edges of labels that occur together only: as many as YᵀY has entries.

    Args:
        Y: [n, L] of ones.
        weight: s of the rows, [n]; a row counts s times in the distance. None for ones.

    Raises:
        TypeError, ValueError: Y is no sparse matrix, or malformed.

    Example:
        >>> label_tree(sp.csc_array(np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1]]))).tolist()
        [2, 0, -1]
    """
    Y = _sparse.csc(Y, "Y")
    if not np.isfinite(Y.data).all():
        raise ValueError("Y: expected finite entries, found NaN or infinity")
    n_labels = Y.shape[1]
    weighted = Y.astype(np.float64)
    if weight is not None:
        weighted.data *= row_weights(weight, Y.shape[0])[weighted.indices]
    counts = np.asarray(weighted.sum(axis=0)).ravel()
    together = sp.triu(Y.T @ weighted, k=1).tocoo()
    # |P_j ∪ P_k| − |P_j ∩ P_k|; one is added to every edge, since the sparse graph takes an
    # entry of zero (two labels on the same rows) for no edge.
    hamming = counts[together.row] + counts[together.col] - 2 * together.data
    # scipy before 1.17.1 takes a graph with places of int32 alone
    rows = np.concatenate([together.row, np.arange(n_labels)]).astype(np.int32)
    columns = np.concatenate([together.col, np.full(n_labels, n_labels)]).astype(np.int32)
    lengths = np.concatenate([hamming, counts]) + 1
    graph = sp.coo_array((lengths, (rows, columns)), shape=(n_labels + 1, n_labels + 1)).tocsr()
    edges = sp.csgraph.minimum_spanning_tree(graph)
    _, parents = sp.csgraph.breadth_first_order(edges, n_labels, directed=False)
    parents = parents[:n_labels]
    return np.where(parents == n_labels, -1, parents)
