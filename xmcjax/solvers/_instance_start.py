"""The start of ascent over instances at given dual variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax.linops import Csr, host_features, put
from xmcjax.solvers._certified import weights_of
from xmcjax.solvers._formulations import NAMES
from xmcjax.solvers._instance_problem import Gram, Problem


def placed(problem: Problem, state: Any, alphas: list[sp.csr_array]) -> Any:
    """A state at the dual variables of its lanes, each [n, m], in the dual set."""
    dtype, (n, m), index = np.dtype(problem.op.dtype), alphas[0].shape, np.asarray(state.index)
    if index.shape[2]:
        most = max(int(np.diff(alpha.indptr).max(initial=0)) for alpha in alphas)
        width = min(max(index.shape[2], most), m - 1)
        dual = np.zeros((len(alphas), n, width), dtype)
        index = np.zeros(dual.shape, np.int32)
        for lane, alpha in enumerate(alphas):
            row = np.repeat(np.arange(n), np.diff(alpha.indptr))
            place = np.arange(alpha.nnz) - alpha.indptr[row]
            dual[lane, row, place], index[lane, row, place] = alpha.data, alpha.indices
    else:
        dual = np.stack([alpha.toarray().astype(dtype) for alpha in alphas])
    weights = np.stack([_weights(problem, alpha).astype(dtype) for alpha in alphas])
    # `put` copies, because the buffers of a state are donated
    return state._replace(weights=put(weights), dual=put(dual), index=put(index))


def _weights(problem: Problem, alpha: sp.csr_array) -> np.ndarray:
    """The weights of dual variables in the form of a state's weights of a lane, in float64."""
    op = problem.op
    y, form = np.asarray(problem.y), NAMES[problem.set_name]
    if isinstance(op, Gram):
        return as_weights(problem, form.coefficients(alpha.toarray(), y))
    return as_weights(problem, weights_of(host_features(op), y, alpha, form))


def as_weights(problem: Problem, W: np.ndarray) -> np.ndarray:
    """Weights [d, m] in the form of a state's; with a :class:`Gram` the scores of coefficients [n, m]."""
    if isinstance(problem.op, Gram):
        return (np.asarray(problem.op.K, np.float64) @ W).T
    return W if isinstance(problem.op, Csr) else W.T
