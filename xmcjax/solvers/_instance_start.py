"""Where ascent over instances starts that has dual variables already."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax.linops import Csr
from xmcjax.solvers._certified import weights_of
from xmcjax.solvers._formulations import NAMES
from xmcjax.solvers._instance_problem import Gram, Problem


def started(problem: Problem, state: Any, alpha: sp.csr_array | None) -> Any:
    """A state of one lane at these dual variables.

    Args:
        problem: of one lane.
        state: of :func:`xmcjax.solvers.instance_dual.init`.
        alpha: [n, m], in the dual set; None or of shape [0, 0] leaves the state as it is.
    """
    if alpha is None or not alpha.size:
        return state
    dtype, y, form = np.dtype(problem.op.dtype), np.asarray(problem.y), NAMES[problem.set_name]
    n, m = alpha.shape
    index = np.asarray(state.index)
    if state.index.shape[2]:
        counts = np.diff(alpha.indptr)
        width = min(max(state.index.shape[2], int(counts.max(initial=0))), m - 1)
        row = np.repeat(np.arange(n), counts)
        place = np.arange(alpha.nnz) - np.repeat(alpha.indptr[:-1], counts)
        dual, index = np.zeros((1, n, width), dtype), np.zeros((1, n, width), np.int32)
        dual[0, row, place], index[0, row, place] = alpha.data, alpha.indices
    else:
        dual = alpha.toarray().astype(dtype)[None]
    op: Any = problem.op
    if isinstance(op, Gram):
        a = form.coefficients(alpha.toarray(), y)
        weights = (np.asarray(op.K, np.float64) @ a).T
    else:
        W = weights_of(op.to_scipy() if isinstance(op, Csr) else np.asarray(op.X), y, alpha, form)
        weights = W if isinstance(op, Csr) else W.T
    # copies: the buffers of a state are given away
    return state._replace(
        weights=jnp.array(weights[None].astype(dtype)), dual=jnp.array(dual), index=jnp.array(index)
    )
