"""Solvers: problem → init → step → run → :class:`Solution`, one table of them.

``SOLVERS[name].run(problem, hp)`` solves ``SOLVERS[name].problem(...)``. The module of that name has the same
solver with the arguments of its own, as pure functions ``init(problem, ...) -> State`` and
``step(problem, hp, State) -> State``.

Example:
    >>> import numpy as np
    >>> from xmcjax import linops
    >>> from xmcjax.losses import MARGIN_LOSSES
    >>> from xmcjax.solvers import SOLVERS
    >>> solver = SOLVERS["newton_cg"]
    >>> X, y = np.eye(4, dtype=np.float32), np.array([[1], [1], [-1], [-1]])
    >>> problem = solver.problem(linops.make(X), y, MARGIN_LOSSES["logistic"], tolerance=1e-3)
    >>> solution = solver.run(problem)
    >>> solution.weights.w.shape, Status(int(solution.status[0])).name, solution.remedy
    ((4, 1), 'CONVERGED', '')
"""

import importlib
from typing import TYPE_CHECKING, Any

from xmcjax.solvers._base import REMEDY, Status
from xmcjax.solvers._protocol import Solution, Solver, Weights

if TYPE_CHECKING:
    from xmcjax.solvers import admm as admm
    from xmcjax.solvers import host_newton as host_newton
    from xmcjax.solvers import instance_dual as instance_dual
    from xmcjax.solvers import kernel_multinomial as kernel_multinomial
    from xmcjax.solvers import multiclass_dual as multiclass_dual
    from xmcjax.solvers import multinomial as multinomial
    from xmcjax.solvers import newton_cg as newton_cg
    from xmcjax.solvers import topk_sdca as topk_sdca
    from xmcjax.solvers._table import SOLVERS

__all__ = ["REMEDY", "SOLVERS", "Solution", "Solver", "Status", "Weights"]

_PARTS = (
    "admm",
    "host_newton",
    "instance_dual",
    "kernel_multinomial",
    "multiclass_dual",
    "multinomial",
    "newton_cg",
    "topk_sdca",
)


if not TYPE_CHECKING:  # a type checker would let every name pass

    def __getattr__(name: str) -> Any:
        # On first use: a caller who needs one solver should not wait for the modules of all.
        if name == "SOLVERS":
            return importlib.import_module("xmcjax.solvers._table").SOLVERS
        if name in _PARTS:
            return importlib.import_module(f"xmcjax.solvers.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_PARTS])
