"""Work of the installed library, whatever its version, for :mod:`experiments.bench.versions`.

It is run by its path, so that xmcjax is that of the interpreter. Each line of standard input is a JSON object
with name, kind, folder of the data and options. The answer has processor seconds and a number on which two
versions agree if they do the same work. At the first line with a name, data are read and programs compiled.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp


class Timed(NamedTuple):
    """The result of a work that measures its own time."""

    value: float
    seconds: float


def one_vs_all(X, y, **options) -> Callable:
    from xmcjax import OneVsAllClassifier

    def work():
        return abs(OneVsAllClassifier(**options).fit(X, y).coef_).sum()

    return work


def multiclass_svm(X, y, formulation: str, **options) -> Callable:
    from xmcjax import MulticlassSVC

    def work():
        return abs(MulticlassSVC(formulation, random_state=0, **options).fit(X, y).coef_).sum()

    return work


def topk_svm(X, y, variant: str, k: int, C: float, tol: float) -> Callable:
    import jax

    from xmcjax import linops
    from xmcjax.solvers import topk_sdca

    def work():
        problem = topk_sdca.problem(linops.make(X), y, k, C, variant=variant)
        hp = topk_sdca.HParams(tol=tol, max_epochs=10_000)
        return topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(0))).primal[0]

    return work


def topk_classifier(X, y, **options) -> Callable:
    import warnings

    from xmcjax import TopKSVC

    def work():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # too few epochs: the objective shows that
            return TopKSVC(random_state=0, **options).fit(X, y).objective_

    return work


def multinomial(X, y, method: str, lam: float, steps: int) -> Callable:
    from xmcjax import linops
    from xmcjax.solvers.multinomial import HParams, advance, initial, multinomial_problem

    problem = multinomial_problem(linops.make(X), y, lam)
    hp = HParams(0.0, 1000)

    def work():
        state = initial(problem, hp, None, None, method=method)
        for _ in range(steps):
            state = advance(problem, hp, state, method=method)
        return float(state.value)  # float() waits for the result

    return work


def kernel_regression(X, y, **options) -> Callable:
    from xmcjax import KernelLogisticClassifier

    def work():
        return KernelLogisticClassifier(**options).fit(X, y).objective_

    return work


def kernel_product(X, y, columns: int, memory: float, w: float) -> Callable:
    import jax.numpy as jnp

    from xmcjax import kernels

    operator = kernels.gram(kernels.RBF(w), kernels.points(X), memory=memory)
    S = jnp.ones((X.shape[0], 1, columns), X.dtype)

    def work():
        return np.asarray(operator.matmat(S)).sum()

    return work


def projection(X, y, name: str, repeats: int, **options) -> Callable:
    import jax

    from xmcjax import projections

    project = jax.jit(lambda b: getattr(projections, name)(b, **options))

    def work():
        for _ in range(repeats):
            out = jax.block_until_ready(project(X))
        return out.sum()

    return work


KINDS = {
    f.__name__: f
    for f in (
        *(one_vs_all, multiclass_svm, topk_svm, topk_classifier, multinomial),
        *(kernel_regression, kernel_product, projection),
    )
}


def loaded(file: Path):
    """The array in a file, or the CSR matrix if there is a file with one."""
    sparse = file.with_suffix(".npz")
    return sp.csr_matrix(sp.load_npz(sparse)) if sparse.exists() else np.load(file.with_suffix(".npy"))


def main(kinds: dict[str, Callable], **more) -> None:
    """Prints where the library is, and `more`, then answers each line with a line."""
    import xmcjax

    folder = str(Path(xmcjax.__file__).parent)
    print(json.dumps({"version": xmcjax.__version__, "folder": folder, **more}), flush=True)
    name, work = "", None
    for line in sys.stdin:
        asked = json.loads(line)
        if work is None or asked["name"] != name:
            name, work = asked["name"], None  # frees the last work, which may hold much memory
            folder = Path(asked["folder"])
            data = loaded(folder / "X"), loaded(folder / "y")
            work = kinds[asked["kind"]](*data, **asked["options"])
            work()
        begin = time.process_time()
        made = work()
        seconds = time.process_time() - begin
        if not isinstance(made, Timed):
            made = Timed(float(made), seconds)
        print(json.dumps(made._asdict()), flush=True)


if __name__ == "__main__":
    main(KINDS)
