"""The hierarchical SVM: a multi-class SVM on attribute vectors of classes that stand in a tree.

Cai and Hofmann, "Hierarchical document categorization with support vector machines", 2004. Every node p has
weights w_p, and the score of a class is the sum over its path, Λ_yp = 1 where p is on it:

    min_W ½ Σ_p ‖w_p‖² + C Σ_i ξ_i,   F(x, y) = Σ_p Λ_yp w_p·x,
    ξ_i = max(0, max_{y ≠ y_i} Δ(y_i, y) + F(x_i, y) − F(x_i, y_i)),

where Δ is 1, or the loss of the tree, half the path between the leaves. That is the multi-class SVM of
Crammer and Singer with the kernel K_x ⊗ ΛΛᵀ of instances and classes. Its dual, with
α_i = Σ_y a_iy (e_{y_i} − e_y), a_i ≥ 0, Σ_y a_iy ≤ C, is

    max_a Σ_iy a_iy Δ(y_i, y) − ½ Σ_ij (x_i·x_j) α_iᵀ ΛΛᵀ α_j.

A step moves the optimal amount of weight of one instance: to the class that violates its margin most, or to
the slack C − Σ_y a_iy if no class does, from the class with weight, or the slack, that gains least. The
duality gap certifies the result. ΛΛᵀ = I, a tree of one level, is the flat SVM.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import _data
from experiments.papers.p004.baselines._base import GRID, TOL, Fitted, linear
from xmcjax._hierarchy import Hierarchy

MOST_EPOCHS = 2_000
STEPS = 3  # steps at an instance each time that it is visited
CHECK = 5  # epochs between two certificates


class State(NamedTuple):
    """a, [n, C], and the weights of the scores of classes, U = (Σ_i x_i α_iᵀ) ΛΛᵀ, [d, C]."""

    a: jax.Array
    U: jax.Array


@dataclasses.dataclass(frozen=True)
class HierarchicalSvm:
    """The joint SVM of classes in a tree; see :class:`experiments.papers.p004.baselines._base.Method`.

    Attributes:
        edges: (parent, child) pairs of node numbers of a tree whose leaves are the classes, [P, 2]; None for
            the flat SVM.
        scaled: whether the margin grows with the loss of the tree; if not, it is 1.
        tol: relative duality gap.
        grid: the C to try.
    """

    edges: np.ndarray | None = None
    scaled: bool = False
    tol: float = TOL
    grid: tuple[float, ...] = GRID

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """Trains on features X [n, d] and classes y, places among the leaves of the tree."""
        y = np.asarray(y)
        dtype = np.asarray(X[:1].data if hasattr(X, "tocsr") else X[:1]).dtype
        shared, loss = class_kernel(self.edges, int(y.max()) + 1)  # larger if the tree has more leaves
        if not self.scaled:
            loss = 1.0 - np.eye(len(shared))
        shared, loss = shared.astype(dtype), loss.astype(dtype)
        indices, values = (None if part is None else jnp.asarray(part) for part in _data.padded(X))
        problem = (indices, values, jnp.asarray(y), jnp.asarray(shared), jnp.asarray(loss))
        a = np.zeros((len(y), len(shared)), dtype) if start is None else start
        state = State(jnp.minimum(jnp.asarray(a), C), jnp.zeros((X.shape[1], len(shared)), dtype))
        # a start from a larger C may have rows whose sum exceeds C
        held = jnp.sum(state.a, axis=1, keepdims=True)
        state = refreshed(problem, state._replace(a=state.a * jnp.minimum(1, C / jnp.maximum(held, C))))
        rng, gap = np.random.default_rng(0), np.inf
        for _ in range(0, MOST_EPOCHS, CHECK):
            for _ in range(CHECK):
                state = epoch(problem, state, jnp.asarray(rng.permutation(len(y))), C)
            state = refreshed(problem, state)
            primal, dual = (float(part) for part in values_of(problem, state, C))
            gap = (primal - dual) / primal
            if gap <= self.tol:
                break
        return Fitted(linear(np.asarray(state.U)), gap, np.asarray(state.a))


def class_kernel(edges, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """ΛΛᵀ, the number of nodes that two paths share, and the loss of the tree, both [C, C].

    Raises:
        ValueError: a tree with fewer leaves than there are classes.
    """
    if edges is None:
        return np.eye(n_classes), 1 - np.eye(n_classes)
    tree = Hierarchy.from_edges(edges)
    if tree.n_classes < n_classes:
        raise ValueError(f"edges: expected a tree of {n_classes} leaves, got {tree.n_classes}")
    members = tree.members().astype(float)
    shared, depth = members.T @ members, tree.depth[tree.leaves]
    return shared, (depth[:, None] + depth) / 2 - shared


def _row(problem, i):
    indices, values, *_ = problem
    return (slice(None) if indices is None else indices[i]), values[i]


@functools.partial(jax.jit, donate_argnames="state")
def epoch(problem, state: State, order, C) -> State:
    """Steps at every instance."""
    _, _, y, shared, loss = problem

    def visit(state: State, i):
        columns, x = _row(problem, i)
        own, squared = y[i], jnp.sum(x * x)
        scores = x @ state.U[columns]
        a = state.a[i]

        def step(_, carry):
            a, scores, total = carry
            # ∂ dual / ∂ a_y; the derivative of the slack, which holds C − Σ a, is 0
            gain = jnp.where(jnp.arange(len(a)) == own, -jnp.inf, loss[own] + scores - scores[own])
            up = jnp.argmax(gain)
            slack = C - jnp.sum(a)
            slack = jnp.where(slack > 10 * jnp.finfo(a.dtype).eps * C, slack, 0)  # less is rounding
            # weight leaves the class with the least gain, or the slack if its gain, 0, is less
            held = jnp.where(a > 0, gain, jnp.inf)
            low = jnp.argmin(held)
            first = jnp.where(gain[up] > 0, up, -1)  # −1: the slack
            least = jnp.minimum(held[low], jnp.where(slack > 0, 0.0, jnp.inf))
            from_slack = (slack > 0) & (held[low] >= 0)
            second = jnp.where(from_slack, -1, low)
            rise = jnp.where(first < 0, 0.0, gain[up]) - least

            def direction(k, sign, of):  # change of α (or of ΛΛᵀ α) when a_k rises; 0 for the slack
                return jnp.where(k < 0, 0.0, sign) * (of[own] - of[k])

            unit = jnp.eye(len(a), dtype=a.dtype)
            d = direction(first, 1.0, unit) + direction(second, -1.0, unit)
            along = direction(first, 1.0, shared) + direction(second, -1.0, shared)
            curvature = squared * (d @ along)
            most = jnp.where(second < 0, slack, a[low])
            length = jnp.where(curvature > 0, rise / jnp.where(curvature > 0, curvature, 1), jnp.inf)
            length = jnp.where(rise > 0, jnp.minimum(length, most), 0)
            a = a.at[first].add(jnp.where(first < 0, 0, length))
            a = a.at[second].add(jnp.where(second < 0, 0, -length))
            return jnp.maximum(a, 0), scores + squared * length * along, total + length * along

        a, _, total = jax.lax.fori_loop(0, STEPS, step, (a, scores, jnp.zeros_like(a)))
        U = state.U.at[columns].add(jnp.outer(x, total))
        return State(state.a.at[i].set(a), U), None

    return jax.lax.scan(visit, state, order)[0]


def _alpha(problem, state: State):
    y = problem[2]
    return -state.a.at[jnp.arange(len(y)), y].add(-jnp.sum(state.a, axis=1))


@jax.jit
def refreshed(problem, state: State) -> State:
    """The state with U recomputed from a, without the accumulated rounding of the steps."""
    indices, values, _, shared, _ = problem
    alpha = _alpha(problem, state)
    if indices is None:
        return state._replace(U=values.T @ alpha @ shared)
    G = jnp.zeros_like(state.U)
    G = jax.lax.fori_loop(
        0, len(values), lambda i, G: G.at[indices[i]].add(jnp.outer(values[i], alpha[i])), G
    )
    return state._replace(U=G @ shared)


@jax.jit
def values_of(problem, state: State, C):
    """(primal, dual) of the objective."""
    indices, values, y, _, loss = problem
    if indices is None:
        scores = values @ state.U
    else:
        scores = jax.lax.map(lambda row: row[1] @ state.U[row[0]], (indices, values))
    # Σ_p ‖w_p‖² = Σ_i α_iᵀ (scores of i)
    half = jnp.sum(_alpha(problem, state) * scores) / 2
    own = jnp.take_along_axis(scores, y[:, None], axis=1)
    slack = jnp.max(loss[y] + scores - own, axis=1)  # at least 0, because the own class has loss 0
    return half + C * jnp.sum(slack), jnp.sum(state.a * loss[y]) - half
