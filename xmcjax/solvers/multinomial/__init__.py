"""Multinomial logistic regression: one problem, several methods, one kind of state."""

from xmcjax.solvers.multinomial._problem import Problem, evaluate, multinomial_problem
from xmcjax.solvers.multinomial._run import CHOICES, METHODS, Record, Solution, advance, initial, run
from xmcjax.solvers.multinomial._solver import SOLVER
from xmcjax.solvers.multinomial._state import HParams, State

__all__ = [
    "CHOICES",
    "METHODS",
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


def __getattr__(name: str):
    if name == "solve":
        raise AttributeError("xmcjax.solvers.multinomial.solve is called run now, with the same arguments")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
