"""What the tests of projections are measured against: optimality conditions and a QP solver.

A problem is min ½‖x − b‖² + ½ρ(1ᵀx)² over one of the sets, with the numbers r, l, u, ρ and k of `Problem`.
"""

from __future__ import annotations

import contextlib
import functools
from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import nnls

from tests.support import cuda_projections
from xmcjax import projections
from xmcjax.native import twins

SETS = ("simplex", "capped_simplex", "knapsack", "topk_cone", "topk_simplex_alpha", "topk_simplex_beta")
COUPLED = ("topk_cone", "topk_simplex_alpha")
# the numbers of a problem that each set has
NUMBERS = {
    "simplex": ("r",),
    "capped_simplex": ("r", "u"),
    "knapsack": ("r", "l", "u"),
    "topk_cone": ("rho",),
    "topk_simplex_alpha": ("r", "rho"),
    "topk_simplex_beta": ("r", "rho"),
}
PATHS = ("public", "twins", "cuda")


class Problem(NamedTuple):
    """One vector, or a batch with [...] numbers; l and u are those of the fixed-bound sets."""

    b: np.ndarray
    r: np.ndarray
    l: np.ndarray
    u: np.ndarray
    rho: np.ndarray
    k: int

    def row(self, i: int) -> Problem:
        return Problem(*(field[i] for field in self[:-1]), k=self.k)

    def astype(self, dtype) -> Problem:
        return Problem(*(field.astype(dtype) for field in self[:-1]), k=self.k)

    @property
    def scale(self):
        """The size of the numbers of each vector."""
        return np.maximum(np.abs(self.b).max(-1), np.maximum(self.r, self.u))


def project(name: str, p: Problem):
    """The public function."""
    match name:
        case "simplex":
            return projections.simplex(p.b, p.r)
        case "capped_simplex":
            return projections.capped_simplex(p.b, p.r, p.u)
        case "knapsack":
            return projections.knapsack(p.b, p.r, p.l, p.u)
        case "topk_cone":
            return projections.topk_cone(p.b, p.k, p.rho)
        case _:
            return projections.topk_simplex(p.b, p.k, p.r, p.rho, name.rsplit("_")[-1])


contexts = {"public": contextlib.nullcontext, "twins": twins, "cuda": cuda_projections.kernels}


@functools.cache
def _compiled(name: str, k: int):
    return jax.jit(lambda *fields: project(name, Problem(*fields, k=k)))


def compiled(path: str, name: str, p: Problem) -> np.ndarray:
    """What runs where the native library does, path "public", or where it does not, "twins".

    Path "cuda" is by the kernels for a GPU, compiled for the CPU.
    """
    with contexts[path]():
        return np.asarray(_compiled(name, p.k if name.startswith("topk") else 1)(*p[:-1]))


def bounds(name: str, p: Problem):
    """(l, u, ρ) of a set with fixed bounds."""
    return {
        "simplex": (0.0, np.inf, 0.0),
        "capped_simplex": (0.0, p.u, 0.0),
        "knapsack": (p.l, p.u, 0.0),
        "topk_simplex_beta": (0.0, p.r / p.k, p.rho),
    }[name]


def cases(m: int, k: int, count: int, seed: int) -> Problem:
    """Random and degenerate vectors of every kind and scale, and numbers beside them."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((count, m))
    kinds = [
        normal,
        np.round(2 * normal) / 2,  # ties
        -np.abs(normal),  # all negative
        np.broadcast_to(normal[:, :1], normal.shape),  # all equal
        normal + 1e3,  # far from the origin
        np.exp(3 * normal),  # entries of very different size
        normal - 3,
        rng.integers(-1, 2, (count, m)).astype(float),
        np.zeros((count, m)),
    ]
    scale = 10.0 ** rng.integers(-6, 7, count)
    b = np.choose(rng.integers(len(kinds), size=count)[:, None], kinds)
    r = 10.0 ** rng.uniform(-2, 2, count)
    whole = rng.random(count) < 0.2
    r = np.where(whole, np.maximum(np.round(r), 1), r) * scale
    u = r * rng.choice([1 / m, 2.5 / m, 0.3, 2], count)
    u = np.maximum(u, r / m)
    l = np.where(rng.random(count) < 0.5, 0, -u / 2)
    rho = rng.choice([0, 0, 0.1, 1, 100], count)
    return Problem(b * scale[:, None], r, l, u, rho, k)


def off_by(name: str, p: Problem, x: np.ndarray) -> float:
    """By how much x misses the optimality conditions of one vector, over the size of its numbers."""
    b, r, rho, k = p.b, float(p.r), float(p.rho), p.k
    s = x.sum()
    if name in COUPLED:
        lower, upper, r = 0.0, s / k, np.inf if name == "topk_cone" else r
    else:
        lower, upper, rho = (float(number) for number in bounds(name, p))
    equal = name in ("simplex", "knapsack")
    errors = [max(lower - x.min(), x.max() - upper, 0), abs(s - r) if equal else max(s - r, 0)]
    if name in COUPLED and not x.any():
        # Lemma 4; with a radius of 0 there is no other point.
        errors.append(max(np.sort(b)[::-1][:k].sum() / k, 0) if r else 0)
        return max(errors) / p.scale
    low, high = x <= lower, x >= upper - 1e-13 * abs(upper)
    free = ~(low | high)
    # x = clip(b − t): t of the free entries, or anything between those at the bounds.
    least = (b[low] - lower).max(initial=-np.inf)
    most = (b[high] - upper).min(initial=np.inf)
    if free.any():
        t = (b - x)[free].mean()
        errors.append(np.abs((b - x)[free] - t).max())
    elif name == "topk_simplex_beta" or name == "capped_simplex":
        t = np.clip(rho * s, least, most)
    else:
        t = most if np.isfinite(most) else least
    errors += [max(least - t, 0), max(t - most, 0)]
    if not equal:
        # λ of Lemma 5 (ν/k is the part of a bound that moves with s): λ >= 0, and 0 where 1ᵀx < r.
        multiplier = t - rho * s
        if name in COUPLED:
            multiplier += (b[high] - t - upper).sum() / k
        errors.append(abs(min(multiplier, r - s)))
    return max(errors) / p.scale


def by_quadratic_program(name: str, p: Problem) -> np.ndarray:
    """Least-distance programming through non-negative least squares (Lawson and Hanson, chapter 23)."""
    b, r, rho, k, m = p.b, float(p.r), float(p.rho), p.k, len(p.b)
    one, eye = np.ones((1, m)), np.eye(m)
    if name in COUPLED:
        G, h = [eye, one / k - eye], [np.zeros(m), np.zeros(m)]
        if name != "topk_cone":
            G, h = [*G, -one], [*h, [-r]]
    else:
        lower, upper, rho = (float(number) for number in bounds(name, p))
        G, h = [eye, -one], [np.full(m, lower), [-r]]
        if np.isfinite(upper):
            G, h = [*G, -eye], [*h, np.full(m, -upper)]
        if name in ("simplex", "knapsack"):
            G, h = [*G, one], [*h, [r]]
    # ½‖x − b‖² + ½ρ(1ᵀx)² = ½‖Rx − R⁻ᵀb‖² + …, with RᵀR = I + ρ11ᵀ
    R = np.linalg.cholesky(eye + rho * np.ones((m, m))).T
    y = np.linalg.solve(R.T, b)
    A = np.linalg.solve(R.T, np.vstack(G).T).T
    E = np.vstack([A.T, np.concatenate(h) - A @ y])
    f = np.zeros(m + 1)
    f[-1] = 1
    residual = E @ nnls(E, f, maxiter=1000 * m)[0] - f
    return np.linalg.solve(R, y - residual[:-1] / residual[-1])


def weighted_by_breakpoints(b, r, l, u, w) -> np.ndarray:
    """min ½‖x − b‖² with wᵀx = r, l <= x <= u: the piece between two breakpoints of t on which wᵀx is r."""

    def x_of(t):
        return np.clip(b - t * w, l, u)

    def off(t):
        return w @ x_of(t) - r

    weighted = w != 0
    breaks = np.sort(np.concatenate([((b - bound)[weighted] / w[weighted]) for bound in (l, u)]))
    values = np.array([off(t) for t in breaks])  # they fall
    after = int(np.clip(np.searchsorted(-values, 0), 1, len(breaks) - 1))
    low, high = breaks[after - 1], breaks[after]
    share = (
        values[after - 1] / (values[after - 1] - values[after]) if values[after - 1] > values[after] else 0.0
    )
    return x_of(low + share * (high - low))
