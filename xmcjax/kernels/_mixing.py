"""How the class functions are made of independent ones: u = (Φ ⊗ I) ǔ.

Seeger, 2006, sections 4 and 6.4 (trees) and 7.2 (a matrix B). Arrays are [rows, functions, lanes].
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import native
from xmcjax._cores import usable_cores
from xmcjax._fork import methods_need_threads_of_jax, needs_threads_of_jax
from xmcjax._hierarchy import Hierarchy
from xmcjax._pytrees import pytree


class Mixing(Protocol):
    """Φ: what takes P independent functions to C class functions; a pytree.

    Example:
        The matrix Φ of any of them, here of a tree with the leaves 1, 3 and 4:

        >>> from xmcjax.kernels import Mixing, tree
        >>> mixing: Mixing = tree([(0, 1), (0, 2), (2, 3), (2, 4)])
        >>> mixing.apply(jnp.eye(4)[None])[0].tolist()
        [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
    """

    def apply(self, x: jax.Array) -> jax.Array:
        """Φ x, [n, C, B], of x [n, P, B]."""
        ...

    def transpose(self, s: jax.Array) -> jax.Array:
        """Φᵀ s, [n, P, B], of s [n, C, B]."""
        ...

    def mixed(self, v: jax.Array, s: jax.Array) -> jax.Array:
        """Φ diag(v) Φᵀ s, [n, C, B], of v [P] and s [n, C, B]."""
        ...


@pytree(data_fields=[], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Independent:
    """Φ = I: flat classification.

    Example:
        >>> Independent().mixed(jnp.array([1.0, 10.0]), jnp.ones((1, 2, 1)))[0, :, 0].tolist()
        [1.0, 10.0]
    """

    def apply(self, x: jax.Array) -> jax.Array:
        return x

    def transpose(self, s: jax.Array) -> jax.Array:
        return s

    def mixed(self, v: jax.Array, s: jax.Array) -> jax.Array:
        return v[None, :, None] * s


@methods_need_threads_of_jax
@pytree(data_fields=["B"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Loadings:
    """Φ = B, [C, p]: classes that depend on each other (C = p) or on few factors (p < C).

    Example:
        >>> one_factor = Loadings(jnp.array([[1.0], [2.0]]))
        >>> one_factor.apply(jnp.ones((1, 1, 1)))[0, :, 0].tolist()  # both classes from one function
        [1.0, 2.0]
    """

    B: jax.Array

    def apply(self, x: jax.Array) -> jax.Array:
        return jnp.einsum("cp,npb->ncb", self.B, x, precision="highest")

    def transpose(self, s: jax.Array) -> jax.Array:
        return jnp.einsum("cp,ncb->npb", self.B, s, precision="highest")

    def mixed(self, v: jax.Array, s: jax.Array) -> jax.Array:
        return self.apply(v[None, :, None] * self.transpose(s))


@methods_need_threads_of_jax
@pytree(data_fields=["parent", "leaf", "parents", "children", "classes", "places"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Tree:
    """Φ of a hierarchy: u at a leaf is the sum of ǔ on its path (algorithms 1 and 2). Made by :func:`tree`.

    Its products have derivatives in reverse mode.

    On a CPU this is one native pass over the nodes of each row, and Φ diag(v) Φᵀ is one that holds no
    array [n, P]. Elsewhere it goes level by level, with gathers only: the children of a parent are gathered
    in tables of similar width, because a scatter would add one number after the other.

    Attributes:
        parent: place of each node's parent, before its own; −1 for the root; [P].
        leaf: places of the classes, [C].
        parents: for each level but the first, where in the level above each parent stands.
        children: for each level, tables [inner nodes, width] of places in the level below; unused
            entries lie beyond its end.
        classes: for each level, the classes of its leaves.
        places: where the classes stand among the leaves of all levels, [C].

    Example:
        >>> hierarchy = tree([(0, 1), (0, 2), (2, 3), (2, 4)])  # the classes are the leaves 1, 3 and 4
        >>> x = jnp.array([1.0, 10.0, 100.0, 1000.0]).reshape(1, 4, 1)  # of the nodes but the root
        >>> hierarchy.apply(x)[0, :, 0].tolist()
        [10.0, 101.0, 1001.0]
    """

    parent: jax.Array
    leaf: jax.Array
    parents: tuple[jax.Array, ...]
    children: tuple[tuple[jax.Array, ...], ...]
    classes: tuple[jax.Array, ...]
    places: jax.Array

    def apply(self, x: jax.Array) -> jax.Array:
        return _up_to_leaves(self, x)

    def transpose(self, s: jax.Array) -> jax.Array:
        return _down_from_leaves(self, s)

    def mixed(self, v: jax.Array, s: jax.Array) -> jax.Array:
        return _down_and_up(self, v, s)


@needs_threads_of_jax
def tree(hierarchy) -> Tree:
    """Φ of a hierarchy: rows are the classes, columns the nodes without the root.

    Nodes stand level by level; within one, by rising number of children, leaves last.

    Args:
        hierarchy: (parent, child) pairs of node numbers, [P, 2], of which 0 is the root.

    Raises:
        TypeError: edges that are no whole numbers.
        ValueError: edges that are no tree.

    Example:
        >>> tree([(0, 1), (0, 2), (1, 3), (1, 4)]).leaf.tolist()  # of 2, 3 and 4, without the root
        [1, 2, 3]
    """
    hierarchy = Hierarchy.of(hierarchy)
    starts, parent = hierarchy.starts, hierarchy.parent
    levels = range(len(starts) - 1)
    counts = np.bincount(parent[parent >= 0], minlength=hierarchy.n_nodes)
    class_of = np.full(hierarchy.n_nodes, -1)
    class_of[hierarchy.leaves] = np.arange(hierarchy.n_classes)
    index = functools.partial(jnp.asarray, dtype=jnp.int32)
    parents, children, classes = [], [], []
    for k in levels:
        nodes = np.arange(starts[k], starts[k + 1])
        classes.append(class_of[nodes[counts[nodes] == 0]])
        if k:
            parents.append(index(parent[nodes] - starts[k - 1]))
        tables = []
        if k + 1 < len(starts) - 1:
            below = np.arange(starts[k + 1], starts[k + 2])
            order = np.argsort(parent[below], kind="stable")
            first = np.searchsorted(parent[below][order], nodes)
            inner = nodes[counts[nodes] > 0]
            # widths of 1, 2, 4, 8, …: no table is more than half empty
            width = 1 << np.ceil(np.log2(counts[inner])).astype(int)
            for w in np.unique(width):
                rows = inner[width == w]
                column = np.arange(w)
                place = np.minimum(first[rows - starts[k], None] + column, len(below) - 1)
                tables.append(index(np.where(column < counts[rows, None], order[place], len(below))))
        children.append(tuple(tables))
    places = np.argsort(np.concatenate(classes))
    levels = tuple(parents), tuple(children), tuple(index(c) for c in classes), index(places)
    return Tree(index(parent), index(hierarchy.leaves), *levels)


def _gather(x: jax.Array, places: jax.Array) -> jax.Array:
    return jnp.take(x, places, axis=1, mode="fill", fill_value=0)


@jax.custom_vjp
def _up_to_leaves(mixing: Tree, x: jax.Array) -> jax.Array:
    """Σ over the path of each leaf, [n, C, B]."""
    return _native_or("tree_sums_of_paths", _paths_by_level, mixing, x)


@jax.custom_vjp
def _down_from_leaves(mixing: Tree, s: jax.Array) -> jax.Array:
    """Σ over the leaves below each node, [n, P, B]."""
    return _native_or("tree_sums_below", _below_by_level, mixing, s)


@jax.custom_vjp
def _down_and_up(mixing: Tree, v: jax.Array, s: jax.Array) -> jax.Array:
    """Φ diag(v) Φᵀ s, [n, C, B]."""

    def twin(mixing, v, s):
        return _paths_by_level(mixing, v[None, :, None] * _below_by_level(mixing, s))

    return _native_or("tree_mix", twin, mixing, s, v=v)


def _native_or(name: str, twin, mixing: Tree, x: jax.Array, **numbers: jax.Array) -> jax.Array:
    if not native.available():
        return twin(mixing, *numbers.values(), x)

    def on_host(mixing, *arrays):
        given = dict(zip((*numbers, "x"), arrays, strict=True))
        tree = {"parent": mixing.parent, "leaf": mixing.leaf}
        return native.call(name, **tree, **given, threads=usable_cores())["out"]

    return jax.lax.platform_dependent(mixing, *numbers.values(), x, cpu=on_host, default=twin)


def _paths_by_level(mixing: Tree, x: jax.Array) -> jax.Array:
    leaves, start, above = [], 0, None
    for k, classes in enumerate(mixing.classes):
        size = (
            mixing.parents[k - 1].shape[0]
            if k
            else sum(t.shape[0] for t in mixing.children[0]) + len(classes)
        )
        level = jax.lax.slice_in_dim(x, start, start + size, axis=1)
        if above is not None:
            level = level + _gather(above, mixing.parents[k - 1])
        leaves.append(level[:, size - len(classes) :])
        start, above = start + size, level
    return _gather(jnp.concatenate(leaves, axis=1), mixing.places)


def _below_by_level(mixing: Tree, s: jax.Array) -> jax.Array:
    levels = []
    for tables, classes in zip(reversed(mixing.children), reversed(mixing.classes), strict=True):
        sums = [jnp.sum(_gather(levels[-1], table), axis=2) for table in tables]
        levels.append(jnp.concatenate([*sums, _gather(s, classes)], axis=1))
    return jnp.concatenate(levels[::-1], axis=1)


_up_to_leaves.defvjp(
    lambda mixing, x: (_up_to_leaves(mixing, x), mixing),
    lambda mixing, u: (None, _down_from_leaves(mixing, u)),
)
_down_from_leaves.defvjp(
    lambda mixing, s: (_down_from_leaves(mixing, s), mixing),
    lambda mixing, u: (None, _up_to_leaves(mixing, u)),
)


def _down_and_up_backward(residual, u):
    mixing, v, s = residual
    # ∂/∂v_p: Σ over rows and lanes of (Φᵀs)_p (Φᵀu)_p
    below = _down_from_leaves(mixing, s) * _down_from_leaves(mixing, u)
    return None, jnp.sum(below, axis=(0, 2)), _down_and_up(mixing, v, u)


_down_and_up.defvjp(lambda mixing, v, s: (_down_and_up(mixing, v, s), (mixing, v, s)), _down_and_up_backward)
