"""Label sequences: a conditional random field whose label scores are class functions of a kernel.

Lafferty, Zhu and Liu, "Kernel conditional random fields", 2004; announced in section 7.1 of Seeger 2006. The
labels of a sequence x_1 … x_T have

    log P(y | u) = Σ_t u_{t,y_t} + Σ_{t>1} A_{y_{t−1}, y_t} − log Z,

with transition scores A, [C, C]. The forward recursion gives log Z in place of the log-sum-exp of single
points; its derivative in u, the backward recursion, gives the marginals, and their derivative
the products with the Hessian.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import instance, number
from xmcjax._fork import methods_need_threads_of_jax, needs_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax.kernels import ClassKernels
from xmcjax.linops import real_array
from xmcjax.solvers._lbfgs import Minimised, check_limits, minimise
from xmcjax.solvers.kernel_multinomial._likelihoods import OfTargets
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, kernel_problem
from xmcjax.solvers.kernel_multinomial._run import run
from xmcjax.solvers.kernel_multinomial._state import State, init
from xmcjax.solvers.kernel_multinomial._systems import HParams


@methods_need_threads_of_jax
@pytree(data_fields=["y", "transitions", "places"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Chains(OfTargets):
    """The likelihood of S label sequences, made by :func:`chain_problem`.

    Rows of a sequence stand one after the other and have one weight in common. The loss of a sequence is
    counted at its first row; the other rows have a loss of 0.

    Attributes:
        y: classes, 0 and 1, [n, C, 1].
        transitions: A, [C, C], from the class before to the one after.
        places: rows of each sequence, [S, longest]; n beyond its end.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import chain_problem
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> chains = chain_problem(family, [0, 1, 1], lengths=[2, 1], transitions=np.zeros((2, 2))).likelihood
        >>> labellings = np.exp(chains.partition(jnp.zeros((3, 2, 1))))  # Z, where all have the score 0
        >>> labellings.ravel().round().tolist()
        [4.0, 2.0]
    """

    y: jax.Array
    transitions: jax.Array
    places: jax.Array

    def partition(self, u: jax.Array) -> jax.Array:
        """log Z, [S, B]."""
        inside = self.places < u.shape[0]
        steps = jnp.moveaxis(_gather(u, self.places), 1, 0)  # [longest, S, C, B]

        def forward(a, step):
            score, inside = step
            # a_t(c) = u_tc + log Σ_b e^{a_{t−1}(b) + A_bc}
            after = score + jax.nn.logsumexp(a[:, :, None] + self.transitions[None, :, :, None], axis=1)
            return jnp.where(inside[:, None, None], after, a), None

        last, _ = jax.lax.scan(forward, steps[0], (steps[1:], inside.T[1:]))
        return jax.nn.logsumexp(last, axis=1)

    def scores(self, u: jax.Array) -> jax.Array:
        """Σ u_{t,y_t} + Σ A_{y_{t−1}, y_t} of the labels given, [S, B]."""
        y = _gather(self.y, self.places)[..., 0]  # [S, longest, C]
        pairs = jnp.einsum("stb,bc,stc->s", y[:, :-1], self.transitions, y[:, 1:], precision="highest")
        return jnp.sum(_gather(self.y * u, self.places), axis=(1, 2)) + pairs[:, None]

    def losses(self, u: jax.Array) -> jax.Array:
        losses = self.partition(u) - self.scores(u)
        return jnp.zeros((u.shape[0], u.shape[2]), u.dtype).at[self.places[:, 0]].set(losses)

    def probabilities(self, u: jax.Array) -> jax.Array:
        # marginals: ∂ log Z / ∂u
        return jax.grad(lambda u: jnp.sum(self.partition(u)))(u)

    def curvature(self, u: jax.Array, pi: jax.Array) -> Callable[[jax.Array], jax.Array]:
        return jax.linearize(self.probabilities, u)[1]


class FittedChains(NamedTuple):
    """What :func:`fit_chains` ends with.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import chain_problem, fit_chains
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [0.0], [0.0], [0.0]])), 1.0, 0.1, 2)
        >>> problem = chain_problem(family, [0, 1, 0, 1], [4], np.zeros((2, 2)))
        >>> found = fit_chains(problem, HParams(), variance=1.0)
        >>> A = found.problem.likelihood.transitions
        >>> isinstance(found, FittedChains), bool(A[0, 1] > A[0, 0])  # the other class follows a class
        (True, True)
    """

    problem: KernelProblem  #: with the transitions that were learnt
    state: State
    search: Minimised


@needs_threads_of_jax
def chain_problem(kernel: ClassKernels, y, lengths, transitions, weight=None) -> KernelProblem:
    """The problem of label sequences.

    Args:
        kernel: K̃ of the n points of all sequences, one after the other.
        y: class of each point, [n].
        lengths: of the sequences, [S], from 1; their sum is n.
        transitions: A, [C, C].
        weight: of the sequences, [S] or [S, B], ≥ 0; 1 by default.

    Raises:
        ValueError: shapes that do not match, or lengths that do not sum to n.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import chain_problem, init, run
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [2.0]])), 1.0, 0.1, 2)
        >>> problem = chain_problem(family, [0, 1, 1], lengths=[2, 1], transitions=np.zeros((2, 2)))
        >>> run(problem, HParams(), init(problem)).u.shape
        (3, 2, 1)
    """
    n, C, dtype = kernel.n, kernel.n_classes, kernel.dtype
    y, lengths = _sparse.array(y, "y"), _checked_lengths(lengths, n)
    if y.shape != (n,) or y.dtype.kind not in "iu":
        raise ValueError(f"y: expected classes [{n}] as whole numbers, got {y.dtype} {list(y.shape)}")
    if (outside := y[(y < 0) | (y >= C)]).size:
        raise ValueError(f"y: expected classes from 0 to {C - 1}, found {outside[0]}")
    transitions = jnp.asarray(real_array("transitions", transitions, finite=True), dtype)
    if transitions.shape != (C, C):
        raise ValueError(f"transitions: expected [{C}, {C}], got {list(transitions.shape)}")
    S = len(lengths)
    weight = np.ones((S, 1)) if weight is None else real_array("weight", weight, finite=True)
    weight = weight[:, None] if weight.ndim == 1 else weight
    if weight.ndim != 2 or len(weight) != S:
        raise ValueError(f"expected weights of sequences [{S}] or [{S}, lanes], got {list(weight.shape)}")
    target = (y[:, None] == np.arange(C))[..., None]
    chains = Chains(jnp.asarray(target, dtype), transitions, jnp.asarray(_places(lengths), jnp.int32))
    return kernel_problem(kernel, None, np.repeat(weight, lengths, axis=0), likelihood=chains)


def _checked_lengths(lengths, n: int) -> np.ndarray:
    """Lengths of sequences of n points, in 64 bits; ValueError where they are not such lengths."""
    lengths = _sparse.array(lengths, "lengths")
    whole = lengths.ndim == 1 and lengths.dtype.kind in "iu"
    if not whole or lengths.min(initial=1) < 1 or lengths.sum() != n:
        raise ValueError(f"lengths: expected whole numbers from 1 that sum to {n}, got {lengths}")
    return lengths.astype(np.int64)  # places are counted with them


@needs_threads_of_jax
def fit_chains(
    problem: KernelProblem, hp: HParams, variance: float, *, tolerance: float = 1e-4, max_iter: int = 100
) -> FittedChains:
    """Class functions and transition scores together: min over A of min_α Φ(α, A) + ‖A‖² / (2 variance).

    The minimum over α is convex in A, and its derivative is that of Φ at fixed α.

    Args:
        problem: of :func:`chain_problem`, one lane; its transitions are the start.
        hp: limits and tolerances of the fits.
        variance: of the prior of A, above 0.
        tolerance: the search ends when min(1, √variance) ‖∂/∂A‖∞ ≤ tolerance times the value.
        max_iter: most iterations.

    Raises:
        TypeError: a problem of anything but label sequences, or hyperparameters of another solver.
        ValueError: a variance that is not above 0, or a problem of several lanes.

    Example:
        >>> from xmcjax.kernels import RBF, class_kernels, gram, points
        >>> from xmcjax.solvers.kernel_multinomial import chain_problem, fit_chains, most_likely
        >>> family = class_kernels(gram(RBF(1.0), points([[0.0], [1.0], [0.0], [1.0]])), 1.0, 0.1, 2)
        >>> problem = chain_problem(family, [0, 1, 0, 1], [4], np.zeros((2, 2)))
        >>> found = fit_chains(problem, HParams(), variance=1.0)
        >>> u = np.asarray(found.state.u)[..., 0]
        >>> most_likely(u, [4], found.problem.likelihood.transitions).tolist()
        [0, 1, 0, 1]
    """
    if not number("variance", variance) > 0:
        raise ValueError(f"variance: expected a number above 0, got {variance}")
    check_limits(tolerance, max_iter)
    chains = instance("problem", problem, KernelProblem).likelihood
    if not isinstance(chains, Chains):
        found = type(chains).__name__
        raise TypeError(f"problem: expected label sequences, as chain_problem makes them, got {found}")
    instance("hp", hp, HParams)
    n, C, _ = chains.shape
    if (lanes := problem.weight.shape[1]) != 1:
        raise ValueError(f"problem: expected one lane, whose transitions are learnt, got {lanes}")
    dtype = problem.kernel.dtype
    state = init(problem, jnp.zeros((n, C, 1), dtype))

    # The search is for A / scale, in which the prior of a small variance has a curvature of 1.
    scale = min(1.0, math.sqrt(variance))

    def at(x):
        moved = dataclasses.replace(chains, transitions=jnp.asarray(scale * x.reshape(C, C), dtype))
        return dataclasses.replace(problem, likelihood=moved)

    def value_and_gradient(x):
        nonlocal state
        moved = at(x)
        state = run(moved, hp, init(moved, state.alpha))
        slope = np.asarray(_transition_slope(moved.likelihood, moved.weight, state.u), np.float64)
        A = scale * x
        return float(state.value[0]) + A @ A / (2 * variance), scale * (slope.ravel() + A / variance)

    start = np.asarray(chains.transitions, np.float64).ravel() / scale
    rounding = 100 * float(jnp.finfo(dtype).eps)
    found = minimise(value_and_gradient, start, tolerance=tolerance, max_iter=max_iter, rounding=rounding)
    best = at(found.x)
    return FittedChains(best, run(best, hp, init(best, state.alpha)), found)


def most_likely(u, lengths, transitions) -> np.ndarray:
    """The likeliest labels of sequences by the Viterbi algorithm, [n].

    Args:
        u: class functions at their points, [n, C].
        lengths: of the sequences, [S].
        transitions: A, [C, C].

    Raises:
        TypeError: what is no array of real numbers, or lengths that are no whole numbers.
        ValueError: shapes that do not match, numbers that are not finite, lengths that do not sum to n.

    Example:
        >>> most_likely([[2.0, 0.0], [0.4, 0.5]], [2], [[1.0, 0.0], [0.0, 1.0]]).tolist()
        [0, 0]
    """
    u, lengths, transitions = _checked_scores(u, lengths, transitions)
    labels, first = np.empty(len(u), int), 0
    for length in lengths:
        score, back = u[first], []
        for t in range(first + 1, first + length):
            through = score[:, None] + transitions
            back.append(through.argmax(axis=0))
            score = u[t] + through.max(axis=0)
        label = int(score.argmax())
        labels[first + length - 1] = label
        for t in range(length - 2, -1, -1):
            label = back[t][label]
            labels[first + t] = label
        first += length
    return labels


@needs_threads_of_jax
def marginals(u, lengths, transitions) -> np.ndarray:
    """P(y_t = c | u) of every position of sequences by the forward and backward recursions, [n, C].

    Args:
        u: class functions at their points, [n, C].
        lengths: of the sequences, [S].
        transitions: A, [C, C].

    Raises:
        TypeError: what is no array of real numbers, or lengths that are no whole numbers.
        ValueError: shapes that do not match, numbers that are not finite, lengths that do not sum to n.

    Example:
        >>> A = [[5.0, 0.0], [0.0, 5.0]]  # a class mostly follows itself
        >>> marginals([[2.0, 0.0], [0.0, 0.0]], lengths=[2], transitions=A).astype(float).round(2).tolist()
        [[0.88, 0.12], [0.88, 0.12]]
    """
    u, lengths, transitions = _checked_scores(u, lengths, transitions)
    if not len(u):
        return np.zeros(u.shape)
    scores = jnp.asarray(u[..., None], jax.dtypes.canonicalize_dtype(np.result_type(u, np.float32)))
    places = jnp.asarray(_places(lengths), jnp.int32)
    chains = Chains(jnp.zeros_like(scores), jnp.asarray(transitions, scores.dtype), places)
    return np.asarray(_marginals(chains, scores))[..., 0]


def _checked_scores(u, lengths, transitions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arguments of :func:`most_likely` and :func:`marginals`; TypeError or ValueError of wrong ones."""
    u = np.asarray(real_array("u", u, finite=True))
    transitions = np.asarray(real_array("transitions", transitions, finite=True))
    if u.ndim != 2 or transitions.shape != (u.shape[1], u.shape[1]):
        raise ValueError(
            f"expected u [n, C] and transitions [C, C], got {list(u.shape)} and {list(transitions.shape)}"
        )
    return u, _checked_lengths(lengths, len(u)), transitions


@jax.jit
def _marginals(chains: Chains, u) -> jax.Array:
    return chains.probabilities(u)


@jax.jit
def _transition_slope(chains: Chains, weight, u) -> jax.Array:
    def value(A):
        return jnp.sum(weight * dataclasses.replace(chains, transitions=A).losses(u))

    return jax.grad(value)(chains.transitions)


def _places(lengths: np.ndarray) -> np.ndarray:
    column = np.arange(lengths.max())
    first = np.cumsum(lengths) - lengths
    return np.where(column < lengths[:, None], first[:, None] + column, lengths.sum())


def _gather(rows: jax.Array, places: jax.Array) -> jax.Array:
    return jnp.take(rows, places, axis=0, mode="fill", fill_value=0)
