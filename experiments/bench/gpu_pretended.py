"""What a GPU in the machine costs the solvers that stay on the CPU.

    python -m experiments.bench.gpu_pretended [--small|--full] [--out results]

Solvers of dual variables and of sparse or small problems keep the native kernels of the CPU whatever the
default device is. Here the one place that asks JAX for that device is told that it is a GPU, on a machine
without one. What would go to the GPU runs in plain JAX then, so that a solver that went there would take
many times as long. Each system is fitted with and without by turns, on one thread. Times are the least
processor times, after one fit of each kind, which compiles. The models have to be the same to the bit. Writes
gpu_pretended.json and gpu_pretended.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from experiments import _report
from xmcjax import MulticlassSVC, MultinomialLogisticRegression, TopKSVC, _platform
from xmcjax.datasets import make_texts

FEATURES, CLASSES = 2_000, 40


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(rows=200, repeats=2), full=dict(rows=8_000, repeats=11)):
    """Solvers of the host, with and without a GPU.

    Attributes:
        rows: of the made texts.
        repeats: of every fit.
        small: 200 rows, two repetitions.
        full: 8,000 rows, eleven repetitions.
    """

    rows: int = 3_000
    repeats: int = 7


def systems(rows: int) -> dict[str, tuple[Callable, Any, Any]]:
    """By name: a function that makes an estimator, its features and its targets."""
    X, y = make_texts(rows, FEATURES, CLASSES)
    dense = np.asarray(X[:, :50].toarray())
    labels = sp.csr_array((np.ones(rows), (np.arange(rows), y)), shape=(rows, CLASSES))
    labels = sp.csr_array(labels + labels[np.roll(np.arange(rows), 1)])

    def svc(**options) -> Callable:
        return lambda: MulticlassSVC(random_state=0, n_jobs=1, **options)

    def topk(**options) -> Callable:
        return lambda: TopKSVC(random_state=0, n_jobs=1, **options)

    def multinomial(solver: str) -> Callable:
        return lambda: MultinomialLogisticRegression(solver, tol=1e-4, n_jobs=1)

    found: dict[str, tuple[Callable, Any, Any]]
    found = {f"SVM, {loss}": (svc(formulation=loss), X, y) for loss in ("ww", "cs", "llw", "ovr")}
    found |= {"SVM, cs, labels": (svc(formulation="cs"), X, labels)}
    found |= {
        f"top-k SVM, {variant}": (topk(k=3, variant=variant), X, y)
        for variant in ("alpha", "beta", "entropy")
    }
    found |= {"top-k SVM, alpha, dense": (topk(k=3), dense, y)}
    found |= {f"multinomial, {solver}": (multinomial(solver), X, y) for solver in ("auto", "dual")}
    return found | {"multinomial, auto, dense": (multinomial("auto"), dense, y)}


@contextlib.contextmanager
def pretended() -> Iterator[None]:
    """A context in which the library is told that JAX's default device is a GPU."""
    with mock.patch.object(_platform, "default_backend", return_value="gpu"):
        yield


def run(options: Options) -> dict:
    """Fits by turns on one thread; the least times of both, and their ratio."""
    rows: dict[str, dict] = {}
    for name, (make, X, y) in systems(options.rows).items():
        seconds: dict[str, list[float]] = {"without": [], "with": []}
        weights = {}
        for turn in range(options.repeats + 1):
            kinds = [("without", contextlib.nullcontext), ("with", pretended)]
            for kind, place in kinds if turn % 2 else kinds[::-1]:
                with place(), threadpool_limits(1):
                    begin = time.process_time()
                    weights[kind] = make().fit(X, y).coef_
                    if turn:
                        seconds[kind].append(time.process_time() - begin)
        # other work on the machine makes a fit longer, never shorter
        rows[name] = {kind: min(times) for kind, times in seconds.items()}
        rows[name] |= {
            "ratio": rows[name]["with"] / rows[name]["without"],
            "same": np.asarray(weights["with"]).tobytes() == np.asarray(weights["without"]).tobytes(),
        }
    return {"rows": options.rows, "repeats": options.repeats, "systems": rows}


def markdown(result: dict) -> str:
    """A row for each system."""
    header = ["system", "without, ms", "with a GPU, ms", "ratio", "same model"]
    lines = [
        [
            name,
            1e3 * row["without"],
            1e3 * row["with"],
            row["ratio"],
            "yes" if row["same"] else "no",
        ]
        for name, row in result["systems"].items()
    ]
    return (
        f"{result['rows']} rows, {result['repeats']} fits of each\n\n{_report.markdown_table(header, lines)}"
    )


if __name__ == "__main__":
    _report.main("gpu_pretended", Options, __doc__, run, markdown)
