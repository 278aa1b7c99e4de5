"""The twins of the C++ products in plain JAX, for machines and devices without them.

The entries come in chunks (``value``, ``column`` and ``row`` are [chunks, chunk], padded with
zero values), so that a product holds one [chunk, B] array at a time and never [nnz, B].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def csr_matmat(value, column, row, V, n: int):
    """X V, [n, B]."""
    V = jnp.asarray(V)  # an array of NumPy cannot be looked up by what is traced

    def add(out, entries):
        value, column, row = entries
        return out.at[row].add(value[:, None] * V[column]), None

    out, _ = jax.lax.scan(add, jnp.zeros((n, V.shape[1]), value.dtype), (value, column, row))
    return out


def csr_rmatmat(value, column, row, C, d: int):
    """Xᵀ C, [d, B]."""
    return csr_matmat(value, row, column, C, d)


def csr_gram_matmat(value, column, row, D, V, n: int):
    """Xᵀ(D ∘ (X V)), [d, B]."""
    return csr_rmatmat(value, column, row, D * csr_matmat(value, column, row, V, n), V.shape[0])


def softmax_round(X, weight, squared_norms, bias, order, l2, W, log_p):
    """A round of dual ascent on dense rows X [n, d]: (W, log P, counts); see native/softmax/simd_softmax.cc.

    One row after another: for tests, not for speed.
    """
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


def solve_rows(t, s, total, u, chosen, add=lambda x: x):
    """log p + s p = t − ν, Σ p = total in each row, over its chosen entries.

    Newton's method in p and ν together; see solve_row of native/softmax/simd_softmax.cc.

    Args:
        t: [n, K].
        s: [n].
        total: [n].
        u: log p to start from, [n, K].
        chosen: bool [n, K].
        add: the sum over the devices that share a row.

    Returns:
        (log p, steps of each row; 0 where it was not solved).
    """
    s, total = s[:, None], total[:, None]

    def sums(*arrays):
        return add(jnp.stack([jnp.sum(a, axis=1) for a in arrays]))[..., None]

    def unfinished(carry):
        *_, done, count = carry
        return ~jnp.all(done) & (count < 60)

    def step(carry):
        u, p, steps, done, count = carry
        share = p / (1 + s * p)
        drift = jnp.where(chosen, share * (t - u - s * p), 0)
        mass, drift, slope = sums(p, drift, share)
        nu = (mass + drift - total) / slope
        change = jnp.where(chosen, (t - nu - u - s * p) / (1 + s * p), 0)
        following = jnp.where(chosen, jnp.minimum(u + change, jnp.log(total)), u)
        now = jnp.where(chosen, jnp.exp(following), 0)
        (distance,) = sums((p + now) * jnp.abs(change))
        u, p = jnp.where(done, u, following), jnp.where(done, p, now)
        steps = steps + jnp.where(done, 0, 1)
        return u, p, steps, done | (distance <= 0.01 * total), count + 1

    p = jnp.where(chosen, jnp.exp(u), 0)
    none = jnp.zeros(total.shape, bool)
    carry = (u, p, none.astype(jnp.int32), none, jnp.int32(0))
    u, p, steps, done, _ = jax.lax.while_loop(unfinished, step, carry)
    (mass,) = sums(p)
    return jnp.where(chosen, u + jnp.log(total / mass), u), jnp.where(done, steps, 0)[:, 0]
