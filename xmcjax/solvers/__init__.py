"""Solvers: problem → init → step → run → :class:`Solution`, one table of them.

``SOLVERS[name].run(problem, hp)`` solves ``SOLVERS[name].problem(...)``. The module of that name has the same
solver with the arguments of its own, as pure functions ``init(problem, ...) -> State`` and
``step(problem, hp, State) -> State``.

Example:
    >>> import numpy as np
    >>> from xmcjax import linops
    >>> from xmcjax.losses import MARGIN_LOSSES
    >>> solver = SOLVERS["newton_cg"]
    >>> X, y = np.eye(4, dtype=np.float32), np.array([[1], [1], [-1], [-1]])
    >>> problem = solver.problem(linops.make(X), y, MARGIN_LOSSES["logistic"], tolerance=1e-3)
    >>> solution = solver.run(problem)
    >>> solution.weights.w.shape, Status(int(solution.status[0])).name, solution.remedy
    ((4, 1), 'CONVERGED', '')
"""

from xmcjax.solvers import (
    _instance_solver,
    _lane_solver,
    kernel_multinomial,
    multiclass_dual,
    multinomial,
)
from xmcjax.solvers._base import REMEDY, Status
from xmcjax.solvers._protocol import Solution, Solver, Weights

SOLVERS: dict[str, Solver] = {
    "newton_cg": _lane_solver.SOLVER,
    "multiclass_dual": multiclass_dual.SOLVER,
    "instance_dual": _instance_solver.SOLVER,
    "multinomial": multinomial.SOLVER,
    "kernel_multinomial": kernel_multinomial.SOLVER,
}

__all__ = ["REMEDY", "SOLVERS", "Solution", "Solver", "Status", "Weights"]
