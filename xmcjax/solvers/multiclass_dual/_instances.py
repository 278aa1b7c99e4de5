"""An epoch over the instances, each with all its dual variables at once: Crammer-Singer.

Keerthi et al., "A sequential dual method for large scale multi-class linear SVMs", 2008.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.solvers.multiclass_dual._formulations import CrammerSinger
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem


def epoch(problem: MulticlassProblem, W, alpha, active, key, tolerance):
    """Visits every instance once, in random order; arguments as in ``_class_lanes.epoch``.

    An instance takes part where one of its variables is active.
    """
    formulation, n, C = problem.formulation, problem.y.shape[0], problem.C
    assert isinstance(formulation, CrammerSinger)
    order = jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32))
    taking_part = jnp.any(active, axis=1)

    def visit(carry, i):
        W, alpha = carry
        row, a = problem.rows.take(i), alpha[i][None, :]
        own = jnp.arange(problem.classes, dtype=problem.y.dtype)[None, :] == problem.y[i]
        gains = formulation.gains(row.dot(W)[None, :], own)
        violation = formulation.violation(gains, a, own, C)[0, 0]
        k = problem.norms2[i]
        # p ← Π(p + g / k) on the simplex of radius C; for a row of zeros far along the gains
        p = formulation.with_slack(a, own, C)
        p = formulation.project(p + jnp.where(k > 0, gains / jnp.where(k > 0, k, 1), 2 * C * gains), C)
        moves = taking_part[i] & (violation > tolerance)
        new = jnp.where(moves & ~own, p, a)
        u = formulation.coefficients(new - a, own)[0]
        return (row.add(W, u), alpha.at[i].set(new[0])), None

    (W, alpha), _ = jax.lax.scan(visit, (W, alpha), order)
    return W, alpha
