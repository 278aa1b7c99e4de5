"""Multi-class SVMs by dual ascent: Weston-Watkins, Lee-Lin-Wahba, Crammer-Singer, one against the rest."""

from xmcjax.solvers._formulations import FORMULATIONS, Formulation
from xmcjax.solvers.multiclass_dual._epochs import (
    Certificate,
    HParams,
    State,
    certificate,
    init,
    run,
    step,
    weights,
)
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem, multiclass_problem
from xmcjax.solvers.multiclass_dual._processes import solve_over_mesh
from xmcjax.solvers.multiclass_dual._proximal import Proximal
from xmcjax.solvers.multiclass_dual._schedule import partner, round_count, round_pairs
from xmcjax.solvers.multiclass_dual._solve import Solution, solve

__all__ = [
    "FORMULATIONS",
    "Certificate",
    "Formulation",
    "HParams",
    "MulticlassProblem",
    "Proximal",
    "Solution",
    "State",
    "certificate",
    "init",
    "multiclass_problem",
    "partner",
    "round_count",
    "round_pairs",
    "run",
    "solve",
    "solve_over_mesh",
    "step",
    "weights",
]
