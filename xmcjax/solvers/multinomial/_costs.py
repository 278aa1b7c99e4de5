"""What the preconditioners of `block_newton` cost, and in which form features are solved.

The unit of costs with dense features is a product with the Hessian, of 4 n K (d+1) multiplications.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from xmcjax import linops
from xmcjax.solvers.multinomial._preconditioners import rows_of_a_block
from xmcjax.solvers.multinomial._problem import Problem

# A preconditioner has at most _MOST_NUMBERS numbers and costs at most MOST_PRODUCTS products with the
# Hessian.
_MOST_NUMBERS, MOST_PRODUCTS = 1 << 26, 40.0
# CSR features are solved as an array if the share of stored entries is at least _FULL, where products are no
# slower, or _FULL_FOR_BLOCKS, if whole blocks, which save products, then cost at most _CHEAP products.
_FULL_FOR_BLOCKS, _CHEAP, _FULL = 0.2, 10.0, 0.9
# Number of scores, or of dense features, up to which several copies of them are held.
MOST_HELD = 1 << 27


def of_blocks(n: int, d: int) -> float:
    """The cost of whole blocks."""
    size, rows = d + 1, min(n, rows_of_a_block(d))
    # (K rows size² + K size³) / (4 n K size)
    return (rows * size + size * size) / (4 * n)


def of_a_basis(n: int, d: int, K: int) -> float:
    """The cost of one basis for all classes; infinite where it is too large."""
    size = d + 1
    products = (n * size * size + 9 * (size**3 + K**3)) / (4 * n * K * size)
    return products if size * size <= _MOST_NUMBERS else np.inf


def blocks_pay(n: int, d: int, K: int) -> bool:
    """Whether dense features have whole blocks."""
    return K * (d + 1) ** 2 <= _MOST_NUMBERS and of_blocks(n, d) <= MOST_PRODUCTS


def in_its_form(problem: Problem) -> Problem:
    """The problem, with CSR features as an array where they are few and full enough for that to be faster."""
    op = problem.op
    if not isinstance(op, linops.Csr):
        return problem
    n, d = op.shape
    if n * d > MOST_HELD:
        return problem
    X = op.to_scipy()
    cheap = blocks_pay(n, d, problem.classes) and of_blocks(n, d) <= _CHEAP
    if X.nnz < (_FULL_FOR_BLOCKS if cheap else _FULL) * n * d:
        return problem
    return dataclasses.replace(problem, op=linops.Dense(jax.device_put(X.toarray())))
