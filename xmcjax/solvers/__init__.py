"""Solvers: pure functions ``init(problem, ...) -> State`` and ``step(problem, hp, State) -> State``."""

from xmcjax.solvers._base import REMEDY, Status

__all__ = ["REMEDY", "Status"]
