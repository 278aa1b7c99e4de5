"""What all solvers have in common: problem → init → step → run → :class:`Solution`.

``SOLVERS`` of :mod:`xmcjax.solvers` is the table of them. Each module keeps the functions of its own, with
the arguments that only it has; a :class:`Solver` calls them in one way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from xmcjax._arguments import whole_number
from xmcjax._fork import needs_threads_of_jax
from xmcjax._pytrees import is_traced
from xmcjax.solvers._base import Status, remedies
from xmcjax.solvers._implicit import Conditions, fixed, implicit, refused

# Each solver has names of its own for its tolerance and its limit of steps.
_WORDS = "allow more steps or a looser tolerance", "loosen the tolerance"


class Weights(NamedTuple):
    """The weights of linear scores X w + bias.

    Example:
        >>> import numpy as np
        >>> Weights(np.zeros((3, 2)), np.zeros(2)).w.shape
        (3, 2)
    """

    w: Any  #: [d, lanes], or [d, classes]
    bias: Any  #: [lanes], or [classes]; 0 where there is none


class Solution(NamedTuple):
    """What a solver ends with.

    Attributes:
        weights: the solution: :class:`Weights` or an array, as its solver says.
        value: the objective there, a number for each lane.
        status: of :class:`~xmcjax.solvers.Status`, a number for each lane.
        diagnostics: what else the solver knows of its run: its last state, or its record.

    Example:
        >>> from xmcjax import linops
        >>> from xmcjax.solvers import SOLVERS
        >>> solver = SOLVERS["multinomial"]
        >>> solution = solver.run(solver.problem(linops.make([[1.0], [-1.0]]), [0, 1], 1.0))
        >>> solution.weights.w.shape, solution.remedy
        ((1, 2), '')
    """

    weights: Any
    value: Any
    status: Any
    diagnostics: Any

    @property
    def remedy(self) -> str:
        """What to do about the lanes that did not converge, a line for each way to end; "" for none."""
        statuses, counts = np.unique(np.asarray(self.status), return_counts=True)
        total, remedy = counts.sum(), remedies(*_WORDS, jax.tree.leaves(self.weights)[0].dtype)
        return "\n".join(
            f"{count} of {total}: {Status(status).name}: {remedy.get(Status(status), 'go on with run')}"
            for status, count in zip(statuses.tolist(), counts.tolist(), strict=True)
            if status != Status.CONVERGED
        )


def check_state(state, kind: type, **shapes: tuple[int, ...]) -> None:
    """Raises where a state given to ``run`` has not the shapes of the problem.

    Args:
        state: the state that is given.
        kind: the class of the solver's states.
        shapes: of some of its arrays in this problem.

    Raises:
        TypeError: another class.
        ValueError: other shapes.
    """
    if not isinstance(state, kind):
        raise TypeError(f"state: expected a {_named(kind)}, as init makes it, got {type(state).__name__}")
    for name, shape in shapes.items():
        found = getattr(state, name).shape
        if found != shape:
            raise ValueError(f"state: expected {name} {list(shape)} for this problem, got {list(found)}")


def _named(kind: type) -> str:
    """A class, and the public module that it is of: each solver has a State and an HParams of its own."""
    module = kind.__module__.partition("._")[0]
    return kind.__name__ if module == "builtins" else f"{kind.__name__} of {module}"


def kinks(name: str) -> str:
    """Why a solver of hinge losses has no derivative, for :attr:`Solver.derivative`.

    Its weights are piecewise smooth in the data and in C: they have a kink wherever a dual variable reaches
    or leaves its bound, and at the optimum of a hinge many dual variables are at such a point.
    """
    return (
        f"expected a solver with a derivative, got {name}: weights of hinge losses have kinks wherever an "
        "instance reaches or leaves a margin; take newton_cg with a smooth loss, or multinomial"
    )


@dataclasses.dataclass(frozen=True)
class Solver:
    """One solver of the table.

    A problem and hyperparameters are immutable pytrees, of which the numbers are traced, so that another
    value costs no compilation. The hyperparameters have defaults and a method ``_replace``.

    Attributes:
        problem: checks data and makes a problem of them.
        hparams: the class of the hyperparameters.
        init: ``(problem, hp)`` -> the state at the solver's own start; more arguments are its own.
        step: ``(problem, hp, state)`` -> the state after one iteration; ended lanes stay as they are.
        ended: ``(problem, hp, state or None)`` -> the solution without derivatives; None for the solver's
            own start. The state may be that of a problem with other numbers.
        derivative: the conditions of the implicit function theorem with parameters (problem, hp) and the
            weights as x, or a sentence that says why there is no derivative.
        pure: whether ``run`` may be part of a jitted or vmapped function; one that is not works on the host.

    Example:
        >>> from xmcjax import linops, losses
        >>> from xmcjax.solvers import SOLVERS
        >>> solver = SOLVERS["newton_cg"]
        >>> y = np.array([[1], [1], [-1], [-1]])
        >>> X = linops.make([[1.0], [2.0], [-1.0], [-2.0]])
        >>> problem = solver.problem(X, y, losses.logistic, tolerance=1e-3)
        >>> solver.run(problem, solver.hparams(l2=0.1)).status.tolist()
        [1]
    """

    problem: Callable[..., Any]
    hparams: type
    init: Callable[..., Any]
    step: Callable[[Any, Any, Any], Any]
    ended: Callable[[Any, Any, Any], Solution]
    derivative: Conditions | str
    pure: bool

    @needs_threads_of_jax
    def run(self, problem, hp=None, state=None) -> Solution:
        """Iterates until every lane has ended.

        Weights and value can be differentiated once, forward and in reverse, in all arrays of floating-point
        numbers of the problem and the hyperparameters, where the solver has a derivative: by the implicit
        function theorem, so that the derivative is that of the exact solution. State and diagnostics are
        constants.

        Args:
            problem: of `problem`.
            hp: of `hparams`; None for its defaults.
            state: to go on from, running or ended: of this problem, or of one that has the same shapes and
                other numbers, such as another C, λ or kernel. Its weights or dual variables are the start
                (these are brought into the dual set of this problem first), and its counts go on; what it
                says of objectives, gaps and its end is found out anew. None for the solver's own start.

        Raises:
            TypeError: arrays that are traced by jit or vmap where the solver is not pure, a derivative
                of a solver that has none, or hyperparameters or a state of another solver.
            NotImplementedError: a second derivative.
            ValueError: a whole number of `hp` that does not fit into 32 bits, or a state of other shapes.
        """
        hp = self.hparams() if hp is None else hp
        if not isinstance(hp, self.hparams):
            raise TypeError(f"hp: expected {_named(self.hparams)}, got {_named(type(hp))}")
        for path, value in jax.tree_util.tree_leaves_with_path(hp):
            if isinstance(value, int) and not isinstance(value, bool):
                whole_number(str(path[-1]).removeprefix("."), value, -(2**31))
        parameters = problem, hp
        if isinstance(self.derivative, str):
            parameters = refused(self.derivative, parameters)
        given = fixed((*parameters, state))
        if not self.pure and is_traced(given):
            raise TypeError(
                "expected arrays, found traced ones: this solver works on the host, outside jit and vmap"
            )
        with jax.numpy_rank_promotion("allow"):  # numbers of lanes meet arrays [rows, lanes] everywhere
            found = self.ended(*given)
            if isinstance(self.derivative, str):
                return found
            weights, value = implicit(self.derivative, parameters, found.weights, found.value)
        return found._replace(weights=weights, value=value)
