"""What the experiments with multinomial logistic regression share: a run of one program, with its trace.

A trace has G after each iteration and the processor seconds of the process until then, with compilation,
without reading the data. Near the target G is computed in float64 while the clock is stopped, for all
programs alike. ``python -m experiments._multinomial`` with a JSON object of options on standard input
makes one run in a process of its own and prints one JSON object; see :class:`Request`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.special

from experiments import _multiclass
from experiments._cells import Cells

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Request:
    """One run.

    Attributes:
        data: a set of experiments._multiclass.
        lam: λ.
        program: a method of ours, "admm" with a number (a fixed ρ), "block_newton", "sklearn lbfgs" or
            "sklearn newton-cg".
        dtype: of the features and the weights.
        target: the run ends when G is at most this; with −∞ it does not end by G.
        limit: processor seconds after which the run ends.
        tolerance: on ‖∇G‖/‖∇G(0)‖, for our methods only.
        rows: how many of the first rows of the training part are used; 0 for all.
        again: whether a first run of at most half a minute is followed by an equal one.
    """

    data: str
    lam: float
    program: str
    dtype: str = "float32"
    target: float = -np.inf
    limit: float = 60.0
    tolerance: float = 0.0
    rows: int = 0
    again: bool = False


# A run that takes longer than this many seconds is not repeated.
LONG = 30.0
# Where G exceeds the target by at most this relative amount, it is computed in float64.
_NEAR = 5e-3


class _Enough(Exception):
    """Ends a run from within."""


class Trace:
    """G and ‖∇G‖ against processor seconds.

    Args:
        request: its target and limit end the run.
        objective: G of weights [d, K] in float64.
    """

    def __init__(self, request: Request, objective: Callable[[np.ndarray], float]):
        self._request, self._objective = request, objective
        self.lists: dict[str, list[float]] = {}
        self._begin = time.process_time()

    def note(self, weights: Callable[[], np.ndarray], **numbers: float) -> None:
        """Notes an iteration; `numbers` has G as `value`. Raises _Enough at the target or the limit."""
        now = time.process_time()
        seconds, value = now - self._begin, numbers["value"]
        if value <= self._request.target * (1 + _NEAR):
            numbers["value"] = value = self._objective(weights())
        for key, number in {"seconds": seconds, **numbers}.items():
            self.lists.setdefault(key, []).append(float(number))
        if value <= self._request.target or seconds > self._request.limit:
            raise _Enough
        self._begin += time.process_time() - now


def objective(X, y: np.ndarray, lam: float, W: np.ndarray) -> float:
    """G without intercepts, in float64."""
    Z = X @ W
    losses = scipy.special.logsumexp(Z, axis=1) - Z[np.arange(len(y)), y]
    return lam / 2 * float(np.vdot(W, W)) + float(losses.sum())


def ask(request: Request) -> dict:
    """The answer of :func:`answer` from a process of its own on one processor."""
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-m", "experiments._multinomial"],
        input=json.dumps(dataclasses.asdict(request)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | threads | {"JAX_ENABLE_X64": str(int(request.dtype == "float64"))},
    )
    if done.returncode:
        raise RuntimeError(f"{request.program} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def answer(request: Request) -> dict:
    """The trace of a run, and how it ended; the trace of a second run as ``again``."""
    parts = _multiclass.load(request.data)
    last = request.rows or parts.X.shape[0]
    X, y = parts.X[:last].astype(request.dtype), parts.y[:last].astype(np.int32)
    found = traced(request, X, y)
    if request.again and found["seconds"][-1] <= LONG:
        found["again"] = traced(request, X, y)
    return found


def traced(request: Request, X, y: np.ndarray) -> dict:
    """The trace of a run on features of the dtype of the request and classes of int32, and how it ended."""
    run = _sklearn if request.program.startswith("sklearn ") else _ours
    return run(request, X, y, functools.partial(objective, X.astype(np.float64), y, request.lam))


def _ours(request: Request, X, y, exactly: Callable[[np.ndarray], float]) -> dict:
    from experiments import _block_newton
    from xmcjax import linops
    from xmcjax.solvers import multinomial

    trace, classes = Trace(request, exactly), int(y.max()) + 1
    status, steps = "stopped", [0, 0]

    def observe(state, record=None):
        steps[:] = int(state.steps), int(state.inner)
        numbers = dict(value=state.value, bound=state.bound, gradient_norm=state.gradient_norm)
        trace.note(lambda: np.asarray(state.W, np.float64)[:, :classes], **numbers)

    try:
        problem = multinomial.multinomial_problem(linops.make(X), y, request.lam, classes=classes)
        hp = multinomial.HParams(request.tolerance, 100_000)
        if request.program == "block_newton":
            status = _block_newton.solve(problem, hp, observe).name
        elif request.program.startswith("admm "):
            status = _admm(problem, hp, float(request.program.split()[1]), observe)
        else:
            status = multinomial.run(problem, request.program, hp, observe=observe).status.name
    except _Enough:
        pass
    return trace.lists | {"status": status, "steps": steps[0], "inner": steps[1]}


def _admm(problem, hp, rho: float, observe: Callable) -> str:
    """ADMM with the same ρ from the first iteration to the last, as in the paper."""
    from xmcjax.solvers import Status, multinomial
    from xmcjax.solvers.multinomial import admm

    state = multinomial.initial(problem, hp, None, None, method="admm")
    memory = state.memory._replace(rho=state.memory.rho.dtype.type(rho))
    # the state pretends that ρ has been adapted as often as is allowed, so that ρ stays
    state = state._replace(steps=state.steps + admm.ADAPTED, memory=memory)
    while int(state.status) == Status.RUNNING:
        observe(state._replace(steps=state.steps - admm.ADAPTED))
        state = multinomial.advance(problem, hp, state, method="admm")
    return Status(int(state.status)).name


def _sklearn(request: Request, X, y, exactly: Callable[[np.ndarray], float]) -> dict:
    import contextlib
    import warnings
    from unittest import mock

    from sklearn.linear_model import LogisticRegression
    from sklearn.linear_model._linear_loss import LinearModelLoss

    def recorded(method: str, value_of: Callable):
        """The method by which scikit-learn evaluates G, the mean over the instances, with a note of G."""
        plain = getattr(LinearModelLoss, method)

        def call(loss, coef, *arguments, **options):
            result = plain(loss, coef, *arguments, **options)
            trace.note(
                lambda: loss.weight_intercept(coef)[0].T.astype(np.float64),
                value=value_of(result) * X.shape[0],
            )
            return result

        return mock.patch.object(LinearModelLoss, method, call)

    model = LogisticRegression(
        C=1 / request.lam,
        fit_intercept=False,
        solver=request.program.removeprefix("sklearn "),
        tol=0 if request.program.endswith("lbfgs") else 1e-12,
        max_iter=100_000,
    )
    status = "stopped"
    trace = Trace(request, exactly)
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # it warns when it stops because of rounding
        stack.enter_context(recorded("loss_gradient", lambda result: result[0]))
        stack.enter_context(recorded("loss", lambda result: result))
        with contextlib.suppress(_Enough):
            model.fit(X, y)
            status = "ended"
    return trace.lists | {"status": status, "steps": len(trace.lists["value"]), "inner": 0}


def optimum(
    cells: Cells, without: Sequence[str], data: str, lam: float, *, seconds: float, rows: int, **asked
) -> dict:
    """The least G, from a long run in float64, and the bound ‖∇G‖²/(2λ) on its excess over the minimum.

    Args:
        cells: where the result is kept; `rows` is one of the options of the experiment.
        without: options of the experiment that do not change the result.
        data: a set of experiments._multiclass.
        lam: λ.
        seconds: processor seconds after which the run ends.
        rows: how many of the first rows of the training part are used; 0 for all.
        asked: further values that distinguish the cell from others.
    """

    def work() -> dict:
        request = Request(data, lam, "auto", "float64", limit=seconds, tolerance=1e-8, rows=rows)
        found = ask(request)
        last = int(np.argmin(found["gradient_norm"]))
        error = found["gradient_norm"][last] ** 2 / (2 * lam)
        return {"value": found["value"][last], "error": error, "seconds": found["seconds"][-1]}

    return cells.get(work, without, what="optimum", lam=lam, seconds=seconds, **asked)


def seconds_to(found: dict, best: float, gap: float) -> float | None:
    """Processor seconds until G ≤ (1 + gap) best; None where G never was."""
    reached = np.flatnonzero(np.asarray(found["value"]) <= best * (1 + gap))
    return found["seconds"][reached[0]] if len(reached) else None


def thinned(found: dict, most: int = 200) -> dict:
    """The trace thinned to at most `most` entries with growing distances, the first and last among them."""
    if "again" in found:
        found = found | {"again": thinned(found["again"], most)}
    count = len(found["value"])
    if count <= most:
        return found
    kept = np.unique(np.r_[np.geomspace(1, count, most).astype(int) - 1, count - 1])
    lists = {key: [values[i] for i in kept] for key, values in found.items() if isinstance(values, list)}
    return found | lists | {"iterations": kept.tolist()}


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    print(json.dumps(answer(Request(**json.load(sys.stdin)))))
