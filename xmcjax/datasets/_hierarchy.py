"""Synthetic points whose classes form a tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xmcjax._arguments import number, whole_number

_MOST = 2**31 - 1


class TreeData(NamedTuple):
    """Points of classes in a tree.

    Attributes:
        X: [n, d], float32.
        y: class of each point, a leaf of the tree, 1 … C, [n].
        edges: (parent, child) of the tree, [P, 2]; 0 is the root, 1 … C are the leaves.

    Example:
        >>> from xmcjax import datasets
        >>> made = datasets.make_hierarchy(20, 3, branching=(2, 2))
        >>> made.X.shape, sorted(set(made.y.tolist())), made.edges[:2].tolist()
        ((20, 3), [1, 2, 3, 4], [[0, 5], [0, 6]])
    """

    X: np.ndarray
    y: np.ndarray
    edges: np.ndarray


def make_hierarchy(
    n: int,
    d: int,
    branching: Sequence[int] = (4, 5),
    *,
    spread: float = 1.0,
    noise: float = 1.0,
    seed: int = 0,
) -> TreeData:
    """Makes points of classes that form a tree: classes near each other in the tree are near in space.

    The centre of the root is 0. The centre of any other node is its parent's centre plus a normal vector of
    standard deviation `spread`. A point is the centre of its class, a leaf, plus a normal vector of standard
    deviation `noise`. With one number in `branching` all classes are siblings.

    Args:
        n: points, at least as many as there are leaves, because each leaf gets at least one point.
        d: dimensions, at least 1.
        branching: how many children each node of a level has, from the root on, each at least 1. Their
            product is the number of leaves.
        spread: standard deviation of an edge in each dimension, at least 0.
        noise: standard deviation of a point about its centre in each dimension, at least 0.
        seed: equal arguments and seeds give equal data.

    Raises:
        ValueError: an argument out of range.
        TypeError: a size that is no whole number, or `branching` no sequence.

    Example:
        >>> from xmcjax import datasets
        >>> X, y, edges = datasets.make_hierarchy(100, 2, (3, 2))
        >>> X.shape, sorted(set(y.tolist())), edges.shape
        ((100, 2), [1, 2, 3, 4, 5, 6], (9, 2))
    """
    text = isinstance(branching, (str, bytes))
    if text or not (isinstance(branching, Sequence) or np.ndim(branching)):
        raise TypeError(
            f"branching: expected the number of children on each level, such as (4, 5), got {branching!r}"
        )
    children = [whole_number("branching", number_of, 1, _MOST) for number_of in branching]
    m = math.prod(children)
    if not children or m > _MOST:
        raise ValueError(
            f"branching: expected one level at least, and at most {_MOST} leaves, got {branching}"
        )
    n, d = whole_number("n", n, m, _MOST), whole_number("d", d, 1, _MOST)
    for name, value in (("spread", spread), ("noise", noise)):
        if not 0 <= number(name, value) < math.inf:
            raise ValueError(f"{name} must be at least 0 and finite, got {value}")
    rng = np.random.default_rng(whole_number("seed", seed, 0, 2**63 - 1))
    edges, nodes, centres, inner = [], np.zeros(1, np.int64), np.zeros((1, d)), m + 1
    for level, number_of in enumerate(children):
        parents = np.repeat(nodes, number_of)
        first = 1 if level == len(children) - 1 else inner
        nodes = np.arange(first, first + len(parents))
        inner += len(parents)
        centres = np.repeat(centres, number_of, axis=0) + rng.normal(scale=spread, size=(len(parents), d))
        edges.append(np.column_stack([parents, nodes]))
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    X = centres[y] + rng.normal(scale=noise, size=(n, d))
    return TreeData(X.astype(np.float32), y + 1, np.concatenate(edges))
