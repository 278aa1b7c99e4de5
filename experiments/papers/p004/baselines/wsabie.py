"""WSABIE++: an embedding of instances and classes, trained on one violating class at a time.

Gupta, Bengio and Weston, "Training highly multiclass classifiers", 2014, Table 3. An instance x is
embedded as V x, a class c as β_c, and the score is f_c(x) = −‖V x − β_c‖². A step takes a random
instance of class y. Where one of the last Q violators of y still violates, b − f_y + f_c > 0, the
instance is left out: with Q > 0 pairs that are hard to tell apart are not learnt on. Else classes are
drawn until one violates, at most m times; it becomes the newest of the Q violators, or they are
forgotten where none was found. The loss b − f_y + f_c then falls by a step of AdaGrad, with one sum
of squares for each class and for each row of V.

The problem is not convex and has no C: the stepsize takes its place. The margin b is set to
MARGIN m' ‖x‖² for an embedding of m' dimensions, a hundredth of ‖V x‖² at the start.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import _data
from experiments.papers.p004.baselines._base import Fitted

MARGIN = 0.01
PASSES = 30  # passes, each over n random instances


class State(NamedTuple):
    """V [d, m'], β [m, m'], their sums of squares [m'] and [m], the last violators [m, Q] (−1: none)."""

    V: jax.Array
    beta: jax.Array
    V_squares: jax.Array
    beta_squares: jax.Array
    violators: jax.Array


@dataclasses.dataclass(frozen=True)
class Wsabie:
    """WSABIE++.

    Attributes:
        dimension: of the embedding; None for the number of classes.
        queue: Q.
        grid: of stepsizes.
        passes: number of steps over n.
        seed: of the start and of the steps.
    """

    dimension: int | None = None
    queue: int = 0
    grid: tuple[float, ...] = (0.01, 0.1, 1.0)
    passes: int = PASSES
    seed: int = 0

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """See :class:`experiments.papers.p004.baselines.Method`; C is the stepsize, `start` is not used."""
        y = np.asarray(y)
        m = int(y.max()) + 1
        indices, values = _data.padded(X)
        rng = np.random.default_rng(self.seed)
        state = init(X.shape[1], m, self.dimension or m, self.queue, rng, X.dtype)
        margin = MARGIN * state.V.shape[1] * np.square(values).sum(axis=1).mean()
        numbers = (np.asarray(v, X.dtype) for v in (C, margin))
        drawn = draw(rng, self.passes * len(y), len(y), X.dtype)
        state = train(indices, values, y, state, drawn, *numbers)
        V, beta = np.asarray(state.V), np.asarray(state.beta)
        # f up to ‖V x‖²
        bias = -np.square(beta).sum(axis=1)
        return Fitted(lambda X: 2 * np.asarray(X @ V) @ beta.T + bias, np.nan, None)


def init(d: int, m: int, dimension: int, queue: int, rng: np.random.Generator, dtype) -> State:
    """V of random signs, β = 0."""
    arrays = (
        rng.choice(np.array([-1, 1], dtype), (d, dimension)),
        np.zeros((m, dimension), dtype),
        np.zeros(dimension, dtype),
        np.zeros(m, dtype),
        np.full((m, queue), -1, np.int32),
    )
    return State(*(jnp.array(array) for array in arrays))


def draw(rng: np.random.Generator, count: int, n: int, dtype) -> tuple[np.ndarray, ...]:
    """The random numbers of `count` steps: an instance, whether a violator is met, and which."""
    return (
        rng.integers(n, size=count, dtype=np.int32),
        rng.random(count, dtype),
        rng.random(count, dtype),
    )


@functools.partial(jax.jit, donate_argnames="state")
def train(indices, values, y, state: State, drawn, stepsize, margin) -> State:
    """A step for each of the drawn random numbers.

    Args:
        indices: of :func:`experiments._data.padded`, [n, r] or None.
        values: of :func:`experiments._data.padded`, [n, r].
        y: classes [n].
        state: the start, which is donated to the computation.
        drawn: of :func:`draw`.
        stepsize: λ.
        margin: b.
    """
    m = len(state.beta)
    dtype = values.dtype

    def body(state: State, drawn):
        i, chance, choice = drawn
        x, c = values[i], y[i]
        rows = slice(None) if indices is None else indices[i]
        z = x @ state.V[rows]
        distances = jnp.sum(jnp.square(state.beta - z), axis=1)  # −f
        violates = (margin + distances[c] - distances > 0) & (jnp.arange(m) != c)
        recent = state.violators[c]
        skipped = jnp.any((recent >= 0) & violates[recent])
        number = jnp.sum(violates).astype(dtype)
        # whether m draws out of m − 1 classes meet one of the `number` violators
        found = chance < 1 - (1 - number / (m - 1)) ** m
        place = jnp.minimum(choice * number, number - 1).astype(jnp.int32)
        other = jnp.argmax(jnp.cumsum(violates, dtype=jnp.int32) > place)  # each violating class is as likely

        # ∇β_y = 2 (β_y − z), ∇β_c = −2 (β_c − z), ∇V = 2 x (β_c − β_y)ᵀ
        learns = (found & ~skipped).astype(dtype)
        d_right = learns * 2 * (state.beta[c] - z)
        d_wrong = -learns * 2 * (state.beta[other] - z)
        d_z = learns * 2 * (state.beta[other] - state.beta[c])
        d = state.V.shape[0]
        squares = state.beta_squares.at[c].add(jnp.sum(jnp.square(d_right)) / d)
        squares = squares.at[other].add(jnp.sum(jnp.square(d_wrong)) / d)
        V_squares = state.V_squares + jnp.square(d_z) * jnp.sum(jnp.square(x)) / d
        beta = state.beta.at[c].add(-stepsize * _scaled(d_right, squares[c]))
        beta = beta.at[other].add(-stepsize * _scaled(d_wrong, squares[other]))
        V = state.V.at[rows].add(-stepsize * jnp.outer(x, _scaled(d_z, V_squares)))

        pushed = jnp.concatenate([other.astype(jnp.int32)[None], recent])[: len(recent)]
        violators = jnp.where(skipped, recent, jnp.where(found, pushed, -1))
        return State(V, beta, V_squares, squares, state.violators.at[c].set(violators)), None

    return jax.lax.scan(body, state, drawn)[0]


def _scaled(gradient, squares):
    """AdaGrad's gradient / √squares; 0 where squares is 0."""
    return gradient / jnp.sqrt(jnp.where(squares > 0, squares, 1))
