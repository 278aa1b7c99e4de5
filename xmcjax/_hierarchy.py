"""Trees of classes: the leaves are the classes, and node 0 is the root."""

from __future__ import annotations

import dataclasses

import numpy as np

from xmcjax import _sparse


@dataclasses.dataclass(frozen=True)
class Hierarchy:
    """A tree, made by :meth:`from_edges`. Arrays are over the nodes without the root, in breadth-first order.

    Within a level the nodes stand by rising number of children, the leaves last.

    Attributes:
        nodes: node numbers, [P].
        parent: place of the parent in this order, −1 for the root, [P].
        leaves: places of the leaves, by rising node number: the order of the classes, [C].
        starts: place of the first node of each level, and P at the end.
    """

    nodes: np.ndarray
    parent: np.ndarray
    leaves: np.ndarray
    starts: tuple[int, ...]

    @classmethod
    def of(cls, hierarchy) -> Hierarchy:
        """A tree as it is, or that of edges; see :meth:`from_edges`."""
        return hierarchy if isinstance(hierarchy, cls) else cls.from_edges(hierarchy)

    @classmethod
    def from_edges(cls, edges) -> Hierarchy:
        """The tree of (parent, child) pairs of node numbers.

        Args:
            edges: [P, 2], whole numbers from 0.

        Raises:
            TypeError: numbers that are not whole.
            ValueError: no edge, a negative number, a node with two parents, the root as a child, a
                cycle, or a node that cannot be reached from the root.
        """
        edges = _sparse.array(edges, "hierarchy")
        if edges.ndim != 2 or edges.shape[1] != 2 or not len(edges):
            raise ValueError(
                f"hierarchy: expected pairs (parent, child), got an array of shape {edges.shape}"
            )
        if edges.dtype.kind not in "iu":
            raise TypeError(f"hierarchy: expected node numbers (integers), got {edges.dtype}")
        if edges.min() < 0:
            raise ValueError(f"hierarchy: expected node numbers from 0, got {edges.min()}")
        parents, children = edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)
        known, counts = np.unique(children, return_counts=True)
        if (counts > 1).any():
            raise ValueError(f"hierarchy: expected one parent per node, node {known[counts > 1][0]} has two")
        if 0 in known:
            raise ValueError("hierarchy: expected 0 as the root, found it as a child")
        by_parent = np.argsort(parents, kind="stable")
        sorted_parents, sorted_children = parents[by_parent], children[by_parent]

        def children_of(some):
            first = np.searchsorted(sorted_parents, some, side="left")
            return first, np.searchsorted(sorted_parents, some, side="right") - first

        nodes, parent, starts = [], [], [0]
        level, places = np.array([0]), np.array([-1])
        while True:
            first, count = children_of(level)
            index = np.repeat(first - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(
                count.sum()
            )
            following, their_parents = sorted_children[index], np.repeat(places, count)
            if not len(following):
                break
            # each node has one parent, so that a level never meets a node again
            grandchildren = children_of(following)[1]
            order = np.lexsort((following, grandchildren, grandchildren == 0))
            nodes.append(following[order])
            parent.append(their_parents[order])
            level, places = nodes[-1], starts[-1] + np.arange(len(order))
            starts.append(starts[-1] + len(order))
        reached = np.concatenate(nodes) if nodes else np.array([], np.int64)
        lost = np.setdiff1d(known, reached)
        if len(lost):
            raise ValueError(
                f"hierarchy: expected a path from the root 0 to every node, found none to node {lost[0]}: "
                "it hangs on a cycle or on a node without a parent"
            )
        leaves = np.flatnonzero(children_of(reached)[1] == 0)
        return cls(reached, np.concatenate(parent), leaves[np.argsort(reached[leaves])], tuple(starts))

    @property
    def n_nodes(self) -> int:
        """P."""
        return len(self.nodes)

    @property
    def n_classes(self) -> int:
        """C."""
        return len(self.leaves)

    @property
    def depth(self) -> np.ndarray:
        """Edges between each node and the root, [P]."""
        return np.repeat(np.arange(1, len(self.starts)), np.diff(self.starts))

    def places(self, numbers, *, leaves_only: bool, name: str = "y") -> np.ndarray:
        """Where nodes stand in the order of :attr:`nodes`, or, for leaves only, in that of the classes.

        Raises:
            ValueError: a number that is no node of the tree, or not a leaf.
        """
        numbers = _sparse.dense(numbers, name)
        own = self.nodes[self.leaves] if leaves_only else self.nodes
        order = np.argsort(own)
        found = order[np.minimum(np.searchsorted(own[order], numbers), len(own) - 1)]
        wrong = own[found] != numbers
        if wrong.any():
            raise self.refusal(numbers[wrong].ravel()[0].item(), leaves_only=leaves_only, name=name)
        return found

    def refusal(self, number, *, leaves_only: bool, name: str) -> ValueError:
        """The error for what is no node, or not a leaf; it says what it is instead.

        Args:
            number: of Python, or what else was found in its place.
            leaves_only: whether no inner node was expected either.
            name: of the argument.
        """
        what = "not a node of the tree"
        if number == 0:
            what = "the root"
        elif leaves_only and number in self.nodes.tolist():
            what = "an inner node"
        expected = "leaves" if leaves_only else "nodes"
        return ValueError(f"{name}: expected {expected} of the hierarchy, found {number!r}, {what}")

    def above(self, level: int = 1) -> np.ndarray:
        """Place of each node's ancestor on a level (1: the root's children), its own place above it, [P]."""
        ancestor = np.arange(self.n_nodes)
        for below in range(level, len(self.starts) - 1):
            part = slice(self.starts[below], self.starts[below + 1])
            ancestor[part] = ancestor[self.parent[part]]
        return ancestor

    def members(self) -> np.ndarray:
        """Whether class c stands below (or is) node p, bool [P, C]."""
        members = np.zeros((self.n_nodes, self.n_classes), bool)
        members[self.leaves, np.arange(self.n_classes)] = True
        for place in range(self.n_nodes - 1, -1, -1):
            if self.parent[place] >= 0:
                members[self.parent[place]] |= members[place]
        return members

    def merged(self) -> tuple[Hierarchy, np.ndarray]:
        """The tree with every only child in its parent's place, and where each node went, [P].

        Where an inner node has one child, both functions always occur together: one node with the
        sum of their kernels is the same model. It takes the number of the lower one.
        """
        children = np.bincount(self.parent[self.parent >= 0], minlength=self.n_nodes)
        last = np.arange(self.n_nodes)  # the lowest node of each chain
        for place in range(self.n_nodes - 1, -1, -1):
            up = self.parent[place]
            if up >= 0 and children[up] == 1:
                last[up] = last[place]
        kept = np.unique(last)
        top = np.full(self.n_nodes, -1)  # the parent of the chain that ends here
        for place in range(self.n_nodes - 1, -1, -1):
            top[last[place]] = self.parent[place]  # rising: the topmost is written last
        edges = [(0 if top[p] < 0 else self.nodes[last[top[p]]], self.nodes[p]) for p in kept]
        tree = Hierarchy.from_edges(np.array(edges))
        return tree, tree.places(self.nodes[last], leaves_only=False)
