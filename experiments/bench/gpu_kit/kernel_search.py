"""The search for hyperparameters of kernel multinomial regression on satimage."""

from __future__ import annotations

import time

import numpy as np

from experiments.bench.gpu_kit import _problems
from experiments.bench.gpu_kit._kit import Kit
from experiments.papers.p003 import figures_3_4

FOLDS = 5


def run(kit: Kit) -> None:
    """Runs a few iterations of the search twice, the first time with compilation, then on more rows."""
    from xmcjax import KernelLogisticClassifier

    if kit.small:
        data = _problems.data()
        X, y = data.X.toarray(), data.y
    else:
        X, y, *_ = figures_3_4.load("range")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    runs = [(n, name) for n in kit.size((1_000, 4_000), (60,)) for name in ("cold", "warm")]
    for rows, name in runs:
        with kit.attempt(f"kernel search, {rows} rows, {name}"):
            chosen = order[:rows]
            model = KernelLogisticClassifier(v=10.0, w=1 / float(X.var(axis=0).sum()), tol=3e-4)
            begin = time.perf_counter()
            folds = np.arange(len(chosen)) % FOLDS
            model.tune(X[chosen], y[chosen], folds, share="all", max_iter=kit.size(10, 1))
            kit.figure(
                f"kernel search, {rows} rows, {name}",
                seconds=time.perf_counter() - begin,
                criterion=model.criterion_,
                evaluations=model.search_.history[-1].evaluations,
                iterations=len(model.search_.history) - 1,
            )
