"""The table of the solvers."""

from __future__ import annotations

from xmcjax.solvers import (
    _instance_solver,
    _lane_solver,
    admm,
    kernel_multinomial,
    multiclass_dual,
    multinomial,
)
from xmcjax.solvers._protocol import Solver

SOLVERS: dict[str, Solver] = {
    "newton_cg": _lane_solver.SOLVER,
    "multiclass_dual": multiclass_dual.SOLVER,
    "instance_dual": _instance_solver.SOLVER,
    "admm": admm.SOLVER,
    "multinomial": multinomial.SOLVER,
    "kernel_multinomial": kernel_multinomial.SOLVER,
}
