"""Euclidean projections of vectors onto sets that a sum couples, with exact derivatives.

The last axis is projected; the axes before it are a batch. All projections are pure functions for jit,
vmap, grad and jvp, and are the same on every device. On a CPU the native library, where it was built,
searches for the threshold, and on a GPU the package xmcjax-cuda, where it is installed.
"""

from collections.abc import Callable

from xmcjax.projections._knapsack import capped_simplex, knapsack, simplex
from xmcjax.projections._topk import topk_cone, topk_simplex
from xmcjax.projections._trees import over_tree

PROJECTIONS: dict[str, Callable] = {
    projection.__name__: projection
    for projection in (simplex, capped_simplex, knapsack, topk_cone, topk_simplex)
}

__all__ = ["PROJECTIONS", "capped_simplex", "knapsack", "over_tree", "simplex", "topk_cone", "topk_simplex"]
