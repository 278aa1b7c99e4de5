"""The twins of the C++ products in plain JAX, for machines and devices without them.

The entries come in chunks (``value``, ``column`` and ``row`` are [chunks, chunk], padded with
zero values), so that a product holds one [chunk, B] array at a time and never [nnz, B].
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from xmcjax.native._ffi import varying_like


# Outside jit, a loop whose body is a new function is compiled at every call.
@functools.partial(jax.jit, static_argnums=4)
def csr_matmat(value, column, row, V, n: int):
    """X V, [n, B]."""
    V = jnp.asarray(V)  # traced indices cannot index an array of NumPy
    nothing = jnp.zeros((n, V.shape[1]), value.dtype)
    if 0 in (n, V.shape[0]):  # there is no row, or no column, for an entry
        return nothing

    def add(out, entries):
        value, column, row = entries
        return out.at[row].add(value[:, None] * V[column]), None

    out, _ = jax.lax.scan(add, varying_like(nothing, (value, V)), (value, column, row))
    return out


def csr_rmatmat(value, column, row, C, d: int):
    """Xᵀ C, [d, B]."""
    return csr_matmat(value, row, column, C, d)


def csr_gram_matmat(value, column, row, D, V, n: int):
    """Xᵀ(D ∘ (X V)), [d, B]."""
    return csr_rmatmat(value, column, row, D * csr_matmat(value, column, row, V, n), V.shape[0])


def solve_rows(t, s, total, u, chosen, add=lambda x: x):
    """Solves log p + s p = t − ν, Σ p = total in each row, over its chosen entries.

    By Newton's method in p and ν together; see solve_row of native/softmax/simd_softmax.cc.

    Args:
        t: [n, K].
        s: [n].
        total: [n].
        u: log p to start from, [n, K].
        chosen: bool [n, K].
        add: the sum over the devices that share a row.

    Returns:
        (log p, number of steps of each row; 0 for a row that was not solved).
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
