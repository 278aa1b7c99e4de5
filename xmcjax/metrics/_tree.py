"""Scores of predictions in a tree of classes (Seeger, 2006, section 8.2)."""

from __future__ import annotations

import numpy as np

from xmcjax import _sparse
from xmcjax._hierarchy import Hierarchy


def _places(y_true, y_pred, edges) -> tuple[Hierarchy, np.ndarray, np.ndarray]:
    tree = Hierarchy.from_edges(edges)
    y_true, y_pred = _sparse.dense(y_true, "y_true"), _sparse.dense(y_pred, "y_pred")
    if y_true.ndim != 1 or y_true.shape != y_pred.shape or not len(y_true):
        raise ValueError(
            f"expected two vectors of leaves of one length, found shapes {y_true.shape}, {y_pred.shape}"
        )
    classes = (tree.places(y, leaves_only=True, name=n) for y, n in ((y_true, "y_true"), (y_pred, "y_pred")))
    a, b = (tree.leaves[c] for c in classes)
    return tree, a, b


def taxonomy_loss(y_true, y_pred, edges) -> float:
    """Mean of half the length of the path between the true and the predicted leaf.

    With the depths d and d' of the leaves it is ½(d + d') minus the depth of the lowest node above
    both: 0 for a hit, 1 for a sibling of the true leaf.

    Args:
        y_true: leaves, [n].
        y_pred: leaves, [n].
        edges: the tree, (parent, child) pairs of node numbers with 0 as the root.

    Returns:
        0 or more, in edges.

    Raises:
        ValueError: shapes that differ, no rows, pairs that are no tree, or numbers that are no leaves.

    References:
        L. Cai and T. Hofmann, Hierarchical document categorization with support vector machines, 2004;
        Seeger, 2006, section 8.2.

    Example:
        >>> edges = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]  # leaves 3 and 4 below 1, leaf 5 below 2
        >>> taxonomy_loss([3, 5], [4, 3], edges)
        1.5
    """
    tree, a, b = _places(y_true, y_pred, edges)
    depth = tree.depth
    shared = np.zeros(len(a))
    for level in range(1, len(tree.starts)):
        above = tree.above(level)
        # a node above the level represents itself there
        shared += (above[a] == above[b]) & (depth[a] >= level)
    return float(np.mean((depth[a] + depth[b]) / 2 - shared))


def parent_accuracy(y_true, y_pred, edges) -> float:
    """The fraction, from 0 to 1, of rows whose predicted leaf has the parent of the true one.

    Arguments and errors as in :func:`taxonomy_loss`.

    Example:
        >>> edges = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]  # leaves 3 and 4 below 1, leaf 5 below 2
        >>> parent_accuracy([3, 5], [4, 3], edges)
        0.5
    """
    tree, a, b = _places(y_true, y_pred, edges)
    return float(np.mean(tree.parent[a] == tree.parent[b]))
