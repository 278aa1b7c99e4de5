"""Multinomial logistic regression: one problem, several methods, one kind of state."""

from typing import TYPE_CHECKING

from xmcjax._arguments import renamed_functions
from xmcjax.solvers.multinomial._problem import Problem, evaluate, multinomial_problem
from xmcjax.solvers.multinomial._run import (
    CHOICES,
    METHODS,
    ON_THE_HOST,
    Record,
    Solution,
    advance,
    initial,
    run,
)
from xmcjax.solvers.multinomial._solver import SOLVER
from xmcjax.solvers.multinomial._state import HParams, State

__all__ = [
    "CHOICES",
    "METHODS",
    "ON_THE_HOST",
    "SOLVER",
    "HParams",
    "Problem",
    "Record",
    "Solution",
    "State",
    "advance",
    "evaluate",
    "initial",
    "multinomial_problem",
    "run",
]

if not TYPE_CHECKING:  # a type checker would let every name pass
    __getattr__ = renamed_functions(__name__, solve="run")
