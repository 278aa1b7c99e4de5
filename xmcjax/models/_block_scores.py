"""The jitted steps of prediction: one block of labels against one block of rows, fixed shapes."""

from __future__ import annotations

import dataclasses
import functools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import native
from xmcjax._pytrees import pytree

# Scores of a row among which XLA's top-k kernel for a GPU searches at a time; fewer than 1,024 XLA sorts.
PIECE = 1024


class Block(Protocol):
    """A block of labels on the device."""

    @property
    def bias(self) -> jax.Array:
        """[B]; −inf for labels that are not to be predicted."""
        ...

    def products(self, rows) -> jax.Array:
        """X W, [n, B], of the rows in the form that the block takes."""
        ...


@pytree(data_fields=["W", "bias"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class DenseBlock:
    """Weights [d, B] as a model has them; rows are an operator."""

    W: jax.Array
    bias: jax.Array

    def products(self, rows) -> jax.Array:
        return rows.matmat(self.W)


@pytree(data_fields=["value", "feature", "indptr", "bias"], meta_fields=["n_features"])
@dataclasses.dataclass(frozen=True)
class StoredBlock:
    """Sparse weights of B labels, those of a label side by side, as a model stores them.

    Attributes:
        value, feature: the weights and their features, padded at the end.
        indptr: int32 [B + 1], where the weights of each label begin.
        bias: [B].
        n_features: d.
    """

    value: jax.Array
    feature: jax.Array
    indptr: jax.Array
    bias: jax.Array
    n_features: int


@pytree(data_fields=["stored", "start"], meta_fields=["labels", "entries"])
@dataclasses.dataclass(frozen=True)
class DensePart:
    """Some labels of a :class:`StoredBlock`, whose weights [d, B] are made dense where they are used.

    Attributes:
        stored: the block.
        start: int32, place of the first label in that block. Labels beyond its end are never predicted.
        labels: B.
        entries: how many stored weights are read from the first label on, at least all of these labels.
    """

    stored: StoredBlock
    start: jax.Array | np.int32
    labels: int
    entries: int

    @property
    def bias(self) -> jax.Array:
        place = self.start + jnp.arange(self.labels, dtype=jnp.int32)
        last = self.stored.bias.shape[0] - 1
        return jnp.where(place <= last, self.stored.bias[jnp.minimum(place, last)], -jnp.inf)

    def products(self, rows) -> jax.Array:
        stored = self.stored
        feature, value, label, _ = _entries_of(stored, self.start, self.labels, self.entries)
        # padding entries have distinct features beyond the last one, so that they are dropped
        W = jnp.zeros((stored.n_features, self.labels), stored.value.dtype)
        W = W.at[feature, label].set(value, mode="drop", unique_indices=True)
        return rows.matmat(W)


@pytree(data_fields=["value", "label", "begin", "bias"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class FeatureBlock:
    """Sparse weights of B labels, those of a feature side by side.

    Rows are :class:`SparseRows` or :class:`RowsInTurns`. A score is the sum of the products of the entries of
    a row with the weights of their features, in the order of the entries: only non-zero pairs are read.

    Attributes:
        value, label: the weights and their labels in the block, padded at the end.
        begin: int32 [d + 1], where the weights of each feature begin.
        bias: [B].
    """

    value: jax.Array
    label: jax.Array
    begin: jax.Array
    bias: jax.Array

    def products(self, rows: SparseRows | RowsInTurns) -> jax.Array:
        if isinstance(rows, RowsInTurns):
            return self._in_turns(rows)
        of_rows, of_weights = (rows.value, rows.feature, rows.indptr), (self.value, self.label, self.begin)
        return native.cuda_pairs(*of_rows, *of_weights, self.bias.shape[0])

    def _in_turns(self, rows: RowsInTurns) -> jax.Array:
        n, labels, window = rows.n_rows, self.bias.shape[0], rows.window
        number = jnp.arange(window, dtype=jnp.int32)

        def unfinished(state):
            return state[1] < rows.turns

        def add(state):
            """Adds the pairs of a turn from number `done` on, at most `window` of them."""
            scores, turn, done = state
            entry = rows.starts[turn] + jnp.arange(n, dtype=jnp.int32)
            there = entry < rows.starts[turn + 1]
            feature, row, x = rows.feature[entry], rows.row[entry], rows.value[entry]
            first = self.begin[feature]
            counts = jnp.where(there, self.begin[feature + 1] - first, 0)
            ends = jnp.cumsum(counts, dtype=jnp.int32)
            pair = done + number
            # the entry that each pair belongs to; numbers beyond the last pair get places beyond the scores
            source = jnp.searchsorted(ends, pair, side="right", method="scan_unrolled").astype(jnp.int32)
            valid = source < n
            source = jnp.minimum(source, n - 1)
            place = (first - ends + counts)[source] + pair
            score = jnp.where(valid, row[source] * labels + self.label[place], n * labels + number)
            added = x[source] * self.value[place]
            scores = scores.at[score].add(added, mode="drop", unique_indices=True)
            over = done + window >= ends[-1]
            return scores, turn + over.astype(jnp.int32), jnp.where(over, 0, done + window)

        scores = jnp.zeros(n * labels, self.value.dtype)
        scores, _, _ = jax.lax.while_loop(unfinished, add, (scores, jnp.int32(0), jnp.int32(0)))
        return scores.reshape(n, labels)


@pytree(data_fields=["value", "feature", "indptr"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class SparseRows:
    """The entries of X as they are, for the kernels in CUDA.

    Attributes:
        value, feature: of each entry, padded at the end.
        indptr: int32 [n + 1], where the entries of a row begin.
    """

    value: jax.Array
    feature: jax.Array
    indptr: jax.Array


@pytree(data_fields=["value", "feature", "row", "starts", "turns"], meta_fields=["n_rows", "window"])
@dataclasses.dataclass(frozen=True)
class RowsInTurns:
    """The first entries of all rows of X, then all second ones, and so on, for plain JAX.

    Turn t holds the t-th entry of each row that has one. No two pairs of a turn add to the same score, so
    that no sum depends on the order in which the pairs of a turn are added.

    Attributes:
        value, feature, row: of each entry, padded with at least as many entries as there are rows.
        starts: int32 [turns + 1] or more, where the entries of a turn begin.
        turns: int32, the number of turns: as many as the longest row has entries.
        n_rows: n.
        window: how many pairs of an entry with a weight are added at once.
    """

    value: jax.Array
    feature: jax.Array
    row: jax.Array
    starts: jax.Array
    turns: jax.Array
    n_rows: int
    window: int


@jax.jit
def by_feature(stored: StoredBlock) -> FeatureBlock:
    """The same weights by feature; the weights of a feature stay in the order of their labels."""
    labels, entries = stored.bias.shape[0], stored.value.shape[0]
    feature, value, label, number = _entries_of(stored, jnp.int32(0), labels, entries)
    feature, order = jax.lax.sort((jnp.minimum(feature, stored.n_features), number), num_keys=1)
    features = jnp.arange(stored.n_features + 1, dtype=jnp.int32)
    begin = jnp.searchsorted(feature, features, method="scan_unrolled").astype(jnp.int32)
    return FeatureBlock(value[order], label[order], begin, stored.bias)


def _entries_of(stored: StoredBlock, start, labels: int, entries: int):
    """(feature, value, label counted from `start`, number) of the entries of some labels, padded. Each
    padding entry has a feature of its own beyond the last.
    """
    last = stored.indptr.shape[0] - 1
    indptr = stored.indptr[jnp.minimum(start + jnp.arange(labels + 1, dtype=jnp.int32), last)]
    number = jnp.arange(entries, dtype=jnp.int32)
    place = indptr[0] + number
    label = jnp.searchsorted(indptr[1:], place, side="right", method="scan_unrolled").astype(jnp.int32)
    there = place < indptr[-1]
    feature = jnp.where(there, stored.feature[place], stored.n_features + number)
    return feature, stored.value[place], jnp.minimum(label, labels - 1), number


@jax.jit
def block_scores(rows, block: Block):
    """Z = X W + b, [n, B]; a bias of −inf gives every row −inf."""
    return block.products(rows) + block.bias


@functools.partial(jax.jit, static_argnames=("k",))
def merge_topk(rows, block: Block, first, best_scores, best_labels, *, k: int):
    """Merge the scores of a block of labels into the best so far.

    Args:
        rows: X, [n, d], in the form that the block takes.
        block: labels first … first + B − 1.
        first: number of the first label.
        best_scores, best_labels: [n, k], best first, of labels below ``first``.
    """
    scores = block.products(rows) + block.bias
    scores = jnp.where(scores > -jnp.inf, scores, -jnp.inf)  # NaN is not among the best
    scores, columns = _best(scores, k)
    labels = jnp.where(scores > -jnp.inf, first + columns, -1)
    # The best labels so far stand first, and topk prefers the first of equals: ties go to the lower label.
    scores, places = native.topk(jnp.concatenate([best_scores, scores], axis=1), k)
    labels = jnp.take_along_axis(jnp.concatenate([best_labels, labels], axis=1), places, axis=1)
    return scores, labels


def _best(scores: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k best of each row of scores [n, B], or the k best of each piece of a row, piece after piece.

    The CUDA kernel of this library takes whole rows, and divides them among its warps itself.
    """
    n, labels = scores.shape
    if labels <= PIECE or labels % PIECE or native.topk_by_kernel(scores, min(k, labels)):
        return native.topk(scores, min(k, labels))
    scores, columns = native.topk(scores.reshape(-1, PIECE), min(k, PIECE))
    pieces = PIECE * jnp.arange(labels // PIECE, dtype=jnp.int32)
    columns = columns.reshape(n, len(pieces), -1) + pieces[:, None]
    return scores.reshape(n, -1), columns.reshape(n, -1)
