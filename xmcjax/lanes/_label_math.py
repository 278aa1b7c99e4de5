"""What a certificate of a label is made of: derivatives of a loss, sums of a penalty, and bounds."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import native
from xmcjax.losses import MarginLoss
from xmcjax.penalties import Penalty

#: Rounding error of a term of a bound, relative to the absolute values of its summands.
TERM_ROUNDING = 4 * float(np.finfo(np.float64).eps)
# Steps of the ternary search in `shrunk`, each of which cuts a third off the interval.
_THIRDS = 80
# Halvings of the interval of a bias.
_BISECTIONS = 200
# Margins whose losses are worked out at once, so that one program serves any number of them.
_AT_ONCE = 64


@functools.partial(jax.jit, static_argnames=("loss", "penalty"))
def shrunk(loss: MarginLoss | None, penalty: Penalty, terms, u, c, v, s, r):
    """The largest −Σ c φ*(ρ u) − R*(−ρ v) − (r R)*(−ρ s) for 0 ≤ ρ ≤ 1, which is concave in ρ.

    Args:
        loss: None where φ* is not known: then −φ*(ρ u) ≥ −ρ φ*(u) is used, which holds since φ ≥ 0.
        penalty: R.
        terms: at most −Σ c φ*(u).
        u, c: slopes and weights of the losses, [n].
        v, s: Σ c u y x, [d], and Σ c u y, which is 0 where r is.
        r: of the bias.
    """

    def bound(rho):
        of_bias = jnp.where(r > 0, penalty.conjugate(rho * s, jnp.where(r > 0, r, 1.0)), 0.0)
        of_losses = rho * terms
        if loss is not None:
            values = loss.conjugate(rho * u)
            values = jnp.where(c > 0, c * (values + TERM_ROUNDING * (jnp.abs(values) + jnp.abs(u))), 0.0)
            of_losses = jnp.maximum(of_losses, -jnp.sum(values))
        return of_losses - jnp.sum(penalty.conjugate(rho * v, 1.0)) - of_bias

    def third(_, interval):
        low, high = interval
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        falls = bound(left) >= bound(right)  # also where both are −∞
        return jnp.where(falls, low, left), jnp.where(falls, right, high)

    low, _ = jax.lax.fori_loop(0, _THIRDS, third, (jnp.zeros_like(terms), jnp.ones_like(terms)))
    return jnp.maximum(bound(low), bound(jnp.ones_like(terms)))


@functools.partial(jax.jit, static_argnames="penalty")
def _sum_of(penalty: Penalty, w):
    return jnp.sum(penalty.value(w))


def sum_of(penalty: Penalty, w: np.ndarray, lam: float) -> float:
    """λ Σ ρ(w)."""
    return lam * float(_sum_of(penalty, w))


@functools.partial(jax.jit, static_argnames="penalty")
def violation(penalty: Penalty, g, w, lam):
    """The element of ∂(λ ρ) + g that is nearest to 0."""
    return penalty.violation(g, w, lam)


@functools.partial(jax.jit, static_argnames="loss")
def _derivatives(loss: MarginLoss, z, y):
    return loss.score_value(z, y), loss.score_grad(z, y), loss.score_curv(z, y)


def derivatives(loss: MarginLoss, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """φ and its first two derivatives in the scores, [n], of the type of the scores.

    They come from the loss's C++ kernel where it has one, which need not be compiled for a number of rows.
    """
    if loss.native is None or not native.available():
        return tuple(np.asarray(part) for part in _derivatives(loss, z, y))
    value, slope, curvature = (np.empty_like(z) for _ in range(3))
    made = dict(value=value, slope=slope, curvature=curvature)
    native.InPlace.once("lane_losses", z=z, y=y, loss=loss.native, loss_parameter=loss.parameter, **made)
    return value, slope, curvature


def balanced(loss: MarginLoss, z: np.ndarray, y: np.ndarray, c: np.ndarray) -> float:
    """β with Σ c ∂φ(z + β)/∂z = 0, by bisection."""
    # slopes of the logistic loss vanish within 800
    high = float(np.max(np.abs(z))) + 800
    low = -high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        slope = derivatives(loss, z + middle, y)[1]
        low, high = (middle, high) if float(c @ slope) < 0 else (low, middle)  # the minimum lies above
    return (low + high) / 2


def of_margins(loss: MarginLoss, margins) -> tuple[np.ndarray, np.ndarray]:
    """φ and φ' of some margins, [k], in float32."""
    margins = np.asarray(margins, np.float32)
    filled = np.zeros(max(1, -(-len(margins) // _AT_ONCE)) * _AT_ONCE, np.float32)
    filled[: len(margins)] = margins
    parts = [derivatives(loss, part, np.ones_like(part)) for part in filled.reshape(-1, _AT_ONCE)]
    value, slope, _ = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return value[: len(margins)], slope[: len(margins)]


def of_bias(loss: MarginLoss, biases, positive, negative, r: float) -> np.ndarray:
    """p φ(b) + n φ(−b) + ½ r b², the objective of labels without weights, [k].

    Args:
        biases: b, [k].
        positive, negative: p and n, the weights of the losses of all rows with target +1 and −1, [k].
        r: of the bias.
    """
    b = np.asarray(biases, np.float64)
    right, wrong = of_margins(loss, np.concatenate([b, -b]))[0].reshape(2, -1).astype(np.float64)
    return positive * right + negative * wrong + max(r, 0.0) / 2 * b * b
