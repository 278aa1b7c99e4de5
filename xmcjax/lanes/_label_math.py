"""What a certificate of a label is made of, compiled: derivatives of a loss, sums of a penalty, bounds."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.losses import MarginLoss
from xmcjax.penalties import Penalty

#: Rounding of a term of a bound, relative to the sizes of what it is made of.
TERM_ROUNDING = 4 * float(np.finfo(np.float64).eps)
# Of an interval, of which a third goes each time.
_THIRDS = 80
# Halvings of the interval of a bias.
_BISECTIONS = 200
# Margins whose losses are worked out at once, so that one program serves any number of them.
_AT_ONCE = 64


@functools.partial(jax.jit, static_argnames=("loss", "penalty"))
def shrunk(loss: MarginLoss | None, penalty: Penalty, terms, u, c, v, s, r):
    """The largest −Σ c φ*(ρ u) − R*(−ρ v) − (r R)*(−ρ s) for 0 ≤ ρ ≤ 1, which is concave in ρ.

    Args:
        loss: None where φ* is not known: −φ*(ρ u) ≥ −ρ φ*(u) then, since φ ≥ 0.
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
        falls = bound(left) >= bound(right)  # −∞ for both, too
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
def derivatives(loss: MarginLoss, z, y):
    """φ and its first two derivatives in the scores."""
    return loss.score_value(z, y), loss.score_grad(z, y), loss.score_curv(z, y)


@functools.partial(jax.jit, static_argnames="loss")
def balanced(loss: MarginLoss, z, y, c):
    """β with Σ c ∂φ(z + β)/∂z = 0, by bisection."""
    # slopes of the logistic loss vanish within 800
    reach = jnp.max(jnp.abs(z)) + 800

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        rises = jnp.sum(c * loss.score_grad(z + middle, y)) < 0  # the minimum lies above
        return jnp.where(rises, middle, low), jnp.where(rises, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (-reach, reach))
    return (low + high) / 2


@functools.partial(jax.jit, static_argnames="loss")
def _of_margins(loss: MarginLoss, m):
    return loss.value(m), loss.grad(m)


def of_margins(loss: MarginLoss, margins) -> tuple[np.ndarray, np.ndarray]:
    """φ and φ' of some margins, [k], in float32."""
    margins = np.asarray(margins, np.float32)
    filled = np.zeros(-(-len(margins) // _AT_ONCE) * _AT_ONCE, np.float32)
    filled[: len(margins)] = margins
    parts = [_of_margins(loss, part) for part in filled.reshape(-1, _AT_ONCE)]
    value, slope = (np.concatenate([np.asarray(a) for a in arrays]) for arrays in zip(*parts, strict=True))
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
