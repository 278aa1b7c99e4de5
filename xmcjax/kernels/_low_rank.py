"""Low-rank kernel matrices from few of their columns: incomplete Cholesky and Nystrom.

Seeger, 2006, section 7.4 and eq. 9. With the active points I and M_I = R Rᵀ,

    M ≈ Fᵀ F + diag(c),   F = R⁻¹ M_{I,·},

where incomplete Cholesky factorisation picks the point of the largest remaining diagonal in turn and
corrects the diagonal, c = diag(M) − diag(FᵀF) ≥ 0; Nystrom draws the points and has no c. The
active points stay when hyperparameters move.
"""

from __future__ import annotations

import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._arguments import name_of, whole_number
from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import is_traced, pytree
from xmcjax.kernels._factored import Factored, Factors
from xmcjax.kernels._functions import Kernel, check_columns, stack
from xmcjax.kernels._gram import cross_product
from xmcjax.kernels._points import Points, check_points, check_test_points
from xmcjax.linops import Dense

METHODS = ("cholesky", "nystrom")


@methods_need_threads_of_jax
@dataclasses.dataclass(frozen=True)
class LowRank(Factored):
    """Made by :func:`low_rank`.

    Attributes:
        active: the active points of each kernel.
        places: where they stand among the training points, [r_l] each.
        corrected: whether the diagonal is exact.

    Example:
        >>> from xmcjax.kernels import RBF, low_rank, points
        >>> print(low_rank(RBF(1.0), points([[0.0], [0.1], [2.0]]), rank=2).matrices()[0].round(2))
        [[1.   1.   0.14]
         [1.   1.   0.16]
         [0.14 0.16 1.  ]]
    """

    active: tuple
    places: tuple[jax.Array, ...]
    corrected: bool

    def made(self, kernel) -> Factors:
        return _made(kernel, self.points, self.active, self.places, corrected=self.corrected)

    def cross(self, points, S: jax.Array, between=None) -> jax.Array:
        """M⁽ˡ⁾(points, training points) S_l = M⁽ˡ⁾_{·,I} R⁻ᵀ F S_l.

        As :meth:`xmcjax.kernels.Gram.cross`, with points made by ``points(T, like=training points)``.
        """
        check_columns(S, self.n, self.count)
        check_test_points(points, self.points)
        S = S if between is None else between(S[:, 0])[:, None]
        F = self.with_derivatives().F
        out = []
        for l, (active, places) in enumerate(zip(self.active, self.places, strict=True)):
            root = _root(F[l], places)
            T = jnp.matmul(F[l], S[:, l], precision="highest")
            T = jax.scipy.linalg.solve_triangular(root, T, trans=1, lower=True)
            one = jax.tree.map(operator.itemgetter(slice(l, l + 1)), self.kernel)
            out.append(cross_product(one, points.against(places), active, T[:, None])[:, 0])
        return jnp.stack(out, axis=1)


pytree(data_fields=["kernel", "points", "factors", "active", "places"], meta_fields=["count", "corrected"])(
    LowRank
)


def low_rank(kernel: Kernel, points, rank: int, *, method: str = "cholesky", seed=0) -> LowRank:
    """A kernel on training points by `rank` of its columns.

    Args:
        kernel: its hyperparameters are numbers, or arrays [L] for L base kernels.
        points: the training points.
        rank: active points, from 1 to n; incomplete Cholesky takes fewer where no more are needed
            in this precision.
        method: "cholesky", incomplete Cholesky factorisation with the diagonal corrected; or
            "nystrom", points drawn at random.
        seed: of the draw, for :func:`numpy.random.default_rng`.

    Raises:
        TypeError: features in the place of points; points or hyperparameters that JAX traces, with
            "cholesky"; sparse points that JAX traces, with "nystrom".
        ValueError: an unknown method, a rank out of range, a hyperparameter that is not above 0.

    Example:
        >>> from xmcjax.kernels import RBF, points
        >>> made = low_rank(RBF(1.0), points([[0.0], [0.1], [2.0]]), rank=2)
        >>> print(made.factors.F[0].shape, made.matrices()[0].round(2)[0])
        (2, 3) [1.   1.   0.14]
    """
    name_of("method", method, METHODS)
    check_points(points)
    rank, seed, n = whole_number("rank", rank, 1), whole_number("seed", seed, 0), points.n
    if rank > n:
        raise ValueError(f"rank: expected from 1 to {n}, the number of points, got {rank}")
    kernel, count = stack(kernel, points.dtype)
    if method == "cholesky":
        if is_traced((kernel, points)):
            raise TypeError(
                "low_rank: expected points and hyperparameters of known numbers, found traced ones, by "
                "which incomplete Cholesky cannot pick points: call it outside jit, vmap and grad, or take "
                'method="nystrom" of dense points'
            )
        picked = [
            _pivots(jax.tree.map(lambda leaf, l=l: leaf[l], kernel), points, rank) for l in range(count)
        ]
    else:
        if isinstance(points, Points) and not isinstance(points.op, Dense) and is_traced(points):
            raise TypeError(
                "low_rank: expected dense points, or sparse ones of known numbers, found sparse ones that "
                "JAX traces, whose rows cannot be taken: call it outside jit, vmap and grad"
            )
        picked = [np.sort(np.random.default_rng(seed).permutation(n)[:rank])] * count
    places = tuple(jnp.asarray(p, jnp.int32) for p in picked)
    active = tuple(points.rows(p) for p in picked)
    corrected = method == "cholesky"
    factors = _made(kernel, points, active, places, corrected=corrected)
    return LowRank(kernel, points, factors, count, active, places, corrected)


def _root(F: jax.Array, places: jax.Array) -> jax.Array:
    """R of F = R⁻¹ M_{I,·}: F at the active points is Rᵀ, but points of length 0 have a row of 0 in F."""
    R = jnp.tril(F[:, places].T)
    return R + jnp.diag(jnp.where(jnp.diagonal(R) == 0, 1, 0).astype(R.dtype))


@functools.partial(jax.jit, static_argnames="corrected")
def _made(kernel, points, active, places, *, corrected: bool) -> Factors:
    F, c = [], []
    for l, (some, where) in enumerate(zip(active, places, strict=True)):
        one = jax.tree.map(lambda leaf, l=l: leaf[l], kernel)
        r = where.shape[0]
        columns = one.value(some.pairs(0, r, points))  # M_{I,·}, [r, n]
        M = columns[:, where]
        # where M_I is singular in this precision, its smallest eigenvalues are rounding; F is 0 where M_I is
        rounding = r * jnp.finfo(M.dtype).eps * jnp.mean(jnp.diagonal(M))
        rounding = jnp.where(rounding > 0, rounding, 1)
        root = jnp.linalg.cholesky((M + M.T) / 2 + rounding * jnp.eye(r, dtype=M.dtype))
        F.append(jax.scipy.linalg.solve_triangular(root, columns, lower=True))
        if corrected:
            c.append(jnp.maximum(one.value(points.with_themselves()) - jnp.sum(F[-1] ** 2, axis=0), 0))
    return Factors(tuple(F), tuple(c) if corrected else None)


def _pivots(kernel, points, rank: int) -> np.ndarray:
    """Points in the order of the incomplete Cholesky factorisation, as many as have a pivot."""
    order, pivots = _factorised(kernel, points, rank=rank)
    order, pivots = np.asarray(order), np.asarray(pivots)
    good = pivots > points.n * np.finfo(pivots.dtype).eps * pivots[0]
    return order[: max(1, int(np.argmin(good)) if not good.all() else rank)]


@functools.partial(jax.jit, static_argnames="rank")
def _factorised(kernel, points, *, rank: int) -> tuple[jax.Array, jax.Array]:
    diagonal = kernel.value(points.with_themselves())

    def pick(k, carry):
        left, L, order, pivots = carry  # L is [rank, n], one row per step
        place = jnp.argmax(left).astype(jnp.int32)
        pivot = left[place]
        row = kernel.value(points.pairs(place, 1, points))[0] - jnp.matmul(
            L[:, place], L, precision="highest"
        )
        row = jnp.where(pivot > 0, row / jnp.sqrt(jnp.where(pivot > 0, pivot, 1)), 0)
        left = jnp.maximum(left - row * row, 0).at[place].set(0)
        return left, L.at[k].set(row), order.at[k].set(place), pivots.at[k].set(pivot)

    n, dtype = points.n, diagonal.dtype
    start = (diagonal, jnp.zeros((rank, n), dtype), jnp.zeros(rank, jnp.int32), jnp.zeros(rank, dtype))
    _, _, order, pivots = jax.lax.fori_loop(0, rank, pick, start)
    return order, pivots
