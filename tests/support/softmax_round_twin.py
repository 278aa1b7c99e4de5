"""The twin of softmax_round (native/softmax/simd_softmax.cc) in plain JAX, one row after another."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.native.ref import solve_rows


def softmax_round(X, weight, squared_norms, bias, order, l2, W, log_p):
    """A round of dual ascent on dense rows X [n, d]: (W, log P, counts)."""
    n, classes = log_p.shape
    dtype = W.dtype

    def visit(W, log_p, i, chosen):
        """The chosen classes of a row made optimal; unchanged where its equations were not solved."""
        x, s = X[i], weight[i] * squared_norms[i] / l2
        old = jnp.where(chosen, jnp.exp(log_p[i]), 0)
        total = jnp.where(jnp.all(chosen), 1, jnp.sum(old)).astype(dtype)
        t = x @ W + bias + s * old
        u, steps = solve_rows(t[None], s[None], total[None], log_p[i][None], chosen[None])
        u, steps = u[0], steps[0]
        good = (steps > 0) & (weight[i] > 0)
        new = jnp.where(chosen, jnp.exp(u), 0)
        change = jnp.where(good, old - new, 0)
        W = W + weight[i] / l2 * x[:, None] * change[None, :]
        log_p = log_p.at[i].set(jnp.where(good & chosen, u, log_p[i]))
        return W, log_p, jnp.where(weight[i] > 0, steps, 0), jnp.sum(jnp.abs(change))

    def full(k, carry):
        W, log_p, listed, steps, skipped = carry
        i = order[k]
        W, log_p, made, _ = visit(W, log_p, i, jnp.ones(classes, bool))
        # s p > 1: the coupling through W outweighs the entropy
        level = l2 / jnp.where(squared_norms[i] > 0, weight[i] * squared_norms[i], 1)
        large = (jnp.exp(log_p[i]) >= level) & (squared_norms[i] > 0) & (made > 0)
        listed = listed.at[i].set(large & (jnp.sum(large) > 1))
        lost = (made == 0) & (weight[i] > 0)
        return W, log_p, listed, steps + made, skipped + lost.astype(jnp.int32)

    empty = jnp.zeros((n, classes), bool)
    carry = (W, log_p, empty, jnp.int32(0), jnp.int32(0))
    W, log_p, listed, steps, skipped = jax.lax.fori_loop(0, n, full, carry)
    pairs = jnp.sum(listed, dtype=jnp.int32)
    most = (n * classes / (18 * jnp.maximum(pairs, 1))).astype(jnp.int32)

    def epoch(carry):
        W, log_p, count, first, _ = carry

        def one(k, carry):
            W, log_p, sum_ = carry
            i = order[k]
            now = visit(W, log_p, i, listed[i])
            moves = jnp.any(listed[i])
            return (
                jnp.where(moves, now[0], W),
                jnp.where(moves, now[1], log_p),
                sum_ + jnp.where(moves, now[3], 0),
            )

        W, log_p, change = jax.lax.fori_loop(0, n, one, (W, log_p, jnp.zeros((), dtype)))
        first = jnp.where(first < 0, change, first)
        return W, log_p, count + 1, first, change <= 0.05 * first

    def unfinished(carry):
        return (pairs > 0) & (carry[2] < most) & ~carry[4]

    carry = (W, log_p, jnp.int32(0), -jnp.ones((), dtype), jnp.asarray(False))
    W, log_p, count, _, _ = jax.lax.while_loop(unfinished, epoch, carry)
    return W, log_p, jnp.stack([pairs, count, steps.astype(jnp.int32), skipped.astype(jnp.int32)])
