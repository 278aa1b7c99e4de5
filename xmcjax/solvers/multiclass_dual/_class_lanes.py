"""An epoch with the classes as lanes: Lee-Lin-Wahba and one against the rest.

Alber et al. 2017 (paper 001), Algorithms 1 and 2. Given w̄ the dual falls apart into one problem a
class, so that all classes visit an instance side by side: its row is read once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xmcjax.solvers.multiclass_dual._formulations import LeeLinWahba
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem

# w̄ is brought up to date after each tenth of an epoch.
PARTS = 10


def epoch(problem: MulticlassProblem, W, alpha, active, key, tolerance):
    """Visits every instance once, in random order.

    Args:
        problem: of n instances and m classes.
        W: [d, m]; of Lee-Lin-Wahba with Σ_c w_c = 0, and so it comes back.
        alpha: [n, m].
        active: bool [n, m], the dual variables that take part.
        key: of the order.
        tolerance: a variable stays as it is where its |projected gradient| is no larger.

    Returns:
        W and alpha.
    """
    formulation, n, C = problem.formulation, problem.y.shape[0], problem.C
    ridge = formulation.ridge(C)
    order = jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32))
    part = -(-n // PARTS)
    order = jnp.pad(order, (0, PARTS * part - n), constant_values=n).reshape(PARTS, part)

    def visit(carry, i):
        W, alpha = carry
        inside, i = i < n, jnp.minimum(i, n - 1)
        row, a = problem.rows.take(i), alpha[i]
        own = jnp.arange(problem.classes, dtype=problem.y.dtype) == problem.y[i]
        gains = formulation.gains(row.dot(W)[None, :], own[None, :])
        violation = formulation.violation(gains, a[None, :], own[None, :], C)[0]
        # δ = clip((g − ρ α) / (k + ρ), −α, C − α); a row of zeros goes to the bound
        curvature = problem.norms2[i] + ridge
        steepest = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), C)
        new = jnp.clip(a + (gains[0] - ridge * a) * steepest, 0, formulation.upper(C))
        new = jnp.where(inside & active[i] & (violation > tolerance), new, a)
        # the sign of a class in its own coefficient: −1, or +1 for the true class of one-vs-rest
        sign = jnp.where(own & formulation.exists(own), 1, -1).astype(W.dtype)
        W = row.add(W, sign * (new - a))
        return (W, alpha.at[i].set(new)), None

    def tenth(carry, instances):
        (W, alpha), _ = jax.lax.scan(visit, carry, instances)
        if isinstance(formulation, LeeLinWahba):
            W = W - jnp.mean(W, axis=1, keepdims=True)
        return (W, alpha), None

    (W, alpha), _ = jax.lax.scan(tenth, (W, alpha), order)
    return W, alpha
