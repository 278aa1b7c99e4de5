"""Kernel multinomial regression, flat and hierarchical, with learnt hyperparameters (Seeger 2006).

``kernel_problem`` states a problem, of one training set or of several folds as lanes; ``run(problem, hp,
init(problem))`` solves it; ``cv_criterion`` judges the hyperparameters; ``fit`` is the solution as a
function to be differentiated; ``tune`` learns the hyperparameters of a :class:`KernelModel`. ``fit_chains``
is for label sequences, ``partial_labels`` for rows of which a set of possible classes is known.
"""

from xmcjax.solvers.kernel_multinomial._chains import (
    Chains,
    FittedChains,
    chain_problem,
    fit_chains,
    marginals,
    most_likely,
)
from xmcjax.solvers.kernel_multinomial._criterion import Criterion, Hyperparameters, cv_criterion
from xmcjax.solvers.kernel_multinomial._excess import run_to_excess
from xmcjax.solvers.kernel_multinomial._likelihoods import Likelihood, OneVsRest, Softmax
from xmcjax.solvers.kernel_multinomial._partial_labels import PartialLabels, partial_labels
from xmcjax.solvers.kernel_multinomial._problem import (
    LIKELIHOODS,
    KernelProblem,
    check_folds,
    fold_weights,
    kernel_problem,
    random_folds,
)
from xmcjax.solvers.kernel_multinomial._run import run, step
from xmcjax.solvers.kernel_multinomial._solver import SOLVER, fit
from xmcjax.solvers.kernel_multinomial._some_classes import SomeClasses
from xmcjax.solvers.kernel_multinomial._state import Phase, State, init
from xmcjax.solvers.kernel_multinomial._systems import HParams, Solved, cg_in_functions
from xmcjax.solvers.kernel_multinomial._tuning import CvObjective, KernelModel, tune

__all__ = [
    "LIKELIHOODS",
    "SOLVER",
    "Chains",
    "Criterion",
    "CvObjective",
    "FittedChains",
    "HParams",
    "Hyperparameters",
    "KernelModel",
    "KernelProblem",
    "Likelihood",
    "OneVsRest",
    "PartialLabels",
    "Phase",
    "Softmax",
    "Solved",
    "SomeClasses",
    "State",
    "cg_in_functions",
    "chain_problem",
    "check_folds",
    "cv_criterion",
    "fit",
    "fit_chains",
    "fold_weights",
    "init",
    "kernel_problem",
    "marginals",
    "most_likely",
    "partial_labels",
    "random_folds",
    "run",
    "run_to_excess",
    "step",
    "tune",
]
