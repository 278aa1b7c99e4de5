"""Kernel multinomial regression, flat and hierarchical (paper 003).

``kernel_problem`` states a problem, of one training set or of several folds as lanes; ``run(problem, hp,
init(problem))`` solves it.
"""

from xmcjax.solvers.kernel_multinomial._newton import HParams, State, init, run, step
from xmcjax.solvers.kernel_multinomial._problem import KernelProblem, fold_weights, kernel_problem
from xmcjax.solvers.kernel_multinomial._systems import Solved, cg_in_functions, solve_system

__all__ = [
    "HParams",
    "KernelProblem",
    "Solved",
    "State",
    "cg_in_functions",
    "fold_weights",
    "init",
    "kernel_problem",
    "run",
    "solve_system",
    "step",
]
