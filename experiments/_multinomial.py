"""What the experiments with multinomial logistic regression share: a run of one program, with its trace.

A trace has G after each iteration and the processor seconds of the process until then, compilation
included and reading the data not. ``python -m experiments._multinomial`` with a JSON object of options
on standard input makes one run in a process of its own and prints one JSON object; see :class:`Request`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from experiments import _multiclass
from experiments._cells import Cells

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Request:
    """One run.

    Attributes:
        data: a set of experiments._multiclass.
        lam: λ.
        program: a method of ours, "block_newton", "sklearn lbfgs" or "sklearn newton-cg".
        dtype: of the features and the weights.
        target: the run ends when G is there; −∞ never.
        limit: processor seconds after which it ends.
        tolerance: on ‖∇G‖/‖∇G(0)‖, ours only.
        rows: of the training part, the first ones; 0 for all.
    """

    data: str
    lam: float
    program: str
    dtype: str = "float32"
    target: float = -np.inf
    limit: float = 60.0
    tolerance: float = 0.0
    rows: int = 0


class _Enough(Exception):
    """Ends a run from within."""


class Trace:
    """G and ‖∇G‖ against processor seconds."""

    def __init__(self, request: Request):
        self.request = request
        self.begin = time.process_time()
        self.lists: dict[str, list[float]] = {}

    def note(self, **numbers: float) -> None:
        """After an iteration, G as `value` among the numbers; raises _Enough at the target or the limit."""
        seconds, value = time.process_time() - self.begin, numbers["value"]
        for key, number in {"seconds": seconds, **numbers}.items():
            self.lists.setdefault(key, []).append(float(number))
        if value <= self.request.target or seconds > self.request.limit:
            raise _Enough


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
    """The trace of a run, and how it ended."""
    parts = _multiclass.load(request.data)
    last = request.rows or parts.X.shape[0]
    X, y = parts.X[:last].astype(request.dtype), parts.y[:last].astype(np.int32)
    run = _sklearn if request.program.startswith("sklearn ") else _ours
    return run(request, X, y)


def _ours(request: Request, X, y) -> dict:
    from experiments import _block_newton
    from xmcjax import linops
    from xmcjax.solvers import multinomial

    trace = Trace(request)
    status, steps = "stopped", [0, 0]

    def observe(state, record=None):
        steps[:] = int(state.steps), int(state.inner)
        trace.note(value=state.value, bound=state.bound, gradient_norm=state.gradient_norm)

    try:
        problem = multinomial.multinomial_problem(linops.make(X), y, request.lam, classes=int(y.max()) + 1)
        hp = multinomial.HParams(request.tolerance, 100_000)
        if request.program == "block_newton":
            status = _block_newton.solve(problem, hp, observe).name
        else:
            status = multinomial.run(problem, request.program, hp, observe=observe).status.name
    except _Enough:
        pass
    return trace.lists | {"status": status, "steps": steps[0], "inner": steps[1]}


def _sklearn(request: Request, X, y) -> dict:
    import contextlib
    import warnings
    from unittest import mock

    from sklearn.linear_model import LogisticRegression
    from sklearn.linear_model._linear_loss import LinearModelLoss

    def recorded(method: str, value_of: Callable):
        """The method with which its solvers evaluate G, noting it; they take the mean over the instances."""
        plain = getattr(LinearModelLoss, method)

        def call(*arguments, **options):
            result = plain(*arguments, **options)
            trace.note(value=value_of(result) * X.shape[0])
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
    trace = Trace(request)
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # it stops at its rounding, and says so
        stack.enter_context(recorded("loss_gradient", lambda result: result[0]))
        stack.enter_context(recorded("loss", lambda result: result))
        with contextlib.suppress(_Enough):
            model.fit(X, y)
            status = "ended"
    return trace.lists | {"status": status, "steps": len(trace.lists["value"]), "inner": 0}


def optimum(
    cells: Cells, without: Sequence[str], data: str, lam: float, *, seconds: float, rows: int, **asked
) -> dict:
    """The least G, from a long run in float64, and ‖∇G‖²/(2λ), which it is at most too high.

    Args:
        cells: where it is kept; `rows` is one of the options of the experiment.
        without: options of the experiment that do not change it.
        data: a set of experiments._multiclass.
        lam: λ.
        seconds: of the processor, after which the run ends.
        rows: of the training part, the first ones; 0 for all.
        asked: what else tells the cell from others.
    """

    def work() -> dict:
        request = Request(data, lam, "auto", "float64", limit=seconds, tolerance=1e-8, rows=rows)
        found = ask(request)
        last = int(np.argmin(found["gradient_norm"]))
        error = found["gradient_norm"][last] ** 2 / (2 * lam)
        return {"value": found["value"][last], "error": error, "seconds": found["seconds"][-1]}

    return cells.get(work, without, what="optimum", lam=lam, seconds=seconds, **asked)


def seconds_to(found: dict, best: float, gap: float) -> float | None:
    """Processor seconds until G ≤ (1 + gap) best; None where it never was."""
    reached = np.flatnonzero(np.asarray(found["value"]) <= best * (1 + gap))
    return found["seconds"][reached[0]] if len(reached) else None


def start_seconds(found: dict) -> float | None:
    """The end of the first iteration, less the shortest of the others: compilation, most of it.

    None of fewer than three iterations.
    """
    seconds = np.asarray(found["seconds"])
    return float(seconds[1] - np.diff(seconds)[1:].min()) if len(seconds) > 3 else None


def thinned(found: dict, most: int = 200) -> dict:
    """The trace with at most so many entries, first and last among them, in rising distances."""
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
