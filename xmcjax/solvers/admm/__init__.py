"""Multi-class SVMs by the alternating direction method of multipliers, many problems as lanes.

Example:
    >>> import numpy as np
    >>> from xmcjax import linops
    >>> X, y = np.eye(6, dtype=np.float32), [0, 0, 1, 1, 2, 2]
    >>> folds = np.arange(6) % 2 != np.arange(2)[:, None]
    >>> lanes = problem(linops.make(X), y, formulation="topk_alpha", k=2, C=1.0, mask=folds)
    >>> state = run(lanes, HParams(tol=1e-4), init(lanes))
    >>> weights(lanes, state).shape
    (2, 6, 3)
"""

from xmcjax.solvers.admm._problem import LOSSES, Problem, problem
from xmcjax.solvers.admm._run import dual_variables, proof, run
from xmcjax.solvers.admm._solve import Solved, solve
from xmcjax.solvers.admm._solver import SOLVER
from xmcjax.solvers.admm._starts import init
from xmcjax.solvers.admm._steps import HParams, State, advance, step, weights

__all__ = [
    "LOSSES",
    "SOLVER",
    "HParams",
    "Problem",
    "Solved",
    "State",
    "advance",
    "dual_variables",
    "init",
    "problem",
    "proof",
    "run",
    "solve",
    "step",
    "weights",
]
