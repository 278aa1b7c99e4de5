"""Multinomial logistic regression: one problem, several methods, one kind of state."""

from xmcjax.solvers.multinomial._problem import Problem, evaluate, multinomial_problem
from xmcjax.solvers.multinomial._run import CHOICES, METHODS, Record, Solution, advance, initial, solve
from xmcjax.solvers.multinomial._state import HParams, State

__all__ = [
    "CHOICES",
    "METHODS",
    "HParams",
    "Problem",
    "Record",
    "Solution",
    "State",
    "advance",
    "evaluate",
    "initial",
    "multinomial_problem",
    "solve",
]
