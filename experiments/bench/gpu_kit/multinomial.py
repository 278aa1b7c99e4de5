"""Multinomial logistic regression of naics2017, by the methods that a device has and by that of a CPU."""

from __future__ import annotations

import time

from experiments import _multiclass
from experiments.bench.gpu_kit import _problems
from experiments.bench.gpu_kit._kit import Kit

LAM, TOL = 0.1, 1e-3


def run(kit: Kit) -> None:
    """Runs each method twice, the first time with compilation."""
    from xmcjax import MultinomialLogisticRegression

    if kit.small:
        X, y, _ = _problems.data()
    else:
        X, y, *_ = _multiclass.load("naics2017")
    for method in kit.size(("auto", "newton", "lc_extrapolated"), ("newton",)):
        for name in ("cold", "warm"):
            with kit.attempt(f"multinomial, {method}, {name}"):
                begin = time.perf_counter()
                model = MultinomialLogisticRegression(method, C=1 / LAM, tol=TOL).fit(X, y)
                kit.figure(
                    f"multinomial, {method}, {name}",
                    seconds=time.perf_counter() - begin,
                    objective=model.objective_,
                    iterations=model.n_iter_,
                    status=model.status_.name,
                )
