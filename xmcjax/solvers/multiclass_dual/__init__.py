"""Multi-class SVMs by dual ascent: Weston-Watkins, Lee-Lin-Wahba, Crammer-Singer, one against the rest; and
the multi-label SVM.
"""

from typing import TYPE_CHECKING

from xmcjax._arguments import renamed_functions
from xmcjax.solvers._formulations import FORMULATIONS, Formulation
from xmcjax.solvers.multiclass_dual._epochs import (
    Certificate,
    HParams,
    State,
    certificate,
    init,
    run_epochs,
    step,
    weights,
)
from xmcjax.solvers.multiclass_dual._labels import LabelHinges, Labels, LabelSolution
from xmcjax.solvers.multiclass_dual._multilabel import run_multilabel
from xmcjax.solvers.multiclass_dual._problem import MulticlassProblem, multiclass_problem
from xmcjax.solvers.multiclass_dual._processes import run_over_mesh
from xmcjax.solvers.multiclass_dual._proximal import Proximal
from xmcjax.solvers.multiclass_dual._schedule import round_count, round_pairs
from xmcjax.solvers.multiclass_dual._solve import Solution, run
from xmcjax.solvers.multiclass_dual._solver import SOLVER

__all__ = [
    "FORMULATIONS",
    "SOLVER",
    "Certificate",
    "Formulation",
    "HParams",
    "LabelHinges",
    "LabelSolution",
    "Labels",
    "MulticlassProblem",
    "Proximal",
    "Solution",
    "State",
    "certificate",
    "init",
    "multiclass_problem",
    "round_count",
    "round_pairs",
    "run",
    "run_epochs",
    "run_multilabel",
    "run_over_mesh",
    "step",
    "weights",
]

if not TYPE_CHECKING:  # a type checker would let every name pass
    __getattr__ = renamed_functions(__name__, solve="run", solve_over_mesh="run_over_mesh")
