"""The jitted steps of prediction: one block of labels against one block of rows, fixed shapes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp


@jax.jit
def block_scores(op, W, b):
    """Z = X W + b, [n, B]; a bias of −inf gives every row −inf."""
    return op.matmat(W) + b


@functools.partial(jax.jit, static_argnames=("k",))
def merge_topk(op, W, b, first, best_scores, best_labels, *, k: int):
    """Merge the scores of a block of labels into the best so far.

    Args:
        op: operator of X, [n, d].
        W: weights of labels first … first + B − 1, [d, B].
        b: biases [B], −inf for labels that are not to be predicted.
        first: number of the first label.
        best_scores, best_labels: [n, k], best first, of labels below ``first``.
    """
    scores = op.matmat(W) + b
    scores = jnp.where(scores > -jnp.inf, scores, -jnp.inf)  # NaN is not among the best
    scores, columns = jax.lax.top_k(scores, min(k, W.shape[1]))
    labels = jnp.where(scores > -jnp.inf, first + columns.astype(jnp.int32), -1)
    # The earlier labels stand first and top_k prefers what stands first: ties go to the lower label.
    scores, places = jax.lax.top_k(jnp.concatenate([best_scores, scores], axis=1), k)
    labels = jnp.take_along_axis(jnp.concatenate([best_labels, labels], axis=1), places, axis=1)
    return scores, labels
